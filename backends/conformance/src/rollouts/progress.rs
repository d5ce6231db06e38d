//! The text by which a rollout that has stalled is told from one that moves.

use std::time::Duration;

use rollhook_core::{
    engine::rollout::STALL_TIMEOUT,
    ports::{Applied, RolloutSpec},
};

use super::{Bench, LOOKS, OURS, is_complete};
use crate::{
    clusters::{Clusters, Sample},
    report::Can,
};

/// How often is looked while a rollout may stand still, until it gives way to a newer one.
const STALLED: usize = STALL_TIMEOUT.as_millis().div_ceil(Duration::from_millis(250).as_millis()) as usize;

/// The progress of a rollout that moves is another one; of a rollout that does not, or only retries, it stays.
pub async fn progress_stands_still_with_the_rollout(cluster: &dyn Clusters) -> Can {
    let bench = Bench::new(cluster, "progress").await;
    let order = bench.order(OURS, 1, Sample::Another)?;
    assert_eq!(bench.apply(&order).await, Applied::Done);
    let begun = bench.observe(&order).await;
    let ended = bench.until_complete(&order).await;
    assert!(is_complete(&begun) || begun.progress != ended.progress, "it moved, and its progress did not: {ended:?}");

    for (revision, sample) in [(2, Sample::Hanging), (3, Sample::Missing)] {
        stalls(&bench, &bench.order(OURS, revision, sample)?).await;
    }
    Ok(())
}

/// Applies, and waits until the progress has stayed the same for as long as makes a rollout a stalled one.
async fn stalls(bench: &Bench<'_>, order: &RolloutSpec) {
    assert_eq!(bench.apply(order).await, Applied::Done);
    let mut last = bench.observe(order).await;
    let mut same = 0;
    for _ in 0..LOOKS {
        bench.cluster.pause().await;
        let seen = bench.observe(order).await;
        assert!(!is_complete(&seen), "it does not run, and is called complete: {seen:?}");
        same = if seen.progress == last.progress { same + 1 } else { 0 };
        if same == STALLED {
            return;
        }
        last = seen;
    }
    panic!("the progress does not stand still, though the rollout does: {last:?}");
}
