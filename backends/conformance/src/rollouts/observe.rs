//! Success is what was observed: just this deploy, all of it, and alive.

use rollhook_core::{
    image::Digest,
    ports::{Applied, Observation, Phase, RolloutSpec},
};

use super::{Bench, FEW_LOOKS, LOOKS, OURS, is_complete, is_same};
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

/// Complete without anything leaving means that no instance of an earlier deploy runs any more, also none that is to end, or
/// is started again and again.
pub async fn observe_complete_leaves_no_old_instance(cluster: &dyn Clusters) -> Can {
    let bench = Bench::new(cluster, "observe-left").await;
    for (revision, sample) in [(1, Sample::Good), (2, Sample::Another)] {
        let order = bench.order(OURS, revision, sample)?;
        bench.roll_out(&order).await;
        assert_runs_alone(&bench, &order).await?;
    }
    let crashing = bench.order(OURS, 3, Sample::Crashing)?;
    assert_eq!(bench.apply(&crashing).await, Applied::Done);
    bench.until(&crashing, "in failure", |seen| seen.failure.is_some()).await;
    let next = bench.order(OURS, 4, Sample::Another)?;
    bench.roll_out(&next).await;
    assert_runs_alone(&bench, &next).await
}

/// Every instance that runs is of the order's image.
async fn assert_runs_alone(bench: &Bench<'_>, order: &RolloutSpec) -> Can {
    let running = bench.instances().await?;
    let old = running.iter().find(|instance| !is_same(&instance.image, &order.image));
    assert_eq!(old, None, "an old instance runs while revision {} is called complete", order.id.revision);
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

/// Every restart of an instance counts, also for a process that was started since.
pub async fn observe_counts_restarts(cluster: &dyn Clusters) -> Can {
    let bench = Bench::new(cluster, "observe-restarts").await;
    let order = bench.order(OURS, 1, Sample::Dying)?;
    let ready = bench.roll_out(&order).await;
    let seen = bench.until(&order, "counted as restarted", |seen| seen.restarts > ready.restarts).await;
    let restarted = bench.another().await?.observe(&order).await;
    let (counted, left) = (seen.restarts, restarted.restarts);
    assert!(left >= counted, "a restarted driver has lost restarts: of {counted} it knows {left}");
    let next = bench.order(OURS, 2, Sample::Another)?;
    assert_eq!(bench.roll_out(&next).await.restarts, 0, "the restarts were the earlier revision's");
    Ok(())
}

/// The lives of an instance that was started again are known, also to a process that was started since.
pub async fn observe_keeps_past_lives(cluster: &dyn Clusters) -> Can {
    let bench = Bench::new(cluster, "observe-lives").await;
    let order = bench.order(OURS, 1, Sample::Dying)?;
    bench.roll_out(&order).await;
    let seen = bench.until(&order, "seen with a past life", |seen| !seen.past_lives.is_empty()).await;
    let restarted = bench.another().await?.observe(&order).await;
    for lives in &seen.past_lives {
        assert!(lives.count > 0 && !lives.last.is_zero(), "an instance that ended has lived: {lives:?}");
        assert!(lives.last <= lives.all, "the last life lies within all of them: {lives:?}");
        let known = restarted.past_lives.iter().find(|known| known.instance == lives.instance);
        let is_known = known.is_some_and(|known| known.count >= lives.count && known.all >= lives.all);
        assert!(is_known, "a restarted driver has lost lives: of {lives:?} it knows {known:?}");
    }
    let next = bench.order(OURS, 2, Sample::Another)?;
    assert_eq!(bench.roll_out(&next).await.past_lives, [], "the lives were the earlier revision's");
    Ok(())
}

/// Where the old instance had to stop, the time since then is known, also to a process that was started since.
pub async fn observe_down_while_nothing_serves(cluster: &dyn Clusters) -> Can {
    let bench = Bench::new(cluster, "observe-down").await;
    let good = bench.order(OURS, 1, Sample::Good)?;
    assert_eq!(bench.roll_out(&good).await.down_for, None, "it is complete");
    let order = bench.order(OURS, 2, Sample::Hanging)?;
    assert_eq!(bench.apply(&order).await, Applied::Done);
    let mut seen = bench.observe(&order).await;
    for _ in 0..4 * FEW_LOOKS {
        if seen.down_for.is_some() {
            break;
        }
        bench.cluster.pause().await;
        seen = bench.observe(&order).await;
    }
    let running = cluster.instances(&bench.app, &bench.target).await?;
    let serves = running.iter().any(|instance| is_same(&instance.image, &good.image));
    let Some(down_for) = seen.down_for else {
        assert!(serves, "the old instance has stopped, and it is not called down: {seen:?}");
        return Ok(());
    };
    assert!(!serves, "the old instance serves, and it is called down: {seen:?}");
    for _ in 0..FEW_LOOKS {
        bench.cluster.pause().await;
    }
    let later = bench.observe(&order).await.down_for;
    assert!(later > Some(down_for), "it is down for {down_for:?}, and later for {later:?}");
    let restarted = bench.another().await?.observe(&order).await.down_for;
    assert!(restarted >= later, "a restarted driver has lost the time: of {later:?} it knows {restarted:?}");
    bench.roll_out(&bench.order(OURS, 3, Sample::Another)?).await;
    Ok(())
}

/// What another party has changed is not complete, be it a deploy or what was adopted.
pub async fn observe_changed_by_another_is_not_complete(cluster: &dyn Clusters) -> Can {
    let another = cluster.image(Sample::Another)?;
    let bench = Bench::adopted(cluster, "changed-adopted").await?;
    let order = bench.order(OURS, 1, Sample::Good)?.with(|spec| spec.adopted = true);
    assert_eq!(bench.apply(&order).await, Applied::Done);
    bench.until_complete(&order).await;
    cluster.meddle(&bench.app, &bench.target, &another).await?;
    bench.until(&order, "seen to be changed by another", |seen| !is_complete(seen)).await;
    bench.never_complete(&order).await;

    let bench = Bench::new(cluster, "changed-deployed").await;
    let order = bench.order(OURS, 1, Sample::Good)?;
    bench.roll_out(&order).await;
    cluster.meddle(&bench.app, &bench.target, &another).await?;
    bench.until(&order, "seen to be changed by another", |seen| !is_complete(seen)).await;
    bench.never_complete(&order).await;
    Ok(())
}

/// The digest of a complete deploy is the one of what runs.
pub async fn observe_digest_is_what_runs(cluster: &dyn Clusters) -> Can {
    let bench = Bench::new(cluster, "observe-digest").await;
    for (revision, sample) in [(1, Sample::Good), (2, Sample::Another)] {
        let order = bench.order(OURS, revision, sample)?;
        let expected = cluster.digest(&order.image).await?;
        bench.roll_out(&order).await;
        assert_eq!(observed_digest(&bench, &order).await, Some(expected), "the digest is not the one of what runs");
    }
    Ok(())
}

/// The digest of a complete deploy, which may be known a moment later than that the instances are ready.
pub(super) async fn observed_digest(bench: &Bench<'_>, order: &RolloutSpec) -> Option<Digest> {
    let told = |seen: &Observation| matches!(&seen.phase, Phase::Complete { digest: Some(_), .. });
    let mut seen = bench.observe(order).await;
    for _ in 0..LOOKS / 10 {
        if told(&seen) {
            break;
        }
        bench.cluster.pause().await;
        seen = bench.observe(order).await;
    }
    let Phase::Complete { digest, .. } = seen.phase else { panic!("complete no more: {seen:?}") };
    digest
}
