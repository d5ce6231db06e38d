//! The checks of apps, what they read, and a replica's way to measure them.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use rollhook_core::{
    Result,
    app::Settings,
    check::{Check, CheckKind, CheckMode, Verdict, WithoutVerdict},
    ports::{Clock, KindOfCheck, MeasureSpec, Measured, Verifier},
    request::PolicyChange,
};
use rollhook_memory::{Reading, SimulatedVerifier};

use crate::{broken::Promise, clock::Time, recording_ports::RecordingPorts, rules::Rules};

/// The checks that app 0 gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Checks {
    /// The number of measurements in a row that must fail.
    pub(crate) failures: u32,
    /// For how many seconds a deploy is verified.
    pub(crate) verify_for: u8,
    /// For how many seconds a version is watched.
    pub(crate) watch_for: u8,
    /// Whether a version that serves for a while is deployed at the beginning.
    pub(crate) deploys: bool,
    /// What a person says of the first version that asks, if one decides at the beginning.
    pub(crate) decides: Option<bool>,
    /// Whether the second one decides nothing.
    pub(crate) observes: bool,
    /// What follows where the first one has no verdict.
    pub(crate) without: WithoutVerdict,
    /// What the command of a third one does, if there is one.
    pub(crate) smoke: Option<Smoke>,
}

/// The name of the check that runs a command.
pub(crate) const SMOKE: &str = "smoke";

/// What the command of a check does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Smoke {
    Succeeds,
    /// It fails, and decides nothing.
    Fails,
    Hangs,
}

impl Smoke {
    fn check(self) -> Check {
        let mut settings = Settings::new();
        let word = match self {
            Self::Succeeds => "succeed",
            Self::Fails => "fail",
            Self::Hangs => "hang",
        };
        settings.insert(Check::COMMAND_SETTING.to_owned(), vec!["bin/smoke", word].into());
        let check = Check::new(SMOKE.parse().unwrap(), CheckKind::COMMAND.parse().unwrap(), settings);
        check.with(|check| {
            check.failures = 2;
            check.every = Duration::from_secs(4);
            check.timeout = Duration::from_secs(20);
            check.mode = if self == Self::Fails { CheckMode::Observe } else { CheckMode::Enforce };
        })
    }
}

impl Checks {
    pub(crate) fn policy(self) -> PolicyChange {
        let check = |name: &str| {
            let check = SimulatedVerifier::check_of(name.parse().unwrap(), 0.5);
            check.with(|check| {
                check.failures = self.failures;
                check.every = Duration::from_secs(4);
                check.timeout = Duration::from_secs(2);
            })
        };
        let first = check("errors").with(|check| {
            check.without_verdict = self.without;
        });
        let second: Check = check("front-page").with(|check| {
            check.mode = if self.observes { CheckMode::Observe } else { CheckMode::Enforce };
        });
        PolicyChange {
            checks: Some([first, second].into_iter().chain(self.smoke.map(Smoke::check)).collect()),
            verify_for: Some(Duration::from_secs(self.verify_for.into())),
            watch_for: Some(Duration::from_secs(self.watch_for.into())),
            ..PolicyChange::default()
        }
    }
}

/// How the provider of readings answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answers {
    Well,
    Emptily,
    Never,
    /// The replica itself cannot measure.
    Broken,
}

/// The provider that all replicas read from.
pub(crate) struct Provider {
    pub(crate) verifier: SimulatedVerifier,
    answers: Arc<AtomicU8>,
}

impl Provider {
    pub(crate) fn new(time: &Arc<Time>) -> Self {
        let verifier = SimulatedVerifier::new(time.clock() as Arc<dyn Clock>);
        let answers = Arc::new(AtomicU8::new(0));
        let (passing, kind) = (Arc::clone(time), Arc::clone(&answers));
        verifier.takes(Duration::from_millis(30));
        verifier.reads(move |spec| match kind.load(Ordering::Relaxed) {
            0 => Reading::Value(if serves(spec, passing.now()) { 0.0 } else { 1.0 }),
            1 => Reading::NoData,
            2 => Reading::Away,
            _ => Reading::Broken,
        });
        Self { verifier, answers }
    }

    pub(crate) fn set(&self, answers: Answers) {
        let kind = match answers {
            Answers::Well => 0,
            Answers::Emptily => 1,
            Answers::Never => 2,
            Answers::Broken => 3,
        };
        self.answers.store(kind, Ordering::Relaxed);
    }
}

/// Whether an image serves its users: one never does, one now and then, and two for a while.
fn serves(spec: &MeasureSpec, now: Duration) -> bool {
    match spec.image.tag() {
        Some("v3") => false,
        Some("slow" | "v2") => spec.now.since(spec.since) < Duration::from_secs(9),
        Some("latest") => (now.as_secs() / 5).is_multiple_of(2),
        _ => true,
    }
}

#[async_trait]
impl Verifier for RecordingPorts {
    fn describe(&self) -> Vec<KindOfCheck> {
        self.environment.provider.verifier.describe()
    }

    fn check(&self, kind: &CheckKind, settings: &Settings) -> std::result::Result<Settings, String> {
        self.environment.provider.verifier.check(kind, settings)
    }

    async fn measure(&self, spec: &MeasureSpec) -> Result<Measured> {
        let began = {
            let rules = self.environment.rules.lock().unwrap();
            (rules.is_verified(spec), rules.is_watched(spec))
        };
        let mut cut_off = CutOff { rules: Some(&self.environment.rules), spec, is_verified: began.0 };
        let answer = self.environment.provider.verifier.measure(spec).await;
        cut_off.rules = None;
        let (deploy, name) = (spec.deploy, &spec.check.name);
        self.log(|| match &answer {
            Ok(measured) => format!("measure {name} of {}: {}", deploy.revision, measured.measurement.verdict),
            Err(_) => format!("measure {name} of {}: failed", deploy.revision),
        });
        let mut rules = self.environment.rules.lock().unwrap();
        rules.measured(spec, began, answer.as_ref().ok(), &self.environment.journal);
        drop(rules);
        answer.map(|measured| told(measured, began.1, self.environment.promise))
    }
}

/// A measurement that says nothing if it is dropped before its answer: the replica waits for none longer than its time.
struct CutOff<'a> {
    /// The rules; `None` once there is an answer.
    rules: Option<&'a Mutex<Rules>>,
    spec: &'a MeasureSpec,
    is_verified: bool,
}

impl Drop for CutOff<'_> {
    fn drop(&mut self) {
        if let Some(rules) = self.rules {
            rules.lock().unwrap().cut_off(self.spec, self.is_verified);
        }
    }
}

/// Returns what the replica is told.
fn told(mut measured: Measured, is_watched: bool, promise: Option<Promise>) -> Measured {
    let verdict = &mut measured.measurement.verdict;
    *verdict = match (promise, *verdict) {
        (Some(Promise::SilencePasses), Verdict::None) => Verdict::Pass,
        (Some(Promise::SilenceFails), Verdict::None) => Verdict::Fail,
        (Some(Promise::SilenceRevokes), Verdict::None) if is_watched => Verdict::Fail,
        (_, verdict) => verdict,
    };
    measured
}
