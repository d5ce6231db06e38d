//! Reading, and waiting for an entry to change.

use std::time::Duration;

use futures_util::{FutureExt, select_biased};

use super::{Authorized, Deployer, Outcome, refused};
use crate::{
    deploy::{Deploy, Revision, State},
    error::Error,
    ports::{HistoryExt, Page, View},
    request::Refusal,
};

/// What a wait ended with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waited {
    /// The entry that was waited for.
    pub deploy: Deploy,
    /// The entry that finally stands for it, where others took its place.
    pub superseded_by: Option<Deploy>,
}

impl Waited {
    /// The entry whose status counts.
    pub fn last(&self) -> &Deploy {
        self.superseded_by.as_ref().unwrap_or(&self.deploy)
    }
}

/// A change in another process may ring no bell here.
const POLL: Duration = Duration::from_secs(2);

impl Deployer {
    /// The app with its registration and where it stands.
    ///
    /// # Errors
    /// [`Refusal::AppNotFound`] where it was deleted; [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn view(&self, access: &Authorized) -> Outcome<View> {
        match self.ports.history.view(access.uid).await {
            Err(Error::NotFound(_)) => Err(Refusal::AppNotFound(access.id.clone())),
            other => other.map_err(|error| refused(&error)),
        }
    }

    /// A part of the app's history, newest first.
    ///
    /// # Errors
    /// [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn history(&self, access: &Authorized, page: Page) -> Outcome<Vec<Deploy>> {
        self.ports.history.page(access.uid, page).await.map_err(|error| refused(&error))
    }

    /// One entry.
    ///
    /// # Errors
    /// [`Refusal::RevisionNotFound`]; [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn entry(&self, access: &Authorized, revision: Revision) -> Outcome<Deploy> {
        let entry = self.ports.history.entry(access.uid, revision).await.map_err(|error| refused(&error))?;
        entry.ok_or(Refusal::RevisionNotFound(revision))
    }

    /// The entry once it is past `seen` steps, or as it is when `limit` is over. A store that goes away while the
    /// caller waits is waited for.
    ///
    /// # Errors
    /// [`Refusal::RevisionNotFound`], also where the app was deleted meanwhile.
    pub async fn changed(
        &self,
        access: &Authorized,
        revision: Revision,
        seen: u32,
        limit: Duration,
    ) -> Outcome<Deploy> {
        let end = self.ports.clock.elapsed() + limit;
        let bell = self.bells.of(access.uid);
        loop {
            let ring = bell.listen();
            let left = end.saturating_sub(self.ports.clock.elapsed());
            match self.entry(access, revision).await {
                Ok(entry) if entry.step > seen || entry.is_terminal() || left.is_zero() => return Ok(entry),
                Err(Refusal::StoreUnavailable { .. }) if !left.is_zero() => {}
                Err(refusal) => return Err(refusal),
                Ok(_) => {}
            }
            select_biased! {
                () = ring.fuse() => {}
                () = self.ports.clock.sleep(POLL.min(left)).fuse() => {}
            }
        }
    }

    /// Waits until the entry, or the one that took its place, has ended, but no longer than `limit`. A rollback that
    /// took its place is not followed.
    ///
    /// # Errors
    /// As [`Deployer::changed`].
    pub async fn wait(&self, access: &Authorized, revision: Revision, limit: Duration) -> Outcome<Waited> {
        let end = self.ports.clock.elapsed() + limit;
        let deploy = self.ended(access, revision, end).await?;
        let mut waited = Waited { deploy, superseded_by: None };
        while let State::Superseded { by, rollback: false } = waited.last().state {
            // A rollback is shown, but its end is not this deploy's.
            let next = match self.ended(access, by, end).await {
                Ok(next) => next,
                // The entry itself was read: whoever asks is told of it though its follower cannot be.
                Err(_) => break,
            };
            waited.superseded_by = Some(next);
        }
        Ok(waited)
    }

    async fn ended(&self, access: &Authorized, revision: Revision, end: Duration) -> Outcome<Deploy> {
        let mut seen = None;
        loop {
            let left = end.saturating_sub(self.ports.clock.elapsed());
            let entry = match seen {
                None => self.entry(access, revision).await?,
                Some(step) => self.changed(access, revision, step, left).await?,
            };
            if entry.is_terminal() || left.is_zero() {
                return Ok(entry);
            }
            seen = Some(entry.step);
        }
    }
}
