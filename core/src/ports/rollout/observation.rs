//! Observations of a rollout.

use std::time::Duration;

use super::DeployId;
use crate::{
    deploy::{MESSAGE_MAX, Reason},
    image::Digest,
    text::{self, with_fields},
};

/// An observation of a deploy, all at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Observation {
    /// The deploy id that the target carries. A newer one of the same app ends the observation.
    pub deploy: Option<DeployId>,
    /// The phase of the deploy.
    pub phase: Phase,
    /// Any text that differs whenever the rollout has moved, and stays the same while it only retries: counts of
    /// updated, ready and old instances; no time, no age and no number of attempts, which never stand still. A rollout
    /// whose text is the same for 10 s gives way to a newer one.
    pub progress: String,
    /// The progress in a line for people: "2 of 4 new instances are ready".
    pub message: String,
    /// This deploy's instances; `None` if the driver does not count them, or another deploy is on the target.
    pub instances: Option<Instances>,
    /// The number of restarts of this deploy's instances, all together, since the deploy began, those before the
    /// driver's process was started included.
    /// A deploy settles only while the number stays the same, and fails after 3 restarts since it was first complete.
    pub restarts: u32,
    /// The earlier lives of this deploy's instances that have ended and were, or are to be, started again: an instance
    /// must outlive each of its own before the deploy succeeds. The platform knows them, or what is kept there: a process
    /// that was started since returns none that could be shorter.
    pub past_lives: Vec<PastLives>,
    /// For how long no instance of the app has been ready because the old one had to stop before this deploy's could
    /// start, as the platform knows it; `None` while one serves, and where old and new instances run beside each other.
    /// Such a deploy is an outage until it is ready: it fails with the first end of an instance, and after the app's
    /// `ready_within`, unless it was the first version or a restore.
    pub down_for: Option<Duration>,
    /// The failure of this deploy's instances; `None` as soon as they recover.
    pub failure: Option<RolloutFailure>,
    /// The instances of earlier deploys that are to end and have not ended yet, in a clause: "1 pod of the version before
    /// still terminates"; `None`: there are none. A deploy that is complete and has settled waits for them until a newer one is
    /// ready to roll out, and at most until its deadline, and succeeds: time that old instances take to end is no failure of
    /// the new ones.
    pub leaving: Option<String>,
    /// The workloads of a target that has several, each with its own state; empty for a target that has one.
    pub workloads: Vec<WorkloadState>,
}

with_fields!(Observation);

impl Observation {
    /// Returns the observation of a target that carries this deploy, without instances, restarts and failure.
    pub fn new(
        deploy: Option<DeployId>,
        phase: Phase,
        progress: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        let (progress, message) = (progress.into(), message.into());
        let (instances, restarts, past_lives, down_for, failure, leaving, workloads) = Default::default();
        Self {
            deploy,
            phase,
            progress,
            message,
            instances,
            restarts,
            past_lives,
            down_for,
            failure,
            leaving,
            workloads,
        }
    }

    /// Returns the observation with its texts cut to what an entry may hold: a driver has them from the platform.
    #[must_use]
    pub(crate) fn bounded(mut self) -> Self {
        if self.progress.len() > MESSAGE_MAX {
            // Another text is still another one.
            self.progress = text::hex(&text::hash_of([self.progress.as_str()]));
        }
        text::cut(&mut self.message, MESSAGE_MAX);
        self.leaving.iter_mut().for_each(|leaving| text::cut(leaving, MESSAGE_MAX));
        if let Phase::Complete { note: Some(note), .. } = &mut self.phase {
            text::cut(note, MESSAGE_MAX);
        }
        if let Some(RolloutFailure { container, message, .. }) = &mut self.failure {
            container.iter_mut().chain([message]).for_each(|text| text::cut(text, MESSAGE_MAX));
        }
        for workload in &mut self.workloads {
            text::cut(&mut workload.name, MESSAGE_MAX);
            text::cut(&mut workload.message, MESSAGE_MAX);
        }
        self
    }

    /// Returns the name of the workload that fails, of several.
    pub fn failing_workload(&self) -> Option<&str> {
        self.workloads.iter().find(|workload| workload.is_failing).map(|workload| workload.name.as_str())
    }
}

/// The state of one of several workloads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadState {
    /// The workload's name for people, such as `Deployment/worker`.
    pub name: String,
    /// The deploy id that it carries.
    pub deploy: Option<DeployId>,
    /// Whether the observed deploy is complete on it.
    pub is_complete: bool,
    /// Its progress in a line for people.
    pub message: String,
    /// The number of restarts of its instances.
    pub restarts: u32,
    /// Whether the observed failure is its own.
    pub is_failing: bool,
}

