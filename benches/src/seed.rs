//! Stores filled before a server starts on them: apps through the backend's own API, and long histories as copies, made
//! by SQLite itself, of one deploy that went through it.

use std::{ops::Range, time::Duration};

use futures_util::future::try_join_all;
use rollhook_core::{
    app::{self, App, AppId, AppUid, OnFailure, Policy, Source},
    deploy::{Actor, AdmissionId, Deploy, State, Trigger},
    ledger::{Admission, Change, KeyLookup, NewDeploy, Record},
    ports::{AppRef, Commit, HistoryStore, HistoryStoreExt, Loaded, Version, Write},
    time::Timestamp,
    token::Token,
};
use rollhook_sqlite::SqliteStore;
use rusqlite::Connection;
use serde_json::json;

use crate::{Failure, place::Store};

/// Apps registered at once: in Kubernetes each writes to the same object once, to have the namespace.
const TOGETHER: usize = 8;
/// Until a running server knows of what another process has registered.
pub(crate) const KNOWN: Duration = Duration::from_secs(2);
/// First deploys at once, which share commits.
const FIRST_TOGETHER: usize = 500;

/// An app and what opens it.
#[derive(Clone)]
pub(crate) struct Target {
    /// Its name.
    pub(crate) app: AppId,
    /// Which registration it is.
    pub(crate) uid: AppUid,
    /// Its webhook's token.
    pub(crate) token: String,
}

/// Registers `{project}-test/app-00000` and so on, with open webhooks, where a deploy succeeds as soon as it is rolled out.
pub(crate) async fn apps(store: &dyn Store, project: &str, numbers: Range<usize>) -> Result<Vec<Target>, Failure> {
    let mut targets = Vec::with_capacity(numbers.len());
    let numbers: Vec<usize> = numbers.collect();
    for some in numbers.chunks(TOGETHER) {
        let made = some.iter().map(async |number| app(store, project, "test", &format!("app-{number:05}")).await);
        targets.extend(try_join_all(made).await?);
    }
    Ok(targets)
}

/// Registers one app with an open webhook; its Deployment has its name, and is made where it is missing.
pub(crate) async fn app(store: &dyn Store, project: &str, environment: &str, name: &str) -> Result<Target, Failure> {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits)?;
    let settings = serde_json::from_value(json!({
        "kind": "Deployment", "name": name, "containers": ["app"], "template": { "replicas": 1 },
    }))?;
    let app = App {
        id: format!("{project}-{environment}/{name}").parse()?,
        uid: AppUid::from_bits(u128::from_le_bytes(bits)),
        project: project.parse()?,
        environment: environment.parse()?,
        source: Source::Image,
        target: app::Target { settings, ..Default::default() },
        policy: Policy { settle: Duration::ZERO, on_failure: OnFailure::Leave, ..Policy::default() },
        holds: Vec::new(),
        created_at: Timestamp::default(),
    };
    commit(store, None, Change::register(app.clone())).await?;
    let mut random = [0; Token::RANDOM_BYTES];
    getrandom::fill(&mut random)?;
    let token = Token::from_random(&random).ok_or("too little randomness")?;
    store.put(app.uid, &token).await?;
    Ok(Target { app: app.id, uid: app.uid, token: token.expose().to_owned() })
}

/// Gives each app a history of this many deploys that succeeded.
pub(crate) async fn histories(
    store: &SqliteStore,
    connection: &Connection,
    targets: &[Target],
    length: u32,
) -> Result<(), Failure> {
    for some in targets.chunks(FIRST_TOGETHER) {
        try_join_all(some.iter().map(|target| first(store, target.uid))).await?;
    }
    for statement in [COPY_DEPLOYS, COPY_STATES] {
        let mut statement = connection.prepare(statement)?;
        for target in targets {
            statement.execute((target.uid.as_bits().to_be_bytes(), length))?;
        }
    }
    // Else the server would find a write-ahead log of the whole history.
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    Ok(())
}

const COPY_DEPLOYS: &str = "
WITH RECURSIVE number (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM number WHERE n < ?2)
INSERT INTO deploys (app, revision, succeeded, document)
SELECT d.app, n, d.succeeded,
       json_set(d.document, '$.id', printf('%016x%016x', d.app, n), '$.revision', n, '$.effective', n)
FROM apps a CROSS JOIN deploys d ON d.app = a.id AND d.revision = 1 CROSS JOIN number
WHERE a.uid = ?1";

const COPY_STATES: &str = "
UPDATE apps SET document = json_set(apps.document, '$.latest', ?2, '$.current', json(d.document),
                                    '$.ended_on_cluster', json(d.document))
FROM deploys d WHERE d.app = apps.id AND d.revision = ?2 AND apps.uid = ?1";

/// One deploy as a webhook and the engine make it.
async fn first(store: &SqliteStore, app: AppUid) -> Result<(), Failure> {
    let deploy = NewDeploy {
        image: Some("registry.example.com/shop/api:4f2a9c1".parse()?),
        commit: Some("4f2a9c1".parse()?),
        trigger: Trigger::Webhook,
        actor: Actor::Ci,
        from: None,
        effective: None,
        adopted: false,
    };
    let digest = Some(format!("sha256:{}", "5c".repeat(32)).parse()?);
    let accept = |change: &mut Change, now| {
        change.admit(Admission::plain(AdmissionId(app.as_bits()), deploy), KeyLookup::Unread, now);
    };
    let roll_out = |deploy: &Deploy| {
        let rolling = State::RollingOut { since: deploy.created_at, outage: Default::default() };
        Deploy { touched: true, ..deploy.moved(rolling) }
    };
    let succeed = |deploy: &Deploy| Deploy { digest, ..deploy.moved(State::Succeeded { note: None }) };
    change(store, app, accept).await?;
    change(store, app, |change, now| record(change, roll_out, now)).await?;
    change(store, app, |change, now| record(change, succeed, now)).await
}

/// Records the unfinished deploy in its next state.
fn record(change: &mut Change, next: impl FnOnce(&Deploy) -> Deploy, now: Timestamp) {
    let changes: Vec<Deploy> = change.state.unfinished.first().map(|deploy| next(deploy)).into_iter().collect();
    // What is refused is missing in the history, and the bench says so.
    let _ = change.record(Record { changes, idle: true, ..Record::default() }, now);
}

/// Changes an app as it is stored.
async fn change(store: &SqliteStore, app: AppUid, make: impl FnOnce(&mut Change, Timestamp)) -> Result<(), Failure> {
    let Loaded { state, version, now, .. } = store.load(AppRef::Uid(app), None).await?.ok_or("an app is gone")?;
    let mut change = Change::on(state);
    make(&mut change, now);
    commit(store, Some(version), change).await
}

async fn commit<S: HistoryStore + ?Sized>(store: &S, version: Option<Version>, change: Change) -> Result<(), Failure> {
    let app = change.state.app.uid;
    store.commit_one(Commit { app, version, write: Write::Put(Box::new(change)) }).await?;
    Ok(())
}
