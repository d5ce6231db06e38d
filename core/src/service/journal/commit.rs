//! One commit under way: its requests decide, the store writes, each request is answered.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use event_listener::{Event, EventListener};
use futures_util::{FutureExt, lock};

use super::{CommitFuture, Decide, Decision, Journal, Snapshot};
use crate::{
    app::AppUid,
    error::{Entity, Error, Result},
    ledger::{AppState, Change, KeyLookup, KeyUse},
    ports::{AppCommit, Committed, Version},
    time::Timestamp,
};

/// A request that waits for its app's next commit. Its caller holds it; a dropped request is skipped.
pub(super) struct Request {
    pub(super) app: AppUid,
    state: Mutex<RequestState>,
    event: Event,
}

struct RequestState {
    decide: Decide,
    lookup: KeyLookup,
    /// The version of the state that the key was looked up with.
    looked_up_at: Option<Version>,
    /// Whether the app was read since the request began.
    is_fresh: bool,
    commit_future: Option<CommitFuture>,
    outcome: Option<RequestOutcome>,
}

/// The outcome of a request.
pub(super) enum RequestOutcome {
    /// The request was decided, and its change is committed.
    Done(Snapshot),
    /// The app must be read again.
    Again,
    /// The use of the idempotency key must be read.
    ReadKey,
    /// The store failed.
    Failed(Error),
}

/// An app's part of a commit.
pub(super) struct AppBatch {
    pub(super) app: AppUid,
    pub(super) state: Arc<AppState>,
    pub(super) version: Version,
    pub(super) requests: Vec<Weak<Request>>,
}

impl Request {
    pub(super) fn new(app: AppUid, decide: Decide) -> Self {
        let lookup = KeyLookup::Unread;
        let state =
            RequestState { decide, lookup, looked_up_at: None, is_fresh: false, commit_future: None, outcome: None };
        Self { app, state: Mutex::new(state), event: Event::new() }
    }

    /// Marks the request's app as read at this version, and with `used` its idempotency key as well.
    pub(super) fn confirm(&self, used: Option<Option<KeyUse>>, version: Version) {
        let mut state = self.lock();
        state.is_fresh = true;
        if let Some(used) = used {
            (state.lookup, state.looked_up_at) = (KeyLookup::Read(used), Some(version));
        }
    }

    pub(super) fn listen(&self) -> EventListener {
        self.event.listen()
    }

    pub(super) fn take_outcome(&self) -> Option<RequestOutcome> {
        self.lock().outcome.take()
    }

    pub(super) fn commit_future(&self) -> Option<CommitFuture> {
        self.lock().commit_future.clone()
    }

    pub(super) fn decided(&self, outcome: RequestOutcome) {
        {
            let mut state = self.lock();
            (state.outcome, state.commit_future) = (Some(outcome), None);
        }
        self.event.notify(usize::MAX);
    }

    fn join(&self, commit_future: Option<CommitFuture>) {
        self.lock().commit_future = commit_future;
        self.event.notify(usize::MAX);
    }

    fn decide(&self, change: &mut Change, version: Version, now: Timestamp) -> (Decision<()>, bool) {
        let state = &mut *self.lock();
        let is_expired = matches!(state.lookup, KeyLookup::Read(Some(used)) if used.expires_at <= now);
        // An expired use may have been replaced since it was read: the store refuses the key if so.
        let is_outdated = is_expired && state.looked_up_at != Some(version);
        let lookup = if is_outdated { KeyLookup::Unread } else { state.lookup };
        ((state.decide)(change, lookup, now), state.is_fresh)
    }

