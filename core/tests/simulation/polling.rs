//! A replica's way to the sources that it reads branches of.

use std::sync::{Arc, atomic::AtomicBool};

use async_trait::async_trait;
use rollhook_conformance::Faulty;
use rollhook_core::{
    Result,
    app::AppId,
    deploy::Commit,
    ports::BranchReader,
    source::{BranchLog, GitSource, LoggedCommit},
};

use crate::{broken::Promise, recording_ports::RecordingPorts};

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

    async fn log(&self, app: &AppId, source: &GitSource) -> Result<BranchLog> {
        let mut log = self.backend.heads.log(app, source).await;
        if self.environment.promise == Some(Promise::LogOrder) {
            log = log.map(|log| reversed(&log));
        }
        self.log_answer(&format!("log of branch {}", source.branch), &log);
        log
    }
}

/// A log of the same commits, each of which was made from the next newer one.
fn reversed(log: &BranchLog) -> BranchLog {
    let oldest_first: Vec<_> = log.commits().iter().rev().map(|logged| logged.commit.clone()).collect();
    let parents = oldest_first.iter().skip(1).map(|next| vec![next.clone()]).chain([Vec::new()]);
    let commits = oldest_first.iter().cloned().zip(parents);
    BranchLog::new(commits.map(|(commit, parents)| LoggedCommit { commit, parents }).collect())
}

/// Notes who polls when it begins: troubles may let the question itself come later.
pub(crate) struct RecordedReads {
    pub(crate) inner: Arc<Faulty<RecordingPorts>>,
    pub(crate) recording_ports: Arc<RecordingPorts>,
    /// Whether an image was missing, so that the tags nearest to it are looked for.
    pub(crate) is_missing: AtomicBool,
}

#[async_trait]
impl BranchReader for RecordedReads {
    /// A caller's, who was told of a push, or a driver's who asks for the order of a commit.
    async fn head(&self, app: &AppId, source: &GitSource) -> Result<Option<Commit>> {
        self.inner.head(app, source).await
    }

    async fn look(&self, app: &AppId, source: &GitSource) -> Result<Option<Commit>> {
        let RecordingPorts { environment, life, .. } = &*self.recording_ports;
        let moment = environment.moment().own;
        environment.rules.lock().unwrap().looks(life, source, moment, &environment.journal);
        self.inner.look(app, source).await
    }

    async fn log(&self, app: &AppId, source: &GitSource) -> Result<BranchLog> {
        self.inner.log(app, source).await
    }
}
