//! A workload of the simulated cluster, and how it is observed.

use std::{collections::BTreeMap, time::Duration};

use rollhook_core::{
    configuration::{Configuration, ConfigurationId, VariableName, remark_on_others},
    deploy::{Evidence, Reason, Scale},
    image::{Digest, ImageRef},
    ports::{DeployId, Instances, Observation, PastLives, Phase, RolloutFailure, RolloutFailureKind, RolloutSpec},
};

use super::script::{Scene, Script, Scripts};

/// A container of a workload.
pub(super) struct Container {
    pub(super) name: String,
    pub(super) image: String,
}

/// A pod of a workload of the simulated cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// The id of the pod: no other pod of the workload has it, earlier ones included.
    pub id: String,
    /// The image that the pod was made with.
    pub image: ImageRef,
    /// The digest of the image that the pod runs.
    pub digest: Digest,
    /// The deploy that the pod was made by; `None`: it was not made by one.
    pub deploy: Option<DeployId>,
    /// The configuration that the pod was made with.
    pub configuration: Option<Configuration>,
}

/// The pods of a rollout before.
pub(super) struct Before {
    rollout: u64,
    image: ImageRef,
    digest: Digest,
    deploy: Option<DeployId>,
    configuration: Option<Configuration>,
    /// The number of these pods that the rollout after it has ended for good.
    ended: u32,
    /// The time at which the image was set, and the age of the pods by then.
    since: Duration,
    before: Duration,
}

impl Before {
    fn pod(&self, number: u32) -> Pod {
        Pod {
            id: format!("{}-{number}", self.rollout),
            image: self.image.clone(),
            digest: self.digest.clone(),
            deploy: self.deploy,
            configuration: self.configuration.clone(),
        }
    }
}

/// A workload and what it runs.
pub(super) struct Running {
    pub(super) containers: Vec<Container>,
    /// The image that was set last.
    pub(super) image: ImageRef,
    /// The rollout before, whose pods run until those of the rollout are ready.
    pub(super) old: Option<Before>,
    /// The rollout of which a restore has kept the pods, as its own.
    kept: Option<Before>,
    /// The deploy that the pods of the last rollout were made by.
    pub(super) made_by: Option<DeployId>,
    /// The configuration of the last rollout.
    configuration: Option<Configuration>,
    /// The variables that others have set, by name.
    pub(super) environment: BTreeMap<String, String>,
    /// The number of rollouts so far.
    pub(super) rollouts: u64,
    /// The digest that the image stood for when it was set.
    pub(super) digest: Digest,
    pub(super) stamp: Option<DeployId>,
    pub(super) pods: u32,
    /// The number of pods before the stop.
    stopped_from: Option<u32>,
    /// The time at which the image was set.
    pub(super) since: Duration,
    /// The age of the pods by then.
    pub(super) before: Duration,
    pub(super) unsupported: Option<String>,
    /// The scripts of images on this workload alone: pattern and script.
    pub(super) own_scripts: Vec<(String, Script)>,
}

impl Running {
    /// Returns a workload that was created now, without a deploy id.
    pub(super) fn new(
        containers: Vec<Container>,
        image: &ImageRef,
        digest: Digest,
        pods: u32,
        since: Duration,
    ) -> Self {
        let (old, kept, made_by, rollouts, stamp, before, unsupported) = Default::default();
        let (image, own_scripts, stopped_from) = (image.clone(), Vec::new(), None);
        let (configuration, environment) = Default::default();
        Self {
            containers,
            image,
            old,
            kept,
            made_by,
            configuration,
            environment,
            rollouts,
            digest,
            stamp,
            pods,
            stopped_from,
            since,
            before,
            unsupported,
            own_scripts,
        }
    }

    fn script(&self, scripts: &Scripts) -> Script {
        let image = self.image.to_string();
        let own = self.own_scripts.iter().rfind(|(pattern, _)| image.contains(pattern));
        own.map_or_else(|| scripts.of(&self.image, &self.digest), |(_, script)| script.clone())
    }

