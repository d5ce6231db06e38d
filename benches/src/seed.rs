//! Fills stores before a server starts on them: apps, and long histories as copies of one deploy, by the ledger's
//! changes and the store's commits.

use std::{ops::Range, sync::Arc, time::Duration};

use futures_util::{StreamExt, TryStreamExt, stream};
use rollhook_core::{
    app::{self, App, AppId, AppUid, OnFailure, Policy, Source},
    deploy::{Actor, AdmissionId, Deploy, Order, Outage, Revision, Scale, State, Trigger},
    ledger::{Admission, AppState, Change, KeyLookup, NewDeploy, Record},
    ports::{AppCommit, Version},
    replica::ReplicaId,
    request::{IdempotencyKey, KeyHeader},
    time::Timestamp,
    token::Token,
};
use serde_json::json;

use crate::{Failure, fixture::Store};

/// The most apps of one call of the store, and the most calls at once: in Kubernetes each registration in a namespace
/// writes to the same object once.
const APPS_PER_COMMIT: usize = 100;
const TOGETHER: usize = 8;
/// The most deploys of one commit.
const DEPLOYS_PER_COMMIT: u32 = 20_000;
/// The time after which a running server knows the apps that another process has registered.
pub(crate) const KNOWN: Duration = Duration::from_secs(2);

/// The time of every registration and deploy that is seeded: any time in the past.
const REGISTERED: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// A registered app with an open webhook.
#[derive(Clone)]
pub(crate) struct SeededApp {
    /// The app's name.
    pub(crate) id: AppId,
    /// The webhook's token.
    pub(crate) token: String,
    /// The state after the registration.
    pub(crate) state: AppState,
    /// The version of the state.
    pub(crate) version: Version,
}

/// Registers `{project}-test/app-00000` and so on, with open webhooks; their deploys succeed as soon as they are rolled
/// out.
pub(crate) async fn apps(store: &dyn Store, project: &str, numbers: Range<usize>) -> Result<Vec<SeededApp>, Failure> {
    let names: Vec<String> = numbers.map(|number| format!("app-{number:05}")).collect();
    register(store, project, "test", &names).await
}

/// Registers one app with an open webhook; its Deployment has its name, and is made where it is missing.
pub(crate) async fn app(store: &dyn Store, project: &str, environment: &str, name: &str) -> Result<SeededApp, Failure> {
    let registered = register(store, project, environment, &[name.to_owned()]).await?;
    registered.into_iter().next().ok_or_else(|| "nothing was registered".into())
}

async fn register(
    store: &dyn Store,
    project: &str,
    environment: &str,
    names: &[String],
) -> Result<Vec<SeededApp>, Failure> {
    let registrations = names.iter().map(|name| Ok(Change::register(new(project, environment, name)?)));
    let registrations: Vec<Change> = registrations.collect::<Result<_, Failure>>()?;
    let states: Vec<AppState> = registrations.iter().map(|change| change.state.clone()).collect();
    let versions = commit(store, registrations.into_iter().map(|change| (change, None)).collect()).await?;
    let opened = states.into_iter().zip(versions).map(async |(state, version)| {
        let mut random = [0; Token::RANDOM_BYTES];
        getrandom::fill(&mut random)?;
        let token = Token::from_random(&random).ok_or("too little randomness")?;
        store.put(state.app.uid, &token).await?;
        Ok(SeededApp { id: state.app.id.clone(), token: token.expose().to_owned(), state, version })
    });
    stream::iter(opened).buffered(TOGETHER).try_collect().await
}

fn new(project: &str, environment: &str, name: &str) -> Result<App, Failure> {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits)?;
    let settings = serde_json::from_value(json!({
        "kind": "Deployment", "name": name, "containers": ["app"], "template": { "replicas": 1 },
    }))?;
    Ok(App {
        id: format!("{project}-{environment}/{name}").parse()?,
        uid: AppUid::from_bits(u128::from_le_bytes(bits)),
        project: project.parse()?,
        environment: environment.parse()?,
        source: Source::Image,
        target: app::Target { settings, ..Default::default() },
        policy: Policy::default().with(|policy| {
            policy.settle = Duration::ZERO;
            policy.on_failure = OnFailure::Leave;
        }),
        holds: Vec::new(),
        locks: rollhook_core::lock::Locks::default(),
        requirements: rollhook_core::requirement::RequirementCopies::default(),
        created_at: REGISTERED,
    })
}

