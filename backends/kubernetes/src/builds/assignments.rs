//! Joins the assignments of build slots that builds of this process ask for at the same time: a change of one build wakes
//! all that wait, and each assignment reads all of them.

use std::sync::atomic::{AtomicU64, Ordering};

use rollhook_core::Result;
use tokio::sync::Mutex;

/// The assignments of a process, of which one is made at a time.
#[derive(Default)]
pub(super) struct Assignments {
    /// The number of assignments that were begun.
    begun: AtomicU64,
    /// The number of the newest assignment that succeeded.
    succeeded: Mutex<u64>,
}

impl Assignments {
    /// Makes an assignment, unless one that began after this call has succeeded meanwhile.
    pub(super) async fn join(&self, assignment: impl Future<Output = Result<()>>) -> Result<()> {
        let before = self.begun.load(Ordering::SeqCst);
        let mut succeeded = self.succeeded.lock().await;
        if *succeeded > before {
            return Ok(());
        }
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        assignment.await?;
        *succeeded = number;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;
    use rollhook_core::Error;

    use super::*;

    #[tokio::test]
    async fn builds_that_wait_at_the_same_time_share_an_assignment() {
        let assignments = Assignments::default();
        let made = AtomicU64::new(0);
        let assign = || async {
            made.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            Ok(())
        };
        for result in join_all((0..100).map(|_| assignments.join(assign()))).await {
            result.unwrap();
        }
        // The first one, and one for all that asked while it was under way.
        assert!(made.load(Ordering::SeqCst) <= 2, "{made:?}");
        assignments.join(assign()).await.unwrap();
        assert!(made.load(Ordering::SeqCst) >= 2, "a later call is not answered by an earlier assignment");
    }

    #[tokio::test]
    async fn failed_assignment_is_no_others() {
        let assignments = Assignments::default();
        let made = AtomicU64::new(0);
        let assign = || async {
            let first = made.fetch_add(1, Ordering::SeqCst) == 0;
            tokio::task::yield_now().await;
            if first { Err(Error::unavailable("the cluster", "no answer")) } else { Ok(()) }
        };
        let results = join_all((0..3).map(|_| assignments.join(assign()))).await;
        assert_eq!(results.iter().filter(|result| result.is_err()).count(), 1);
        assert_eq!(made.load(Ordering::SeqCst), 2);
    }
}
