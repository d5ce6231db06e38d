//! The two watches that feed the mirror: all that an idle store costs, however many apps there are.

use std::{fmt::Debug, pin::pin, sync::Arc, time::Duration};

use futures_util::{Stream, StreamExt};
use kube::{
    Api,
    core::{PartialObjectMeta, Resource},
    runtime::{
        WatchStreamExt,
        utils::{Backoff, ResetTimerBackoff},
        watcher,
    },
};
use rollhook_core::{app::AppUid, ports::{AppChange, Version}};
use serde::de::DeserializeOwned;
use tokio::{sync::broadcast, task::AbortHandle};

use super::{
    api::ApiServer,
    archive::{Archive, OTHERS},
    crd::{AppObject, DeployObject},
    mirror::Mirror,
};

/// A watch is begun anew, from where it was, after this many seconds: so long, and 5 s more, a dead one may go unnoticed,
/// which must be well within the time of a take-over.
const WATCH: u32 = 10;
/// The size of a page of a list, and the deadline of a page.
const PAGE: u32 = 100;
const LIST: Duration = Duration::from_secs(15);
/// How long to wait before a watch that was interrupted is begun again: the delay after an outage must be well within the
/// time of a take-over.
const AGAIN: Duration = Duration::from_millis(200);
const AGAIN_AT_MOST: Duration = Duration::from_secs(5);
/// After this long without failure the next one is the first again; else lists without watches would follow each other.
const STEADY: Duration = Duration::from_secs(60);
/// The hints that a listener may be behind with before it is told [`AppChange::Any`] instead.
const HINTS: usize = 1024;

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

/// Hints of commits, for those who watch.
#[derive(Clone)]
pub(crate) struct Changes(broadcast::Sender<AppChange>);

impl Changes {
    pub(crate) fn new() -> Self {
        Self(broadcast::channel(HINTS).0)
    }

    pub(crate) fn app(&self, app: AppUid, version: Version) {
        // A hint that nothing listens to is no failure.
        let _ = self.0.send(AppChange::App(app, version));
    }

    pub(crate) fn any(&self) {
        let _ = self.0.send(AppChange::Any);
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<AppChange> {
        self.0.subscribe()
    }
}

/// The tasks of a store; they end when this is dropped.
pub(crate) struct Tasks(Vec<AbortHandle>);

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

impl Tasks {
    /// Starts to watch, and to archive.
    pub(crate) fn start(api: &ApiServer, mirror: &Arc<Mirror>, changes: &Changes, archive: &Arc<Archive>) -> Self {
        let feed = Feed { mirror: mirror.clone(), changes: changes.clone(), archive: archive.clone(), list: LIST };
        let config = watcher::Config::default().timeout(WATCH).page_size(PAGE);
        let apps = run::<AppObject>(api.all(), config.clone(), feed.clone());
        let (deploys, archive) = (api.all(), archive.clone());
        let deploys = async move {
            // The list of deploys completes what the list of apps tells.
            feed.mirror.listed(|kinds| kinds.apps).await;
            run::<PartialObjectMeta<DeployObject>>(deploys, config, feed).await;
        };
        let archive = async move { archive.run().await };
        Self(vec![
            tokio::spawn(apps).abort_handle(),
            tokio::spawn(deploys).abort_handle(),
            tokio::spawn(archive).abort_handle(),
        ])
    }
}

/// The receivers of what the watches show.
#[derive(Clone)]
struct Feed {
    mirror: Arc<Mirror>,
    changes: Changes,
    archive: Arc<Archive>,
    /// The deadline of a page of a list.
    list: Duration,
}

/// A kind of object that is mirrored.
trait Mirrored: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static {
    fn listing(feed: &Feed);
    fn note(self, feed: &Feed, listed: bool);
    fn forget(self, feed: &Feed);
    fn listed(feed: &Feed);
}

impl Mirrored for AppObject {
    fn listing(feed: &Feed) {
        feed.mirror.apps_listing();
    }

    fn note(self, feed: &Feed, listed: bool) {
        if let Some((app, version)) = feed.mirror.note_app(self, listed) {
            feed.changes.app(app, version);
            feed.archive.schedule(app, OTHERS);
        }
    }

    fn forget(self, feed: &Feed) {
        if let Some(app) = feed.mirror.forget_app(&self.metadata) {
            feed.changes.app(app, Version::REMOVED);
        }
    }

    fn listed(feed: &Feed) {
        feed.mirror.apps_listed();
        // Hints may have been lost while nothing was watched.
        feed.changes.any();
    }
}

impl Mirrored for PartialObjectMeta<DeployObject> {
    fn listing(feed: &Feed) {
        feed.mirror.deploys_listing();
    }

    fn note(self, feed: &Feed, listed: bool) {
        feed.mirror.note_deploy(self.metadata, listed);
    }

    fn forget(self, feed: &Feed) {
        feed.mirror.forget_seen_deploy(self.metadata);
    }

    fn listed(feed: &Feed) {
        feed.mirror.deploys_listed();
    }
}

/// Follows one kind for as long as the store lives; a watch that fails is begun again.
async fn run<K: Mirrored>(api: Api<K>, config: watcher::Config, feed: Feed) {
    let mut interruption = Interruption::default();
    let mut relists = feed.mirror.relists();
    loop {
        let events = watcher(api.clone(), config.clone()).backoff(ResetTimerBackoff::new(Again(AGAIN), STEADY));
        tokio::select! {
            () = follow(events, &feed, &mut interruption) => {}
            _ = relists.changed() => {}
        }
    }
}

/// Follows one kind until a page of a list does not come in time.
async fn follow<K: Mirrored>(
    events: impl Stream<Item = watcher::Result<watcher::Event<K>>>,
    feed: &Feed,
    interruption: &mut Interruption,
) {
    let mut events = pin!(events);
    let mut listing = true;
    loop {
        let next = events.next();
        let event = match listing {
            true => tokio::time::timeout(feed.list, next).await,
            false => Ok(next.await),
        };
        match event {
            Ok(Some(Ok(event))) => {
                listing = matches!(event, watcher::Event::Init | watcher::Event::InitApply(_));
                if !listing {
                    interruption.ended::<K>();
                }
                pass_on(event, feed);
            }
            Ok(Some(Err(error))) => interruption.met::<K>(&error),
            Ok(None) => return,
            Err(late) => return interruption.met::<K>(&late),
        }
    }
}

fn pass_on<K: Mirrored>(event: watcher::Event<K>, feed: &Feed) {
    match event {
        watcher::Event::Init => K::listing(feed),
        watcher::Event::InitApply(object) => object.note(feed, true),
        watcher::Event::InitDone => K::listed(feed),
        watcher::Event::Apply(object) => object.note(feed, false),
        watcher::Event::Delete(object) => object.forget(feed),
    }
}

/// Whether a watch is interrupted: logged once, and again when it goes on.
#[derive(Default)]
struct Interruption(bool);

impl Interruption {
    fn met<K: Mirrored>(&mut self, error: &dyn std::error::Error) {
        let error = rollhook_core::error::chain(error);
        match std::mem::replace(&mut self.0, true) {
            false => tracing::warn!(kind = %K::kind(&()), error, "watching is interrupted; commits of others are seen later"),
            true => tracing::debug!(kind = %K::kind(&()), error, "watching is still interrupted"),
        }
    }

    fn ended<K: Mirrored>(&mut self) {
        if std::mem::take(&mut self.0) {
            tracing::info!(kind = %K::kind(&()), "watching goes on");
        }
    }
}

#[cfg(test)]
mod tests;
