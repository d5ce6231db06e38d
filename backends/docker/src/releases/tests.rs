use std::{path::PathBuf, sync::Arc};

use rollhook_core::{
    app::{Policy, Settings, Source, Target},
    deploy::Reason,
    lock::Locks,
    ports::RolloutDriver,
    time::Timestamp,
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixListener,
    sync::watch,
};

use super::*;
use crate::rules::{
    container::IMAGE,
    samples::{self, OURS, container, id, with},
};

/// An engine that answers calls by a function of method and path; a call without an answer hangs.
struct FakeEngine {
    _directory: tempfile::TempDir,
    socket: PathBuf,
    /// The calls so far, each with method and path.
    calls: watch::Receiver<Vec<String>>,
}

impl FakeEngine {
    fn new(answer: impl Fn(&str) -> Option<Value> + Send + Sync + 'static) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let (made, calls) = watch::channel(Vec::new());
        let (made, answer) = (Arc::new(made), Arc::new(answer));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (made, answer) = (made.clone(), answer.clone());
                tokio::spawn(async move {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        head.push(stream.read_u8().await.unwrap());
                    }
                    let call = String::from_utf8(head).unwrap();
                    let call = call.split(" HTTP/").next().unwrap().to_owned();
                    let given = answer(&call);
                    made.send_modify(|calls| calls.push(call));
                    let Some(given) = given else { return std::future::pending().await };
                    let body = given.to_string();
                    let status = if given.is_null() { "404 Not Found" } else { "200 OK" };
                    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", body.len());
                    stream.write_all((head + &body).as_bytes()).await.unwrap();
                });
            }
        });
        Self { _directory: directory, socket, calls }
    }

    /// Returns the number of calls with this in their paths.
    fn count(&self, part: &str) -> usize {
        self.calls.borrow().iter().filter(|call| call.contains(part)).count()
    }

    /// Waits for so many calls with this in their paths.
    async fn called(&self, part: &str, count: usize) {
        let called = |calls: &Vec<String>| calls.iter().filter(|call| call.contains(part)).count() >= count;
        self.calls.clone().wait_for(called).await.unwrap();
    }
}

fn release(app: &str) -> ReleaseRun {
    ReleaseRun { app: app.parse().unwrap(), id: id(OURS, 2).into() }
}

/// The object of a run's container.
fn object(run: &ReleaseRun, mark: Mark, status: &str) -> Value {
    let labels = json!({ RELEASE: run.id.to_string(), IMAGE: "registry.example.com/web:v2" });
    with(container(&release::name(run, mark), status), "/Config/Labels", labels).object
}

#[tokio::test]
async fn cancelled_command_that_does_not_end_is_killed_again_and_again() {
    let run = release("shop-test/web");
    let (state, status) = watch::channel("running");
    let cancelled = run.clone();
    let engine = FakeEngine::new(move |call| match call {
        call if call.starts_with("GET /containers/json") => Some(json!([{ "Id": "c" }])),
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
            return Some(json!([{ "Id": "0" }, { "Id": "1" }, { "Id": "2" }]));
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
    let app = App {
        id: rollout.app.clone(),
        uid: OURS,
        project: "shop".parse().unwrap(),
        environment: "test".parse().unwrap(),
        source: Source::Image,
        target: Target { settings: Settings::new(), requested: None, take_over: None },
        policy: Policy::default(),
        holds: Vec::new(),
        locks: Locks::default(),
        created_at: Timestamp::default(),
    };
    driver.releases.by_hand.begin(&driver.engine, &rollout);
    assert!(driver.releases.by_hand.known(rollout.id).is_some());
    RolloutDriver::forget(&driver, &app).await.unwrap();
    assert_eq!(driver.releases.by_hand.known(rollout.id), None);
}
