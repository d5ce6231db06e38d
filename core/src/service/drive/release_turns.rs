//! The turns of other apps in a release group.

use std::pin::pin;

use futures_util::TryStreamExt;

use crate::{
    app::{App, ReleaseGroup},
    ledger::release_turns::OtherTurn,
    ports::AppPage,
    service::Deployer,
    time::Timestamp,
};

impl Deployer {
    /// Returns the turns of the other apps in this group; `None` while the store is away. An app that cannot be read holds up
    /// no other one: nothing drives it.
    pub(super) async fn other_turns(
        &self,
        app: &App,
        group: &ReleaseGroup,
        is_fresh: bool,
        now: Timestamp,
    ) -> Option<Vec<OtherTurn>> {
        // All apps of the environment are read, which is as long as a long list; many apps may wait.
        let _turn = self.long_turn(&app.id.namespace).await;
        let page = AppPage::first(0).of(app.id.namespace.clone()).fresh(is_fresh);
        let mut pages = pin!(self.listed(page));
        let mut others = Vec::new();
        loop {
            match pages.try_next().await {
                Ok(Some(apps)) => {
                    let states = apps.iter().flatten().filter(|state| state.app.uid != app.uid);
                    others.extend(states.flat_map(|state| state.turns_in(group, now)));
                }
                Ok(None) => return Some(others),
                Err(error) => {
                    tracing::debug!(app = %app.id, group = %group, error = %error.chain(), "reading the release group failed");
                    return None;
                }
            }
        }
    }
}
