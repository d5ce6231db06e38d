//! A workload of the simulated cluster, and how it is observed.

use std::time::Duration;

use rollhook_core::{
    deploy::{Evidence, Reason},
    image::{Digest, ImageRef},
    ports::{DeployId, Instances, Observation, PastLives, Phase, RolloutFailure, RolloutFailureKind, RolloutSpec},
};

use super::script::{Scene, Scripts};

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
}

/// The image of a rollout before, whose pods run until those of the rollout are ready.
pub(super) struct Replaced {
    rollout: u64,
    image: ImageRef,
    digest: Digest,
}

/// A workload and what it runs.
pub(super) struct Running {
    pub(super) containers: Vec<Container>,
    /// The image that was set last.
    pub(super) image: ImageRef,
    /// The rollout before, if its pods are still to be replaced.
    pub(super) old: Option<Replaced>,
    /// The number of rollouts so far.
    pub(super) rollouts: u64,
    /// The digest that the image stood for when it was set.
    pub(super) digest: Digest,
    pub(super) stamp: Option<DeployId>,
    pub(super) pods: u32,
    /// The time at which the image was set.
    pub(super) since: Duration,
    /// The age of the pods by then.
    pub(super) before: Duration,
    pub(super) unsupported: Option<String>,
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
        let (old, rollouts, stamp, before, unsupported) = Default::default();
        Self { containers, image: image.clone(), old, rollouts, digest, stamp, pods, since, before, unsupported }
    }

    /// Starts another rollout.
    pub(super) fn roll(&mut self, containers: &[String], image: &ImageRef, digest: Digest, now: Duration) {
        for container in self.containers.iter_mut().filter(|container| containers.contains(&container.name)) {
            container.image = image.to_string();
        }
        self.old = Some(Replaced {
            rollout: self.rollouts,
            image: std::mem::replace(&mut self.image, image.clone()),
            digest: std::mem::replace(&mut self.digest, digest),
        });
        self.rollouts += 1;
        self.since = now;
        self.before = Duration::ZERO;
    }

    /// Returns whether the deploy is the one that runs: by its id, or, if it was adopted, before any id of its app.
    pub(super) fn is_at(&self, spec: &RolloutSpec) -> bool {
        self.stamp == Some(spec.id) || (spec.adopted && self.stamp.is_none_or(|stamp| stamp.app != spec.id.app))
    }

    pub(super) fn scene(&self, scripts: &Scripts, now: Duration, delay: Duration) -> Scene {
        let age = now.saturating_sub(self.since) + self.before;
        let mut scene = scripts.of(&self.image, &self.digest).scene(age, self.pods, delay);
        if let Some(failure) = &mut scene.failure
            && failure.container.is_none()
        {
            failure.container = self.containers.first().map(|container| container.name.clone());
        }
        scene
    }

    /// Returns all pods: the rollout's as far as they are ready, and else those of the rollout before.
    pub(super) fn all_pods(&self, scripts: &Scripts, now: Duration, delay: Duration) -> Vec<Pod> {
        let scene = self.scene(scripts, now, delay);
        let (ready, is_down) = (scene.ready.min(self.pods), scene.down_for.is_some());
        let pod = |rollout: u64, number: u32, image: &ImageRef, digest: &Digest| Pod {
            id: format!("{rollout}-{number}"),
            image: image.clone(),
            digest: digest.clone(),
        };
        let new = (0..ready).map(|number| pod(self.rollouts, number, &self.image, &self.digest));
        let old =
            self.old.iter().filter(|_| !is_down).flat_map(|old| {
                (ready..self.pods).map(move |number| pod(old.rollout, number, &old.image, &old.digest))
            });
        new.chain(old).collect()
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
        let Scene { ready, complete, restarts, past_lives, down_for, failure, .. } = self.scene(scripts, now, delay);
        let pods = self.pods;
        let phase = match (complete, pods) {
            (true, 0) => Phase::Complete { digest: None, note: Some("0 replicas: no pod runs".to_owned()) },
            (true, _) => Phase::Complete { digest: Some(self.digest.clone()), note: None },
            (false, _) => Phase::Progressing,
        };
        let message = format!("{ready} of {pods} new pods are available");
        Observation::new(self.stamp, phase, format!("{ready}/{pods}"), message).with(|seen| {
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
        }
    }
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
