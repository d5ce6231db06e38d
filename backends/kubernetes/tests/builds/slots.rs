//! Build slots are limited and fair; an app has one build at a time, whatever replicas believe; each build has its own
//! credentials.

use std::{collections::BTreeSet, num::NonZeroU16, sync::Arc};

use futures_util::future::join_all;
use rollhook_core::{
    deploy::Reason,
    ports::{BuildState, BuildTrigger, Started},
};
use rollhook_kubernetes::builds::Settings;

use crate::{
    actor::digit,
    harness::{Ground, ended, handle, order, start, test, until},
};

/// Credentials for the orders' source.
const LOGIN: &str = "https://alice:hunter2@git.example.com/shop/";

/// Whose pods may do something now: app and revision.
async fn building(ground: &Ground<'_>) -> Vec<(String, String)> {
    let label = |pod: &k8s_openapi::api::core::v1::Pod, name: &str| pod.metadata.labels.as_ref().unwrap()[name].clone();
    let of = |pod| (label(&pod, "rollhook.dev/build-app"), label(&pod, "rollhook.dev/build-revision"));
    ground.active().await.into_iter().map(of).collect()
}

#[test]
fn builds_at_once_never_exceed_the_slots() {
    test("builds_at_once_never_exceed_the_slots", async |ground| {
        let (one, other) = (ground.handle_with_slots(2).await, ground.handle_with_slots(2).await);
        let orders: Vec<_> = (1..=5).map(|app| order(app, 1, digit::HANGS)).collect();
        let handles: Vec<&dyn BuildTrigger> = vec![&one, &other];
        join_all(orders.iter().zip(handles.iter().cycle()).map(|(order, builds)| start(*builds, order))).await;
        let mut done = BTreeSet::new();
        for _ in 0..2000 {
            if done.len() == orders.len() {
                break;
            }
            // Both replicas look at all of them, again and again.
            let looks = orders.iter().flat_map(|order| handles.iter().map(move |builds| builds.observe(order.id)));
            join_all(looks).await;
            let now = building(ground).await;
            assert!(now.len() <= 2, "{now:?}");
            if now.len() == 2 || done.len() == orders.len() - 1 && now.len() == 1 {
                let ended = now[0].clone();
                let order = orders.iter().find(|order| order.id.app.to_string() == ended.0).unwrap();
                other.cancel(order.id).await.unwrap();
                done.insert(ended);
            }
        }
        assert_eq!(done.len(), orders.len(), "each one had its turn");
        for order in &orders {
            assert!(matches!(ended(&one, order).await, BuildState::Failed(_)));
        }
    });
}

#[test]
fn app_that_has_just_built_waits_behind_the_others() {
    test("app_that_has_just_built_waits_behind_the_others", async |ground| {
        let (one, other) = (ground.handle_with_slots(1).await, ground.handle_with_slots(1).await);
        let (first, rival) = (order(1, 1, digit::HANGS), order(2, 1, digit::HANGS));
        start(&one, &first).await;
        until("the first has the place", async || building(ground).await.len() == 1).await;
        // Jobs are told apart by the second in which they were made.
        tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
        start(&other, &rival).await;
        let log = other.log(rival.id, 0).await.unwrap().unwrap();
        assert!(String::from_utf8(log).unwrap().contains("1 build slots"), "a waiting build says so");
        one.cancel(first.id).await.unwrap();
        ended(&one, &first).await;
        let again = order(1, 2, digit::GOOD);
        tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
        start(&one, &again).await;
        until("the rival's turn has come", async || {
            assert_eq!(one.observe(again.id).await.unwrap(), BuildState::Waiting);
            building(ground).await.len() == 1
        })
        .await;
        assert_eq!(building(ground).await[0].0, rival.id.app.to_string());
        one.cancel(rival.id).await.unwrap();
        assert!(matches!(ended(&one, &again).await, BuildState::Built { .. }));
    });
}

