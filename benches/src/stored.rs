//! The deploys that a store holds, counted through a handle of the bench's own rather than by the server that is measured.

use rollhook_core::{
    deploy::Revision,
    ledger::AppState,
    ports::{AppPage, Page},
};

use crate::{Failure, place::Store};

/// The most apps, and the most deploys, that one read returns.
const PAGE: usize = 1000;

/// A store that is looked into.
pub(crate) struct Stored(pub(crate) Box<dyn Store>);

impl Stored {
    /// Whether a server has work left.
    pub(crate) async fn has_work(&self) -> Result<bool, Failure> {
        Ok(!self.0.work(&[], 1).await?.is_empty())
    }

    /// The number of deploys by the apps' states, and of those that have not ended.
    pub(crate) async fn deploys(&self) -> Result<(u64, u64), Failure> {
        let states = self.states().await?;
        let accepted = states.iter().filter_map(|state| state.latest).map(Revision::get).sum();
        Ok((accepted, states.iter().map(|state| state.unfinished.len() as u64).sum()))
    }

    /// The number of deploys in the archives. Returns `None` if the store keeps only the newest.
    pub(crate) async fn archived(&self) -> Result<Option<u64>, Failure> {
        if self.0.limits().keep.is_some() {
            return Ok(None);
        }
        let mut archived = 0;
        for state in self.states().await? {
            let mut page = Page { before: None, succeeded: false, limit: PAGE };
            loop {
                let deploys = self.0.page(state.app.uid, page).await?;
                archived += deploys.len() as u64;
                match deploys.last() {
                    Some(last) if deploys.len() == PAGE => page.before = Some(last.revision),
                    Some(_) | None => break,
                }
            }
        }
        Ok(Some(archived))
    }

    async fn states(&self) -> Result<Vec<AppState>, Failure> {
        let mut states: Vec<AppState> = Vec::new();
        loop {
            let after = states.last().map(|state| state.app.id.clone());
            let more = self.0.list(AppPage { namespace: None, after, limit: PAGE }).await?;
            let is_last = more.len() < PAGE;
            states.extend(more);
            if is_last {
                return Ok(states);
            }
        }
    }
}
