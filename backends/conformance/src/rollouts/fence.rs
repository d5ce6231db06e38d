//! Never backwards, and never into another registration's hands.

use std::{future::poll_fn, pin::pin, task::Poll};

use rollhook_core::{
    app::{AppUid, Target},
    deploy::Reason,
    ports::Applied,
};

use super::{Bench, OURS, THEIRS, assert_refused, is_complete, is_same};
use crate::{
    clusters::{Clusters, Sample},
    report::Can,
};

/// How many races are run, and how often a call is dropped, each time a little later.
const ROUNDS: u64 = 6;

/// An order below the target's deploy id changes nothing, and learns of the newer one.
pub async fn apply_older_is_refused(cluster: &dyn Clusters) -> Can {
    let bench = Bench::new(cluster, "apply-older").await;
    let older = bench.order(OURS, 1, Sample::Good)?;
    let newer = bench.order(OURS, 2, Sample::Another)?;
    assert_eq!(bench.apply(&newer).await, Applied::Done);
    let applied = bench.fingerprint().await;
    assert_eq!(bench.apply(&older).await, Applied::Newer(newer.id.revision), "while the newer one is under way");
    bench.until_complete(&newer).await;
    assert_eq!(bench.apply(&older).await, Applied::Newer(newer.id.revision));
    assert_eq!(bench.fingerprint().await, applied, "nothing was changed");
    let seen = bench.observe(&older).await;
    assert!(!is_complete(&seen), "{seen:?}");
    assert_eq!(seen.deploy, Some(newer.id), "the watcher of the older one learns of the newer");

    let failing = bench.order(OURS, 3, Sample::Missing)?;
    assert_eq!(bench.apply(&failing).await, Applied::Done);
    assert_eq!(bench.apply(&newer).await, Applied::Newer(failing.id.revision), "a newer one that fails is newer");
    let adopted = older.with(|spec| spec.adopted = true);
    assert_eq!(bench.apply(&adopted).await, Applied::Newer(failing.id.revision));
    Ok(())
}

/// The deploy id is kept with the target: a process that was started since knows it.
pub async fn apply_older_is_refused_after_a_restart(cluster: &dyn Clusters) -> Can {
    let bench = Bench::new(cluster, "apply-restart").await;
    let older = bench.order(OURS, 1, Sample::Good)?;
    let newer = bench.order(OURS, 2, Sample::Another)?;
    bench.roll_out(&newer).await;
    let applied = bench.fingerprint().await;

    let restarted = bench.another().await?;
    let answer = restarted.apply(&older).await;
    assert_eq!(answer, Applied::Newer(newer.id.revision), "the restarted driver does not know the deploy id");
    assert_eq!(restarted.apply(&newer).await, Applied::Done);
    assert_eq!(restarted.fingerprint().await, applied, "nothing was changed");
    let seen = restarted.observe(&newer).await;
    assert!(is_complete(&seen) && seen.deploy == Some(newer.id), "{seen:?}");
    Ok(())
}

/// Two processes apply a deploy and the one before it at once; whichever begins, the newer one stays.
pub async fn apply_race_ends_at_the_newest(cluster: &dyn Clusters) -> Can {
    let bench = Bench::new(cluster, "apply-race").await;
    let rival = bench.another().await?;
    for round in 0..ROUNDS {
        let older = bench.order(OURS, 2 * round + 1, Sample::Good)?;
        let newer = bench.order(OURS, 2 * round + 2, Sample::Another)?;
        // Both take part in both roles, and each is asked first in turn.
        let (one, two) = if round % 4 < 2 { (&bench, &rival) } else { (&rival, &bench) };
        let (late, won) = if round % 2 == 0 {
            futures_util::join!(one.apply(&older), two.apply(&newer))
        } else {
            let (won, late) = futures_util::join!(two.apply(&newer), one.apply(&older));
            (late, won)
        };
        assert_eq!(won, Applied::Done);
        assert!(matches!(late, Applied::Done | Applied::Newer(_)), "{late:?}");
        let (seen, image) = (bench.observe(&newer).await, bench.stored().await.1);
        assert_eq!(seen.deploy, Some(newer.id), "the older deploy overtook the newer one");
        assert!(is_same(&image, &newer.image), "the older deploy overtook the newer one: {image} runs");
        if round + 1 == ROUNDS {
            bench.until_complete(&newer).await;
        }
    }
    Ok(())
}

/// A call that was dropped somewhere in the middle has happened or not; the next one makes it good.
pub async fn apply_dropped_is_made_good(cluster: &dyn Clusters) -> Can {
    let bench = Bench::new(cluster, "apply-dropped").await;
    for revision in 1..=ROUNDS {
        let sample = if revision % 2 == 0 { Sample::Good } else { Sample::Another };
        let order = bench.order(OURS, revision, sample)?;
        dropped_after(revision, bench.rollouts.apply(&order)).await;
        assert_eq!(bench.apply(&order).await, Applied::Done, "after a call that was dropped");
        let (owner, image) = bench.stored().await;
        assert_eq!(owner, Some(OURS));
        assert!(is_same(&image, &order.image), "{image} is not {}", order.image);
        if revision == ROUNDS {
            bench.until_complete(&order).await;
        }
    }
    let older = bench.order(OURS, 1, Sample::Another)?;
    assert!(matches!(bench.apply(&older).await, Applied::Newer(_)));
    Ok(())
}

/// Polls the call this often, whenever it has something to do, and drops it.
async fn dropped_after<T>(polls: u64, call: impl Future<Output = T>) {
    let mut call = pin!(call);
    let mut left = polls;
    poll_fn(|context| {
        if left == 0 || call.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        left -= 1;
        Poll::Pending
    })
    .await;
}

/// The deploy id of another registration is not overwritten, unless the target names just that one.
pub async fn apply_foreign_is_refused(cluster: &dyn Clusters) -> Can {
    let bench = Bench::new(cluster, "apply-foreign").await;
    bench.roll_out(&bench.order(THEIRS, 5, Sample::Another)?).await;
    let applied = bench.fingerprint().await;
    let order = bench.order(OURS, 1, Sample::Good)?;
    let taking = |take_over: Option<AppUid>| {
        order.clone().with(|spec| spec.target = Target { take_over, ..order.target.clone() })
    };
    assert_refused(&bench.apply(&taking(None)).await, Reason::FOREIGN_TARGET);
    assert_refused(&bench.apply(&taking(Some(OURS))).await, Reason::FOREIGN_TARGET);
    assert_refused(&bench.apply(&bench.order(OURS, 9, Sample::Good)?).await, Reason::FOREIGN_TARGET);
    assert_eq!(bench.fingerprint().await, applied, "nothing was changed");
    let seen = bench.observe(&taking(None)).await;
    assert!(!is_complete(&seen), "{seen:?}");

    bench.roll_out(&taking(Some(THEIRS))).await;
    let taken = bench.fingerprint().await;
    assert_refused(&bench.apply(&bench.order(THEIRS, 6, Sample::Another)?).await, Reason::FOREIGN_TARGET);
    assert_eq!(bench.apply(&taking(Some(THEIRS))).await, Applied::Done, "taken over once");
    assert_eq!(bench.fingerprint().await, taken, "nothing was changed");
    bench.roll_out(&bench.order(OURS, 2, Sample::Another)?).await;
    Ok(())
}
