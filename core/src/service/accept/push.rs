//! Pushes that a git host reports: deploys like every other, unless the push is late.

use std::{sync::Arc, time::Duration};

use crate::{
    action::Action,
    app::{App, AppId, Source},
    delivery::{Delivery, Event},
    deploy::{Actor, Commit, Trigger},
    ledger::{
        Admission, ExpectedLatest, admission,
        push::{self, BranchHead, PushDecision, PushRequest, PushedCommit, Unread},
    },
    ports::Page,
    request::{Cause, DeployRequest, IdempotencyKey, Refusal},
    service::{
        ATTEMPTS, Accepted, Authorized, Deployer, Outcome,
        accept::submit::{Declined, replayed},
    },
    source::GitSource,
};

/// The time in which the source has to answer: git hosts give up after 10 s.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause before a source that answered with another head is asked again: it may not know of the push yet.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The number of newest entries that are searched for an earlier report of a push: a store may read more of them by reading
/// all that the app has.
const SEARCHED: usize = 40;

/// The outcome of a git host's call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// The pushed commit is deployed.
    Accepted(Box<Accepted>),
    /// The call is ignored and not recorded, for the reason in this sentence.
    Ignored(String),
}

/// The reads of the source for one report.
struct SourceReads {
    /// The time until which an answer counts.
    end: Duration,
    has_answered: bool,
}

impl Deployer {
    /// Accepts a git host's report: a push to the app's branch deploys its commit. A repeated report is answered with
    /// the first one's outcome, by its key before anything else is read. A commit that is not the branch's head any
    /// more, or is held, is not deployed.
    ///
    /// The source is asked for the branch's head, and again while it names another commit, for at most 5 s. If it does
    /// not answer, or still names the head before the push, the history decides whether the push is late.
    ///
    /// # Errors
    /// The refusal; nothing was recorded, unless it says that it may have been.
    pub async fn push(&self, access: &Authorized, delivery: &Delivery, key: Option<IdempotencyKey>) -> Outcome<Pushed> {
        access.check(Action::Deploy)?;
        // An earlier call's answer holds wherever the branch is by now.
        if let Some(key) = &key
            && let Some(accepted) = self.repeated(access, key).await?
        {
            return Ok(Pushed::Accepted(Box::new(accepted)));
        }
        let end = self.ports.clock.elapsed() + READ_TIMEOUT;
        // An answer of the source is no older than the history that it is judged with.
        let mut reads = SourceReads { end, has_answered: false };
        for _ in 0..ATTEMPTS {
            let app = self.state(access).await?.app;
            let pushed = match push::requested(&app, delivery)? {
                PushRequest::Ignore(why) => return Ok(Pushed::Ignored(why)),
                PushRequest::Build(pushed) => pushed,
            };
            if let Some(pushed) = self.deploy_pushed(access, delivery, (app, pushed), key.as_ref(), &mut reads).await? {
                return Ok(pushed);
            }
        }
        Err(Refusal::Busy)
    }

    /// Returns why a git host's call is ignored, as far as the app alone shows; `None` if it may deploy.
    ///
    /// # Errors
    /// As [`Deployer::push`].
    pub async fn ignored_push(&self, access: &Authorized, delivery: &Delivery) -> Outcome<Option<String>> {
        let app = self.state(access).await?.app;
        Ok(match push::requested(&app, delivery)? {
            PushRequest::Ignore(why) => Some(why),
            PushRequest::Build(_) => None,
        })
    }

    /// Deploys a pushed commit of this app, unless it is late or known. Returns `None` if the app has changed meanwhile.
    async fn deploy_pushed(
        &self,
        access: &Authorized,
        delivery: &Delivery,
        (app, pushed): (Arc<App>, PushedCommit),
        key: Option<&IdempotencyKey>,
        reads: &mut SourceReads,
    ) -> Outcome<Option<Pushed>> {
        let page = Page { before: None, succeeded: false, limit: SEARCHED };
        // Read before the branch: see `push::decide`. The turn ends before a source is waited for.
        let turn = self.push_turn(access).await;
        let (state, entries) = self.history(access, page).await?;
        drop(turn);
        // The holds that the push was judged by are those of the app as it was then.
        if state.app != app {
            return Ok(None);
        }
        let Source::Git(source) = &app.source else { return Ok(None) };
        let mut branch_head = self.branch_head((&app.id, source), &pushed, reads.end).await;
        if reads.has_answered && branch_head == BranchHead::Unread(Unread::TimedOut) {
            branch_head = BranchHead::Unread(Unread::Outdated);
        }
        reads.has_answered |= matches!(branch_head, BranchHead::At(_));
        match push::decide(source, &entries, &delivery.host, &pushed, &branch_head) {
            PushDecision::Ignore(why) => return Ok(Some(Pushed::Ignored(why))),
            PushDecision::Repeated(deploy) => return Ok(Some(Pushed::Accepted(Box::new(replayed(*deploy))))),
            PushDecision::Build => {}
        }
        let pusher = match &delivery.event {
            Event::Push(push) => push.pusher.as_deref(),
            Event::Ping | Event::Other(_) => None,
        };
        let cause = Cause { trigger: Trigger::Webhook, actor: Actor::git_host(delivery.host.clone(), pusher) };
        let request = DeployRequest::commit(pushed.commit).at(pushed.committed_at);
        let expected = ExpectedLatest::Exactly(state.latest);
        let id = self.admission_id();
        let accepted = self.admit(access, id, key.cloned(), move |state| {
            // A push is decided on the app as it was read, with its source and its holds.
            if state.app != app {
                return Err(Declined::Outdated);
            }
            let decided = admission::deploy(&state.app, &request, &cause)?;
            Ok((Admission { expected, ..Admission::plain(id, decided.deploy) }, ()))
        });
        Ok(accepted.await?.map(|(accepted, _)| Pushed::Accepted(Box::new(accepted))))
    }

    /// Returns the place of the branch: as soon as it is the pushed commit, else the last answer.
    async fn branch_head(&self, of: (&AppId, &GitSource), pushed: &PushedCommit, end: Duration) -> BranchHead {
        let mut last = None;
        loop {
            match self.read(of, end).await {
                Ok(head) => last = Some(BranchHead::At(head)),
                Err(unread) => return last.unwrap_or(BranchHead::Unread(unread)),
            }
            let again = self.ports.clock.elapsed() + RETRY_INTERVAL;
            if let Some(head) = last.take_if(|head| head.is_at(pushed) || again >= end) {
                return head;
            }
            self.ports.clock.sleep(RETRY_INTERVAL).await;
        }
    }

    /// Returns the branch's head, if the source answers in time.
    async fn read(&self, (app, source): (&AppId, &GitSource), end: Duration) -> Result<Option<Commit>, Unread> {
        // A process without a builder reads no sources: a setting of the operator, and no failure of the source.
        let builder = self.ports.builder.as_ref().ok_or(Unread::Failed)?;
        let left = end.saturating_sub(self.ports.clock.elapsed());
        match self.head_within(builder, (app, source), left).await {
            Some(Ok(head)) => Ok(head),
            Some(Err(error)) => {
                tracing::warn!(source = %source.url, error = %error.chain(), "reading a branch failed");
                Err(Unread::Failed)
            }
            None => {
                tracing::warn!(source = %source.url, "reading a branch timed out");
                Err(Unread::TimedOut)
            }
        }
    }
}
