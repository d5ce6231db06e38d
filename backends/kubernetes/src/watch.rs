//! Wakes the driver when a workload has changed, so that a rollout's end is noticed at once and not at the next poll.
//!
//! One task per app watches the metadata of the workload and of its pods, and another one those of a release command's Job. It outlives the single call, so that a call
//! begins without a list, and a change between two calls is kept. Nothing depends on it: a watch that fails is begun
//! again, and callers poll as well.

use std::{
    collections::HashMap,
    pin::pin,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use futures_util::{Stream, StreamExt, stream::BoxStream};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, runtime::watcher};
use rollhook_core::{Result, app::AppUid, ports::DeployId};
use tokio::{
    sync::Notify,
    task::AbortHandle,
    time::{Instant, sleep, timeout},
};

use crate::{
    client::{Cluster, parsed},
    lock,
    object_version::{self, ObjectVersion},
    retries::Retries,
    workload::Rollout,
};

/// The time after which a watch ends that no call has waited for.
const IDLE: Duration = Duration::from_secs(60);
/// The longest time that one call waits; it is repeated, which keeps the watch alive.
const WAIT: Duration = Duration::from_secs(20);
/// The pause after a watch could not be begun.
const RETRY: Duration = Duration::from_secs(5);

/// The open watches, one per app.
#[derive(Clone, Default)]
pub(crate) struct Watches(Arc<Mutex<HashMap<AppUid, Watch>>>);

/// The watch of one deploy, which ends when this is dropped.
struct Watch {
    deploy: DeployId,
    signals: Arc<Signals>,
    task: AbortHandle,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The signals between a watch and its waiting calls; each is kept until it is received.
#[derive(Default)]
struct Signals {
    changed: Notify,
    awaited: Notify,
}

impl Watches {
    /// Returns at the next of these changes of a deploy since the last call returned. They are watched only if none are yet.
    pub(crate) async fn changed(&self, deploy: DeployId, changes: impl FnOnce() -> BoxStream<'static, ()>) {
        let signals = self.signals(deploy, changes);
        signals.awaited.notify_one();
        // An early return is always allowed.
        let _ = timeout(WAIT, signals.changed.notified()).await;
    }

    /// The signals of the deploy's watch. Begins the watch if there is none, and ends that of another revision.
    fn signals(&self, deploy: DeployId, changes: impl FnOnce() -> BoxStream<'static, ()>) -> Arc<Signals> {
        let mut open = lock(&self.0);
        if let Some(watch) = open.get(&deploy.app).filter(|watch| watch.deploy == deploy) {
            return watch.signals.clone();
        }
        let signals = Arc::<Signals>::default();
        let run = run(deploy.app, changes(), signals.clone(), Arc::downgrade(&self.0));
        let task = tokio::spawn(run).abort_handle();
        open.insert(deploy.app, Watch { deploy, signals: signals.clone(), task });
        signals
    }
}

/// Signals each change until no call has waited for a while; then removes the watch.
async fn run(
    app: AppUid,
    mut changes: BoxStream<'static, ()>,
    signals: Arc<Signals>,
    open: Weak<Mutex<HashMap<AppUid, Watch>>>,
) {
    let mut idle = pin!(sleep(IDLE));
    loop {
        tokio::select! {
            () = &mut idle => break,
            () = signals.awaited.notified() => idle.as_mut().reset(Instant::now() + IDLE),
            Some(()) = changes.next() => signals.changed.notify_one(),
            else => break,
        }
    }
    if let Some(open) = open.upgrade() {
        let mut open = lock(&open);
        if open.get(&app).is_some_and(|watch| Arc::ptr_eq(&watch.signals, &signals)) {
            open.remove(&app);
        }
    }
}

/// An endless stream with an item for each change of the rollout's workload or its pods.
pub(crate) fn changes(cluster: Cluster, rollout: Rollout) -> BoxStream<'static, ()> {
    futures_util::stream::once(async move {
        loop {
            match streams(&cluster, &rollout).await {
                Ok(streams) => return streams,
                Err(error) => {
                    tracing::debug!(app = %rollout.app, error = %error.chain(), "watching the workload failed")
                }
            }
            sleep(RETRY).await;
        }
    })
    .flatten()
    .boxed()
}

async fn streams(cluster: &Cluster, rollout: &Rollout) -> Result<BoxStream<'static, ()>> {
    let (namespace, workload) = (rollout.namespace(), &rollout.workload);
    let one = object_version::watch().fields(&format!("metadata.name={}", workload.name));
    let of_workload = events(cluster.workloads(namespace, workload.kind), one);
    let object = cluster.target(rollout).await?;
    // Without a workload there is no selector for pods; that it is made is found out by the poll.
    let Some(selector) = object.as_ref().and_then(|object| object.selector()) else { return Ok(of_workload.boxed()) };
    let selected = object_version::watch().labels_from(&parsed(selector)?);
    let of_pods = events(object_version::of::<Pod>(cluster, namespace), selected);
    Ok(futures_util::stream::select(of_workload, of_pods).boxed())
}

/// A stream with an item for each change of the objects, and one after each time that they were listed anew.
pub(crate) fn events(api: Api<ObjectVersion>, config: watcher::Config) -> impl Stream<Item = ()> + Send + 'static {
    let kind = api.resource_url().to_owned();
    let begun = (watcher(api, config).boxed(), Retries::default(), kind);
    futures_util::stream::unfold(begun, async move |(mut events, mut retries, kind)| {
        loop {
            match events.next().await? {
                Ok(event) => {
                    retries.note(&event);
                    if !matches!(event, watcher::Event::Init | watcher::Event::InitApply(_)) {
                        return Some(((), (events, retries, kind)));
                    }
                }
                Err(error) => {
                    tracing::debug!(kind, error = %error, "watching was interrupted");
                    sleep(retries.pause()).await;
                }
            }
        }
    })
}
