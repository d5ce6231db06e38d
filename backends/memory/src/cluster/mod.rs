//! A simulated cluster: workloads follow scripts, so that a test can have a rollout take any course.

mod addresses;
mod drift;
mod instances;
mod releases;
mod rollouts;
mod script;
mod target;
mod workload;

pub use releases::ReleaseBegun;
pub use script::Script;
pub use workload::Pod;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use event_listener::Event;
use rollhook_core::{
    Error, Result,
    app::{AppId, AppUid, Namespace, Target},
    image::{Digest, ImageRef},
    ports::{Applied, Clock, DeployId, RunId},
};
use script::Scripts;
use target::Workload;
use workload::{Container, Running};

/// The number of effects, and of refusals, that are remembered.
const REMEMBERED: usize = 10_000;
/// The number of pods of a seeded workload.
const SEEDED_PODS: u32 = 2;
/// The age of a workload when it is seeded.
const SEEDED_BEFORE: Duration = Duration::from_secs(3600);

/// A scripted cluster, whose time is the [`Clock`]'s.
///
/// What a rollout does follows from its image: a name with `missing` in it cannot be pulled, `crash` crashes, `hang`
/// never gets ready, and anything else is complete after the cluster's delay. [`SimulatedCluster::script`] says
/// otherwise for an image.
pub struct SimulatedCluster {
    clock: Arc<dyn Clock>,
    delay: Duration,
    world: Mutex<World>,
    changed: Event,
    hints: Arc<drift::Hints>,
}

/// A change of a workload by a deploy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// The workload's namespace.
    pub namespace: Namespace,
    /// The workload's kind.
    pub kind: String,
    /// The workload's name.
    pub workload: String,
    /// The deploy's id.
    pub stamp: DeployId,
    /// The image that was set.
    pub image: ImageRef,
    /// The time on the clock.
    pub at: Duration,
}

/// A deploy that was refused, so that nothing changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The deploy's id.
    pub stamp: DeployId,
    /// The answer.
    pub answer: Applied,
    /// The time on the clock.
    pub at: Duration,
}

type Key = (Namespace, String, String);

#[derive(Default)]
struct World {
    is_away: bool,
    /// Whether configurations may have settings.
    takes_settings: bool,
    fetches_images: bool,
    denies: bool,
    workloads: BTreeMap<Key, Running>,
    /// The workloads that were deleted. Others are unknown: they may have run in a process that has ended.
    deleted: BTreeSet<Key>,
    /// The workloads that were read at rest, with the apps that they were read for.
    watched: BTreeMap<Key, BTreeSet<AppUid>>,
    scripts: Scripts,
    releases: BTreeMap<RunId, releases::Release>,
    releases_begun: Vec<ReleaseBegun>,
    keeps_releases: bool,
    addresses: Option<addresses::Addresses>,
    effects: VecDeque<Effect>,
    refused: VecDeque<Refused>,
}

impl SimulatedCluster {
    /// Returns a cluster without workloads, where a sound image is complete after `delay`.
    pub fn new(clock: Arc<dyn Clock>, delay: Duration) -> Self {
        let hints = Arc::new(drift::Hints::new(clock.clone()));
        Self { clock, delay, world: Mutex::default(), changed: Event::new(), hints }
    }

    /// Sets the course of images whose reference without its digest contains `pattern`, or whose digest is `pattern`,
    /// also in rollouts under way; a later script goes before an earlier one.
    pub fn script(&self, pattern: &str, script: Script) {
        let mut world = self.lock();
        world.scripts.add(pattern, script);
        world.watched.values().flatten().for_each(|app| self.hints.put(*app));
        drop(world);
        self.changed.notify(usize::MAX);
    }

    /// Sets the course of images whose reference contains `pattern` on one workload alone; returns whether it exists.
    pub fn script_on(&self, app: &AppId, target: &Target, pattern: &str, script: Script) -> bool {
        self.edit(app, target, |running, _, _| running.own_scripts.push((pattern.to_owned(), script)))
    }

    /// Puts other content under the image's tag, and returns its digest; what already runs keeps what it has.
    pub fn push(&self, image: &ImageRef) -> Digest {
        self.lock().scripts.push(image)
    }

    /// Returns the digest that the image stands for now.
    pub fn digest(&self, image: &ImageRef) -> Digest {
        self.lock().scripts.digest(image)
    }

    /// Makes a workload that has been running for an hour, unstamped, with this image in all of its containers.
    pub fn seed(&self, app: &AppId, target: &Target, image: &ImageRef) {
        let workload = Workload::of(app, target);
        let containers = workload.containers_or_one(app);
        let containers = containers.into_iter().map(|name| Container { name, image: image.to_string() }).collect();
        let now = self.clock.elapsed();
        let mut world = self.lock();
        let digest = world.scripts.digest(image);
        let mut running = Running::new(containers, image, digest, SEEDED_PODS, now);
        running.before = SEEDED_BEFORE;
        world.workloads.insert(key(app, target), running);
        drop(world);
        self.changed.notify(usize::MAX);
    }

    /// Makes a workload unsupported for a reason, or supported; returns whether it exists.
    pub fn set_unsupported(&self, app: &AppId, target: &Target, why: Option<&str>) -> bool {
        self.edit(app, target, |running, _, _| running.unsupported = why.map(str::to_owned))
    }

    /// Sets the number of a workload's pods; returns whether it exists.
    pub fn scale(&self, app: &AppId, target: &Target, pods: u32) -> bool {
        self.edit(app, target, |running, _, _| running.pods = pods)
    }

