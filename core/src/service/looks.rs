//! Looks at entries that waiting calls share: many callers wait for one deploy, and wake at the same time.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared, WeakShared},
};

use super::Outcome;
use crate::{
    app::AppUid,
    deploy::{Deploy, Revision},
    ledger::AppState,
};

/// An entry, and its app's state at the same time.
type Entry = (Arc<AppState>, Deploy);
type Reading = BoxFuture<'static, Outcome<Entry>>;

/// The looks that are under way.
#[derive(Default)]
pub(super) struct Looks(Mutex<HashMap<(AppUid, Revision), WeakShared<Reading>>>);

/// A look at an entry.
pub(super) enum Look {
    /// Begun for this caller.
    Begun(Shared<Reading>),
    /// Begun earlier, so that it may miss what has happened since.
    Joined(Shared<Reading>),
}

impl Looks {
    /// Joins the look at this entry that is under way, or begins one.
    pub(super) fn look(
        &self,
        entry: (AppUid, Revision),
        read: impl Future<Output = Outcome<Entry>> + Send + 'static,
    ) -> Look {
        let mut looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let under_way = looks.get(&entry).and_then(WeakShared::upgrade);
        if let Some(look) = under_way.filter(|look| look.peek().is_none()) {
            return Look::Joined(look);
        }
        // Looks that ended are removed when the number has doubled.
        if looks.len() >= 64 && looks.len().is_power_of_two() {
            looks.retain(|_, look| look.upgrade().is_some());
        }
        let look = read.boxed().shared();
        looks.extend(look.downgrade().map(|weak| (entry, weak)));
        Look::Begun(look)
    }
}
