//! The three watches that feed the mirror: what an idle store costs, however many apps there are.

use std::{collections::BTreeMap, fmt::Debug, pin::pin, sync::Arc, time::Duration};

use futures_util::{Stream, StreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, ResourceExt,
    core::Resource,
    runtime::{
        WatchStreamExt,
        utils::{Backoff, ResetTimerBackoff},
        watcher,
    },
};
use rollhook_core::{app::AppUid, ports::Wake};
use serde::de::DeserializeOwned;
use tokio::{sync::broadcast, task::AbortHandle};

use super::{
    calls::{Calls, REPLICA_SELECTOR},
    crd::{AppObject, DeployObject},
    mirror::{Known, Mirror},
    version::version,
};

/// A watch is asked for anew, from where it was, after this many seconds: so long, and 5 s more, one that died may go
/// unnoticed, which must be well within the time of a take-over.
const WATCH: u32 = 10;
/// How long a page of a list may take.
const LIST: Duration = Duration::from_secs(15);
/// How long to wait before a watch is begun again that was interrupted: what an outage delays for others must be well
/// within the time of a take-over.
const AGAIN: Duration = Duration::from_millis(200);
const AGAIN_AT_MOST: Duration = Duration::from_secs(5);
/// After this long without trouble the next one is the first again; else lists without watches would follow each other.
const STEADY: Duration = Duration::from_secs(60);

/// The next wait.
struct Again(Duration);

impl Iterator for Again {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let wait = self.0;
        self.0 = AGAIN_AT_MOST.min(wait * 2);
        Some(wait)
    }
}

impl Backoff for Again {
    fn reset(&mut self) {
        self.0 = AGAIN;
    }
}

/// The tasks that watch; dropped, they end.
pub(crate) struct Watches(Vec<AbortHandle>);

impl Drop for Watches {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

impl Watches {
    /// Begins to watch.
    pub(crate) fn start(calls: &Calls, mirror: &Arc<Mirror>, wakes: &broadcast::Sender<Wake>) -> Self {
        let everything = watcher::Config::default().timeout(WATCH);
        let replicas = everything.clone().labels(REPLICA_SELECTOR);
        let feed = || Feed { mirror: mirror.clone(), wakes: wakes.clone(), list: LIST };
        // Of entries is kept what their apps need, so that these come first.
        let (feed_of_entries, deploys, all) = (feed(), calls.all_deploys(), everything.clone());
        let entries = async move {
            feed_of_entries.mirror.apps_synced().await;
            run::<DeployObject>(deploys, all, feed_of_entries).await;
        };
        Self(vec![
            tokio::spawn(run::<AppObject>(calls.all_apps(), everything, feed())).abort_handle(),
            tokio::spawn(entries).abort_handle(),
            tokio::spawn(run::<Lease>(calls.leases(), replicas, feed())).abort_handle(),
        ])
    }
}

/// Where seen objects go.
struct Feed {
    mirror: Arc<Mirror>,
    wakes: broadcast::Sender<Wake>,
    /// How long a page of a list may take.
    list: Duration,
}

impl Feed {
    fn wake(&self, app: Option<AppUid>) {
        if let Some(app) = app {
            // That nobody listens is no failure.
            let _ = self.wakes.send(Wake::App(app));
        }
    }
}

/// A kind of object that is mirrored.
trait Mirrored: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static {
    /// How the mirror tells one from another.
    type Name: Ord + Clone + Send;
    /// What the mirror keeps of one.
    type Kept: Send;

    /// None of what only looks like one.
    fn reduced(self, feed: &Feed) -> Option<(Self::Name, Self::Kept)>;
    fn note(name: Self::Name, kept: Self::Kept, feed: &Feed);
    fn forget(self, feed: &Feed);
    /// What is known now, in which version.
    fn known(feed: &Feed) -> BTreeMap<Self::Name, u64>;
    /// A list is complete, which began when `before` was known.
    fn settle(before: &BTreeMap<Self::Name, u64>, listed: BTreeMap<Self::Name, Self::Kept>, feed: &Feed);
}

impl Mirrored for AppObject {
    type Name = AppUid;
    type Kept = Self;

    fn reduced(self, feed: &Feed) -> Option<(AppUid, Self)> {
        feed.mirror.note_damaged(&self, true);
        let uid = self.spec.uid.parse().ok().filter(|_| self.is_original())?;
        Some((uid, self))
    }

    fn note(_: AppUid, kept: Self, feed: &Feed) {
        feed.wake(feed.mirror.note_app(kept));
    }

    fn forget(self, feed: &Feed) {
        let at = version(&self.metadata);
        feed.mirror.note_damaged(&self, false);
        let uid = self.spec.uid.parse().ok().filter(|_| self.is_original());
        let gone = uid.filter(|uid| feed.mirror.forget_app(*uid, at));
        feed.wake(gone);
    }

    fn known(feed: &Feed) -> BTreeMap<AppUid, u64> {
        feed.mirror.known_apps()
    }