    /// Starts another rollout, after one that has ended so many pods of the one before it.
    pub(super) fn roll(&mut self, containers: &[String], image: &ImageRef, digest: Digest, ended: u32, now: Duration) {
        self.set_image(containers, image);
        let before = Before {
            rollout: self.rollouts,
            image: std::mem::replace(&mut self.image, image.clone()),
            digest: std::mem::replace(&mut self.digest, digest),
            deploy: self.made_by.take(),
            configuration: self.configuration.clone(),
            ended: 0,
            since: std::mem::replace(&mut self.since, now),
            before: std::mem::take(&mut self.before),
        };
        // A rollout that has ended no old pod leaves them to the next one. Pods that were kept are older than those that
        // were made beside them.
        let untouched = self.old.take().filter(|_| ended == 0 && self.kept.is_none());
        // One that was stopped has none left.
        self.old = untouched.or(self.kept.take()).or((self.pods > 0).then_some(before));
        self.rollouts += 1;
    }

    /// Starts another rollout of a deploy, with its configuration.
    pub(super) fn roll_out(
        &mut self,
        containers: &[String],
        spec: &RolloutSpec,
        digest: Digest,
        ended: u32,
        now: Duration,
    ) {
        self.roll(containers, &spec.image, digest, ended, now);
        self.configuration.clone_from(&spec.configuration);
        self.made_by = Some(spec.id);
    }

