//! The port that brings what runs to a revision.

mod at_rest;
mod description;
mod images;
mod observation;
mod target;

use std::{fmt, str::FromStr, time::Duration};

use async_trait::async_trait;

use crate::{
    app::{App, AppId, AppUid, Target},
    configuration::Configuration,
    deploy::{Evidence, Reason, Revision, Scale},
    error::Result,
    image::ImageRef,
    ports::{InstanceAddresses, InstanceLogs, ReleaseRunner},
    text::with_fields,
};

pub use at_rest::{AtRest, Drift, References, TargetReader};
pub use description::{SettingValue, TargetDescription, TargetSetting};
pub use images::StoredImages;
pub use observation::{Instances, Observation, PastLives, Phase, RolloutFailure, RolloutFailureKind, WorkloadState};
pub use target::{CheckedSettings, InvalidTarget, SettingsRequest, TargetRequest, Validated};

/// `{app uid}/{revision}`: carried by a target and its instances, and the fence of every change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeployId {
    /// The uid of the registration.
    pub app: AppUid,
    /// The revision of the deploy.
    pub revision: Revision,
}

impl fmt::Display for DeployId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.app, self.revision)
    }
}

impl FromStr for DeployId {
    type Err = crate::app::InvalidName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (app, revision) = text.split_once('/').unwrap_or((text, ""));
        Ok(Self { app: app.parse()?, revision: revision.parse()? })
    }
}

/// The platform that a driver deploys to, in a line: `simulated`, or the kind of a platform and the platform's own id.
///
/// A store keeps it, so that a process with another driver, or another cluster, does not record failures of deploys
/// that are not its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverIdentity(pub String);

impl fmt::Display for DriverIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The specification of a rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RolloutSpec {
    /// The app's name.
    pub app: AppId,
    /// The deploy id: registration and revision.
    pub id: DeployId,
    /// The target, with the settings that [`RolloutDriver::validate`] returned.
    pub target: Target,
    /// The image to run. A digest decides the bits: a tag beside it does not matter.
    pub image: ImageRef,
    /// Whether the revision is the one that ran when the app was registered: nothing is changed, and the running
    /// instances are observed as they are.
    pub adopted: bool,
    /// How long new instances must stay ready before they take the place of old ones, so that a version that ends soon
    /// costs no outage: the app's settling time as far as the deadline allows, and nothing for a rollback.
    /// For drivers that decide themselves when that happens; the core lets every deploy settle afterwards.
    pub settle: Duration,
    /// The purpose of the deploy.
    pub purpose: Purpose,
    /// The change of the number of instances. A deploy that keeps the number leaves a stopped target stopped.
    pub scale: Scale,
    /// Whether the app is stopped: see [`RolloutSpec::is_made_stopped`].
    pub stopped: bool,
    /// The variables that this service sets in the target's environment; `None`: none. What others set there stays.
    pub configuration: Option<Configuration>,
    /// The cause in a line, such as "rollback to revision 3 by alice".
    pub cause: String,
}

with_fields!(RolloutSpec);

impl RolloutSpec {
    /// Returns the specification of a deploy of this image, which settles at once and has no cause.
    pub const fn new(app: AppId, id: DeployId, target: Target, image: ImageRef) -> Self {
        let (adopted, settle, purpose) = (false, Duration::ZERO, Purpose::Deploy);
        let (scale, stopped) = (Scale::Keep, false);
        Self {
            app,
            id,
            target,
            image,
            adopted,
            settle,
            purpose,
            scale,
            stopped,
            configuration: None,
            cause: String::new(),
        }
    }

    /// Returns whether a target that is made anew is made without instances: this stops the app, or leaves it stopped.
    pub const fn is_made_stopped(&self) -> bool {
        match self.scale {
            Scale::Keep => self.stopped,
            Scale::Stop => true,
            Scale::Start => false,
        }
    }
}

/// The purpose of a deploy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To bring a version, as by CI.
    Deploy,
    /// To return to a version, as a person asked. It is refused for what is impossible, and not as a precaution. Where the
    /// target is set to another image, instances of that version which still run may be kept, as by a restore.
    Rollback {
        /// The deploy that the version ran as.
        to: Revision,
    },
    /// To put a failed deploy right, by the version that ran before. What still runs of that version, as the failed deploy
    /// never replaced it, is kept as this deploy's own; so is what the platform can start of it without making it anew. It
    /// is refused as little as a rollback.
    Restore {
        /// The deploy that the version ran as. Instances of later deploys are not of that version, even if they have its
        /// image.
        to: Revision,
    },
}

