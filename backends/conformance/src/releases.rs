//! The promises of [`rollhook_core::ports::ReleaseRunner`].

#![allow(clippy::wildcard_enum_match_arm, reason = "a state that a case does not expect fails it")]

use std::sync::Arc;

use async_trait::async_trait;
use rollhook_core::{
    deploy::Reason,
    ports::{
        Applied, CheckRun, DeployId, ReleaseFailure, ReleaseRun, ReleaseRunner, ReleaseSpec, ReleaseState,
        RolloutDriver,
    },
    run::RunNumber,
};

use crate::{
    clusters::{Clusters, Environment, Sample},
    report::{Can, Lack},
    rollouts::{Bench, OURS},
    samples,
};

/// How often is looked for what must come: a minute, at four looks a second.
const LOOKS: usize = 240;
/// How often is looked for what must not come: three seconds.
const FEW_LOOKS: usize = 12;

/// What the release commands of the suite do, once they have logged the line that they have begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    /// End with exit code 0, after a moment.
    Succeed,
    /// Log a line, and end with exit code 1.
    Fail,
    /// Never end by itself.
    Hang,
}

/// A platform whose driver runs release commands.
#[async_trait]
pub trait Releases: Clusters {
    /// A command that the images of the suite can run.
    fn command(&self, does: Does) -> Vec<String>;

    /// Returns how often the command of a run has begun, as the platform or the command's own log shows.
    async fn times_begun(&self, run: &ReleaseRun) -> Can<usize>;

    /// Returns the environment of a run's command, as the platform or the command's own log shows. Only for drivers that set
    /// variables.
    async fn environment_of(&self, run: &ReleaseRun) -> Can<Environment> {
        let _ = run;
        Err(Lack::NotApplicable("the harness reads no environments"))
    }
}

/// A target that runs revision 1, and runs of later revisions.
struct Runs<'a> {
    platform: &'a dyn Releases,
    bench: Bench<'a>,
    rollouts: Arc<dyn RolloutDriver>,
}

impl<'a> Runs<'a> {
    async fn new(platform: &'a dyn Releases, name: &str) -> Can<Self> {
        let rollouts = platform.rollouts();
        if rollouts.release_runner().is_none() {
            return Err(Lack::NotApplicable("the driver runs no release commands"));
        }
        let bench = Bench::new(platform, name).await;
        bench.roll_out(&bench.order(OURS, 1, Sample::Good)?).await;
        Ok(Self { platform, bench, rollouts })
    }

    /// The same through another driver, as another process has it.
    async fn another(self) -> Can<Self> {
        Ok(Self { rollouts: self.platform.another().await?, ..self })
    }

    fn runner(&self) -> &dyn ReleaseRunner {
        self.rollouts.release_runner().unwrap()
    }

    fn spec(&self, revision: u64, sample: Sample, does: Does) -> Can<ReleaseSpec> {
        let id = DeployId { app: OURS, revision: samples::revision(revision) };
        let run = ReleaseRun { app: self.bench.app.clone(), id: id.into() };
        let (target, image) = (self.bench.target.clone(), self.platform.image(sample)?);
        Ok(ReleaseSpec::new(run, target, image, self.platform.command(does)))
    }

    async fn prepared(&self, spec: &ReleaseSpec) {
        let mut last = self.prepare(spec).await;
        for _ in 0..LOOKS {
            match last {
                ReleaseState::Prepared => return,
                ReleaseState::Preparing => self.platform.pause().await,
                other => panic!("not ready: {other:?}"),
            }
            last = self.prepare(spec).await;
        }
        panic!("not ready within a minute");
    }

    async fn prepare(&self, spec: &ReleaseSpec) -> ReleaseState {
        self.bench.patiently(async || self.runner().prepare(spec).await).await
    }

    async fn start(&self, run: &ReleaseRun) {
        self.bench.patiently(async || self.runner().start(run).await).await;
    }

