//! Polling: an app's driver reads its source's branch, and accepts a new head.

use std::{sync::Arc, time::Duration};

use futures_util::{FutureExt, future::BoxFuture, select_biased};

use super::{ATTEMPTS, Authorized, Deployer, Outcome, PollOutcome, Polled, journal::Decision};
use crate::{
    app::{App, AppUid, Source},
    deploy::{Commit, Deploy, Trigger},
    engine::polling::{self, Detected, Finding, Verdict},
    error::{Entity, Error, Result},
    ledger::{Admission, Admitted, AppState, ExpectedLatest, NewDeploy},
    ports::{AppRef, Page},
    source::GitSource,
    time::Timestamp,
};

/// The longest wait for the branch reader, whatever it promises.
const ANSWER: Duration = Duration::from_secs(60);
/// The number of newest entries that are searched for those of the webhook.
const RECENT: usize = 20;
/// The most pages of entries that are searched for a commit: more than any history keeps.
const PAGES: usize = 20;

/// The pending answer of a source.
pub(super) type Reading = BoxFuture<'static, Result<Option<Commit>>>;

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
        if app.policy.poll.is_none() {
            return Ok(None);
        }
        let (_, newest) = self.history(access, Page { before: None, succeeded: false, limit: RECENT }).await?;
        let Some(entry) = newest.iter().find(|entry| entry.trigger == Trigger::Webhook) else { return Ok(None) };
        // A token that cannot be read counts as one.
        if let Ok(None) = self.ports.tokens.find(&app.id).await {
            return Ok(None);
        }
        Ok(Some(format!(
            "Two triggers are active: the webhook (revision {}) and polling. A push that both bring may be built twice. \
             Choose one: end polling (app set --poll off), or close the webhook (app webhook disable).",
            entry.revision
        )))
    }

    /// Reads the head of a source's branch.
    pub(super) fn read_head(&self, source: GitSource) -> Reading {
        let Some(builder) = &self.ports.builder else {
            return std::future::ready(Err(Error::invalid("this server has no builder, and reads no sources"))).boxed();
        };
        let (branches, clock) = (builder.branches.clone(), self.ports.clock.clone());
        async move {
            select_biased! {
                head = branches.look(&source).fuse() => head,
                () = clock.sleep(ANSWER).fuse() => {
                    Err(Error::Unavailable { what: format!("{} did not answer in time", source.url), cause: None })
                }
            }
        }
        .boxed()
    }

    /// Processes a source's answer; logs it if it differs from the one before.
    pub(super) fn head_read(&self, view: &AppState, answer: Result<Option<Commit>>, now: Timestamp) -> Option<Commit> {
        let app = &view.app;
        let (found, chain) = match answer {
            Ok(Some(head)) => {
                // A held head stays held until it is decided again.
                let held = self.poll_results.of(app.uid).is_some_and(|polled| is_held(&polled.found, &head));
                if !held {
                    self.poll_results.note(app.uid, now, PollOutcome::Head(head.clone()));
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
        if self.poll_results.note(app.uid, now, PollOutcome::Unreadable(found)) {
            tracing::warn!(app = %app.id, error = %chain, "polling a source failed");
        }
        None
    }

    /// Decides on a head, and accepts it if no newer deploy was accepted.
    pub(super) async fn detect(&self, app: AppUid, finding: &Finding, now: Timestamp) -> Result<Detected> {
        let head = &finding.head;
        for _ in 0..ATTEMPTS {
            let loaded = self.journal.load(AppRef::Uid(app)).await?;
            let view = loaded.ok_or(Error::NotFound(Entity::App))?.into_state();
            if !view.is_polled() {
                return Ok(Detected::Later);
            }
            let entries = self.entries_since(&view, head).await?;
            match polling::decide(&view, &entries, finding) {
                Verdict::Known => return Ok(Detected::Known),
                Verdict::Forgotten => {
                    tracing::warn!(
                        app = %view.app.id, commit = %head,
                        "ignoring a branch's head that may have been deployed before: the history no longer shows it"
                    );
                    return Ok(Detected::Known);
                }
                Verdict::Doubtful => {
                    tracing::info!(app = %view.app.id, commit = %head, "the branch seems to be reset, polling again");
                    return Ok(Detected::Doubtful);
                }
                Verdict::Held(by) => {
                    if self.poll_results.note(app, now, PollOutcome::Held(head.clone(), by)) {
                        tracing::info!(app = %view.app.id, commit = %head, %by, "ignoring a held change");
                    }
                    return Ok(Detected::Held(by));
                }
                Verdict::Refused(refusal) => {
                    tracing::warn!(app = %view.app.id, commit = %head, %refusal, "accepting a change was refused");
                    return Ok(Detected::Known);
                }
                Verdict::Deploy(draft) => match self.accept(&view, *draft).await? {
                    Some(detected) => return Ok(detected),
                    None => continue,
                },
            }
        }
        Ok(Detected::Later)
    }

    /// Returns the app's entries, newest first, back to one of this commit or to the oldest.
    async fn entries_since(&self, state: &AppState, commit: &Commit) -> Result<Vec<Deploy>> {
        let mut entries: Vec<Deploy> = state.unfinished.iter().rev().map(|deploy| Deploy::clone(deploy)).collect();
        let mut before = None;
        for _ in 0..PAGES {
            let page = Page { before, succeeded: false, limit: polling::NEWEST };
            let older = self.ports.history.page(state.app.uid, page).await?;
            before = older.last().map(|oldest| oldest.revision);
            let is_there = |entry: &Deploy| entry.commit.as_ref().is_some_and(|known| known.may_be(commit));
            let done = older.len() < polling::NEWEST || older.iter().any(is_there);
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
    async fn accept(&self, view: &AppState, deploy: NewDeploy) -> Result<Option<Detected>> {
        let (app, expected) = (Arc::clone(&view.app), ExpectedLatest::Exactly(view.latest));
        let (id, driver) = (self.admission_id(), self.driver());
        let accepted = self.journal.update(app.uid, None, move |change, lookup, now| {
            if change.state.app != app {
                return Decision::Answer(Admitted::Outdated);
            }
            let driver = driver.clone();
            let admission = Admission { expected, driver, ..Admission::plain(id, deploy.clone()) };
            Decision::of(change.admit(admission, lookup, now))
        });
        Ok(match accepted.await?.0 {
            Admitted::New { deploy, .. } => {
                let (app, revision) = (&view.app.id, deploy.revision);
                tracing::info!(%app, %revision, trigger = %deploy.trigger, "accepted");
                self.waiters.notify(view.app.uid);
                Some(Detected::Accepted(revision))
            }
            Admitted::Full => Some(Detected::Later),
            Admitted::Outdated | Admitted::NextCommit | Admitted::Replayed(_) | Admitted::KeyReused => None,
        })
    }
}

/// Returns the error's text without the word for its class.
fn sentence(error: &Error) -> String {
    match error {
        Error::Denied { what, .. }
        | Error::Invalid { what, .. }
        | Error::Unavailable { what, .. }
        | Error::Corrupt { what, .. } => what.clone(),
        Error::NotFound(_) | Error::Conflict(_) => error.to_string(),
    }
}

fn is_held(found: &PollOutcome, head: &Commit) -> bool {
    matches!(found, PollOutcome::Held(held, _) if held == head)
}