impl Purpose {
    /// Whether a failed deploy is put right.
    pub const fn is_restore(self) -> bool {
        matches!(self, Self::Restore { .. })
    }

    /// The deploy that the version ran as to which the target returns; `None`: it is brought a version.
    pub const fn returns_to(self) -> Option<Revision> {
        match self {
            Self::Deploy => None,
            Self::Rollback { to } | Self::Restore { to } => Some(to),
        }
    }
}

/// The answer to an [`apply`](RolloutDriver::apply).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The target was brought to the deploy, by this call or an earlier one. Later changes by others are for an
    /// observation to report.
    Done,
    /// The target carries a newer deploy of the same app. Nothing was changed.
    Newer(Revision),
    /// The target must not or cannot be changed. Nothing was changed, and the deploy fails at once.
    Refused {
        /// The code: [`Reason::FOREIGN_TARGET`], [`Reason::TARGET_MISSING`], [`Reason::REFUSED`], or the platform's
        /// word.
        reason: Reason,
        /// A sentence that a person can act on.
        message: String,
    },
}

/// The time that a call may take.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Brings a target to a revision, and reports what it observes: one backend for one kind of platform, such as a cluster
/// or a machine. It never takes a target backwards, whatever its caller believes.
///
/// # The deploy id
///
/// An app's target is found by its settings. It carries the [`DeployId`] of the last deploy that was applied to it, and
/// each of its instances carries its own. That id is kept where the target is, written together with the change or
/// before it, and compared and replaced as one step: several processes apply to one target at once, one of them may
/// have been stopped for an hour in the middle of a call, and the memory of a driver ends with its process.
///
/// # Calls
///
/// A call answers within [`ANSWER_WITHIN`] (10 s); a caller drops a call that takes much longer, and repeats it later.
/// A call begins what takes longer and returns: fetching an image and starting instances is for
/// [`observe`](Self::observe) to follow. That holds for [`apply`](Self::apply) before all: one that waits for its
/// instances keeps a newer deploy, and a rollback, from being applied. A future may be dropped at any await. Its effect may then have happened or
/// not, in part or as a whole, and may still happen for as long as a call may take; the next call, of this process or
/// another one, must cope with either.
///
/// The [`Error`](crate::Error) of a call says what its caller does next:
///
/// - `Unavailable`, `Conflict`: the call is repeated, with growing pauses; after 1 h the deploy fails. A change may
///   have happened.
/// - `Denied`: the same, and the deploy's message names the permission that is missing. A registration is
///   refused for now, with the error's text.
/// - `Invalid`, `NotFound`, `Corrupt`: the deploy, or the registration, fails with the error's text.
///
/// # Reboots
///
/// The core applies what is unfinished, and nothing at rest: after a reboot of the platform, a driver without a controller
/// leaves it to the platform (a restart policy, a supervisor) to start the instances of the last deploy again. No call of
/// this port comes then: a driver that starts processes by itself hands them to something that outlives it.
///
/// # Instances
///
/// A driver tells instances apart by what the platform says of each (the uid of a pod, the id of a container, the start
/// time and id of a process), never by their image: it is that one which carries a deploy id, restarts and is ready. An
/// instance carries the deploy id that it was started with for all of its life. Old instances that end again and again
/// are instances too, though none of them may run at the moment.
///
/// The deploy id of a restore stands on the target alone: the instances that it keeps carry the id that they were started
/// with, and count as its own. Which ones they are is kept with the target, written together with the deploy id.
///
/// # Promises
///
/// Each is a case of the conformance suite.
///
/// - `identity_is_stable`: every handle on one platform has the same identity, and it is a line of text.
///
/// Registering:
///
/// - `validate_changes_nothing`: it is asked about any target at any time.
/// - `validate_fills_in_defaults`: the settings of an answer, asked about again, come back as they are.
/// - `validate_adopts_what_runs`: a target that exists is `Adopt`, with the image that runs.
/// - `validate_absent_is_created`: a target that does not exist is `Create`; with neither an image nor one to be built,
///   it is [`InvalidTarget::Unusable`].
/// - `validate_names_an_invalid_setting`: an unknown or invalid setting is [`InvalidTarget::Setting`] with its name.
/// - `validate_of_another_app_is_taken`: the target of another app of the request is [`InvalidTarget::Taken`] with its
///   name, also if neither was deployed yet, unless the request allows to take over. Two registrations at the same time
///   do not see each other: the deploy id on the target tells them apart once one is deployed.
/// - `validate_foreign_is_taken`: a target that carries the deploy id of another registration is
///   [`InvalidTarget::Taken`]; where the request allows to take over, it is `Adopt` and names that registration.
/// - `validate_names_settings_of_creation`: of a target that exists, the answer names the given settings that only say
///   how a missing one is created.
/// - `validate_knows_its_own`: the deploy id of the registration whose setting is changed is not taken over, and what
///   says how its target is created comes back.
///
/// Changing:
///
/// - `apply_then_observe_complete`: a sound image ends `Complete`, and the target runs that image.
/// - `apply_is_idempotent`: repeated for the same deploy, under way or done, it is `Done` and restarts nothing.
/// - `apply_older_is_refused`: a deploy below the one that the target carries is `Newer`, even if the newer one failed.
/// - `apply_older_is_refused_after_a_restart`: by a process that knows nothing but what is kept with the target, too.
/// - `apply_race_ends_at_the_newest`: of deploys that two processes apply at once, the newest stays, whichever began.
/// - `apply_dropped_is_made_good`: after a dropped call, the same deploy is applied as if for the first time.
/// - `apply_foreign_is_refused`: a target that carries the deploy id of another registration is `Refused` with
///   [`Reason::FOREIGN_TARGET`], unless the target's `take_over` names just that registration.
/// - `apply_same_image_rolls_again`: a new revision of the same image is a rollout of its own, with new instances,
///   unless it puts a failed deploy right. An old instance never gets a new deploy id.
/// - `restore_keeps_what_still_runs`: instances of the version that ran before, which the failed deploy never replaced, run
///   on after a restore, which is `Complete` with them, also to a process that was started since; the next deploy replaces
///   them.
/// - `restore_keeps_nothing_of_the_failed_deploy`: an instance of the failed deploy is never the restore's own, even if it
///   has the image that is restored.
/// - `apply_takes_the_digest_and_not_the_tag`: an image with a tag and a digest runs the bits of the digest, whatever
///   the tag means.
/// - `apply_missing_is_created_or_refused`: a target that does not exist is created if its settings say how, and else
///   `Refused` with [`Reason::TARGET_MISSING`]; an adopted deploy creates nothing.
/// - `apply_stops_and_starts`: a spec with [`Scale::Stop`] ends every instance and is `Complete` once none is left, those
///   that still end included; one with [`Scale::Start`] brings back as many as there were.
/// - `apply_leaves_a_stopped_target_stopped`: a deploy of a stopped target is `Complete` without an instance, and the
///   start that follows runs its image.
/// - `apply_keeps_the_configuration`: image and deploy id change; how many instances there are, their environment, and
///   all other configuration stays, also across a deploy that failed.
/// - `apply_sets_the_variables`: the instances of a spec with a [`Configuration`] have its variables, whatever characters
///   are in them, none that an earlier spec had and this one lacks, and all that others have set.
/// - `restore_brings_the_variables_back`: the instances of a restore have the variables of its spec.
/// - `settings_come_back_with_their_configuration`: a driver that takes [settings](Self::check_settings) makes the instances of a
///   deploy with those of its configuration, also those of a restore and of a rollback; without any, as others have made them.
/// - `settings_are_of_their_own_app`: those of one app change nothing of another one's instances.
/// - `variable_of_another_is_refused`: a variable of a [new](Configuration::is_new) configuration that others have set in the
///   target too is `Refused`, by its name, and nothing is changed.
/// - `variable_of_another_refuses_no_return`: a configuration that is not new is applied all the same. The value of the
///   others stays, and the remark of [`Phase::Complete`] names the variable.
/// - `adopt_changes_nothing`: an adopted deploy leaves the target as it is, and is `Complete` as long as the
///   target runs the image that it ran at registration.
/// - `calls_answer_in_time`: each call answers within [`ANSWER_WITHIN`], also about an image that cannot be fetched and
///   instances that do not get ready.
///
/// Observing:
///
/// - `observe_old_is_not_new`: while the deploy's own instances do not run, it is not `Complete`, even if earlier ones
///   of the same image are healthy; `deploy` is the deploy that the target carries.
/// - `observe_complete_leaves_no_old_instance`: `Complete` without anything [leaving](Observation::leaving) means that no
///   instance of an earlier deploy runs any more, also none that is to end, or is started again and again.
/// - `observe_changed_by_another_is_not_complete`: once another party has set another image, neither the deploy that the
///   target was brought to is `Complete`, nor an adopted one.
/// - `observe_never_ready_is_not_complete`: an instance that started and does not get ready is not `Complete`.
/// - `observe_dead_is_not_complete`: once instances that were ready end, an observation is not `Complete`, or its
///   `restarts` have grown, or it is in `failure`.
/// - `observe_counts_restarts`: `restarts` grows with each restart of an instance of the deploy, and a process that was
///   started since returns no less: the platform counts, or what is kept there.
/// - `observe_keeps_past_lives`: an instance that has ended and was started again is in `past_lives`, and a process that
///   was started since returns no fewer of its lives, and none that could be shorter. The next deploy has none of them.
/// - `observe_down_while_nothing_serves`: `down_for` is `None` once the deploy is complete; while the old instance has
///   stopped for one that does not get ready, it grows, also for a process that was started since, and where old
///   instances go on it is `None`.
/// - `observe_digest_is_what_runs`: the digest of a complete deploy is the one of the bits that run.
/// - `observe_digest_stays_where_a_tag_moves`: also once the tag that was deployed means other bits.
/// - `observe_reports_failing_image`: an image that cannot be fetched is a failure of the kind `Image`, not a refusal;
///   the next deploy is free of it.
/// - `observe_reports_crash`: an instance that ends again and again is a failure of the kind `Crash`.
/// - `observe_failure_ends_with_recovery`: once the instances have recovered, `failure` is `None`.
/// - `progress_stands_still_with_the_rollout`: [`progress`](Observation::progress) differs when the rollout has moved,
///   and stays the same for 10 s where it does not move or only retries: a time or a number of attempts is no progress.
/// - `evidence_has_the_log`: what a failing instance has logged is in the evidence.
/// - `evidence_is_of_its_own_deploy`: nothing that an instance of an earlier deploy has logged is.
/// - `changed_is_only_a_hint`: it never panics, whatever the target carries, and changes nothing.
///
/// Always:
///
/// - `forget_changes_nothing_that_runs`: no target, instance or deploy id is touched.
/// - `away_is_unavailable`: while the platform cannot be reached, every call is `Unavailable`.
///
/// # What not every platform can do
///
/// A driver that can read a target after its deploy has ended has a [`TargetReader`], one that can run release commands
/// has a [`ReleaseRunner`], one whose platform keeps the logs of instances has [`InstanceLogs`], one whose instances have
/// addresses that this process reaches has [`InstanceAddresses`], and one that stores images where rollhook is to care for them
/// has [`StoredImages`]. Their calls are bound by the same rules. A decorator hands out what its inner driver hands out.
#[async_trait]
pub trait RolloutDriver: Send + Sync {
    /// Returns what this driver deploys to: the same in every process and after every restart, and another one for
    /// another platform.
    async fn identity(&self) -> Result<DriverIdentity>;

