//! A cluster that exists only here: workloads follow scripts, so that every way a rollout can go can be had at will.

mod rollouts;
mod script;
mod target;
mod workload;

pub use script::Script;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use event_listener::Event;
use rollhook_core::{
    Error, Result,
    app::{AppId, Namespace, Target},
    image::{Digest, ImageRef},
    ports::{Applied, Clock, DeployId},
};
use script::Scripts;
use target::Workload;
use workload::{Container, Running};

/// How many effects and refusals are remembered; the oldest go first.
const REMEMBERED: usize = 10_000;
/// How many pods a workload has that was seeded.
const SEEDED_PODS: u32 = 2;
/// For how long a workload had been running when it was seeded.
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
}

/// A change of a workload by an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// The workload's namespace.
    pub namespace: Namespace,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub workload: String,
    /// The order's stamp.
    pub stamp: DeployId,
    /// The image that was set.
    pub image: ImageRef,
    /// When, on the clock.
    pub at: Duration,
}

/// An order that changed nothing because it must not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The order's stamp.
    pub stamp: DeployId,
    /// What was answered.
    pub answer: Applied,
    /// When, on the clock.
    pub at: Duration,
}

type Key = (Namespace, String, String);

struct World {
    reachable: bool,
    workloads: BTreeMap<Key, Running>,
    scripts: Scripts,
    effects: VecDeque<Effect>,
    refused: VecDeque<Refused>,
}

impl SimulatedCluster {
    /// A cluster without workloads, where a sound image is complete after `delay`.
    pub fn new(clock: Arc<dyn Clock>, delay: Duration) -> Self {
        let world = World {
            reachable: true,
            workloads: BTreeMap::new(),
            scripts: Scripts::default(),
            effects: VecDeque::new(),
            refused: VecDeque::new(),
        };
        Self { clock, delay, world: Mutex::new(world), changed: Event::new() }
    }

    /// What images do whose reference without its digest contains `pattern`, or whose digest is `pattern`, from now on
    /// and in rollouts under way; a later script goes before an earlier one.
    pub fn script(&self, pattern: &str, script: Script) {
        self.lock().scripts.add(pattern, script);
        self.changed.notify(usize::MAX);
    }

    /// Puts other content under the image's tag, and returns its digest; what already runs keeps what it has.
    pub fn push(&self, image: &ImageRef) -> Digest {
        self.lock().scripts.push(image)
    }

    /// The digest of what the image means now.
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
        let running = Running {
            containers,
            image: image.clone(),
            old: None,
            digest,
            stamp: None,
            pods: SEEDED_PODS,
            since: now,
            before: SEEDED_BEFORE,
            unsupported: None,
        };
        world.workloads.insert(key(app, target), running);
        drop(world);
        self.changed.notify(usize::MAX);
    }

    /// Makes a workload one that cannot be rolled out at all, or can be again; says whether it is there.
    pub fn set_unsupported(&self, app: &AppId, target: &Target, why: Option<&str>) -> bool {
        self.edit(app, target, |running, _| running.unsupported = why.map(str::to_owned))
    }

    /// Makes a workload have this many pods; says whether it is there.
    pub fn scale(&self, app: &AppId, target: &Target, pods: u32) -> bool {
        self.edit(app, target, |running, _| running.pods = pods)
    }

    /// Changes a workload's image and leaves its stamp, as somebody else's controller does; says whether it is there.
    pub fn meddle(&self, app: &AppId, target: &Target, image: &ImageRef) -> bool {
        let digest = self.digest(image);
        let containers = Workload::of(app, target).containers_or_one(app);
        self.edit(app, target, |running, now| running.roll(&containers, image, digest, now))
    }

    /// Takes a workload's stamp away and leaves the rest, as somebody else does; says whether it is there.
    pub fn unstamp(&self, app: &AppId, target: &Target) -> bool {
        self.edit(app, target, |running, _| running.stamp = None)
    }

    /// The number of a workload's pods; none where it does not exist.
    pub fn pods(&self, app: &AppId, target: &Target) -> Option<u32> {
        self.lock().workloads.get(&key(app, target)).map(|running| running.pods)
    }

    /// The images of a workload's pods: of the rollout, as far as they are ready, and else of what ran before.
    pub fn running(&self, app: &AppId, target: &Target) -> Vec<ImageRef> {
        let now = self.clock.elapsed();
        let world = self.lock();
        let running = world.workloads.get(&key(app, target));
        running.map(|running| running.images(&world.scripts, now, self.delay)).unwrap_or_default()
    }

    /// Removes a workload, as somebody else does; says whether it was there.
    pub fn delete(&self, app: &AppId, target: &Target) -> bool {
        let gone = self.lock().workloads.remove(&key(app, target)).is_some();
        self.changed.notify(usize::MAX);
        gone
    }

    /// Whether the cluster can be reached; while not, every call is `Unavailable`, and rollouts go on unseen.
    pub fn set_reachable(&self, reachable: bool) {
        self.lock().reachable = reachable;
        self.changed.notify(usize::MAX);
    }

    /// Every change of a workload by an order, in their order; the last 100 000.
    pub fn effects(&self) -> Vec<Effect> {
        self.lock().effects.iter().cloned().collect()
    }

    /// The changes of one workload.
    pub fn effects_on(&self, app: &AppId, target: &Target) -> Vec<Effect> {
        let workload = Workload::of(app, target);
        let on = |effect: &&Effect| {
            effect.namespace == app.namespace && effect.kind == workload.kind && effect.workload == workload.name
        };
        self.lock().effects.iter().filter(on).cloned().collect()
    }

    /// Every order that was refused or too old, in their order; the last 100 000.
    pub fn refused(&self) -> Vec<Refused> {
        self.lock().refused.iter().cloned().collect()
    }

    fn edit(&self, app: &AppId, target: &Target, change: impl FnOnce(&mut Running, Duration)) -> bool {
        let now = self.clock.elapsed();
        let mut world = self.lock();
        let running = world.workloads.get_mut(&key(app, target));
        let found = running.map(|running| change(running, now)).is_some();
        drop(world);
        self.changed.notify(usize::MAX);
        found
    }

    /// The world as a client sees it, which is not at all while it is out of reach.
    fn reach(&self) -> Result<MutexGuard<'_, World>> {
        let world = self.lock();
        if world.reachable {
            Ok(world)
        } else {
            Err(Error::unavailable("the cluster", "the simulated cluster is switched to unreachable"))
        }
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
