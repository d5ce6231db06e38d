//! Bringing a workload to an order.

use rollhook_core::{
    app::{AppUid, Target},
    deploy::Reason,
    ports::{Applied, RolloutSpec, Validated},
};

use super::{Bench, OURS, THEIRS, is_complete, is_same};
use crate::{
    clusters::{Clusters, Sample},
    report::Can,
};

/// A sound image ends complete, under the order's stamp.
pub async fn apply_then_observe_complete(cluster: &dyn Clusters) -> Can {
    let bench = Bench::prepared(cluster, "apply-complete").await;
    let order = bench.order(OURS, 1, Sample::Another);
    assert_eq!(bench.apply(&order).await, Applied::Done);
    let seen = bench.until_complete(&order).await;
    assert_eq!((seen.stamp, seen.trouble), (Some(order.stamp), None));
    let (owner, image) = bench.stored().await;
    assert_eq!(owner, Some(OURS));
    assert!(is_same(&image, &order.image), "{image} is not {}", order.image);
    let next = bench.order(OURS, 2, Sample::Good);
    bench.roll_out(&next).await;
    assert_eq!(bench.observe(&next).await.stamp, Some(next.stamp));
    Ok(())
}

/// The same order again, under way or done, is done and changes nothing.
pub async fn apply_is_idempotent(cluster: &dyn Clusters) -> Can {
    let bench = Bench::prepared(cluster, "apply-again").await;
    let order = bench.order(OURS, 1, Sample::Another);
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

/// An order below the workload's stamp changes nothing, and learns of the newer one.
pub async fn apply_older_is_refused(cluster: &dyn Clusters) -> Can {
    let bench = Bench::prepared(cluster, "apply-older").await;
    let older = bench.order(OURS, 1, Sample::Good);
    let newer = bench.order(OURS, 2, Sample::Another);
    assert_eq!(bench.apply(&newer).await, Applied::Done);
    let applied = bench.fingerprint().await;
    assert_eq!(bench.apply(&older).await, Applied::Newer(newer.stamp.revision), "while the newer one is under way");
    bench.until_complete(&newer).await;
    assert_eq!(bench.apply(&older).await, Applied::Newer(newer.stamp.revision));
    assert_eq!(bench.fingerprint().await, applied, "nothing was changed");
    let seen = bench.observe(&older).await;
    assert!(!is_complete(&seen), "{seen:?}");
    assert_eq!(seen.stamp, Some(newer.stamp), "the watcher of the older one learns of the newer");

    let failing = bench.order(OURS, 3, Sample::Missing);
    assert_eq!(bench.apply(&failing).await, Applied::Done);
    assert_eq!(bench.apply(&newer).await, Applied::Newer(failing.stamp.revision), "a newer one that fails is newer");
    let adopted = RolloutSpec { adopted: true, ..older };
    assert_eq!(bench.apply(&adopted).await, Applied::Newer(failing.stamp.revision));
    Ok(())
}

/// Another registration's stamp is not overwritten, unless the workload names just that one.
pub async fn apply_foreign_stamp_is_refused(cluster: &dyn Clusters) -> Can {
    let bench = Bench::prepared(cluster, "apply-foreign").await;
    bench.roll_out(&bench.order(THEIRS, 5, Sample::Another)).await;
    let applied = bench.fingerprint().await;
    let taking = |uid: Option<AppUid>| {
        let order = bench.order(OURS, 1, Sample::Good);
        RolloutSpec { target: Target { take_over: uid, ..order.target.clone() }, ..order }
    };
    assert_refused(&bench.apply(&taking(None)).await, Reason::FOREIGN_STAMP);
    assert_refused(&bench.apply(&taking(Some(OURS))).await, Reason::FOREIGN_STAMP);
    assert_refused(&bench.apply(&bench.order(OURS, 9, Sample::Good)).await, Reason::FOREIGN_STAMP);
    assert_eq!(bench.fingerprint().await, applied, "nothing was changed");
    let seen = bench.observe(&taking(None)).await;
    assert!(!is_complete(&seen), "{seen:?}");

    bench.roll_out(&taking(Some(THEIRS))).await;
    let taken = bench.fingerprint().await;
    assert_refused(&bench.apply(&bench.order(THEIRS, 6, Sample::Another)).await, Reason::FOREIGN_STAMP);
    assert_eq!(bench.apply(&taking(Some(THEIRS))).await, Applied::Done, "taken over once");
    assert_eq!(bench.fingerprint().await, taken, "nothing was changed");
    bench.roll_out(&bench.order(OURS, 2, Sample::Another)).await;
    Ok(())
}

/// A new revision is a rollout of its own, though its image be the one that runs.
pub async fn apply_same_image_rolls_again(cluster: &dyn Clusters) -> Can {
    let bench = Bench::prepared(cluster, "apply-same").await;
    let one = bench.order(OURS, 1, Sample::Good);
    let prepared = bench.fingerprint().await;
    bench.roll_out(&one).await;
    let first = bench.fingerprint().await;
    assert_ne!(first, prepared, "the first revision rolls, though the image ran before it");
    let two = bench.order(OURS, 2, Sample::Good);
    bench.roll_out(&two).await;
    assert_ne!(bench.fingerprint().await, first);
    let seen = bench.observe(&one).await;
    assert_eq!(seen.stamp, Some(two.stamp));
    assert!(!is_complete(&seen), "what runs is the second revision: {seen:?}");
    Ok(())
}

/// A target that is missing is created if its settings say so; else the order is refused.
pub async fn apply_missing_is_created_or_refused(cluster: &dyn Clusters) -> Can {
    let gone = Bench::registered(cluster, cluster.app("apply-create")).await;
    let adopted = RolloutSpec { adopted: true, ..gone.order(OURS, 1, Sample::Good) };
    assert_refused(&gone.apply(&adopted).await, Reason::TARGET_MISSING);
    assert!(matches!(gone.validate(false).await, Validated::Create { .. }), "nothing was created");

    let bench = gone;
    let order = bench.order(OURS, 2, Sample::Good);
    bench.roll_out(&order).await;
    let (owner, image) = bench.stored().await;
    assert_eq!(owner, Some(OURS));
    assert!(is_same(&image, &order.image), "{image} is not {}", order.image);
    let made = bench.fingerprint().await;
    assert_eq!(bench.apply(&order).await, Applied::Done);
    assert_eq!(bench.fingerprint().await, made, "created once");
    bench.roll_out(&bench.order(OURS, 3, Sample::Another)).await;
    Ok(())
}

/// An adopted order leaves the workload as it is, and sees what runs.
pub async fn adopt_changes_nothing(cluster: &dyn Clusters) -> Can {
    let bench = Bench::prepared(cluster, "adopt").await;
    let before = (bench.fingerprint().await, bench.stored().await);
    let order = RolloutSpec { adopted: true, ..bench.order(OURS, 1, Sample::Good) };
    assert_eq!(bench.apply(&order).await, Applied::Done);
    let seen = bench.until_complete(&order).await;
    assert_eq!((seen.stamp, seen.trouble), (None, None));
    assert_eq!((bench.fingerprint().await, bench.stored().await), before);
    let next = bench.order(OURS, 2, Sample::Another);
    bench.roll_out(&next).await;
    let seen = bench.observe(&order).await;
    assert!(!is_complete(&seen), "what was adopted runs no more: {seen:?}");
    assert_eq!(seen.stamp, Some(next.stamp));
    Ok(())
}

#[track_caller]
fn assert_refused(answer: &Applied, code: &str) {
    let Applied::Refused { reason, message } = answer else { panic!("not refused: {answer:?}") };
    assert_eq!(reason.as_str(), code, "{message}");
    assert!(!message.is_empty(), "a person is told why");
}
