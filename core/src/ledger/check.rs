//! The check of a history against the rules; tests run it after every step, and operators when they doubt a store.

use std::collections::BTreeSet;

use super::{AppState, UNFINISHED_MAX, runs, watch};
use crate::{
    check::Verdict,
    deploy::{Deploy, Newer, Origin, Reason, Resolution, Revision, Scale, State, Status, Trigger, Verification},
};

/// A rule that a history breaks, in a sentence that names the revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

/// Returns the rules that an app's whole history, oldest first, and the state read with it break.
pub fn check(history: &[Deploy], state: &AppState) -> Vec<Violation> {
    let mut broken = Vec::new();
    let mut expect = |holds: bool, rule: String| {
        if !holds {
            broken.push(Violation(rule));
        }
    };
    let mut ids = BTreeSet::new();
    let mut next = history.first().map(|deploy| deploy.revision);
    let mut newest_time = None;
    for deploy in history {
        let revision = deploy.revision;
        expect(Some(revision) == next, format!("revision {revision} leaves a gap"));
        next = Some(revision.next());
        expect(ids.insert(deploy.id), format!("revision {revision} is an accept that made another one too"));
        expect(
            newest_time.is_none_or(|time| time <= deploy.created_at),
            format!("revision {revision} was accepted before an older one"),
        );
        newest_time = Some(deploy.created_at);
        for rule in broken_by(deploy, history) {
            expect(false, rule);
        }
    }
    let newest = |wanted: &dyn Fn(&Deploy) -> bool| history.iter().rev().find(|deploy| wanted(deploy));
    let slim = |deploy: Option<&Deploy>| deploy.map(Deploy::without_evidence);
    expect(state.latest == history.last().map(|deploy| deploy.revision), "the newest revision is another".to_owned());
    expect(
        state.latest_in_order()
            == newest(&|deploy| !deploy.is_out_of_order() && !deploy.is_to_be_ordered()).map(|deploy| deploy.revision),
        "the newest in order is another".to_owned(),
    );
    expect(
        state.highest_sequence.is_none_or(|highest| {
            let named = history.iter().find(|deploy| deploy.revision == highest.revision);
            named.is_none_or(|named| named.sequence == Some(highest.sequence) && !named.is_out_of_order())
        }),
        "the highest sequence is not that of its deploy".to_owned(),
    );
    expect(
        state.current.as_deref().cloned() == slim(newest(&|deploy| deploy.status() == Status::Succeeded)),
        "current is not the newest that succeeded".to_owned(),
    );
    expect(
        state.on_cluster().map(|deploy| deploy.without_evidence()) == slim(newest(&|deploy| deploy.touched)),
        "on cluster is not the newest that touched it".to_owned(),
    );
    expect(
        state.newest().map(|deploy| deploy.without_evidence()) == slim(newest(&|deploy| !deploy.is_out_of_order())),
        "the newest entry is another".to_owned(),
    );
    expect(
        state.last_restore == newest(&Deploy::is_restore).map(|deploy| deploy.revision),
        "the newest restore is another".to_owned(),
    );
    let scaled = newest(&|deploy| deploy.touched && deploy.is_terminal() && !deploy.scale.is_keep());
    expect(
        scaled.is_none_or(|scaled| (scaled.scale == Scale::Stop) == state.stopped.is_some()),
        "stopped is not what the newest stop or start left".to_owned(),
    );
    for recovery in &state.recoveries {
        let revision = recovery.revision;
        // Retention may have forgotten the entry of an older one.
        let entry = history.iter().find(|deploy| deploy.revision == revision);
        let is_of_an_end = |deploy: &Deploy| {
            deploy.touched
                && deploy.is_terminal()
                && deploy.status() != Status::Succeeded
                && recovery.at >= deploy.updated_at
        };
        expect(entry.is_none_or(is_of_an_end), format!("revision {revision} recovered, and never was in trouble"));
    }
    let revisions = state.recoveries.iter().map(|recovery| recovery.revision);
    expect(revisions.is_sorted_by(|one, next| one < next), "a revision recovered twice, or out of order".to_owned());
    for rule in watch::broken_by(history, state) {
        expect(false, rule);
    }
    let unfinished: Vec<_> = history.iter().filter(|deploy| !deploy.is_terminal()).cloned().collect();
    let is_stored = state.unfinished.iter().map(|deploy| &**deploy).eq(&unfinished);
    expect(is_stored, "the unfinished entries are others".to_owned());
    // One more than may be admitted: a restore is never refused.
    expect(unfinished.len() <= UNFINISHED_MAX + 1, format!("{} entries are unfinished", unfinished.len()));
    let is_idle = state.queued_at.is_none();
    expect(!is_idle || unfinished.is_empty(), "idle with unfinished deploys".to_owned());
    expect(!is_idle || state.lease.is_none(), "idle and leased".to_owned());
    expect(!is_idle || state.release_runs.is_empty(), "idle, and a release command may run".to_owned());
    let has_run = |revision| state.release_runs.contains(&revision);
    expect(
        state.release_turns.iter().all(|turn| has_run(turn.revision)),
        "a turn without a run of a release command".to_owned(),
    );
    for rule in runs::broken_by(state) {
        expect(false, rule);
    }
    let rolling = unfinished.iter().filter(|deploy| matches!(deploy.state, State::RollingOut { .. })).count();
    expect(rolling <= 1, format!("{rolling} entries roll out at once"));
    let releasing = unfinished.iter().filter(|deploy| deploy.status() == Status::Releasing).count();
    expect(rolling + releasing <= 1, format!("{releasing} entries run release commands, and {rolling} roll out"));
    let mut to_be_built = unfinished.iter().filter(|deploy| deploy.is_to_be_built());
    let first = to_be_built.next();
    for deploy in to_be_built.filter(|deploy| deploy.status() == Status::Building) {
        let first = first.map_or(deploy.revision, |first| first.revision);
        expect(false, format!("revision {} is being built before revision {first} is", deploy.revision));
    }
    broken
}

