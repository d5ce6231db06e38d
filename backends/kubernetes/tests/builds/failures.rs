//! Builds that do not end well: each is told with its reason, and none is taken for another.

use rollhook_core::{
    deploy::Reason,
    ports::{BuildState, BuildTrigger},
};
use serde_json::json;

use crate::{
    actor::{digit, full},
    harness::{Ground, ended, fails, order, start, test, until},
};

async fn sees(ground: &Ground<'_>, begins: char, reason: &str, words: &str) {
    let builds = ground.handle().await;
    let failure = fails(&builds, &order(1, 1, begins)).await;
    assert_eq!(failure.reason.as_str(), reason, "{failure:?}");
    assert!(failure.message.contains(words), "{failure:?}");
    until("nothing runs any more", async || ground.active().await.is_empty()).await;
    assert_eq!(builds.running(order(1, 1, begins).id.app).await.unwrap(), None);
    // Whoever looks later, and whatever has become of its pods, is told the same.
    for pod in ground.bed.pods().await {
        ground.bed.kubectl(&["delete", "pod", &pod.metadata.name.unwrap(), "--wait=false"]);
    }
    until("the pods are gone", async || ground.bed.pods().await.is_empty()).await;
    let other = ground.handle().await;
    assert_eq!(other.observe(order(1, 1, begins).id).await.unwrap(), BuildState::Failed(failure.clone()));
    let log = other.log(order(1, 1, begins).id, 0).await.unwrap().unwrap();
    let log = String::from_utf8(log).unwrap();
    assert!(log.starts_with("[rollhook: ") && failure.log.iter().all(|line| log.contains(line)), "{log}");
}

#[test]
fn a_build_that_fails() {
    test("a_build_that_fails", async |ground| {
        sees(ground, digit::FAILS, Reason::BUILD_FAILED, "It went wrong.").await;
    });
}

#[test]
fn a_build_that_is_out_of_memory() {
    test("a_build_that_is_out_of_memory", async |ground| {
        sees(ground, digit::OUT_OF_MEMORY, "OOMKilled", "--build-memory").await;
    });
}

#[test]
fn a_build_that_its_node_evicts() {
    test("a_build_that_its_node_evicts", async |ground| {
        sees(ground, digit::EVICTED, "Evicted", "ephemeral-storage").await;
    });
}

#[test]
fn a_builder_that_says_nothing_has_built_nothing() {
    test("a_builder_that_says_nothing_has_built_nothing", async |ground| {
        sees(ground, digit::SAYS_NOTHING, Reason::BUILD_FAILED, "without saying which image").await;
    });
}

#[test]
fn a_builder_that_names_a_foreign_image_is_not_believed() {
    test("a_builder_that_names_a_foreign_image_is_not_believed", async |ground| {
        sees(ground, digit::LIES, Reason::BUILD_FAILED, "another repository").await;
    });
}

#[test]
fn a_builder_whose_image_cannot_be_pulled() {
    test("a_builder_whose_image_cannot_be_pulled", async |ground| {
        sees(ground, digit::CANNOT_BE_PULLED, "ImagePullBackOff", "Back-off pulling image").await;
    });
}

#[test]
fn a_build_that_logs_rubbish_can_be_ended() {
    test("a_build_that_logs_rubbish_can_be_ended", async |ground| {
        let builds = ground.handle().await;
        let order = order(1, 1, digit::HANGS);
        start(&builds, &order).await;
        until("it runs", async || {
            let phase =
                |pod: &k8s_openapi::api::core::v1::Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
            ground.active().await.iter().any(|pod| phase(pod).as_deref() == Some("Running"))
        })
        .await;
        let pod = ground.active().await.remove(0).metadata.name.unwrap();
        let log = ground.bed.state.join("logs").join(&ground.bed.namespace).join(pod).join("build");
        std::fs::write(log, format!("{}\n", "\u{1}".repeat(600)).repeat(60) + "the end\n").unwrap();
        builds.cancel(order.id).await.unwrap();
        let BuildState::Failed(failure) = ended(&builds, &order).await else { panic!("no failure") };
        assert_eq!(failure.reason.as_str(), Reason::CANCELLED, "{failure:?}");
        assert_eq!(failure.log.last().unwrap(), "the end");
        assert!(failure.log.len() > 1 && failure.log.iter().all(|line| !line.contains('\u{1}')));
        let annotations = ground.jobs().await.remove(0).metadata.annotations.unwrap();
        assert!(annotations.values().map(String::len).sum::<usize>() < 200_000);
        assert_eq!(ground.handle().await.observe(order.id).await.unwrap(), BuildState::Failed(failure));
    });
}

