//! Implements the rollout driver on the simulated cluster.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::{
    future::{Either, select},
    stream::BoxStream,
};
use rollhook_core::{
    Result,
    app::{AppId, AppUid, Settings, Target},
    deploy::{Evidence, Reason, Scale},
    ports::{
        Applied, AtRest, CheckedSettings, Drift, DriverIdentity, InstanceAddresses, InstanceLogs, InvalidTarget,
        Observation, ReleaseRunner, RolloutDriver, RolloutFailure, RolloutSpec, SettingsRequest, TargetDescription,
        TargetReader, TargetRequest, Validated,
    },
};

use super::{
    Effect, Key, Refused, SimulatedCluster, World, key, remember,
    target::{DAEMON_SET, DEPLOYMENT, DESCRIPTION, Workload},
    workload::{Container, Running, final_failure, waiting},
};

#[async_trait]
impl RolloutDriver for SimulatedCluster {
    async fn identity(&self) -> Result<DriverIdentity> {
        Ok(DriverIdentity("simulated".to_owned()))
    }

    fn describe(&self) -> TargetDescription {
        DESCRIPTION
    }

    fn unconfigurable(&self, _target: &Target) -> Option<String> {
        None
    }

    async fn check_settings(&self, request: &SettingsRequest) -> Result<CheckedSettings> {
        if !self.reach()?.takes_settings {
            let why = "The simulated cluster makes its pods with nothing but variables.";
            return Ok(CheckedSettings::Unsupported(why.to_owned()));
        }
        let wrong = request.settings.iter().find(|(_, value)| !value.is_string() && !value.is_object());
        Ok(match wrong {
            Some((name, _)) => CheckedSettings::Invalid(InvalidTarget::setting(
                format!("settings.{name}"),
                "must be a text, or an object.",
            )),
            None => CheckedSettings::Valid(request.settings.clone()),
        })
    }

    fn unstoppable(&self, target: &Target) -> Option<String> {
        let kind = target.settings.get("kind").and_then(serde_json::Value::as_str);
        let is_daemon_set = kind.is_some_and(|kind| kind.eq_ignore_ascii_case(DAEMON_SET));
        is_daemon_set.then(|| "A DaemonSet has a pod on each node, and can be neither stopped nor started.".to_owned())
    }

    fn fetches_images(&self) -> bool {
        self.lock().fetches_images
    }

    async fn validate(&self, request: &TargetRequest) -> Result<Validated> {
        let workload = match Workload::requested(&request.app, &request.settings) {
            Ok(workload) => workload,
            Err(invalid) => return Ok(Validated::Invalid(invalid)),
        };
        if let Some(taken) = taken(request, &workload) {
            return Ok(Validated::Invalid(taken));
        }
        let world = self.reach()?;
        let key = (request.app.namespace.clone(), workload.kind.clone(), workload.name.clone());
        let answer = match world.workloads.get(&key) {
            Some(running) => adopt(request, workload, running),
            None => create(request, workload),
        };
        Ok(answer.unwrap_or_else(Validated::Invalid))
    }

    async fn apply(&self, spec: &RolloutSpec) -> Result<Applied> {
        let now = self.clock.elapsed();
        let mut world = self.reach()?;
        let answer = world.apply(spec, now, self.delay);
        if answer != Applied::Done {
            remember(&mut world.refused, Refused { stamp: spec.id, answer: answer.clone(), at: now });
        }
        // Also of the spec's own app: an apply that arrives after its deploy has ended is seen by no driver.
        world.watchers(&workload_key(spec)).for_each(|app| self.hints.put(app));
        drop(world);
        self.changed.notify(usize::MAX);
        Ok(answer)
    }

    async fn observe(&self, spec: &RolloutSpec) -> Result<Observation> {
        let now = self.clock.elapsed();
        Ok(self.reach()?.observe(spec, now, self.delay))
    }

    async fn changed(&self, spec: &RolloutSpec) {
        // Listening starts before the state is read, so that no change is missed.
        let listener = self.changed.listen();
        match self.next_change(spec) {
            Some(time) => match select(listener, self.clock.sleep(time)).await {
                Either::Left(_) | Either::Right(_) => {}
            },
            None => listener.await,
        }
    }

    fn target_reader(&self) -> Option<&dyn TargetReader> {
        Some(self)
    }

    fn release_runner(&self) -> Option<&dyn ReleaseRunner> {
        Some(self)
    }

    fn instance_logs(&self) -> Option<&dyn InstanceLogs> {
        Some(self)
    }

    fn instance_addresses(&self) -> Option<&dyn InstanceAddresses> {
        Some(self)
    }