    async fn cancel(&self, run: &ReleaseRun) {
        self.bench.patiently(async || self.runner().cancel(run).await).await;
    }

    async fn observe(&self, run: &ReleaseRun) -> ReleaseState {
        self.bench.patiently(async || self.runner().observe(run).await).await
    }

    async fn until(&self, run: &ReleaseRun, what: &str, seen: impl Fn(&ReleaseState) -> bool) -> ReleaseState {
        let mut last = self.observe(run).await;
        for _ in 0..LOOKS {
            if seen(&last) {
                return last;
            }
            self.platform.pause().await;
            last = self.observe(run).await;
        }
        panic!("not {what} within a minute: {last:?}");
    }

    async fn ended(&self, run: &ReleaseRun) -> ReleaseState {
        self.until(run, "ended", ReleaseState::is_ended).await
    }

    async fn failed(&self, run: &ReleaseRun) -> ReleaseFailure {
        match self.ended(run).await {
            ReleaseState::Failed(failure) => {
                assert!(!failure.message.is_empty(), "a person reads why: {failure:?}");
                assert!(failure.log.len() <= 50 && failure.log.iter().all(|line| line.chars().count() <= 500));
                failure
            }
            other => panic!("no failure: {other:?}"),
        }
    }

    /// Makes ready and starts.
    async fn begin(&self, spec: &ReleaseSpec) {
        self.prepared(spec).await;
        self.start(&spec.run).await;
    }

    async fn began(&self, run: &ReleaseRun) -> Can<usize> {
        self.platform.times_begun(run).await
    }

    /// Waits until the command has begun, or the platform cannot say.
    async fn running(&self, run: &ReleaseRun) {
        self.until(run, "running", |state| *state == ReleaseState::Running).await;
        for _ in 0..LOOKS {
            match self.began(run).await {
                Ok(0) => self.platform.pause().await,
                Ok(_) | Err(_) => return,
            }
        }
        panic!("the command has not begun within a minute");
    }
}

/// A run that is ready has not begun, however often it was asked for.
pub async fn prepare_begins_nothing(platform: &dyn Releases) -> Can {
    let runs = Runs::new(platform, "release-prepare").await?;
    let spec = runs.spec(2, Sample::Another, Does::Succeed)?;
    runs.prepared(&spec).await;
    for _ in 0..FEW_LOOKS {
        assert_eq!(runs.prepare(&spec).await, ReleaseState::Prepared);
        assert_eq!(runs.observe(&spec.run).await, ReleaseState::Prepared);
        platform.pause().await;
    }
    assert_eq!(runs.began(&spec.run).await?, 0);
    Ok(())
}

/// A command has the variables of its own deploy, and not those that the instances of the target have.
pub async fn command_has_the_variables(platform: &dyn Releases) -> Can {
    let runs = Runs::new(platform, "release-variables").await?;
    let bench = &runs.bench;
    if runs.rollouts.unconfigurable(&bench.target).is_some() {
        return Err(Lack::NotApplicable("the driver sets no variables"));
    }
    let before = samples::configuration(1, &[("A", "before"), ("B", "gone")]);
    bench.roll_out(&bench.order(OURS, 2, Sample::Good)?.with(|spec| spec.configuration = Some(before))).await;
    let spec = runs.spec(3, Sample::Another, Does::Succeed)?;
    let configuration = samples::configuration(2, &[("A", "one\n$two")]);
    let spec = spec.with(|spec| spec.configuration = Some(configuration));
    runs.begin(&spec).await;
    runs.ended(&spec.run).await;
    let environment = platform.environment_of(&spec.run).await?;
    assert_eq!(environment.get("A").map(String::as_str), Some("one\n$two"));
    assert_eq!(environment.get("B"), None, "a variable that the deploy does not have");
    Ok(())
}

