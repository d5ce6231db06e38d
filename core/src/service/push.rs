//! A git host tells of a push: the same road as every deploy, once it is clear that the push is not late.

use std::{sync::Arc, time::Duration};

use futures_util::{FutureExt, select_biased};

use super::{
    ATTEMPTS, Accepted, Authorized, Deployer, Outcome, refused,
    submit::{Declined, replayed},
};
use crate::{
    app::Source,
    delivery::{Delivery, Event},
    deploy::{Actor, Commit, Trigger},
    ledger::{
        Admission, Admitted, Change, ExpectedLatest, KeyLookup, admission,
        push::{self, Brought, Standing, Verdict, Wanted},
    },
    ports::{AppRef, Page},
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
            let app = self.app(access).await?;
            let brought = match push::wanted(&app, delivery)? {
                Wanted::Nothing(why) => return Ok(Pushed::Nothing(why)),
                Wanted::Build(brought) => brought,
            };
            if let Some(pushed) = self.bring(access, delivery, brought, key.as_ref(), end).await? {
                return Ok(pushed);
            }
        }
        Err(Refusal::Busy)
    }

    /// What an earlier call with this key has made, whatever has become of the branch since.
    async fn known(&self, access: &Authorized, key: Option<&IdempotencyKey>) -> Outcome<Option<Accepted>> {
        let Some(key) = key else { return Ok(None) };
        let loaded = self.ports.history.load(AppRef::Uid(access.uid), Some(key)).await;
        let loaded = loaded.map_err(|error| refused(&error))?;
        let Some(loaded) = loaded else { return Err(Refusal::AppNotFound(access.id.clone())) };
        let state = Change::on(loaded.state);
        match state.made_by(key, KeyLookup::Read(loaded.key), loaded.now) {
            Some(Admitted::Replayed(revision)) => {
                self.entry_of(access, &state.state, revision).await.map(replayed).map(Some)
            }
            Some(Admitted::KeyReused) => Err(Refusal::KeyReused),
            Some(Admitted::New { .. } | Admitted::Outdated | Admitted::Full | Admitted::NextCommit) | None => Ok(None),
        }
    }

    /// Deploys a pushed commit, unless it is late or known. Returns `None` if the app has changed meanwhile.
    async fn bring(
        &self,
        access: &Authorized,
        delivery: &Delivery,
        brought: Brought,
        key: Option<&IdempotencyKey>,
        end: Duration,
    ) -> Outcome<Option<Pushed>> {
        let page = Page { before: None, succeeded: false, limit: LOOKED_AT };
        // Read before the branch is: see `verdict`.
        let (state, entries) = self.history(access, page).await?;
        let app = Arc::clone(&state.app);
        let Source::Git(source) = &app.source else { return Ok(None) };
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
        let cause = Cause { trigger: Trigger::Webhook, actor: Actor::git_host(delivery.host, pusher) };
        let request = DeployRequest { image: None, commit: Some(brought.commit), key: None };
        let expected = ExpectedLatest::Exactly(state.latest);
        let id = self.admission_id();
        let accepted = self.admit(access, id, key.cloned(), move |state| {
            // A push is decided on the app as it was read: its source, and what is held.
            if state.app != app {
                return Err(Declined::Outdated);
            }
            let decided = admission::deploy(&state.app, &request, &cause)?;
            Ok((Admission { expected, ..Admission::plain(id, decided.deploy) }, ()))
        });
        Ok(accepted.await?.map(|(accepted, _)| Pushed::Accepted(Box::new(accepted))))
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
            head = builder.branches.head(source).fuse() => match head {
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
