//! Bringing a target to a deploy, and what stays as it is meanwhile.

use rollhook_core::{
    deploy::Reason,
    ports::{Applied, Phase, RolloutFailureKind, RolloutSpec, Validated},
};

use super::{Bench, OURS, assert_refused, ids, is_complete, is_same};
use crate::{
    clusters::{Clusters, Sample},
    report::{Can, Lack},
};

/// A sound image ends complete, under the order's deploy id.
pub async fn apply_then_observe_complete(cluster: &dyn Clusters) -> Can {
    let bench = Bench::new(cluster, "apply-complete").await;
    for (revision, sample) in [(1, Sample::Another), (2, Sample::Good)] {
        let order = bench.order(OURS, revision, sample)?;
        let seen = bench.roll_out(&order).await;
        assert_eq!((seen.deploy, seen.failure), (Some(order.id), None));
        let (owner, image) = bench.stored().await;
        assert_eq!(owner, Some(OURS));
        assert!(is_same(&image, &order.image), "{image} is not {}", order.image);
    }
    Ok(())
}

/// The same order again, under way or done, is done and changes nothing.
pub async fn apply_is_idempotent(cluster: &dyn Clusters) -> Can {
    let bench = Bench::new(cluster, "apply-again").await;
    let order = bench.order(OURS, 1, Sample::Another)?;
    assert_eq!(bench.apply(&order).await, Applied::Done);
    let applied = bench.fingerprint().await;
    assert_eq!(bench.apply(&order).await, Applied::Done);
    bench.until_complete(&order).await;
    assert_eq!(bench.apply(&order).await, Applied::Done);
    assert_eq!(bench.fingerprint().await, applied, "nothing was changed");
    let seen = bench.observe(&order).await;
    assert!(is_complete(&seen), "nothing rolls again: {seen:?}");
    Ok(())
}

/// A new revision is a rollout of its own, with instances of its own, though its image be the one that runs.
pub async fn apply_same_image_rolls_again(cluster: &dyn Clusters) -> Can {
    let bench = Bench::new(cluster, "apply-same").await;
    let one = bench.order(OURS, 1, Sample::Good)?;
    let prepared = bench.fingerprint().await;
    bench.roll_out(&one).await;
    let first = bench.fingerprint().await;
    assert_ne!(first, prepared, "the first revision rolls, though the image ran before it");
    let before = bench.instances().await?;
    let two = bench.order(OURS, 2, Sample::Good)?;
    bench.roll_out(&two).await;
    assert_ne!(bench.fingerprint().await, first);
    let after = bench.instances().await?;
    let kept: Vec<_> = ids(&before).intersection(&ids(&after)).map(|id| (*id).to_owned()).collect();
    assert!(kept.is_empty(), "instances of revision 1 were kept, and are called revision 2: {kept:?}");
    let seen = bench.observe(&one).await;
    assert!(!is_complete(&seen), "what runs is the second revision: {seen:?}");
    assert_eq!(seen.deploy, Some(two.id));
    Ok(())
}

/// A target that is missing is created if its settings say how; else the order is refused.
pub async fn apply_missing_is_created_or_refused(cluster: &dyn Clusters) -> Can {
    let bench = Bench::absent(cluster, "apply-create").await;
    let adopted = bench.order(OURS, 1, Sample::Good)?.with(|spec| spec.adopted = true);
    assert_refused(&bench.apply(&adopted).await, Reason::TARGET_MISSING);
    let answer = bench.validate(&bench.request()).await;
    assert!(matches!(answer, Validated::Create { .. }), "an adopted order created it: {answer:?}");

    let order = bench.order(OURS, 2, Sample::Good)?;
    bench.roll_out(&order).await;
    let (owner, image) = bench.stored().await;
    assert_eq!(owner, Some(OURS));
    assert!(is_same(&image, &order.image), "{image} is not {}", order.image);
    let created = bench.fingerprint().await;
    assert_eq!(bench.apply(&order).await, Applied::Done);
    assert_eq!(bench.fingerprint().await, created, "created once");
    bench.roll_out(&bench.order(OURS, 3, Sample::Another)?).await;

    let existed = Bench::adopted(cluster, "apply-removed").await?;
    cluster.remove(&existed.app, &existed.target).await?;
    let order = existed.order(OURS, 1, Sample::Another)?;
    match existed.apply(&order).await {
        Applied::Done => drop(existed.until_complete(&order).await),
        refused @ (Applied::Newer(_) | Applied::Refused { .. }) => {
            assert_refused(&refused, Reason::TARGET_MISSING);
            let failure = existed.observe(&order).await.failure.expect("a target that is gone is failure");
            let expected = (RolloutFailureKind::Final, Reason::TARGET_MISSING);
            assert_eq!((failure.kind, failure.reason.as_str()), expected, "{failure:?}");
        }
    }
    Ok(())
}

