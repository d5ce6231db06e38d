//! The lists of histories that are under way at once: each holds its entries until it is answered.

use crate::{
    service::{Authorized, Deployer},
    slots::{Slot, Slots},
};

/// The most entries of a small list: the number that clients ask for by default.
const SMALL: usize = 20;

/// The slots of lists, in turns of the environments.
pub(crate) struct HistoryLists {
    small: Slots,
    large: Slots,
}

impl Default for HistoryLists {
    fn default() -> Self {
        Self { small: Slots::with_share(16, 4), large: Slots::with_share(2, 1) }
    }
}

impl Deployer {
    /// Waits for the turn to list so many entries of an app's history, which lasts until the answer is dropped: one large
    /// list of an environment at a time, two in all, and more of the small ones. Hold it while [`Deployer::history`] and
    /// [`Deployer::restorations`] are called and what they return is rendered, so that many callers at once hold the
    /// entries of a few.
    pub async fn history_turn(&self, access: &Authorized, entries: usize) -> Slot {
        let slots = if entries <= SMALL { &self.history_lists.small } else { &self.history_lists.large };
        slots.acquire(&access.id.namespace).await
    }
}
