//! Who drives what.

use std::{collections::BTreeSet, time::Duration};

use futures_util::{
    FutureExt, StreamExt,
    future::{Either, join_all, select},
    stream::BoxStream,
};
use rollhook_core::{
    Error,
    app::{App, AppUid, Policy},
    deploy::State,
    ports::{Claim, History, Record, Wake},
};

use super::{admit, failed, moved, record_of, registered, reread, succeeded};
use crate::{
    report::Can,
    samples,
    stores::{Stores, pass},
};

const TTL: Duration = Duration::from_secs(5);
const LONG: Duration = Duration::from_secs(600);

/// An app with work belongs to the replica that claims it first, for as long as its claims last.
pub async fn claim_takes_free_work(store: &dyn Stores) -> Can {
    let (one, app) = registered(store).await;
    let two = store.open().await.history;
    assert_eq!(claim(&*one, "a", 1, LONG).await, [], "no work");
    admit(&*one, &app, samples::draft("v1")).await;
    assert_eq!(claim(&*one, "a", 1, LONG).await, [app.uid]);
    assert_eq!(claim(&*two, "b", 2, LONG).await, [], "another's");
    assert_eq!(claim(&*one, "a", 1, LONG).await, [app.uid], "still its own");
    admit(&*two, &app, samples::draft("v2")).await;
    assert_eq!(claim(&*two, "b", 2, LONG).await, [], "also with more work");
    one.record(Record { claim: Some(1), ..record_of(&app, Vec::new()) }).await.unwrap();
    assert_eq!(claim(&*one, "a", 1, LONG).await, [app.uid]);

    waiting_in_line(store).await?;
    claimed_at_once(store).await;
    Ok(())
}

/// Those that wait longest are named first, up to the limit; the rest is left to others.
async fn waiting_in_line(store: &dyn Stores) -> Can {
    let handles = store.open().await;
    let mut line = Vec::new();
    for name in ["zeta", "beta", "alpha"] {
        let app = handles.apps.create(samples::app("line", "test", name)).await.unwrap();
        admit(&*handles.history, &app, samples::draft("v1")).await;
        line.push(app.uid);
        pass(store, Duration::from_millis(20)).await?;
    }
    let two = Claim { replica: samples::replica("c", 3), ttl: LONG, limit: 2 };
    assert_eq!(handles.history.claim(two.clone()).await.unwrap().apps, line[..2]);
    assert_eq!(handles.history.claim(two.clone()).await.unwrap().apps, line[..2], "the limit is for old and new ones");
    assert_eq!(claim(&*handles.history, "d", 4, LONG).await, line[2..]);
    assert_eq!(handles.history.claim(two).await.unwrap().apps, line[..2]);
    Ok(())
}

/// Of many that claim at once, each app is named by one.
async fn claimed_at_once(store: &dyn Stores) {
    let handles = store.open().await;
    let mut apps = BTreeSet::new();
    for number in 0..20 {
        let app = handles.apps.create(samples::app("race", "test", &format!("app-{number}"))).await.unwrap();
        admit(&*handles.history, &app, samples::draft("v1")).await;
        apps.insert(app.uid);
    }
    let other = store.open().await.history;
    let claims = (0..10_u64).map(|number| {
        let replica = samples::replica(&format!("racer-{number}"), 100 + number);
        let claim = Claim { replica, ttl: LONG, limit: 3 };
        if number % 2 == 0 { handles.history.claim(claim) } else { other.claim(claim) }
    });
    let claimed = join_all(claims).await.into_iter().flat_map(|claimed| claimed.unwrap().apps);
    let mut named = BTreeSet::new();
    for app in claimed.filter(|app| apps.contains(app)) {
        assert!(named.insert(app), "named by two");
    }
    assert_eq!(named, apps, "all of them are named");
}