    fn settle(before: &BTreeMap<AppUid, u64>, listed: BTreeMap<AppUid, Self>, feed: &Feed) {
        feed.mirror.settle_apps(before, listed);
        feed.mirror.note_synced(|kinds| kinds.apps = true);
    }
}

impl Mirrored for DeployObject {
    type Name = (AppUid, u64);
    type Kept = Known;

    fn reduced(self, feed: &Feed) -> Option<((AppUid, u64), Known)> {
        feed.mirror.reduced(self)
    }

    fn note(name: (AppUid, u64), kept: Known, feed: &Feed) {
        feed.wake(feed.mirror.note_known(name, kept));
    }

    fn forget(self, feed: &Feed) {
        if let Some(((uid, revision), _)) = self.reduced(feed) {
            feed.mirror.forget_entry(uid, revision);
        }
    }

    fn known(feed: &Feed) -> BTreeMap<(AppUid, u64), u64> {
        feed.mirror.known_entries()
    }

    fn settle(before: &BTreeMap<(AppUid, u64), u64>, listed: BTreeMap<(AppUid, u64), Known>, feed: &Feed) {
        feed.mirror.settle_entries(before, listed);
        feed.mirror.note_synced(|kinds| kinds.entries = true);
    }
}

impl Mirrored for Lease {
    type Name = String;
    type Kept = Self;

    fn reduced(self, _: &Feed) -> Option<(String, Self)> {
        Some((self.name_any(), self))
    }

    fn note(_: String, kept: Self, feed: &Feed) {
        feed.mirror.note_lease(kept);
    }

    fn forget(self, feed: &Feed) {
        feed.mirror.forget_lease(&self.name_any(), version(&self.metadata));
    }

    fn known(feed: &Feed) -> BTreeMap<String, u64> {
        feed.mirror.known_leases()
    }

    fn settle(before: &BTreeMap<String, u64>, listed: BTreeMap<String, Self>, feed: &Feed) {
        feed.mirror.settle_leases(before, listed);
        feed.mirror.note_synced(|kinds| kinds.leases = true);
    }
}

/// Follows one kind for as long as the store lives; a watch that fails is begun again.
async fn run<K: Mirrored>(api: Api<K>, config: watcher::Config, feed: Feed) {
    let mut trouble = RolloutFailure::default();
    loop {
        let mut went_back = feed.mirror.went_back();
        let events = watcher(api.clone(), config.clone()).backoff(ResetTimerBackoff::new(Again(AGAIN), STEADY));
        tokio::select! {
            () = follow(events, &feed, &mut trouble) => {}
            _ = went_back.changed() => {}
        }
    }
}

/// Follows one kind until a list does not come in time.
async fn follow<K: Mirrored>(
    events: impl Stream<Item = watcher::Result<watcher::Event<K>>>,
    feed: &Feed,
    trouble: &mut RolloutFailure,
) {
    let mut events = pin!(events);
    // A list comes in the order of the names, api-10 before api-9; the mirror is told in that of the revisions.
    let (mut listing, mut before, mut listed) = (true, BTreeMap::new(), BTreeMap::new());
    loop {
        let next = events.next();
        let event = match listing {
            true => tokio::time::timeout(feed.list, next).await,
            false => Ok(next.await),
        };
        let event = match event {
            Ok(Some(event)) => event,
            Ok(None) => return,
            Err(late) => return trouble.met::<K>(&late),
        };
        match event {
            Ok(watcher::Event::Init) => {
                listing = true;
                listed.clear();
                before = K::known(feed);
            }
            Ok(watcher::Event::InitApply(object)) => listed.extend(object.reduced(feed)),
            Ok(watcher::Event::InitDone) => {
                listing = false;
                K::settle(&before, std::mem::take(&mut listed), feed);
                before.clear();
                // What changed while nobody watched is anybody's guess.
                let _ = feed.wakes.send(Wake::Any);
                trouble.is_over::<K>();
            }
            Ok(watcher::Event::Apply(object)) => {
                if let Some((name, kept)) = object.reduced(feed) {
                    K::note(name, kept, feed);
                }
                trouble.is_over::<K>();
            }
            Ok(watcher::Event::Delete(object)) => object.forget(feed),
            Err(error) => trouble.met::<K>(&error),
        }
    }
}

/// Whether a watch is interrupted: told once, and again when it goes on.
#[derive(Default)]
struct RolloutFailure(bool);

impl RolloutFailure {
    fn met<K: Mirrored>(&mut self, error: &dyn std::error::Error) {
        let (kind, error) = (K::kind(&()), rollhook_core::error::chain(error));
        match std::mem::replace(&mut self.0, true) {
            false => tracing::warn!(%kind, error, "a watch was interrupted; what others write is seen later"),
            true => tracing::debug!(%kind, error, "a watch is still interrupted"),
        }
    }

    fn is_over<K: Mirrored>(&mut self) {
        if std::mem::take(&mut self.0) {
            tracing::info!(kind = %K::kind(&()), "a watch goes on");
        }
    }
}

#[cfg(test)]
mod tests;
