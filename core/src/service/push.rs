//! A git host tells of a push: the same road as every deploy, once it is clear that the push is not late.

use std::time::Duration;

use futures_util::{FutureExt, select_biased};

use super::{ATTEMPTS, Accepted, Authorized, Deployer, Outcome, refused, submit::Decision};
use crate::{
    app::{App, Source},
    decide::{
        admission,
        push::{self, Standing, Verdict, Wanted},
    },
    delivery::{Delivery, Event},
    deploy::{Commit, Trigger},
    ports::Page,
    request::{Cause, DeployRequest, IdempotencyKey, Refusal},
    source::GitSource,
};

/// How long the source may take to say where the branch is: git hosts give up after 10 s.
const PATIENCE: Duration = Duration::from_secs(5);

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
    /// told again is what it was, and one whose commit is not the branch's head any more, or is held, deploys nothing.
    ///
    /// The source is asked where the branch is, for at most 5 s; where it does not say, the history tells what is late.
    ///
    /// # Errors
    /// The refusal; nothing was recorded, unless it says that it may have been.
    pub async fn push(&self, access: &Authorized, delivery: &Delivery, key: Option<IdempotencyKey>) -> Outcome<Pushed> {
        let end = self.ports.clock.elapsed() + PATIENCE;
        for _ in 0..ATTEMPTS {
            let app = self.find(&access.id).await?;
            if app.uid != access.uid {
                return Err(Refusal::AppNotFound(access.id.clone()));
            }
            let commit = match push::wanted(&app, delivery)? {
                Wanted::Nothing(why) => return Ok(Pushed::Nothing(why)),
                Wanted::Build(commit) => commit,
            };
            if let Some(pushed) = self.bring(access, &app, delivery, commit, key.as_ref(), end).await? {
                return Ok(pushed);
            }
        }
        Err(Refusal::Busy)
    }

    /// Deploys a pushed commit, unless it is late or known; none where the app has changed meanwhile.
    async fn bring(
        &self,
        access: &Authorized,
        app: &App,
        delivery: &Delivery,
        commit: Commit,
        key: Option<&IdempotencyKey>,
        end: Duration,
    ) -> Outcome<Option<Pushed>> {
        let Source::Git(source) = &app.source else { return Ok(None) };
        let page = Page { before: None, succeeded: false, limit: LOOKED_AT };
        // Read before the branch is: see `verdict`.
        let entries = self.ports.history.page(access.uid, page).await.map_err(|error| refused(&error))?;
        let standing = self.standing(source, end).await;
        match push::verdict(source, &entries, delivery.host, &commit, &standing) {
            Verdict::Nothing(why) => return Ok(Some(Pushed::Nothing(why))),
            Verdict::Known(deploy) => {
                let known = Accepted { deploy: *deploy, replayed: true, superseded: Vec::new(), ignored: Vec::new() };
                return Ok(Some(Pushed::Accepted(Box::new(known))));
            }
            Verdict::Build => {}
        }
        let pusher = match &delivery.event {
            Event::Push(push) => push.pusher.as_deref(),
            Event::Ping | Event::Other(_) => None,
        };
        let cause = Cause { trigger: Trigger::Webhook, actor: delivery.host.actor(pusher) };
        let request = DeployRequest { image: None, commit: Some(commit), key: None };
        let after = Some(entries.first().map(|entry| entry.revision));
        let decision = admission::deploy(app, &request, &cause)
            .map(|accepted| Decision { after, ..Decision::plain(app, accepted.draft) });
        Ok(self.admit(access, decision, key).await?.map(Box::new).map(Pushed::Accepted))
    }

    async fn standing(&self, source: &GitSource, end: Duration) -> Standing {
        let Some(builder) = &self.ports.builder else { return Standing::Unread };
        let left = end.saturating_sub(self.ports.clock.elapsed());
        select_biased! {
            head = builder.heads.head(source).fuse() => match head {
                Ok(head) => Standing::At(head),
                Err(error) => {
                    tracing::warn!(source = %source.url, error = %error.chain(), "a source does not say where its branch is");
                    Standing::Unread
                }
            },
            () = self.ports.clock.sleep(left).fuse() => {
                tracing::warn!(source = %source.url, "a source does not say in time where its branch is");
                Standing::Unread
            }
        }
    }
}
