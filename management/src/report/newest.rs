//! The newest entries of many apps, in the order of their accepts: of each app no more is read than its part of them.
//!
//! The state of an app has its newest entry, and each page of its archive a bound for those below: the app whose bound is the
//! newest is the next one to be read. So the newest 50 deploys of 10,000 apps are found by some 50 short reads.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap, VecDeque},
    sync::Arc,
};

use rollhook_core::{
    app::{AppId, AppUid, Environment, Project},
    deploy::{Deploy, Revision, Watch},
    error::{Error, Result},
    ledger::{AppState, Recovery},
    ports::{HistoryStore, Page},
    request::Refusal as CoreRefusal,
    time::Timestamp,
};

use crate::Outcome;

/// The most entries that a report reads.
pub const READ_MAX: usize = 10_000;

/// The number of entries of an app's first page, of which each further one has twice as many.
const FIRST_PAGE: usize = 10;
/// The most entries of a page.
const PAGE_MAX: usize = 200;

/// An app whose deploys are in a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedApp {
    /// The app's name.
    pub id: AppId,
    /// The app's project.
    pub project: Project,
    /// The app's environment.
    pub environment: Environment,
    /// The newest revision that succeeded.
    pub current: Option<Revision>,
    /// The newest revision that touched the cluster.
    pub on_cluster: Option<Revision>,
    /// The revisions that ended without success, and whose instances ran well afterwards.
    pub recoveries: Vec<Recovery>,
    /// The watches over its revisions that are under way, or by which a verification was revoked; without measurements.
    pub watches: Vec<Watch>,
}

/// The newest entries of these apps, to be read one after the other. Of each, the caller keeps what it needs.
pub(super) struct Newest<T> {
    /// No entry before this time is read, but the newest of each app that is.
    since: Option<Timestamp>,
    sources: Vec<Source<T>>,
    /// The apps with entries that were not returned yet, by a time that none of these is after.
    bounds: BinaryHeap<(Timestamp, Reverse<usize>)>,
    spent: usize,
    /// The apps of which something stored cannot be read.
    unreadable: BTreeSet<AppId>,
}

/// An entry that was read.
pub(super) struct Read<T> {
    /// The app's place in the list.
    pub(super) index: usize,
    pub(super) app: Arc<ReportedApp>,
    pub(super) kept: Option<T>,
}

struct Source<T> {
    app: Arc<ReportedApp>,
    uid: AppUid,
    /// The newest revision when the app was listed: later ones are left out.
    latest: Revision,
    /// The entries that are known from the state, newest first.
    known: VecDeque<Arc<Deploy>>,
    /// The entries that were read and not returned yet, newest first.
    read: VecDeque<Kept<T>>,
    /// The oldest entry that was read; `None` before the first.
    oldest: Option<Revision>,
    /// Whether all entries were read.
    is_exhausted: bool,
    /// The number of entries of the next page.
    page: usize,
}

struct Kept<T> {
    created_at: Timestamp,
    kept: Option<T>,
}

impl<T> Newest<T> {
    pub(super) fn new(since: Option<Timestamp>) -> Self {
        Self { since, sources: Vec::new(), bounds: BinaryHeap::new(), spent: 0, unreadable: BTreeSet::new() }
    }

    /// Adds an app, unless it has no entries that are new enough.
    pub(super) fn add(&mut self, state: &AppState) {
        let Some(latest) = state.latest else { return };
        let newest = state.newest().filter(|newest| newest.revision == latest);
        let bound = newest.map_or(state.updated_at, |newest| newest.created_at);
        if self.since.is_some_and(|since| bound < since) {
            return;
        }
        let is_shown = |watch: &&Watch| watch.is_under_way() || watch.revoked().is_some();
        let watches = state.watches.iter().filter(is_shown);
        let app = ReportedApp {
            id: state.app.id.clone(),
            project: state.app.project.clone(),
            environment: state.app.environment.clone(),
            current: state.current.as_ref().map(|deploy| deploy.revision),
            on_cluster: state.on_cluster().map(|deploy| deploy.revision),
            recoveries: state.recoveries.clone(),
            watches: watches.map(|watch| watch.clone().without_measurements()).collect(),
        };
        let unfinished = state.unfinished.iter().rev();
        let ended = newest.filter(|newest| newest.is_terminal());
        self.bounds.push((bound, Reverse(self.sources.len())));
        self.sources.push(Source {
            app: Arc::new(app),
            uid: state.app.uid,
            latest,
            known: ended.into_iter().chain(unfinished).cloned().collect(),
            read: VecDeque::new(),
            oldest: None,
            is_exhausted: false,
            page: FIRST_PAGE,
        });
    }

    /// Adds an app whose state cannot be read: none of its deploys is returned.
    pub(super) fn add_unreadable(&mut self, app: AppId) {
        self.unreadable.insert(app);
    }

    /// Returns the apps that have deploys which cannot be read, and so are not returned.
    pub(super) fn into_unreadable(self) -> Vec<AppId> {
        self.unreadable.into_iter().collect()
    }

