//! Workloads at rest: what others changed on them, and how their pods do. One watch of metadata per namespace and kind of
//! workload shows when to look, so that a look at an app that nothing has touched costs no call: the controller of a
//! workload writes its status whenever a pod gets ready or ceases to be.
//!
//! An answer holds for as long as the workload has the resource version that it was made of, the watch runs, and the pods
//! are well: those that are not change by themselves, and are read each time.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    pin::pin,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use futures_util::StreamExt;
use kube::{
    api::ObjectMeta,
    runtime::watcher::{self, Event},
};
use rollhook_core::{
    Error, Result,
    app::AppUid,
    ports::{AtRest, DeployId, Drift, Observation, Phase, References},
};
use tokio::{sync::mpsc, task::AbortHandle, time::Instant};

use crate::{
    client::Cluster,
    configurations,
    error::GRANT,
    lock,
    object_version::{self, ObjectVersion},
    references,
    retries::{self, Retries},
    rules::{
        self, drift,
        object::Object,
        observation,
        references::Noted,
        secret_drift::{self, NeededSecret},
    },
    workload::{Rollout, TargetKey, WorkloadKind},
};

/// A watch is begun anew, from where it was, after this many seconds.
const WATCH: u32 = 60;
/// How long the connection of a watch may be silent: longer than a watch, which tells something at its end.
pub(crate) const SILENCE: Duration = Duration::from_secs(75);

/// Secrets are not watched, which would take the permission to watch all of a namespace. An app with a configuration is looked
/// at again after this time, and one such app in each interval.
const SECRETS_AGE: Duration = Duration::from_secs(60);
const SECRETS_PACE: Duration = Duration::from_millis(250);

/// The time for which the compared versions of what pods read of others are believed.
const REFERENCES_AGE: Duration = Duration::from_secs(15);

/// The namespace and the kind of workloads that are watched together.
type Place = (String, WorkloadKind);

/// The last looks at workloads, and the watches of them.
pub(crate) struct TargetsAtRest {
    /// The connection of watches.
    cluster: Cluster,
    shared: Arc<Shared>,
    hints: Mutex<Option<Hints>>,
}

struct Shared {
    state: Mutex<State>,
    queue: Mutex<Queue>,
    queued: mpsc::Sender<()>,
}

/// The apps to look at, in the order of their changes. A workload that changes all the time is in it once.
#[derive(Default)]
struct Queue {
    order: VecDeque<AppUid>,
    members: HashSet<AppUid>,
}

impl Queue {
    fn push(&mut self, app: AppUid) {
        if self.members.insert(app) {
            self.order.push_back(app);
        }
    }

    fn pop(&mut self) -> Option<AppUid> {
        let app = self.order.pop_front()?;
        self.members.remove(&app);
        Some(app)
    }
}

impl Shared {
    /// Queues the apps for the listener.
    fn queue(&self, apps: Vec<AppUid>) {
        if apps.is_empty() {
            return;
        }
        let mut queue = lock(&self.queue);
        apps.into_iter().for_each(|app| queue.push(app));
        // If there is one already, the listener will see these apps too.
        let _ = self.queued.try_send(());
    }
}

/// The apps to look at, for as long as the driver lives.
pub(crate) struct Hints {
    shared: Weak<Shared>,
    queued: mpsc::Receiver<()>,
}

impl Hints {
    /// The next app to look at. Returns `None` once the driver is gone.
    pub(crate) async fn next(&mut self) -> Option<AppUid> {
        loop {
            let next = lock(&self.shared.upgrade()?.queue).pop();
            if next.is_some() {
                return next;
            }
            match tokio::time::timeout(SECRETS_PACE, self.queued.recv()).await {
                Ok(queued) => queued?,
                Err(_) => {
                    let next = lock(&self.shared.upgrade()?.state).next_with_secret();
                    if next.is_some() {
                        return next;
                    }
                }
            }
        }
    }
}

#[derive(Default)]
struct State {
    targets: HashMap<TargetKey, Known>,
    places: HashMap<Place, Watched>,
}

/// A workload that is looked at, until its app is forgotten.
struct Known {
    deploy: DeployId,
    place: Place,
    name: String,
    /// The last look; `None` before the end of the first.
    last: Option<Look>,
    /// The time at which the Secret was looked at, or was to be.
    secret_at: Instant,
    /// What had become of what its pods read of others, and when.
    references: Option<(Instant, References)>,
}

/// A look at a workload.
#[derive(Clone)]
struct Look {
    /// The workload's resource version; `None`: it did not exist.
    mark: Option<String>,
    found: AtRest,
    /// The Secret of its configuration, which each look reads.
    secret: Option<NeededSecret>,
    /// The versions of what its pods read of others, as the deploy began.
    noted: Noted,
}

impl Look {
    fn of_missing(rollout: &Rollout) -> Self {
        let (drift, seen) = (Some(drift::of_missing(rollout)), observation::of_missing(rollout));
        Self { mark: None, found: AtRest { drift, ..AtRest::new(None, seen) }, secret: None, noted: Noted::default() }
    }

