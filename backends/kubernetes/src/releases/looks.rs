//! The looks at runs that all who read their logs share.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex as SyncMutex, Weak},
    time::Duration,
};

use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use rollhook_core::{Result, ports::RunId};
use tokio::{sync::Mutex, time::Instant};

use crate::lock;

/// The shortest time from the begin of a look at a run to that of the next one.
const EVERY: Duration = Duration::from_millis(500);

/// The Job of a run and the pods that were kept; `None` if there is no Job.
pub(super) type Look = Option<Arc<(Job, Vec<Pod>)>>;

/// The last look at a run, and the time at which it began.
type Last = Mutex<Option<(Instant, Result<Look>)>>;

/// The last looks at the runs whose logs are being read.
#[derive(Default)]
pub(super) struct Looks(SyncMutex<HashMap<RunId, Weak<Last>>>);

impl Looks {
    /// Returns a look at a run that began after this call: an older one may be of the time before the run's end. Those
    /// who come meanwhile share the next one.
    pub(super) async fn of(&self, run: RunId, look: impl Future<Output = Result<Look>>) -> Result<Look> {
        let came = Instant::now();
        let last = self.last(run);
        let mut last = last.lock().await;
        if let Some((begun, seen)) = &*last {
            if *begun >= came {
                return seen.clone();
            }
            tokio::time::sleep_until(*begun + EVERY).await;
        }
        let begun = Instant::now();
        let seen = look.await;
        *last = Some((begun, seen.clone()));
        seen
    }

    fn last(&self, run: RunId) -> Arc<Last> {
        let mut known = lock(&self.0);
        if let Some(last) = known.get(&run).and_then(Weak::upgrade) {
            return last;
        }
        known.retain(|_, last| last.strong_count() > 0);
        let last = Arc::default();
        known.insert(run, Arc::downgrade(&last));
        last
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::future::join_all;
    use rollhook_core::{app::AppUid, deploy::Revision, ports::DeployId};

    use super::*;

    fn run(revision: u64) -> RunId {
        DeployId { app: AppUid::from_bits(7), revision: Revision::new(revision).unwrap() }.into()
    }

    #[tokio::test(start_paused = true)]
    async fn callers_at_the_same_time_share_looks_and_have_none_from_before_they_came() {
        let (looks, count, begun) = (Looks::default(), Cell::new(0), Instant::now());
        let read = async || {
            let came = Instant::now();
            let mut seen_at = None;
            let look = async {
                count.set(count.get() + 1);
                seen_at = Some(Instant::now());
                tokio::time::sleep(Duration::from_millis(20)).await;
                Ok(None)
            };
            looks.of(run(3), look).await.unwrap();
            assert!(seen_at.is_none_or(|at| at >= came));
        };
        join_all((0..200).map(|_| read())).await;
        assert!(count.get() <= 2, "{} looks for 200 calls", count.get());
        count.set(0);
        join_all((0..200).map(|_| async {
            for _ in 0..5 {
                read().await;
            }
        }))
        .await;
        let most = 2 + begun.elapsed().as_millis() / EVERY.as_millis();
        assert!(count.get() <= most, "{} looks for 1000 calls", count.get());
    }

    #[tokio::test(start_paused = true)]
    async fn look_that_is_given_up_holds_up_no_other_and_runs_are_forgotten() {
        let looks = Looks::default();
        let given_up = looks.of(run(3), std::future::pending());
        assert!(tokio::time::timeout(Duration::from_secs(1), given_up).await.is_err());
        assert!(looks.of(run(3), async { Ok(None) }).await.unwrap().is_none());
        assert!(looks.of(run(4), async { Ok(None) }).await.unwrap().is_none());
        assert_eq!(lock(&looks.0).len(), 1);
    }
}
