//! A history store that breaks promises, and one that tells of an app what is not so.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use rollhook_core::{
    Error, Result,
    app::{App, AppUid, Hold, HoldPolicy, Source},
    check::CheckMode,
    deploy::{Actor, Decision, Deploy, Reason, Revision, Ruling, State, Trigger, Verification, WatchEnd, WatchRestore},
    engine::polling::HISTORY_PAGE,
    error::Entity,
    image::ImageRef,
    ledger::{Admission, AppState, Brought, Change, KeyLookup, NewDeploy, Record},
    ports::{
        AppChange, AppCommit, AppPage, AppRef, Binding, Committed, DriverIdentity, Heartbeat, HistoryStore,
        HistoryStoreExt, ListedApp, Loaded, Page, Version,
    },
    replica::ReplicaId,
    request::IdempotencyKey,
    requirement::RequirementCopies,
};

use super::{BrokenBackend, Promise};

/// An answer about an app, and its true state.
pub(super) struct Shown {
    version: Version,
    shown: AppState,
    truth: AppState,
}

impl BrokenBackend {
    /// The next state of what is so, where a change was made on what was told.
    fn as_it_is(&self, app: AppUid, version: Option<Version>, changed: &AppState) -> AppState {
        let told = self.last_shown.lock().unwrap();
        let Some(Shown { shown, truth, .. }) = told.get(&app).filter(|told| Some(told.version) == version) else {
            return changed.clone();
        };
        let mut state = changed.clone();
        let mut registration = (*state.app).clone();
        if registration.policy.settle == shown.app.policy.settle {
            registration.policy.settle = truth.app.policy.settle;
        }
        if registration.policy.checks == shown.app.policy.checks {
            registration.policy.checks.clone_from(&truth.app.policy.checks);
        }
        if registration.policy.signed == shown.app.policy.signed {
            registration.policy.signed.clone_from(&truth.app.policy.signed);
        }
        if registration.requirements == shown.app.requirements {
            registration.requirements.clone_from(&truth.app.requirements);
        }
        if registration.holds == shown.app.holds {
            registration.holds.clone_from(&truth.app.holds);
        } else if let Some(added) = registration.holds.strip_prefix(shown.app.holds.as_slice()) {
            registration.holds = truth.app.holds.iter().chain(added).cloned().collect();
        }
        state.app = Arc::new(registration);
        if state.followed == shown.followed {
            state.followed.clone_from(&truth.followed);
        }
        if state.current == shown.current {
            state.current.clone_from(&truth.current);
        }
        if state.watches == shown.watches {
            state.watches.clone_from(&truth.watches);
        }
        if state.last_restore == shown.last_restore {
            state.last_restore = truth.last_restore;
        }
        if state.ended_on_cluster == shown.ended_on_cluster {
            state.ended_on_cluster.clone_from(&truth.ended_on_cluster);
        }
        if state.ended_off_cluster == shown.ended_off_cluster {
            state.ended_off_cluster.clone_from(&truth.ended_off_cluster);
        }
        for entry in &truth.unfinished {
            let revision = entry.revision;
            let Some(shown) = shown.unfinished(revision) else {
                state.unfinished.push(Arc::clone(entry));
                continue;
            };
            for changed in state.unfinished.iter_mut().filter(|changed| changed.revision == revision) {
                *changed = if changed == shown { Arc::clone(entry) } else { self.recorded(changed, entry) };
            }
        }
        state.unfinished.sort_by_key(|entry| entry.revision);
        state
    }

    fn log(&self, version: Version, truth: AppState) -> AppState {
        let shown = self.as_shown(truth.clone());
        self.last_shown.lock().unwrap().insert(truth.app.uid, Shown { version, shown: shown.clone(), truth });
        shown
    }

