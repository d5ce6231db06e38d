//! Targets at rest: changes by others since a deploy, and how its instances do.

use std::sync::Arc;

use futures_util::{
    StreamExt,
    future::{Either, select},
    stream::BoxStream,
};
use rollhook_core::{
    app::AppUid,
    image::ImageRef,
    ports::{Applied, AtRest, Drift, RolloutDriver, RolloutFailureKind, RolloutSpec, TargetReader},
};

use super::{Bench, FEW_LOOKS, LOOKS, OURS, is_complete, is_same};
use crate::{
    clusters::{Clusters, Sample},
    report::{Can, Lack},
};

/// Another party's image is told until the next deploy, which may be of the image from before.
pub async fn drift_is_told_until_the_next_deploy(cluster: &dyn Clusters) -> Can {
    let bench = Bench::new(cluster, "drift").await;
    // Hints are for one listener: another process has its own.
    let bench = bench.another().await?;
    let rollouts = Arc::clone(&bench.rollouts);
    let reader = reader(&rollouts)?;
    let mut hints = reader.target_changes();
    let order = bench.order(OURS, 1, Sample::Good)?;
    bench.roll_out(&order).await;
    for _ in 0..FEW_LOOKS {
        assert_eq!(drift(&bench, reader, &order).await, None, "nothing was changed");
        cluster.pause().await;
    }
    let meddled = cluster.image(Sample::Another)?;
    cluster.meddle(&bench.app, &bench.target, &meddled).await?;
    let changed = bench.fingerprint().await;
    let mut hinted = false;
    for _ in 0..LOOKS {
        hinted |= is_hinted(&bench, &mut hints).await;
        if hinted && drift(&bench, reader, &order).await.is_some() {
            break;
        }
    }
    assert!(hinted, "no hint came within a minute");
    let seen = drift(&bench, reader, &order).await.expect("the image is another");
    assert!(seen.image.is_some_and(|image| is_same(&image, &meddled)), "{}", seen.message);
    assert!(!seen.message.is_empty(), "a person is told what happened");
    assert_eq!(bench.fingerprint().await, changed, "nothing was put right");

    let again = bench.order(OURS, 2, Sample::Good)?;
    bench.roll_out(&again).await;
    assert!(is_same(&bench.stored().await.1, &again.image), "the image from before was applied");
    for _ in 0..FEW_LOOKS {
        assert_eq!(drift(&bench, reader, &again).await, None, "it was put right");
        cluster.pause().await;
    }
    Ok(())
}

async fn drift(bench: &Bench<'_>, reader: &dyn TargetReader, order: &RolloutSpec) -> Option<Drift> {
    at_rest(bench, reader, order).await.drift
}

/// As long as its instances run, a target at rest is complete.
pub async fn at_rest_a_healthy_target_stays_complete(cluster: &dyn Clusters) -> Can {
    let bench = Bench::new(cluster, "rest-healthy").await.another().await?;
    let rollouts = Arc::clone(&bench.rollouts);
    let reader = reader(&rollouts)?;
    let order = bench.order(OURS, 1, Sample::Good)?;
    bench.roll_out(&order).await;
    for _ in 0..FEW_LOOKS {
        let AtRest { image, drift, seen, .. } = at_rest(&bench, reader, &order).await;
        assert!(is_complete(&seen) && seen.failure.is_none(), "a healthy target is shown in trouble: {seen:?}");
        assert_eq!(drift, None, "nothing was changed");
        let is_set = |image: ImageRef| image.same_bits(None, &order.image, None);
        assert!(image.clone().is_none_or(is_set), "the target is set to {image:?}");
        cluster.pause().await;
    }
    Ok(())
}

/// Instances that end again and again after their deploy are seen, with hints alone.
pub async fn at_rest_a_crash_loop_is_seen(cluster: &dyn Clusters) -> Can {
    let bench = Bench::new(cluster, "rest-crash").await.another().await?;
    let rollouts = Arc::clone(&bench.rollouts);
    let reader = reader(&rollouts)?;
    let mut hints = reader.target_changes();
    let order = bench.order(OURS, 1, Sample::Dying)?;
    let first = bench.roll_out(&order).await.restarts;
    let mut last = at_rest(&bench, reader, &order).await.seen;
    for _ in 0..LOOKS {
        let crashes = last.failure.as_ref().is_some_and(|failure| failure.kind == RolloutFailureKind::Crash);
        if last.restarts > first + 1 || crashes {
            return Ok(());
        }
        if is_hinted(&bench, &mut hints).await {
            last = at_rest(&bench, reader, &order).await.seen;
        }
    }
    panic!("a crash loop after a success was not seen within a minute: {last:?}");
}

/// Instances that run after their deploy was given up are seen, with hints alone.
pub async fn at_rest_recovery_is_seen(cluster: &dyn Clusters) -> Can {
    let bench = Bench::new(cluster, "rest-heals").await.another().await?;
    let rollouts = Arc::clone(&bench.rollouts);
    let reader = reader(&rollouts)?;
    let mut hints = reader.target_changes();
    let order = bench.order(OURS, 1, Sample::Healing)?;
    assert_eq!(bench.apply(&order).await, Applied::Done);
    bench.until(&order, "in failure", |seen| seen.failure.is_some() || is_complete(seen)).await;
    let (mut last, mut hinted) = (at_rest(&bench, reader, &order).await.seen, false);
    for _ in 0..LOOKS {
        if is_complete(&last) && last.deploy == Some(order.id) && last.failure.is_none() && hinted {
            return Ok(());
        }
        // Where the platform has no controller, observing takes the rollout's steps, which need no hint.
        bench.observe(&order).await;
        hinted |= is_hinted(&bench, &mut hints).await;
        last = at_rest(&bench, reader, &order).await.seen;
    }
    panic!("a recovery was not seen within a minute: {last:?}");
}

fn reader(rollouts: &Arc<dyn RolloutDriver>) -> Can<&dyn TargetReader> {
    rollouts.target_reader().ok_or(Lack::NotApplicable("the driver reads no targets at rest"))
}

async fn at_rest(bench: &Bench<'_>, reader: &dyn TargetReader, order: &RolloutSpec) -> AtRest {
    bench.patiently(async || reader.at_rest(order).await).await
}

/// Waits for a hint, but no longer than a pause. Returns whether there was one of the app.
async fn is_hinted(bench: &Bench<'_>, hints: &mut BoxStream<'static, AppUid>) -> bool {
    match select(hints.next(), bench.cluster.pause()).await {
        Either::Left((app, _)) => app == Some(OURS),
        Either::Right(_) => false,
    }
}
