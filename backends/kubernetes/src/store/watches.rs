//! The three watches that feed what is known: all that an idle store costs, however many apps there are.

use std::{fmt::Debug, pin::pin, sync::Arc, time::Duration};

use futures_util::{Stream, StreamExt};
use kube::{Api, core::Resource, runtime::watcher};
use rollhook_core::ports::AppChange;
use serde::de::DeserializeOwned;
use tokio::{
    sync::{broadcast, watch},
    task::AbortHandle,
    time::Instant,
};

use super::{
    api::ApiServer,
    archive::{Archive, OTHERS},
    cache::Cache,
    hand_made::HandMade,
};

/// A watch is begun anew, from where it was, after this many seconds: so long, and 5 s more, a dead one may go
/// unnoticed, which must be well within the time of a take-over.
const WATCH: u32 = 10;
/// The size of a page of a list, and the deadline of a page.
const PAGE: u32 = 100;
const LIST: Duration = Duration::from_secs(15);
/// How long to wait before a watch that was interrupted is begun again: the delay after an outage must be well within
/// the time of a take-over.
const AGAIN: Duration = Duration::from_millis(200);
const AGAIN_AT_MOST: Duration = Duration::from_secs(5);
/// After this long without failure the next one is the first again; else lists without watches would follow each other.
const STEADY: Duration = Duration::from_secs(60);
/// The hints that a listener may be behind with before it is told [`AppChange::Any`] instead.
const HINTS: usize = 1024;

/// Hints of commits, for those who watch.
#[derive(Clone)]
pub(crate) struct Changes(broadcast::Sender<AppChange>);

impl Changes {
    pub(crate) fn new() -> Self {
        Self(broadcast::channel(HINTS).0)
    }

    pub(crate) fn send(&self, change: AppChange) {
        // A hint that nothing listens to is no failure.
        let _ = self.0.send(change);
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
    /// Starts to watch apps and deploys, and to archive.
    pub(crate) fn start(api: &ApiServer, cache: &Arc<Cache>, changes: &Changes, archive: &Arc<Archive>) -> Self {
        let (apps, seen, told, settled) = (api.all(), cache.clone(), changes.clone(), archive.clone());
        let (hand_made, marked) = HandMade::new(api.clone());
        let apps = async move {
            let show = |event| {
                hand_made.note(&event);
                let change = seen.app_event(event);
                seen.take_denied().into_iter().for_each(|(object, why)| hand_made.queue(object, why));
                let Some(change) = change else { return };
                if let AppChange::App(app, _) = change {
                    settled.schedule(app, OTHERS);
                }
                told.send(change);
            };
            follow(apps, LIST, seen.relists(), show).await;
        };
        let (deploys, seen) = (api.all(), cache.clone());
        let deploys = async move {
            // The list of deploys completes what the list of apps shows.
            seen.apps_listed().await;
            follow(deploys, LIST, seen.relists(), |event| seen.deploy_event(event)).await;
        };
        let archive = archive.clone();
        let archive = async move { archive.run().await };
        Self(vec![
            tokio::spawn(apps).abort_handle(),
            tokio::spawn(marked).abort_handle(),
            tokio::spawn(deploys).abort_handle(),
            tokio::spawn(archive).abort_handle(),
        ])
    }

    /// Starts to watch records, and to delete expired ones.
    #[cfg(feature = "management")]
    pub(crate) fn and_of(
        mut self,
        records: &Arc<super::records::Records>,
        api: &ApiServer,
        cache: &Arc<Cache>,
    ) -> Self {
        let (own, seen, relists) = (api.own(), records.seen().clone(), cache.relists());
        let watched = async move { follow(own, LIST, relists, |event| seen.event(event)).await };
        let records = records.clone();
        let swept = async move { records.sweep().await };
        self.0.extend([tokio::spawn(watched).abort_handle(), tokio::spawn(swept).abort_handle()]);
        self
    }
}

/// Follows one kind for as long as the store lives; a watch that fails, or must list anew, is begun again.
async fn follow<K>(api: Api<K>, list: Duration, mut relists: watch::Receiver<u64>, show: impl Fn(watcher::Event<K>))
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let config = watcher::Config::default().timeout(WATCH).page_size(PAGE);
    let kind = K::plural(&()).into_owned();
    let mut interruption = Interruption { kind, lasts: false, wait: AGAIN, met_at: None };
    loop {
        tokio::select! {
            () = follow_once(watcher(api.clone(), config.clone()), list, &show, &mut interruption) => {}
            _ = relists.changed() => {}
        }
    }
}

/// Follows one kind until a page of a list does not come in time.
async fn follow_once<K>(
    events: impl Stream<Item = watcher::Result<watcher::Event<K>>>,
    list: Duration,
    show: &impl Fn(watcher::Event<K>),
    interruption: &mut Interruption,
) {
    let mut events = pin!(events);
    let mut listing = true;
    loop {
        let next = events.next();
        let event = match listing {
            true => tokio::time::timeout(list, next).await,
            false => Ok(next.await),
        };
        match event {
            Ok(Some(Ok(event))) => {
                listing = matches!(event, watcher::Event::Init | watcher::Event::InitApply(_));
                if !listing {
                    interruption.ended();
                }
                show(event);
            }
            Ok(Some(Err(error))) => tokio::time::sleep(interruption.met(&error)).await,
            Ok(None) => return,
            Err(late) => return tokio::time::sleep(interruption.met(&late)).await,
        }
    }
}

/// Whether a watch is interrupted: logged once, and again when it goes on.
struct Interruption {
    kind: String,
    lasts: bool,
    wait: Duration,
    met_at: Option<Instant>,
}

impl Interruption {
    /// Returns how long to wait before the next attempt.
    fn met(&mut self, error: &dyn std::error::Error) -> Duration {
        let (kind, error) = (&self.kind, rollhook_core::error::chain(error));
        match std::mem::replace(&mut self.lasts, true) {
            false => tracing::warn!(kind, error, "watching is interrupted; commits of others are seen later"),
            true => tracing::debug!(kind, error, "watching is still interrupted"),
        }
        let now = Instant::now();
        let is_first = self.met_at.replace(now).is_none_or(|before| now > before + STEADY);
        self.wait = if is_first { AGAIN } else { AGAIN_AT_MOST.min(self.wait * 2) };
        self.wait
    }

    fn ended(&mut self) {
        if std::mem::take(&mut self.lasts) {
            tracing::info!(kind = self.kind, "watching goes on");
        }
    }
}

#[cfg(test)]
mod tests;