    /// The app as it is told of.
    fn as_shown(&self, mut state: AppState) -> AppState {
        if self.breaks(Promise::Settle) {
            Arc::make_mut(&mut state.app).policy.settle = Duration::ZERO;
        }
        if self.breaks(Promise::LastRestore) {
            state.last_restore = None;
            let restore = state.ended_on_cluster.iter_mut().filter(|top| top.is_restore());
            restore.for_each(|top| Arc::make_mut(top).actor = Actor::person("somebody"));
        }
        if self.breaks(Promise::OthersChange) {
            let changed = state.ended_on_cluster.iter_mut().filter(|top| top.was_changed_by_another());
            changed.for_each(|top| {
                if let State::Failed { reason, .. } = &mut Arc::make_mut(top).state {
                    *reason = Reason::new(Reason::DEADLINE);
                }
            });
        }
        if self.breaks(Promise::SecondWatchRestore)
            && let Some(watch) = state.watches.last_mut()
            && let Some(WatchEnd::Revoked { restore: restore @ WatchRestore::Made { .. }, .. }) = &mut watch.end
        {
            *restore = WatchRestore::Owed;
        }
        if self.breaks(Promise::ObserverRevokes) && state.watch().is_some() {
            let checks = &mut Arc::make_mut(&mut state.app).policy.checks;
            checks.iter_mut().for_each(|check| check.mode = CheckMode::Enforce);
        }
        if self.breaks(Promise::Required) {
            let app = Arc::make_mut(&mut state.app);
            (app.policy.signed, app.requirements) = (None, RequirementCopies::default());
        }
        if self.breaks(Promise::Sequence) {
            state.highest_sequence = None;
        }
        if self.breaks(Promise::DecidedOnce)
            && let Some(followed) = &mut state.followed
        {
            followed.newest = None;
        }
        if self.breaks(Promise::WaitsForAnswer) {
            let waiting = state.unfinished.iter_mut().filter(|entry| entry.is_to_be_resolved());
            waiting.for_each(|entry| Arc::make_mut(entry).resolution = None);
        }
        if self.breaks(Promise::HoldOfFound) {
            Arc::make_mut(&mut state.app).holds.clear();
        }
        if self.breaks(Promise::HeldFollowed) && holds_bind_following_alone(&state.app) {
            forget_holds(&mut state);
        }
        if self.breaks(Promise::Downgrade) {
            self.forget_newer(&mut state);
        }
        self.shown(state)
    }

    /// Hides from following that the app was at a higher version than the newest listed one: its own decision, and the tags of what
    /// runs and of what was accepted last.
    fn forget_newer(&self, state: &mut AppState) {
        let rules = self.environment.rules.lock().unwrap();
        let is_newer = |image: &ImageRef| rules.published.is_above_newest(image);
        if let Some(followed) = &mut state.followed {
            followed.newest.take_if(|newest| is_newer(newest));
        }
        if state.app.policy.follow.is_none() || !state.unfinished.is_empty() {
            return;
        }
        let known = [&mut state.current, &mut state.ended_on_cluster, &mut state.ended_off_cluster];
        for entry in known.into_iter().flatten().filter(|entry| entry.image.as_ref().is_some_and(is_newer)) {
            let entry = Arc::make_mut(entry);
            let digest = entry.image.as_ref().and_then(ImageRef::digest).or(entry.digest.as_ref()).cloned();
            let bare = entry.image.take().map(ImageRef::bare);
            entry.image = bare.map(|bare| match digest {
                Some(digest) => bare.pinned(digest),
                None => bare,
            });
        }
    }

    /// Returns the holds of an app as they were stored when it was loaded last.
    fn holds(&self, app: AppUid) -> Vec<Hold> {
        let told = self.last_shown.lock().unwrap();
        told.get(&app).map(|told| told.truth.app.holds.clone()).unwrap_or_default()
    }

    /// The turn of others, in the middle of a write that should be one step.
    async fn gap(&self) {
        self.environment.look();
        self.clock.sleep(Duration::from_millis(5)).await;
    }