    /// Returns the next entry, of which `keep` says what is kept; `None` if there is none, or as many were read as may be.
    pub(super) async fn next(
        &mut self,
        history: &dyn HistoryStore,
        mut keep: impl FnMut(&ReportedApp, Deploy) -> Option<T>,
    ) -> Outcome<Option<Read<T>>> {
        while let Some((bound, Reverse(index))) = self.bounds.pop() {
            let Some(source) = self.sources.get_mut(index) else { continue };
            if source.read.is_empty() {
                source.take_known(&mut keep);
            }
            if source.read.is_empty() && !source.is_exhausted {
                if self.spent >= READ_MAX {
                    self.bounds.push((bound, Reverse(index)));
                    return Ok(None);
                }
                match source.fill(history, &mut keep).await {
                    Ok(spent) => self.spent += spent,
                    // One entry that is damaged takes nothing from the other apps.
                    Err(Error::Corrupt { .. }) => {
                        self.unreadable.insert(source.app.id.clone());
                        source.is_exhausted = true;
                        self.spent += FIRST_PAGE;
                    }
                    Err(error) => return Err(CoreRefusal::of_store(error).into()),
                }
            }
            let Some(newest) = source.read.front().map(|entry| entry.created_at) else {
                if !source.is_exhausted {
                    self.bounds.push((bound, Reverse(index)));
                }
                continue;
            };
            if newest < bound {
                // Another app may have a newer one.
                self.bounds.push((newest, Reverse(index)));
                continue;
            }
            let app = Arc::clone(&source.app);
            let kept = source.read.pop_front().and_then(|entry| entry.kept);
            if self.since.is_none_or(|since| newest >= since) {
                self.bounds.push((newest, Reverse(index)));
            }
            return Ok(Some(Read { index, app, kept }));
        }
        Ok(None)
    }

    /// Returns the number of entries that were read; a short page counts as a whole one.
    pub(super) const fn spent(&self) -> usize {
        self.spent
    }

    /// Returns whether as many entries were read as may be, before all were.
    pub(super) fn is_spent(&self) -> bool {
        self.read_since().is_some()
    }

    /// Returns the time after which all entries were returned; `None`: all that there are.
    pub(super) fn read_since(&self) -> Option<Timestamp> {
        let (bound, _) = self.bounds.peek()?;
        (self.spent >= READ_MAX).then(|| Timestamp::from_millis(bound.as_millis().saturating_add(1)))
    }
}

impl<T> Source<T> {
    /// Takes the next entry from the state, if none of the archive can be between it and the one before.
    fn take_known(&mut self, keep: &mut impl FnMut(&ReportedApp, Deploy) -> Option<T>) {
        let next = self.known.front().map(|deploy| deploy.revision);
        let is_next = next.is_some_and(|next| match self.oldest {
            None => next == self.latest,
            Some(oldest) => Revision::following(Some(next)) == oldest,
        });
        if is_next && let Some(deploy) = self.known.pop_front() {
            self.put(deploy.without_evidence(), keep);
        }
    }

    /// Reads the next page, and returns what that costs.
    async fn fill(
        &mut self,
        history: &dyn HistoryStore,
        keep: &mut impl FnMut(&ReportedApp, Deploy) -> Option<T>,
    ) -> Result<usize> {
        let page = Page::newest(self.page).below(self.oldest);
        let mut entries = history.page(self.uid, page).await?;
        let count = entries.len();
        let is_last = count < self.page;
        let lowest = entries.last().map(|deploy| deploy.revision).filter(|_| !is_last);
        entries.retain(|deploy| deploy.revision <= self.latest);
        // Those of the state that belong among them. One that has ended since is in the archive, as it is now.
        let split = self.known.iter().position(|deploy| lowest.is_some_and(|lowest| deploy.revision < lowest));
        let among: Vec<Arc<Deploy>> = self.known.drain(..split.unwrap_or(self.known.len())).collect();
        for deploy in among {
            let is_read = self.oldest.is_some_and(|oldest| deploy.revision >= oldest);
            if !is_read && entries.iter().all(|archived| archived.revision != deploy.revision) {
                entries.push(deploy.without_evidence());
            }
        }
        entries.sort_by_key(|deploy| Reverse(deploy.revision));
        // All of the page may be newer than the list of apps.
        self.oldest = lowest.or(self.oldest);
        for deploy in entries {
            self.put(deploy.without_evidence(), keep);
        }
        self.is_exhausted |= is_last;
        self.page = (self.page * 2).min(PAGE_MAX);
        Ok(count.max(FIRST_PAGE))
    }

    fn put(&mut self, deploy: Deploy, keep: &mut impl FnMut(&ReportedApp, Deploy) -> Option<T>) {
        self.oldest = Some(deploy.revision);
        self.is_exhausted |= deploy.revision == Revision::FIRST;
        let created_at = deploy.created_at;
        self.read.push_back(Kept { created_at, kept: keep(&self.app, deploy) });
    }
}
