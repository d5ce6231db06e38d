//! Builds that fail: each has its own reason.

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
    // Later observations, even without pods, return the same.
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
fn failing_build_has_the_builders_reason() {
    test("failing_build_has_the_builders_reason", async |ground| {
        sees(ground, digit::FAILS, Reason::BUILD_FAILED, "It went wrong.").await;
    });
}

#[test]
fn build_out_of_memory_is_oom_killed() {
    test("build_out_of_memory_is_oom_killed", async |ground| {
        sees(ground, digit::OUT_OF_MEMORY, "OOMKilled", "--build-memory").await;
    });
}

#[test]
fn build_evicted_by_its_node_fails() {
    test("build_evicted_by_its_node_fails", async |ground| {
        sees(ground, digit::EVICTED, "Evicted", "ephemeral-storage").await;
    });
}

#[test]
fn builder_without_a_message_has_failed() {
    test("builder_without_a_message_has_failed", async |ground| {
        sees(ground, digit::SAYS_NOTHING, Reason::BUILD_FAILED, "without saying which image").await;
    });
}

#[test]
fn builder_that_reports_a_foreign_image_has_failed() {
    test("builder_that_reports_a_foreign_image_has_failed", async |ground| {
        sees(ground, digit::LIES, Reason::BUILD_FAILED, "another repository").await;
    });
}

#[test]
fn builder_image_that_cannot_be_pulled_fails_the_build() {
    test("builder_image_that_cannot_be_pulled_fails_the_build", async |ground| {
        sees(ground, digit::CANNOT_BE_PULLED, "ImagePullBackOff", "Back-off pulling image").await;
    });
}

#[test]
fn build_with_control_characters_in_its_log_can_be_cancelled() {
    test("build_with_control_characters_in_its_log_can_be_cancelled", async |ground| {
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
fn build_beyond_the_jobs_deadline_fails() {
    test("build_beyond_the_jobs_deadline_fails", async |ground| {
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
fn build_without_room_on_a_node_is_unschedulable() {
    test("build_without_room_on_a_node_is_unschedulable", async |ground| {
        let mut settings = ground.settings();
        settings.memory = "9000Gi".parse().unwrap();
        let builds = crate::harness::handle(ground.bed, settings).await;
        let failure = fails(&builds, &order(1, 1, digit::GOOD)).await;
        assert_eq!(failure.reason.as_str(), "Unschedulable", "{failure:?}");
        assert!(failure.message.contains("nodes are available"), "{failure:?}");
    });
}

#[test]
fn full_quota_fails_the_build() {
    test("full_quota_fails_the_build", async |ground| {
        ground.bed.kubectl(&["create", "quota", "none", "--hard=pods=0"]);
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        let failure = fails(&ground.handle().await, &order(1, 1, digit::GOOD)).await;
        assert_eq!(failure.reason.as_str(), "FailedCreate", "{failure:?}");
        assert!(failure.message.contains("exceeded quota"), "{failure:?}");
    });
}

#[test]
fn preempted_build_begins_anew() {
    test("preempted_build_begins_anew", async |ground| {
        let builds = ground.handle().await;
        let order = order(1, 1, digit::DISRUPTED_ONCE);
        start(&builds, &order).await;
        let BuildState::Built { commit, .. } = ended(&builds, &order).await else { panic!("not built") };
        assert_eq!(commit.as_str(), full(digit::DISRUPTED_ONCE));
        assert_eq!(ground.bed.pods().await.len(), 2, "the one that was preempted, and its successor");
    });
}

#[test]
fn deleted_job_is_unknown_and_frees_the_queue_once_its_pod_is_gone() {
    test("deleted_job_is_unknown_and_frees_the_queue_once_its_pod_is_gone", async |ground| {
        let builds = ground.handle().await;
        let hanging = order(1, 1, digit::HANGS);
        start(&builds, &hanging).await;
        until("it runs", async || ground.active().await.len() == 1).await;
        ground.bed.kubectl(&["delete", "job", "--all"]);
        assert_eq!(builds.observe(hanging.id).await.unwrap(), BuildState::Unknown);
        until("another build may start", async || builds.running(hanging.id.app).await.unwrap().is_none()).await;
        assert!(ground.active().await.is_empty());
        let next = order(1, 2, digit::GOOD);
        start(&builds, &next).await;
        assert!(matches!(ended(&builds, &next).await, BuildState::Built { .. }));
    });
}

#[test]
fn source_that_the_operator_forbids_is_refused() {
    test("source_that_the_operator_forbids_is_refused", async |ground| {
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