    async fn put(&self, commit: AppCommit) -> Result<Committed> {
        let (version, mut change) = match commit {
            AppCommit::Register(change) => (None, change),
            AppCommit::Update(version, change) => (Some(version), change),
            AppCommit::Remove(..) => return self.environment.store.commit_one(commit).await,
        };
        let app = change.state.app.uid;
        let told = change.state.clone();
        change.state = self.as_it_is(app, version, &told);
        if self.breaks(Promise::BuildsBelowRestore) {
            end_builds_below_restore(&mut change);
        }
        self.change_verification(&mut change.state);
        self.change_watch(&mut change.state);
        let truth = change.state.clone();
        let commit = |change: Change, version: Option<Version>| match version {
            Some(version) => AppCommit::Update(version, Box::new(change)),
            None => AppCommit::Register(Box::new(change)),
        };
        let committed = if self.breaks(Promise::KeyWithEntry) && !change.keys.is_empty() {
            let keys = std::mem::take(&mut change.keys);
            let committed = self.environment.store.commit_one(commit((*change).clone(), version)).await?;
            self.gap().await;
            let Some(loaded) = self.environment.store.load(AppRef::Uid(app), None).await? else { return Ok(committed) };
            let mut late = Change::on(loaded.state);
            late.keys = keys;
            late.keys.iter_mut().for_each(|key| key.replaces = true);
            // The one who answers does not wait for it.
            let _ = self.environment.store.commit_one(commit(late, Some(loaded.version))).await;
            Ok(committed)
        } else if self.breaks(Promise::Supersede) && !change.admitted.is_empty() && !change.ended.is_empty() {
            self.superseded_before(app, version, (*change).clone()).await
        } else {
            self.environment.store.commit_one(commit((*change).clone(), version)).await
        };
        let committed = match committed {
            Err(Error::Conflict(Entity::Version)) if self.breaks(Promise::Version) => self.rewrite(app, *change).await,
            Err(Error::Conflict(Entity::Version)) if self.breaks(Promise::Guard) && !change.admitted.is_empty() => {
                self.accept_again(app, *change).await
            }
            other => other,
        }?;
        self.last_shown.lock().unwrap().insert(app, Shown { version: committed.version, shown: told, truth });
        Ok(committed)
    }

    /// Has a deploy verified that is not to be, or with what is not its own.
    fn change_verification(&self, state: &mut AppState) {
        let policy = state.app.policy.clone();
        let Some(rolling) = state.unfinished.iter_mut().find(|entry| matches!(entry.state, State::RollingOut { .. }))
        else {
            return;
        };
        let is_asking = rolling.awaited_decision().is_some();
        let (revision, at) = (rolling.revision, rolling.updated_at);
        if let Some(verification) = &mut Arc::make_mut(rolling).verification {
            let mut last = self.last_decision.lock().unwrap();
            if let Some(decision) = &verification.decision {
                *last = Some((revision, decision.clone()));
            }
            if is_asking && self.breaks(Promise::AskedByItself) {
                let by = Actor::person("nobody");
                verification.decision = Some(Decision { ruling: Ruling::Pass, by, at });
            }
            let before = last.as_ref().filter(|(of, _)| *of < revision && self.breaks(Promise::DecisionAcross));
            if let Some((_, decision)) = before.filter(|_| is_asking) {
                verification.decision = Some(Decision { at, ..decision.clone() });
            }
        }
        let returns = rolling.trigger == Trigger::Rollback;
        let is_early = self.breaks(Promise::EarlyMeasurements) && !returns;
        let begins = is_early || self.breaks(Promise::ReturnVerified) && returns;
        if begins && rolling.verification.is_none() && !policy.checks.is_empty() {
            let verification = Verification::begin(&policy.checks, rolling.updated_at);
            Arc::make_mut(rolling).verification = Some(Box::new(verification));
        }
        if self.breaks(Promise::FailsAcross)
            && let Some(verification) = &mut Arc::make_mut(rolling).verification
        {
            let new = verification.checks.iter_mut().filter(|result| result.measurements.is_empty());
            new.for_each(|result| result.failed = 1);
        }
    }