    fn of(rollout: &Rollout, object: &Object, seen: Observation) -> Self {
        let image =
            rollout.workload.containers.iter().find_map(|name| object.container(name)?.image.as_deref()?.parse().ok());
        let found = AtRest { drift: drift::told(object, rollout), ..AtRest::new(image, seen) };
        Self {
            mark: Some(mark(object.metadata())),
            found,
            secret: secret_drift::needed(object, rollout),
            noted: rules::references::noted(object, rollout),
        }
    }
}

impl Known {
    fn new(rollout: &Rollout, last: Option<Look>) -> Self {
        Self {
            deploy: rollout.id,
            place: place(rollout),
            name: rollout.workload.name.clone(),
            last,
            secret_at: Instant::now(),
            references: None,
        }
    }
}

/// The workloads of a place as its watch shows them, which ends when this is dropped.
struct Watched {
    /// Whether all of them were shown, and nothing is known to be missed since.
    is_live: bool,
    /// The resource versions by name.
    marks: HashMap<String, String>,
    task: AbortHandle,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn mark(metadata: &ObjectMeta) -> String {
    metadata.resource_version.clone().unwrap_or_default()
}

impl TargetsAtRest {
    /// Watches through this connection.
    pub(crate) fn new(cluster: Cluster) -> Self {
        let (sender, receiver) = mpsc::channel(1);
        let shared = Arc::new(Shared { state: Mutex::default(), queue: Mutex::default(), queued: sender });
        let hints = Hints { shared: Arc::downgrade(&shared), queued: receiver };
        Self { cluster, shared, hints: Mutex::new(Some(hints)) }
    }

    /// The apps to look at; for one listener.
    pub(crate) fn take_hints(&self) -> Option<Hints> {
        lock(&self.hints).take()
    }

    /// Returns the rollout's workload at rest: from memory if nothing has touched it.
    pub(crate) async fn look(&self, cluster: &Cluster, rollout: &Rollout) -> Result<AtRest> {
        let known = self.begin(rollout);
        let is_known = known.is_some();
        let mut look = match known {
            Some(known) => known,
            None => self.read(cluster, rollout).await?,
        };
        let mut drift = secret_drift(cluster, rollout, &look).await?;
        if drift.is_some() && is_known {
            // The watch may be behind: a deploy that has just made the Secret anew has noted it on the workload.
            look = self.read(cluster, rollout).await?;
            drift = secret_drift(cluster, rollout, &look).await?;
        }
        let references = self.references(cluster, rollout, &look.noted).await;
        Ok(AtRest { drift: look.found.drift.or(drift), references, ..look.found })
    }

    /// Returns what has become of what the pods read of others since the deploy began, as of a moment ago.
    async fn references(&self, cluster: &Cluster, rollout: &Rollout, noted: &Noted) -> References {
        if *noted == Noted::default() {
            return References::default();
        }
        let known = |state: &State| {
            let known = state.targets.get(&rollout.key()).filter(|known| known.deploy == rollout.id)?;
            let (at, found) = known.references.as_ref()?;
            (at.elapsed() < REFERENCES_AGE).then(|| found.clone())
        };
        if let Some(found) = known(&lock(&self.shared.state)) {
            return found;
        }
        let found = noted.changes(&references::versions(cluster, rollout.namespace(), noted.compared()).await);
        let mut state = lock(&self.shared.state);
        if let Some(known) = state.targets.get_mut(&rollout.key()).filter(|known| known.deploy == rollout.id) {
            known.references = Some((Instant::now(), found.clone()));
        }
        found
    }

    /// Reads the rollout's workload.
    async fn read(&self, cluster: &Cluster, rollout: &Rollout) -> Result<Look> {
        let look = match cluster.observed_target(rollout).await? {
            Some(object) => {
                let pods = cluster.pods(rollout, &object).await?;
                let seen = observation::of(rollout, &object, &pods, jiff::Timestamp::now());
                Look::of(rollout, &object, seen)
            }
            None => Look::of_missing(rollout),
        };
        // An app that was forgotten meanwhile stays so.
        if let Some(known) = lock(&self.shared.state).targets.get_mut(&rollout.key()) {
            let references = known.references.take().filter(|_| known.deploy == rollout.id);
            *known = Known { references, ..Known::new(rollout, Some(look.clone())) };
        }
        Ok(look)
    }

    /// Notes the rollout's workload as it was read, and its observation.
    pub(crate) fn note(&self, rollout: &Rollout, object: &Object, seen: Observation) -> AtRest {
        let look = Look::of(rollout, object, seen);
        let found = look.found.clone();
        lock(&self.shared.state).targets.insert(rollout.key(), Known::new(rollout, Some(look)));
        found
    }