    async fn evidence(&self, spec: &RolloutSpec, failure: Option<&RolloutFailure>) -> Result<Evidence> {
        let now = self.clock.elapsed();
        let world = self.reach()?;
        let Some(running) = world.workloads.get(&workload_key(spec)).filter(|running| running.is_at(spec)) else {
            return Ok(Evidence::default());
        };
        let seen = running.scene(&world.scripts, now, self.delay).failure;
        let failure = failure.or(seen.as_ref());
        Ok(failure.map(|failure| running.evidence(&workload_key(spec).2, failure)).unwrap_or_default())
    }
}

#[async_trait]
impl TargetReader for SimulatedCluster {
    async fn at_rest(&self, spec: &RolloutSpec) -> Result<AtRest> {
        let now = self.clock.elapsed();
        let mut world = self.reach()?;
        let key = workload_key(spec);
        world.watched.entry(key.clone()).or_default().insert(spec.id.app);
        let (image, drift) = match world.workloads.get(&key) {
            Some(running) => (Some(running.image.clone()), running.drift(spec)),
            None => {
                let was_deleted = world.deleted.contains(&key);
                let message = "another removed the workload".to_owned();
                (None, was_deleted.then_some(Drift { image: None, message }))
            }
        };
        let seen = world.observe(spec, now, self.delay);
        drop(world);
        if let Some(next) = self.next_change(spec) {
            self.hints.put_at(spec.id.app, now + next);
        }
        Ok(AtRest { drift, ..AtRest::new(image, seen) })
    }

    fn target_changes(&self) -> BoxStream<'static, AppUid> {
        self.hints.clone().stream()
    }

    fn forget_targets(&self, app: AppUid) {
        self.lock().watched.retain(|_, apps| {
            apps.remove(&app);
            !apps.is_empty()
        });
    }
}

impl SimulatedCluster {
    fn next_change(&self, spec: &RolloutSpec) -> Option<Duration> {
        let now = self.clock.elapsed();
        let world = self.lock();
        let running = world.workloads.get(&workload_key(spec)).filter(|running| running.is_at(spec))?;
        running.scene(&world.scripts, now, self.delay).next
    }
}

impl World {
    /// Returns the apps that a workload was read for at rest.
    pub(super) fn watchers(&self, key: &Key) -> impl Iterator<Item = AppUid> {
        self.watched.get(key).into_iter().flatten().copied()
    }

    fn observe(&self, spec: &RolloutSpec, now: Duration, delay: Duration) -> Observation {
        if let Some(running) = self.workloads.get(&workload_key(spec)) {
            return running.observe(spec, &self.scripts, now, delay);
        }
        let Workload { kind, name, .. } = Workload::of(&spec.app, &spec.target);
        let message = format!("the {kind} {name} is gone");
        let failure = Some(final_failure(Reason::TARGET_MISSING, message.clone()));
        waiting(None, &message).with(|seen| seen.failure = failure)
    }

    fn apply(&mut self, spec: &RolloutSpec, now: Duration, delay: Duration) -> Applied {
        let answer = match self.workloads.get(&workload_key(spec)) {
            Some(running) => running.answer(spec),
            None => answer_if_missing(spec),
        };
        let Some(Applied::Done) = answer else { return answer.unwrap_or(Applied::Done) };
        let digest = self.scripts.digest(&spec.image);
        let workload = Workload::of(&spec.app, &spec.target);
        let pods = workload.pods.unwrap_or(1);
        let (_, kind, name) = workload_key(spec);
        let containers = workload.containers_or_one(&spec.app);
        let is_there = self.workloads.contains_key(&workload_key(spec));
        let running = self.workloads.entry(workload_key(spec)).or_insert_with(|| {
            let containers = containers.iter().map(|name| Container { name: name.clone(), image: String::new() });
            Running::new(containers.collect(), &spec.image, digest.clone(), pods, now)
        });
        let ended = running.ended(&self.scripts, now, delay);
        if !(is_there && running.keep(&containers, spec, ended, now)) {
            running.roll_out(&containers, spec, digest, ended, now);
        }
        running.old = running.old.take().filter(|_| is_there);
        let is_made_stopped = !is_there && spec.is_made_stopped();
        running.scale(if is_made_stopped { Scale::Stop } else { spec.scale }, spec.purpose.returns_to().is_some());
        running.stamp = Some(spec.id);
        let effect = Effect {
            namespace: spec.app.namespace.clone(),
            kind,
            workload: name,
            stamp: spec.id,
            image: spec.image.clone(),
            at: now,
        };
        remember(&mut self.effects, effect);
        Applied::Done
    }
}

