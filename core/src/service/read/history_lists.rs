//! The lists of histories that are under way at once: each holds its entries until it is answered.

use crate::{
    app::Namespace,
    service::{Authorized, Deployer},
    slots::{Slot, Slots},
};

/// The most entries of a small list: the number that clients ask for by default.
const SMALL: usize = 20;

/// The slots of reads of archives, in turns of the environments. Those whose answer decides about a deploy wait for no list of
/// a viewer.
pub(crate) struct HistoryLists {
    small: Slots,
    large: Slots,
    /// The first pages of searches for a rollback's target.
    rollbacks: Slots,
    /// The newest entries that pushes of git hosts are compared with.
    pushes: Slots,
    /// The apps of an environment among which the release commands of a group take turns.
    groups: Slots,
    /// The variables of a configuration that a change, a promotion or a rollback decides by.
    decisions: Slots,
    /// The variables of a configuration that is shown.
    configurations: Slots,
}

impl Default for HistoryLists {
    fn default() -> Self {
        let few = || Slots::with_share(16, 4);
        Self {
            small: few(),
            large: Slots::with_share(2, 1),
            rollbacks: few(),
            pushes: few(),
            groups: Slots::with_share(2, 1),
            decisions: Slots::with_share(4, 2),
            configurations: Slots::with_share(4, 1),
        }
    }
}

impl Deployer {
    /// Waits for the turn to list so many entries of an app's history, which lasts until the answer is dropped: one large
    /// list of an environment at a time, two in all, and more of the small ones. Hold it while [`Deployer::history`] and
    /// [`Deployer::restorations`] are called and what they return is rendered, so that many callers at once hold the
    /// entries of a few. [`Deployer::restoration`], [`Deployer::wait`] and [`Deployer::warning`] wait for one of their own: call them without.
    pub async fn history_turn(&self, access: &Authorized, entries: usize) -> Slot {
        let namespace = &access.id.namespace;
        if entries <= SMALL { self.small_turn(namespace).await } else { self.long_turn(namespace).await }
    }

    /// Waits for the turn to show the configuration of an app, which lasts until the answer is dropped. Hold it while
    /// [`Deployer::configuration`] is called and what it returns is rendered.
    pub async fn configuration_turn(&self, access: &Authorized) -> Slot {
        self.history_lists.configurations.acquire(&access.id.namespace).await
    }

    /// Waits for the turn to read the variables by which a change, a promotion or a rollback is decided.
    pub(crate) async fn variables_turn(&self, access: &Authorized) -> Slot {
        self.history_lists.decisions.acquire(&access.id.namespace).await
    }

    /// Waits for the turn to read the apps of an environment, among which a release command waits for its turn.
    pub(crate) async fn group_turn(&self, namespace: &Namespace) -> Slot {
        self.history_lists.groups.acquire(namespace).await
    }

    /// Waits for the turn to read as much as a long list has of an environment.
    pub(crate) async fn long_turn(&self, namespace: &Namespace) -> Slot {
        self.history_lists.large.acquire(namespace).await
    }

    /// Waits for the turn to read the few entries of an archive that an answer about an app of this namespace needs.
    pub(crate) async fn small_turn(&self, namespace: &Namespace) -> Slot {
        self.history_lists.small.acquire(namespace).await
    }

    /// Waits for the turn to read the first page of a search for a rollback's target.
    pub(crate) async fn rollback_turn(&self, access: &Authorized) -> Slot {
        self.history_lists.rollbacks.acquire(&access.id.namespace).await
    }

    /// Waits for the turn to read the entries that a push is compared with.
    pub(crate) async fn push_turn(&self, access: &Authorized) -> Slot {
        self.history_lists.pushes.acquire(&access.id.namespace).await
    }
}
