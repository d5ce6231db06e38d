//! Tags that mean other bits than the digest beside them, or than they did.

use rollhook_core::image::ImageRef;

use super::{Bench, FEW_LOOKS, OURS, observe::observed_digest};
use crate::{
    clusters::{Clusters, Sample},
    report::Can,
};

/// An image with a tag and a digest runs the bits of the digest, whatever the tag means.
pub async fn apply_takes_the_digest_and_not_the_tag(cluster: &dyn Clusters) -> Can {
    let bench = Bench::new(cluster, "apply-digest").await;
    let digest = cluster.digest(&cluster.image(Sample::Good)?).await?;
    let tagged = cluster.image(Sample::Another)?;
    assert_ne!(cluster.digest(&tagged).await?, digest, "the harness gives two images");
    let order = bench.order(OURS, 1, Sample::Another)?.with(|spec| spec.image = tagged.pinned(digest.clone()));
    bench.roll_out(&order).await;
    let seen = observed_digest(&bench, &order).await;
    assert_eq!(seen.as_ref(), Some(&digest), "the tag was taken, and not the digest beside it");
    for instance in bench.instances().await? {
        let bits = instance.digest.unwrap_or_else(|| digest.clone());
        assert_eq!(bits, digest, "an instance runs what the tag means, and not the digest beside it");
    }
    Ok(())
}

/// The digest of a complete deploy stays the one of what runs, though its tag means other bits by now.
pub async fn observe_digest_stays_where_a_tag_moves(cluster: &dyn Clusters) -> Can {
    let bench = Bench::new(cluster, "observe-moved").await;
    let moving: ImageRef = format!("{}:{}", cluster.image(Sample::Good)?.repository(), bench.app.name).parse().unwrap();
    cluster.push(&moving, Sample::Good).await?;
    let pushed = cluster.digest(&moving).await?;
    let order = bench.order(OURS, 1, Sample::Good)?.with(|spec| spec.image = moving.clone());
    bench.roll_out(&order).await;
    assert_eq!(observed_digest(&bench, &order).await.as_ref(), Some(&pushed), "the digest is not the one of what runs");
    cluster.push(&moving, Sample::Another).await?;
    assert_ne!(cluster.digest(&moving).await?, pushed, "the harness moves the tag");
    for _ in 0..FEW_LOOKS {
        let seen = observed_digest(&bench, &order).await;
        assert_eq!(seen.as_ref(), Some(&pushed), "the digest is what the tag means now, and not what runs");
        cluster.pause().await;
    }
    Ok(())
}
