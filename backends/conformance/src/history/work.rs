//! Work, and who lives to do it.

use std::{collections::BTreeSet, time::Duration};

use futures_util::future::join;
use rollhook_core::{
    app::{App, AppUid, Policy},
    ledger::{Change, Record},
    ports::{Binding, DriverIdentity, Heartbeat, HistoryStore, HistoryStoreExt},
    replica::ReplicaId,
    time::Timestamp,
};

use crate::{client, report::Can, samples, stores::Stores};

const TTL: Duration = Duration::from_secs(15);
const HOUR: Duration = Duration::from_secs(3600);

/// Apps with work are named in the order in which it came, but for those that a living replica drives.
pub async fn work_is_what_no_living_replica_drives(store: &dyn Stores) -> Can {
    let [one, two] = [store.open().await.history, store.open().await.history];
    let mut queue = Vec::new();
    for (name, millis) in [("zeta", 3000), ("beta", 1000), ("idle", 0), ("alpha", 2000), ("gamma", 4000)] {
        let app = client::register(&*one, samples::app("line", "test", name)).await.state.app.uid;
        if millis > 0 {
            queue_at(&*one, app, Timestamp::from_millis(millis)).await;
            queue.push((millis, app));
        }
    }
    queue.sort_unstable();
    let [beta, alpha, zeta, gamma] = queue.iter().map(|(_, app)| *app).collect::<Vec<_>>()[..] else { panic!() };
    for history in [&*one, &*two] {
        assert_eq!(history.work(&[], 100).await.unwrap(), [beta, alpha, zeta, gamma]);
        assert_eq!(history.work(&[], 2).await.unwrap(), [beta, alpha]);
        assert_eq!(history.work(&[], 0).await.unwrap(), []);
    }

    let [a, b] = [samples::replica("a", 1), samples::replica("b", i64::MAX as u64)];
    lease(&*one, beta, &a).await;
    lease(&*two, zeta, &b).await;
    let restarted = samples::replica("a", 2);
    let cases: [(&[&ReplicaId], &[AppUid]); 6] = [
        (&[&a, &b], &[alpha, gamma]),
        (&[&b, &restarted], &[beta, alpha, gamma]),
        (&[&a], &[alpha, zeta, gamma]),
        (&[&samples::replica("c", 1)], &[beta, alpha, zeta, gamma]),
        (&[], &[beta, alpha, zeta, gamma]),
        (&[&restarted, &samples::replica("b", 1)], &[beta, alpha, zeta, gamma]),
    ];
    for (alive, expected) in cases {
        let alive: Vec<ReplicaId> = alive.iter().map(|replica| (*replica).clone()).collect();
        for history in [&*one, &*two] {
            assert_eq!(history.work(&alive, 100).await.unwrap(), expected, "{alive:?}");
            assert_eq!(history.work(&alive, 1).await.unwrap(), expected[..1], "{alive:?}");
        }
    }
    changes_of_work(&*one, &*two, alpha, &b).await;
    polled_apps(&*one, &*two).await;
    many(&*one, &*two).await;
    Ok(())
}

/// More work leaves an app its place; idle it has none, and gets the last one with the next accept.
async fn changes_of_work(one: &dyn HistoryStore, two: &dyn HistoryStore, alpha: AppUid, other: &ReplicaId) {
    let before = two.work(&[], 100).await.unwrap();
    queue_at(one, alpha, Timestamp::from_millis(9000)).await;
    assert_eq!(two.work(&[], 100).await.unwrap(), before);
    lease(one, alpha, other).await;
    client::change(two, alpha, |change, now| {
        let changes = change.state.unfinished.iter().map(|deploy| deploy.moved(samples::failed())).collect();
        change.record(Record { changes, idle: true, ..Record::default() }, now).unwrap();
    })
    .await;
    let without: Vec<AppUid> = before.iter().copied().filter(|app| *app != alpha).collect();
    assert_eq!(one.work(&[], 100).await.unwrap(), without, "an idle app has no work");
    let now = client::load(one, alpha).await.now;
    queue_at(one, alpha, now).await;
    let behind: Vec<AppUid> = without.iter().copied().chain([alpha]).collect();
    assert_eq!(two.work(std::slice::from_ref(other), 100).await.unwrap().last(), Some(&alpha), "its lease has ended");
    assert_eq!(two.work(&[], 100).await.unwrap(), behind);
    client::remove(two, alpha).await;
    assert_eq!(one.work(&[], 100).await.unwrap(), without);
}

