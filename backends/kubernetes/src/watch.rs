//! Tells when to look again, so that a rollout's end is seen at once and not at the next poll.
//!
//! One task per app watches the workload and its pods, metadata only, and rings a bell at each change. It outlives the
//! single call, so that a call does not begin with a list, and a change between two calls is not lost. Nothing depends
//! on it: a watch that fails is begun again, and callers poll as well.

use std::{
    collections::HashMap,
    fmt::Debug,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use futures_util::{Stream, StreamExt, stream::BoxStream};
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, StatefulSet},
    batch::v1::CronJob,
    core::v1::Pod,
};
use kube::{
    Api,
    core::{NamespaceResourceScope, PartialObjectMeta, Resource},
    runtime::{WatchStreamExt, watcher},
};
use rollhook_core::{Result, app::AppUid, ports::DeployId};
use serde::de::DeserializeOwned;
use tokio::{
    sync::Notify,
    task::AbortHandle,
    time::{Instant, sleep, timeout},
};

use crate::{
    client::{Cluster, parsed},
    workload::{Rollout, WorkloadKind},
};

/// A watch that nobody asked about for this long is given up.
const IDLE: Duration = Duration::from_secs(60);
/// How long one call waits at most; it is asked again, which keeps the watch alive.
const WAIT: Duration = Duration::from_secs(20);
/// How long to wait before a watch is begun that could not be.
const AGAIN: Duration = Duration::from_secs(5);

/// The watches that are open, one per app.
#[derive(Clone, Default)]
pub(crate) struct Watches(Arc<Mutex<HashMap<AppUid, Watch>>>);

/// The watch of one order; dropped, it ends.
struct Watch {
    stamp: DeployId,
    bells: Arc<Bells>,
    task: AbortHandle,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// How a watch and those who wait for it call each other; a bell that nobody hears is kept until somebody does.
#[derive(Default)]
struct Bells {
    news: Notify,
    asked: Notify,
}

impl Watches {
    /// Returns when the order's workload or pods may have changed since the last call returned.
    pub(crate) async fn changed(&self, cluster: &Cluster, order: &Rollout) {
        let bells = self.bells(cluster, order);
        bells.asked.notify_one();
        // Time being up is an early return, which is always allowed.
        let _ = timeout(WAIT, bells.news.notified()).await;
    }

    /// The bells of the order's watch, which is begun where there is none. One of an earlier revision ends.
    fn bells(&self, cluster: &Cluster, order: &Rollout) -> Arc<Bells> {
        let mut open = locked(&self.0);
        if let Some(watch) = open.get(&order.stamp.app).filter(|watch| watch.stamp == order.stamp) {
            return watch.bells.clone();
        }
        let bells = Arc::<Bells>::default();
        let run = run(cluster.clone(), order.clone(), bells.clone(), Arc::downgrade(&self.0));
        let task = tokio::spawn(run).abort_handle();
        open.insert(order.stamp.app, Watch { stamp: order.stamp, bells: bells.clone(), task });
        bells
    }
}

fn locked(open: &Mutex<HashMap<AppUid, Watch>>) -> MutexGuard<'_, HashMap<AppUid, Watch>> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Rings at each change until nobody has asked for a while, and leaves no trace.
async fn run(cluster: Cluster, order: Rollout, bells: Arc<Bells>, open: Weak<Mutex<HashMap<AppUid, Watch>>>) {
    let mut idle = pin!(sleep(IDLE));
    let mut changes = pin!(changes(cluster, order.clone()));
    loop {
        tokio::select! {
            () = &mut idle => break,
            () = bells.asked.notified() => idle.as_mut().reset(Instant::now() + IDLE),
            Some(()) = changes.next() => bells.news.notify_one(),
            else => break,
        }
    }
    if let Some(open) = open.upgrade() {
        let mut open = locked(&open);
        if open.get(&order.stamp.app).is_some_and(|watch| Arc::ptr_eq(&watch.bells, &bells)) {
            open.remove(&order.stamp.app);
        }
    }
}

/// A never-ending stream with an item for each change of the workload or its pods.
fn changes(cluster: Cluster, order: Rollout) -> impl Stream<Item = ()> + Send {
    futures_util::stream::once(async move {
        loop {
            match streams(&cluster, &order).await {
                Ok(streams) => return streams,
                Err(error) => {
                    tracing::debug!(app = %order.app, error = %error.chain(), "cannot watch the workload yet")
                }
            }
            sleep(AGAIN).await;
        }
    })
    .flatten()
}

async fn streams(cluster: &Cluster, order: &Rollout) -> Result<BoxStream<'static, ()>> {
    let Rollout { workload, app, .. } = order;
    let namespace = app.namespace.as_str();
    let one = watcher::Config::default().fields(&format!("metadata.name={}", workload.name));
    let of_workload = match workload.kind {
        WorkloadKind::Deployment => events::<Deployment>(cluster.api(namespace), one),
        WorkloadKind::StatefulSet => events::<StatefulSet>(cluster.api(namespace), one),
        WorkloadKind::DaemonSet => events::<DaemonSet>(cluster.api(namespace), one),
        WorkloadKind::CronJob => events::<CronJob>(cluster.api(namespace), one),
    };
    let object = cluster.workload(namespace, workload.kind, &workload.name).await?;
    // Without a workload there is nothing to select pods by, and the poll finds out first when it is made.
    let Some(selector) = object.as_ref().and_then(|object| object.selector()) else { return Ok(of_workload) };
    let selected = watcher::Config::default().labels_from(&parsed(selector)?);
    let of_pods = events::<Pod>(cluster.api(namespace), selected);
    Ok(futures_util::stream::select(of_workload, of_pods).boxed())
}

/// An item for each change of the objects, and one after each time that they were listed anew.
fn events<K>(api: Api<PartialObjectMeta<K>>, config: watcher::Config) -> BoxStream<'static, ()>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + Debug
        + Send
        + Sync
        + 'static,
{
    watcher(api, config)
        .default_backoff()
        .filter_map(|event| async {
            match event {
                Ok(watcher::Event::Apply(_) | watcher::Event::Delete(_) | watcher::Event::InitDone) => Some(()),
                Ok(watcher::Event::Init | watcher::Event::InitApply(_)) => None,
                Err(error) => {
                    tracing::debug!(error = %error, "a watch was interrupted");
                    None
                }
            }
        })
        .boxed()
}
