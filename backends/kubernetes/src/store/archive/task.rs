//! Brings `AppDeploy`s up to date in the background.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use rollhook_core::app::AppUid;
use tokio::time::Instant;

use super::Archive;
use crate::{lock, store::app_record::AppRecord};

/// How long a deploy is shown as it was: a rollout that begins meanwhile is one write less.
pub(crate) const SHOW: Duration = Duration::from_millis(500);
/// How long a commit of another replica is left to it.
pub(crate) const OTHERS: Duration = Duration::from_secs(5);
/// How long to wait after a failure.
const RETRY: Duration = Duration::from_secs(15);
/// The most apps that are looked at at the same time.
const APPS_AT_ONCE: usize = 16;

impl Archive {
    /// Has the app looked at after this time at the latest.
    pub(crate) fn schedule(&self, app: AppUid, after: Duration) {
        let at = Instant::now() + after;
        let mut due = lock(&self.due);
        let planned = due.entry(app).or_insert(at);
        *planned = at.min(*planned);
        drop(due);
        self.scheduled.notify_one();
    }

    /// Has the app that was just committed looked at: at once if a deploy has ended.
    pub(crate) fn schedule_own(&self, record: &AppRecord) {
        let after = if record.kept.archiving.is_empty() { SHOW } else { Duration::ZERO };
        self.schedule(record.state.app.uid, after);
    }

    /// Looks at each app when that is due; never returns.
    pub(crate) async fn run(&self) {
        // The first list shows which objects hold their uids.
        self.cache.apps_listed().await;
        let due = stream::unfold((), |()| async { Some((self.next_due().await, ())) });
        due.for_each_concurrent(APPS_AT_ONCE, |app| self.look_at(app)).await;
    }

    async fn look_at(&self, app: AppUid) {
        let Err(error) = self.settle(app).await else { return };
        let name = self.cache.app(app).map(|record| record.id().to_string()).unwrap_or_default();
        if error.is_unavailable() {
            tracing::debug!(app = name, error = %error.chain(), "archiving deploys failed");
        } else {
            tracing::warn!(app = name, error = %error.chain(), "archiving deploys failed");
        }
        self.schedule(app, RETRY);
    }

    async fn next_due(&self) -> AppUid {
        loop {
            let earliest = lock(&self.due).iter().map(|(app, at)| (*at, *app)).min();
            match earliest {
                Some((at, app)) if at <= Instant::now() => {
                    lock(&self.due).remove(&app);
                    return app;
                }
                Some((at, _)) => drop(tokio::time::timeout_at(at, self.scheduled.notified()).await),
                None => self.scheduled.notified().await,
            }
        }
    }
}
