//! Comparing what is stored with the model.

use std::{sync::Arc, time::Duration};

use rollhook_core::{
    deploy::{Deploy, Revision},
    ledger::{self, AppState, check},
    ports::{AppPage, AppRef, HistoryStoreExt, Page},
};

use super::{ops::KEYS, reference::Reference, run::Run};
use crate::{client, samples};

/// From when on housekeeping may have taken a key that has expired, with room for clocks.
const KEY_SLACK: Duration = Duration::from_secs(50 * 60);

impl Run<'_> {
    /// State, archive and keys of an app are what the model says, and keep the rules.
    pub(super) async fn compare(&self, app: usize) {
        let (history, reference) = (self.history(), &self.apps[app]);
        let loaded = client::load(&**history, reference.app.uid).await;
        compare_state(&loaded.state, reference);
        let archived = client::archive(&**history, reference.app.uid).await;
        assert_eq!(archived, reference.archived(), "the archive");
        let whole = Page::newest(usize::MAX);
        let joined = ledger::history::page(&loaded.state, archived, whole);
        assert_eq!(joined, Some(reference.page(whole)), "state and archive tell of one point in time");
        assert_eq!(check::check(&reference.deploys, &loaded.state), [], "the rules are kept");
        for number in 0..KEYS {
            let key = samples::key(&format!("run-{number}"), 1);
            let loaded = history.load(AppRef::Name(&reference.app.id), Some(&key)).await.unwrap().unwrap();
            let expected = reference.used(&key);
            let is_long_expired = expected.is_some_and(|used| used.expires_at.after(KEY_SLACK) <= loaded.now);
            assert!(
                loaded.key == expected || (is_long_expired && loaded.key.is_none()),
                "{:?}: {expected:?}",
                loaded.key
            );
        }
    }

    pub(super) async fn compare_all(&self) {
        for app in 0..self.apps.len() {
            self.compare(app).await;
        }
        let listed = self.history().states(AppPage::first(100)).await.unwrap();
        assert_eq!(listed.len(), self.apps.len());
        for (state, reference) in listed.iter().zip(&self.apps) {
            compare_state(state, reference);
        }
    }

    /// A page of state and archive is what the model says.
    pub(super) async fn page(&self, app: usize, before: Option<u8>, succeeded: bool, limit: usize) {
        let before = before.and_then(|before| Revision::new(before.into()));
        let page = Page::newest(limit).below(before).succeeded(succeeded);
        let reference = &self.apps[app];
        let state = client::load(&**self.history(), reference.app.uid).await.state;
        let archived = self.history().page(reference.app.uid, page).await.unwrap();
        let expected = reference.page(page).iter().map(Deploy::without_logs).collect();
        assert_eq!(ledger::history::page(&state, archived, page), Some(expected), "{page:?}");
    }
}

fn compare_state(state: &AppState, reference: &Reference) {
    let unfinished: Vec<Deploy> = state.unfinished.iter().map(|deploy| (**deploy).clone()).collect();
    assert_eq!(*state.app, reference.app);
    assert_eq!(state.latest, reference.latest(), "the newest revision");
    let highest = state.highest_sequence.map(|highest| (highest.sequence, highest.revision));
    let in_order = reference.latest_in_order().map(|deploy| deploy.revision);
    assert_eq!((highest, state.latest_in_order()), (reference.highest, in_order), "the order of the webhook's deploys");
    assert_eq!(unfinished, reference.unfinished(), "the unfinished deploys");
    assert_eq!(state.current.as_deref(), reference.current(), "the current deploy");
    let on_cluster = reference.on_cluster().map(Deploy::without_evidence);
    assert_eq!(state.on_cluster().map(Arc::as_ref), on_cluster.as_ref(), "the deploy on the cluster");
    assert_eq!(state.last_restore, reference.last_restore(), "the last restore");
    assert_eq!((&state.lease, state.queued_at), (&reference.lease, reference.queued_at), "lease and work");
    assert_eq!(state.updated_at, reference.time, "the latest time that was stored");
}
