//! Stores filled before a server starts on them: apps through the backend's own API, and long histories as copies, made
//! by SQLite itself, of one deploy that went through it.

use std::{ops::Range, time::Duration};

use futures_util::future::try_join_all;
use rollhook_core::{
    app::{self, App, AppId, AppUid, OnFailure, Policy, Source},
    deploy::{Actor, AdmissionId, Deploy, State, Trigger},
    ports::{Admission, Admitted, History, NewDeploy, Record},
    time::Timestamp,
    token::Token,
};
use rollhook_sqlite::SqliteStore;
use serde_json::json;
use sqlx::SqliteConnection;

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
        guard: 0,
        created_at: Timestamp::default(),
    };
    let app = store.create(app).await?;
    let mut random = [0; Token::RANDOM_BYTES];
    getrandom::fill(&mut random)?;
    let token = Token::from_random(&random).ok_or("too little randomness")?;
    store.put(app.uid, &token).await?;
    Ok(Target { app: app.id, uid: app.uid, token: token.expose().to_owned() })
}

/// Gives each app a history of this many deploys that succeeded.
pub(crate) async fn histories(
    store: &SqliteStore,
    connection: &mut SqliteConnection,
    targets: &[Target],
    length: u32,
) -> Result<(), Failure> {
    for some in targets.chunks(FIRST_TOGETHER) {
        try_join_all(some.iter().map(|target| first(store, target.uid))).await?;
    }
    let uids = some_uids(targets)?;
    for statement in [COPY_ENTRIES, COPY_HEADS] {
        sqlx::query(statement).bind(&uids).bind(length).execute(&mut *connection).await?;
    }
    // Else the server would find a write-ahead log of the whole history.
    sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(connection).await?;
    Ok(())
}

const COPY_ENTRIES: &str = "
WITH RECURSIVE number (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM number WHERE n < ?2)
INSERT INTO deploys (id, status, step, body)
SELECT d.id - 1 + n, d.status, d.step,
       json_set(d.body, '$.id', printf('%032x', d.id - 1 + n), '$.revision', n, '$.effective', n)
FROM json_each(?1) j
CROSS JOIN apps a ON a.uid = j.value
CROSS JOIN deploys d ON d.id = (a.id << 32) + 1
CROSS JOIN number";

const COPY_HEADS: &str = "
UPDATE heads SET last_revision = ?2, current_revision = ?2, on_cluster_revision = ?2
WHERE app IN (SELECT id FROM apps WHERE uid IN (SELECT value FROM json_each(?1)))";

fn some_uids(targets: &[Target]) -> Result<String, Failure> {
    let uids: Vec<String> = targets.iter().map(|target| target.uid.to_string()).collect();
    Ok(serde_json::to_string(&uids)?)
}

/// One deploy as a webhook and the engine make it.
async fn first(store: &SqliteStore, app: AppUid) -> Result<(), Failure> {
    let draft = NewDeploy {
        image: Some("registry.example.com/shop/api:4f2a9c1".parse()?),
        commit: Some("4f2a9c1".parse()?),
        trigger: Trigger::Webhook,
        actor: Actor::ci(),
        from: None,
        effective: None,
        adopted: false,
    };
    let id = AdmissionId(app.as_bits());
    let admission = Admission { app, id, key: None, draft, guard: 0, after: None, supersede: false, hold: None };
    let Admitted::New { deploy, .. } = store.admit(admission).await? else { return Err("not admitted".into()) };
    let rolling = State::RollingOut { since: deploy.created_at, outage: Default::default() };
    let rolling = Deploy { touched: true, ..deploy.moved(rolling) };
    let done = Deploy {
        digest: Some(format!("sha256:{}", "5c".repeat(32)).parse()?),
        ..rolling.moved(State::Succeeded { note: None })
    };
    for (change, rest) in [(rolling, false), (done, true)] {
        store.record(Record { app, claim: None, changes: vec![change], lift: Vec::new(), rest }).await?;
    }
    Ok(())
}
