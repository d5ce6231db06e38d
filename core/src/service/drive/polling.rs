//! Polling: an app's driver reads its source, and accepts a new head.

use std::{sync::Arc, time::Duration};

use futures_util::{FutureExt, future::BoxFuture};

use super::following;

use crate::{
    app::{App, AppId, AppUid, Source},
    deploy::{Deploy, Trigger},
    engine::{
        following as images,
        polling::{self, Detected, Finding, Head, HeadDecision, PollSource},
    },
    error::{Entity, Error, Result},
    follow::Followed,
    ledger::{Admission, Admitted, AppState, ExpectedLatest, NewDeploy},
    ports::{AppRef, Page},
    service::{ATTEMPTS, Authorized, Deployer, Outcome, PollOutcome, Polled, in_time::in_time, journal::Decision},
    source::GitSource,
    time::Timestamp,
};

/// The longest wait for the branch reader, whatever it promises.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// The number of newest entries that are searched for those of the webhook.
const WARNING_PAGE: usize = 20;
/// The most pages of entries that are searched for a commit: more than any history keeps.
const PAGES_MAX: usize = 20;

/// The pending answer of a source.
pub(crate) type PendingHead<'a> = BoxFuture<'a, Result<Option<Head>>>;

impl Deployer {
    /// Sets the shortest interval of polling; the default is [`crate::app::POLL_MIN`].
    #[must_use]
    pub fn with_min_poll(mut self, interval: Duration) -> Self {
        self.min_poll = interval;
        self
    }

    /// Returns the last poll of the app's source, if this process polls it. See [`Polled`].
    pub fn polled(&self, app: AppUid) -> Option<Polled> {
        self.poll_results.of(app)
    }

    /// Returns a warning for the app's owner if both its webhook and polling bring the same pushes.
    ///
    /// # Errors
    /// [`crate::request::Refusal::StoreUnavailable`] while the store is away.
    pub async fn warning(&self, access: &Authorized, app: &App) -> Outcome<Option<String>> {
        // What following finds and the webhook brings is one image, which is deployed once.
        if app.policy.poll.is_none() || app.source == Source::Image {
            return Ok(None);
        }
        let turn = self.history_turn(access, WARNING_PAGE).await;
        let (_, newest) = self.history(access, Page { before: None, succeeded: false, limit: WARNING_PAGE }).await?;
        drop(turn);
        let Some(entry) = newest.iter().find(|entry| entry.trigger == Trigger::Webhook) else { return Ok(None) };
        // A token that cannot be read counts as one.
        if let Ok(None) = self.ports.tokens.find(&app.id).await {
            return Ok(None);
        }
        Ok(Some(format!(
            "Two triggers are active: the webhook (revision {}) and polling. A push that both bring may be built twice. \
             Choose one: end polling, or close the webhook.",
            entry.revision
        )))
    }

