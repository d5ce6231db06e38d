//! Tells when to look again: one watch of all builds, for as long as anybody waits for one.
//!
//! Nothing depends on it: a watch that fails is begun again, and callers poll as well.

use std::{
    pin::pin,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use futures_util::{Stream, StreamExt, stream::select};
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{
    Api,
    core::{NamespaceResourceScope, PartialObjectMeta, Resource},
    runtime::{WatchStreamExt, watcher},
};
use serde::de::DeserializeOwned;
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{interval, timeout},
};

use super::names;
use crate::client::Cluster;

/// How long one call waits at most.
const WAIT: Duration = Duration::from_secs(20);
/// How often is looked whether anybody still waits.
const IDLE: Duration = Duration::from_secs(60);

/// Rings when any build's Job or pod has changed.
pub(super) struct Bell {
    rings: watch::Sender<u64>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Bell {
    pub(super) fn new() -> Self {
        Self { rings: watch::Sender::new(0), task: Mutex::new(None) }
    }

    /// Returns at the next change, or after a while.
    pub(super) async fn rung(&self, cluster: &Cluster, namespace: &str) {
        let mut heard = self.rings.subscribe();
        {
            let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
            if task.as_ref().is_none_or(JoinHandle::is_finished) {
                *task = Some(tokio::spawn(ring(self.rings.clone(), cluster.clone(), namespace.to_owned())));
            }
        }
        // Time being up is an early return, which is always allowed.
        let _ = timeout(WAIT, heard.changed()).await;
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        if let Some(task) = self.task.get_mut().unwrap_or_else(PoisonError::into_inner) {
            task.abort();
        }
    }
}

async fn ring(rings: watch::Sender<u64>, cluster: Cluster, namespace: String) {
    let mut changes = pin!(select(changes::<Job>(cluster.api(&namespace)), changes::<Pod>(cluster.api(&namespace))));
    let mut looks = interval(IDLE);
    looks.tick().await;
    loop {
        tokio::select! {
            _ = looks.tick() => if rings.receiver_count() == 0 { return },
            Some(()) = changes.next() => rings.send_modify(|count| *count = count.wrapping_add(1)),
            else => return,
        }
    }
}

fn changes<K>(api: Api<PartialObjectMeta<K>>) -> impl Stream<Item = ()> + Send
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug
        + Send
        + Sync
        + 'static,
{
    watcher(api, watcher::Config::default().labels(&names::all())).default_backoff().filter_map(|event| async {
        match event {
            Ok(watcher::Event::Apply(_) | watcher::Event::Delete(_)) => Some(()),
            Ok(watcher::Event::Init | watcher::Event::InitApply(_) | watcher::Event::InitDone) => None,
            Err(error) => {
                tracing::debug!(error = %error, "the watch of builds was interrupted");
                None
            }
        }
    })
}