#[test]
fn two_replicas_never_build_an_app_at_once() {
    test("two_replicas_never_build_an_app_at_once", async |ground| {
        for round in 0..5 {
            let app = 100 + round;
            let handles = [ground.handle().await, ground.handle().await];
            let orders = [order(app, 1, digit::HANGS), order(app, 2, digit::HANGS)];
            let starts = handles.iter().zip(&orders).map(|(builds, order)| builds.start(order));
            let started: Vec<Started> = join_all(starts).await.into_iter().map(Result::unwrap).collect();
            assert!(started.contains(&Started::Known), "{started:?}");
            for _ in 0..10 {
                join_all(orders.iter().zip(&handles).map(|(order, builds)| builds.observe(order.id))).await;
                let now = building(ground).await;
                assert!(now.len() <= 1, "{now:?}");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
            for order in &orders {
                handles[0].cancel(order.id).await.unwrap();
                ended(&handles[0], order).await;
            }
            assert_eq!(handles[1].running(orders[0].id.app).await.unwrap(), None);
        }
    });
}

#[test]
fn build_started_by_several_replicas_runs_once() {
    test("build_started_by_several_replicas_runs_once", async |ground| {
        let builds = Arc::new(ground.handle().await);
        let order = order(1, 1, digit::GOOD);
        let starts = (0..8).map(|_| builds.start(&order));
        for started in join_all(starts).await {
            assert_eq!(started.unwrap(), Started::Known);
        }
        assert!(matches!(ended(&*builds, &order).await, BuildState::Built { .. }));
        let jobs = ground.jobs().await;
        assert_eq!((jobs.len(), ground.bed.pods().await.len()), (1, 1));
        assert!(jobs[0].metadata.labels.as_ref().unwrap().contains_key("rollhook.dev/build-ended"));
        // An ended build has no slot, and blocks none.
        assert_eq!(ground.slots().await, Vec::<String>::new());
    });
}

#[test]
fn waiting_build_that_is_cancelled_never_begins() {
    test("waiting_build_that_is_cancelled_never_begins", async |ground| {
        let builds = ground.handle_with_slots(1).await;
        let (hanging, waiting) = (order(1, 1, digit::HANGS), order(2, 1, digit::GOOD));
        start(&builds, &hanging).await;
        start(&builds, &waiting).await;
        builds.cancel(waiting.id).await.unwrap();
        let BuildState::Failed(failure) = ended(&builds, &waiting).await else { panic!("it was cancelled") };
        assert_eq!(failure.reason.as_str(), Reason::CANCELLED);
        builds.cancel(hanging.id).await.unwrap();
        ended(&builds, &hanging).await;
        start(&builds, &waiting).await;
        assert_eq!(builds.observe(waiting.id).await.unwrap(), BuildState::Failed(failure));
        let pods = ground.bed.pods().await;
        assert!(
            pods.iter().all(
                |pod| pod.metadata.labels.as_ref().unwrap()["rollhook.dev/build-app"] != waiting.id.app.to_string()
            )
        );
    });
}

#[test]
fn credentials_are_deleted_with_the_build() {
    test("credentials_are_deleted_with_the_build", async |ground| {
        let directory = std::env::temp_dir().join(format!("rollhook-build-credentials-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("shop"), LOGIN).unwrap();
        let mut settings = ground.settings();
        settings.credentials = Some(directory.clone());
        let builds = handle(ground.bed, settings).await;
        let mut order = order(1, 1, digit::HANGS);
        order.source.credentials = Some("shop".parse().unwrap());
        start(&builds, &order).await;
        until("it runs", async || building(ground).await.len() == 1).await;
        let secrets = ground.secrets().await;
        assert_eq!(secrets.len(), 1);
        assert_eq!(secrets[0].data.as_ref().unwrap()["source"].0, LOGIN.as_bytes());
        let jobs = ground.jobs().await;
        assert!(!serde_json::to_string(&jobs).unwrap().contains("hunter2"));
        // A replica that lacks them builds nothing with them.
        let mut denied = crate::harness::order(2, 1, digit::GOOD);
        denied.source.credentials = Some("other".parse().unwrap());
        let failure = crate::harness::fails(&builds, &denied).await;
        assert_eq!(failure.reason.as_str(), Reason::SOURCE_DENIED);
        // It has no further use once the build has ended.
        builds.cancel(order.id).await.unwrap();
        ended(&builds, &order).await;
        until("the Secret is gone", async || ground.secrets().await.is_empty()).await;
        // A build whose end was not observed is deleted with its Secret.
        let mut unseen = crate::harness::order(3, 1, digit::HANGS);
        unseen.source.credentials = Some("shop".parse().unwrap());
        start(&builds, &unseen).await;
        until("it runs", async || building(ground).await.len() == 1).await;
        assert_eq!(ground.secrets().await.len(), 1);
        ground.bed.kubectl(&["delete", "job", "--all"]);
        until("the Secret is gone", async || ground.secrets().await.is_empty()).await;
        std::fs::remove_dir_all(&directory).unwrap();
    });
}

#[test]
fn build_has_only_its_own_registry_logins() {
    test("build_has_only_its_own_registry_logins", async |ground| {
        let file = std::env::temp_dir().join(format!("rollhook-build-logins-{}.json", ground.bed.namespace));
        let logins = r#"{"auths": {"registry.example.com/shop": {"auth": "c2hvcA=="},
            "registry.example.com/prod": {"auth": "cHJvZA=="}}, "credsStore": "desktop"}"#;
        std::fs::write(&file, logins).unwrap();
        let mut settings = ground.settings();
        settings.registry_config = Some(file.clone());
        let builds = handle(ground.bed, settings).await;
        start(&builds, &order(1, 1, digit::HANGS)).await;
        until("it runs", async || building(ground).await.len() == 1).await;
        let secret = ground.secrets().await.remove(0);
        let config = String::from_utf8(secret.data.unwrap()["config.json"].0.clone()).unwrap();
        assert_eq!(config, r#"{"auths":{"registry.example.com":{"auth":"c2hvcA=="}}}"#);
        std::fs::remove_file(&file).unwrap();
    });
}

#[test]
fn job_that_cannot_be_resumed_does_not_block_others() {
    test("job_that_cannot_be_resumed_does_not_block_others", async |ground| {
        let directory = std::env::temp_dir().join(format!("rollhook-build-broken-{}", ground.bed.namespace));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("shop"), LOGIN).unwrap();
        let settings = |places| Settings {
            credentials: Some(directory.clone()),
            slots: NonZeroU16::new(places).unwrap(),
            ..ground.settings()
        };
        let builds = handle(ground.bed, settings(1)).await;
        let running = order(1, 1, digit::HANGS);
        start(&builds, &running).await;
        until("it has the place", async || building(ground).await.len() == 1).await;
        // In front of a sound one waits one that cannot be read, and before both one whose Secret the cluster refuses.
        let (mut broken, mut refused) = (order(2, 1, digit::GOOD), order(3, 1, digit::GOOD));
        broken.source.credentials = Some("shop".parse().unwrap());
        refused.source.credentials = Some("shop".parse().unwrap());
        start(&builds, &refused).await;
        start(&builds, &broken).await;
        tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
        let sound = order(4, 1, digit::GOOD);
        start(&builds, &sound).await;
        let name = format!("build-{}-1", broken.id.app);
        ground.bed.kubectl(&["annotate", "--overwrite", "job", &name, "rollhook.dev/build-spec={"]);
        ground.bed.kubectl(&["create", "quota", "none", "--hard=secrets=0"]);
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        builds.cancel(running.id).await.unwrap();
        // Only the sound one is looked at until it has ended.
        assert!(matches!(ended(&builds, &sound).await, BuildState::Built { .. }));
        for (order, words) in [(broken, "rollhook.dev/build-spec"), (refused, "exceeded quota")] {
            let BuildState::Failed(failure) = ended(&builds, &order).await else { panic!("{words}") };
            assert_eq!(failure.reason.as_str(), Reason::BUILD_REFUSED, "{failure:?}");
            assert!(failure.message.contains(words), "{failure:?}");
        }
        std::fs::remove_dir_all(&directory).unwrap();
    });
}

#[test]
fn waiting_for_changes_follows_a_build_to_its_end() {
    test("waiting_for_changes_follows_a_build_to_its_end", async |ground| {
        let builds = ground.handle().await;
        let order = order(1, 1, digit::GOOD);
        start(&builds, &order).await;
        for _ in 0..100 {
            if !builds.observe(order.id).await.unwrap().is_under_way() {
                return;
            }
            builds.changed(order.id).await;
        }
        panic!("it does not end");
    });
}
