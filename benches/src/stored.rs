//! The deploys that a store holds, counted through a handle of the bench's own instead of the measured server.

use rollhook_core::{
    deploy::Revision,
    ledger::AppState,
    ports::{AppPage, AppRef, HistoryStoreExt, Page},
};

use crate::{Failure, fixture::Store};

/// The most apps, and the most deploys, of one read.
const PAGE: usize = 1000;

/// A store to be read.
pub(crate) struct Stored(pub(crate) Box<dyn Store>);

/// The numbers of deploys by the apps' states.
pub(crate) struct Totals {
    /// The number of deploys that were ever accepted.
    pub(crate) deploys: u64,
    /// The number of deploys that have not ended.
    pub(crate) unfinished: u64,
}

impl Stored {
    /// Returns whether a server has work left.
    pub(crate) async fn has_work(&self) -> Result<bool, Failure> {
        Ok(!self.0.work(&[], 1).await?.is_empty())
    }

    /// Counts the deploys.
    pub(crate) async fn totals(&self) -> Result<Totals, Failure> {
        let states = self.states().await?;
        Ok(Totals {
            deploys: states.iter().filter_map(|state| state.latest).map(Revision::get).sum(),
            unfinished: states.iter().map(|state| state.unfinished.len() as u64).sum(),
        })
    }

    /// Counts the commits of all apps.
    pub(crate) async fn commits(&self) -> Result<u64, Failure> {
        let mut commits = 0;
        for state in self.states().await? {
            let loaded = self.0.load(AppRef::Uid(state.app.uid), None).await?;
            // Each commit makes the version one higher.
            commits += loaded.map_or(0, |loaded| loaded.version.0);
        }
        Ok(commits)
    }

    /// Counts the deploys in the archives. Returns `None` if retention has forgotten some.
    pub(crate) async fn archived(&self) -> Result<Option<u64>, Failure> {
        if self.states().await?.iter().any(|state| state.kept_from > Revision::FIRST) {
            return Ok(None);
        }
        let mut archived = 0;
        for state in self.states().await? {
            let mut page = Page::newest(PAGE);
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
            let more = self.0.states(AppPage::first(PAGE).after(after)).await?;
            let is_last = more.len() < PAGE;
            states.extend(more);
            if is_last {
                return Ok(states);
            }
        }
    }
}