#[test]
fn a_build_longer_than_a_job_may_run() {
    test("a_build_longer_than_a_job_may_run", async |ground| {
        let builds = ground.handle().await;
        let order = order(1, 1, digit::HANGS);
        start(&builds, &order).await;
        until("it runs", async || ground.active().await.len() == 1).await;
        // The limit is days; a person shortens it here.
        let name = ground.jobs().await.remove(0).metadata.name.unwrap();
        let patch = json!({"spec": {"activeDeadlineSeconds": 1}}).to_string();
        ground.bed.kubectl(&["patch", "job", &name, "--type=merge", "--patch", &patch]);
        let BuildState::Failed(failure) = ended(&builds, &order).await else { panic!("no failure") };
        assert_eq!(failure.reason.as_str(), Reason::BUILD_DEADLINE, "{failure:?}");
        assert!(ground.active().await.is_empty());
    });
}

#[test]
fn a_build_that_no_node_has_room_for() {
    test("a_build_that_no_node_has_room_for", async |ground| {
        let mut settings = ground.settings();
        settings.memory = "9000Gi".parse().unwrap();
        let builds = crate::harness::handle(ground.bed, settings).await;
        let failure = fails(&builds, &order(1, 1, digit::GOOD)).await;
        assert_eq!(failure.reason.as_str(), "Unschedulable", "{failure:?}");
        assert!(failure.message.contains("nodes are available"), "{failure:?}");
    });
}

#[test]
fn a_namespace_whose_quota_is_full() {
    test("a_namespace_whose_quota_is_full", async |ground| {
        ground.bed.kubectl(&["create", "quota", "none", "--hard=pods=0"]);
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        let failure = fails(&ground.handle().await, &order(1, 1, digit::GOOD)).await;
        assert_eq!(failure.reason.as_str(), "FailedCreate", "{failure:?}");
        assert!(failure.message.contains("exceeded quota"), "{failure:?}");
    });
}

#[test]
fn a_preempted_build_begins_anew() {
    test("a_preempted_build_begins_anew", async |ground| {
        let builds = ground.handle().await;
        let order = order(1, 1, digit::DISRUPTED_ONCE);
        start(&builds, &order).await;
        let BuildState::Built { commit, .. } = ended(&builds, &order).await else { panic!("not built") };
        assert_eq!(commit.as_str(), full(digit::DISRUPTED_ONCE));
        assert_eq!(ground.bed.pods().await.len(), 2, "the one that was preempted, and its successor");
    });
}

#[test]
fn a_job_that_somebody_deletes_is_unknown_and_frees_the_lane_once_its_pod_is_gone() {
    test("a_job_that_somebody_deletes_is_unknown_and_frees_the_lane_once_its_pod_is_gone", async |ground| {
        let builds = ground.handle().await;
        let hanging = order(1, 1, digit::HANGS);
        start(&builds, &hanging).await;
        until("it runs", async || ground.active().await.len() == 1).await;
        ground.bed.kubectl(&["delete", "job", "--all"]);
        assert_eq!(builds.observe(hanging.id).await.unwrap(), BuildState::Unknown);
        until("the lane is free", async || builds.running(hanging.id.app).await.unwrap().is_none()).await;
        assert!(ground.active().await.is_empty());
        let next = order(1, 2, digit::GOOD);
        start(&builds, &next).await;
        assert!(matches!(ended(&builds, &next).await, BuildState::Built { .. }));
    });
}

#[test]
fn what_the_operator_does_not_allow_is_refused() {
    test("what_the_operator_does_not_allow_is_refused", async |ground| {
        let builds = ground.handle().await;
        for url in ["http://git.example.com/shop/api.git", "file:///srv/api.git"] {
            let mut order = order(1, 1, digit::GOOD);
            order.source.url = url.parse().unwrap();
            let refused = builds.start(&order).await.unwrap_err();
            assert!(refused.to_string().contains(url), "{}", refused.chain());
        }
        assert!(ground.jobs().await.is_empty());
        let mut settings = ground.settings();
        settings.namespace = "no-such-namespace".parse().unwrap();
        let nowhere = crate::harness::handle(ground.bed, settings).await;
        let refused = nowhere.start(&order(1, 1, digit::GOOD)).await.unwrap_err();
        assert!(refused.to_string().contains("--build-namespace"), "{}", refused.chain());
    });
}
