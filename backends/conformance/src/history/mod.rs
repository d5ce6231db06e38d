//! The promises of [`rollhook_core::ports::HistoryStore`].

mod apps;
mod archive;
mod commit;
mod durable;
mod keys;
mod load;
mod register;
mod work;

use std::sync::Arc;

use rollhook_core::{
    Error, Result,
    app::AppUid,
    deploy::Deploy,
    error::Entity,
    ports::{AppCommit, Committed, HistoryStore},
};

use crate::{client, samples, stores::Stores};

pub use apps::{fresh_list_has_what_others_committed, list_is_sorted_and_paged, watch_follows_commits};
pub use archive::{
    commit_archives_and_forgets, corrupt_is_an_error, deploy_that_ends_as_it_is_accepted_is_archived, page_has_no_logs,
    page_is_newest_first,
};
pub use commit::{commit_answers_each, commit_on_another_version_conflicts};
pub use durable::commit_outlives_an_abrupt_end;
pub use keys::{commit_keeps_keys, forgotten_deploys_free_their_keys};
pub use load::{commit_then_load, load_unknown_is_none};
pub use register::{
    register_keeps_keys_and_ended, register_namespace_of_another_pair_conflicts, register_taken_conflicts,
    remove_takes_everything,
};
pub use work::{bind_driver_keeps_the_first, heartbeat_names_the_living, work_is_what_no_living_replica_drives};

/// Two handles on the store, and the uid of an app that is registered in it.
async fn registered(store: &dyn Stores) -> ([Arc<dyn HistoryStore>; 2], AppUid) {
    let handles = [store.open().await.history, store.open().await.history];
    let app = client::register(&*handles[0], samples::app("shop", "test", "api")).await.state.app.uid;
    (handles, app)
}

/// Commits all of these, as many in one call as the store takes.
pub(crate) async fn commit_all(history: &dyn HistoryStore, commits: Vec<AppCommit>) -> Vec<Result<Committed>> {
    let at_once = history.limits().apps_per_commit.max(1);
    let mut commits = commits.into_iter().peekable();
    let mut answers = Vec::new();
    while commits.peek().is_some() {
        let call: Vec<AppCommit> = commits.by_ref().take(at_once).collect();
        let expected = call.len();
        let answered = history.commit(call).await;
        assert_eq!(answered.len(), expected, "each commit has an answer");
        answers.extend(answered);
    }
    answers
}

fn revisions(deploys: &[Deploy]) -> Vec<u64> {
    deploys.iter().map(|deploy| deploy.revision.get()).collect()
}

#[track_caller]
fn assert_conflict<T: std::fmt::Debug>(outcome: &Result<T>, with: Entity) {
    assert!(matches!(outcome, Err(Error::Conflict(what)) if *what == with), "not Conflict({with:?}): {outcome:?}");
}

#[track_caller]
fn assert_app_not_found<T: std::fmt::Debug>(outcome: &Result<T>) {
    assert!(matches!(outcome, Err(Error::NotFound(Entity::App))), "not NotFound(App): {outcome:?}");
}
