//! Reads of entries that waiting calls share: many callers wait for one deploy, and wake at the same time.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared, WeakShared},
};

use crate::{
    app::AppUid,
    deploy::{Deploy, Revision},
    ledger::AppState,
    service::{Outcome, read::shared_values::remove_unused},
};

/// An entry, and its app's state at the same time.
type Entry = (Arc<AppState>, Deploy);
type Reading = BoxFuture<'static, Outcome<Entry>>;

/// The reads that are under way.
#[derive(Default)]
pub(crate) struct SharedReads(Mutex<BTreeMap<(AppUid, Revision), WeakShared<Reading>>>);

/// A read of an entry.
pub(crate) enum SharedRead {
    /// Begun for this caller.
    Begun(Shared<Reading>),
    /// Begun earlier, so that it may miss what has happened since.
    Joined(Shared<Reading>),
}

impl SharedReads {
    /// Joins the read of this entry that is under way, or begins one.
    pub(crate) fn join(
        &self,
        entry: (AppUid, Revision),
        read: impl Future<Output = Outcome<Entry>> + Send + 'static,
    ) -> SharedRead {
        let mut reads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let under_way = reads.get(&entry).and_then(WeakShared::upgrade);
        if let Some(read) = under_way.filter(|read| read.peek().is_none()) {
            return SharedRead::Joined(read);
        }
        remove_unused(&mut reads, |read| read.upgrade().is_some());
        let read = read.boxed().shared();
        reads.extend(read.downgrade().map(|weak| (entry, weak)));
        SharedRead::Begun(read)
    }
}
