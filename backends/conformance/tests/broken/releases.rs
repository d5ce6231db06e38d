//! Runners of release commands that break one promise each.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use rollhook_conformance::{
    Can, Clusters, Does, Instance, Releases, Sample, block_on,
    releases::{
        cancel_ends_for_good, end_outlives_a_restart, failed_command_keeps_its_log, missing_image_never_begins,
        observe_unknown_is_unknown, prepare_begins_nothing, prepare_of_known_changes_nothing,
        release_log_is_read_in_parts, runs_of_all_kinds_are_apart, start_is_once, start_of_unknown_runs_nothing,
        start_runs_to_the_end, target_stays_as_it_is,
    },
};
use rollhook_core::{
    Result,
    app::{AppId, Settings, Target},
    deploy::Evidence,
    image::{Digest, ImageRef},
    ports::{
        Applied, DriverIdentity, Observation, ReleaseFailure, ReleaseRun, ReleaseRunner, ReleaseSpec, ReleaseState,
        RolloutDriver, RolloutFailure, RolloutSpec, RunId, RunKind, TargetRequest, Validated,
    },
};
use rollhook_memory::SimulatedCluster;

use crate::{assert_panics, simulated::Simulated};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Promise {
    Kept,
    /// What is ready has not begun: here it begins at once.
    ReadyIsNotBegun,
    /// The command runs once: here each start begins it.
    RunsOnce,
    /// A start makes no run: here one of an unknown run does.
    StartMakesNone,
    /// What has ended is not made anew: here it is ready again.
    EndsStay,
    /// The log is kept with the failure: here it is lost.
    LogIsKept,
    /// What never began is known: here it may have begun.
    NeverBegan,
    /// A cancel holds: here it ends only what runs.
    CancelHolds,
    /// An end is reported by other processes: here it is in this one's memory.
    EndIsKept,
    /// The new image runs: here it is the one that the target runs.
    NewImage,
    /// The target is left alone: here the run is applied to it.
    TargetStays,
    /// What was never made ready is unknown: here it runs.
    UnknownIsUnknown,
    /// A log is read from any byte on: here always from its begin.
    LogHasParts,
    /// Runs of both kinds are apart: here a command by hand is the release command of its number.
    KindsAreApart,
    /// The exit code is known: here it is only in the words.
    CodeIsKnown,
}

struct Runner {
    cluster: Arc<SimulatedCluster>,
    promise: Promise,
    prepared: Mutex<BTreeSet<RunId>>,
    /// The starts that began a command once more.
    again: Mutex<Vec<RunId>>,
}

impl Runner {
    fn breaks(&self, promise: Promise) -> bool {
        self.promise == promise
    }

    /// The run that a call is made for.
    fn meant(&self, run: &ReleaseRun) -> ReleaseRun {
        match run.id.kind {
            RunKind::ByHand(number) if self.breaks(Promise::KindsAreApart) => {
                ReleaseRun::new(&run.app, run.id.app, rollhook_conformance::samples::revision(number.get()))
            }
            RunKind::ByHand(_) | RunKind::Release(_) | RunKind::Check(_) => run.clone(),
        }
    }

    async fn state(&self, run: &ReleaseRun) -> Result<ReleaseState> {
        let state = ReleaseRunner::observe(&*self.cluster, run).await?;
        let is_made_here = self.prepared.lock().unwrap().contains(&run.id);
        Ok(match state {
            _ if self.breaks(Promise::EndIsKept) && !is_made_here => ReleaseState::Unknown,
            ReleaseState::Unknown if self.breaks(Promise::UnknownIsUnknown) => ReleaseState::Running,
            ReleaseState::Unknown
                if self.breaks(Promise::StartMakesNone) && self.again.lock().unwrap().contains(&run.id) =>
            {
                ReleaseState::Running
            }
            ReleaseState::Failed(failure) => ReleaseState::Failed(ReleaseFailure {
                began: failure.began || self.breaks(Promise::NeverBegan),
                exit_code: failure.exit_code.filter(|_| !self.breaks(Promise::CodeIsKnown)),
                log: if self.breaks(Promise::LogIsKept) { Vec::new() } else { failure.log },
                ..failure
            }),
            state => state,
        })
    }
}

