//! Drift of workloads at rest, which others changed: one watch of metadata per namespace and kind of workload tells
//! when to look, so that a look at an app that nothing has touched costs no call.
//!
//! A verdict holds for as long as the workload's generation and stamp are those that it was made of, and the watch
//! runs.

use std::{
    collections::HashMap,
    pin::pin,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use futures_util::StreamExt;
use kube::{
    api::ObjectMeta,
    core::{DynamicObject, PartialObjectMeta},
    runtime::watcher::{self, Event},
};
use rollhook_core::{
    Result,
    app::AppUid,
    ports::{DeployId, Drift},
};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::AbortHandle,
};

use crate::{
    client::Cluster,
    error::GRANT,
    lock,
    retries::{self, Retries},
    rules::{
        drift,
        object::{Object, STAMP},
    },
    workload::{Rollout, WorkloadKind},
};

/// A watch is begun anew, from where it was, after this many seconds.
const WATCH: u32 = 60;
/// How long the connection of a watch may be silent: longer than a watch, which tells something at its end.
pub(crate) const SILENCE: Duration = Duration::from_secs(75);

/// The namespace and the kind of workloads that are watched together.
type Place = (String, WorkloadKind);

/// The verdicts on workloads, and the watches of them.
pub(crate) struct Drifts {
    /// The connection of watches.
    cluster: Cluster,
    shared: Arc<Shared>,
    hints: Mutex<Option<UnboundedReceiver<AppUid>>>,
}

struct Shared {
    state: Mutex<State>,
    changed: UnboundedSender<AppUid>,
}

#[derive(Default)]
struct State {
    apps: HashMap<AppUid, Known>,
    places: HashMap<Place, Watched>,
}

/// The last look at an app's workload.
struct Known {
    deploy: DeployId,
    place: Place,
    name: String,
    mark: Option<Mark>,
    drift: Option<Drift>,
}

/// The part of a workload that a look depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mark {
    uid: Option<String>,
    generation: Option<i64>,
    stamp: Option<String>,
}

/// The workloads of a place as its watch shows them, which ends when this is dropped.
struct Watched {
    /// Whether all of them were shown, and nothing is known to be missed since.
    is_live: bool,
    marks: HashMap<String, Mark>,
    task: AbortHandle,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Mark {
    fn of(metadata: &ObjectMeta) -> Self {
        let stamp = metadata.annotations.as_ref().and_then(|annotations| annotations.get(STAMP)).cloned();
        Self { uid: metadata.uid.clone(), generation: metadata.generation, stamp }
    }
}

impl Drifts {
    /// Watches through this connection.
    pub(crate) fn new(cluster: Cluster) -> Self {
        let (changed, hints) = unbounded_channel();
        let shared = Arc::new(Shared { state: Mutex::default(), changed });
        Self { cluster, shared, hints: Mutex::new(Some(hints)) }
    }

    /// The apps to look at; for one listener.
    pub(crate) fn take_hints(&self) -> Option<UnboundedReceiver<AppUid>> {
        lock(&self.hints).take()
    }

    /// Returns the drift of the rollout's workload: from memory if nothing has touched it.
    pub(crate) async fn look(&self, cluster: &Cluster, rollout: &Rollout) -> Result<Option<Drift>> {
        self.watch(place(rollout));
        if let Some(drift) = lock(&self.shared.state).verdict(rollout) {
            return Ok(drift);
        }
        let object = cluster.target(rollout).await?;
        Ok(self.note(rollout, object.as_ref()))
    }

    /// Notes the rollout's workload as it was read. Returns what others changed on it.
    pub(crate) fn note(&self, rollout: &Rollout, object: Option<&Object>) -> Option<Drift> {
        let drift = object.map_or_else(|| Some(drift::of_missing(rollout)), |object| drift::told(object, rollout));
        let known = Known {
            deploy: rollout.id,
            place: place(rollout),
            name: rollout.workload.name.clone(),
            mark: object.map(|object| Mark::of(object.metadata())),
            drift: drift.clone(),
        };
        lock(&self.shared.state).apps.insert(rollout.id.app, known);
        drift
    }

    /// Forgets an app, and the watch that only it needed.
    pub(crate) fn forget(&self, app: AppUid) {
        let mut state = lock(&self.shared.state);
        let Some(known) = state.apps.remove(&app) else { return };
        if state.apps.values().all(|other| other.place != known.place) {
            state.places.remove(&known.place);
        }
    }

    /// Begins to watch a place, if it is not watched.
    fn watch(&self, place: Place) {
        let mut state = lock(&self.shared.state);
        state.places.entry(place).or_insert_with_key(|place| {
            let follow = follow(self.cluster.clone(), place.clone(), Arc::downgrade(&self.shared));
            let task = tokio::spawn(follow).abort_handle();
            Watched { is_live: false, marks: HashMap::new(), task }
        });
    }
}

impl State {
    /// The last verdict on the rollout's workload. Returns `None` if it may be outdated.
    fn verdict(&self, rollout: &Rollout) -> Option<Option<Drift>> {
        let known = self.apps.get(&rollout.id.app).filter(|known| known.deploy == rollout.id)?;
        let watched = self.places.get(&known.place).filter(|watched| watched.is_live)?;
        (watched.marks.get(&known.name) == known.mark.as_ref()).then(|| known.drift.clone())
    }

    /// The apps whose workload, of this name in this place, is not as it was at the last look.
    fn outdated(&self, place: &Place, name: Option<&str>) -> Vec<AppUid> {
        let Some(watched) = self.places.get(place) else { return Vec::new() };
        let is_outdated = |known: &Known| {
            known.place == *place
                && name.is_none_or(|name| name == known.name)
                && watched.marks.get(&known.name) != known.mark.as_ref()
        };
        self.apps.iter().filter(|(_, known)| is_outdated(known)).map(|(app, _)| *app).collect()
    }

