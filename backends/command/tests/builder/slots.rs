//! Build slots: a slot is held by a build that builds, and by none that reads its source.

use std::{net::TcpListener, sync::Arc, thread::available_parallelism, time::Duration};

use rollhook_command::CommandBuilds;
use rollhook_conformance::samples;
use rollhook_core::{
    app::AppUid,
    ports::{BuildSpec, BuildState, BuildTrigger, DeployId, Started},
    source::GitSource,
};
use rollhook_testing::until_async;

use crate::bench::{Bench, built, told};

/// The order of another app's first build.
fn of_app(app: u128, order: &BuildSpec) -> BuildSpec {
    order.clone().with(|spec| spec.id = DeployId { app: AppUid::from_bits(app), ..order.id })
}

async fn start(builds: &Arc<CommandBuilds>, order: &BuildSpec) {
    assert_eq!(builds.start(order).await.unwrap(), Started::Known);
}

/// Waits until the build has fetched its commit, and waits for a slot.
async fn waits_with_its_commit(bench: &Bench, builds: &Arc<CommandBuilds>, order: &BuildSpec) {
    let fetched = bench.path("builds").join(order.id.to_string()).join("work/checkout/.git/shallow");
    until_async("the commit is fetched, and the build waits", async || {
        fetched.exists() && builds.observe(order.id).await.unwrap() == BuildState::Waiting
    })
    .await;
}

#[tokio::test]
async fn sources_that_never_answer_hold_no_build_slot() {
    let mut bench = Bench::new();
    // As patient as a test that is never to end by it.
    bench.settings.git_silence = Duration::from_secs(600);
    let commit = bench.repository.commit("build.txt", "good");
    // Another host than the repository's; the kernel takes its connections, and nothing answers.
    let silent = TcpListener::bind(("127.0.0.2", 0)).unwrap();
    let url = format!("http://{}/api.git", silent.local_addr().unwrap()).parse().unwrap();
    let source = GitSource { url, ..bench.source() };
    let builds = bench.open().await;
    let slots = u128::try_from(available_parallelism().unwrap().get()).unwrap();
    let unanswered = bench.order(1, &commit).with(|spec| spec.source = source);
    let unanswered: Vec<_> = (1..=2 * slots).map(|app| of_app(app, &unanswered)).collect();
    for order in &unanswered {
        start(&builds, order).await;
    }
    assert_eq!(built(&builds, &bench.order(1, &commit)).await, commit);
    for order in &unanswered {
        assert!(builds.observe(order.id).await.unwrap().is_under_way(), "the healthy build ended before");
    }
    builds.close().await;
}

#[tokio::test]
async fn build_that_waits_for_a_slot_has_read_its_source() {
    let bench = Bench::new();
    let hanging = bench.repository.commit("build.txt", "hang");
    let commit = bench.repository.commit("build.txt", "good");
    let builds = bench.open().await;
    let slots = u128::try_from(available_parallelism().unwrap().get()).unwrap();
    let hanging: Vec<_> = (1..=slots).map(|app| of_app(app, &bench.order(1, &hanging))).collect();
    for order in &hanging {
        start(&builds, order).await;
        told(&builds, order.id, "child ").await;
    }
    let order = bench.order(1, &commit);
    start(&builds, &order).await;
    waits_with_its_commit(&bench, &builds, &order).await;
    bench.host.hang();
    builds.cancel(hanging[0].id).await.unwrap();
    assert_eq!(built(&builds, &order).await, commit);
    builds.close().await;
}

#[tokio::test]
async fn environment_does_not_wait_for_the_queue_of_another() {
    let mut bench = Bench::new();
    bench.settings.at_once = 1;
    let hanging = bench.repository.commit("build.txt", "hang");
    let commit = bench.repository.commit("build.txt", "good");
    let builds = bench.open().await;
    let hanging: Vec<_> = (1..=4).map(|app| of_app(app, &bench.order(1, &hanging))).collect();
    let other = bench.order(1, &commit).with(|spec| spec.app = samples::app("shop", "prod", "api").id);
    start(&builds, &hanging[0]).await;
    told(&builds, hanging[0].id, "child ").await;
    for order in hanging[1..].iter().chain([&other]) {
        start(&builds, order).await;
        waits_with_its_commit(&bench, &builds, order).await;
    }
    bench.host.hang();
    builds.cancel(hanging[0].id).await.unwrap();
    assert_eq!(built(&builds, &other).await, commit);
    told(&builds, hanging[1].id, "child ").await;
    builds.close().await;
}
