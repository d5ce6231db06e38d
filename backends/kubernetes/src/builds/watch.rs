//! Wakes waiting callers when a build has changed: one watch of all builds, for as long as a caller waits.
//!
//! Nothing depends on it: a watch that fails is begun again, and callers poll as well.

use std::{pin::pin, sync::Mutex, time::Duration};

use futures_util::{StreamExt, stream::select};
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{interval, timeout},
};

use super::names;
use crate::{client::Cluster, lock, object_version, watch::events};

/// The longest time that one call waits.
const WAIT: Duration = Duration::from_secs(20);
/// The time between two checks whether a call still waits.
const IDLE: Duration = Duration::from_secs(60);

/// A watch of the Jobs and pods of all builds.
pub(super) struct BuildWatch {
    changes: watch::Sender<u64>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl BuildWatch {
    pub(super) fn new() -> Self {
        Self { changes: watch::Sender::new(0), task: Mutex::new(None) }
    }

    /// Returns at the next change, or after a while.
    pub(super) async fn changed(&self, cluster: &Cluster, namespace: &str) {
        let mut changes = self.changes.subscribe();
        {
            let mut task = lock(&self.task);
            if task.as_ref().is_none_or(JoinHandle::is_finished) {
                *task = Some(tokio::spawn(run(self.changes.clone(), cluster.clone(), namespace.to_owned())));
            }
        }
        // An early return is always allowed.
        let _ = timeout(WAIT, changes.changed()).await;
    }
}

impl Drop for BuildWatch {
    fn drop(&mut self) {
        if let Some(task) = &*lock(&self.task) {
            task.abort();
        }
    }
}

async fn run(changes: watch::Sender<u64>, cluster: Cluster, namespace: String) {
    let config = object_version::watch().labels(&names::all());
    let jobs = events(object_version::of::<Job>(&cluster, &namespace), config.clone());
    let mut events = pin!(select(jobs, events(object_version::of::<Pod>(&cluster, &namespace), config)));
    let mut checks = interval(IDLE);
    checks.tick().await;
    loop {
        tokio::select! {
            _ = checks.tick() => if changes.receiver_count() == 0 { return },
            Some(()) = events.next() => changes.send_modify(|count| *count = count.wrapping_add(1)),
            else => return,
        }
    }
}
