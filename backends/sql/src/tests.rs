//! Rows are decoded as they were encoded; damaged ones are `Corrupt`.

use std::sync::Arc;

use futures_util::{FutureExt, StreamExt};
use rollhook_core::{
    Error,
    app::{App, AppUid, Policy, Source, Target},
    check::{Check, Measurement, Verdict},
    deploy::{
        Actor, AdmissionId, Deploy, Evidence, Reason, Revision, Scale, State, Trigger, Verification, WorkloadEnd,
        WorkloadEvidence,
    },
    ledger::{AppState, Change, KeyUse, KeyWrite},
    ports::{AppChange, AppCommit, Version},
    replica::ReplicaId,
    request::{IdempotencyKey, KeyHeader},
    time::Timestamp,
};

use crate::{CommitRows, DeployRow, Hints, KeyRow, deploy, deploy_with_evidence, key_use, state};

const APP: AppUid = AppUid::from_bits(7);

fn registration() -> App {
    App {
        id: "shop-test/api".parse().unwrap(),
        uid: APP,
        project: "shop".parse().unwrap(),
        environment: "test".parse().unwrap(),
        source: Source::Image,
        target: Target::default(),
        policy: Policy::default(),
        holds: Vec::new(),
        locks: rollhook_core::lock::Locks::default(),
        requirements: rollhook_core::requirement::RequirementCopies::default(),
        created_at: Timestamp::from_millis(5),
    }
}

fn ended(state: State) -> Deploy {
    Deploy {
        id: AdmissionId(9),
        revision: Revision::FIRST,
        image: Some("registry.example.com/api:v1".parse().unwrap()),
        commit: None,
        trigger: Trigger::Webhook,
        actor: Actor::Ci,
        from: None,
        effective: Revision::FIRST,
        adopted: false,
        scale: Scale::Keep,
        configuration: None,
        configures: false,
        state,
        touched: true,
        release: None,
        sequence: None,
        unreleased: false,
        verification: None,
        resolution: None,
        digest: None,
        step: 2,
        created_at: Timestamp::from_millis(6),
        updated_at: Timestamp::from_millis(8),
        kept_until: None,
        trace: None,
        committed_at: None,
    }
}

/// A verification with two measurements of one check.
fn verification() -> Verification {
    let check = Check::new("errors".parse().unwrap(), "http".parse().unwrap(), Default::default());
    let mut verification = Verification::begin(&[check], Timestamp::from_millis(1));
    for at in 2..4 {
        let measurement = Measurement::new(Timestamp::from_millis(at), Verdict::Pass, "as expected");
        verification.checks[0].measured(measurement, "status 200".to_owned());
    }
    verification
}

