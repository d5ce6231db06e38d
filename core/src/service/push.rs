//! A git host tells of a push: the same road as every deploy, once it is clear that the push is not late.

use std::time::Duration;

use futures_util::{FutureExt, select_biased};

use super::{ATTEMPTS, Accepted, Authorized, Deployer, Outcome, refused, submit::Decision};
use crate::{
    app::{App, Source},
    decide::{
        admission,
        push::{self, Brought, Standing, Verdict, Wanted},
    },
    delivery::{Delivery, Event},
    deploy::{Commit, Deploy, Trigger},
    error::Error,
    ports::{Admitted, HistoryExt, Page},
    request::{Cause, DeployRequest, IdempotencyKey, Refusal},
    source::GitSource,
};

/// How long the source may take to say where the branch is: git hosts give up after 10 s.
const PATIENCE: Duration = Duration::from_secs(5);
/// After this time a source is asked again that named another head than the pushed commit: it may not have heard of the
/// push yet.
const AGAIN: Duration = Duration::from_secs(1);

/// How far back it is looked whether a push was told of before.
const LOOKED_AT: usize = 100;

/// What became of a git host's call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// The pushed commit is deployed.
    Accepted(Box<Accepted>),
    /// Nothing was done and nothing recorded, for the reason in this sentence.
    Nothing(String),
}

impl Deployer {
    /// Accepts what a git host tells of: a push to the app's branch is a deploy of the commit that it brought. One that is
    /// told again is what it was, under its key before anything else is looked at; and one whose commit is not the branch's
    /// head any more, or is held, deploys nothing.
    ///
    /// The source is asked where the branch is, and again while it names another commit, for at most 5 s; where it does
    /// not say, or still says where the branch was before the push, the history tells what is late.
    ///
    /// # Errors
    /// The refusal; nothing was recorded, unless it says that it may have been.
    pub async fn push(&self, access: &Authorized, delivery: &Delivery, key: Option<IdempotencyKey>) -> Outcome<Pushed> {
        if let Some(known) = self.known(access, key.as_ref()).await? {
            return Ok(Pushed::Accepted(Box::new(known)));
        }
        let end = self.ports.clock.elapsed() + PATIENCE;
        for _ in 0..ATTEMPTS {
            let app = self.find(&access.id).await?;
            if app.uid != access.uid {
                return Err(Refusal::AppNotFound(access.id.clone()));
            }
            let brought = match push::wanted(&app, delivery)? {
                Wanted::Nothing(why) => return Ok(Pushed::Nothing(why)),
                Wanted::Build(brought) => brought,
            };
            if let Some(pushed) = self.bring(access, &app, delivery, brought, key.as_ref(), end).await? {
                return Ok(pushed);
            }
        }
        Err(Refusal::Busy)
    }

    /// What an earlier call with this key has made, whatever has become of the branch since.
    async fn known(&self, access: &Authorized, key: Option<&IdempotencyKey>) -> Outcome<Option<Accepted>> {
        let Some(key) = key else { return Ok(None) };
        match self.ports.history.replay(access.uid, key).await {
            Ok(Some(Admitted::Replay(deploy))) => Ok(Some(replayed(deploy))),
            Ok(Some(Admitted::KeyReused)) => Err(Refusal::KeyReused),
            Ok(Some(Admitted::New { .. } | Admitted::Stale | Admitted::Full) | None) => Ok(None),
            Err(Error::NotFound(_)) => Err(Refusal::AppNotFound(access.id.clone())),
            Err(error) => Err(refused(&error)),
        }
    }

    /// Deploys a pushed commit, unless it is late or known; none where the app has changed meanwhile.
    async fn bring(
        &self,
        access: &Authorized,
        app: &App,
        delivery: &Delivery,
        brought: Brought,
        key: Option<&IdempotencyKey>,
        end: Duration,
    ) -> Outcome<Option<Pushed>> {
        let Source::Git(source) = &app.source else { return Ok(None) };
        let page = Page { before: None, succeeded: false, limit: LOOKED_AT };
        // Read before the branch is: see `verdict`.
        let entries = self.ports.history.page(access.uid, page).await.map_err(|error| refused(&error))?;
        let standing = self.standing(source, &brought, end).await;
        match push::verdict(source, &entries, delivery.host, &brought, &standing) {
            Verdict::Nothing(why) => return Ok(Some(Pushed::Nothing(why))),
            Verdict::Known(deploy) => return Ok(Some(Pushed::Accepted(Box::new(replayed(*deploy))))),
            Verdict::Build => {}
        }
        let pusher = match &delivery.event {
            Event::Push(push) => push.pusher.as_deref(),
            Event::Ping | Event::Other(_) => None,
        };
        let cause = Cause { trigger: Trigger::Webhook, actor: delivery.host.actor(pusher) };
        let request = DeployRequest { image: None, commit: Some(brought.commit), key: None };
        let after = Some(entries.first().map(|entry| entry.revision));
        let decision = admission::deploy(app, &request, &cause)
            .map(|accepted| Decision { after, ..Decision::plain(app, accepted.draft) });
        Ok(self.admit(access, decision, key).await?.map(Box::new).map(Pushed::Accepted))
    }

    /// Where the branch is: as soon as it is where the push has left it, else what was heard last.
    async fn standing(&self, source: &GitSource, brought: &Brought, end: Duration) -> Standing {
        let mut standing = Standing::Unread;
        loop {
            match self.read(source, end).await {
                Some(head) => standing = Standing::At(head),
                None => return standing,
            }
            let again = self.ports.clock.elapsed() + AGAIN;
            if standing.is_of(brought) || again >= end {
                return standing;
            }
            self.ports.clock.sleep(AGAIN).await;
        }
    }

    /// Where the branch is, if the source says so in time.
    async fn read(&self, source: &GitSource, end: Duration) -> Option<Option<Commit>> {
        let builder = self.ports.builder.as_ref()?;
        let left = end.saturating_sub(self.ports.clock.elapsed());
        select_biased! {
            head = builder.heads.head(source).fuse() => match head {
                Ok(head) => Some(head),
                Err(error) => {
                    tracing::warn!(source = %source.url, error = %error.chain(), "a source does not say where its branch is");
                    None
                }
            },
            () = self.ports.clock.sleep(left).fuse() => {
                tracing::warn!(source = %source.url, "a source does not say in time where its branch is");
                None
            }
        }
    }
}

fn replayed(deploy: Deploy) -> Accepted {
    Accepted { deploy, replayed: true, superseded: Vec::new(), ignored: Vec::new() }
}
