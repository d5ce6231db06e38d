//! The port that measures whether a version serves its users.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use crate::{
    app::{AppId, Settings, Target},
    check::{Check, CheckKind, CheckSecret, Measurement, PAST_VALUES_MAX, PastValue},
    configuration::Configuration,
    deploy::Commit,
    error::Result,
    image::ImageRef,
    ports::{CheckRun, DeployId, ReadyInstances},
    text::with_fields,
    time::Timestamp,
};

/// A kind of checks that a verifier knows, for forms and help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindOfCheck {
    /// The word by which a check names it.
    pub kind: CheckKind,
    /// What it measures, in a sentence.
    pub about: &'static str,
    /// Its settings.
    pub settings: &'static [CheckSetting],
    /// What the secret of such a check is, in a sentence; `None`: none has one.
    pub secret: Option<&'static str>,
}

/// A setting of a kind of checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckSetting {
    /// The member of the settings.
    pub name: &'static str,
    /// What it says, in a sentence.
    pub about: &'static str,
    /// Whether a check of the kind must have it.
    pub required: bool,
}

/// The specification of a measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MeasureSpec {
    /// The app's name.
    pub app: AppId,
    /// The deploy that is verified; of a check that a person tries out, the current one.
    pub deploy: DeployId,
    /// Whether the deploy records what ran when the app was registered.
    pub adopted: bool,
    /// The app's target.
    pub target: Arc<Target>,
    /// The image of the deploy.
    pub image: ImageRef,
    /// The commit of the deploy, or for an image app a label.
    pub commit: Option<Commit>,
    /// The check.
    pub check: Check,
    /// The check's secret, which was given for what [`Verifier::secret_for`] returns of its settings; `None`: it has none.
    pub secret: Option<CheckSecret>,
    /// The run of its command, if it has one.
    pub run: CheckRun,
    /// The instances of the deploy that are ready, of a check that [asks each](Verifier::instance_port); `None`: it asks none, or
    /// the platform names no addresses.
    pub instances: Option<ReadyInstances>,
    /// The configuration of the deploy, without its variables: its command gets them.
    pub configuration: Option<Configuration>,
    /// When the verification began.
    pub since: Timestamp,
    /// A time before the rollout of the deploy, at which the version before it served alone.
    pub rollout_began: Timestamp,
    /// How far back the measurement looks where it is over a time: no further than the deploy's instances serve.
    pub window: Duration,
    /// The time of the measurement.
    pub now: Timestamp,
    /// The times before the rollout whose [values](Verifier::values_before) are wanted beside the measurement; `None`: they are
    /// known already, or not wanted.
    pub before: Option<TimesBefore>,
}

with_fields!(MeasureSpec);

/// The times before the rollout of a deploy for which a check's values are wanted: [`PAST_VALUES_MAX`], as far apart as its
/// measurements are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimesBefore {
    /// The last of them.
    pub last: Timestamp,
    /// The time between two of them.
    pub every: Duration,
    /// How far back each looks where it is over a time.
    pub window: Duration,
}

impl TimesBefore {
    /// Returns the times before a rollout that began at `last`. The version before had served for long: each looks back for a
    /// minute, as a measurement by hand does, and without a gap to the one before it.
    pub fn new(check: &Check, last: Timestamp) -> Self {
        let window = check.window(check.every.max(Duration::from_secs(60)));
        Self { last, every: check.every, window }
    }

    /// Returns the times, the oldest first.
    pub fn all(&self) -> impl Iterator<Item = Timestamp> {
        let Self { last, every, .. } = *self;
        let steps = (0..PAST_VALUES_MAX).rev().map(|step| u32::try_from(step).unwrap_or_default());
        steps.map(move |step| last.before(every * step))
    }
}

