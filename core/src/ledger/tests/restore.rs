//! Which entry restored a deploy.

use super::*;
use crate::{
    app::OnFailure,
    ledger::restore::{Owed, Restoration, left_on_cluster, owed, restoration},
};

/// An app's state, and the entries that ended.
struct History {
    state: AppState,
    ended: Vec<Arc<Deploy>>,
}

impl History {
    /// Revision 1 runs.
    fn running() -> Self {
        let mut history = Self::empty();
        history.accept(deploy("v1"));
        history.end(1, succeeded);
        history
    }

    fn empty() -> Self {
        Self { state: registered(), ended: Vec::new() }
    }

    fn accept(&mut self, admission: Admission) {
        self.change(|change| drop(new(change, admission, NOW)));
    }

    fn end(&mut self, number: u64, next: impl FnOnce(&Deploy) -> Deploy) {
        let next = next(self.state.unfinished(revision(number)).unwrap());
        self.change(|change| change.record(record(vec![next]), NOW).unwrap());
    }

    fn change(&mut self, make: impl FnOnce(&mut Change)) {
        let (state, ended) = committed(self.state.clone(), make);
        self.state = state;
        self.ended.extend(ended);
    }

    /// The restore of an entry, by all entries after it.
    fn of(&self, number: u64) -> Restoration {
        let mut entries: Vec<_> = self.ended.iter().chain(&self.state.unfinished).map(|entry| &**entry).collect();
        entries.sort_by_key(|entry| entry.revision);
        let entry = entries.iter().find(|entry| entry.revision == revision(number)).unwrap();
        let ended = left_on_cluster(entry, entries.iter().rev().copied());
        let later = entries.iter().copied().filter(|entry| entry.revision > revision(number));
        ended.map_or(Restoration::NotOwed, |ended| restoration(&self.state, ended, later))
    }

    fn made(&self, number: u64) -> Option<(u64, Status)> {
        self.of(number).entry().map(|entry| (entry.revision.get(), entry.status()))
    }

    fn is_owed(&self, number: u64) -> bool {
        matches!(self.of(number), Restoration::Owed(current) if current.revision == Revision::FIRST)
    }
}

/// The accept of a commit that is to be built.
fn build() -> Admission {
    let plain = deploy("none");
    Admission { deploy: NewDeploy { image: None, ..plain.deploy }, ..plain }
}

fn superseded(by: u64) -> impl Fn(&Deploy) -> Deploy {
    move |deploy| deploy.moved(State::Superseded { by: revision(by), rollback: false, newer: None })
}

#[test]
fn restore_is_owed_then_made_then_ended() {
    let mut history = History::running();
    assert_eq!(history.of(1), Restoration::NotOwed, "it succeeded");
    history.accept(deploy("bad"));
    history.end(2, rolling_out);
    assert_eq!(history.of(2), Restoration::NotOwed, "it has not ended");
    history.end(2, failed);
    assert!(history.is_owed(2));
    history.accept(restore());
    assert_eq!(history.made(2), Some((3, Status::Queued)));
    history.end(3, succeeded);
    assert_eq!(history.made(2), Some((3, Status::Succeeded)));
    history.accept(deploy("v4"));
    history.end(4, succeeded);
    assert_eq!(history.made(2), Some((3, Status::Succeeded)), "also once newer deploys have succeeded");
}

#[test]
fn restore_behind_a_commit_that_is_being_built_is_found() {
    let mut history = History::running();
    history.accept(deploy("bad"));
    history.accept(build());
    history.end(2, failed);
    assert!(history.is_owed(2));
    history.accept(restore());
    history.end(4, succeeded);
    assert_eq!(history.made(2), Some((4, Status::Succeeded)));
    history.end(3, superseded(5));
    history.accept(deploy("built3"));
    history.end(5, succeeded);
    assert_eq!(history.made(2), Some((4, Status::Succeeded)));
    assert_eq!(history.of(3), Restoration::NotOwed, "revision 3 never touched the cluster");
}