    /// Returns the words and settings of this driver's targets, for the forms and texts of hosts: always the same.
    fn describe(&self) -> TargetDescription {
        TargetDescription::UNKNOWN
    }

    /// Returns why a target with these settings cannot be stopped and started, in a sentence; `None`: it can be. An app of
    /// which it cannot is refused a stop before anything is recorded, so that no spec asks for one.
    fn unstoppable(&self, _target: &Target) -> Option<String> {
        let platform = self.describe().platform;
        Some(format!("rollhook can neither stop nor start what runs on this {platform}."))
    }

    /// Returns why variables cannot be set in the environment of a target with these settings, in a sentence; `None`: they
    /// can. For an app of which they cannot, none are accepted, so that no spec has a configuration.
    fn unconfigurable(&self, _target: &Target) -> Option<String> {
        let platform = self.describe().platform;
        Some(format!("rollhook cannot set the environment of what runs on this {platform}."))
    }

    /// Checks what instances of a target are to be made with beside their variables, such as memory and ports. Called before
    /// such a configuration is stored, so that a spec has none that was not checked. Has no effect.
    ///
    /// Each deploy makes its instances with the settings of its spec's configuration. Where that has none of a name, they are
    /// made with what others gave.
    async fn check_settings(&self, _request: &SettingsRequest) -> Result<CheckedSettings> {
        let platform = self.describe().platform;
        let why =
            format!("rollhook does not change what instances are made with on this {platform}, but for variables.");
        Ok(CheckedSettings::Unsupported(why))
    }

