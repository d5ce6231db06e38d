//! Loading what was committed.

use std::time::Duration;

use rollhook_core::{
    app::{App, AppUid, OnFailure, Policy, Source, Target},
    delivery::GitHost,
    deploy::{Actor, Deploy, Origin, Outage, Paused, Reason, State, Trigger},
    ledger::{Admission, AppState, Change, NewDeploy, OtherDeploys, Record, UNFINISHED_MAX},
    lock::Locks,
    ports::{AppRef, HistoryStore, HistoryStoreExt, Version},
    time::Timestamp,
};

use super::registered;
use serde_json::json;

use crate::{client, report::Can, samples, stores::Stores};

/// An app that was never registered, or was removed, is loaded by neither name nor uid.
pub async fn load_unknown_is_none(store: &dyn Stores) -> Can {
    let history = store.open().await.history;
    let app = samples::app("shop", "test", "api");
    let is_known = async |app: &App| {
        let key = samples::key("run-1", 1);
        let by_name = history.load(AppRef::Name(&app.id), Some(&key)).await.unwrap();
        let by_uid = history.load(AppRef::Uid(app.uid), None).await.unwrap();
        assert_eq!(by_name.is_some(), by_uid.is_some(), "{} is known by name and uid or by neither", app.id);
        by_uid.is_some()
    };
    assert!(!is_known(&app).await, "the store is empty");
    client::register(&*history, app.clone()).await;
    assert!(is_known(&app).await);
    for (environment, name) in [("test", "web"), ("prod", "api"), ("test", "ap"), ("test", "api-2"), ("test-2", "api")]
    {
        assert!(!is_known(&samples::app("shop", environment, name)).await, "{environment}/{name}");
    }
    client::remove(&*history, app.uid).await;
    assert!(!is_known(&app).await, "the app was removed");
    Ok(())
}

/// States of every kind are loaded as they were committed, by name and by uid, through every handle.
pub async fn commit_then_load(store: &dyn Stores) -> Can {
    let ([one, two], _) = registered(store).await;
    let mut change = Change::register(full_app());
    let adopted = NewDeploy { adopted: true, trigger: Trigger::Manual, ..samples::deploy("adopted") };
    samples::admit(&mut change, samples::keyed(samples::key("create", 1), adopted), Timestamp::from_millis(1));
    let mut state = change.state.clone();
    let mut version = one.commit_one(client::registration(change)).await.unwrap().version;
    assert_is_loaded(store, &*one, &state, version).await;

    let steps: [fn(&mut Change, Timestamp); 5] = [fill, move_on, restore, roll_back, configure];
    for (number, step) in steps.into_iter().enumerate() {
        let history = if number % 2 == 0 { &*two } else { &*one };
        let mut change = Change::on(state);
        step(&mut change, Timestamp::from_millis(1_700_000_000_000 + number as i64));
        state = change.state.clone();
        let committed = history.commit_one(client::put(change, version)).await.unwrap();
        assert!(committed.version > version, "each commit makes a higher version");
        version = committed.version;
        assert_is_loaded(store, &*one, &state, version).await;
        assert_is_loaded(store, &*two, &state, version).await;
    }
    assert_eq!(state.unfinished.len(), 1);
    the_clock_is_the_stores(store, &*one, state.app.uid).await
}

async fn assert_is_loaded(store: &dyn Stores, history: &dyn HistoryStore, state: &AppState, version: Version) {
    let fresh = store.open().await.history;
    for history in [history, &*fresh] {
        for app in [AppRef::Uid(state.app.uid), AppRef::Name(&state.app.id)] {
            let loaded = history.load(app, None).await.unwrap().expect("the app is registered");
            assert_eq!(loaded.state, *state, "loaded as it was committed");
            assert_eq!((loaded.version, loaded.key), (version, None));
        }
    }
}

/// Loads, commits and heartbeats tell the time of one clock.
async fn the_clock_is_the_stores(store: &dyn Stores, history: &dyn HistoryStore, app: AppUid) -> Can {
    let before = client::load(history, app).await.now;
    store.advance(Duration::from_secs(3600)).await?;
    let (loaded, committed) = client::change(history, app, |change, now| {
        change.configure(Source::Image, Policy::default(), now);
        now
    })
    .await;
    let beat = history.heartbeat(&samples::replica("a", 1), Duration::from_secs(60)).await.unwrap();
    let other = client::load(&*store.open().await.history, app).await;
    assert!(loaded >= before.after(Duration::from_secs(3600)), "{loaded:?} an hour after {before:?}");
    assert!(committed.now >= loaded && beat.now >= committed.now && other.now >= beat.now, "one clock");
    assert!(other.now < before.after(Duration::from_secs(2 * 3600)), "{other:?} is the store's clock");
    Ok(())
}

