//! Changes that nobody told of: an app's driver reads its source's branch, and accepts what is new there.

use std::time::Duration;

use futures_util::{FutureExt, future::BoxFuture, select_biased};

use super::{ATTEMPTS, Authorized, Deployer, Outcome, Polled, inbox::Held, polls::PollOutcome};
use crate::{
    app::{App, AppUid, POLL_MAX, Policy, Source},
    decide::poll::{self, Detected, Finding, Verdict},
    deploy::{Commit, Deploy, Trigger},
    error::{Error, Result},
    ports::{Admitted, NewDeploy, Page, View},
    request::Refusal,
    source::GitSource,
    time::Timestamp,
};

/// The longest that an answer is waited for, whatever the reader of branches promises.
const ANSWER: Duration = Duration::from_secs(60);
/// As many of the newest entries are looked through for those that the webhook has brought.
const RECENT: usize = 20;
/// The newest entries are read so often at most, to look for a commit: beyond what any history keeps.
const PAGES: usize = 20;

/// The answer of a source, once it comes.
pub(super) type Reading = BoxFuture<'static, Result<Option<Commit>>>;

impl Deployer {
    /// Lets apps be polled no more often than this; [`crate::app::POLL_MIN`] unless it is said.
    #[must_use]
    pub fn with_min_poll(mut self, interval: Duration) -> Self {
        self.min_poll = interval;
        self
    }

    /// What the last look at the app's source found, where this process is the one that polls it.
    pub fn polled(&self, app: AppUid) -> Option<Polled> {
        // Whoever took it over knows better.
        let ours = self.inbox.holds(app, self.ports.clock.elapsed()) != Held::NotNamed;
        self.polls.of(app).filter(|_| ours)
    }

    /// What its owner should know of how the app is deployed: a sentence where its webhook and polling both bring the same
    /// pushes.
    ///
    /// # Errors
    /// [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn warning(&self, access: &Authorized, app: &App) -> Outcome<Option<String>> {
        if !app.is_polled() {
            return Ok(None);
        }
        let newest = self.history(access, Page { before: None, succeeded: false, limit: RECENT }).await?;
        let Some(entry) = newest.iter().find(|entry| entry.trigger == Trigger::Webhook) else { return Ok(None) };
        // A token that cannot be read is one.
        if let Ok(None) = self.ports.tokens.find(&app.id).await {
            return Ok(None);
        }
        Ok(Some(format!(
            "Two triggers are active: the webhook (revision {}) and polling. A push that both bring may be built twice. \
             Choose one: end polling (app set --poll off), or close the webhook (app webhook disable).",
            entry.revision
        )))
    }

    /// The policy, where its polling is possible here.
    pub(super) fn pollable(&self, policy: &Policy, source: &Source) -> Outcome<()> {
        let Some(interval) = policy.poll else { return Ok(()) };
        let refused = |why: String| Err(Refusal::InvalidField("policy.poll", why));
        if *source == Source::Image {
            return refused("an image app has no source to look at; CI posts its images.".to_owned());
        }
        if self.ports.builder.is_none() {
            return refused("this server has no builder, and reads no sources.".to_owned());
        }
        if interval < self.min_poll || interval > POLL_MAX {
            let (least, most) = (self.min_poll.as_secs_f64(), POLL_MAX.as_secs() / 3600);
            return refused(format!("must be off, or from {least} s to {most} h."));
        }
        Ok(())
    }

    /// Asks a source where its branch is.
    pub(super) fn read_head(&self, source: GitSource) -> Reading {
        let Some(builder) = &self.ports.builder else {
            return std::future::ready(Err(Error::invalid("this server has no builder, and reads no sources"))).boxed();
        };
        let (heads, clock) = (builder.heads.clone(), self.ports.clock.clone());
        async move {
            select_biased! {
                head = heads.look(&source).fuse() => head,
                () = clock.sleep(ANSWER).fuse() => {
                    Err(Error::Unavailable { what: format!("{} did not answer in time", source.url), cause: None })
                }
            }
        }
        .boxed()
    }

    /// Takes in a source's answer; the log is told where it is another than before.
    pub(super) fn head_read(&self, view: &View, answer: Result<Option<Commit>>, now: Timestamp) -> Option<Commit> {
        let app = &view.app;
        let (found, chain) = match answer {
            Ok(Some(head)) => {
                // That it is held stays so until it is decided again.
                let held = self.polls.of(app.uid).is_some_and(|polled| is_held(&polled.found, &head));
                if !held {
                    self.polls.note(app.uid, now, PollOutcome::Head(head.clone()));
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
        if self.polls.note(app.uid, now, PollOutcome::Unreadable(found)) {
            tracing::warn!(app = %app.id, error = %chain, "a source cannot be read for changes");
        }
        None
    }

    /// Decides what becomes of a head, and accepts it, on the condition that nothing newer came.
    pub(super) async fn detect(&self, app: AppUid, finding: &Finding, now: Timestamp) -> Result<Detected> {
        let head = &finding.head;
        for _ in 0..ATTEMPTS {
            let view = self.ports.history.view(app).await?;
            if !view.app.is_polled() {
                return Ok(Detected::Later);
            }
            let entries = self.entries_since(app, head).await?;
            match poll::decide(&view, &entries, finding) {
                Verdict::Known => return Ok(Detected::Known),
                Verdict::Forgotten => {
                    tracing::warn!(
                        app = %view.app.id, commit = %head,
                        "whether a branch's head was deployed is not known any more: the next change is"
                    );
                    return Ok(Detected::Known);
                }
                Verdict::Doubtful => {
                    tracing::info!(app = %view.app.id, commit = %head, "a branch seems to be taken back: looking again");
                    return Ok(Detected::Doubtful);
                }
                Verdict::Held(by) => {
                    if self.polls.note(app, now, PollOutcome::Held(head.clone(), by)) {
                        tracing::info!(app = %view.app.id, commit = %head, %by, "a change is held since a rollback");
                    }
                    return Ok(Detected::Held(by));
                }
                Verdict::Refused(refusal) => {
                    tracing::warn!(app = %view.app.id, commit = %head, %refusal, "a change is refused");
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

    /// The app's entries, newest first, back to one of this commit or to the oldest that there is.
    async fn entries_since(&self, app: AppUid, commit: &Commit) -> Result<Vec<Deploy>> {
        let mut entries: Vec<Deploy> = Vec::new();
        for _ in 0..PAGES {
            let before = entries.last().map(|oldest| oldest.revision);
            let older = self.ports.history.page(app, Page { before, succeeded: false, limit: poll::NEWEST }).await?;
            let is_there = |entry: &Deploy| entry.commit.as_ref().is_some_and(|known| known.may_be(commit));
            let done = older.len() < poll::NEWEST || older.iter().any(is_there);
            entries.extend(older);
            if done {
                break;
            }
        }
        Ok(entries)
    }

    /// Accepts a change; none where it must be decided anew.
    async fn accept(&self, view: &View, draft: NewDeploy) -> Result<Option<Detected>> {
        Ok(match self.ports.history.admit(self.unasked(view, draft)).await? {
            Admitted::New { deploy, .. } => {
                let (app, revision) = (&view.app.id, deploy.revision);
                tracing::info!(%app, %revision, trigger = %deploy.trigger, "accepted");
                self.bells.ring(view.app.uid);
                Some(Detected::Accepted(revision))
            }
            Admitted::Full => Some(Detected::Later),
            Admitted::Stale | Admitted::Replay(_) | Admitted::KeyReused => None,
        })
    }
}

/// What is wrong, without the word for what a caller can do about it.
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