/// A polled app has work from its registration on.
async fn polled_apps(one: &dyn HistoryStore, two: &dyn HistoryStore) {
    let app = samples::app("other", "test", "polled");
    let created_at = Timestamp::from_millis(1500);
    let policy = Policy::default().with(|policy| policy.poll = Some(Duration::from_secs(60)));
    let app = App { policy, created_at, ..app };
    one.commit_one(client::registration(Change::register(app.clone()))).await.unwrap();
    assert_eq!(two.work(&[], 2).await.unwrap()[1], app.uid);
}

/// Of many apps as many are named as were asked for, the longest waiting ones.
async fn many(one: &dyn HistoryStore, two: &dyn HistoryStore) {
    let replica = samples::replica("many", 1);
    let mut free = Vec::new();
    for number in 0..40_i64 {
        let app = samples::app("race", "test", &format!("app-{number}"));
        let app = client::register(one, app).await.state.app.uid;
        // Seven is prime to forty, so that neither names nor registrations are in this order.
        let millis = 100 + (number * 7) % 40;
        queue_at(one, app, Timestamp::from_millis(millis)).await;
        if number % 2 == 0 {
            lease(one, app, &replica).await;
        } else {
            free.push((millis, app));
        }
    }
    free.sort_unstable();
    let free: Vec<AppUid> = free.into_iter().map(|(_, app)| app).collect();
    for limit in [1, 7, 20] {
        assert_eq!(two.work(std::slice::from_ref(&replica), limit).await.unwrap(), free[..limit]);
    }
    let all = two.work(&[], 40).await.unwrap();
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 40);
    assert_eq!(all.iter().filter(|app| free.contains(app)).count(), 20);
}

async fn queue_at(history: &dyn HistoryStore, app: AppUid, time: Timestamp) {
    let admission = samples::admission(samples::deploy("v1"));
    client::change(history, app, |change, _| samples::admit(change, admission, time)).await;
}

async fn lease(history: &dyn HistoryStore, app: AppUid, replica: &ReplicaId) {
    client::change(history, app, |change, _| change.lease(replica, Timestamp::default())).await;
}

/// Of two identities at the same time one stays, for every handle, until it is replaced.
pub async fn bind_driver_keeps_the_first(store: &dyn Stores) -> Can {
    let [one, two] = [store.open().await.history, store.open().await.history];
    let identity = |text: &str| DriverIdentity(text.to_owned());
    let (a, b) = (identity("sites /srv/é 'a'"), identity("kubernetes 7"));
    let (first, second) = join(one.bind_driver(&a, Binding::First), two.bind_driver(&b, Binding::First)).await;
    let first = first.unwrap();
    assert!(first == a || first == b);
    assert_eq!(second.unwrap(), first);
    assert_eq!(two.bind_driver(&identity("simulated"), Binding::First).await.unwrap(), first);
    for identity in [&a, &b] {
        assert_eq!(two.bind_driver(identity, Binding::Replace).await.unwrap(), *identity);
        assert_eq!(one.bind_driver(&first, Binding::First).await.unwrap(), *identity);
    }
    Ok(())
}

