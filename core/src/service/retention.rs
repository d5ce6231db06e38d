//! Forgets archived deploys that nothing depends on any more.

use std::sync::Arc;

use super::{Deployer, journal::Decision};
use crate::{
    app::AppUid,
    deploy::Deploy,
    error::Result,
    ledger::{AppState, retention},
    ports::Page,
};

/// Deploys per page while the archive is read.
const PAGE: usize = 200;
/// The most deploys that one commit forgets.
const AT_ONCE: usize = 100;

impl Deployer {
    /// Looks at an app's archive if enough has gathered there; a failure is logged, and the next look makes it good.
    pub(super) async fn retain(&self, state: &Arc<AppState>) {
        let Some(keep) = self.journal.keep().filter(|keep| retention::is_due(state, *keep)) else { return };
        if let Err(error) = self.forget_surplus(state.app.uid, keep).await {
            tracing::warn!(app = %state.app.id, error = %error.chain(), "forgetting old deploys failed");
        }
    }

    async fn forget_surplus(&self, app: AppUid, keep: usize) -> Result<()> {
        let mut archived: Vec<Deploy> = Vec::new();
        loop {
            let before = archived.last().map(|deploy| deploy.revision);
            let page = Page { before, succeeded: false, limit: PAGE };
            let older = self.ports.history.page(app, page).await?;
            let last = older.len() < PAGE;
            archived.extend(older);
            if last {
                break;
            }
        }
        let archived = Arc::new(archived);
        let forgotten = self.journal.update(app, None, move |change, _, now| {
            let mut surplus = retention::surplus(&change.state, &archived, keep, now);
            surplus.reverse();
            surplus.truncate(AT_ONCE);
            change.forget(surplus, keep, now);
            Decision::Commit(())
        });
        forgotten.await.map(drop)
    }
}