    /// Begins a look. Its place is watched from here on, until the app is forgotten. Returns the last look if its answer is still known.
    fn begin(&self, rollout: &Rollout) -> Option<Look> {
        let mut state = lock(&self.shared.state);
        state.places.entry(place(rollout)).or_insert_with_key(|place| {
            let follow = follow(self.cluster.clone(), place.clone(), Arc::downgrade(&self.shared));
            let task = tokio::spawn(follow).abort_handle();
            Watched { is_live: false, marks: HashMap::new(), task }
        });
        state.targets.entry(rollout.key()).or_insert_with(|| Known::new(rollout, None));
        state.known(rollout)
    }

    /// Forgets an app, and the watches that only it needed.
    pub(crate) fn forget(&self, app: AppUid) {
        let mut state = lock(&self.shared.state);
        let State { targets, places } = &mut *state;
        let forgotten: Vec<Known> = targets.extract_if(|key, _| key.app == app).map(|(_, known)| known).collect();
        for known in forgotten {
            if targets.values().all(|other| other.place != known.place) {
                places.remove(&known.place);
            }
        }
    }
}

/// Returns how others have changed the Secret that a workload needs; `None` too if the workload itself was changed, or the Secret
/// may not be read.
async fn secret_drift(cluster: &Cluster, rollout: &Rollout, look: &Look) -> Result<Option<Drift>> {
    let Some(needed) = look.secret.as_ref().filter(|_| look.found.drift.is_none()) else { return Ok(None) };
    match configurations::metadata(cluster, rollout.namespace(), &needed.name).await {
        Ok(metadata) => Ok(secret_drift::of(needed, metadata.as_ref())),
        Err(error @ Error::Denied { .. }) => {
            tracing::debug!(app = %rollout.app, error = %error.chain(), "reading the Secret of an app's configuration is not permitted");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

impl State {
    /// The next app whose Secret was not looked at for a while; it counts as looked at from now on.
    fn next_with_secret(&mut self) -> Option<AppUid> {
        let has_secret = |known: &Known| known.last.as_ref().is_some_and(|last| last.secret.is_some());
        let waiting = self.targets.iter_mut().filter(|(_, known)| has_secret(known));
        let (key, known) = waiting.min_by_key(|(_, known)| known.secret_at)?;
        if known.secret_at.elapsed() < SECRETS_AGE {
            return None;
        }
        // All workloads of an app are looked at with it.
        let app = key.app;
        let of_app = self.targets.iter_mut().filter(|(key, _)| key.app == app);
        of_app.for_each(|(_, known)| known.secret_at = Instant::now());
        Some(app)
    }

    /// The last look at the rollout's workload. Returns `None` if its answer may be another now.
    fn known(&self, rollout: &Rollout) -> Option<Look> {
        let known = self.targets.get(&rollout.key()).filter(|known| known.deploy == rollout.id)?;
        let watched = self.places.get(&known.place).filter(|watched| watched.is_live)?;
        let look = known.last.as_ref()?;
        let AtRest { drift, seen, .. } = &look.found;
        let is_well = matches!(seen.phase, Phase::Complete { .. }) && seen.failure.is_none();
        let is_same = watched.marks.get(&known.name) == look.mark.as_ref();
        (is_same && (is_well || drift.is_some())).then(|| look.clone())
    }

    /// The apps whose workload, of this name in this place, is not as it was at the last look.
    fn outdated(&self, place: &Place, name: Option<&str>) -> Vec<AppUid> {
        let Some(watched) = self.places.get(place) else { return Vec::new() };
        let is_outdated = |known: &Known| {
            known.place == *place
                && name.is_none_or(|name| name == known.name)
                && known.last.as_ref().is_some_and(|last| watched.marks.get(&known.name) != last.mark.as_ref())
        };
        self.targets.iter().filter(|(_, known)| is_outdated(known)).map(|(key, _)| key.app).collect()
    }

    /// Notes what a watch shows. Returns the apps to look at.
    fn note(&mut self, place: &Place, event: Event<ObjectVersion>) -> Vec<AppUid> {
        let Some(watched) = self.places.get_mut(place) else { return Vec::new() };
        let name = match event {
            Event::Init => {
                watched.is_live = false;
                watched.marks.clear();
                return Vec::new();
            }
            Event::InitApply(object) => {
                watched.marks.insert(object.metadata.name.clone().unwrap_or_default(), mark(&object.metadata));
                return Vec::new();
            }
            Event::InitDone => {
                watched.is_live = true;
                None
            }
            Event::Apply(object) => {
                let name = object.metadata.name.clone().unwrap_or_default();
                watched.is_live = true;
                watched.marks.insert(name.clone(), mark(&object.metadata));
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
    let config = object_version::watch().timeout(WATCH);
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
                tracing::debug!(namespace = place.0, kind = %place.1, error = %error, "watching workloads at rest was interrupted");
                if let Some(watched) = lock(&shared.state).places.get_mut(&place) {
                    watched.is_live = false;
                }
                Vec::new()
            }
        };
        shared.queue(outdated);
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
mod tests;
