//! Seeing how far a cluster is.

use std::sync::Arc;

use rollhook_core::{
    Error, Result,
    app::WorkloadKind,
    ports::{Applied, Observation, RolloutDriver, RolloutFailure, RolloutFailureKind},
};

use super::{Bench, LOOKS, OURS, is_complete};
use crate::{
    clusters::{Clusters, Sample},
    report::Can,
    samples,
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

/// A workload that is not there is none, in a namespace that is, and in one that is not.
pub async fn inspect_unknown_is_none(cluster: &dyn Clusters) -> Can {
    let bench = Bench::prepared(cluster, "inspect-there").await;
    let inspect = async |app, name: &str| bench.rollouts.inspect(app, WorkloadKind::Deployment, name).await.unwrap();
    let found = inspect(&bench.app, &bench.workload.name).await.expect("what is there is found");
    assert_eq!(found.stamp, None);
    let names: Vec<&str> = found.containers.iter().map(|container| container.name.as_str()).collect();
    assert_eq!(names, bench.workload.containers);
    assert_eq!(found.unsupported, None);
    assert_eq!(inspect(&bench.app, "inspect-not-there").await, None);
    let elsewhere = samples::app("no-such", "place", "inspect-there").id;
    assert_eq!(inspect(&elsewhere, &bench.workload.name).await, None);
    let other_kind = bench.rollouts.inspect(&bench.app, WorkloadKind::StatefulSet, &bench.workload.name).await;
    assert_eq!(other_kind.unwrap(), None);
    Ok(())
}

/// Where the cluster is away, every call says so, in bounded time.
pub async fn away_is_unavailable(cluster: &dyn Clusters) -> Can {
    let bench = Bench::prepared(cluster, "away").await;
    let order = bench.order(OURS, 1, Sample::Good);
    let away: Arc<dyn RolloutDriver> = cluster.away()?;
    assert_unavailable(away.inspect(&bench.app, bench.workload.kind, &bench.workload.name).await);
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
    let container = &bench.workload.containers[0];
    assert_eq!(trouble.container.as_ref(), Some(container), "{trouble:?}");
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