/// An app each of whose fields is set.
fn full_app() -> App {
    let app = samples::app("shop", "test", "full");
    let mut source = samples::git_source();
    source.credentials = Some("deploy-key".parse().unwrap());
    let settings = samples::settings(json!({
        "kind": "Deployment", "name": "full", "containers": ["app", "sidecar"], "replicas": 3, "port": 8080,
        "env": { "MODE": "a \"quoted\" 'value' \\ 🦀\n\u{7f}" }, "nested": [null, { "deep": [1.5, true] }],
    }));
    let take_over = Some(AppUid::from_bits(u128::MAX));
    let target = Target { requested: Some(settings.clone()), settings, take_over };
    let policy = Policy::default().with(|policy| {
        policy.on_failure = OnFailure::Leave;
        policy.settle = Duration::from_millis(1500);
        policy.repositories = vec!["registry.example.com/shop/*".to_owned()].try_into().unwrap();
        policy.poll = Some(Duration::from_secs(60));
    });
    let (holds, created_at) = (vec![samples::hold("bad")], Timestamp::from_millis(1_234_567));
    // They are over by now.
    let locks = Locks { app: Some(samples::lock(Some(1))), environment: Some(samples::lock(Some(0))), sequence: 7 };
    App { source: Source::Git(source), target, policy, holds, locks, created_at, ..app }
}

/// As many unfinished deploys as an app may have, by all sorts of actors, one of which succeeded below them.
fn fill(change: &mut Change, now: Timestamp) {
    let first = (*change.state.unfinished[0]).clone();
    let ended = Deploy { touched: true, digest: Some(samples::digest(1)), ..first.moved(samples::succeeded()) };
    change.record(Record { changes: vec![ended], ..Record::default() }, now).unwrap();
    let promoted =
        Origin::Promoted { app: "shop-prod/api".parse().unwrap(), revision: samples::revision(i64::MAX as u64) };
    for number in 0..UNFINISHED_MAX {
        let deploy = match number % 6 {
            0 => samples::build(u32::try_from(number).unwrap()),
            1 => NewDeploy { actor: Actor::person("Zoë \u{1f980} \"; DROP TABLE apps; --"), ..samples::deploy("v1") },
            2 => NewDeploy {
                actor: Actor::git_host(GitHost::named("Forgejo"), Some("öctocat")),
                ..samples::deploy("v2")
            },
            3 => NewDeploy { from: Some(promoted.clone()), trigger: Trigger::Promotion, ..samples::deploy("v3") },
            4 => NewDeploy {
                commit: Some("ü".repeat(128).parse().unwrap()),
                committed_at: "1999-12-31T23:59:59.999-12:00".parse().ok(),
                ..samples::deploy("v4")
            },
            _ => NewDeploy { commit: None, image: Some("nginx".parse().unwrap()), ..samples::deploy("v5") },
        };
        samples::admit(change, samples::admission(deploy), now);
    }
    assert_eq!(change.state.unfinished.len(), UNFINISHED_MAX);
}

/// A deploy that is built, one that rolls out, and one that failed with all its evidence.
fn move_on(change: &mut Change, now: Timestamp) {
    let outage = Outage { since: Some(now), past: Duration::from_millis(1234) };
    let at = |index: usize| (*change.state.unfinished[index]).clone();
    let building = State::Building {
        since: now,
        source: samples::git_source().fingerprint(),
        paused: Paused { away: outage, waiting: Outage::default() },
    };
    let rolling = Deploy { touched: true, ..at(2).moved(State::RollingOut { since: now, outage }) };
    let failed = State::Failed {
        reason: Reason::new("CrashLoopBackOff"),
        message: "🦀 it crashes\r\n".to_owned(),
        evidence: Some(samples::evidence()),
    };
    let failed = Deploy { touched: true, ..at(4).moved(failed) };
    let changes = vec![at(0).moved(building), rolling, failed];
    change.record(Record { changes, ..Record::default() }, now).unwrap();
}

/// A restore that ends all others.
fn restore(change: &mut Change, now: Timestamp) {
    supersede(change, samples::restore("v1", samples::revision(1)), now);
}

/// A person's rollback that ends the restore.
fn roll_back(change: &mut Change, now: Timestamp) {
    supersede(change, samples::rollback("v1", samples::revision(1)), now);
}

fn supersede(change: &mut Change, deploy: NewDeploy, now: Timestamp) {
    let admission = Admission {
        others: OtherDeploys::EndSuperseded,
        hold: Some(samples::hold("v2")),
        driver: Some(samples::replica("driver", 0)),
        ..samples::admission(deploy)
    };
    samples::admit(change, admission, now);
}

/// A lease, another source and policy, and no holds.
fn configure(change: &mut Change, now: Timestamp) {
    change.lease(&samples::replica("réplica \"1\" / 🦀", i64::MAX as u64), now);
    change.configure(Source::Git(samples::git_source()), Policy::default(), now);
    change.release_holds(now);
}