#[async_trait]
impl ReleaseRunner for Runner {
    async fn prepare(&self, spec: &ReleaseSpec) -> Result<ReleaseState> {
        let known = ReleaseRunner::observe(&*self.cluster, &spec.run).await?;
        if known.is_ended() && self.breaks(Promise::EndsStay) {
            return Ok(ReleaseState::Prepared);
        }
        self.prepared.lock().unwrap().insert(spec.run.id);
        let spec = match self.promise {
            Promise::NewImage => spec.clone().with(|spec| {
                spec.image = rollhook_conformance::samples::image("v1");
            }),
            _ => spec.clone(),
        };
        self.cluster.prepare(&spec).await?;
        if self.breaks(Promise::ReadyIsNotBegun) {
            ReleaseRunner::start(&*self.cluster, &spec.run).await?;
            return Ok(ReleaseState::Prepared);
        }
        self.state(&spec.run).await
    }

    async fn start(&self, run: &ReleaseRun) -> Result<()> {
        let state = ReleaseRunner::observe(&*self.cluster, run).await?;
        if self.breaks(Promise::RunsOnce) && state != ReleaseState::Prepared
            || self.breaks(Promise::StartMakesNone) && state == ReleaseState::Unknown
        {
            self.again.lock().unwrap().push(run.id);
        }
        if self.breaks(Promise::TargetStays) {
            let (app, target) = (&run.app, rollhook_conformance::samples::target(run.app.name.as_str()));
            self.cluster.meddle(app, &target, &rollhook_conformance::samples::image("v2"));
        }
        ReleaseRunner::start(&*self.cluster, run).await
    }

    async fn observe(&self, run: &ReleaseRun) -> Result<ReleaseState> {
        if self.breaks(Promise::ReadyIsNotBegun) {
            return Ok(ReleaseState::Prepared);
        }
        self.state(&self.meant(run)).await
    }

    async fn cancel(&self, run: &ReleaseRun) -> Result<()> {
        let state = ReleaseRunner::observe(&*self.cluster, run).await?;
        if self.breaks(Promise::CancelHolds) && state != ReleaseState::Running {
            return Ok(());
        }
        self.cluster.cancel(run).await
    }

    async fn changed(&self, run: &ReleaseRun) {
        ReleaseRunner::changed(&*self.cluster, run).await;
    }

    async fn log(&self, run: &ReleaseRun, from: u64) -> Result<Option<Vec<u8>>> {
        let from = if self.breaks(Promise::LogHasParts) { 0 } else { from };
        self.cluster.log(run, from).await
    }
}

#[async_trait]
impl RolloutDriver for Runner {
    async fn identity(&self) -> Result<DriverIdentity> {
        self.cluster.identity().await
    }

    async fn validate(&self, request: &TargetRequest) -> Result<Validated> {
        self.cluster.validate(request).await
    }

    async fn apply(&self, spec: &RolloutSpec) -> Result<Applied> {
        self.cluster.apply(spec).await
    }

    async fn observe(&self, spec: &RolloutSpec) -> Result<Observation> {
        RolloutDriver::observe(&*self.cluster, spec).await
    }

    async fn changed(&self, spec: &RolloutSpec) {
        RolloutDriver::changed(&*self.cluster, spec).await;
    }

    async fn evidence(&self, spec: &RolloutSpec, failure: Option<&RolloutFailure>) -> Result<Evidence> {
        self.cluster.evidence(spec, failure).await
    }

    fn release_runner(&self) -> Option<&dyn ReleaseRunner> {
        Some(self)
    }
}

/// The simulated cluster, under a runner that breaks a promise.
struct Platform {
    simulated: Simulated,
    runner: Arc<Runner>,
}

impl Platform {
    fn new(promise: Promise) -> Self {
        let simulated = Simulated::fresh().unwrap();
        let runner = Arc::new(runner(&simulated, promise));
        Self { simulated, runner }
    }
}

fn runner(simulated: &Simulated, promise: Promise) -> Runner {
    let (prepared, again) = Default::default();
    Runner { cluster: simulated.cluster.clone(), promise, prepared, again }
}

#[async_trait]
impl Clusters for Platform {
    fn rollouts(&self) -> Arc<dyn RolloutDriver> {
        self.runner.clone()
    }

