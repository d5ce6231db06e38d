//! Seeing how far a cluster is.

use std::sync::Arc;

use rollhook_core::{
    Error, Result,
    ports::{
        Applied, InvalidTarget, Observation, RolloutDriver, RolloutFailure, RolloutFailureKind, TargetRequest,
        Validated,
    },
};

use super::{Bench, LOOKS, OURS, is_complete, is_same};
use crate::{
    clusters::{Clusters, Sample},
    report::Can,
};

/// While the new revision does not run, nothing is complete, though the old one be healthy all the time.
pub async fn observe_old_is_not_new(cluster: &dyn Clusters) -> Can {
    let bench = Bench::prepared(cluster, "observe-old").await;
    let order = bench.order(OURS, 1, Sample::Missing);
    let seen = bench.observe(&order).await;
    assert!(!is_complete(&seen), "not even applied: {seen:?}");
    assert_eq!(seen.stamp, None);
    let same_image = bench.order(OURS, 1, Sample::Good);
    let seen = bench.observe(&same_image).await;
    assert!(!is_complete(&seen), "the image runs, but not the revision: {seen:?}");

    assert_eq!(bench.apply(&order).await, Applied::Done);
    bench.never_complete(&order).await;
    let seen = bench.observe(&order).await;
    assert_eq!(seen.stamp, Some(order.stamp));
    Ok(())
}

/// An image that cannot be pulled is trouble of that kind, in its container, until a good one follows.
pub async fn observe_failing_image_is_trouble(cluster: &dyn Clusters) -> Can {
    let bench = Bench::prepared(cluster, "observe-missing").await;
    trouble_then_recovery(&bench, Sample::Missing, RolloutFailureKind::Image).await;
    Ok(())
}

/// A container that exits again and again is trouble of that kind, named, until a good one follows.
pub async fn observe_crash_is_trouble(cluster: &dyn Clusters) -> Can {
    let bench = Bench::prepared(cluster, "observe-crash").await;
    trouble_then_recovery(&bench, Sample::Crashing, RolloutFailureKind::Crash).await;
    Ok(())
}

/// What is there is adopted with the image that it runs, what is not is created; asking changes nothing.
pub async fn validate_changes_nothing(cluster: &dyn Clusters) -> Can {
    let bench = Bench::prepared(cluster, "validate-there").await;
    let before = bench.fingerprint().await;
    let (owner, image) = bench.stored().await;
    assert_eq!(owner, None);
    assert!(is_same(&image, &cluster.image(Sample::Good)), "{image}");
    assert_eq!(bench.fingerprint().await, before);
    let absent = Bench::registered(cluster, cluster.app("validate-absent")).await;
    assert!(matches!(absent.validate(false).await, Validated::Create { .. }));
    let without = TargetRequest { image: None, ..absent.request() };
    let answer = absent.rollouts.validate(&without).await.unwrap();
    assert!(matches!(answer, Validated::Invalid(InvalidTarget::Unusable(_))), "{answer:?}");
    Ok(())
}

/// Where the cluster is away, every call says so, in bounded time.
pub async fn away_is_unavailable(cluster: &dyn Clusters) -> Can {
    let bench = Bench::prepared(cluster, "away").await;
    let order = bench.order(OURS, 1, Sample::Good);
    let away: Arc<dyn RolloutDriver> = cluster.away()?;
    assert_unavailable(away.validate(&bench.request()).await);
    assert_unavailable(away.apply(&order).await);
    assert_unavailable(away.observe(&order).await);
    assert_unavailable(away.evidence(&order, None).await);
    Ok(())
}

async fn trouble_then_recovery(bench: &Bench<'_>, sample: Sample, kind: RolloutFailureKind) {
    let order = bench.order(OURS, 1, sample);
    assert_eq!(bench.apply(&order).await, Applied::Done);
    let is_it = |seen: &Observation| seen.trouble.as_ref().is_some_and(|trouble| trouble.kind == kind);
    let seen = bench.until(&order, "in trouble", |seen| is_it(seen) || is_complete(seen)).await;
    assert!(!is_complete(&seen), "{seen:?}");
    let trouble = seen.trouble.expect("it is in trouble");
    assert!(trouble.container.is_some(), "{trouble:?}");
    assert!(!trouble.message.is_empty(), "a person is told what is wrong: {trouble:?}");
    evidence(bench, &order, &trouble).await;

    let next = bench.order(OURS, 2, Sample::Another);
    assert_eq!(bench.apply(&next).await, Applied::Done);
    let seen = bench.until_complete(&next).await;
    assert_eq!(seen.trouble, None, "the failing pods were the earlier revision's");
}

/// What is collected names the container; pods come and go, so that it may take a few looks.
async fn evidence(bench: &Bench<'_>, order: &rollhook_core::ports::RolloutSpec, trouble: &RolloutFailure) {
    for _ in 0..LOOKS {
        let found = bench.patiently(async || bench.rollouts.evidence(order, Some(trouble)).await).await;
        assert!(found.events.len() <= 10 && found.log.len() <= 50, "{found:?}");
        assert!(found.log.iter().all(|line| line.chars().count() <= 500), "{found:?}");
        if found.container == trouble.container && found.state.is_some() {
            return;
        }
        bench.cluster.pause().await;
    }
    panic!("no evidence within a minute");
}

#[track_caller]
fn assert_unavailable<T: std::fmt::Debug>(answer: Result<T>) {
    assert!(matches!(answer, Err(Error::Unavailable { .. })), "{answer:?}");
}
