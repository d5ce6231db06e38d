//! Counts the deploys that this replica has accepted and ended, as they are stored: where the answer to a commit was
//! lost, a later read of the app decides.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rollhook_core::{
    Error, Result,
    app::{AppId, AppUid},
    deploy::Deploy,
    ports::{AppCommit, Committed, HistoryStore, HistoryStoreExt, Loaded, Version},
};

use crate::metrics::Metrics;

/// The most commits of one app whose outcome is unknown at the same time; the oldest are forgotten.
const UNKNOWN_MAX: usize = 8;

/// The counters of accepted and ended deploys.
pub(crate) struct DeployCounts {
    metrics: Arc<Metrics>,
    unknown: Mutex<HashMap<AppUid, Vec<Counted>>>,
}

/// The part of a commit that is counted.
struct Counted {
    app: AppId,
    /// The version that the commit was made on; `None` for a registration.
    on: Option<Version>,
    accepted: Vec<Arc<Deploy>>,
    ended: Vec<Arc<Deploy>>,
}

/// A commit under way. Its outcome is unknown if this is dropped without an answer.
pub(crate) struct UnderWay<'a> {
    counts: &'a DeployCounts,
    app: AppUid,
    commit: Option<Counted>,
}

impl DeployCounts {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, unknown: Mutex::default() }
    }

    /// Returns the commit under way, to be told its answer.
    pub(crate) fn begin(&self, commit: &AppCommit) -> UnderWay<'_> {
        UnderWay { counts: self, app: commit.app(), commit: Counted::of(commit) }
    }

    /// Counts the commits with a lost answer that an app, as it was loaded, turns out to hold.
    pub(crate) async fn loaded(&self, store: &dyn HistoryStore, loaded: &Loaded) {
        for commit in self.decidable(loaded) {
            for deploy in &commit.accepted {
                let same = |stored: &Deploy| stored.id == deploy.id;
                if is_stored(store, loaded, deploy, same).await {
                    self.metrics.accepted(&commit.app, loaded.state.app.uid, deploy);
                }
            }
            for deploy in &commit.ended {
                // Another replica may have ended it, and has counted it then.
                if is_stored(store, loaded, deploy, |stored| stored == &**deploy).await {
                    self.metrics.ended(&commit.app, loaded.state.app.uid, deploy);
                }
            }
        }
    }

    /// Takes the commits that were made on an earlier version than the loaded one: none of them can still be written.
    fn decidable(&self, loaded: &Loaded) -> Vec<Counted> {
        let mut unknown = self.lock();
        let Some(commits) = unknown.get_mut(&loaded.state.app.uid) else { return Vec::new() };
        let decidable = commits.extract_if(.., |commit| commit.on < Some(loaded.version)).collect();
        if commits.is_empty() {
            unknown.remove(&loaded.state.app.uid);
        }
        decidable
    }

    fn count(&self, uid: AppUid, commit: &Counted) {
        commit.accepted.iter().for_each(|deploy| self.metrics.accepted(&commit.app, uid, deploy));
        commit.ended.iter().for_each(|deploy| self.metrics.ended(&commit.app, uid, deploy));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<AppUid, Vec<Counted>>> {
        self.unknown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counted {
    /// Returns `None` if the commit accepts and ends nothing.
    fn of(commit: &AppCommit) -> Option<Self> {
        let change = commit.change()?;
        let known = change.state.unfinished.iter().chain(&change.ended);
        let accepted = known.filter(|deploy| change.admitted.contains(&deploy.revision)).cloned().collect();
        let app = change.state.app.id.clone();
        let counted = Self { app, on: commit.version(), accepted, ended: change.ended.clone() };
        (!counted.accepted.is_empty() || !counted.ended.is_empty()).then_some(counted)
    }
}

impl UnderWay<'_> {
    pub(crate) fn answered(mut self, answer: &Result<Committed>) {
        if matches!(answer, Err(Error::Unavailable { .. })) {
            return;
        }
        let commit = self.commit.take().filter(|_| answer.is_ok());
        commit.iter().for_each(|commit| self.counts.count(self.app, commit));
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let Some(commit) = self.commit.take() else { return };
        let mut unknown = self.counts.lock();
        let commits = unknown.entry(self.app).or_default();
        commits.push(commit);
        if commits.len() > UNKNOWN_MAX {
            commits.remove(0);
        }
    }
}

/// Returns whether the store holds the deploy.
async fn is_stored(
    store: &dyn HistoryStore,
    loaded: &Loaded,
    deploy: &Deploy,
    is_same: impl Fn(&Deploy) -> bool,
) -> bool {
    if let Some(unfinished) = loaded.state.unfinished(deploy.revision) {
        return is_same(unfinished);
    }
    // A count that is missing is better than a call that fails for it.
    matches!(store.archived(loaded.state.app.uid, deploy.revision).await, Ok(Some(archived)) if is_same(&archived))
}

#[cfg(test)]
mod tests {
    use rollhook_conformance::{Fault, Faulty, ManualClock, client, samples};
    use rollhook_core::{
        deploy::State,
        ledger::{Change, Record},
        ports::AppRef,
    };
    use rollhook_memory::MemoryStore;

    use super::*;
    use crate::instrumented::InstrumentedHistoryStore;

    /// The counted accepts and ends.
    fn counted(metrics: &Metrics) -> [u64; 2] {
        let (_, text) = metrics.text("");
        ["rollhook_deploys_accepted_total", "rollhook_deploys_ended_total"].map(|name| {
            let lines = text.lines().filter(|line| line.starts_with(name));
            lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
        })
    }

    /// The counts after a deploy was accepted and ended by commits that meet this fault, each followed by a read; and
    /// what they are in truth.
    async fn after(fault: Fault) -> ([u64; 2], [u64; 2]) {
        let store = Arc::new(MemoryStore::on_system_time());
        let app = client::register(&*store, samples::app("shop", "test", "api")).await.state.app.uid;
        let plan = Arc::new(move |name: &str| if name == "history.commit" { fault } else { Fault::None });
        let faulty = Arc::new(Faulty::new(store.clone(), Arc::new(ManualClock::default()), plan));
        let metrics = Arc::new(Metrics::new("one", 0));
        let counting = InstrumentedHistoryStore::new(faulty, metrics.clone());
        let load = async || counting.load(AppRef::Uid(app), None).await.unwrap().unwrap();

        let mut change = Change::on(load().await.state);
        samples::admit(&mut change, samples::admission(samples::deploy("v1")), loaded_now(&store, app).await);
        drop(counting.commit_one(client::put(change, load().await.version)).await);
        let accepted = load().await.state.unfinished.len();
        if accepted == 0 {
            // Another process is faster.
            client::admit(&*store, app, samples::admission(samples::deploy("v2"))).await;
        }
        let loaded = load().await;
        let mut change = Change::on(loaded.state.clone());
        let changes = vec![loaded.state.unfinished[0].moved(State::Succeeded { note: None })];
        change.record(Record { changes, ..Record::default() }, loaded.now).unwrap();
        drop(counting.commit_one(client::put(change, loaded.version)).await);
        let ended = client::archive(&*store, app).await.len();
        if ended == 0 {
            let again = vec![loaded.state.unfinished[0].moved(samples::failed())];
            client::record(&*store, app, again).await;
        }
        load().await;
        load().await;
        (counted(&metrics), [accepted as u64, ended as u64])
    }

    async fn loaded_now(store: &MemoryStore, app: AppUid) -> rollhook_core::time::Timestamp {
        client::load(store, app).await.now
    }

    #[tokio::test]
    async fn commits_are_counted_as_they_are_stored_whatever_their_answers() {
        assert_eq!(after(Fault::None).await, ([1, 1], [1, 1]));
        assert_eq!(after(Fault::Lost).await, ([1, 1], [1, 1]), "the answer was lost");
        assert_eq!(after(Fault::Before).await, ([0, 0], [0, 0]), "others wrote what this replica wanted to");
    }
}
