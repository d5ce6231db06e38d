//! An app's policy, source and holds; cancelling its deploys, and deleting it.

use std::{sync::Arc, time::Duration};

use crate::{
    action::Action,
    app::{BUILD_DEADLINE_MAX, KEEP, Policy, Source, Target},
    deploy::{Deploy, Reason, Revision, State, Status, Trigger},
    error::Error,
    ledger::{
        AppState, Change, Record, Refused, registration,
        restore::{self, Owed},
    },
    ports::TargetRequest,
    request::{Field, PolicyChange, Refusal, SourceChange, TargetChange},
    service::{ATTEMPTS, Authorized, Deployer, Outcome, accept::checks, check_settings, journal::Decision, unwritten},
    time::Timestamp,
};

/// An app that was changed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Changed {
    /// The app's state.
    pub state: AppState,
    /// What the owner should know of the target as it was changed, in sentences; empty if it was not.
    pub notes: Vec<String>,
}

impl Deployer {
    /// Changes an app's policy.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`], [`Refusal::AppNotFound`], [`Refusal::Busy`]; [`Refusal::StoreUnavailable`] while the
    /// store is away.
    pub async fn change_policy(&self, access: &Authorized, change: PolicyChange) -> Outcome<AppState> {
        Ok(self.change(access, change, SourceChange::default(), TargetChange::default()).await?.state)
    }

    /// Changes an app's policy, its target, and a git app's source, in one commit. A build that has begun from another
    /// source ends.
    ///
    /// # Errors
    /// As [`Deployer::change_policy`]; [`Refusal::DeployUnfinished`] for other workloads while a deploy rolls out;
    /// [`Refusal::WrongKind`] for an image app's source; for a target that the rollout
    /// driver does not take as [`Deployer::register`].
    pub async fn change(
        &self,
        access: &Authorized,
        policy: PolicyChange,
        source: SourceChange,
        target: TargetChange,
    ) -> Outcome<Changed> {
        let rules = self.source_rules();
        let checks = self.check_rules();
        access.check(Action::Change)?;
        let (new_target, notes) = self.changed_target(access, &target).await?.unzip();
        let is_moved = new_target.as_ref().is_some_and(|(before, after)| before.settings != after.settings);
        let rollouts = &self.ports.rollouts;
        let is_regrouped =
            new_target.as_ref().is_some_and(|(before, after)| !rollouts.has_same_workloads(before, after));
        let changed = self.update_app(access, move |change, now| {
            if let Some(revision) = acting_deploy(&change.state).filter(|_| is_regrouped) {
                return Err(Refusal::DeployUnfinished(revision));
            }
            let app = &change.state.app;
            // Another call has changed the target meanwhile.
            if new_target.as_ref().is_some_and(|(before, _)| *before != app.target) {
                return Err(Refusal::Busy);
            }
            let new_policy = policy.clone().apply(app.policy.clone())?;
            let new_policy = checked(checks.completed(new_policy, &app.policy.checks)?)?;
            let new_source = match app.source.clone() {
                other if source == SourceChange::default() => other,
                Source::Git(git) => Source::Git(source.clone().apply(git)),
                Source::Image => {
                    return Err(Refusal::WrongKind(format!(
                        "{} is an image app, which has no source to change.",
                        app.id
                    )));
                }
            };
            if new_source != app.source {
                rules.buildable(&new_source)?;
            }
            // A value that was allowed once may stay as it is.
            let polling = |policy: &Policy| (policy.poll, policy.follow.clone(), policy.follow_settle);
            if polling(&new_policy) != polling(&app.policy) {
                rules.pollable(&new_policy, &new_source)?;
            }
            if new_policy.resolve != app.policy.resolve {
                rules.resolvable(&new_policy, &new_source)?;
            }
            let signing = |policy: &Policy| (policy.signed.clone(), policy.resolve);
            if signing(&new_policy) != signing(&app.policy) {
                rules.verifiable(&new_policy, &new_source)?;
            }
            change.configure(new_source, new_policy, now);
            if let Some((_, after)) = &new_target {
                change.retarget(after.clone(), now);
            }
            Ok(())
        });
        let state = changed.await?;
        if is_moved {
            self.forget_targets(state.app.uid);
        }
        self.changed_here(state.app.uid);
        Ok(Changed { state, notes: notes.unwrap_or_default() })
    }

