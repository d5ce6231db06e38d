//! A replica's way to the sources that it reads branches of.

use std::sync::Arc;

use async_trait::async_trait;
use rollhook_conformance::Faulty;
use rollhook_core::{Result, app::AppId, deploy::Commit, ports::BranchReader, source::GitSource};

use crate::recording_ports::RecordingPorts;

#[async_trait]
impl BranchReader for RecordingPorts {
    async fn head(&self, app: &AppId, source: &GitSource) -> Result<Option<Commit>> {
        let head = self.backend.heads.head(app, source).await;
        // Whoever looks may be answered by a server that lags behind.
        let stale = !self.environment.is_caller() && self.faults.stale();
        let head = match head {
            Ok(head) if stale => {
                Ok(self.environment.rules.lock().unwrap().lagging(source.branch.as_str()).unwrap_or(head))
            }
            other => other,
        };
        self.environment.journal.count_if(stale, "polling: a look may have found an older head");
        self.log(|| format!("where is branch {}? {head:?}", source.branch));
        head
    }
}

/// Notes who asks when it is asked: troubles may let the question itself come later.
pub(crate) struct RecordedReads {
    pub(crate) inner: Arc<Faulty<RecordingPorts>>,
    pub(crate) recording_ports: Arc<RecordingPorts>,
}

#[async_trait]
impl BranchReader for RecordedReads {
    async fn head(&self, app: &AppId, source: &GitSource) -> Result<Option<Commit>> {
        let environment = &self.recording_ports.environment;
        // Whoever was told of a push looks as well.
        if !environment.is_caller() {
            environment.rules.lock().unwrap().looks(
                &self.recording_ports.life,
                source,
                environment.moment().own,
                &environment.journal,
            );
        }
        self.inner.head(app, source).await
    }
}