    fn lock(&self) -> MutexGuard<'_, RequestState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts a commit of these apps: a future that its requests poll. It runs once all of them have joined it: a request
/// that joined it after its answer would be lost to the next commit.
pub(super) fn start(journal: &Arc<Journal>, batch: Vec<AppBatch>) {
    let requests: Vec<_> = batch.iter().flat_map(|app| &app.requests).cloned().collect();
    let apps = batch.iter().map(|app| app.app).collect();
    let guard = CommitGuard { journal: Arc::clone(journal), apps, is_dropped: true };
    let gate = Arc::new(lock::Mutex::new(()));
    let closed = gate.try_lock();
    let opened = Arc::clone(&gate);
    let commit_future = async move {
        drop(opened.lock().await);
        run(guard, batch).await;
    };
    let commit_future = commit_future.boxed().shared();
    for request in requests.iter().filter_map(Weak::upgrade) {
        request.join(Some(commit_future.clone()));
    }
    drop(closed);
}

/// Makes room for the next commit when this one has ended, or was dropped because no caller waits for it.
struct CommitGuard {
    journal: Arc<Journal>,
    apps: Vec<AppUid>,
    is_dropped: bool,
}

impl Drop for CommitGuard {
    fn drop(&mut self) {
        self.journal.lock().commit_ended(&self.apps, self.is_dropped);
        self.journal.start();
    }
}

/// The decided requests of one app.
struct Decided {
    state: Arc<AppState>,
    version: Version,
    /// The change of the requests; `None` if nothing was changed.
    change: Option<Arc<Change>>,
    /// The requests whose answers hold once the change is committed; without a change, a fresh read decides.
    done: Vec<(Weak<Request>, bool)>,
    read_key: Vec<Weak<Request>>,
    later: Vec<Weak<Request>>,
}

async fn run(mut guard: CommitGuard, batch: Vec<AppBatch>) {
    let journal = &guard.journal;
    let now = journal.time(&journal.lock());
    let decided: Vec<Decided> = batch.into_iter().map(|app| decide(app, now)).collect();
    let begin = |app: &Decided| {
        Some(journal.observers.begin(Some((app.version, Arc::clone(&app.state))), Arc::clone(app.change.as_ref()?)))
    };
    let mut under_way = decided.iter().filter_map(begin).collect::<Vec<_>>().into_iter();
    let commits: Vec<AppCommit> = decided.iter().filter_map(Decided::commit).collect();
    let mut answers = if commits.is_empty() { Vec::new() } else { journal.store.commit(commits).await }.into_iter();
    for app in decided {
        let answer = app.change.as_ref().map(|_| {
            let unanswered = || Err(Error::corrupt("the store's answer", "a commit was not answered"));
            let answer = answers.next().unwrap_or_else(unanswered);
            under_way.next().into_iter().for_each(|commit| commit.answered(&answer));
            answer
        });
        app.answer(journal, answer);
    }
    guard.is_dropped = false;
}

fn decide(batch: AppBatch, now: Timestamp) -> Decided {
    let mut change = Change::on(AppState::clone(&batch.state));
    let (mut done, mut read_key) = (Vec::new(), Vec::new());
    let mut waiting = VecDeque::from(batch.requests);
    while let Some(request) = waiting.pop_front() {
        let Some(held) = request.upgrade() else { continue };
        match held.decide(&mut change, batch.version, now) {
            (Decision::Commit(()), _) => done.push((request, true)),
            (Decision::Answer(()), is_fresh) => done.push((request, is_fresh)),
            (Decision::ReadKey, _) => read_key.push(request),
            (Decision::NextCommit, _) => {
                waiting.push_front(request);
                break;
            }
        }
    }
    let change = (!change.is_empty()).then(|| Arc::new(change));
    Decided { state: batch.state, version: batch.version, change, done, read_key, later: waiting.into() }
}

impl Decided {
    fn commit(&self) -> Option<AppCommit> {
        Some(AppCommit::Update(self.version, Box::new(Change::clone(self.change.as_ref()?))))
    }

    fn answer(self, journal: &Journal, answer: Option<Result<Committed>>) {
        let app = self.state.app.uid;
        let committed = answer.is_some();
        let outcome = {
            let mut shared = journal.lock();
            let outcome = match (answer, self.change) {
                (Some(Ok(Committed { version, now })), Some(change)) => {
                    journal.note_time(&mut shared, now);
                    let state = Arc::new(Arc::unwrap_or_clone(change).state);
                    shared.states.remember(Arc::clone(&state), version, journal.clock.elapsed());
                    Ok(Snapshot { state, now })
                }
                (Some(Err(error)), _) => {
                    // Another process was faster, or the outcome of the write is unknown.
                    shared.states.forget(app);
                    Err(error)
                }
                (None, _) | (Some(Ok(_)), None) => Ok(Snapshot { state: self.state, now: journal.time(&shared) }),
            };
            let waiting = shared.waiting.entry(app).or_default();
            for request in self.later.iter().rev() {
                waiting.push_front(request.clone());
            }
            if waiting.is_empty() {
                shared.waiting.remove(&app);
            }
            outcome
        };
        for request in self.later.iter().filter_map(Weak::upgrade) {
            request.join(None);
        }
        for request in self.read_key.iter().filter_map(Weak::upgrade) {
            request.decided(RequestOutcome::ReadKey);
        }
        for (request, is_fresh) in &self.done {
            let Some(request) = request.upgrade() else { continue };
            request.decided(match &outcome {
                Ok(snapshot) if committed || *is_fresh => RequestOutcome::Done(snapshot.clone()),
                Ok(_) | Err(Error::Conflict(Entity::Version)) => RequestOutcome::Again,
                Err(Error::Conflict(Entity::IdempotencyKey)) => RequestOutcome::ReadKey,
                Err(error) => RequestOutcome::Failed(error.clone()),
            });
        }
    }
}