    /// Returns an app's target before and after a change, and what its owner should know of it; `None` if nothing is to be
    /// changed.
    async fn changed_target(
        &self,
        access: &Authorized,
        change: &TargetChange,
    ) -> Outcome<Option<((Target, Target), Vec<String>)>> {
        if *change == TargetChange::default() {
            return Ok(None);
        }
        let state = self.state(access).await?;
        let (app, is_stopped) = (state.app, state.stopped.is_some());
        let settings = change.apply(app.target.settings.clone());
        // Before the settings of all other apps of the namespace are read.
        check_settings(&settings)?;
        let request = TargetRequest {
            app: app.id.clone(),
            settings,
            image: None,
            built: true,
            take_over: change.take_over,
            registered: Some(app.uid),
            others: self.others(&app.id).await?,
        };
        let validated = self.validated(&request).await?;
        let notes = validated.notes().to_vec();
        let after = registration::changed_target(&app.target, validated)?;
        if let Some(why) = is_stopped.then(|| self.ports.rollouts.unstoppable(&after)).flatten() {
            return Err(Refusal::CannotBeStopped(format!("{why} The app is stopped: start it before you add that.")));
        }
        Ok(Some(((app.target.clone(), after), notes)))
    }

    /// Releases all holds of an app.
    ///
    /// # Errors
    /// [`Refusal::AppNotFound`], [`Refusal::Busy`]; [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn release_hold(&self, access: &Authorized) -> Outcome<AppState> {
        access.check(Action::ReleaseHold)?;
        self.update_app(access, |change, now| {
            change.release_holds(now);
            Ok(())
        })
        .await
    }

    /// Changes an app, or returns the refusal. Nothing is committed where the app stays as it is.
    pub(crate) async fn update_app(
        &self,
        access: &Authorized,
        mut change: impl FnMut(&mut Change, Timestamp) -> Outcome<()> + Send + 'static,
    ) -> Outcome<AppState> {
        let updated = self.journal.update(access.uid, None, move |next, _, now| {
            let (app, queued_at) = (Arc::clone(&next.state.app), next.state.queued_at);
            let (highest, hinted_at) = (next.state.highest_sequence, next.state.hinted_at);
            match change(next, now) {
                // Of a state that was remembered, that is a guess.
                Ok(())
                    if (&next.state.app, next.state.queued_at) == (&app, queued_at)
                        && (next.state.highest_sequence, next.state.hinted_at) == (highest, hinted_at) =>
                {
                    Decision::Answer(Ok(()))
                }
                Ok(()) => Decision::Commit(Ok(())),
                Err(refusal) => Decision::Answer(Err(refusal)),
            }
        });
        match updated.await {
            Ok((Ok(()), snapshot)) => Ok(snapshot.into_state()),
            Ok((Err(refusal), _)) => Err(refusal),
            Err(error) => Err(unwritten(&access.id, error)),
        }
    }

    /// Deletes an app: its webhook is disabled, its unfinished deploys end, its history is removed. The workload is not
    /// touched.
    ///
    /// # Errors
    /// [`Refusal::AppNotFound`]; [`Refusal::StoreUnavailable`] while the store is away, [`Refusal::ClusterUnavailable`] while
    /// the platform is and a release command has to be ended.
    pub async fn delete(&self, access: &Authorized) -> Outcome<()> {
        access.check(Action::Delete)?;
        let AppState { app, runs, .. } = self.state(access).await?;
        // Before anything is changed: a refusal leaves the app as it is.
        self.end_commands(access, runs.unfinished.map(|run| run.number)).await?;
        self.ports.tokens.remove(access.uid).await.map_err(|error| unwritten(&access.id, error))?;
        let message = format!("{} deleted the app.", access.actor());
        self.end_and_remove(access, message).await?;
        self.forget_builds(access.uid).await;
        self.changed_here(access.uid);
        tracing::info!(app = %access.id, uid = %access.uid, actor = %access.actor(), "deleted");
        if let Err(error) = self.ports.rollouts.forget(&app).await {
            tracing::warn!(app = %access.id, error = %error.chain(), "reporting the deletion to the rollout driver failed");
        }
        Ok(())
    }

    async fn end_and_remove(&self, access: &Authorized, message: String) -> Outcome<()> {
        for _ in 0..ATTEMPTS {
            self.cancel_where(access, Reason::APP_DELETED, message.clone(), |_| true).await?;
            let by_hand = self.end_run_of_deleted(access, message.clone()).await?;
            self.end_builds(access.uid).await;
            self.end_commands(access, by_hand).await?;
            match self.journal.remove(access.uid).await {
                // Another call was faster; a deploy that it made is cancelled as well.
                Err(Error::Conflict(_)) => {}
                removed => return removed.map_err(|error| unwritten(&access.id, error)),
            }
        }
        Err(Refusal::Busy)
    }

    /// Cancels a deploy at once; a cancelled one stays as it is.
    ///
    /// # Errors
    /// [`Refusal::AlreadyEnded`], [`Refusal::RevisionNotFound`], [`Refusal::AppNotFound`], [`Refusal::Busy`];
    /// [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn cancel(&self, access: &Authorized, revision: Revision) -> Outcome<Deploy> {
        access.check(Action::Cancel)?;
        let message = format!("{} cancelled it.", access.actor());
        self.cancel_where(access, Reason::CANCELLED, message, move |deploy| deploy.revision == revision).await?;
        let entry = self.entry(access, revision).await?;
        if entry.status() == Status::Cancelled { Ok(entry) } else { Err(Refusal::AlreadyEnded(revision)) }
    }

    /// Cancels these unfinished deploys, so that callers who wait for them get the reason.
    async fn cancel_where(
        &self,
        access: &Authorized,
        reason: &'static str,
        message: String,
        wanted: impl Fn(&Deploy) -> bool + Send + 'static,
    ) -> Outcome<()> {
        let cancelled = self.journal.update(access.uid, None, move |change, _, now| {
            let unfinished = change.state.unfinished.iter().filter(|deploy| wanted(deploy));
            let changes: Vec<Deploy> = unfinished.map(|deploy| cancelled(deploy, reason, &message)).collect();
            if changes.is_empty() {
                return Decision::Answer(());
            }
            match change.record(Record { changes, ..Record::default() }, now) {
                Ok(()) => Decision::Commit(()),
                Err(Refused::NextCommit | Refused::NotLeased | Refused::Outdated) => Decision::NextCommit,
            }
        });
        cancelled.await.map_err(|error| unwritten(&access.id, error))?;
        self.changed_here(access.uid);
        Ok(())
    }
}

