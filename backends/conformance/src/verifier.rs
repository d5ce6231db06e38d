//! The promises of [`rollhook_core::ports::Verifier`].

use std::time::Duration;

use futures_util::{FutureExt, select_biased};
use rollhook_core::{
    app::Settings,
    check::{Check, CheckKind, MESSAGE_MAX, VALUE_MAX, Verdict},
    deploy::Revision,
    ports::{DeployId, MeasureSpec, Measured},
};

use crate::{
    report::Can,
    samples,
    verifiers::{Provided, Verifiers},
};

/// The timeout of the checks that are measured.
const TIMEOUT: Duration = Duration::from_secs(1);
/// The time after which a measurement counts as one without an end, on a machine that is slow.
const ENDLESS: Duration = Duration::from_secs(60);
/// The most bytes that a measurement's request and condition have.
const TEXT_MAX: usize = 8 << 10;

/// What was accepted is complete, and stays as it is.
pub async fn settings_are_complete_once_checked(harness: &dyn Verifiers) -> Can {
    let verifier = harness.verifier();
    for (kind, settings) in harness.checks() {
        let complete = verifier.check(&kind, &settings).unwrap();
        for (name, value) in &settings {
            assert!(complete.contains_key(name), "{kind}: the setting {name} = {value} is kept");
        }
        assert_eq!(verifier.check(&kind, &complete), Ok(complete), "{kind}: what is complete stays as it is");
        let described = verifier.describe();
        assert!(described.iter().any(|known| known.kind == kind), "{kind} is described");
        let mut unknown = settings.clone();
        unknown.insert("no_such_setting".to_owned(), true.into());
        assert!(verifier.check(&kind, &unknown).is_err(), "{kind}: an unknown setting is refused, as a misspelt one");
    }
    Ok(())
}

/// A kind that nobody knows is refused, and the refusal names those there are.
pub async fn settings_of_an_unknown_kind_are_refused(harness: &dyn Verifiers) -> Can {
    let verifier = harness.verifier();
    let why = verifier.check(&"no-such-kind".parse().unwrap(), &Settings::new()).unwrap_err();
    for known in verifier.describe() {
        assert!(why.contains(known.kind.as_str()), "the refusal names the kind {}: {why}", known.kind);
    }
    Ok(())
}

/// A condition that holds passes, with its value and in words.
pub async fn met_condition_passes(harness: &dyn Verifiers) -> Can {
    each(harness, Provided::Met, |kind, measured| {
        assert_eq!(measured.measurement.verdict, Verdict::Pass, "{kind}: a condition that holds passes: {measured:?}");
        assert!(measured.measurement.value.is_some(), "{kind}: the value is shown");
    })
    .await
}

/// A condition that does not hold fails, with its value and in words.
pub async fn unmet_condition_fails(harness: &dyn Verifiers) -> Can {
    each(harness, Provided::Unmet, |kind, measured| {
        assert_eq!(measured.measurement.verdict, Verdict::Fail, "{kind}: what does not hold fails: {measured:?}");
        assert!(measured.measurement.value.is_some(), "{kind}: the value is shown");
    })
    .await
}

/// A provider that says nothing makes no verdict, in whichever way it says nothing.
pub async fn silence_is_no_verdict(harness: &dyn Verifiers) -> Can {
    for answer in [Provided::Nothing, Provided::Unreadable, Provided::Silence, Provided::Gone] {
        each(harness, answer, |kind, measured| {
            let verdict = measured.measurement.verdict;
            assert_eq!(verdict, Verdict::None, "{kind}: {answer:?} is no verdict: {measured:?}");
            assert!(!measured.measurement.message.is_empty(), "{kind}: {answer:?} is explained");
        })
        .await?;
        // Once it answers again, it is measured again.
        each(harness, Provided::Met, |kind, measured| {
            assert_eq!(measured.measurement.verdict, Verdict::Pass, "{kind}: after {answer:?}: {measured:?}");
        })
        .await?;
    }
    Ok(())
}

/// A measurement ends, and takes little memory, whatever is answered.
pub async fn measure_is_bounded(harness: &dyn Verifiers) -> Can {
    for answer in [Provided::Silence, Provided::Flood] {
        each(harness, answer, |kind, measured| {
            let Measured { request, condition, measurement } = measured;
            let long = |text: &str, most: usize| text.chars().count() > most;
            let is_long = long(&measurement.message, MESSAGE_MAX + 1)
                || measurement.value.as_deref().is_some_and(|value| long(value, VALUE_MAX + 1))
                || request.len() + condition.len() > TEXT_MAX;
            assert!(!is_long, "{kind}: a measurement of {answer:?} is short: {measured:?}");
        })
        .await?;
    }
    Ok(())
}

/// Measures a check of each kind that can be answered so, and judges what comes.
async fn each(harness: &dyn Verifiers, answer: Provided, judge: impl Fn(&CheckKind, &Measured)) -> Can {
    for (kind, settings) in harness.checks() {
        if harness.provide(&kind, answer).await.is_err() {
            continue;
        }
        let settings = harness.verifier().check(&kind, &settings).unwrap();
        let spec = spec(harness, &kind, settings);
        let verifier = harness.verifier();
        let measured = select_biased! {
            measured = verifier.measure(&spec).fuse() => measured.unwrap(),
            () = harness.sleep(ENDLESS).fuse() => panic!("{kind}: a measurement of {answer:?} ends in time"),
        };
        judge(&kind, &measured);
    }
    Ok(())
}

fn spec(harness: &dyn Verifiers, kind: &CheckKind, settings: Settings) -> MeasureSpec {
    let app = samples::app("shop", "test", "api");
    let check = Check::new("front-page".parse().unwrap(), kind.clone(), settings);
    let now = harness.now();
    MeasureSpec::new(
        &app.id,
        DeployId { app: app.uid, revision: Revision::FIRST },
        (app.target.clone(), "registry.example.com/api:v1".parse().unwrap()),
        check.with(|check| check.timeout = TIMEOUT),
        now,
    )
}