/// A replica that gave no sign of life for its time has lost its apps to whoever asks.
pub async fn claim_expires(store: &dyn Stores) -> Can {
    let (history, app) = registered(store).await;
    let deploy = admit(&*history, &app, samples::draft("v1")).await;
    assert_eq!(claim(&*history, "a", 1, TTL).await, [app.uid]);
    if store.advance(TTL / 2).await.is_ok() {
        assert_eq!(claim(&*history, "a", 1, TTL).await, [app.uid]);
        store.advance(TTL - Duration::from_secs(1)).await?;
        assert_eq!(claim(&*history, "b", 2, TTL).await, [], "a sign of life counts from when it was given");
    }
    pass(store, TTL).await?;
    let mut taken = claim(&*history, "b", 2, LONG).await;
    for _ in 0..30 {
        if taken.is_empty() {
            store.pause(Duration::from_millis(200)).await;
            taken = claim(&*history, "b", 2, LONG).await;
        }
    }
    assert_eq!(taken, [app.uid]);
    let late = Record { claim: Some(1), ..record_of(&app, vec![deploy.moved(failed())]) };
    let late = history.record(late).await;
    assert!(matches!(late, Err(Error::Conflict("claim"))), "the old owner writes: {late:?}");
    assert_eq!(claim(&*history, "a", 1, LONG).await, [], "and does not get it back");
    history.record(Record { claim: Some(2), ..record_of(&app, vec![deploy.moved(failed())]) }).await.unwrap();
    Ok(())
}

/// A process that was restarted under its name does not wait for its own dead claims; nor does anybody else.
pub async fn claim_of_a_new_incarnation_frees_the_old(store: &dyn Stores) -> Can {
    let (history, app) = registered(store).await;
    let other = store.open().await.apps.create(samples::app("shop", "prod", "api")).await.unwrap();
    let deploy = admit(&*history, &app, samples::draft("v1")).await;
    pass(store, Duration::from_millis(20)).await?;
    admit(&*history, &other, samples::draft("v1")).await;
    assert_eq!(claim(&*history, "a", 1, LONG).await, [app.uid, other.uid]);
    let restarted = Claim { replica: samples::replica("a", 2), ttl: LONG, limit: 1 };
    assert_eq!(history.claim(restarted).await.unwrap().apps, [app.uid]);
    let late = Record { claim: Some(1), ..record_of(&app, vec![deploy.moved(failed())]) };
    let late = history.record(late).await;
    assert!(matches!(late, Err(Error::Conflict("claim"))), "the old incarnation writes: {late:?}");
    assert_eq!(claim(&*history, "b", 3, LONG).await, [other.uid], "what the new one did not take is free");
    history.record(Record { claim: Some(2), ..record_of(&app, vec![deploy.moved(failed())]) }).await.unwrap();
    Ok(())
}

/// A claim of no time frees all that the incarnation had, and takes nothing.
pub async fn claim_zero_gives_up(store: &dyn Stores) -> Can {
    let (history, app) = registered(store).await;
    let deploy = admit(&*history, &app, samples::draft("v1")).await;
    assert_eq!(claim(&*history, "a", 1, LONG).await, [app.uid]);
    assert_eq!(claim(&*history, "a", 1, Duration::ZERO).await, []);
    let late = Record { claim: Some(1), ..record_of(&app, vec![deploy.moved(failed())]) };
    let late = history.record(late).await;
    assert!(matches!(late, Err(Error::Conflict("claim"))), "written after giving up: {late:?}");
    assert_eq!(claim(&*history, "b", 2, LONG).await, [app.uid]);
    assert_eq!(claim(&*history, "c", 3, Duration::ZERO).await, [], "one that never had any");
    assert_eq!(claim(&*history, "c", 4, LONG).await, []);

    assert_eq!(claim(&*history, "b", 5, LONG).await, [app.uid]);
    assert_eq!(claim(&*history, "b", 2, Duration::ZERO).await, []);
    assert_eq!(claim(&*history, "c", 4, LONG).await, [], "an old incarnation's farewell is not the new one's");
    Ok(())
}

/// An app at rest is not named until the next accept, or a change that does not rest.
pub async fn rest_ends_work(store: &dyn Stores) -> Can {
    let (history, app) = registered(store).await;
    let deploy = admit(&*history, &app, samples::draft("v1")).await;
    assert_eq!(claim(&*history, "a", 1, LONG).await, [app.uid]);
    let rolling = State::RollingOut { since: deploy.created_at, outage: Default::default() };
    let resting = |changes| Record { claim: Some(1), rest: true, ..record_of(&app, changes) };
    history.record(resting(vec![deploy.moved(rolling.clone())])).await.unwrap();
    assert_eq!(claim(&*history, "a", 1, LONG).await, [app.uid], "there is no rest while anything is unfinished");
    let ended = deploy.moved(rolling).moved(failed());
    history.record(Record { rest: false, ..resting(vec![ended]) }).await.unwrap();
    assert_eq!(claim(&*history, "a", 1, LONG).await, [app.uid], "the engine said nothing of rest");
    history.record(resting(Vec::new())).await.unwrap();
    assert_eq!(claim(&*history, "a", 1, LONG).await, []);
    assert_eq!(claim(&*history, "b", 2, LONG).await, []);

    let next = admit(&*history, &app, samples::draft("v2")).await;
    assert_eq!(claim_either(&*history).await, [app.uid], "the next accept ends the rest");
    moved(&*history, &app, &next, succeeded()).await;
    assert_eq!(claim_either(&*history).await, [app.uid], "a person's change leaves the engine something to look at");
    let quiet = Record { rest: true, ..record_of(&app, Vec::new()) };
    history.record(quiet).await.unwrap();
    assert_eq!(claim_either(&*history).await, []);
    history.record(record_of(&app, Vec::new())).await.unwrap();
    assert_eq!(claim_either(&*history).await, [app.uid], "a record without rest ends it too");
    Ok(())
}

