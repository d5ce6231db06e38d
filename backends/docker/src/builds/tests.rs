//! The calls of a build, and an engine that goes away.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

const DIGEST: &str = "{\"aux\":{\"ID\":\"sha256:1111111111111111111111111111111111111111111111111111111111111111\"}}\n";

#[test]
fn build_is_limited_and_tagged_with_its_commit() {
    let source = rollhook_conformance::samples::git_source();
    let app = rollhook_conformance::samples::app("shop", "test", "api").id;
    let commit = "a".repeat(40);
    let checkout = Checkout { app: &app, source: &source, commit: &commit, directory: Path::new("/nowhere") };
    let path = path(&checkout, Some(64 << 20), Some(1500)).replace("%2E", ".");
    for part in
        ["memory=67108864&memswap=67108864", "cpuquota=150000", "cpuperiod=100000", "forcerm=1", STEP_HOST, &commit]
    {
        assert!(path.contains(part), "{path}");
    }
    assert!(!super::path(&checkout, None, None).contains("mem"));
}

/// Answers the calls of builds on a socket, one after the other; an empty answer breaks the connection off, and one with
/// headers is sent as it is.
fn answers(socket: &Path, answers: &[&'static str]) -> tokio::task::JoinHandle<Vec<String>> {
    let listener = tokio::net::UnixListener::bind(socket).unwrap();
    let answers = answers.to_vec();
    tokio::spawn(async move {
        let mut calls = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut call = vec![0; 16];
            stream.read_exact(&mut call).await.unwrap();
            calls.push(String::from_utf8(call.clone()).unwrap());
            if !answer.is_empty() {
                let head = match answer.starts_with("HTTP/") {
                    true => String::new(),
                    false => format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", answer.len()),
                };
                stream.write_all((head + answer).as_bytes()).await.unwrap();
                // All of the call is read, so that the answer is not lost to a reset.
                let _ = stream.read_to_end(&mut call).await;
            }
        }
        calls
    })
}

async fn built(socket: &Path, directory: &Path) -> (Result<ImageRef, String>, String) {
    built_within(socket, directory, "FROM a", BuildLimits::parse(Some("64m"), None).unwrap()).await
}

async fn built_within(
    socket: &Path,
    directory: &Path,
    dockerfile: &str,
    limits: BuildLimits,
) -> (Result<ImageRef, String>, String) {
    std::fs::write(directory.join("Dockerfile"), dockerfile).unwrap();
    let source = rollhook_conformance::samples::git_source();
    let app = rollhook_conformance::samples::app("shop", "test", "api").id;
    let commit = "a".repeat(40);
    let checkout = Checkout { app: &app, source: &source, commit: &commit, directory };
    let path = directory.join("log");
    let mut log = Log::create(&path).unwrap();
    let builder = EngineBuilder::at(socket.to_owned(), limits).with_disk_limits(DiskLimits::below(0));
    let builder = EngineBuilder { pause: Duration::from_millis(10), ..builder };
    let built = builder.build(checkout, &mut log).await;
    (built, std::fs::read_to_string(path).unwrap())
}

#[tokio::test]
async fn build_waits_for_an_engine_that_is_away_and_begins_anew() {
    let directory = tempfile::tempdir().unwrap();
    let (socket, checkout) = (directory.path().join("engine.sock"), directory.path().join("checkout"));
    std::fs::create_dir(&checkout).unwrap();
    let starts = async {
        let waits = || std::fs::read_to_string(checkout.join("log")).is_ok_and(|log| log.contains("Docker is away"));
        while !waits() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        answers(&socket, &["", DIGEST]).await.unwrap()
    };
    let ((image, log), calls) = tokio::join!(built(&socket, &checkout), starts);
    assert!(image.unwrap().digest().is_some(), "{log}");
    assert!(log.contains("Docker is away (cannot connect to"), "{log}");
    assert!(log.contains("the engine's answer broke off"), "{log}");
    assert_eq!(calls, ["POST /build?vers"; 2]);
}

#[tokio::test]
async fn build_that_takes_the_engine_down_ends() {
    let directory = tempfile::tempdir().unwrap();
    let (socket, checkout) = (directory.path().join("engine.sock"), directory.path().join("checkout"));
    std::fs::create_dir(&checkout).unwrap();
    let calls = answers(&socket, &[""; 3]);
    let (image, log) = built(&socket, &checkout).await;
    assert!(image.unwrap_err().starts_with("Docker broke off the build 3 times: "), "{log}");
    assert_eq!(calls.await.unwrap().len(), 3);
}

