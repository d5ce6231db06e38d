//! One list of the records of a kind for all callers that wait for it.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use rollhook_core::Result;
use rollhook_management::ports::RecordKind;

use crate::{lock, store::crd::RecordObject};

/// The objects of a kind; `None` if there are more than one list may show.
type Listed = Option<Arc<[RecordObject]>>;

/// Shared lists. A caller is answered by a list that began after its call, so that it is as good as its own; those that wait
/// for the same kind share it, so that a burst of calls costs two lists.
#[derive(Default)]
pub(super) struct SharedLists {
    /// Numbers calls and lists in the order in which they began.
    next: AtomicU64,
    kinds: Mutex<BTreeMap<RecordKind, Arc<tokio::sync::Mutex<Option<LastList>>>>>,
}

/// The last list of a kind that succeeded.
struct LastList {
    begun: u64,
    listed: Listed,
}

impl SharedLists {
    /// Lists a kind, unless a list that began after this call has been made meanwhile.
    pub(super) async fn list(&self, kind: RecordKind, list: impl AsyncFnOnce() -> Result<Listed>) -> Result<Listed> {
        let called = self.number();
        let last = lock(&self.kinds).entry(kind).or_default().clone();
        let mut last = last.lock().await;
        if let Some(last) = last.as_ref().filter(|last| last.begun > called) {
            return Ok(last.listed.clone());
        }
        let begun = self.number();
        *last = None;
        let listed = list().await?;
        *last = Some(LastList { begun, listed: listed.clone() });
        Ok(listed)
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use futures_util::future::join_all;
    use rollhook_core::Error;

    use super::*;

    #[tokio::test]
    async fn burst_of_callers_costs_two_lists() {
        let (lists, made) = (SharedLists::default(), AtomicUsize::new(0));
        let list = async || {
            made.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            Ok(Some(Arc::from([])))
        };
        let all = join_all((0..100).map(|_| lists.list(RecordKind::EnvironmentLock, list))).await;
        assert!(all.iter().all(|listed| listed.as_ref().is_ok_and(|listed| listed.is_some())));
        assert_eq!(made.load(Ordering::SeqCst), 2);
        lists.list(RecordKind::EnvironmentLock, list).await.unwrap();
        assert_eq!(made.load(Ordering::SeqCst), 3, "a later caller lists anew");
    }

    #[tokio::test]
    async fn list_that_failed_answers_nobody_else() {
        let lists = SharedLists::default();
        let failed = lists.list(RecordKind::ApiToken, async || Err(Error::unavailable("away", "test"))).await;
        assert!(failed.is_err());
        assert!(lists.list(RecordKind::ApiToken, async || Ok(None)).await.unwrap().is_none());
    }
}