    /// Has a watch go on, or begin with what is not its own.
    fn change_watch(&self, state: &mut AppState) {
        let Some(watch) = state.watches.last_mut() else { return };
        let is_new = watch.step == 0 && watch.is_under_way();
        if self.breaks(Promise::FailsIntoWatch) && is_new {
            watch.measured.checks.iter_mut().for_each(|result| result.failed = 1);
        }
        let is_followed = matches!(&watch.end, Some(WatchEnd::Early { why }) if why.ends_with("was accepted"));
        if self.breaks(Promise::WatchGoesOn) && is_followed {
            watch.end = None;
        }
    }

    async fn superseded_before(&self, app: AppUid, version: Option<Version>, change: Change) -> Result<Committed> {
        let loaded = self.environment.store.load(AppRef::Uid(app), None).await?.ok_or(Error::NotFound(Entity::App))?;
        if Some(loaded.version) != version {
            return Err(Error::Conflict(Entity::Version));
        }
        let mut first = Change::on(loaded.state);
        let changes: Vec<Deploy> = change.ended.iter().map(|ended| Deploy::clone(ended)).collect();
        if first.record(Record { changes, ..Record::default() }, loaded.now).is_ok() {
            self.environment.store.commit_one(AppCommit::Update(loaded.version, Box::new(first))).await?;
            self.gap().await;
        }
        let loaded = self.environment.store.load(AppRef::Uid(app), None).await?.ok_or(Error::NotFound(Entity::App))?;
        self.environment.store.commit_one(AppCommit::Update(loaded.version, Box::new(change))).await
    }

    /// Writes a change over whatever came since it was made.
    async fn rewrite(&self, app: AppUid, change: Change) -> Result<Committed> {
        let loaded = self.environment.store.load(AppRef::Uid(app), None).await?.ok_or(Error::NotFound(Entity::App))?;
        self.environment.store.commit_one(AppCommit::Update(loaded.version, Box::new(change))).await
    }

    /// Accepts what was decided on the app as it was, without deciding again.
    async fn accept_again(&self, app: AppUid, change: Change) -> Result<Committed> {
        let loaded = self.environment.store.load(AppRef::Uid(app), None).await?.ok_or(Error::NotFound(Entity::App))?;
        let mut again = Change::on(loaded.state);
        for accepted in change.state.unfinished.iter().filter(|entry| change.admitted.contains(&entry.revision)) {
            let accepted = Deploy::clone(accepted);
            let effective = Some(accepted.effective).filter(|effective| *effective != accepted.revision);
            let deploy = NewDeploy {
                image: accepted.image,
                commit: accepted.commit,
                committed_at: accepted.committed_at,
                order: accepted.sequence.into(),
                trigger: accepted.trigger,
                actor: accepted.actor,
                from: accepted.from,
                effective,
                unreleased: accepted.unreleased,
                is_unproven: false,
                resolves: accepted.resolution.is_some(),
                adopted: accepted.adopted,
                scale: accepted.scale,
                configuration: accepted.configures.then_some(Brought(accepted.configuration)),
                trace: accepted.trace,
            };
            again.admit(Admission::plain(accepted.id, deploy), KeyLookup::Unread, loaded.now);
        }
        again.keys = change.keys;
        self.environment.store.commit_one(AppCommit::Update(loaded.version, Box::new(again))).await
    }
}

#[async_trait]
impl HistoryStore for BrokenBackend {
    async fn load(&self, app: AppRef<'_>, key: Option<&IdempotencyKey>) -> Result<Option<Loaded>> {
        let loaded = self.environment.store.load(app, key).await?;
        Ok(loaded.map(|loaded| Loaded { state: self.log(loaded.version, loaded.state), ..loaded }))
    }

