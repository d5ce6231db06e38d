//! Failures, and the evidence of them.

use rollhook_core::{
    Error, Result,
    deploy::Evidence,
    ports::{Applied, Observation, RolloutFailure, RolloutFailureKind, RolloutSpec},
};

use super::{Bench, FEW_LOOKS, LOOKS, OURS, is_complete};
use crate::{
    clusters::{Clusters, Sample},
    report::Can,
};

/// How often an image is rolled out that fails at first, until that is seen.
const ATTEMPTS: u64 = 3;

/// The failures of an image that does not exist: final where the driver knows that it cannot heal.
const OF_IMAGES: &[RolloutFailureKind] = &[RolloutFailureKind::Image, RolloutFailureKind::Final];

/// An image that does not exist is a failure, final where the driver knows that it cannot heal, until a good one follows.
pub async fn observe_reports_failing_image(cluster: &dyn Clusters) -> Can {
    let bench = Bench::new(cluster, "observe-missing").await;
    failure_then_recovery(&bench, Sample::Missing, OF_IMAGES).await
}

/// An instance that ends again and again is a failure of that kind, until a good one follows.
pub async fn observe_reports_crash(cluster: &dyn Clusters) -> Can {
    let bench = Bench::new(cluster, "observe-crash").await;
    failure_then_recovery(&bench, Sample::Crashing, &[RolloutFailureKind::Crash]).await
}

/// The log of a failing instance is in the evidence.
pub async fn evidence_has_the_log(cluster: &dyn Clusters) -> Can {
    let bench = Bench::new(cluster, "evidence-log").await;
    let order = bench.order(OURS, 1, Sample::Crashing)?;
    let failure = failing(&bench, &order, &[RolloutFailureKind::Crash]).await;
    let line = cluster.logged(&bench.app, &bench.target).await?;
    let logged = |found: &Evidence| found.log.iter().any(|found| found.contains(&line));
    evidence(&bench, &order, &failure, &format!("with the line {line:?}"), logged).await;
    Ok(())
}

/// The evidence of a deploy has nothing that an instance of an earlier deploy has logged.
pub async fn evidence_is_of_its_own_deploy(cluster: &dyn Clusters) -> Can {
    let bench = Bench::new(cluster, "evidence-own").await;
    let order = bench.order(OURS, 1, Sample::Crashing)?;
    let failure = failing(&bench, &order, &[RolloutFailureKind::Crash]).await;
    let line = cluster.logged(&bench.app, &bench.target).await?;
    let logged = |found: &Evidence| found.log.iter().any(|found| found.contains(&line));
    evidence(&bench, &order, &failure, &format!("with the line {line:?}"), logged).await;

    let next = bench.order(OURS, 2, Sample::Missing)?;
    let failure = failing(&bench, &next, OF_IMAGES).await;
    for _ in 0..FEW_LOOKS {
        let found = bench.patiently(async || bench.rollouts.evidence(&next, Some(&failure)).await).await;
        assert!(!logged(&found), "the evidence has the log of the deploy before: {found:?}");
        cluster.pause().await;
    }
    Ok(())
}

/// A failure is over as soon as the instances have recovered.
pub async fn observe_failure_ends_with_recovery(cluster: &dyn Clusters) -> Can {
    let bench = Bench::new(cluster, "observe-heals").await;
    for revision in 1..=ATTEMPTS {
        let order = bench.order(OURS, revision, Sample::Healing)?;
        assert_eq!(bench.apply(&order).await, Applied::Done);
        let failed = bench.until(&order, "in failure", |seen| seen.failure.is_some() || is_complete(seen)).await;
        let healed = bench.until_complete(&order).await;
        assert_eq!(healed.failure, None, "the failure stays, though the instances have recovered");
        // It may have healed between two looks.
        if failed.failure.is_some() {
            return Ok(());
        }
    }
    panic!("no failure was seen of an image that fails at first");
}

/// Where the cluster is away, every call says so.
pub async fn away_is_unavailable(cluster: &dyn Clusters) -> Can {
    let bench = Bench::new(cluster, "away").await;
    let order = bench.order(OURS, 1, Sample::Good)?;
    let away = cluster.away().await?;
    assert_unavailable(away.validate(&bench.request()).await);
    assert_unavailable(away.apply(&order).await);
    assert_unavailable(away.observe(&order).await);
    assert_unavailable(away.evidence(&order, None).await);
    Ok(())
}

async fn failure_then_recovery(bench: &Bench<'_>, sample: Sample, kinds: &[RolloutFailureKind]) -> Can {
    let order = bench.order(OURS, 1, sample)?;
    let failure = failing(bench, &order, kinds).await;
    let container = bench.cluster.container();
    assert_eq!(failure.container.as_deref(), container, "{failure:?}");
    assert!(!failure.message.is_empty(), "a person is told what is wrong: {failure:?}");
    let told = |found: &Evidence| {
        container.is_none_or(|name| found.container.as_deref() == Some(name)) && found.state.is_some()
    };
    evidence(bench, &order, &failure, "with a state", told).await;

    let next = bench.order(OURS, 2, Sample::Another)?;
    let seen = bench.roll_out(&next).await;
    assert_eq!(seen.failure, None, "the failing instances were the earlier revision's");
    Ok(())
}

/// Applies, and waits until it fails.
async fn failing(bench: &Bench<'_>, order: &RolloutSpec, kinds: &[RolloutFailureKind]) -> RolloutFailure {
    assert_eq!(bench.apply(order).await, Applied::Done);
    let is_it = |seen: &Observation| seen.failure.as_ref().is_some_and(|failure| kinds.contains(&failure.kind));
    let seen = bench.until(order, "in failure", |seen| is_it(seen) || is_complete(seen)).await;
    assert!(!is_complete(&seen), "it does not run, and is called complete: {seen:?}");
    seen.failure.expect("it is in failure")
}

/// Collects until there is something; instances come and go, so that it may take a few looks.
async fn evidence(
    bench: &Bench<'_>,
    order: &RolloutSpec,
    failure: &RolloutFailure,
    what: &str,
    there: impl Fn(&Evidence) -> bool,
) {
    let mut found = Evidence::default();
    for _ in 0..LOOKS / 4 {
        found = bench.patiently(async || bench.rollouts.evidence(order, Some(failure)).await).await;
        assert!(found.events.len() <= 10 && found.log.len() <= 50, "{found:?}");
        assert!(found.log.iter().all(|line| line.chars().count() <= 500), "{found:?}");
        if there(&found) {
            return;
        }
        bench.cluster.pause().await;
    }
    panic!("no evidence {what}: {found:?}");
}

#[track_caller]
fn assert_unavailable<T: std::fmt::Debug>(answer: Result<T>) {
    assert!(matches!(answer, Err(Error::Unavailable { .. })), "{answer:?}");
}
