//! How a deploy ended: waiting for its end, and its restore.

use std::{collections::BTreeMap, time::Duration};

use futures_util::{FutureExt, select_biased};

use super::queries::POLL;
use crate::{
    deploy::{Deploy, Revision, State},
    ledger::{
        AppState,
        restore::{self, Restoration},
    },
    ports::Page,
    request::Refusal,
    service::{Authorized, Deployer, Outcome},
    slots::Slot,
};

/// The longest wait for the entry of a restore that is owed: the driver of the app accepts it in its next step, unless
/// another process has to take the app over first.
const RESTORE_WITHIN: Duration = Duration::from_secs(5);
/// The number of entries per read, where the restore of an entry is looked for.
const RESTORE_PAGE: usize = 20;

/// The most pages above an entry that are read: a restore begins soon after what it restores.
const ABOVE_PAGES_MAX: usize = 50;

/// The turn in which archives are read.
enum Turn {
    /// The caller has it.
    OfCaller,
    /// It is waited for once the archive has to be read.
    Own(Option<Slot>),
}

/// The entry that a wait ended with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waited {
    /// The awaited entry.
    pub deploy: Deploy,
    /// The entry that finally took its place, if it was superseded.
    pub superseded_by: Option<Deploy>,
    /// The restore of what the last of them left on the cluster, as far as it is; `None` if the store could not be read.
    pub restore: Option<Restoration>,
}

impl Waited {
    /// The entry whose status counts.
    pub fn last(&self) -> &Deploy {
        self.superseded_by.as_ref().unwrap_or(&self.deploy)
    }

    /// The entry of the restore, if it exists: wait for its end as for that of every other deploy.
    pub fn restore(&self) -> Option<&Deploy> {
        self.restore.as_ref()?.entry()
    }
}

impl Deployer {
    /// Waits until the entry, or the one that took its place, has ended, but no longer than `limit`. A rollback that
    /// took its place is not followed.
    ///
    /// A restore that is then owed is waited for until its entry exists, for a few seconds within `limit`; its end is
    /// another wait. A dropped wait has no effect.
    ///
    /// # Errors
    /// As [`Deployer::changed`].
    pub async fn wait(&self, access: &Authorized, revision: Revision, limit: Duration) -> Outcome<Waited> {
        let end = self.ports.clock.elapsed() + limit;
        let deploy = self.ended(access, revision, end).await?;
        let mut waited = Waited { deploy, superseded_by: None, restore: None };
        while let State::Superseded { by, rollback: false, .. } = waited.last().state {
            // A rollback is returned, but its end is not this deploy's.
            // The entry itself was read: it is returned even if its successor cannot be read.
            let Ok(next) = self.ended(access, by, end).await else { break };
            waited.superseded_by = Some(next);
        }
        let left = end.saturating_sub(self.ports.clock.elapsed());
        waited.restore = self.wait_for_restore(access, waited.last(), left.min(RESTORE_WITHIN)).await.ok();
        Ok(waited)
    }

    /// Returns the restore of an entry once its own entry exists or none is owed, or as it is when `limit` is over.
    /// Retries while the store is away.
    ///
    /// # Errors
    /// [`Refusal::AppNotFound`] if the app was deleted; [`Refusal::StoreUnavailable`] if the store is still away then.
    pub async fn wait_for_restore(&self, access: &Authorized, entry: &Deploy, limit: Duration) -> Outcome<Restoration> {
        if !restore::may_follow(entry) {
            return Ok(Restoration::NotOwed);
        }
        let end = self.ports.clock.elapsed() + limit;
        let changes = self.waiters.subscribe(access.uid);
        loop {
            let change = changes.listen();
            let left = end.saturating_sub(self.ports.clock.elapsed());
            let read = async { self.restoration(&self.state(access).await?, entry).await };
            match read.await {
                Ok(Restoration::Owed(_)) | Err(Refusal::StoreUnavailable { .. }) if !left.is_zero() => {}
                other => return other,
            }
            select_biased! {
                () = change.fuse() => {}
                () = self.ports.clock.sleep(POLL.min(left)).fuse() => {}
            }
        }
    }

