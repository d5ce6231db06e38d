use std::sync::Arc;

use rollhook_core::{deploy::Reason, ports::RolloutDriver};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::*;
use crate::{
    fake_engine::FakeEngine,
    rules::{
        container::IMAGE,
        samples::{self, OURS, container, id, with},
    },
};

fn release(app: &str) -> ReleaseRun {
    ReleaseRun { app: app.parse().unwrap(), id: id(OURS, 2).into() }
}

/// The object of a run's container.
fn object(run: &ReleaseRun, mark: Mark, status: &str) -> Value {
    let labels = json!({ RELEASE: run.id.to_string(), IMAGE: "registry.example.com/web:v2" });
    with(container(&release::name(run, mark), status), "/Config/Labels", labels).object
}

/// The container of a run in a list.
fn listed(id: &str, run: &ReleaseRun) -> Value {
    json!({ "Id": id, "Names": [format!("/{}", release::name(run, Mark::Start(1)))] })
}

#[tokio::test]
async fn cancelled_command_that_does_not_end_is_killed_again_and_again() {
    let run = release("shop-test/web");
    let (state, status) = watch::channel("running");
    let cancelled = run.clone();
    let engine = FakeEngine::new(move |call| match call {
        call if call.starts_with("GET /containers/json") => Some(json!([listed("c", &cancelled)])),
        "GET /containers/c/json" => {
            let mut object = object(&cancelled, Mark::Cancelled, *status.borrow());
            object["Id"] = "c".into();
            Some(object)
        }
        "POST /containers/c/stop" => None,
        "POST /containers/c/kill" => Some(json!("")),
        _ => Some(Value::Null),
    });
    let mut driver = DockerMachine::at(engine.socket.clone());
    driver.releases.end_max = Duration::from_millis(20);
    driver.cancel(&run).await.unwrap();
    // The engine answers that it was killed, and it runs.
    for kills in 1..=3 {
        engine.called("/kill", kills).await;
        assert_eq!(ReleaseRunner::observe(&driver, &run).await.unwrap(), ReleaseState::Running);
        while engine.count("/stop") == kills {
            tokio::time::sleep(Duration::from_millis(5)).await;
            assert_eq!(ReleaseRunner::observe(&driver, &run).await.unwrap(), ReleaseState::Running);
        }
    }
    state.send_replace("dead");
    let ended = ReleaseRunner::observe(&driver, &run).await.unwrap();
    assert!(
        matches!(&ended, ReleaseState::Failed(failure) if failure.reason.as_str() == Reason::CANCELLED),
        "{ended:?}"
    );
}

#[tokio::test]
async fn environment_reads_one_log_at_once_and_leaves_another_read_to_others() {
    let runs = ["shop-test/web", "shop-test/api", "blog-test/web"].map(release);
    let named = runs.clone();
    let engine = FakeEngine::new(move |call| {
        if call.contains("/logs") {
            return None;
        }
        if call.starts_with("GET /containers/json") {
            return Some([0, 1, 2].map(|number: usize| listed(&number.to_string(), &named[number])).as_slice().into());
        }
        let number: usize = call.strip_prefix("GET /containers/")?.strip_suffix("/json")?.parse().ok()?;
        let mut object = object(&named[number], Mark::Start(1), "running");
        object["Id"] = number.to_string().into();
        Some(object)
    });
    let driver = Arc::new(DockerMachine::at(engine.socket.clone()));
    let mut reads = Vec::new();
    for run in &runs {
        let (driver, run) = (driver.clone(), run.clone());
        reads.push(tokio::spawn(async move { driver.log(&run, 0).await }));
        tokio::task::yield_now().await;
    }
    engine.called("/2/logs", 1).await;
    engine.called("/0/logs", 1).await;
    assert_eq!(engine.count("/containers/1/logs"), 0);
    reads[0].abort();
    engine.called("/1/logs", 1).await;
}

#[tokio::test]
async fn log_has_nothing_beyond_its_bound() {
    let driver = DockerMachine::at("/nonexistent/socket".into());
    let run = release("shop-test/web");
    for from in [LOG_MAX, u64::MAX] {
        assert_eq!(driver.log(&run, from).await.unwrap(), Some(Vec::new()), "without a call");
    }
    assert!(driver.log(&run, LOG_MAX - 1).await.is_err());
}

#[tokio::test]
async fn image_of_a_run_by_hand_is_forgotten_with_its_app() {
    let engine = FakeEngine::new(|call| call.starts_with("GET /containers/json").then(|| json!([])));
    let driver = DockerMachine::at(engine.socket.clone());
    let rollout = samples::rollout(5);
    let app = samples::app();
    driver.releases.by_hand.begin(&driver.engine, &rollout);
    assert!(driver.releases.by_hand.known(rollout.id).is_some());
    RolloutDriver::forget(&driver, &app).await.unwrap();
    assert_eq!(driver.releases.by_hand.known(rollout.id), None);
}