#[test]
fn deploy_or_rollback_that_took_over_leaves_nothing_to_put_right() {
    for between in [deploy("v3"), rollback()] {
        let mut history = History::running();
        history.accept(deploy("bad"));
        history.end(2, rolling_out);
        history.accept(between);
        history.end(2, failed);
        assert_eq!(history.of(2), Restoration::NotOwed, "revision 3 is ready");
        history.end(3, failed);
        assert_eq!(history.of(2), Restoration::NotOwed, "revision 3 was on the cluster");
        assert!(history.is_owed(3));
        history.accept(restore());
        history.end(4, succeeded);
        assert_eq!((history.made(2), history.made(3)), (None, Some((4, Status::Succeeded))));
    }
}

#[test]
fn deploy_that_its_untouched_successor_left_on_the_cluster_is_restored() {
    let mut history = History::running();
    history.accept(deploy("v2"));
    history.end(2, rolling_out);
    history.accept(deploy("v3"));
    history.end(2, superseded(3));
    history.end(3, cancelled);
    assert!(history.is_owed(2) && history.is_owed(3), "revision 3 superseded it, and did not replace it");
    history.accept(restore());
    assert_eq!(history.made(2), Some((4, Status::Queued)));
    history.end(4, succeeded);
    assert_eq!(history.made(3), Some((4, Status::Succeeded)));
}

#[test]
fn failed_restore_is_named_and_not_restored_itself() {
    let mut history = History::running();
    history.accept(deploy("bad"));
    history.end(2, failed);
    history.accept(restore());
    history.end(3, failed);
    assert_eq!(history.made(2), Some((3, Status::Failed)));
    assert_eq!(history.of(3), Restoration::NotOwed);
}

#[test]
fn last_restore_counts_where_the_first_never_touched_the_cluster() {
    let mut history = History::running();
    history.accept(deploy("bad"));
    history.end(2, failed);
    history.accept(restore());
    history.accept(deploy("v4"));
    history.end(3, |entry| Deploy { touched: false, ..superseded(4)(entry) });
    assert_eq!(history.made(2), Some((3, Status::Superseded)), "revision 4 takes its place");
    history.end(4, cancelled);
    assert!(history.is_owed(2), "it is owed anew");
    history.accept(restore());
    history.end(5, succeeded);
    assert_eq!(history.made(2), Some((5, Status::Succeeded)));
}

#[test]
fn nothing_is_restored_without_a_current_version_or_by_the_policy() {
    let mut first = History::empty();
    first.accept(deploy("bad"));
    first.end(1, failed);
    assert_eq!(first.of(1), Restoration::NothingToRestore);
    let mut left = History::running();
    Arc::make_mut(&mut left.state.app).policy.on_failure = OnFailure::Leave;
    left.accept(deploy("bad"));
    left.end(2, failed);
    assert_eq!(left.of(2), Restoration::NotOwed);
}

/// The failure of a deploy whose target another party changed.
fn changed_by_another(deploy: &Deploy) -> Deploy {
    failed_of(deploy, Reason::REVERTED)
}

fn failed_of(deploy: &Deploy, reason: &str) -> Deploy {
    let state = State::Failed {
        reason: Reason::new(reason),
        message: "A person set another image.".to_owned(),
        evidence: None,
    };
    Deploy { touched: true, ..deploy.moved(state) }
}

#[test]
fn workload_that_a_person_paused_or_removed_is_left_so() {
    for reason in [Reason::PAUSED, Reason::UNSUPPORTED, Reason::TARGET_MISSING] {
        let mut history = History::running();
        history.accept(deploy("v2"));
        history.end(2, |deploy| failed_of(deploy, reason));
        assert_eq!(owed(&history.state), Owed::Nothing, "{reason}");
    }
}

#[test]
fn change_by_another_party_is_not_overwritten() {
    let mut history = History::running();
    history.accept(deploy("v2"));
    history.end(2, changed_by_another);
    assert_eq!((history.of(2), owed(&history.state)), (Restoration::NotOwed, Owed::Nothing));
    // The next deploy replaces the change; what restores that one is the version that ran.
    history.accept(deploy("bad"));
    history.end(3, failed);
    assert_eq!(history.of(2), Restoration::NotOwed);
    assert!(history.is_owed(3));
    let mut first = History::empty();
    first.accept(deploy("v1"));
    first.end(1, changed_by_another);
    assert_eq!(owed(&first.state), Owed::Nothing);
}