/// An app that is polled is always somebody's, whatever is recorded, until it is polled no longer.
pub async fn polled_app_has_work(store: &dyn Stores) -> Can {
    let handles = store.open().await;
    let history = &*handles.history;
    let polled = |app: App| App { policy: Policy { poll: Some(LONG), ..app.policy }, ..app };
    let not = |app: App| App { policy: Policy { poll: None, ..app.policy }, ..app };
    let app = handles.apps.create(polled(samples::app("shop", "test", "api"))).await.unwrap();
    assert_eq!(claim(history, "a", 1, LONG).await, [app.uid], "from its registration on");
    let rest = || Record { claim: Some(1), rest: true, ..record_of(&app, Vec::new()) };
    history.record(rest()).await.unwrap();
    assert_eq!(claim(history, "a", 1, LONG).await, [app.uid], "there is no rest for it");
    let deploy = admit(history, &app, samples::draft("v1")).await;
    history.record(Record { changes: vec![deploy.moved(failed())], ..rest() }).await.unwrap();
    assert_eq!(claim(history, "a", 1, LONG).await, [app.uid], "nor once a deploy has ended");

    handles.apps.update(not(reread(history, &app).await)).await.unwrap();
    history.record(rest()).await.unwrap();
    assert_eq!(claim_either(history).await, [], "it is polled no longer");
    let now = reread(history, &app).await;
    assert_eq!(now.policy.poll, None);

    let again = store.open().await;
    again.apps.update(polled(now)).await.unwrap();
    assert_eq!(claim_either(history).await, [app.uid], "and again, though nothing else has happened");
    history.record(Record { claim: None, ..rest() }).await.unwrap();
    assert_eq!(claim_either(history).await, [app.uid], "whoever says rest did not know of it");
    assert_eq!(reread(history, &app).await.policy.poll, Some(LONG));
    Ok(())
}

/// A handle's stream has an item after a write through that handle.
pub async fn wakes_follow_writes(store: &dyn Stores) -> Can {
    let (history, app) = registered(store).await;
    let mut wakes = history.wakes();
    let deploy = admit(&*history, &app, samples::draft("v1")).await;
    assert_awake(store, &mut wakes, &app).await;
    while wakes.next().now_or_never().is_some() {}
    moved(&*history, &app, &deploy, succeeded()).await;
    assert_awake(store, &mut wakes, &app).await;

    let mut slow = history.wakes();
    for _ in 0..50 {
        admit(&*history, &app, samples::draft("v1")).await;
    }
    assert_awake(store, &mut slow, &app).await;
    Ok(())
}

async fn assert_awake(store: &dyn Stores, wakes: &mut BoxStream<'static, Wake>, app: &App) {
    match select(wakes.next(), store.pause(Duration::from_secs(10))).await {
        Either::Left((wake, _)) => {
            assert!(matches!(wake, Some(Wake::Any)) || wake == Some(Wake::App(app.uid)), "{wake:?}")
        }
        Either::Right(_) => panic!("no item after a write"),
    }
}

async fn claim(history: &dyn History, name: &str, incarnation: u64, ttl: Duration) -> Vec<AppUid> {
    let replica = samples::replica(name, incarnation);
    history.claim(Claim { replica, ttl, limit: 100 }).await.unwrap().apps
}

/// What either of two replicas is given; the other is given nothing.
async fn claim_either(history: &dyn History) -> Vec<AppUid> {
    let mut given = claim(history, "a", 1, LONG).await;
    given.extend(claim(history, "b", 2, LONG).await);
    given
}