    async fn another(&self) -> Can<Arc<dyn RolloutDriver>> {
        Ok(Arc::new(runner(&self.simulated, self.runner.promise)))
    }

    async fn away(&self) -> Can<Arc<dyn RolloutDriver>> {
        self.simulated.away().await
    }

    fn app(&self, name: &str) -> AppId {
        self.simulated.app(name)
    }

    fn image(&self, sample: Sample) -> Can<ImageRef> {
        self.simulated.image(sample)
    }

    fn settings(&self, app: &AppId) -> Settings {
        self.simulated.settings(app)
    }

    fn invalid_settings(&self) -> Can<(Settings, &'static str)> {
        self.simulated.invalid_settings()
    }

    async fn prepare(&self, app: &AppId) -> Can {
        self.simulated.prepare(app).await
    }

    async fn push(&self, image: &ImageRef, sample: Sample) -> Can {
        self.simulated.push(image, sample).await
    }

    async fn meddle(&self, app: &AppId, target: &Target, image: &ImageRef) -> Can {
        self.simulated.meddle(app, target, image).await
    }

    async fn remove(&self, app: &AppId, target: &Target) -> Can {
        self.simulated.remove(app, target).await
    }

    async fn fingerprint(&self, app: &AppId, target: &Target) -> String {
        format!("{} {:?}", self.simulated.fingerprint(app, target).await, self.simulated.cluster.running(app, target))
    }

    async fn configuration(&self, app: &AppId, target: &Target) -> Can<String> {
        self.simulated.configuration(app, target).await
    }

    async fn instances(&self, app: &AppId, target: &Target) -> Can<Vec<Instance>> {
        self.simulated.instances(app, target).await
    }

    async fn digest(&self, image: &ImageRef) -> Can<Digest> {
        self.simulated.digest(image).await
    }

    async fn logged(&self, app: &AppId, target: &Target) -> Can<String> {
        self.simulated.logged(app, target).await
    }

    fn container(&self) -> Option<&'static str> {
        self.simulated.container()
    }

    async fn pause(&self) {
        self.simulated.pause().await;
    }
}

#[async_trait]
impl Releases for Platform {
    fn command(&self, does: Does) -> Vec<String> {
        self.simulated.command(does)
    }

    async fn times_begun(&self, run: &ReleaseRun) -> Can<usize> {
        let again = self.runner.again.lock().unwrap().iter().filter(|other| **other == run.id).count();
        Ok(self.simulated.times_begun(run).await? + again)
    }
}

fn notices(promise: Promise, case: impl AsyncFn(&dyn Releases) -> Can, words: &str) {
    assert_eq!(block_on(case(&Platform::new(Promise::Kept))), Ok(()), "the runner itself keeps its promises");
    let broken = Platform::new(promise);
    assert_panics(|| block_on(case(&broken)), &format!("{promise:?}"), words);
}

#[test]
fn broken_runners_of_release_commands_are_noticed() {
    notices(Promise::ReadyIsNotBegun, prepare_begins_nothing, "left: 1");
    notices(Promise::RunsOnce, start_is_once, "left:");
    notices(Promise::StartMakesNone, start_of_unknown_runs_nothing, "Running");
    notices(Promise::EndsStay, prepare_of_known_changes_nothing, "Prepared");
    notices(Promise::LogIsKept, failed_command_keeps_its_log, "log: []");
    notices(Promise::NeverBegan, missing_image_never_begins, "began: true");
    notices(Promise::CancelHolds, cancel_ends_for_good, "Succeeded");
    notices(Promise::EndIsKept, end_outlives_a_restart, "not ended within a minute: Unknown");
    notices(Promise::NewImage, start_runs_to_the_end, "the new image ran");
    notices(Promise::TargetStays, target_stays_as_it_is, "changed by another");
    notices(Promise::UnknownIsUnknown, observe_unknown_is_unknown, "Running");
    notices(Promise::CodeIsKnown, failed_command_keeps_its_log, "exit code");
    notices(Promise::KindsAreApart, runs_of_all_kinds_are_apart, "the release command is another run");
    notices(Promise::LogHasParts, release_log_is_read_in_parts, "left:");
}