/// Deploys change image and deploy id; other configuration stays, also if a deploy fails.
pub async fn apply_keeps_the_configuration(cluster: &dyn Clusters) -> Can {
    let bench = Bench::new(cluster, "apply-config").await;
    bench.roll_out(&bench.order(OURS, 1, Sample::Good)?).await;
    let configured = cluster.configuration(&bench.app, &bench.target).await?;
    assert!(!configured.is_empty(), "the harness tells a configuration");
    for (revision, sample) in [(2, Sample::Another), (3, Sample::Missing), (4, Sample::Good)] {
        let order = bench.order(OURS, revision, sample)?;
        assert_eq!(bench.apply(&order).await, Applied::Done);
        if sample == Sample::Missing {
            bench.never_complete(&order).await;
        } else {
            bench.until_complete(&order).await;
        }
        let found = cluster.configuration(&bench.app, &bench.target).await?;
        assert_eq!(found, configured, "the configuration was changed by revision {revision}");
    }
    Ok(())
}

/// An adopted order leaves the target as it is, and sees what runs.
pub async fn adopt_changes_nothing(cluster: &dyn Clusters) -> Can {
    let bench = Bench::adopted(cluster, "adopt").await?;
    let before = (bench.fingerprint().await, bench.stored().await);
    let order = bench.order(OURS, 1, Sample::Good)?.with(|spec| spec.adopted = true);
    assert_eq!(bench.apply(&order).await, Applied::Done);
    let seen = bench.until_complete(&order).await;
    assert_eq!((seen.deploy, seen.failure), (None, None));
    assert_eq!((bench.fingerprint().await, bench.stored().await), before);
    let next = bench.order(OURS, 2, Sample::Another)?;
    bench.roll_out(&next).await;
    let seen = bench.observe(&order).await;
    assert!(!is_complete(&seen), "what was adopted runs no more: {seen:?}");
    assert_eq!(seen.deploy, Some(next.id));
    Ok(())
}

/// An image that runs goes on, and can be deployed again, also where it is named as one that is not needed.
pub async fn discard_changes_nothing_that_runs(cluster: &dyn Clusters) -> Can {
    let bench = Bench::new(cluster, "discard").await;
    let Some(stored) = bench.rollouts.stored_images() else {
        return Err(Lack::NotApplicable("the driver stores no images"));
    };
    let order = bench.order(OURS, 1, Sample::Good)?;
    bench.roll_out(&order).await;
    let before = bench.fingerprint().await;
    let images = [cluster.image(Sample::Good)?];
    bench.patiently(async || stored.discard(&bench.app(), &images).await).await;
    assert_still_runs(&bench, &order, &before).await;
    Ok(())
}

/// An image that was rolled out is stored, and one that cannot be fetched is not.
pub async fn has_says_what_is_stored(cluster: &dyn Clusters) -> Can {
    let bench = Bench::new(cluster, "has").await;
    let Some(stored) = bench.rollouts.stored_images() else {
        return Err(Lack::NotApplicable("the driver stores no images"));
    };
    let order = bench.order(OURS, 1, Sample::Good)?;
    bench.roll_out(&order).await;
    let seen = bench.until_complete(&order).await;
    let Phase::Complete { digest: Some(digest), .. } = seen.phase else {
        return Err(Lack::NotApplicable("the platform names no digests"));
    };
    let (good, missing) = (cluster.image(Sample::Good)?.pinned(digest), cluster.image(Sample::Missing)?);
    assert!(bench.patiently(async || stored.has(&good).await).await, "{good} runs, and is said not to be stored");
    assert!(!bench.patiently(async || stored.has(&missing).await).await, "{missing} is said to be stored");
    Ok(())
}

/// The target of a deleted app goes on as it is, and is as well fenced as before.
pub async fn forget_changes_nothing_that_runs(cluster: &dyn Clusters) -> Can {
    let bench = Bench::new(cluster, "forget").await;
    let order = bench.order(OURS, 2, Sample::Another)?;
    bench.roll_out(&order).await;
    let before = bench.fingerprint().await;
    for _ in 0..2 {
        bench.patiently(async || bench.rollouts.forget(&bench.app()).await).await;
        assert_still_runs(&bench, &order, &before).await;
    }
    let late = bench.apply(&bench.order(OURS, 1, Sample::Good)?).await;
    assert_eq!(late, Applied::Newer(order.id.revision), "a call that was under way arrives");
    assert_still_runs(&bench, &order, &before).await;
    Ok(())
}

async fn assert_still_runs(bench: &Bench<'_>, order: &RolloutSpec, fingerprint: &str) {
    assert_eq!(bench.fingerprint().await, fingerprint, "the target was changed");
    let seen = bench.observe(order).await;
    assert!(is_complete(&seen) && seen.deploy == Some(order.id), "it does not run any more: {seen:?}");
}
