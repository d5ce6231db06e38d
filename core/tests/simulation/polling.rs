//! A replica's way to the sources that it reads branches of.

use std::sync::Arc;

use async_trait::async_trait;
use rollhook_conformance::Faulty;
use rollhook_core::{Result, deploy::Commit, ports::BranchReader, source::GitSource};

use crate::wire::Wire;

#[async_trait]
impl BranchReader for Wire {
    async fn head(&self, source: &GitSource) -> Result<Option<Commit>> {
        let head = self.backend.heads.head(source).await;
        // Whoever looks may be answered by a server that lags behind.
        let stale = !self.stage.is_caller() && self.faults.stale();
        let head = match head {
            Ok(head) if stale => Ok(self.stage.rules.lock().unwrap().lagging(source.branch.as_str()).unwrap_or(head)),
            other => other,
        };
        self.stage.journal.count_if(stale, "polling: a look may have found an older head");
        self.tell(|| format!("where is branch {}? {head:?}", source.branch));
        head
    }
}

/// Notes who asks when it is asked: troubles may let the question itself come later.
pub(crate) struct Asked {
    pub(crate) inner: Arc<Faulty<Wire>>,
    pub(crate) wire: Arc<Wire>,
}

#[async_trait]
impl BranchReader for Asked {
    async fn head(&self, source: &GitSource) -> Result<Option<Commit>> {
        let stage = &self.wire.stage;
        // Whoever was told of a push looks as well.
        if !stage.is_caller() {
            stage.rules.lock().unwrap().looks(&self.wire.life, source, stage.moment().own, &stage.journal);
        }
        self.inner.head(source).await
    }
}
