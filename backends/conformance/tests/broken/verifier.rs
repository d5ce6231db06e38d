//! A verifier that breaks one promise each, and the case that notices.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use rollhook_conformance::{Can, Provided, Verifiers, block_on, verifier};
use rollhook_core::{
    Result,
    app::Settings,
    check::{CheckKind, Verdict},
    ports::{KindOfCheck, MeasureSpec, Measured, Verifier},
    time::Timestamp,
};

use crate::{assert_panics, simulated_verifier::SimulatedProvider};

/// The promise that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VerifierPromise {
    /// All of them are kept.
    Kept,
    /// Settings are complete once they were checked: here each check adds one.
    Complete,
    /// An unknown kind is refused: here without a word of those that are known.
    UnknownKind,
    /// An unknown setting is refused: here it is left out.
    UnknownSetting,
    /// What holds passes: here it is the other way round.
    Verdicts,
    /// Silence is no verdict: here it passes.
    SilencePasses,
    /// Silence is no verdict: here it fails.
    SilenceFails,
    /// A measurement ends: here it waits as long as the provider does.
    Ends,
    /// A measurement is short: here it has the whole answer.
    Short,
}

struct Broken {
    promise: VerifierPromise,
    inner: Arc<dyn Verifier>,
}

#[async_trait]
impl Verifier for Broken {
    fn describe(&self) -> Vec<KindOfCheck> {
        self.inner.describe()
    }

    fn check(&self, kind: &CheckKind, settings: &Settings) -> std::result::Result<Settings, String> {
        let mut settings = settings.clone();
        match self.promise {
            VerifierPromise::UnknownSetting => settings.retain(|name, _| name == "at_most"),
            VerifierPromise::Complete => {
                let checked = settings.remove("checked").and_then(|times| times.as_u64()).unwrap_or(0);
                let mut complete = self.inner.check(kind, &settings)?;
                complete.insert("checked".to_owned(), (checked + 1).into());
                return Ok(complete);
            }
            VerifierPromise::UnknownKind => {
                return self.inner.check(kind, &settings).map_err(|_| "There is no such kind.".to_owned());
            }
            _ => {}
        }
        self.inner.check(kind, &settings)
    }

    async fn measure(&self, spec: &MeasureSpec) -> Result<Measured> {
        let mut measured = self.inner.measure(spec).await?;
        let measurement = &mut measured.measurement;
        match (self.promise, measurement.verdict) {
            (VerifierPromise::Verdicts, Verdict::Pass) => measurement.verdict = Verdict::Fail,
            (VerifierPromise::Verdicts, Verdict::Fail) => measurement.verdict = Verdict::Pass,
            (VerifierPromise::SilencePasses, Verdict::None) => measurement.verdict = Verdict::Pass,
            (VerifierPromise::SilenceFails, Verdict::None) => measurement.verdict = Verdict::Fail,
            (VerifierPromise::Ends, Verdict::None) => std::future::pending::<()>().await,
            (VerifierPromise::Short, Verdict::None) => measurement.message = "x".repeat(1 << 20),
            _ => {}
        }
        Ok(measured)
    }
}

struct BrokenProvider {
    promise: VerifierPromise,
    simulated: SimulatedProvider,
}

#[async_trait]
impl Verifiers for BrokenProvider {
    fn verifier(&self) -> Arc<dyn Verifier> {
        Arc::new(Broken { promise: self.promise, inner: self.simulated.verifier() })
    }

    fn checks(&self) -> Vec<(CheckKind, Settings)> {
        self.simulated.checks()
    }

    async fn provide(&self, kind: &CheckKind, answer: Provided) -> Can {
        self.simulated.provide(kind, answer).await
    }

    fn now(&self) -> Timestamp {
        self.simulated.now()
    }

    async fn sleep(&self, time: Duration) {
        self.simulated.sleep(time).await;
    }
}

/// Runs a case on a verifier that breaks a promise, which must fail with these words, and on one that keeps them all.
fn verifier_notices(promise: VerifierPromise, case: impl AsyncFn(&dyn Verifiers) -> Can, words: &str) {
    let provider = |promise| BrokenProvider { promise, simulated: SimulatedProvider::fresh().unwrap() };
    let kept = provider(VerifierPromise::Kept);
    assert_eq!(block_on(case(&kept)), Ok(()), "the verifier itself keeps its promises");
    let broken = provider(promise);
    assert_panics(|| block_on(case(&broken)), &format!("{promise:?}"), words);
}

#[test]
fn settings_that_are_never_complete_are_noticed() {
    let case = verifier::settings_are_complete_once_checked;
    verifier_notices(VerifierPromise::Complete, case, "what is complete stays as it is");
}

#[test]
fn unknown_setting_that_is_left_out_is_noticed() {
    let case = verifier::settings_are_complete_once_checked;
    verifier_notices(VerifierPromise::UnknownSetting, case, "an unknown setting is refused");
}

#[test]
fn refusal_without_the_kinds_is_noticed() {
    let case = verifier::settings_of_an_unknown_kind_are_refused;
    verifier_notices(VerifierPromise::UnknownKind, case, "the refusal names the kind");
}

#[test]
fn verdicts_the_other_way_round_are_noticed() {
    verifier_notices(VerifierPromise::Verdicts, verifier::met_condition_passes, "a condition that holds passes");
    verifier_notices(VerifierPromise::Verdicts, verifier::unmet_condition_fails, "what does not hold fails");
}

#[test]
fn silence_that_is_a_verdict_is_noticed() {
    for promise in [VerifierPromise::SilencePasses, VerifierPromise::SilenceFails] {
        verifier_notices(promise, verifier::silence_is_no_verdict, "is no verdict");
    }
}

#[test]
fn measurement_without_an_end_is_noticed() {
    verifier_notices(VerifierPromise::Ends, verifier::measure_is_bounded, "ends in time");
}

#[test]
fn measurement_without_a_bound_is_noticed() {
    verifier_notices(VerifierPromise::Short, verifier::measure_is_bounded, "is short");
}