/// A command that succeeds is reported so, once it has ended.
pub async fn start_runs_to_the_end(platform: &dyn Releases) -> Can {
    let runs = Runs::new(platform, "release-good").await?;
    let spec = runs.spec(2, Sample::Another, Does::Succeed)?;
    runs.begin(&spec).await;
    let ReleaseState::Succeeded { digest } = runs.ended(&spec.run).await else { panic!("it succeeds") };
    if let (Some(digest), Ok(wanted)) = (digest, platform.digest(&spec.image).await) {
        assert_eq!(digest, wanted, "the new image ran");
    }
    assert_eq!(runs.began(&spec.run).await?, 1);
    Ok(())
}

/// Started again, while it runs, after its end and by another process, the command runs once.
pub async fn start_is_once(platform: &dyn Releases) -> Can {
    let runs = Runs::new(platform, "release-once").await?;
    let spec = runs.spec(2, Sample::Another, Does::Succeed)?;
    runs.begin(&spec).await;
    for _ in 0..3 {
        runs.start(&spec.run).await;
    }
    let end = runs.ended(&spec.run).await;
    let runs = match runs.another().await {
        Ok(runs) => runs,
        Err(Lack::NotApplicable(_)) => Runs::new(platform, "release-once").await?,
        Err(lack) => return Err(lack),
    };
    runs.prepare(&spec).await;
    runs.start(&spec.run).await;
    for _ in 0..FEW_LOOKS {
        assert_eq!(runs.observe(&spec.run).await, end);
        platform.pause().await;
    }
    assert_eq!(runs.began(&spec.run).await?, 1);
    Ok(())
}

/// A start of what was never made ready makes nothing.
pub async fn start_of_unknown_runs_nothing(platform: &dyn Releases) -> Can {
    let runs = Runs::new(platform, "release-unmade").await?;
    let spec = runs.spec(2, Sample::Another, Does::Succeed)?;
    runs.start(&spec.run).await;
    for _ in 0..FEW_LOOKS {
        assert_eq!(runs.observe(&spec.run).await, ReleaseState::Unknown);
        platform.pause().await;
    }
    Ok(())
}

/// A run that goes on, or has ended, is not made anew.
pub async fn prepare_of_known_changes_nothing(platform: &dyn Releases) -> Can {
    let runs = Runs::new(platform, "release-known").await?;
    let spec = runs.spec(2, Sample::Another, Does::Hang)?;
    runs.begin(&spec).await;
    runs.running(&spec.run).await;
    assert_eq!(runs.prepare(&spec).await, ReleaseState::Running);
    runs.cancel(&spec.run).await;
    let end = runs.ended(&spec.run).await;
    assert_eq!(runs.prepare(&spec).await, end);
    let begun = runs.began(&spec.run).await;
    assert!(!matches!(begun, Ok(times) if times > 1), "{begun:?}");
    Ok(())
}

/// A command that fails says so, and its last lines are kept.
pub async fn failed_command_keeps_its_log(platform: &dyn Releases) -> Can {
    let runs = Runs::new(platform, "release-fails").await?;
    let spec = runs.spec(2, Sample::Another, Does::Fail)?;
    runs.begin(&spec).await;
    let failure = runs.failed(&spec.run).await;
    assert_eq!((failure.reason.as_str(), failure.began), (Reason::RELEASE_FAILED, true), "{failure:?}");
    assert!(failure.message.contains('1'), "the exit code: {failure:?}");
    assert_eq!(failure.exit_code, Some(1), "the exit code: {failure:?}");
    // A platform without logs has none of commands either.
    if runs.runner().log(&spec.run, 0).await.unwrap().is_some() {
        assert!(!failure.log.is_empty(), "{failure:?}");
    }
    Ok(())
}

