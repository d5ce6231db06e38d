//! Success is what was observed: just this deploy, all of it, and alive.

use rollhook_core::ports::{Applied, Observation, Phase};

use super::{Bench, LOOKS, OURS, is_complete, is_same};
use crate::{
    clusters::{Clusters, Sample},
    report::Can,
};

/// While the new revision does not run, nothing is complete, though the old one be healthy all the time.
pub async fn observe_old_is_not_new(cluster: &dyn Clusters) -> Can {
    let bench = Bench::new(cluster, "observe-old").await;
    bench.roll_out(&bench.order(OURS, 1, Sample::Good)?).await;
    let order = bench.order(OURS, 2, Sample::Missing)?;
    let same_image = bench.order(OURS, 2, Sample::Good)?;
    for order in [&order, &same_image] {
        let seen = bench.observe(order).await;
        assert!(!is_complete(&seen), "not even applied: {seen:?}");
        assert_ne!(seen.deploy, Some(order.id));
    }
    assert_eq!(bench.apply(&order).await, Applied::Done);
    bench.never_complete(&order).await;
    let seen = bench.observe(&order).await;
    assert_eq!(seen.deploy, Some(order.id));

    let untouched = Bench::adopted(cluster, "observe-adopted").await?;
    let seen = untouched.observe(&untouched.order(OURS, 1, Sample::Good)?).await;
    assert!(!is_complete(&seen), "the image runs, but not the revision: {seen:?}");
    assert_eq!(seen.deploy, None);
    Ok(())
}

/// Complete means that no instance of an earlier deploy runs any more.
pub async fn observe_complete_leaves_no_old_instance(cluster: &dyn Clusters) -> Can {
    let bench = Bench::new(cluster, "observe-left").await;
    for (revision, sample) in [(1, Sample::Good), (2, Sample::Another)] {
        let order = bench.order(OURS, revision, sample)?;
        bench.roll_out(&order).await;
        let running = cluster.instances(&bench.app, &bench.target).await?;
        assert!(!running.is_empty(), "it is called complete, and nothing runs");
        let old = running.iter().find(|image| !is_same(image, &order.image));
        assert_eq!(old, None, "an old instance runs while revision {revision} is called complete");
    }
    Ok(())
}

/// An instance that started and does not get ready is not complete, however long it is looked at.
pub async fn observe_never_ready_is_not_complete(cluster: &dyn Clusters) -> Can {
    let bench = Bench::new(cluster, "observe-hang").await;
    bench.roll_out(&bench.order(OURS, 1, Sample::Good)?).await;
    let order = bench.order(OURS, 2, Sample::Hanging)?;
    assert_eq!(bench.apply(&order).await, Applied::Done);
    bench.never_complete(&order).await;
    assert_eq!(bench.observe(&order).await.deploy, Some(order.id));
    Ok(())
}

/// Instances that end after they were ready are seen to have ended.
pub async fn observe_dead_is_not_complete(cluster: &dyn Clusters) -> Can {
    let bench = Bench::new(cluster, "observe-dead").await;
    let order = bench.order(OURS, 1, Sample::Dying)?;
    let ready = bench.roll_out(&order).await;
    let died = |seen: &Observation| !is_complete(seen) || seen.restarts > ready.restarts || seen.failure.is_some();
    bench.until(&order, "seen to have ended", died).await;
    Ok(())
}

/// Every restart of an instance counts.
pub async fn observe_counts_restarts(cluster: &dyn Clusters) -> Can {
    let bench = Bench::new(cluster, "observe-restarts").await;
    let order = bench.order(OURS, 1, Sample::Dying)?;
    let ready = bench.roll_out(&order).await;
    bench.until(&order, "counted as restarted", |seen| seen.restarts > ready.restarts).await;
    let next = bench.order(OURS, 2, Sample::Another)?;
    assert_eq!(bench.roll_out(&next).await.restarts, 0, "the restarts were the earlier revision's");
    Ok(())
}

/// The digest of a complete deploy is the one of what runs.
pub async fn observe_digest_is_what_runs(cluster: &dyn Clusters) -> Can {
    let bench = Bench::new(cluster, "observe-digest").await;
    for (revision, sample) in [(1, Sample::Good), (2, Sample::Another)] {
        let order = bench.order(OURS, revision, sample)?;
        let expected = cluster.digest(&order.image).await?;
        let told = |seen: &Observation| matches!(&seen.phase, Phase::Complete { digest: Some(_), .. });
        let mut seen = bench.roll_out(&order).await;
        // It may be known a moment later than that the instances are ready.
        for _ in 0..LOOKS / 10 {
            if told(&seen) {
                break;
            }
            cluster.pause().await;
            seen = bench.observe(&order).await;
        }
        let Phase::Complete { digest, .. } = &seen.phase else { panic!("complete no more: {seen:?}") };
        assert_eq!(digest.as_ref(), Some(&expected), "the digest is not the one of what runs");
    }
    Ok(())
}