#[test]
fn commit_is_decoded_as_it_was_encoded() {
    let mut stored = AppState::new(registration());
    stored.queued_at = Some(Timestamp::from_millis(6));
    stored.lease = Some(ReplicaId { name: "one".to_owned(), boot: 255 });
    let workloads = vec![WorkloadEvidence {
        name: "Deployment/worker".to_owned(),
        state: WorkloadEnd::Failed,
        message: "0 of 1 new pods are ready".to_owned(),
    }];
    let evidence =
        Some(Evidence { log: vec!["out of memory".to_owned()], workloads: workloads.clone(), ..Evidence::default() });
    let failed = State::Failed { reason: Reason::new("Error"), message: "it failed".to_owned(), evidence };
    let verified = |deploy: Deploy| Deploy { verification: Some(Box::new(verification())), ..deploy };
    let succeeded = ended(State::Succeeded { note: None });
    let deploys = [succeeded.clone(), ended(failed.clone()), verified(succeeded), verified(ended(failed))];
    let key = IdempotencyKey::new(KeyHeader::WebhookId, "run-1", [3; 32]).unwrap();
    let made = KeyUse { request: [3; 32], revision: Revision::FIRST, expires_at: Timestamp::from_millis(99) };
    let mut change = Change::on(stored.clone());
    change.ended = deploys.iter().cloned().map(Arc::new).collect();
    change.keys = vec![KeyWrite { key, made, replaces: true }];
    change.forgotten = vec![Revision::FIRST];
    let commit = AppCommit::Update(Version(4), Box::new(change));
    let CommitRows { app, version, put } = CommitRows::encode(commit).unwrap();
    assert_eq!((app, version), (APP, Some(4)));
    let rows = put.unwrap();
    assert_eq!((rows.state.namespace.as_str(), rows.state.name.as_str()), ("shop-test", "api"));
    assert_eq!((rows.state.project.as_str(), rows.state.environment.as_str()), ("shop", "test"));
    assert_eq!((rows.state.queued_at, rows.state.lease.as_deref()), (Some(6), Some("one#ff")));
    assert_eq!(state(rows.state.document.as_bytes()).unwrap(), stored);
    assert_eq!(rows.ended.iter().map(|row| row.succeeded).collect::<Vec<_>>(), [true, false, true, false]);
    let decoded = |row: &DeployRow| {
        deploy_with_evidence(row.document.as_bytes(), row.evidence.as_deref().map(str::as_bytes)).unwrap()
    };
    assert_eq!(rows.ended.iter().map(decoded).collect::<Vec<_>>(), deploys);
    let row = &rows.ended[1];
    assert!(row.evidence.is_some() && !row.document.contains("out of memory"), "pages do not read the evidence");
    assert_eq!(deploy(row.document.as_bytes()).unwrap().workloads(), workloads, "but the states of the workloads");
    assert_eq!(deploy(row.document.as_bytes()).unwrap(), deploys[1].without_logs());
    let KeyRow { header, key, request, revision, expires_at, replaces } = &rows.keys[0];
    assert_eq!((*header, key.as_str(), *replaces), (1, "run-1", true));
    assert_eq!(key_use(request, *revision, *expires_at).unwrap(), made);
    assert_eq!(rows.forgotten, [1]);
}

#[test]
fn evidence_in_the_document_of_an_earlier_version_is_read_with_one_deploy_only() {
    let evidence = Some(Evidence { log: vec!["out of memory".to_owned()], ..Evidence::default() });
    let stored = ended(State::Failed { reason: Reason::new("Error"), message: "it failed".to_owned(), evidence });
    let document = serde_json::to_vec(&stored).unwrap();
    assert_eq!(deploy_with_evidence(&document, None).unwrap(), stored);
    assert_eq!(deploy(&document).unwrap(), stored.without_logs());
}

#[test]
fn damaged_measurements_are_no_empty_evidence() {
    let document = serde_json::to_vec(&ended(State::Queued)).unwrap();
    for damaged in [r#"{"verification":{"since":"never"},"evidence":null}"#, r#"{"verification":[]}"#, "[]", "7"] {
        let read = deploy_with_evidence(&document, Some(damaged.as_bytes()));
        assert!(matches!(read, Err(Error::Corrupt { .. })), "{damaged}: {read:?}");
    }
}

#[test]
fn damaged_columns_are_corrupt() {
    assert!(matches!(state(b"{\"app\":"), Err(Error::Corrupt { .. })));
    assert!(matches!(deploy(b"\xff"), Err(Error::Corrupt { .. })));
    assert!(matches!(key_use(&[0; 31], 1, 1), Err(Error::Corrupt { .. })));
    assert!(matches!(key_use(&[0; 32], 0, 1), Err(Error::Corrupt { .. })));
}

#[test]
fn number_that_no_column_holds_is_invalid() {
    let commit = AppCommit::Remove(APP, Version(u64::MAX));
    assert!(matches!(CommitRows::encode(commit), Err(Error::Invalid { .. })));
}

#[test]
fn watcher_that_is_behind_gets_any() {
    let hints = Hints::default();
    let mut changes = hints.watch();
    hints.send(AppChange::App(APP, Version(1)));
    assert_eq!(changes.next().now_or_never(), Some(Some(AppChange::App(APP, Version(1)))));
    assert_eq!(changes.next().now_or_never(), None);
    for _ in 0..5000 {
        hints.send(AppChange::App(APP, Version(1)));
    }
    assert_eq!(changes.next().now_or_never(), Some(Some(AppChange::Any)));
}