impl MeasureSpec {
    /// Returns the specification of a measurement of a deploy whose rollout begins now, over the last minute.
    pub fn new(
        app: &AppId,
        deploy: DeployId,
        (target, image): (impl Into<Arc<Target>>, ImageRef),
        check: Check,
        now: Timestamp,
    ) -> Self {
        let window = Duration::from_secs(60);
        let target = target.into();
        let run = CheckRun::new(deploy.revision, 1, check.discriminator(0));
        Self {
            app: app.clone(),
            deploy,
            adopted: false,
            target,
            image,
            commit: None,
            check,
            secret: None,
            run,
            instances: None,
            configuration: None,
            since: now,
            rollout_began: now,
            window,
            now,
            before: None,
        }
    }
}

/// A measurement, and what was asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// What was asked, with all placeholders filled in, such as a URL or a query, without any secret: for a person who tries
    /// the check out.
    pub request: String,
    /// The condition that a pass must meet, as people read it, such as `status 200` or `< 0.01`.
    pub condition: String,
    /// What was measured.
    pub measurement: Measurement,
}

/// Measures whether a version serves its users.
///
/// A measurement that cannot be made is no error: it is one without a verdict ([`Verdict::None`](crate::check::Verdict::None)),
/// so that neither a red monitor nor a missing one is ever taken for a bad version, or for a good one.
///
/// - `settings_are_complete_once_checked`: what [`check`](Self::check) returned, it returns again unchanged.
/// - `settings_of_an_unknown_kind_are_refused`: with a sentence that names the kinds there are.
/// - `met_condition_passes`, `unmet_condition_fails`: with the value that was measured.
/// - `silence_is_no_verdict`: a provider that cannot be reached, does not answer in the check's
///   [`timeout`](Check::timeout), or answers what cannot be read gives none.
/// - `measure_is_bounded`: in time by the check's `timeout`, in memory whatever is answered.
#[async_trait]
pub trait Verifier: Send + Sync {
    /// Returns the kinds of checks that this verifier knows.
    fn describe(&self) -> Vec<KindOfCheck>;

    /// Returns the settings of a check with all defaults filled in. Has no effect, and calls nobody.
    ///
    /// # Errors
    /// What is wrong with them, as a sentence.
    fn check(&self, kind: &CheckKind, settings: &Settings) -> std::result::Result<Settings, String>;

    /// Returns the place that the secret of a check of these settings is for, such as the origin of its URL: the secret is kept for
    /// as long as that stays. `None`: such a check has no secret, as by default. Has no effect, and calls nobody.
    fn secret_for(&self, kind: &CheckKind, settings: &Settings) -> Option<String> {
        let _ = (kind, settings);
        None
    }

    /// Returns `Ok` if this can be the secret of a check of these settings. Has no effect, and calls nobody.
    ///
    /// # Errors
    /// What is wrong with it, as a sentence that does not repeat it.
    fn check_secret(
        &self,
        kind: &CheckKind,
        settings: &Settings,
        secret: &CheckSecret,
    ) -> std::result::Result<(), String> {
        let _ = (settings, secret);
        Err(format!("a check of kind {kind} has no secret."))
    }

    /// Returns the port at which a check of these settings asks each instance of a deploy that is ready: its specification has
    /// them, as the platform names them at each measurement. `None`: it asks no instances, as by default. Has no effect, and calls
    /// nobody.
    fn instance_port(&self, kind: &CheckKind, settings: &Settings) -> Option<u16> {
        let _ = (kind, settings);
        None
    }

    /// Measures once. Security: a secret is sent to the place that it is for, and nowhere else; no request, condition, value or
    /// message has it, also if it is answered.
    ///
    /// # Errors
    /// None of what is measured: only if this process itself cannot measure now. It counts as no measurement at all.
    async fn measure(&self, spec: &MeasureSpec) -> Result<Measured>;

    /// Returns what the check would have measured at these times before the rollout, oldest first, for people to compare with:
    /// nothing is judged by it. Empty if the check measures nothing that is known afterwards, as by default, and if nothing
    /// can be had of it now. It is called beside [`measure`](Self::measure), with a `spec` whose window is that of the times,
    /// and dropped once the check's [`timeout`](Check::timeout) is over. Security: as for [`measure`](Self::measure).
    async fn values_before(&self, spec: &MeasureSpec, times: &TimesBefore) -> Vec<PastValue> {
        let _ = (spec, times);
        Vec::new()
    }
}