/// An image that cannot be had fails the run, of which it is certain that it never begins.
pub async fn missing_image_never_begins(platform: &dyn Releases) -> Can {
    let runs = Runs::new(platform, "release-missing").await?;
    let spec = runs.spec(2, Sample::Missing, Does::Succeed)?;
    let mut last = runs.prepare(&spec).await;
    // Some platforms fetch the image before the start, and some after it; what may heal takes its time.
    for _ in 0..LOOKS * 3 {
        match &last {
            ReleaseState::Failed(failure) => {
                assert!(!failure.began, "{failure:?}");
                return Ok(());
            }
            ReleaseState::Prepared => runs.start(&spec.run).await,
            ReleaseState::Preparing | ReleaseState::Running => {}
            other => panic!("it cannot be: {other:?}"),
        }
        platform.pause().await;
        last = match last {
            ReleaseState::Preparing => runs.prepare(&spec).await,
            _ => runs.observe(&spec.run).await,
        };
    }
    panic!("not failed within three minutes: {last:?}");
}

/// A cancelled run ends, and one that had not begun never does.
pub async fn cancel_ends_for_good(platform: &dyn Releases) -> Can {
    let runs = Runs::new(platform, "release-cancel").await?;
    let hanging = runs.spec(2, Sample::Another, Does::Hang)?;
    runs.begin(&hanging).await;
    runs.running(&hanging.run).await;
    runs.cancel(&hanging.run).await;
    assert!(runs.failed(&hanging.run).await.began);
    runs.cancel(&hanging.run).await;

    let ready = runs.spec(3, Sample::Another, Does::Succeed)?;
    runs.prepared(&ready).await;
    runs.cancel(&ready.run).await;
    runs.start(&ready.run).await;
    let ended = runs.until(&ready.run, "ended", |state| state.is_ended() || *state == ReleaseState::Unknown).await;
    assert!(!matches!(ended, ReleaseState::Succeeded { .. }), "{ended:?}");
    for _ in 0..FEW_LOOKS {
        let state = runs.observe(&ready.run).await;
        assert!(!matches!(state, ReleaseState::Running | ReleaseState::Succeeded { .. }), "{state:?}");
        platform.pause().await;
    }
    let unknown = runs.spec(9, Sample::Another, Does::Succeed)?;
    runs.cancel(&unknown.run).await;
    Ok(())
}

/// Nothing is known of a run that was never made ready.
pub async fn observe_unknown_is_unknown(platform: &dyn Releases) -> Can {
    let runs = Runs::new(platform, "release-unknown").await?;
    let spec = runs.spec(2, Sample::Another, Does::Succeed)?;
    assert_eq!(runs.observe(&spec.run).await, ReleaseState::Unknown);
    assert_eq!(runs.runner().log(&spec.run, 0).await.unwrap(), None);
    Ok(())
}

/// Another handle reports the end of a run that the first one began.
pub async fn end_outlives_a_restart(platform: &dyn Releases) -> Can {
    let runs = Runs::new(platform, "release-restart").await?;
    let spec = runs.spec(2, Sample::Another, Does::Fail)?;
    runs.begin(&spec).await;
    let runs = runs.another().await?;
    let failure = runs.failed(&spec.run).await;
    assert_eq!(failure.reason.as_str(), Reason::RELEASE_FAILED);
    Ok(())
}

/// The target's instances go on as they are, and the run is none of them.
pub async fn target_stays_as_it_is(platform: &dyn Releases) -> Can {
    let runs = Runs::new(platform, "release-aside").await?;
    let order = runs.bench.order(OURS, 1, Sample::Good)?;
    let before = (runs.bench.fingerprint().await, runs.bench.instances().await?);
    let spec = runs.spec(2, Sample::Another, Does::Hang)?;
    runs.begin(&spec).await;
    runs.running(&spec.run).await;
    assert_eq!((runs.bench.fingerprint().await, runs.bench.instances().await?), before);
    runs.bench.until_complete(&order).await;
    runs.cancel(&spec.run).await;
    runs.ended(&spec.run).await;
    assert_eq!((runs.bench.fingerprint().await, runs.bench.instances().await?), before);
    assert_eq!(runs.bench.apply(&order).await, Applied::Done, "its deploy id is still the target's");
    Ok(())
}

