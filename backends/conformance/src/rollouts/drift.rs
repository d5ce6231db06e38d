//! Drift: changes by others since a deploy.

use futures_util::{
    StreamExt,
    future::{Either, select},
};
use rollhook_core::ports::{Drift, DriftReader, RolloutSpec};

use super::{Bench, FEW_LOOKS, LOOKS, OURS, is_same};
use crate::{
    clusters::{Clusters, Sample},
    report::{Can, Lack},
};

/// Another party's image is told until the next deploy, which may be of the image from before.
pub async fn drift_is_told_until_the_next_deploy(cluster: &dyn Clusters) -> Can {
    let bench = Bench::new(cluster, "drift").await;
    // Hints are for one listener: another process has its own.
    let bench = bench.another().await?;
    let Some(reader) = bench.rollouts.drift_reader() else {
        return Err(Lack::NotApplicable("the driver reads no drift"));
    };
    let mut hints = reader.drift_changes();
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
        match select(hints.next(), cluster.pause()).await {
            Either::Left((app, _)) => hinted |= app == Some(OURS),
            Either::Right(_) => {}
        }
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

async fn drift(bench: &Bench<'_>, reader: &dyn DriftReader, order: &RolloutSpec) -> Option<Drift> {
    bench.patiently(async || reader.drift(order).await).await
}