    /// Returns whether a target has the same workloads after a change of its settings. Otherwise the settings are not changed
    /// while a deploy rolls out: a workload that is taken away would be left out of its restore.
    fn has_same_workloads(&self, _before: &Target, _after: &Target) -> bool {
        true
    }

    /// Returns whether [`observe`](Self::observe) may make instances of such a target, so that it needs the variables of the
    /// spec's configuration as well. Otherwise they come with [`apply`](Self::apply) alone: they are secrets, and may be large.
    fn observes_with_variables(&self, _target: &Target) -> bool {
        false
    }

    /// Returns whether the platform fetches images from their registries, so that a tag becomes a digest before its rollout.
    fn fetches_images(&self) -> bool {
        true
    }

    /// Returns the settings of a target with all defaults filled in, and what runs there; or what is wrong with them.
    ///
    /// Called when an app is registered. Has no effect.
    async fn validate(&self, request: &TargetRequest) -> Result<Validated>;

    /// Brings the target to the deploy, unless it carries a newer one.
    ///
    /// Called once per deploy, and again after each restart, failed call and outage. Writes the deploy id and begins
    /// the rollout; creates the target if it is missing and the settings say how. Changes nothing else of the target,
    /// and nothing beside it.
    async fn apply(&self, spec: &RolloutSpec) -> Result<Applied>;

