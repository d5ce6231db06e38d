//! How calls behave, whatever they are about: they answer in time, and a hint is only a hint.

use std::{
    future::poll_fn,
    panic::AssertUnwindSafe,
    pin::{Pin, pin},
    task::Poll,
    thread,
    time::Duration,
};

use futures_util::{
    FutureExt,
    future::{Either, select},
};
use rollhook_core::{
    Result,
    ports::{ANSWER_WITHIN, Applied, RolloutSpec},
};

use super::{Bench, OURS, is_complete};
use crate::{
    clusters::{Clusters, Sample},
    report::Can,
};

/// How often the cluster's time passes while a call may last.
const PAUSES: usize = ANSWER_WITHIN.as_millis().div_ceil(Duration::from_millis(250).as_millis()) as usize;
/// How often is looked, each time for five milliseconds, for the answer of a call that does not wait for the cluster.
const MORE_LOOKS: usize = 200;

/// Every call answers within [`ANSWER_WITHIN`]: what takes longer goes on after it.
pub async fn calls_answer_in_time(cluster: &dyn Clusters) -> Can {
    let bench = Bench::new(cluster, "in-time").await;
    let rollouts = &bench.rollouts;
    in_time(&bench, "identity", async || rollouts.identity().await).await;
    in_time(&bench, "validate", async || rollouts.validate(&bench.request()).await).await;
    for (revision, sample) in [(1, Sample::Another), (2, Sample::Missing), (3, Sample::Crashing)] {
        let order = bench.order(OURS, revision, sample)?;
        let applied = in_time(&bench, "apply", async || rollouts.apply(&order).await).await;
        assert_eq!(applied, Applied::Done);
        let seen = in_time(&bench, "observe", async || rollouts.observe(&order).await).await;
        in_time(&bench, "evidence", async || rollouts.evidence(&order, seen.failure.as_ref()).await).await;
    }
    in_time(&bench, "forget", async || rollouts.forget(&bench.app()).await).await;
    Ok(())
}

/// Waiting for a change does nothing, ends by being dropped, and never panics.
pub async fn changed_is_only_a_hint(cluster: &dyn Clusters) -> Can {
    let bench = Bench::new(cluster, "changed").await;
    let order = bench.order(OURS, 1, Sample::Another)?;
    wait_a_little(&bench, &order, "before it was applied").await;
    assert_eq!(bench.apply(&order).await, Applied::Done);
    wait_a_little(&bench, &order, "while it is under way").await;
    bench.until_complete(&order).await;
    let complete = bench.fingerprint().await;
    wait_a_little(&bench, &order, "once it is complete").await;
    let failing = bench.order(OURS, 2, Sample::Missing)?;
    wait_a_little(&bench, &failing, "of a deploy that is not there yet").await;
    assert_eq!(bench.fingerprint().await, complete, "waiting for a change has changed the target");
    let seen = bench.observe(&order).await;
    assert!(is_complete(&seen), "waiting for a change has changed the target: {seen:?}");
    Ok(())
}

/// Waits for a change for a second, and once more after each hint.
async fn wait_a_little(bench: &Bench<'_>, order: &RolloutSpec, when: &str) {
    let waiting = || AssertUnwindSafe(async { bench.rollouts.changed(order).await }).catch_unwind().boxed();
    let mut changed = waiting();
    for _ in 0..4 {
        if let Either::Left((ended, _)) = select(changed.as_mut(), bench.cluster.pause()).await {
            assert!(ended.is_ok(), "changed panics {when}: a hint must end or wait, whatever the target is like");
            changed = waiting();
        }
    }
}

/// Makes a call until it does not fail for a moment's reason. Each time, it must answer in time.
async fn in_time<T>(bench: &Bench<'_>, name: &str, call: impl AsyncFn() -> Result<T>) -> T {
    bench
        .patiently(async || {
            let answer = answer(bench.cluster, pin!(call())).await;
            answer.unwrap_or_else(|| panic!("{name} does not answer within {} s", ANSWER_WITHIN.as_secs()))
        })
        .await
}

/// Returns the answer of a call; `None` if the time for it passed without one.
#[allow(clippy::disallowed_methods, reason = "no clock moves what a file or a socket takes")]
async fn answer<T>(cluster: &dyn Clusters, mut call: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    for _ in 0..PAUSES {
        if let Either::Left((answer, _)) = select(call.as_mut(), cluster.pause()).await {
            return Some(answer);
        }
    }
    // Where a cluster's time passes by itself, the call may still wait for a file or a socket.
    for _ in 0..MORE_LOOKS {
        if let Some(answer) = call.as_mut().now_or_never() {
            return Some(answer);
        }
        thread::sleep(Duration::from_millis(5));
        yield_now().await;
    }
    None
}

/// Lets a runtime do what else there is to do.
async fn yield_now() {
    let mut has_yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
