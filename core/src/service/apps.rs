//! An app's policy, source, holds and webhook; cancelling its deploys, and deleting it.

use super::{ATTEMPTS, Authorized, Deployer, Outcome, Principal, journal::Decision, unwritten};
use crate::{
    access::Action,
    app::{AppId, KEEP, Policy, Source},
    deploy::{Deploy, Reason, Revision, State, Status},
    error::{Entity, Error},
    ledger::{AppState, Change, Record, Refused},
    ports::WebhookSecret,
    request::{Field, PolicyChange, Refusal, SourceChange},
    time::Timestamp,
};

impl Deployer {
    /// Changes an app's policy.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`], [`Refusal::AppNotFound`], [`Refusal::Busy`]; [`Refusal::StoreUnavailable`] while the
    /// store is away.
    pub async fn change_policy(&self, principal: &Principal, id: &AppId, change: PolicyChange) -> Outcome<AppState> {
        self.change(principal, id, change, SourceChange::default()).await
    }

    /// Changes an app's policy, and a git app's source, in one commit. A build that has begun from another source ends.
    ///
    /// # Errors
    /// As [`Deployer::change_policy`]; [`Refusal::WrongKind`] for an image app's source.
    pub async fn change(
        &self,
        principal: &Principal,
        id: &AppId,
        policy: PolicyChange,
        source: SourceChange,
    ) -> Outcome<AppState> {
        let rules = self.source_rules();
        let access = self.open_for(Action::Change, principal, id).await?;
        let changed = self.update_app(&access, move |change, now| {
            let app = &change.state.app;
            let new_policy = checked(policy.clone().apply(app.policy.clone()))?;
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
            if new_policy.poll != app.policy.poll {
                rules.pollable(&new_policy, &new_source)?;
            }
            change.configure(new_source, new_policy, now);
            Ok(())
        });
        let state = changed.await?;
        if state.app.source != Source::Image {
            self.changed_here(state.app.uid);
        }
        Ok(state)
    }