    /// Returns what is to be seen of the deploy now.
    ///
    /// Called every few seconds while a deploy is rolled out, and whenever [`changed`](Self::changed) returns. Reads;
    /// on a platform without a controller that advances rollouts, it may also take the rollout's next step, if
    /// the target still carries this deploy.
    async fn observe(&self, spec: &RolloutSpec) -> Result<Observation>;

    /// Returns when an observation may have changed since the last one.
    ///
    /// A hint, which only saves time: it may return early, and need never return. Its future is dropped and asked for
    /// anew at any time. Has no effect on the target.
    async fn changed(&self, spec: &RolloutSpec);

    /// Returns what can be collected about the deploy's failing instances: state, at most 10 events, and the last lines
    /// of the log, at most 50 of at most 500 characters.
    ///
    /// Called once, when a deploy failed, before anything is put right. Has no effect. What cannot be had in time is
    /// left out.
    async fn evidence(&self, spec: &RolloutSpec, failure: Option<&RolloutFailure>) -> Result<Evidence>;

    /// Returns the reader of this driver's targets at rest; `None`: the driver cannot read them.
    fn target_reader(&self) -> Option<&dyn TargetReader> {
        None
    }

    /// Returns the images that this driver has stored; `None`: it stores none, or they are not its own to care for.
    fn stored_images(&self) -> Option<&dyn StoredImages> {
        None
    }

    /// Returns the runner of release commands; `None`: the platform cannot run any.
    fn release_runner(&self) -> Option<&dyn ReleaseRunner> {
        None
    }

    /// Returns the reader of the instances' logs; `None`: the platform keeps none.
    fn instance_logs(&self) -> Option<&dyn InstanceLogs> {
        None
    }

    /// Returns what names the addresses of instances; `None`: they have none that this process reaches.
    fn instance_addresses(&self) -> Option<&dyn InstanceAddresses> {
        None
    }

    /// Reports that the app was deleted, so that the driver can drop its data for the app outside the target.
    ///
    /// Called once after the deletion, maybe never. What runs goes on, and keeps its deploy id: calls for the app that
    /// were under way may still arrive, and the target may be registered anew. A failure is logged.
    async fn forget(&self, _app: &App) -> Result<()> {
        Ok(())
    }
}