    /// Changes a workload's image and leaves its stamp, as another controller does; returns whether it exists.
    pub fn meddle(&self, app: &AppId, target: &Target, image: &ImageRef) -> bool {
        let digest = self.digest(image);
        let containers = Workload::of(app, target).containers_or_one(app);
        self.edit(app, target, |running, scripts, now| {
            let ended = running.ended(scripts, now, self.delay);
            running.roll(&containers, image, digest, ended, now);
        })
    }

    /// Sets a variable in a workload's environment, as another controller does; returns whether it exists.
    pub fn set_variable(&self, app: &AppId, target: &Target, name: &str, value: &str) -> bool {
        self.edit(app, target, |running, _, _| drop(running.environment.insert(name.to_owned(), value.to_owned())))
    }

    /// Returns the variables that others have set in a workload's environment.
    pub fn environment(&self, app: &AppId, target: &Target) -> BTreeMap<String, String> {
        let world = self.lock();
        world.workloads.get(&key(app, target)).map(|running| running.environment.clone()).unwrap_or_default()
    }

    /// Takes a workload's stamp away and leaves the rest, as another controller does; returns whether it exists.
    pub fn unstamp(&self, app: &AppId, target: &Target) -> bool {
        self.edit(app, target, |running, _, _| running.stamp = None)
    }

    /// Returns the number of a workload's pods; `None` if it does not exist.
    pub fn pods(&self, app: &AppId, target: &Target) -> Option<u32> {
        self.lock().workloads.get(&key(app, target)).map(|running| running.pods)
    }

    /// Returns a workload's pods: the rollout's as far as they were ever ready, and else those of the rollout before.
    pub fn running(&self, app: &AppId, target: &Target) -> Vec<Pod> {
        let now = self.clock.elapsed();
        let world = self.lock();
        let running = world.workloads.get(&key(app, target));
        running.map(|running| running.all_pods(&world.scripts, now, self.delay)).unwrap_or_default()
    }

    /// Removes a workload, as another controller does; returns whether it existed.
    pub fn delete(&self, app: &AppId, target: &Target) -> bool {
        let mut world = self.lock();
        let gone = world.workloads.remove(&key(app, target)).is_some();
        if gone {
            world.deleted.insert(key(app, target));
        }
        world.watchers(&key(app, target)).for_each(|app| self.hints.put(app));
        drop(world);
        self.changed.notify(usize::MAX);
        gone
    }

    /// Makes the cluster reachable or unreachable. While it is unreachable, every call is `Unavailable`, and rollouts
    /// go on.
    pub fn set_reachable(&self, reachable: bool) {
        self.lock().is_away = !reachable;
        self.changed.notify(usize::MAX);
    }

    /// Has the cluster take settings of any name, as a configuration may have them, whose values are texts or objects: pods are
    /// made with them. Without this it takes none.
    pub fn take_settings(&self) {
        self.lock().takes_settings = true;
    }

    /// Has the cluster's images be those of a registry, where their digests are looked up. Without this they are names alone.
    pub fn fetch_images(&self) {
        self.lock().fetches_images = true;
    }

    /// Grants this service its permissions, or withdraws them. While they are withdrawn, every call is `Denied`, and
    /// rollouts go on.
    pub fn set_permitted(&self, permitted: bool) {
        self.lock().denies = !permitted;
        self.changed.notify(usize::MAX);
    }

    /// Returns the number of targets whose changes are hinted at for this app.
    pub fn watched_targets(&self, app: AppUid) -> usize {
        self.lock().watched.values().filter(|apps| apps.contains(&app)).count()
    }

    /// Returns every change of a workload by a deploy, in order; the last 10 000.
    pub fn effects(&self) -> Vec<Effect> {
        self.lock().effects.iter().cloned().collect()
    }

    /// Returns the changes of one workload.
    pub fn effects_on(&self, app: &AppId, target: &Target) -> Vec<Effect> {
        let workload = Workload::of(app, target);
        let on = |effect: &&Effect| {
            effect.namespace == app.namespace && effect.kind == workload.kind && effect.workload == workload.name
        };
        self.lock().effects.iter().filter(on).cloned().collect()
    }

    /// Returns every deploy that was refused or too old, in order; the last 10 000.
    pub fn refused(&self) -> Vec<Refused> {
        self.lock().refused.iter().cloned().collect()
    }

    fn edit(&self, app: &AppId, target: &Target, change: impl FnOnce(&mut Running, &Scripts, Duration)) -> bool {
        let now = self.clock.elapsed();
        let mut world = self.lock();
        let World { workloads, scripts, .. } = &mut *world;
        let running = workloads.get_mut(&key(app, target));
        let found = running.map(|running| change(running, scripts, now)).is_some();
        world.watchers(&key(app, target)).for_each(|app| self.hints.put(app));
        drop(world);
        self.changed.notify(usize::MAX);
        found
    }

    /// Returns the world; fails while the cluster is unreachable, or denies permission.
    fn reach(&self) -> Result<MutexGuard<'_, World>> {
        let world = self.lock();
        if world.is_away {
            return Err(Error::unavailable("the cluster", "the simulated cluster is switched to unreachable"));
        }
        if world.denies {
            return Err(Error::Denied { what: "the simulated cluster denies every call".to_owned(), cause: None });
        }
        Ok(world)
    }

    fn lock(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(app: &AppId, target: &Target) -> Key {
    let Workload { kind, name, .. } = Workload::of(app, target);
    (app.namespace.clone(), kind, name)
}

fn remember<T>(log: &mut VecDeque<T>, item: T) {
    if log.len() == REMEMBERED {
        log.pop_front();
    }
    log.push_back(item);
}