    /// Releases all holds of an app.
    ///
    /// # Errors
    /// [`Refusal::AppNotFound`], [`Refusal::Busy`]; [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn release_hold(&self, principal: &Principal, id: &AppId) -> Outcome<AppState> {
        let access = self.open_for(Action::ReleaseHold, principal, id).await?;
        self.update_app(&access, |change, now| {
            change.release_holds(now);
            Ok(())
        })
        .await
    }

    /// Changes an app, or returns the refusal.
    pub(super) async fn update_app(
        &self,
        access: &Authorized,
        mut change: impl FnMut(&mut Change, Timestamp) -> Outcome<()> + Send + 'static,
    ) -> Outcome<AppState> {
        let updated = self.journal.update(access.uid, None, move |state, _, now| match change(state, now) {
            Ok(()) => Decision::Commit(Ok(())),
            Err(refusal) => Decision::Answer(Err(refusal)),
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
    /// [`Refusal::AppNotFound`]; [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn delete(&self, principal: &Principal, id: &AppId) -> Outcome<()> {
        let access = self.open_for(Action::Delete, principal, id).await?;
        let app = self.state(&access).await?.app;
        self.forget_trusts(&access).await?;
        self.ports.tokens.remove(access.uid).await.map_err(|error| unwritten(id, error))?;
        let message = format!("{} deleted the app.", principal.actor());
        self.end_and_remove(&access, message).await?;
        self.changed_here(access.uid);
        tracing::info!(app = %id, uid = %access.uid, actor = %principal.actor(), "deleted");
        if let Err(error) = self.ports.rollouts.forget(&app).await {
            tracing::warn!(app = %id, error = %error.chain(), "reporting the deletion to the rollout driver failed");
        }
        Ok(())
    }

    async fn end_and_remove(&self, access: &Authorized, message: String) -> Outcome<()> {
        for _ in 0..ATTEMPTS {
            self.cancel_where(access, Reason::APP_DELETED, message.clone(), |_| true).await?;
            self.end_builds(access.uid).await;
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
    pub async fn cancel(&self, principal: &Principal, id: &AppId, revision: Revision) -> Outcome<Deploy> {
        let access = self.open_for(Action::Cancel, principal, id).await?;
        let message = format!("{} cancelled it.", principal.actor());
        self.cancel_where(&access, Reason::CANCELLED, message, move |deploy| deploy.revision == revision).await?;
        let entry = self.entry(&access, revision).await?;
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
            let state = || State::Cancelled { reason: Reason::new(reason), message: message.clone() };
            let unfinished = change.state.unfinished.iter().filter(|deploy| wanted(deploy));
            let changes: Vec<Deploy> = unfinished.map(|deploy| deploy.moved(state())).collect();
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

    /// Enables the app's webhook with a new token; the old one is refused from then on.
    ///
    /// # Errors
    /// [`Refusal::AppNotFound`]; [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn enable_webhook(&self, principal: &Principal, id: &AppId) -> Outcome<WebhookSecret> {
        let access = self.open_for(Action::EnableWebhook, principal, id).await?;
        let made = self.ports.tokens.put(access.uid, &self.new_token()).await.map_err(|error| unwritten(id, error))?;
        // The first calls that fail are explained too.
        self.recognition.read(id, Some(&made));
        Ok(made)
    }

    /// Gives the app's webhook a new token; the old one opens it too until the overlap is over.
    ///
    /// # Errors
    /// [`Refusal::AppNotFound`], [`Refusal::NoWebhook`]; [`Refusal::RotatedAlready`] while an earlier overlap lasts;
    /// [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn rotate_webhook(
        &self,
        principal: &Principal,
        id: &AppId,
        overlap: std::time::Duration,
    ) -> Outcome<WebhookSecret> {
        let access = self.open_for(Action::EnableWebhook, principal, id).await?;
        let now = self.store_time().await?;
        // A repeated call, whose answer was lost, would end the token that CI has for one that nobody has seen.
        let present = self.ports.tokens.find(id).await.map_err(super::refused)?.ok_or(Refusal::NoWebhook)?;
        if present.previous_at(now).is_some() {
            return Err(Refusal::RotatedAlready);
        }
        let until = now.after(overlap);
        match self.ports.tokens.rotate(access.uid, &self.new_token(), until).await {
            Err(Error::NotFound(Entity::Object)) => Err(Refusal::NoWebhook),
            rotated => rotated.map_err(|error| unwritten(id, error)),
        }
    }

    /// The app's webhook secret.
    ///
    /// # Errors
    /// [`Refusal::AppNotFound`], [`Refusal::NoWebhook`]; [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn webhook(&self, principal: &Principal, id: &AppId) -> Outcome<WebhookSecret> {
        self.open_for(Action::ReadToken, principal, id).await?;
        self.ports.tokens.find(id).await.map_err(super::refused)?.ok_or(Refusal::NoWebhook)
    }

    /// Returns the time at which the app's webhook was enabled, and the end of the previous token's time.
    ///
    /// # Errors
    /// As [`Deployer::webhook`].
    pub async fn webhook_times(&self, principal: &Principal, id: &AppId) -> Outcome<(Timestamp, Option<Timestamp>)> {
        self.open_for(Action::Read, principal, id).await?;
        let secret = self.ports.tokens.find(id).await.map_err(super::refused)?;
        let secret = secret.ok_or(Refusal::NoWebhook)?;
        Ok((secret.created_at, secret.previous_at(self.time()).map(|previous| previous.until)))
    }

    /// Disables the app's webhook: its token is refused from then on, and no pipeline is trusted any more.
    ///
    /// # Errors
    /// [`Refusal::AppNotFound`]; [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn disable_webhook(&self, principal: &Principal, id: &AppId) -> Outcome<()> {
        let access = self.open_for(Action::DisableWebhook, principal, id).await?;
        self.forget_trusts(&access).await?;
        self.ports.tokens.remove(access.uid).await.map_err(|error| unwritten(id, error))
    }

    /// The protection of stored tokens.
    pub fn sealing(&self) -> crate::ports::Sealing {
        self.ports.tokens.sealing()
    }
}

/// Returns the policy if a rollout can succeed under it.
pub(super) fn checked(policy: Policy) -> Outcome<Policy> {
    if !KEEP.contains(&policy.keep) {
        let rule = format!("must be a number from {} to {}.", KEEP.start(), KEEP.end());
        return Err(Refusal::InvalidField(Field::PolicyKeep, rule));
    }
    if policy.settle < policy.rollout_deadline {
        return Ok(policy);
    }
    let rule = "must be longer than the time to settle: no rollout would be over before it.".to_owned();
    Err(Refusal::InvalidField(Field::PolicyRolloutDeadline, rule))
}
