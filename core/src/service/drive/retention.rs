//! Forgets archived deploys that nothing depends on any more.
//!
//! A pass reads the whole archive of an app. One is under way at a time: an app that is due meanwhile has its own after a
//! later commit.

use std::sync::Arc;

use crate::{
    app::App,
    deploy::Deploy,
    error::Result,
    ledger::{AppState, retention},
    ports::Page,
    service::{Deployer, journal::Decision},
};

/// Deploys per page while the archive is read: many, since a store may read an app's whole archive for each.
const PAGE: usize = 1_000;
/// The most deploys that one commit forgets.
const AT_ONCE: usize = 100;

impl Deployer {
    /// Runs retention if enough deploys were archived; a failure is logged, and the next run makes up for it.
    pub(crate) async fn retain(&self, state: &Arc<AppState>) {
        if !retention::is_due(state) {
            return;
        }
        let Some(_turn) = self.retention_turn.try_lock() else { return };
        if let Err(error) = self.forget_surplus(&state.app).await {
            tracing::warn!(app = %state.app.id, error = %error.chain(), "forgetting old deploys failed");
        }
    }

    async fn forget_surplus(&self, app: &Arc<App>) -> Result<()> {
        let mut archived: Vec<Deploy> = Vec::new();
        loop {
            let before = archived.last().map(|deploy| deploy.revision);
            let page = Page { before, succeeded: false, limit: PAGE };
            let older = self.ports.history.page(app.uid, page).await?;
            let last = older.len() < PAGE;
            archived.extend(older);
            if last {
                break;
            }
        }
        let archived: Arc<[Deploy]> = archived.into();
        let forgotten = self.journal.update(app.uid, None, {
            let archived = Arc::clone(&archived);
            move |change, _, now| {
                let mut surplus = retention::surplus(&change.state, &archived, now);
                surplus.reverse();
                surplus.truncate(AT_ONCE);
                change.forget(surplus.clone(), now);
                Decision::Commit(surplus)
            }
        });
        let (forgotten, snapshot) = forgotten.await?;
        let named = archived.iter().filter(|deploy| !forgotten.contains(&deploy.revision));
        let named = named.filter_map(|deploy| deploy.configuration).collect();
        // An entry that was archived since the read may name another one.
        let read = archived.first().map(|newest| newest.revision);
        let is_whole = retention::holds_all_since(&snapshot.state, read);
        self.forget_configurations(&snapshot.state, is_whole.then_some(&named)).await
    }
}
