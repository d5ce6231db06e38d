//! What others do at the same time, or have left half done.

use std::time::Duration;

use futures_util::future::join_all;
use kube::{Api, api::PostParams};
use rollhook_conformance::{Stores, samples};
use rollhook_core::{
    Error,
    app::App,
    deploy::{Deploy, Revision, State},
    ports::{Admission, Admitted, Apps, Claim, History, HistoryExt, Page, Record, View},
};
use rollhook_kubernetes::crd::DeployObject;

use crate::harness::{Fresh, admit, registered, succeeded, test};

const LONG: Duration = Duration::from_secs(600);

fn record_of(app: &App, changes: Vec<Deploy>) -> Record {
    Record { app: app.uid, claim: None, changes, lift: Vec::new(), rest: false }
}

fn numbers(deploys: &[Deploy]) -> Vec<u64> {
    deploys.iter().map(|deploy| deploy.revision.get()).collect()
}

/// Creates the object of a rollback that holds and supersedes, as a process does that dies right after.
async fn half_done(fresh: &Fresh, app: &App, after: u64) -> Revision {
    let mut object = fresh.object(app.uid, samples::revision(after)).await;
    object.metadata = kube::api::ObjectMeta {
        name: Some(format!("api-{}", after + 1)),
        resource_version: None,
        uid: None,
        ..object.metadata
    };
    object.spec.revision = after + 1;
    object.spec.effective = 1;
    object.spec.admission = "f".repeat(32);
    object.spec.trigger = "rollback".to_owned();
    object.spec.supersede = true;
    object.spec.key = None;
    let hold = rollhook_core::app::Hold { by: samples::revision(after + 1), ..samples::hold("bad") };
    object.spec.hold = serde_json::to_value(hold).unwrap();
    object.status = None;
    let api: Api<DeployObject> = Api::namespaced(fresh.client.clone(), "shop-test");
    api.create(&PostParams::default(), &object).await.unwrap();
    samples::revision(after + 1)
}

fn assert_whole(view: &View, app: &App, by: Revision) {
    assert_eq!(numbers(&view.unfinished).first(), Some(&by.get()), "what was unfinished has ended");
    assert_eq!((view.app.guard, view.app.holds.len()), (app.guard + 1, 1), "and the hold is there");
}

#[test]
fn a_rollback_whose_process_died_takes_effect_for_whoever_comes_first() {
    test("a_rollback_whose_process_died_takes_effect_for_whoever_comes_first", async |fresh: &Fresh| {
        for first in ["view", "page", "record", "admit", "claim"] {
            let store = fresh.handle().await;
            let app = registered(&store).await;
            let one = admit(&store, &app, "v1").await;
            let two = admit(&store, &app, "v2").await;
            let by = half_done(fresh, &app, 2).await;
            match first {
                "view" => assert_whole(&store.view(app.uid).await.unwrap(), &app, by),
                "page" => {
                    let page = Page { before: None, succeeded: false, limit: 9 };
                    let entries = store.page(app.uid, page).await.unwrap();
                    let superseded = State::Superseded { by, rollback: true };
                    assert_eq!(numbers(&entries), [3, 2, 1]);
                    assert!(entries[1..].iter().all(|entry| entry.state == superseded), "{entries:?}");
                }
                // Whoever has not met it yet, was before it.
                "record" => match store.record(record_of(&app, vec![one.moved(succeeded())])).await {
                    Ok(()) | Err(Error::Conflict("deploy")) => {}
                    Err(error) => panic!("{}", error.chain()),
                },
                "admit" => {
                    let plain = samples::admission(&app, samples::draft("v3"));
                    assert_eq!(store.admit(plain).await.unwrap(), Admitted::Stale, "decided without the hold");
                }
                _ => {
                    store.caught_up().await.unwrap();
                    let claim = Claim { replica: samples::replica("a", 1), ttl: LONG, limit: 9 };
                    assert_eq!(store.claim(claim).await.unwrap().apps, [app.uid], "there is work");
                }
            }
            let view = fresh.handle().await.view(app.uid).await.unwrap();
            assert_whole(&view, &app, by);
            let late = store.record(record_of(&app, vec![two.moved(succeeded())])).await;
            assert!(matches!(late, Err(Error::Conflict("deploy"))), "its end stands: {late:?}");
            store.remove(app.uid).await.unwrap();
        }
    });
}