    /// Returns the restore of an entry, by the app's state that was read with it or later. Where the archive has to be read
    /// for it, the [turn](Deployer::history_turn) of a small list is waited for.
    ///
    /// # Errors
    /// [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn restoration(&self, state: &AppState, entry: &Deploy) -> Outcome<Restoration> {
        let restorations = self.restorations_in(Turn::Own(None), state, std::slice::from_ref(entry)).await?;
        Ok(restorations.into_iter().next().unwrap_or(Restoration::NotOwed))
    }

    /// Returns the restore of each entry of a page that [`Deployer::history`] returned with this state. The archive is read
    /// below and above the page, each once for all entries of the page.
    ///
    /// # Errors
    /// As [`Deployer::restoration`].
    pub async fn restorations(&self, state: &AppState, page: &[Deploy]) -> Outcome<Vec<Restoration>> {
        self.restorations_in(Turn::OfCaller, state, page).await
    }

    async fn restorations_in(&self, mut turn: Turn, state: &AppState, page: &[Deploy]) -> Outcome<Vec<Restoration>> {
        let (mut below, mut above) = (None, None);
        let mut restorations = Vec::with_capacity(page.len());
        for (index, entry) in page.iter().enumerate() {
            if !restore::may_follow(entry) {
                restorations.push(Restoration::NotOwed);
                continue;
            }
            let (newer, older) = (&page[..index], &page[index + 1..]);
            // The entries that have ended are those of the archive.
            let older: Vec<&Deploy> = older.iter().filter(|older| older.is_terminal()).take(RESTORE_PAGE).collect();
            let is_below = !entry.touched && older.len() < RESTORE_PAGE && !older.iter().any(|older| older.touched);
            if is_below && below.is_none() {
                self.begin(&mut turn, state).await;
                below = Some(self.entries_below(state, page).await?);
            }
            let earlier = older.into_iter().chain(below.iter().flatten()).take(RESTORE_PAGE);
            let Some(ended) = restore::left_on_cluster(entry, earlier) else {
                restorations.push(Restoration::NotOwed);
                continue;
            };
            // The first one on the cluster decides.
            if above.is_none() && !newer.iter().any(|later| later.touched) {
                self.begin(&mut turn, state).await;
                above = Some(self.entries_above(state, page).await?);
            }
            let later = newer.iter().rev().chain(above.iter().flatten());
            restorations.push(restore::restoration(state, ended, later));
        }
        Ok(restorations)
    }

    /// Waits for the turn to read the app's archive, unless it has begun.
    async fn begin(&self, turn: &mut Turn, state: &AppState) {
        if let Turn::Own(slot @ None) = turn {
            *slot = Some(self.small_turn(&state.app.id.namespace).await);
        }
    }

    /// Returns archived entries below a page, newest first.
    async fn entries_below(&self, state: &AppState, page: &[Deploy]) -> Outcome<Vec<Deploy>> {
        let oldest = page.last().map(|oldest| oldest.revision);
        let below = Page { before: oldest, succeeded: false, limit: RESTORE_PAGE };
        self.ports.history.page(state.app.uid, below).await.map_err(Refusal::of_store)
    }

    /// Returns the restores above a page and what touched the cluster there, ascending: up to the first that touched the
    /// cluster, or else the last restore.
    async fn entries_above(&self, state: &AppState, page: &[Deploy]) -> Outcome<Vec<Deploy>> {
        let mut later: Vec<Deploy> = Vec::new();
        let Some(mut known) = page.first().map(|newest| newest.revision) else { return Ok(later) };
        for _ in 0..ABOVE_PAGES_MAX {
            if state.last_restore <= Some(known) || later.iter().any(|entry| entry.touched) {
                break;
            }
            let last = (0..RESTORE_PAGE).fold(known, |revision, _| revision.next());
            let page = Page { before: Some(last.next()), succeeded: false, limit: RESTORE_PAGE };
            let archived = self.ports.history.page(state.app.uid, page).await.map_err(Refusal::of_store)?;
            let unfinished = state.unfinished.iter().map(|deploy| Deploy::clone(deploy));
            // An entry that has ended since the state was read is in both: its end counts.
            let read: BTreeMap<_, _> = unfinished.chain(archived).map(|entry| (entry.revision, entry)).collect();
            let counts = |entry: &Deploy| entry.touched || entry.is_restore();
            let is_of_page = |entry: &Deploy| known < entry.revision && entry.revision <= last;
            later.extend(read.into_values().filter(|entry| is_of_page(entry) && counts(entry)));
            known = last;
        }
        Ok(later)
    }

    async fn ended(&self, access: &Authorized, revision: Revision, end: Duration) -> Outcome<Deploy> {
        let mut seen = None;
        loop {
            let left = end.saturating_sub(self.ports.clock.elapsed());
            let entry = match seen {
                None => self.entry(access, revision).await?,
                Some(step) => self.changed(access, revision, step, left).await?.1,
            };
            if entry.is_terminal() || left.is_zero() {
                return Ok(entry);
            }
            seen = Some(entry.step);
        }
    }
}