/// The instances of a deploy, such as pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instances {
    /// The number of instances that are ready.
    pub ready: u32,
    /// The number of instances that should run once the rollout is complete.
    pub wanted: u32,
}

/// The lives that an instance has had before its present one, each from a start to an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastLives {
    /// The instance, by the platform's own id.
    pub instance: String,
    /// The number of lives that have ended.
    pub count: u32,
    /// The length of the last of them; a longer time where the platform does not tell when it began.
    pub last: Duration,
    /// The time from the first start, or from before it, to the last end: none of them was longer.
    pub all: Duration,
    /// How long ago the last of them ended. Those that ended before the deploy began do not count.
    pub ended_ago: Duration,
}

/// The phase of a deploy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The rollout has not completed.
    Progressing,
    /// All instances that should run are of this deploy and ready, and no other instance of the target is left. A
    /// deploy succeeds once this was observed for the app's settling time.
    Complete {
        /// The digest of the image that the instances run, by which a registry gives the same bits again: as observed,
        /// neither derived from the image's tag nor asked of the registry. `None` where it is not known, or differs
        /// among instances.
        digest: Option<Digest>,
        /// A remark for the history, such as "0 replicas: no pod runs".
        note: Option<String>,
    },
}

/// The kind of a failure of instances, which says whether it may heal. A failure that lasts longer than it may fails the
/// deploy; one that was not observed for 30 s is over. Of several failures, the first kind in this order says most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RolloutFailureKind {
    /// It cannot heal: the registry has no such image, the platform itself gave up, or refuses, or another party changed
    /// the target. The deploy fails at once.
    Final,
    /// The image cannot be fetched now: its registry does not answer, or the node has no room. It may last for the app's
    /// patience.
    Image,
    /// An instance ends, again and again if it is started anew. It may last for the app's patience; where the old
    /// instance had to stop first, the first end fails the deploy.
    Crash,
    /// An instance runs, and its own check says that it is not well. It may last for the app's patience.
    Unhealthy,
    /// An instance cannot be started as it is configured, and what it refers to may still come. It may last for the app's
    /// patience.
    Config,
    /// The platform has no room for an instance yet: no node, no quota, no volume. The rollout waits for it until its
    /// deadline.
    Capacity,
}

impl RolloutFailureKind {
    /// Returns whether a failure of the kind may heal by itself. One that turns into another such is the same failure.
    pub const fn may_heal(self) -> bool {
        matches!(self, Self::Image | Self::Crash | Self::Unhealthy | Self::Config)
    }

    /// Returns how long a failure of the kind may last before the deploy of an app of this patience fails; `None`: until
    /// the deadline of the rollout.
    pub const fn may_last(self, patience: Duration) -> Option<Duration> {
        match self {
            Self::Image | Self::Crash | Self::Unhealthy | Self::Config => Some(patience),
            Self::Capacity => None,
            Self::Final => Some(Duration::ZERO),
        }
    }
}

/// Trouble that a rollout driver observes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolloutFailure {
    /// The kind of failure.
    pub kind: RolloutFailureKind,
    /// The code, in the platform's own word if it has one, such as `ImagePullBackOff`.
    pub reason: Reason,
    /// The container, or what else the platform calls the part that fails, if an instance has parts.
    pub container: Option<String>,
    /// A sentence that a person can act on, which names the part.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_a_driver_are_cut_and_a_moved_rollout_still_differs() {
        let long = |end: &str| "é".repeat(100_000) + end;
        let seen = |end: &str| {
            let phase = Phase::Complete { digest: None, note: Some(long(end)) };
            Observation::new(None, phase, long(end), long(end)).with(|seen| {
                seen.failure = Some(RolloutFailure {
                    kind: RolloutFailureKind::Crash,
                    reason: Reason::new(Reason::REFUSED),
                    container: Some(long(end)),
                    message: long(end),
                });
                seen.workloads = vec![WorkloadState {
                    name: long(end),
                    deploy: None,
                    is_complete: true,
                    message: long(end),
                    restarts: 0,
                    is_failing: true,
                }];
            })
        };
        let (one, other) = (seen("a").bounded(), seen("b").bounded());
        assert!(format!("{one:?}").chars().count() < 7 * MESSAGE_MAX);
        assert!(one.progress != other.progress && one.message == other.message);
        assert!(one.message.ends_with("é…"));
        let short = Observation::new(None, Phase::Progressing, "1 of 2", "1 of 2 is ready");
        assert_eq!(short.clone().bounded(), short);
    }
}
