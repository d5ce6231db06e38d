//! One read for all callers that wait for it.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use rollhook_core::{Error, Result, error};
use tokio::sync::Mutex;

/// Shared reads of one object. A caller is answered by a read that began after its call, so that it is as good as its
/// own; callers that wait at the same time share it, so that a burst of calls costs two reads.
pub(crate) struct Shared<T> {
    /// The number of the read that began last.
    begun: Arc<AtomicU64>,
    /// The read that ended last. Held while one runs.
    ended: Arc<Mutex<Option<Ended<T>>>>,
}

struct Ended<T> {
    number: u64,
    outcome: Result<T, Arc<Error>>,
}

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self { begun: Arc::default(), ended: Arc::new(Mutex::new(None)) }
    }
}

impl<T: Clone + Send + 'static> Shared<T> {
    /// The outcome of a read that began after this call: another caller's, or `read`, once it is its `turn`, which
    /// lasts until the read has ended.
    ///
    /// The read is a task of its own, and ends neither early nor forgotten if the caller hangs up: else callers that
    /// hang up would cost one read each.
    pub(crate) async fn read<Turn: Send>(
        &self,
        turn: impl Future<Output = Turn> + Send + 'static,
        read: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let asked = self.begun.load(Ordering::SeqCst);
        let mut ended = self.ended.clone().lock_owned().await;
        if let Some(read) = ended.as_ref().filter(|read| read.number > asked) {
            return read.outcome.clone().map_err(|error| again(&error));
        }
        let begun = self.begun.clone();
        let reads = tokio::spawn(async move {
            let _turn = turn.await;
            let number = begun.fetch_add(1, Ordering::SeqCst) + 1;
            let outcome = read.await.map_err(Arc::new);
            *ended = Some(Ended { number, outcome: outcome.clone() });
            outcome
        });
        let outcome = reads.await.map_err(|error| Error::unavailable("a read ended before its time", error))?;
        outcome.map_err(|error| again(&error))
    }
}

/// The same failure for another caller. Errors cannot be cloned; the text has the chain of causes.
pub(crate) fn again(failure: &Arc<Error>) -> Error {
    let source = std::error::Error::source(failure.as_ref());
    let cause = source.map(|source| error::Cause::from(error::chain(source)));
    match failure.as_ref() {
        Error::NotFound(entity) => Error::NotFound(*entity),
        Error::Conflict(entity) => Error::Conflict(*entity),
        Error::Denied { what, .. } => Error::Denied { what: what.clone(), cause },
        Error::Invalid { what, .. } => Error::Invalid { what: what.clone(), cause },
        Error::Unavailable { what, .. } => Error::Unavailable { what: what.clone(), cause },
        Error::Corrupt { what, .. } => Error::Corrupt { what: what.clone(), cause },
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use futures_util::{FutureExt, future::join_all};
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn callers_during_a_read_share_the_next() {
        let shared = Shared::default();
        let reads = Arc::<AtomicU64>::default();
        let count = || {
            let reads = reads.clone();
            async move { Ok(reads.fetch_add(1, Ordering::SeqCst)) }
        };
        let (end, ends) = oneshot::channel::<()>();
        let first = async {
            let counted = count();
            let slow = async {
                ends.await.unwrap();
                counted.await
            };
            shared.read(ready(()), slow).await.unwrap()
        };
        let later = async {
            tokio::task::yield_now().await;
            let waiting = join_all((0..10).map(|_| shared.read(ready(()), count())));
            let (answers, ()) = futures_util::join!(waiting, async {
                tokio::task::yield_now().await;
                end.send(()).unwrap();
            });
            answers.into_iter().map(Result::unwrap).collect::<Vec<_>>()
        };
        let (first, later) = futures_util::join!(first, later);
        assert_eq!((first, later), (0, vec![1; 10]));
    }

    #[tokio::test]
    async fn caller_afterwards_reads_anew() {
        let shared = Shared::default();
        assert_eq!(shared.read(ready(()), ready(Ok(1))).await.unwrap(), 1);
        assert_eq!(shared.read(ready(()), ready(Ok(2))).await.unwrap(), 2);
    }

    #[tokio::test]
    async fn read_of_a_caller_that_hangs_up_serves_others() {
        let shared = Shared::default();
        let (end, ends) = oneshot::channel::<()>();
        let (ended, has_ended) = oneshot::channel::<()>();
        let slow = async move {
            ends.await.unwrap();
            ended.send(()).unwrap();
            Ok(1)
        };
        assert!(shared.read(ready(()), slow).now_or_never().is_none());
        let next = shared.read(ready(()), ready(Ok(2)));
        end.send(()).unwrap();
        has_ended.await.unwrap();
        assert_eq!(next.await.unwrap(), 2, "who asked after it had begun");
    }

    #[test]
    fn failure_is_the_same_for_each_caller() {
        let failure = Arc::new(Error::unavailable("the store is away", "connection refused"));
        assert_eq!(again(&failure).chain(), failure.chain());
        assert!(again(&failure).is_unavailable());
    }
}