    /// Reads the head of an app's source. `Conflict` means that it was not read: the reader has no room, or another replica may
    /// have the lease by now, and then polls the source.
    pub(crate) fn read_head(&self, app: AppId, source: PollSource) -> PendingHead<'_> {
        async move {
            if !self.work_queue.is_alive(self.ports.clock.elapsed()) {
                return Err(Error::Conflict(Entity::Capacity));
            }
            match source {
                PollSource::Branch(source) => self.read_branch(&app, &source).await,
                PollSource::Tags { rule, repository } => {
                    let none = || Error::invalid("this server reads no registries");
                    let (registry, clock) = (self.ports.registry.as_ref().ok_or_else(none)?, &*self.ports.clock);
                    let read = following::read(&**registry, clock, &app.namespace, &rule, &repository).await?;
                    Ok(Some(Head::Newest(Box::new(Followed { rule, repository, newest: read.newest }))))
                }
            }
        }
        .boxed()
    }

    async fn read_branch(&self, app: &AppId, source: &GitSource) -> Result<Option<Head>> {
        let none = || Error::invalid("this server has no builder, and reads no sources");
        let branches = &self.ports.builder.as_ref().ok_or_else(none)?.branches;
        let late = || Error::Unavailable { what: format!("{} did not answer in time", source.url), cause: None };
        let head = in_time(&*self.ports.clock, READ_TIMEOUT, branches.look(app, source)).await.ok_or_else(late)??;
        Ok(head.map(Head::Commit))
    }

    /// Processes a source's answer; logs it if it differs from the one before.
    pub(crate) fn head_read(&self, app_state: &AppState, answer: Result<Option<Head>>, now: Timestamp) -> Option<Head> {
        let app = &app_state.app;
        let mut found_head = None;
        let (found, chain) = match answer {
            Ok(Some(Head::Newest(followed))) if followed.newest.is_none() => {
                let why = format!("{} has no tag that {} follows", followed.repository, followed.rule);
                found_head = Some(Head::Newest(followed));
                (why.clone(), why)
            }
            Ok(Some(head)) => {
                // A held head stays held until it is decided again.
                let held = self.poll_results.of(app.uid).is_some_and(|polled| is_held(&polled.found, &head));
                if !held {
                    self.poll_results.note((app.uid, &app.id), now, PollOutcome::Head(head.clone()));
                }
                return Some(head);
            }
            Ok(None) => {
                let branch = match &app.source {
                    Source::Git(source) => source.branch.as_str(),
                    Source::Image => "",
                };
                let why = format!("the source has no branch {branch}");
                (why.clone(), why)
            }
            Err(error) => (sentence(&error), error.chain()),
        };
        if self.poll_results.note((app.uid, &app.id), now, PollOutcome::Unreadable(found)) {
            tracing::warn!(app = %app.id, error = %chain, "polling a source failed");
        }
        found_head
    }

    /// Decides on a head of this source, and accepts it if no newer deploy was accepted.
    pub(crate) async fn detect(
        &self,
        app: AppUid,
        finding: &Finding,
        source: Option<PollSource>,
        now: Timestamp,
    ) -> Result<Detected> {
        let head = &finding.head;
        for _ in 0..ATTEMPTS {
            let loaded = self.journal.load(AppRef::Uid(app)).await?;
            let app_state = loaded.ok_or(Error::NotFound(Entity::App))?.into_state();
            // The head of another source, or of a branch that the app left meanwhile, is no change of this one.
            if source.is_none() || PollSource::of(&app_state) != source {
                return Ok(Detected::Postponed);
            }
            let decision = match head {
                Head::Commit(commit) => {
                    let is_there = |entry: &Deploy| entry.commit.as_ref().is_some_and(|known| known.may_be(commit));
                    let entries = self.entries_since(&app_state, is_there).await?;
                    polling::decide(&app_state, &entries, commit, finding)
                }
                Head::Newest(followed) => {
                    let entries = self.entries_since(&app_state, |entry| images::is_of(entry, followed)).await?;
                    images::decide(&app_state, &entries, followed, finding)
                }
            };
            match decision {
                HeadDecision::Known => return Ok(Detected::Known),
                HeadDecision::Noted => match self.note_followed(&app_state, head).await? {
                    true => return Ok(Detected::Known),
                    false => continue,
                },
                HeadDecision::Forgotten => {
                    tracing::warn!(
                        app = %app_state.app.id, %head,
                        "ignoring a branch's head that may have been deployed before: the history no longer shows it"
                    );
                    return Ok(Detected::Known);
                }
                HeadDecision::Unconfirmed(wait) => {
                    tracing::debug!(app = %app_state.app.id, %head, "confirming a change by polling its source again");
                    return Ok(Detected::Unconfirmed(wait));
                }
                HeadDecision::Held(by) => {
                    if self.poll_results.note((app, &app_state.app.id), now, PollOutcome::Held(head.clone(), by)) {
                        tracing::info!(app = %app_state.app.id, %head, %by, "ignoring a held change");
                    }
                    return Ok(Detected::Held(by));
                }
                HeadDecision::Refused(refusal) => {
                    tracing::warn!(app = %app_state.app.id, %head, %refusal, "accepting a change was refused");
                    return Ok(Detected::Known);
                }
                HeadDecision::Deploy(deploy) => match self.accept(&app_state, *deploy, head).await? {
                    Some(detected) => return Ok(detected),
                    None => continue,
                },
            }
        }
        Ok(Detected::Postponed)
    }

    /// Records what following has decided on, unless the app has changed since; returns whether it has not.
    async fn note_followed(&self, app_state: &AppState, head: &Head) -> Result<bool> {
        let Head::Newest(followed) = head else { return Ok(true) };
        let (app, latest, followed) = (Arc::clone(&app_state.app), app_state.latest, (**followed).clone());
        let noted = self.journal.update(app.uid, None, move |change, _, now| {
            if change.state.app != app || change.state.latest != latest {
                return Decision::Answer(false);
            }
            change.note_followed(followed.clone(), now);
            Decision::Commit(true)
        });
        Ok(noted.await?.0)
    }

    /// Returns the app's entries, newest first, back to one that is looked for or to the oldest.
    pub(crate) async fn entries_since(
        &self,
        state: &AppState,
        is_there: impl Fn(&Deploy) -> bool,
    ) -> Result<Vec<Deploy>> {
        let mut entries: Vec<Deploy> = state.unfinished.iter().rev().map(|deploy| Deploy::clone(deploy)).collect();
        let mut before = None;
        for _ in 0..PAGES_MAX {
            let page = Page { before, succeeded: false, limit: polling::HISTORY_PAGE };
            let older = self.ports.history.page(state.app.uid, page).await?;
            before = older.last().map(|oldest| oldest.revision);
            let done = older.len() < polling::HISTORY_PAGE || older.iter().any(&is_there);
            entries.extend(older);
            if done {
                break;
            }
        }
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.revision));
        entries.dedup_by_key(|entry| entry.revision);
        Ok(entries)
    }

    /// Accepts a change if no newer deploy was accepted and the app is unchanged. Returns `None` if it must be decided
    /// again.
    async fn accept(&self, app_state: &AppState, deploy: NewDeploy, head: &Head) -> Result<Option<Detected>> {
        let resolves = self.is_to_be_resolved()(&app_state.app, &deploy);
        let deploy = NewDeploy { resolves, ..deploy };
        let followed = match head {
            Head::Commit(_) => None,
            Head::Newest(followed) => Some(followed.clone()),
        };
        let (app, expected) = (Arc::clone(&app_state.app), ExpectedLatest::Exactly(app_state.latest));
        let (id, driver) = (self.admission_id(), self.driver());
        let accepted = self.journal.update(app.uid, None, move |change, lookup, now| {
            if change.state.app != app {
                return Decision::Answer(Admitted::Outdated);
            }
            let (driver, followed) = (driver.clone(), followed.clone());
            let admission = Admission { expected, driver, followed, ..Admission::plain(id, deploy.clone()) };
            Decision::of(change.admit(admission, lookup, now))
        });
        Ok(match accepted.await?.0 {
            Admitted::New { deploy, .. } => {
                let (app, revision) = (&app_state.app.id, deploy.revision);
                tracing::info!(%app, %revision, trigger = %deploy.trigger, "accepted");
                self.waiters.notify(app_state.app.uid);
                Some(Detected::Accepted(revision))
            }
            // The head is decided again once the lock has ended.
            Admitted::Full | Admitted::Locked(_) => Some(Detected::Postponed),
            Admitted::Outdated | Admitted::NextCommit | Admitted::Replayed(_) | Admitted::KeyReused => None,
        })
    }
}

/// Returns the error's text without the word for its class.
pub(crate) fn sentence(error: &Error) -> String {
    match error {
        Error::Denied { what, .. }
        | Error::Invalid { what, .. }
        | Error::Unavailable { what, .. }
        | Error::Corrupt { what, .. } => what.clone(),
        Error::NotFound(_) | Error::Conflict(_) => error.to_string(),
    }
}

fn is_held(found: &PollOutcome, head: &Head) -> bool {
    matches!(found, PollOutcome::Held(held, _) if held == head)
}