    async fn commit(&self, commits: Vec<AppCommit>) -> Vec<Result<Committed>> {
        let mut answers = Vec::new();
        for commit in commits {
            answers.push(self.put(commit).await);
        }
        answers
    }

    async fn page(&self, app: AppUid, page: Page) -> Result<Vec<Deploy>> {
        let mut entries = self.environment.store.page(app, page).await?;
        if self.breaks(Promise::Target) && page.succeeded && !entries.is_empty() {
            entries.remove(0);
        }
        if self.breaks(Promise::DecidedOnce) && page.limit == HISTORY_PAGE {
            entries.retain(|entry| entry.trigger != Trigger::Registry);
        }
        if self.breaks(Promise::HeldFollowed) && page.limit == HISTORY_PAGE {
            let holds = self.holds(app);
            entries.retain(|entry| !are_covered(&holds, entry.image.as_ref()));
        }
        if self.breaks(Promise::Brought) && page.limit == HISTORY_PAGE {
            entries.retain(|entry| entry.trigger == Trigger::Git);
        }
        Ok(entries)
    }

    async fn archived(&self, app: AppUid, revision: Revision) -> Result<Option<Deploy>> {
        self.environment.store.archived(app, revision).await
    }

    async fn list(&self, page: AppPage) -> Result<Vec<ListedApp>> {
        let mut listed = self.environment.store.list(page).await?;
        if self.breaks(Promise::ReleaseTurns) {
            listed.iter_mut().flatten().for_each(|state| state.release_turns.clear());
        }
        Ok(listed)
    }

    async fn work(&self, alive: &[ReplicaId], limit: usize) -> Result<Vec<AppUid>> {
        self.environment.store.work(alive, limit).await
    }

    async fn heartbeat(&self, replica: &ReplicaId, ttl: Duration) -> Result<Heartbeat> {
        let for_ever = self.breaks(Promise::Expiry) && !ttl.is_zero();
        let ttl = if for_ever { Duration::from_secs(1_000_000) } else { ttl };
        self.environment.store.heartbeat(replica, ttl).await
    }

    async fn bind_driver(&self, driver: &DriverIdentity, binding: Binding) -> Result<DriverIdentity> {
        self.environment.store.bind_driver(driver, binding).await
    }

    fn watch(&self) -> BoxStream<'static, AppChange> {
        self.environment.store.watch()
    }
}

/// Returns whether the holds of an app refuse nothing but what following finds.
fn holds_bind_following_alone(app: &App) -> bool {
    app.source == Source::Image && app.policy.hold == HoldPolicy::Automatic
}

/// Hides holds from following, and its decision on what they hold.
fn forget_holds(state: &mut AppState) {
    let holds = std::mem::take(&mut Arc::make_mut(&mut state.app).holds);
    if let Some(followed) = &mut state.followed {
        followed.newest.take_if(|newest| are_covered(&holds, Some(newest)));
    }
}

fn are_covered(holds: &[Hold], image: Option<&ImageRef>) -> bool {
    holds.iter().any(|hold| hold.covers(image, None))
}

/// Ends what waits for a build when a restore is accepted.
fn end_builds_below_restore(change: &mut Change) {
    let accepted = change.state.unfinished.iter().rfind(|entry| change.admitted.contains(&entry.revision));
    let Some(restore) = accepted.filter(|entry| entry.is_restore()).cloned() else { return };
    let superseded = State::Superseded { by: restore.revision, rollback: true, newer: None };
    let builds = change.state.unfinished.extract_if(.., |entry| entry.is_to_be_built());
    let ended = builds.map(|entry| Deploy { updated_at: restore.created_at, ..entry.moved(superseded.clone()) });
    change.ended.extend(ended.map(Arc::new));
}

/// The newest revision of an unfinished entry that waits for its build.
pub(super) fn newest_to_build(state: &AppState) -> Option<Revision> {
    state.unfinished.iter().rfind(|entry| entry.is_to_be_built()).map(|entry| entry.revision)
}
