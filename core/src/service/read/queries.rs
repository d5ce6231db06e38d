//! Reading apps and entries, and waiting for an entry to change.

use std::{sync::Arc, time::Duration};

use futures_util::{FutureExt, Stream, TryStreamExt, select_biased, stream};

use crate::{
    app::{AppId, AppUid, Namespace},
    deploy::{Deploy, Revision},
    error::Result,
    ledger::{AppState, history},
    ports::{AppPage, AppRef, HistoryStore, ListedApp, Page, UnreadableApp, Version, listed_id},
    request::Refusal,
    service::{Authorized, Deployer, Outcome, Progress, journal::Snapshot, read::SharedRead},
};

/// The interval of reads of a waiting call: hints of changes may be lost.
pub(super) const POLL: Duration = Duration::from_secs(2);
/// The number of apps per page, where more than one page is read.
const ALL_PAGE: usize = 200;
/// The pause before apps are listed again after a failure.
const ALL_RETRY: Duration = Duration::from_secs(5);
/// The number of attempts to read state and archive of the same point in time.
const READS: u32 = 5;

impl Deployer {
    /// Returns the app's state.
    ///
    /// # Errors
    /// [`Refusal::AppNotFound`] if it was deleted; [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn state(&self, access: &Authorized) -> Outcome<AppState> {
        let app = self.journal.load(AppRef::Uid(access.uid)).await.map_err(Refusal::of_store)?;
        app.map(Snapshot::into_state).ok_or_else(|| Refusal::AppNotFound(access.id.clone()))
    }

    /// Returns a part of the list of apps, sorted by namespace and name. An app that cannot be read is logged, and named in
    /// its place.
    ///
    /// # Errors
    /// [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn apps(&self, page: AppPage) -> Outcome<Vec<ListedApp>> {
        let listed = self.ports.history.list(page).await.map_err(Refusal::of_store)?;
        for UnreadableApp { id, error } in listed.iter().filter_map(|listed| listed.as_ref().err()) {
            tracing::error!(app = %id, error = %error.chain(), "reading an app's state failed");
        }
        Ok(listed)
    }

    /// Returns the registration of this name, if there is one.
    ///
    /// # Errors
    /// [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn find_app(&self, id: &AppId) -> Outcome<Option<AppState>> {
        let app = self.journal.load(AppRef::Name(id)).await.map_err(Refusal::of_store)?;
        Ok(app.map(Snapshot::into_state))
    }

    /// Returns an app's state of this version or a higher one as this process remembers it, or else as it is stored;
    /// `None` if the app is unknown.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn state_since(&self, app: AppUid, version: Version) -> Result<Option<Arc<AppState>>> {
        Ok(self.journal.since(app, version).await?.map(|snapshot| snapshot.state))
    }

    /// Returns all apps in pages, for work of the service itself. Asks again, with pauses, while the store is away.
    pub fn all_apps(&self) -> impl Stream<Item = Vec<ListedApp>> {
        stream::unfold(Some(None), async |next| {
            let after: Option<AppId> = next?;
            let page = AppPage::first(ALL_PAGE).after(after);
            let apps = loop {
                match self.ports.history.list(page.clone()).await {
                    Ok(apps) => break apps,
                    Err(error) => tracing::debug!(error = %error.chain(), "listing all apps failed"),
                }
                self.ports.clock.sleep(ALL_RETRY).await;
            };
            Some(following(apps))
        })
    }

    /// Returns the apps of a namespace in pages, until the first failure.
    pub fn apps_of(&self, namespace: &Namespace) -> impl Stream<Item = Outcome<Vec<ListedApp>>> {
        self.listed(AppPage::first(ALL_PAGE).of(namespace.clone())).map_err(Refusal::of_store)
    }

    /// Returns the apps of a namespace as [`Deployer::apps_of`] does, also those that another process has registered just before.
    pub fn fresh_apps_of(&self, namespace: &Namespace) -> impl Stream<Item = Outcome<Vec<ListedApp>>> {
        self.listed(AppPage::first(ALL_PAGE).of(namespace.clone()).fresh(true)).map_err(Refusal::of_store)
    }

    /// Returns the apps of a page and those that follow it, in pages, until the first failure.
    pub(crate) fn listed(&self, page: AppPage) -> impl Stream<Item = Result<Vec<ListedApp>>> {
        stream::try_unfold(Some(page.after.clone()), move |next: Option<Option<AppId>>| {
            let page = page.clone();
            async move {
                let Some(after) = next else { return Ok(None) };
                let page = AppPage { after, limit: ALL_PAGE, ..page };
                Ok(Some(following(self.ports.history.list(page).await?)))
            }
        })
    }

    /// Returns a part of the app's history, newest first and without logs, and the app's state at the same point in time.
    /// Callers who list for others first wait for their [turn](Deployer::history_turn).
    ///
    /// # Errors
    /// [`Refusal::AppNotFound`] if it was deleted; [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn history(&self, access: &Authorized, page: Page) -> Outcome<(AppState, Vec<Deploy>)> {
        for _ in 0..READS {
            let state = self.state(access).await?;
            let archived = self.ports.history.page(access.uid, page).await.map_err(Refusal::of_store)?;
            if let Some(deploys) = history::page(&state, archived, page) {
                return Ok((state, deploys));
            }
        }
        Err(Refusal::Busy)
    }

    /// Returns one entry.
    ///
    /// # Errors
    /// [`Refusal::RevisionNotFound`]; [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn entry(&self, access: &Authorized, revision: Revision) -> Outcome<Deploy> {
        Ok(self.entry_and_state(access, revision).await?.1)
    }

    /// Returns one entry, and the app's state at the same point in time.
    ///
    /// # Errors
    /// As [`Deployer::entry`].
    pub async fn entry_and_state(&self, access: &Authorized, revision: Revision) -> Outcome<(AppState, Deploy)> {
        let state = match self.state(access).await {
            Err(Refusal::AppNotFound(_)) => return Err(Refusal::RevisionNotFound(revision)),
            other => other?,
        };
        let entry = self.entry_of(&state, revision).await?;
        Ok((state, entry))
    }

    /// Returns one entry of an app that was just read.
    pub(crate) async fn entry_of(&self, state: &AppState, revision: Revision) -> Outcome<Deploy> {
        read_entry(&*self.ports.history, state, revision).await
    }

    /// Returns the entry once it is past `seen` steps, or as it is when `limit` is over, and the app's state at the
    /// same point in time. Retries while the store is away.
    ///
    /// # Errors
    /// [`Refusal::RevisionNotFound`], also if the app is deleted meanwhile.
    pub async fn changed(
        &self,
        access: &Authorized,
        revision: Revision,
        seen: u32,
        limit: Duration,
    ) -> Outcome<(AppState, Deploy)> {
        self.changed_until(access, (revision, seen), limit, |_, _| false).await
    }

    /// Returns as [`Deployer::changed`] does, and also once the progress of the entry's step has another
    /// [mark](Progress::mark) than `seen` names, or is another than at the begin of the call.
    ///
    /// # Errors
    /// As [`Deployer::changed`].
    pub async fn progressed(
        &self,
        access: &Authorized,
        revision: Revision,
        (seen, mark): (u32, Option<&str>),
        limit: Duration,
    ) -> Outcome<(AppState, Deploy)> {
        let mut first = None;
        let is_another = |state: &AppState, entry: &Deploy| {
            let progress = self.progress(state, entry);
            let is_unseen = mark
                .zip(progress.as_ref().filter(|progress| progress.is_observed()))
                .is_some_and(|(mark, progress)| progress.mark() != mark);
            is_unseen || *first.get_or_insert_with(|| progress.clone()) != progress
        };
        self.changed_until(access, (revision, seen), limit, is_another).await
    }

    async fn changed_until(
        &self,
        access: &Authorized,
        (revision, seen): (Revision, u32),
        limit: Duration,
        mut is_another: impl FnMut(&AppState, &Deploy) -> bool,
    ) -> Outcome<(AppState, Deploy)> {
        let end = self.ports.clock.elapsed() + limit;
        let changes = self.waiters.subscribe(access.uid);
        loop {
            let change = changes.listen();
            let left = end.saturating_sub(self.ports.clock.elapsed());
            match self.recent_entry(access, revision, seen).await {
                Ok((state, entry))
                    if entry.step > seen || entry.is_terminal() || left.is_zero() || is_another(&state, &entry) =>
                {
                    return Ok((Arc::unwrap_or_clone(state), entry));
                }
                Err(Refusal::StoreUnavailable { .. } | Refusal::StoreRefused(_)) if !left.is_zero() => {}
                Err(refusal) => return Err(refusal),
                Ok(_) => {}
            }
            select_biased! {
                () = change.fuse() => {}
                () = self.ports.clock.sleep(POLL.min(left)).fuse() => {}
            }
        }
    }

    /// Returns the app's state, and the progress of its rollout, once one of them is another than `seen`, or as they
    /// are when `limit` is over. Retries while the store is away.
    ///
    /// # Errors
    /// [`Refusal::AppNotFound`] if the app is deleted meanwhile.
    pub async fn state_changed(
        &self,
        access: &Authorized,
        (seen, seen_progress): (&AppState, Option<&Progress>),
        limit: Duration,
    ) -> Outcome<(AppState, Option<Progress>)> {
        let end = self.ports.clock.elapsed() + limit;
        let changes = self.waiters.subscribe(access.uid);
        loop {
            let change = changes.listen();
            let left = end.saturating_sub(self.ports.clock.elapsed());
            match self.journal.recent(access.uid, POLL).await.map_err(Refusal::of_store) {
                Ok(Some(now)) => {
                    let progress = self.present_progress(&now.state);
                    if *now.state != *seen || progress.as_ref() != seen_progress || left.is_zero() {
                        return Ok((now.into_state(), progress));
                    }
                }
                Ok(None) => return Err(Refusal::AppNotFound(access.id.clone())),
                Err(Refusal::StoreUnavailable { .. } | Refusal::StoreRefused(_)) if !left.is_zero() => {}
                Err(refusal) => return Err(refusal),
            }
            select_biased! {
                () = change.fuse() => {}
                () = self.ports.clock.sleep(POLL.min(left)).fuse() => {}
            }
        }
    }

    /// Returns one entry as this process has committed or just read it, past `seen` steps if it is, and the app's state
    /// of that time. Callers of the same moment share one read.
    pub(super) async fn recent_entry(
        &self,
        access: &Authorized,
        revision: Revision,
        seen: u32,
    ) -> Outcome<(Arc<AppState>, Deploy)> {
        match self.shared_read(access.uid, revision) {
            SharedRead::Begun(read) => read.await,
            SharedRead::Joined(read) => match read.await {
                Ok((_, entry)) if entry.step <= seen && !entry.is_terminal() => {
                    match self.shared_read(access.uid, revision) {
                        SharedRead::Begun(read) | SharedRead::Joined(read) => read.await,
                    }
                }
                other => other,
            },
        }
    }

    fn shared_read(&self, app: AppUid, revision: Revision) -> SharedRead {
        let (journal, history) = (Arc::clone(&self.journal), Arc::clone(&self.ports.history));
        self.shared_reads.join((app, revision), async move {
            let recent = journal.recent(app, POLL).await.map_err(Refusal::of_store)?;
            let snapshot = match recent.filter(|recent| recent.state.latest >= Some(revision)) {
                Some(recent) => Some(recent),
                None => journal.load(AppRef::Uid(app)).await.map_err(Refusal::of_store)?,
            };
            let Some(snapshot) = snapshot else { return Err(Refusal::RevisionNotFound(revision)) };
            let entry = read_entry(&*history, &snapshot.state, revision).await?;
            Ok((snapshot.state, entry))
        })
    }
}

/// Returns a page of apps, and where the next one begins: after its last app, or nowhere if it is the last page.
fn following(apps: Vec<ListedApp>) -> (Vec<ListedApp>, Option<Option<AppId>>) {
    let next = (apps.len() >= ALL_PAGE).then(|| apps.last().map(listed_id).cloned());
    (apps, next)
}

/// Returns one entry of an app that was just read.
async fn read_entry(history: &dyn HistoryStore, state: &AppState, revision: Revision) -> Outcome<Deploy> {
    if let Some(deploy) = state.unfinished(revision) {
        return Ok(Deploy::clone(deploy));
    }
    // The archive is read after the state, and may have a later entry: the state does not tell of it.
    if state.latest < Some(revision) {
        return Err(Refusal::RevisionNotFound(revision));
    }
    let entry = history.archived(state.app.uid, revision).await.map_err(Refusal::of_store)?;
    entry.ok_or(Refusal::RevisionNotFound(revision))
}