/// Returns a deploy as it is cancelled.
fn cancelled(deploy: &Deploy, reason: &str, message: &str) -> Deploy {
    let left = match deploy.release {
        Some(_) if deploy.may_be_releasing() => {
            " Its release command is ended; what that has changed so far stays as it is."
        }
        Some(_) => " Its release command had run: what that changed, such as a database, stays as it is.",
        None => "",
    };
    deploy.moved(State::Cancelled { reason: Reason::new(reason), message: format!("{message}{left}") })
}

/// The most repositories that a webhook may deploy from, and the most characters of all of them.
const REPOSITORIES_MAX: usize = 100;
const REPOSITORIES_BYTES_MAX: usize = 4 * 1024;

/// The most arguments of a command, its program among them, and the most bytes of all of them.
const ARGUMENTS_MAX: usize = 64;
const ARGUMENT_BYTES_MAX: usize = 4 * 1024;
/// The bounds of the deadline of a command.
const COMMAND_DEADLINE: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(4 * 3600);

/// Returns the policy if a rollout can succeed under it, and each replica can keep it in memory.
pub(crate) fn checked(policy: Policy) -> Outcome<Policy> {
    if !KEEP.contains(&policy.keep) {
        let rule = format!("must be a number from {} to {}.", KEEP.start(), KEEP.end());
        return Err(Refusal::InvalidField(Field::PolicyKeep, rule));
    }
    if policy.build_deadline > BUILD_DEADLINE_MAX {
        let most = BUILD_DEADLINE_MAX.as_secs() / 3600;
        let rule = format!("must be at most {most}h: other apps wait for the build slot as long.");
        return Err(Refusal::InvalidField(Field::PolicyBuildDeadline, rule));
    }
    let repositories = policy.repositories.as_slice();
    let bytes: usize = repositories.iter().map(String::len).sum();
    if repositories.len() > REPOSITORIES_MAX || bytes > REPOSITORIES_BYTES_MAX {
        let rule = format!("must be at most {REPOSITORIES_MAX}, with {REPOSITORIES_BYTES_MAX} characters in all.");
        return Err(Refusal::InvalidField(Field::PolicyRepositories, rule));
    }
    check_command(Field::PolicyReleaseCommand, &policy.release_command)?;
    check_command_deadline(Field::PolicyReleaseDeadline, policy.release_deadline)?;
    checks::check(&policy)?;
    if policy.settle < policy.rollout_deadline {
        return Ok(policy);
    }
    let rule = "must be longer than the time to settle: no rollout would be over before it.".to_owned();
    Err(Refusal::InvalidField(Field::PolicyRolloutDeadline, rule))
}