#[test]
fn listing_of_a_build_that_is_dropped_is_told_to_stop() {
    let stop = Stop::default();
    let told = stop.0.clone();
    drop(stop);
    assert!(told.load(Ordering::Relaxed));
}

#[tokio::test]
async fn step_that_ends_with_its_engine_is_no_failure_of_the_repository() {
    let directory = tempfile::tempdir().unwrap();
    let (socket, checkout) = (directory.path().join("engine.sock"), directory.path().join("checkout"));
    std::fs::create_dir(&checkout).unwrap();
    let killed = "{\"errorDetail\":{\"code\":137,\"message\":\"m\"},\"error\":\"m\"}\n";
    let calls = answers(&socket, &[killed, "", DIGEST]);
    let (image, log) = built(&socket, &checkout).await;
    assert!(image.is_ok(), "{image:?} {log}");
    assert!(log.contains("Docker is away"), "{log}");
    assert_eq!(calls.await.unwrap()[1], "GET /_ping HTTP/");

    let killed = answers(&directory.path().join("other.sock"), &[killed, "OK"]);
    let (image, log) = built(&directory.path().join("other.sock"), &checkout).await;
    assert!(image.unwrap_err().contains("--build-memory"), "{log}");
    assert_eq!(killed.await.unwrap().len(), 2);
}

/// Needs BuildKit.
const MOUNTS: &str = "FROM registry.example.com/a:v1\nRUN --mount=type=cache,target=/c make";
const OFFERS: &str = "HTTP/1.1 200 OK\r\napi-version: 1.41\r\ncontent-length: 2\r\n\r\nOK";
const ABSENT: &str = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";

#[tokio::test]
async fn buildkit_builds_what_needs_it_after_its_images_were_pulled() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("engine.sock");
    let limits = BuildLimits::default;
    let calls = answers(&socket, &[OFFERS, ABSENT, "{\"status\":\"Pulled\"}\n", DIGEST]);
    let (image, log) = built_within(&socket, directory.path(), MOUNTS, limits()).await;
    assert!(image.unwrap().digest().is_some(), "{log}");
    let expected = ["GET /_ping HTTP/", "GET /images/regi", "POST /images/cre", "POST /build?vers"];
    assert_eq!(calls.await.unwrap(), expected);
    assert!(log.contains("BuildKit builds it, which line 2 of Dockerfile needs (RUN --mount)"), "{log}");

    // An image that is not there says why, once BuildKit misses it.
    let socket = directory.path().join("other.sock");
    let refused = "{\"error\":\"manifest unknown\"}\n";
    let calls = answers(&socket, &[OFFERS, ABSENT, refused, "{\"error\":\"no active sessions\"}\n", "OK"]);
    let (image, log) = built_within(&socket, directory.path(), MOUNTS, limits()).await;
    let message = image.unwrap_err();
    assert!(message.contains("registry.example.com/a:v1 cannot be pulled: manifest unknown"), "{message} {log}");
    assert_eq!(calls.await.unwrap().len(), 5);
}

#[tokio::test]
async fn build_that_needs_buildkit_is_refused_where_it_cannot_have_what_was_set() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("engine.sock");
    let calls = answers(&socket, &["OK"]);
    let limits = BuildLimits::parse(None, Some("2")).unwrap();
    let (image, log) = built_within(&socket, directory.path(), MOUNTS, limits).await;
    assert!(image.unwrap_err().contains("--build-cpu"), "{log}");
    assert_eq!(calls.await.unwrap(), ["GET /_ping HTTP/"], "nothing is sent but whether the engine is there");

    let socket = directory.path().join("other.sock");
    let podman = "HTTP/1.1 200 OK\r\nlibpod-api-version: 5.0.0\r\ncontent-length: 2\r\n\r\nOK";
    let calls = answers(&socket, &[podman, "OK"]);
    let (image, log) = built_within(&socket, directory.path(), MOUNTS, BuildLimits::default()).await;
    assert!(image.unwrap_err().contains("does not offer"), "{log}");
    assert_eq!(calls.await.unwrap().len(), 2);
}

#[test]
fn build_by_buildkit_is_tagged_with_its_commit() {
    let source = rollhook_conformance::samples::git_source();
    let app = rollhook_conformance::samples::app("shop", "test", "api").id;
    let commit = "a".repeat(40);
    let checkout = Checkout { app: &app, source: &source, commit: &commit, directory: Path::new("/nowhere") };
    let path = buildkit::path(&checkout);
    assert!(
        path.starts_with("/build?version=2&t=") && path.contains(&commit) && path.contains("&dockerfile="),
        "{path}"
    );
}