/// A release command, a command by hand and a check's are runs of their own: each begins once, has its own end, and none is
/// known by the id of another. Of the commands of checks several of one app go on beside each other.
pub async fn runs_of_all_kinds_are_apart(platform: &dyn Releases) -> Can {
    let runs = Runs::new(platform, "release-kinds").await?;
    let release = runs.spec(2, Sample::Another, Does::Fail)?;
    let number = RunNumber::new(2).unwrap();
    let run = ReleaseRun::by_hand(&release.run.app, release.run.id.app, number);
    let image = release.image.clone();
    let by_hand = ReleaseSpec::new(run, release.target.clone(), image, platform.command(Does::Succeed));
    runs.begin(&release).await;
    assert_eq!(runs.observe(&by_hand.run).await, ReleaseState::Unknown, "the release command is another run");
    runs.begin(&by_hand).await;
    runs.failed(&release.run).await;
    let end = runs.ended(&by_hand.run).await;
    assert!(matches!(end, ReleaseState::Succeeded { .. }), "{end:?}");
    runs.failed(&release.run).await;
    assert_eq!((runs.began(&release.run).await?, runs.began(&by_hand.run).await?), (1, 1));
    // Commands by hand go on beside each other's and the deploys' ends: a newer release command does not end one.
    let number = RunNumber::following(Some(number));
    let run = ReleaseRun::by_hand(&release.run.app, release.run.id.app, number);
    let hanging = by_hand.clone().with(|spec| (spec.run, spec.command) = (run, platform.command(Does::Hang)));
    runs.begin(&hanging).await;
    runs.running(&hanging.run).await;
    let next = runs.spec(3, Sample::Another, Does::Succeed)?;
    runs.begin(&next).await;
    runs.ended(&next.run).await;
    assert_eq!(runs.observe(&hanging.run).await, ReleaseState::Running);
    runs.cancel(&hanging.run).await;
    runs.failed(&hanging.run).await;
    let check = |place, does| {
        let run = CheckRun::new(samples::revision(2), 1, place);
        let run = ReleaseRun::of_check(&release.run.app, release.run.id.app, run);
        by_hand.clone().with(|spec| (spec.run, spec.command) = (run, platform.command(does)))
    };
    let (first, second) = (check(1, Does::Hang), check(2, Does::Fail));
    for spec in [&first, &second] {
        assert_eq!(runs.observe(&spec.run).await, ReleaseState::Unknown, "a check's command is another run");
        runs.begin(spec).await;
    }
    runs.running(&first.run).await;
    runs.failed(&second.run).await;
    assert_eq!(runs.observe(&first.run).await, ReleaseState::Running);
    assert_eq!((runs.began(&first.run).await?, runs.began(&second.run).await?), (1, 1));
    runs.cancel(&first.run).await;
    runs.failed(&first.run).await;
    Ok(())
}

/// A log is read from any byte on, and is complete in the end.
pub async fn release_log_is_read_in_parts(platform: &dyn Releases) -> Can {
    let runs = Runs::new(platform, "release-log").await?;
    let spec = runs.spec(2, Sample::Another, Does::Fail)?;
    runs.begin(&spec).await;
    runs.failed(&spec.run).await;
    let Some(whole) = runs.runner().log(&spec.run, 0).await.unwrap() else {
        return Err(Lack::NotApplicable("the platform keeps no logs"));
    };
    assert!(whole.len() > 4, "{whole:?}");
    let rest = runs.runner().log(&spec.run, 4).await.unwrap().unwrap();
    assert_eq!(rest, whole[4..]);
    let after = runs.runner().log(&spec.run, whole.len() as u64).await.unwrap().unwrap();
    assert_eq!(after, b"");
    Ok(())
}
