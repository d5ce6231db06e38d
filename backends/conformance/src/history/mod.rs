//! The promises of [`rollhook_core::ports::History`].

mod admit;
mod claim;
mod record;
mod view;

use std::sync::Arc;

use rollhook_core::{
    app::App,
    deploy::{Deploy, Reason, Revision, State},
    ports::{Admission, Admitted, History, NewDeploy, Page, Record},
};

use crate::{
    samples,
    stores::{Handles, Stores},
};

pub use admit::{
    admit_full, admit_holds, admit_key_expires, admit_keys_are_per_app_and_header, admit_numbers_without_gaps,
    admit_same_key_other_request_is_reused, admit_same_key_replays, admit_stale_after, admit_stale_guard,
    admit_supersedes, admit_unknown_app_is_not_found,
};
pub use claim::{
    claim_expires, claim_of_a_new_incarnation_frees_the_old, claim_takes_free_work, claim_zero_gives_up,
    polled_app_has_work, rest_ends_work, wakes_follow_writes,
};
pub use record::{
    record_lifts_holds, record_moves_forward_only, record_needs_the_claim, record_takes_a_touch_back,
    times_never_decrease,
};
pub use view::{corrupt_entry_is_an_error, page_is_newest_first, view_is_whole};

/// A handle on the store's history, and an app.
async fn registered(store: &dyn Stores) -> (Arc<dyn History>, App) {
    let Handles { apps, history, .. } = store.open().await;
    (history, apps.create(samples::app("shop", "test", "api")).await.unwrap())
}

/// The app as it is now, guard included.
async fn reread(history: &dyn History, app: &App) -> App {
    history.view(app.uid).await.unwrap().app
}

/// A new entry.
async fn admit(history: &dyn History, app: &App, draft: NewDeploy) -> Deploy {
    new(history.admit(samples::admission(app, draft)).await.unwrap())
}

#[track_caller]
fn new(admitted: Admitted) -> Deploy {
    match admitted {
        Admitted::New { deploy, .. } => deploy,
        Admitted::Replay(_) | Admitted::KeyReused | Admitted::Stale | Admitted::Full => panic!("not new: {admitted:?}"),
    }
}

/// An accept under a key.
fn keyed(app: &App, draft: NewDeploy, key: rollhook_core::request::IdempotencyKey) -> Admission {
    Admission { key: Some(key), ..samples::admission(app, draft) }
}

fn record_of(app: &App, changes: Vec<Deploy>) -> Record {
    Record { app: app.uid, claim: None, changes, lift: Vec::new(), rest: false }
}

/// Writes the entry in its next state, and returns it as it is stored.
async fn moved(history: &dyn History, app: &App, deploy: &Deploy, state: State) -> Deploy {
    history.record(record_of(app, vec![deploy.moved(state)])).await.unwrap();
    entry(history, app, deploy.revision).await
}

async fn entry(history: &dyn History, app: &App, revision: Revision) -> Deploy {
    let found = rollhook_core::ports::HistoryExt::entry(history, app.uid, revision).await.unwrap();
    found.expect("the entry is there")
}

/// All entries, newest first.
async fn all(history: &dyn History, app: &App) -> Vec<Deploy> {
    history.page(app.uid, Page { before: None, succeeded: false, limit: 1000 }).await.unwrap()
}

fn revisions(deploys: &[Deploy]) -> Vec<u64> {
    deploys.iter().map(|deploy| deploy.revision.get()).collect()
}

fn succeeded() -> State {
    State::Succeeded { note: None }
}

fn failed() -> State {
    State::Failed { reason: Reason::new(Reason::DEADLINE), message: "it took too long".to_owned(), evidence: None }
}