    /// Notes what a watch shows. Returns the apps to look at.
    fn note(&mut self, place: &Place, event: Event<PartialObjectMeta<DynamicObject>>) -> Vec<AppUid> {
        let Some(watched) = self.places.get_mut(place) else { return Vec::new() };
        let is_live = watched.is_live;
        let name = match event {
            Event::Init => {
                watched.is_live = false;
                watched.marks.clear();
                return Vec::new();
            }
            Event::InitApply(object) => {
                watched.marks.insert(object.metadata.name.clone().unwrap_or_default(), Mark::of(&object.metadata));
                return Vec::new();
            }
            Event::InitDone => {
                watched.is_live = true;
                None
            }
            Event::Apply(object) => {
                let name = object.metadata.name.clone().unwrap_or_default();
                let mark = Mark::of(&object.metadata);
                watched.is_live = true;
                // Most events are of the workload's status.
                if watched.marks.insert(name.clone(), mark.clone()) == Some(mark) && is_live {
                    return Vec::new();
                }
                Some(name)
            }
            Event::Delete(object) => {
                let name = object.metadata.name.clone().unwrap_or_default();
                watched.is_live = true;
                watched.marks.remove(&name);
                Some(name)
            }
        };
        self.outdated(place, name.as_deref())
    }
}

/// Follows a place for as long as its watch is wanted.
async fn follow(cluster: Cluster, place: Place, shared: Weak<Shared>) {
    let workloads = cluster.workloads(&place.0, place.1);
    let config = watcher::Config::default().timeout(WATCH);
    let mut events = pin!(watcher::watcher(workloads, config));
    let (mut retries, mut is_denied) = (Retries::default(), false);
    while let Some(event) = events.next().await {
        let Some(shared) = shared.upgrade() else { return };
        let pause = event.is_err().then(|| retries.pause());
        let outdated = match event {
            Ok(event) => {
                retries.note(&event);
                is_denied &= matches!(event, Event::Init);
                lock(&shared.state).note(&place, event)
            }
            Err(error) => {
                // Said once, and again after it was permitted.
                if retries::is_denied(&error) && !std::mem::replace(&mut is_denied, true) {
                    tracing::warn!(namespace = place.0, kind = %place.1, "watching workloads is not permitted: {GRANT}");
                }
                tracing::debug!(namespace = place.0, kind = %place.1, error = %error, "watching for drift was interrupted");
                if let Some(watched) = lock(&shared.state).places.get_mut(&place) {
                    watched.is_live = false;
                }
                Vec::new()
            }
        };
        for app in outdated {
            // Without a listener nothing is to be told.
            let _ = shared.changed.send(app);
        }
        drop(shared);
        if let Some(pause) = pause {
            tokio::time::sleep(pause).await;
        }
    }
}

fn place(rollout: &Rollout) -> Place {
    (rollout.namespace().to_owned(), rollout.workload.kind)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rules::samples::{self, merged, stamped};

    fn metadata(object: &Object) -> PartialObjectMeta<DynamicObject> {
        let metadata = object.metadata().clone();
        PartialObjectMeta { types: None, metadata, _phantom: std::marker::PhantomData }
    }

    /// The Deployment at revision 5, and the same after another party changed its image.
    fn before_and_after() -> (Object, Object) {
        let before = stamped(samples::deployment(json!({})), &samples::rollout(5));
        let Object::Deployment(object) = before.clone() else { panic!("no Deployment") };
        let container = json!([{"name": "app", "image": "registry.example.com/api:hotfix"}]);
        let changed = json!({"metadata": {"generation": 4}, "spec": {"template": {"spec": {"containers": container}}}});
        (before, samples::deployment(merged(serde_json::to_value(object).unwrap(), changed)))
    }

    #[tokio::test]
    async fn verdict_holds_until_the_workload_changes() {
        let nobody = kube::Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        let drifts = Drifts::new(Cluster::of(nobody));
        let mut hints = drifts.take_hints().unwrap();
        let (rollout, (before, after)) = (samples::rollout(5), before_and_after());
        let app = rollout.id.app;
        drifts.watch(place(&rollout));
        assert_eq!(drifts.note(&rollout, Some(&before)), None);
        let event = |event| lock(&drifts.shared.state).note(&place(&rollout), event);
        let verdict = || lock(&drifts.shared.state).verdict(&rollout);
        assert_eq!(verdict(), None, "nothing is known of changes");
        assert_eq!(event(Event::Init), []);
        assert_eq!(event(Event::InitApply(metadata(&before))), []);
        assert_eq!(event(Event::InitDone), []);
        assert_eq!(verdict(), Some(None));
        assert_eq!(event(Event::Apply(metadata(&before))), [], "its status");
        assert_eq!(event(Event::Apply(metadata(&after))), [app]);
        assert_eq!(verdict(), None, "it must be read");
        let drift = drifts.note(&rollout, Some(&after)).unwrap();
        assert_eq!(drift.image.unwrap().to_string(), "registry.example.com/api:hotfix");
        assert_eq!(verdict().unwrap().unwrap().message, drift.message);
        assert_eq!(lock(&drifts.shared.state).verdict(&samples::rollout(6)), None, "of another revision");
        assert_eq!(event(Event::Delete(metadata(&after))), [app]);
        assert!(drifts.note(&rollout, None).unwrap().message.contains("there is no Deployment api any more"));
        assert!(verdict().unwrap().is_some());
        assert!(hints.try_recv().is_err());
        drifts.forget(app);
        assert!(lock(&drifts.shared.state).places.is_empty(), "its watch has ended");
    }
}