/// Commits changes of different apps, and returns the new versions in their order.
async fn commit(store: &dyn Store, changes: Vec<(Change, Option<Version>)>) -> Result<Vec<Version>, Failure> {
    let limits = store.limits();
    let commits = changes.into_iter().map(|(change, version)| match version {
        None => AppCommit::Register(Box::new(change)),
        Some(version) => AppCommit::Update(version, Box::new(change)),
    });
    let commits: Vec<AppCommit> = commits.collect();
    let calls = commits.chunks(limits.apps_per_commit.min(APPS_PER_COMMIT)).map(|some| store.commit(some.to_vec()));
    let answers: Vec<Vec<_>> = stream::iter(calls).buffered(limits.commits_at_once.min(TOGETHER)).collect().await;
    Ok(answers.into_iter().flatten().map(|answer| Ok(answer?.version)).collect::<rollhook_core::Result<_>>()?)
}

/// Gives each app that was just registered a history of this many deploys that succeeded.
pub(crate) async fn histories(store: &dyn Store, apps: &[SeededApp], length: u32) -> Result<(), Failure> {
    for some in apps.chunks(APPS_PER_COMMIT) {
        let mut left: Vec<(AppState, Version)> = some.iter().map(|app| (app.state.clone(), app.version)).collect();
        for first in (1..=length).step_by(DEPLOYS_PER_COMMIT as usize) {
            let last = length.min(first + DEPLOYS_PER_COMMIT - 1);
            let changes = left.iter().map(|(state, version)| Ok((history(state, first..last + 1)?, Some(*version))));
            let changes: Vec<_> = changes.collect::<Result<_, Failure>>()?;
            let states: Vec<AppState> = changes.iter().map(|(change, _)| change.state.clone()).collect();
            left = states.into_iter().zip(commit(store, changes).await?).collect();
        }
    }
    Ok(())
}

/// A change that archives copies of one deploy under these revisions.
fn history(state: &AppState, revisions: Range<u32>) -> Result<Change, Failure> {
    let [.., done] = deploy(AppState::new((*state.app).clone()), None)?;
    let one = done.ended.first().cloned().ok_or("a deploy that succeeded has not ended")?;
    let mut change = done;
    change.ended.clear();
    for number in revisions {
        let revision = Revision::new(number.into()).ok_or("there is no revision 0")?;
        let id = AdmissionId(state.app.uid.as_bits().wrapping_add(number.into()));
        change.ended.push(Arc::new(Deploy { id, revision, effective: revision, ..(*one).clone() }));
    }
    let last = change.ended.last().cloned();
    change.state.latest = last.as_ref().map(|deploy| deploy.revision);
    change.state.current = last;
    Ok(change)
}

/// Returns the commits of one deploy, as a webhook's call and the engine make them: the deploy is accepted, rolls out,
/// and succeeds.
pub(crate) fn deploy(state: AppState, key: Option<String>) -> Result<[Change; 3], Failure> {
    let now = state.time(REGISTERED);
    let deploy = NewDeploy {
        image: Some("registry.example.com/shop/api:4f2a9c1".parse()?),
        commit: Some("4f2a9c1".parse()?),
        trigger: Trigger::Webhook,
        actor: Actor::Ci,
        from: None,
        effective: None,
        adopted: false,
        scale: Scale::Keep,
        configuration: None,
        order: Order::Unstated,
        unreleased: false,
        is_unproven: false,
        resolves: false,
        trace: None,
        committed_at: None,
    };
    let driver = Some(ReplicaId { name: "server-host-127.0.0.1:8080".to_owned(), boot: 0x1234_5678_9abc_def0 });
    let id = AdmissionId(state.app.uid.as_bits());
    let key = key.map(|key| IdempotencyKey { header: KeyHeader::IdempotencyKey, key, request: [7; 32] });
    let mut accepted = Change::on(state);
    let admission = Admission { driver: driver.clone(), key, ..Admission::plain(id, deploy) };
    accepted.admit(admission, KeyLookup::Unread, now);
    let queued = accepted.state.unfinished.first().cloned().ok_or("the deploy was not accepted")?;
    let rolling_out = State::RollingOut { since: now, outage: Outage::default() };
    let rolling_out = Deploy { touched: true, ..queued.moved(rolling_out) };
    let succeeded = Deploy {
        digest: Some(format!("sha256:{}", "5c".repeat(32)).parse()?),
        ..rolling_out.moved(State::Succeeded { note: None })
    };
    let recorded = |before: &Change, deploy: Deploy, idle: bool| {
        let mut change = Change::on(before.state.clone());
        let record = Record { driver: driver.clone(), changes: vec![deploy], idle, ..Record::default() };
        change.record(record, now).map_err(|refused| format!("a record was refused: {refused:?}"))?;
        Ok::<_, Failure>(change)
    };
    let rolled_out = recorded(&accepted, rolling_out, false)?;
    let ended = recorded(&rolled_out, succeeded, true)?;
    Ok([accepted, rolled_out, ended])
}
