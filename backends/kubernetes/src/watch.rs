//! Wakes the driver when a workload has changed, so that a rollout's end is noticed at once and not at the next poll.
//!
//! One task per workload watches its metadata and that of its pods, and one per run of a release command those of its
//! Job. It outlives the single call, so that a call begins without a list, and a change between two calls is kept. Nothing
//! depends on it: a watch that fails is begun again, and callers poll as well. A namespace has a bounded number of watches, each
//! of which holds connections to the API server: what is beyond is polled alone.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use futures_util::{Stream, StreamExt, stream::BoxStream};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, runtime::watcher};
use rollhook_core::{Result, ports::DeployId};
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
/// The most watches of a namespace.
const WATCHES_MAX: usize = 256;
/// The pause after a watch could not be begun.
const RETRY: Duration = Duration::from_secs(5);

/// The open watches, one per key. A watch of another deploy with the same key takes its place.
pub(crate) struct Watches<K>(Arc<Mutex<BTreeMap<K, Watch>>>);

impl<K> Default for Watches<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

/// The watch of one deploy, which ends when this is dropped.
struct Watch {
    namespace: String,
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

impl<K: Clone + Ord + Send + 'static> Watches<K> {
    /// Returns at the next of these changes of a deploy in a namespace since the last call returned, or after a while. They are
    /// watched only if none are yet, and the namespace has few enough watches.
    pub(crate) async fn changed(
        &self,
        key: K,
        (namespace, deploy): (&str, DeployId),
        changes: impl FnOnce() -> BoxStream<'static, ()>,
    ) {
        let Some(signals) = self.signals(key, (namespace, deploy), changes) else { return sleep(WAIT).await };
        signals.awaited.notify_one();
        // An early return is always allowed.
        let _ = timeout(WAIT, signals.changed.notified()).await;
    }

    /// Returns the signals of the deploy's watch. Begins the watch if there is none, and ends that of another revision. `None`:
    /// the namespace has as many as it may.
    fn signals(
        &self,
        key: K,
        (namespace, deploy): (&str, DeployId),
        changes: impl FnOnce() -> BoxStream<'static, ()>,
    ) -> Option<Arc<Signals>> {
        let mut open = lock(&self.0);
        match open.get(&key) {
            Some(watch) if watch.deploy == deploy => return Some(watch.signals.clone()),
            Some(_) => {}
            None if open.values().filter(|watch| watch.namespace == namespace).count() >= WATCHES_MAX => return None,
            None => {}
        }
        let signals = Arc::<Signals>::default();
        let run = run(key.clone(), changes(), signals.clone(), Arc::downgrade(&self.0));
        let task = tokio::spawn(run).abort_handle();
        open.insert(key, Watch { namespace: namespace.to_owned(), deploy, signals: signals.clone(), task });
        Some(signals)
    }
}

/// Signals each change until no call has waited for a while; then removes the watch.
async fn run<K: Ord>(
    key: K,
    mut changes: BoxStream<'static, ()>,
    signals: Arc<Signals>,
    open: Weak<Mutex<BTreeMap<K, Watch>>>,
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
        if open.get(&key).is_some_and(|watch| Arc::ptr_eq(&watch.signals, &signals)) {
            open.remove(&key);
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

#[cfg(test)]
mod tests {
    use rollhook_core::{app::AppUid, deploy::Revision};

    use super::*;

    fn never() -> BoxStream<'static, ()> {
        futures_util::stream::pending().boxed()
    }

    /// Returns whether the watch of the first of two deploys of an app goes on beside that of the second.
    async fn goes_on<K: Copy + Ord + Send + 'static>(key: impl Fn(DeployId) -> K) -> bool {
        let watches = Watches::default();
        let [first, second] =
            [1, 2].map(|number| DeployId { app: AppUid::from_bits(7), revision: Revision::new(number).unwrap() });
        let signals = |deploy| watches.signals(key(deploy), ("shop-test", deploy), never).unwrap();
        let before = signals(first);
        signals(second);
        Arc::ptr_eq(&before, &signals(first))
    }

    #[tokio::test(start_paused = true)]
    async fn namespace_has_a_bounded_number_of_watches_and_what_is_beyond_is_polled() {
        let watches = Watches::default();
        let deploy = |app| DeployId { app: AppUid::from_bits(app), revision: Revision::FIRST };
        let is_watched = |namespace: &str, app| watches.signals(app, (namespace, deploy(app)), never).is_some();
        let most = WATCHES_MAX as u128;
        assert_eq!((0..most + 50).filter(|app| is_watched("shop-test", *app)).count(), WATCHES_MAX);
        assert!(is_watched("shop-test", 0) && !is_watched("shop-test", most), "those that are watched stay so");
        assert!(is_watched("shop-prod", most + 100), "another namespace has its own");
        let begin = Instant::now();
        watches.changed(most, ("shop-test", deploy(most)), never).await;
        assert_eq!(begin.elapsed(), WAIT, "it returns to be polled");
        sleep(2 * IDLE).await;
        assert!(is_watched("shop-test", most), "the others have ended");
    }

    #[tokio::test]
    async fn watches_of_different_keys_go_on_beside_each_other() {
        assert!(goes_on(|deploy| (deploy.app, deploy.revision)).await);
        assert!(!goes_on(|deploy| deploy.app).await);
    }
}
