//! Restores: what still runs is kept, and nothing of the failed deploy is.

use rollhook_core::ports::Applied;

use super::{Bench, OURS, ids, is_complete};
use crate::{
    clusters::{Clusters, Instance, Sample},
    report::Can,
};

/// Instances of the version before, which a failed deploy never replaced, are the restore's; the next deploy replaces them.
pub async fn restore_keeps_what_still_runs(cluster: &dyn Clusters) -> Can {
    let bench = Bench::new(cluster, "restore-kept").await;
    bench.roll_out(&bench.order(OURS, 1, Sample::Good)?).await;
    let before = bench.instances().await?;
    let failed = bench.order(OURS, 2, Sample::Missing)?;
    assert_eq!(bench.apply(&failed).await, Applied::Done);
    bench.until(&failed, "seen to fail", |seen| seen.failure.is_some()).await;

    let restore = bench.restore(3, 1, Sample::Good)?;
    let seen = bench.roll_out(&restore).await;
    assert_eq!((seen.deploy, seen.failure), (Some(restore.id), None));
    let kept = bench.instances().await?;
    assert_eq!(ids(&kept), ids(&before), "what still ran was replaced");
    assert_eq!(bench.apply(&restore).await, Applied::Done);
    let restarted = bench.another().await?;
    restarted.until_complete(&restore).await;
    assert_eq!(ids(&bench.instances().await?), ids(&before), "what still ran was replaced");
    assert_eq!(bench.apply(&failed).await, Applied::Newer(restore.id.revision), "the failed deploy is over");

    let next = bench.order(OURS, 4, Sample::Good)?;
    assert_eq!(bench.apply(&next).await, Applied::Done);
    let seen = bench.observe(&restore).await;
    assert!(!is_complete(&seen) && seen.deploy == Some(next.id), "the next deploy has begun: {seen:?}");
    bench.until_complete(&next).await;
    assert_none_of(&bench.instances().await?, &before, "instances from before were called revision 4");
    Ok(())
}

/// Instances of the failed deploy are none of the restore's, though they have its image and are ready.
pub async fn restore_keeps_nothing_of_the_failed_deploy(cluster: &dyn Clusters) -> Can {
    let bench = Bench::new(cluster, "restore-own").await;
    bench.roll_out(&bench.order(OURS, 1, Sample::Good)?).await;
    bench.roll_out(&bench.order(OURS, 2, Sample::Good)?).await;
    let failed = bench.instances().await?;
    let restore = bench.restore(3, 1, Sample::Good)?;
    bench.roll_out(&restore).await;
    assert_none_of(&bench.instances().await?, &failed, "instances of the failed deploy were called the restore's");
    Ok(())
}

fn assert_none_of(found: &[Instance], others: &[Instance], otherwise: &str) {
    let kept: Vec<_> = ids(found).intersection(&ids(others)).map(|id| (*id).to_owned()).collect();
    assert!(kept.is_empty(), "{otherwise}: {kept:?}");
}