/// A heartbeat counts for its time; another boot of a name replaces the one before, and a release ends one boot.
pub async fn heartbeat_names_the_living(store: &dyn Stores) -> Can {
    let [one, two] = [store.open().await.history, store.open().await.history];
    let [a, b, c] = [samples::replica("a", 1), samples::replica("b", 2), samples::replica("c", 3)];
    assert_eq!(beat(&*one, &a, TTL).await, names(&[&a]));
    assert_eq!(beat(&*two, &b, TTL).await, names(&[&a, &b]));
    assert_eq!(beat(&*one, &a, TTL).await, names(&[&a, &b]));
    store.advance(TTL - Duration::from_secs(5)).await?;
    assert_eq!(beat(&*one, &a, TTL).await, names(&[&a, &b]));
    store.advance(Duration::from_secs(6)).await?;
    assert_eq!(beat(&*two, &c, 4 * TTL).await, names(&[&a, &c]), "b gave no heartbeat for longer than its ttl");
    assert_eq!(beat(&*one, &a, TTL).await, names(&[&a, &c]));
    store.advance(2 * TTL).await?;
    assert_eq!(beat(&*one, &b, TTL).await, names(&[&b, &c]), "each lives for the ttl that it named");
    assert_eq!(beat(&*two, &b, TTL).await, names(&[&b, &c]));

    let restarted = samples::replica("c", 4);
    assert_eq!(beat(&*two, &restarted, TTL).await, names(&[&b, &restarted]), "a new boot replaces the one before");
    assert_eq!(
        beat(&*one, &c, Duration::ZERO).await,
        names(&[&b, &restarted]),
        "a late release ends its own boot only"
    );
    assert_eq!(beat(&*two, &restarted, Duration::ZERO).await, names(&[&b]));
    assert_eq!(beat(&*one, &samples::replica("unknown", 5), Duration::ZERO).await, names(&[&b]));
    assert_eq!(beat(&*two, &restarted, TTL).await, names(&[&b, &restarted]), "a released boot may come back");
    let odd = samples::replica("Réplica 'é' / \u{1f980} \"x\"", i64::MAX as u64);
    assert_eq!(beat(&*one, &odd, TTL).await, names(&[&b, &restarted, &odd]));
    assert_eq!(beat(&*one, &odd, Duration::ZERO).await, names(&[&b, &restarted]));
    last_moment_of_a_heartbeat(store, &*one, &*two).await?;
    heartbeat_of_the_future(store, &*one, &*two).await
}

/// After the clock was set back, a heartbeat of the future counts for its ttl from the next heartbeat on, and that is
/// all.
async fn heartbeat_of_the_future(store: &dyn Stores, one: &dyn HistoryStore, two: &dyn HistoryStore) -> Can {
    let [a, b] = [samples::replica("a", 1), samples::replica("b", 2)];
    beat(one, &b, TTL).await;
    store.set_back(HOUR).await?;
    for (history, time) in [(two, TTL - Duration::from_secs(5)), (one, Duration::from_secs(6))] {
        let alive = beat(history, &a, TTL).await;
        assert!(alive.is_superset(&names(&[&a, &b])), "a heartbeat of the future counts from now on: {alive:?}");
        store.advance(time).await?;
    }
    assert_eq!(beat(two, &a, TTL).await, names(&[&a]), "a heartbeat lasts no longer after the clock was set back");
    assert_eq!(beat(one, &a, TTL).await, names(&[&a]));
    store.advance(HOUR - TTL).await?;
    assert_eq!(beat(two, &a, TTL).await, names(&[&a]), "nor again when the clock is where it was");
    Ok(())
}

/// A heartbeat counts for the whole of its time. Its last moment is only met where the store's clock stands still
/// between the calls.
async fn last_moment_of_a_heartbeat(store: &dyn Stores, one: &dyn HistoryStore, two: &dyn HistoryStore) -> Can {
    let [observed, observer] = [samples::replica("observed", 7), samples::replica("observer", 8)];
    let end = one.heartbeat(&observed, TTL).await.unwrap().now.after(TTL);
    let millisecond = Duration::from_millis(1);
    for (step, moment, is_alive) in [(TTL, end, true), (millisecond, end.after(millisecond), false)] {
        store.advance(step).await?;
        let Heartbeat { now, alive } = two.heartbeat(&observer, TTL).await.unwrap();
        assert!(now != moment || alive.contains(&observed) == is_alive, "alive while no older than its ttl: {alive:?}");
    }
    for replica in [&observed, &observer] {
        one.heartbeat(replica, Duration::ZERO).await.unwrap();
    }
    Ok(())
}

async fn beat(history: &dyn HistoryStore, replica: &ReplicaId, ttl: Duration) -> BTreeSet<String> {
    let alive = history.heartbeat(replica, ttl).await.unwrap().alive;
    let names: BTreeSet<String> = alive.iter().map(ReplicaId::to_string).collect();
    assert_eq!(names.len(), alive.len(), "each is named once");
    names
}

fn names(replicas: &[&ReplicaId]) -> BTreeSet<String> {
    replicas.iter().map(|replica| replica.to_string()).collect()
}