fn broken_by(deploy: &Deploy, history: &[Deploy]) -> Vec<String> {
    let revision = deploy.revision;
    let mut broken = Vec::new();
    let mut expect = |holds: bool, rule: &str| {
        if !holds {
            broken.push(format!("revision {revision} {rule}"));
        }
    };
    expect(deploy.trigger != Trigger::Config || deploy.configuration.is_some(), "configures nothing");
    expect(deploy.sequence.is_none() || deploy.trigger == Trigger::Webhook, "has a sequence, and is no webhook's");
    expect(deploy.updated_at >= deploy.created_at, "changed before it was accepted");
    let is_answered =
        matches!(deploy.resolution.as_deref(), Some(Resolution::Resolved { .. } | Resolution::Unresolved { .. }));
    // The answer of a commit's source leaves no other mark.
    let may_be_ordered = deploy.may_have_been_ordered() && deploy.image.is_none();
    let least = u32::from(is_answered);
    let most = least.max(u32::from(may_be_ordered && deploy.resolution.is_none()));
    let is_in_step = if deploy.state == State::Queued { deploy.step <= most } else { deploy.step > least };
    expect(is_in_step, "is queued exactly while nothing but the answer of its registry or its source was recorded");
    let waits = matches!(deploy.state, State::Queued | State::Superseded { .. } | State::Cancelled { .. });
    let is_pending = deploy.resolution.as_deref() == Some(&Resolution::Pending);
    expect(!is_pending || waits && !deploy.touched, "went on before its registry had answered");
    expect(!deploy.is_resolved() || deploy.digest.is_some(), "is resolved, and has no digest");
    let returned_to = match (deploy.trigger, &deploy.from) {
        (Trigger::Rollback, Some(Origin::Revision(target))) => history.iter().find(|other| other.revision == *target),
        _ => None,
    };
    let has_digest = |version: &&Deploy| version.pinned_image().is_some_and(|image| image.digest().is_some());
    let is_known = returned_to.filter(has_digest).is_some_and(|version| version.status() == Status::Succeeded);
    expect(deploy.resolution.is_none() || !is_known, "goes back to what has succeeded, and asks a registry");
    expect(
        deploy.trigger != Trigger::Rollback || matches!(deploy.from, Some(Origin::Revision(_))),
        "is a rollback to nothing",
    );
    if deploy.is_entered_anew() {
        let first = history.iter().find(|other| other.revision == deploy.built_as());
        let is_continued = |first: &Deploy| {
            let is_same = (&first.image, &first.commit, first.trigger, &first.actor)
                == (&deploy.image, &deploy.commit, deploy.trigger, &deploy.actor);
            is_same && first.state == State::Superseded { by: revision, rollback: false, newer: None }
        };
        expect(first.is_none_or(is_continued), "is not what its first entry became");
    }
    let earlier = |other: Revision| other < revision;
    if let Some(Origin::Same(source)) = deploy.from {
        let may_be_repeated = |status: Status| match status {
            Status::Succeeded => true,
            // Until a version has succeeded, a configuration is brought to the one that failed.
            Status::Failed | Status::Cancelled => deploy.trigger == Trigger::Config,
            Status::Queued
            | Status::Building
            | Status::Releasing
            | Status::RollingOut
            | Status::Verifying
            | Status::Superseded => false,
        };
        let is_same = |source: &Deploy| {
            may_be_repeated(source.status())
                && (source.pinned_image(), &source.commit) == (deploy.image.clone(), &deploy.commit)
                && (source.effective == deploy.effective || deploy.trigger == Trigger::Config)
        };
        let source = history.iter().find(|other| other.revision == source);
        expect(source.is_none_or(is_same), "is not the version that it repeats");
        let is_earlier = deploy.trigger == Trigger::Manual && earlier(deploy.effective);
        expect(is_earlier || deploy.trigger == Trigger::Config, "repeats no version");
    }
    let may_be_earlier = deploy.trigger == Trigger::Rollback || deploy.is_redeploy();
    let effective = may_be_earlier && earlier(deploy.effective) || deploy.effective == revision;
    expect(effective, "stands for a revision that it cannot stand for");
    match &deploy.state {
        State::RollingOut { .. } | State::Succeeded { .. } => expect(deploy.touched, "never touched the cluster"),
        State::Failed { message, .. } => expect(!message.is_empty(), "failed without a word"),
        State::Superseded { by, rollback, newer: Some(Newer::Sequence(newer)) } => {
            let is_lower = deploy.sequence.is_some_and(|sequence| sequence < *newer);
            expect(is_lower && !rollback, "is out of order, and its sequence is no lower");
            expect(*by < revision && !deploy.touched && deploy.step == 1, "did not end as it came out of order");
            let named = history.iter().find(|other| other.revision == *by);
            let is_of = |other: &Deploy| other.sequence == Some(*newer) && !other.is_out_of_order();
            expect(named.is_none_or(is_of), "names another sequence than the newer one has");
        }
        State::Superseded { by, rollback, newer: Some(Newer::Commit(newer)) } => {
            expect(may_be_ordered && !rollback, "is older by its commit, and no posted commit without a sequence");
            expect(*by < revision && !deploy.touched, "went on although its commit is older");
            let named = history.iter().find(|other| other.revision == *by);
            let is_of = |other: &Deploy| other.commit.as_ref().is_some_and(|commit| commit.may_be(newer));
            expect(named.is_none_or(is_of), "names another commit than the newer one has");
        }
        State::Superseded { by, rollback, newer: None } => {
            expect(*by > revision, "is superseded by an older one");
            let named = history.iter().find(|other| other.revision == *by);
            expect(
                named.is_none_or(|other| (other.trigger == Trigger::Rollback) == *rollback),
                "does not say rightly whether a rollback superseded it",
            );
            let by_person = |other: &Deploy| other.trigger == Trigger::Rollback && !other.is_restore();
            expect(deploy.image.is_some() || named.is_none_or(by_person), "was superseded before its build ended");
        }
        State::Releasing { .. } => expect(!deploy.touched, "touched the cluster before its release command ended"),
        State::Queued | State::Building { .. } | State::Cancelled { .. } => {}
    }
    if let Some(verification) = &deploy.verification {
        let is_measured = verification.skipped.is_none();
        expect(!is_measured || deploy.touched, "was verified before it touched the cluster");
        expect(!is_measured || deploy.trigger != Trigger::Rollback, "is verified, although it goes back");
        expect(is_measured || deploy.is_terminal(), "is not verified, and does not end");
        let enforced_fail = verification.enforced_fail().is_some();
        expect(!(deploy.status() == Status::Succeeded && enforced_fail), "succeeded although a check failed");
        let is_rejected = verification.is_rejected();
        expect(!(deploy.status() == Status::Succeeded && is_rejected), "succeeded although a person rejected it");
        expect(verification.awaited_since.is_none() || is_measured, "waits for a decision, and is not verified");
        expect(verification.awaited_since.is_none_or(|at| at >= verification.since), "asked before it was verified");
        if let Some(decision) = &verification.decision {
            let is_asked = verification.awaited_since.is_some_and(|since| since <= decision.at);
            expect(is_asked, "was decided on before a person was asked");
            expect(!decision.by.is_service(), "was decided on by the service itself");
            expect(!enforced_fail && verification.gap().is_some(), "was decided on although its checks have verdicts");
        }
        for result in &verification.checks {
            let early = result.measurements.iter().any(|measurement| measurement.at < verification.since);
            expect(!early, "counts what was measured before its rollout had settled");
            expect(
                result.verdict != Some(Verdict::Pass) || result.has_passed,
                "passed a check without a measurement that passed",
            );
        }
    }
    let is_check_failure = deploy.state.has_failed_for(Reason::CHECK_FAILED);
    let is_failed = |verification: &Verification| verification.enforced_fail().is_some() || verification.is_rejected();
    let has_failed = deploy.verification.as_deref().is_some_and(is_failed);
    expect(!is_check_failure || has_failed, "failed by a check, and neither a check nor a person failed it");
    let taken = matches!(deploy.trigger, Trigger::Rollback | Trigger::Promotion) || deploy.is_redeploy();
    expect(deploy.image.is_some() || !taken, "is of an image that exists, and names none");
    expect(
        !(deploy.has_run_before() && deploy.release.is_some()),
        "ran the release command of a version that ran before",
    );
    let image_known =
        deploy.image.is_some() || !matches!(deploy.state, State::RollingOut { .. } | State::Succeeded { .. });
    expect(image_known, "runs no image");
    broken
}