    /// Returns the names of the variables of the configuration that others have set too.
    pub(super) fn contested<'a>(&self, configuration: &'a Configuration) -> impl Iterator<Item = &'a str> {
        let names = configuration.variables.entries.keys().map(VariableName::as_str);
        names.filter(|name| self.environment.contains_key(*name))
    }

    /// Returns to the pods of the version before, of which some still run; the others are made again. Returns whether the
    /// rollout that is put right left any.
    pub(super) fn keep(&mut self, containers: &[String], spec: &RolloutSpec, ended: u32, now: Duration) -> bool {
        // A stop that is taken back may never have come to this one.
        let runs_on = spec.scale.is_keep() || spec.scale == Scale::Start && self.stopped_from.is_none();
        let Some(to) = spec.purpose.returns_to().filter(|_| runs_on) else { return false };
        let is_before = |by: Option<DeployId>| by.is_none_or(|id| id.app != spec.id.app || id.revision <= to);
        let is_configured = |with: &Option<Configuration>| id(with) == id(&spec.configuration);
        let is_of = |old: &Before| {
            let is_same = old.image.same_bits(Some(&old.digest), &spec.image, None);
            is_before(old.deploy) && is_same && is_configured(&old.configuration)
        };
        let is_set = self.image.same_bits(Some(&self.digest), &spec.image, None) && is_configured(&self.configuration);
        if is_set && spec.purpose.is_restore() && is_before(self.made_by) {
            self.image = spec.image.clone();
            return true;
        }
        if ended >= self.pods || (is_set && !spec.purpose.is_restore()) {
            return false;
        }
        let Some(old) = self.old.take_if(|old| is_of(old)) else { return false };
        self.set_image(containers, &spec.image);
        self.image = spec.image.clone();
        self.digest = old.digest.clone();
        self.made_by = old.deploy;
        self.configuration.clone_from(&old.configuration);
        (self.since, self.before) = if ended == 0 { (old.since, old.before) } else { (now, Duration::ZERO) };
        self.rollouts += 1;
        self.kept = Some(Before { ended, ..old });
        true
    }

    /// Ends all pods, or brings back as many as there were. A number that another has set since a stop stays, and so does that of
    /// a workload which a stop never came to where a return (`is_return`) takes that back.
    pub(super) fn scale(&mut self, scale: Scale, is_return: bool) {
        match scale {
            Scale::Keep => {}
            Scale::Stop => {
                (self.old, self.kept) = (None, None);
                let kept = self.stopped_from.filter(|_| self.pods == 0);
                self.stopped_from = kept.or(Some(self.pods));
                self.pods = 0;
            }
            Scale::Start if is_return && self.stopped_from.is_none() => {}
            Scale::Start => {
                let before = self.stopped_from.take().unwrap_or(1);
                self.pods = if self.pods == 0 { before } else { self.pods };
            }
        }
    }

    fn set_image(&mut self, containers: &[String], image: &ImageRef) {
        for container in self.containers.iter_mut().filter(|container| containers.contains(&container.name)) {
            container.image = image.to_string();
        }
    }

    /// Returns the number of pods of the rollout before that this one has ended.
    pub(super) fn ended(&self, scripts: &Scripts, now: Duration, delay: Duration) -> u32 {
        self.script(scripts).replaced(self.age(now), self.pods, delay)
    }

    pub(super) fn age(&self, now: Duration) -> Duration {
        now.saturating_sub(self.since) + self.before
    }

    /// Returns whether the deploy is the one that runs: by its id, or, if it was adopted, before any id of its app.
    pub(super) fn is_at(&self, spec: &RolloutSpec) -> bool {
        self.stamp == Some(spec.id) || (spec.adopted && self.stamp.is_none_or(|stamp| stamp.app != spec.id.app))
    }

    pub(super) fn scene(&self, scripts: &Scripts, now: Duration, delay: Duration) -> Scene {
        let kept = self.kept.as_ref().map_or(0, |kept| self.pods.saturating_sub(kept.ended));
        let script = self.script(scripts);
        let mut scene = match self.pods - kept {
            0 => script.scene(self.age(now), self.pods, delay),
            made => {
                let scene = script.scene(self.age(now), made, delay);
                Scene { ready: scene.ready + kept, down_for: scene.down_for.filter(|_| kept == 0), ..scene }
            }
        };
        if let Some(failure) = &mut scene.failure
            && failure.container.is_none()
        {
            failure.container = self.containers.first().map(|container| container.name.clone());
        }
        scene
    }

    /// Returns the pods that the rollout has made, ready or not.
    pub(super) fn made_pods(&self) -> Vec<Pod> {
        let made = self.kept.as_ref().map_or(self.pods, |kept| kept.ended.min(self.pods));
        let pod = |number| Pod {
            id: self.pod_id(number),
            image: self.image.clone(),
            digest: self.digest.clone(),
            deploy: self.made_by,
            configuration: self.configuration.clone(),
        };
        (0..made).map(pod).collect()
    }

    /// Returns whether the rollout has made the pod.
    pub(super) fn has_made(&self, pod: &Pod) -> bool {
        pod.id.strip_prefix(&self.rollouts.to_string()).is_some_and(|rest| rest.starts_with('-'))
    }

    /// Returns all pods: the rollout's as far as they were ever ready, and else those of the rollout before.
    pub(super) fn all_pods(&self, scripts: &Scripts, now: Duration, delay: Duration) -> Vec<Pod> {
        let scene = self.scene(scripts, now, delay);
        let is_down = scene.down_for.is_some();
        let ended = if is_down { 0 } else { self.ended(scripts, now, delay) };
        let ready = scene.ready.max(ended).min(self.pods);
        let kept_from = self.kept.as_ref().map_or(self.pods, |kept| kept.ended.min(self.pods));
        let made = ready.saturating_sub(self.pods - kept_from);
        let new = (0..made).map(|number| Pod {
            id: format!("{}-{number}", self.rollouts),
            image: self.image.clone(),
            digest: self.digest.clone(),
            deploy: self.made_by,
            configuration: self.configuration.clone(),
        });
        let old = self.old.iter().filter(|_| !is_down);
        let old = old.flat_map(|old| (ready..self.pods).map(|number| old.pod(number)));
        new.chain(self.kept_pods()).chain(old).collect()
    }

    /// Returns the pods of the rollout before that a restore has kept.
    fn kept_pods(&self) -> impl Iterator<Item = Pod> {
        self.kept.iter().flat_map(|kept| (kept.ended.min(self.pods)..self.pods).map(|number| kept.pod(number)))
    }

    /// Returns the pods of a deploy that are ready, those that it has kept among them.
    pub(super) fn ready_pods(&self, spec: &RolloutSpec, scripts: &Scripts, now: Duration, delay: Duration) -> Vec<Pod> {
        if !self.is_at(spec) {
            let all = self.all_pods(scripts, now, delay).into_iter();
            return all.filter(|pod| pod.deploy == Some(spec.id)).collect();
        }
        let ready = usize::try_from(self.scene(scripts, now, delay).ready).unwrap_or(usize::MAX);
        let kept: Vec<Pod> = self.kept_pods().collect();
        let made = self.made_pods().into_iter().take(ready.saturating_sub(kept.len()));
        made.chain(kept).collect()
    }

    pub(super) fn observe(&self, spec: &RolloutSpec, scripts: &Scripts, now: Duration, delay: Duration) -> Observation {
        if !self.is_at(spec) {
            return waiting(self.stamp, "the workload does not carry this revision");
        }
        let is_set = match spec.adopted {
            true => self.image.same_bits(Some(&self.digest), &spec.image, None),
            false => self.image == spec.image,
        };
        if !is_set {
            let message = format!("the workload runs {}, which somebody else has set", self.image);
            let seen = waiting(self.stamp, "the workload was changed by another");
            return seen.with(|seen| seen.failure = Some(final_failure(Reason::REVERTED, message)));
        }
        if spec.scale == Scale::Stop && self.pods > 0 {
            let message = format!("the workload was scaled to {} pods while it stopped", self.pods);
            let seen = waiting(self.stamp, "the workload was changed by another");
            return seen.with(|seen| seen.failure = Some(final_failure(Reason::REVERTED, message)));
        }
        let Scene { ready, complete, restarts, past_lives, down_for, failure, terminates, .. } =
            self.scene(scripts, now, delay);
        let pods = self.pods;
        let terminates = terminates && self.old.is_some();
        let phase = match (complete, pods) {
            (true, 0) => Phase::Complete { digest: None, note: Some("0 replicas: no pod runs".to_owned()) },
            (true, _) => {
                let contested = self.configuration.iter().flat_map(|configuration| self.contested(configuration));
                Phase::Complete { digest: Some(self.digest.clone()), note: remark_on_others(contested) }
            }
            (false, _) => Phase::Progressing,
        };
        let message = format!("{ready} of {pods} new pods are available");
        let progress = format!("{ready}/{pods}{}", if terminates { " terminating" } else { "" });
        Observation::new(self.stamp, phase, progress, message).with(|seen| {
            seen.leaving = terminates.then(|| "pods of the version before still terminate".to_owned());
            seen.instances = Some(Instances { ready, wanted: pods });
            seen.restarts = restarts;
            seen.past_lives =
                past_lives.map(|lives| PastLives { instance: self.pod_id(0), ..lives }).into_iter().collect();
            seen.down_for = down_for;
            seen.failure = failure;
        })
    }

    fn pod_id(&self, number: u32) -> String {
        format!("{}-{number}", self.rollouts)
    }

    pub(super) fn evidence(&self, name: &str, failure: &RolloutFailure) -> Evidence {
        let pod = format!("{name}-simulated-0");
        let log = match failure.kind {
            RolloutFailureKind::Crash => vec!["starting".to_owned(), "simulated: exiting with code 1".to_owned()],
            RolloutFailureKind::Image
            | RolloutFailureKind::Unhealthy
            | RolloutFailureKind::Config
            | RolloutFailureKind::Capacity
            | RolloutFailureKind::Final => Vec::new(),
        };
        Evidence {
            container: failure.container.clone(),
            state: Some(format!("waiting: {}", failure.reason)),
            events: vec![
                format!("Normal Scheduled: assigned {pod} to simulated-node"),
                format!("Warning {}: {} ({})", failure.reason, failure.message, self.image),
            ],
            pod: Some(pod),
            log,
            ..Evidence::default()
        }
    }
}

fn id(configuration: &Option<Configuration>) -> Option<ConfigurationId> {
    configuration.as_ref().map(|configuration| configuration.id)
}

/// Returns the observation while another deploy runs.
pub(super) fn waiting(stamp: Option<DeployId>, message: &str) -> Observation {
    let progress = stamp.map_or_else(|| "unstamped".to_owned(), |stamp| stamp.to_string());
    Observation::new(stamp, Phase::Progressing, progress, message)
}

/// Returns a failure that does not heal.
pub(super) fn final_failure(reason: &str, message: String) -> RolloutFailure {
    RolloutFailure { kind: RolloutFailureKind::Final, reason: Reason::new(reason), container: None, message }
}