#[test]
fn a_stale_memory_makes_no_wrong_number_and_misses_no_key() {
    test("a_stale_memory_makes_no_wrong_number_and_misses_no_key", async |fresh: &Fresh| {
        let store = fresh.handle().await;
        let app = registered(&store).await;
        let old = fresh.stuck().await;
        let keyed = |request| Admission {
            key: Some(samples::key("run-1", request)),
            ..samples::admission(&app, samples::draft("v"))
        };
        let Admitted::New { deploy: one, .. } = store.admit(keyed(1)).await.unwrap() else { panic!("not new") };
        for tag in ["v2", "v3", "v4"] {
            admit(&store, &app, tag).await;
        }
        assert_eq!(old.admit(keyed(1)).await.unwrap(), Admitted::Replay(one.clone()));
        assert_eq!(old.admit(keyed(2)).await.unwrap(), Admitted::KeyReused);
        assert_eq!(admit(&old, &app, "v5").await.revision, samples::revision(5));

        store.record(record_of(&app, vec![one.moved(succeeded())])).await.unwrap();
        let late = old.record(record_of(&app, vec![one.moved(succeeded())])).await;
        assert!(matches!(late, Err(Error::Conflict("deploy"))), "{late:?}");
        assert_eq!(old.view(app.uid).await.unwrap().current.map(|deploy| deploy.revision), Some(one.revision));

        let rollback = samples::rollback("v", one.revision);
        let by = Admission { supersede: true, hold: Some(samples::hold("v4")), ..samples::admission(&app, rollback) };
        store.admit(by).await.unwrap();
        let unknowing = old.admit(samples::admission(&app, samples::draft("v6"))).await.unwrap();
        assert_eq!(unknowing, Admitted::Stale, "decided before the hold");
        let page = Page { before: None, succeeded: false, limit: 99 };
        assert_eq!(old.page(app.uid, page).await.unwrap(), store.page(app.uid, page).await.unwrap());

        store.remove(app.uid).await.unwrap();
        let gone = old.admit(samples::admission(&app, samples::draft("v7"))).await;
        assert!(matches!(gone, Err(Error::NotFound("app"))), "{gone:?}");
        let anew = store.create(App { uid: rollhook_core::app::AppUid::from_bits(7), ..app.clone() }).await.unwrap();
        assert_eq!(admit(&old, &anew, "v1").await.revision, Revision::FIRST, "an app that it never heard of");
    });
}

#[test]
fn an_owner_is_looked_at_before_his_apps_are_taken() {
    test("an_owner_is_looked_at_before_his_apps_are_taken", async |fresh: &Fresh| {
        let store = fresh.handle().await;
        let app = registered(&store).await;
        admit(&store, &app, "v1").await;
        let claim = |name, incarnation| Claim { replica: samples::replica(name, incarnation), ttl: LONG, limit: 9 };
        assert_eq!(store.claim(claim("a", 1)).await.unwrap().apps, [app.uid]);
        let old = fresh.stuck().await;
        fresh.advance(LONG - Duration::from_secs(1)).await.unwrap();
        assert_eq!(store.claim(claim("a", 1)).await.unwrap().apps, [app.uid], "a sign of life");
        fresh.advance(Duration::from_secs(2)).await.unwrap();
        assert_eq!(old.claim(claim("b", 2)).await.unwrap().apps, [], "which its watch does not tell of");
        fresh.advance(LONG - Duration::from_secs(60)).await.unwrap();
        assert_eq!(old.claim(claim("b", 2)).await.unwrap().apps, [], "its time counts from when it was seen");
        fresh.advance(Duration::from_secs(60)).await.unwrap();
        assert_eq!(old.claim(claim("b", 2)).await.unwrap().apps, [app.uid]);
        store.caught_up().await.unwrap();
        let late = store.record(Record { claim: Some(1), ..record_of(&app, Vec::new()) }).await;
        assert!(matches!(late, Err(Error::Conflict("claim"))), "{late:?}");
    });
}

#[test]
fn changes_and_accepts_at_the_same_time_all_count() {
    test("changes_and_accepts_at_the_same_time_all_count", async |fresh: &Fresh| {
        let (one, two) = (fresh.handle().await, fresh.handle().await);
        let app = registered(&one).await;
        let mut deploys = Vec::new();
        for number in 0..8 {
            deploys.push(admit(&one, &app, &format!("v{number}")).await);
        }
        let records = deploys.iter().enumerate().map(|(at, deploy)| {
            let store = if at % 2 == 0 { &one } else { &two };
            store.record(record_of(&app, vec![deploy.moved(succeeded())]))
        });
        let accepts = (0..8).map(|at| {
            let store = if at % 2 == 0 { &two } else { &one };
            store.admit(samples::admission(&app, samples::draft("w")))
        });
        let (recorded, admitted) = futures_util::join!(join_all(records), join_all(accepts));
        assert!(recorded.iter().all(Result::is_ok), "{recorded:?}");
        assert!(admitted.iter().all(|admitted| matches!(admitted, Ok(Admitted::New { .. }))), "{admitted:?}");
        let view = fresh.handle().await.view(app.uid).await.unwrap();
        assert_eq!(numbers(&view.unfinished), (9..=16).collect::<Vec<_>>());
        assert_eq!(view.current.map(|deploy| deploy.revision.get()), Some(8));
    });
}

#[test]
fn an_accept_whose_answer_was_lost_is_found_and_not_made_twice() {
    test("an_accept_whose_answer_was_lost_is_found_and_not_made_twice", async |fresh: &Fresh| {
        let store = fresh.handle().await;
        let app = registered(&store).await;
        let admission = samples::admission(&app, samples::draft("v1"));
        // Those who made it have heard nothing, and know nothing of it.
        let (one, two) = (fresh.stuck().await, fresh.stuck().await);
        let Admitted::New { deploy, .. } = store.admit(admission.clone()).await.unwrap() else { panic!("not new") };
        assert_eq!(one.admitted(app.uid, admission.id).await.unwrap(), Some(deploy.clone()));
        assert_eq!(two.admit(admission).await.unwrap(), Admitted::New { deploy, superseded: Vec::new() });
        assert_eq!(store.view(app.uid).await.unwrap().last, Some(Revision::FIRST));
    });
}