/// Returns `Ok` if a release command, or one by hand, can be stored and run; no arguments are no command.
pub(crate) fn check_command(field: Field, command: &[String]) -> Outcome<()> {
    let bytes: usize = command.iter().map(String::len).sum();
    if command.len() > ARGUMENTS_MAX || bytes > ARGUMENT_BYTES_MAX {
        let rule = format!("must be at most {ARGUMENTS_MAX} arguments, with {ARGUMENT_BYTES_MAX} bytes in all.");
        return Err(Refusal::InvalidField(field, rule));
    }
    if command.first().is_some_and(|program| program.trim().is_empty())
        || command.iter().any(|argument| argument.contains('\0'))
    {
        let rule = "must begin with the name of a program, and have no NUL characters.".to_owned();
        return Err(Refusal::InvalidField(field, rule));
    }
    Ok(())
}

/// Returns `Ok` if a command may take so long.
pub(crate) fn check_command_deadline(field: Field, deadline: Duration) -> Outcome<()> {
    if COMMAND_DEADLINE.contains(&deadline) {
        return Ok(());
    }
    Err(Refusal::InvalidField(field, "must be from 1s to 4h.".to_owned()))
}

/// Returns the deploy that acts, or is about to act, on the workloads that the app has: its rollout and release command, and the
/// restore that a failed one needs.
fn acting_deploy(state: &AppState) -> Option<Revision> {
    let acts = |deploy: &&Arc<Deploy>| {
        let is_under_way = matches!(deploy.status(), Status::Releasing | Status::RollingOut | Status::Verifying);
        !deploy.adopted && (is_under_way || deploy.trigger == Trigger::Rollback)
    };
    let failed = || state.ended_on_cluster.as_ref().filter(|_| matches!(restore::owed(state), Owed::Restore(_)));
    state.unfinished.iter().find(acts).or_else(failed).map(|deploy| deploy.revision)
}
