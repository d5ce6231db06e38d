//! The bounds of all records of a kind in the store, beside those of each caller: the oldest go.
//!
//! To count records costs a store some work. A process therefore looks once it has written a thousand of
//! a kind, so that there are at most as many more than the bound, per process.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use crate::{Management, ports::RecordKind};

/// The most sessions of a store: the oldest ones end.
pub const STORED_SESSIONS_MAX: usize = 20_000;
/// The most entries of the audit: the oldest ones go, although their time is not over. The log has each of them.
pub const AUDIT_MAX: usize = 200_000;
/// The records of a kind that a process writes before it looks.
const EVERY: usize = 1_000;
/// How often a process compares what it has written.
const INTERVAL: Duration = Duration::from_secs(60);

/// The number of records that this process has written since it last looked.
#[derive(Default)]
pub(crate) struct Written {
    sessions: AtomicUsize,
    audit: AtomicUsize,
}

impl Written {
    pub(crate) fn session(&self) {
        self.sessions.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn audit(&self) {
        self.audit.fetch_add(1, Ordering::Relaxed);
    }
}

impl Management {
    /// Removes the oldest records of the kinds that calls fill, whenever there are too many.
    pub(crate) async fn keep_bounds(&self) {
        loop {
            for (kind, written, most) in [
                (RecordKind::Session, &self.written.sessions, STORED_SESSIONS_MAX),
                (RecordKind::Audit, &self.written.audit, AUDIT_MAX),
            ] {
                let count = written.load(Ordering::Relaxed);
                if count < EVERY {
                    continue;
                }
                match self.records.remove_oldest(kind, most).await {
                    Ok(removed) => {
                        written.fetch_sub(count, Ordering::Relaxed);
                        if removed > 0 {
                            tracing::warn!(%kind, removed, most, "removed the oldest records: there were too many");
                        }
                    }
                    Err(error) => tracing::warn!(%kind, error = %error.chain(), "removing the oldest records failed"),
                }
            }
            self.deployer.ports().clock.sleep(INTERVAL).await;
        }
    }
}