impl Running {
    /// Returns `Some(Done)` if the deploy is to take effect, and `None` if it has taken effect already.
    fn answer(&self, spec: &RolloutSpec) -> Option<Applied> {
        let fenced = self.fence(spec);
        if fenced.is_some() || spec.adopted {
            return fenced;
        }
        if Workload::of(&spec.app, &spec.target).kind == DAEMON_SET && !spec.scale.is_keep() {
            return Some(refused(Reason::UNSUPPORTED, "a DaemonSet can be neither stopped nor started".to_owned()));
        }
        if let Some(why) = &self.unsupported {
            return Some(refused(Reason::REFUSED, why.clone()));
        }
        let missing = |name: &&String| self.containers.iter().all(|container| container.name != **name);
        let containers = Workload::of(&spec.app, &spec.target).containers;
        if let Some(name) = containers.iter().find(missing) {
            return Some(refused(Reason::REFUSED, format!("the workload has no container named {name}")));
        }
        let brought = |configuration| self.contested(configuration).find(|name| configuration.brings(name));
        if let Some(name) = spec.configuration.as_ref().and_then(brought) {
            let why = format!("another party has set the variable {name} in the workload");
            return Some(refused(Reason::CONFIGURATION_CONFLICT, why));
        }
        let repeated = self.stamp == Some(spec.id) && self.image == spec.image;
        (!repeated).then_some(Applied::Done)
    }

    /// Returns the refusal of a deploy that the workload's deploy id forbids.
    fn fence(&self, spec: &RolloutSpec) -> Option<Applied> {
        let stamp = self.stamp?;
        if stamp.app == spec.id.app {
            return (stamp.revision > spec.id.revision).then_some(Applied::Newer(stamp.revision));
        }
        let allowed = spec.target.take_over == Some(stamp.app);
        let message = || {
            format!("the workload belongs to another registration ({}); register with take-over to change that", stamp)
        };
        (!allowed).then(|| refused(Reason::FOREIGN_TARGET, message()))
    }
}

/// Returns the refusal of a workload that another app names.
fn taken(request: &TargetRequest, workload: &Workload) -> Option<InvalidTarget> {
    let is_same = |(app, settings): &&(AppId, Settings)| workload.is_same(app, settings);
    let (other, _) = request.others.iter().filter(|_| !request.take_over).find(is_same)?;
    let why = format!("{} {} is the workload of {other}; register with --take-over.", workload.kind, workload.name);
    Some(InvalidTarget::Taken(why))
}

fn adopt(request: &TargetRequest, workload: Workload, running: &Running) -> Result<Validated, InvalidTarget> {
    let title = format!("{} {}", workload.kind, workload.name);
    if let Some(why) = &running.unsupported {
        return Err(InvalidTarget::Unusable(format!("{title} cannot be rolled out: {why}")));
    }
    let foreign = running.stamp.filter(|stamp| request.is_foreign(stamp.app));
    if let Some(stamp) = foreign.filter(|_| !request.take_over) {
        let why = format!("{title} carries the stamp of another registration ({stamp}); register with --take-over.");
        return Err(InvalidTarget::Taken(why));
    }
    let there: Vec<_> = running.containers.iter().map(|container| container.name.clone()).collect();
    if let Some(missing) = workload.containers.iter().find(|name| !there.contains(name)) {
        let why = format!("{title} has no container {missing}; it has: {}.", there.join(", "));
        return Err(InvalidTarget::Unusable(why));
    }
    let containers = if workload.containers.is_empty() { there } else { workload.containers.clone() };
    let pods = workload.pods.filter(|_| request.registered.is_some());
    let settings = Workload { containers, pods, ..workload }.settings(&request.settings);
    let take_over = foreign.map(|stamp| stamp.app);
    let unused = request.of_creation();
    Ok(Validated::Adopt { settings, image: running.image.clone(), take_over, unused, notes: Vec::new() })
}

fn create(request: &TargetRequest, workload: Workload) -> Result<Validated, InvalidTarget> {
    let title = format!("{} {}", workload.kind, workload.name);
    let unusable = |why: &str| Err(InvalidTarget::Unusable(format!("{title} does not exist{why}")));
    if request.image.is_none() && !request.built {
        return unusable("; give an image to have a Deployment made.");
    }
    if workload.kind != DEPLOYMENT {
        return unusable(", and only a Deployment can be made.");
    }
    let (containers, pods) = (workload.clone().containers_or_one(&request.app), Some(workload.pods.unwrap_or(1)));
    let settings = Workload { containers, pods, ..workload }.settings(&request.settings);
    Ok(Validated::Create { settings, take_over: None, notes: Vec::new() })
}

fn answer_if_missing(spec: &RolloutSpec) -> Option<Applied> {
    let Workload { kind, name, pods, .. } = Workload::of(&spec.app, &spec.target);
    let creatable = pods.is_some() && kind == DEPLOYMENT && !spec.adopted;
    let message = || format!("there is no {kind} {name} in {}", spec.app.namespace);
    Some(if creatable { Applied::Done } else { refused(Reason::TARGET_MISSING, message()) })
}

fn refused(reason: &str, message: String) -> Applied {
    Applied::Refused { reason: Reason::new(reason), message }
}

fn workload_key(spec: &RolloutSpec) -> Key {
    key(&spec.app, &spec.target)
}
