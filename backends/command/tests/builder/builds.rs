//! What the suite does not ask of every builder: exactly the commit from a source that changes, a source that does not
//! let in or does not answer, and nothing that is left running.

use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    process::Stdio,
    thread,
    time::Duration,
};

use rollhook_command::{CommandBuilds, Error, Settings, Tool};
use rollhook_core::{
    deploy::Reason,
    ports::{BuildState, BuildTrigger, Started},
    source::{AllowedSources, GitSource},
};

use rollhook_testing::{process::is_root, skip, test_name};

use crate::bench::{Bench, built, ended, failed, is_alive, log, told};

#[tokio::test]
async fn what_was_pushed_over_is_built_by_its_full_hash_and_by_no_short_one() {
    let bench = Bench::new();
    bench.repository.commit("build.txt", "first");
    let gone = bench.repository.commit("build.txt", "second");
    bench.repository.git(&["reset", "-q", "--hard", "HEAD~1"]);
    let head = bench.repository.commit("build.txt", "third");
    let builds = bench.open().await;
    assert_eq!(built(&builds, &bench.order(1, &gone)).await, gone);
    assert!(log(&builds, bench.order(1, &gone).id).await.contains(&format!("\nhead {gone}\n")), "verified");
    let short = failed(&builds, &bench.order(2, &gone[..12])).await;
    assert_eq!(short.reason.as_str(), Reason::COMMIT_NOT_FOUND, "{short:?}");
    assert_eq!(built(&builds, &bench.order(3, &head[..7])).await, head);
    assert_eq!(built(&builds, &bench.order(4, &head.to_uppercase())).await, head);
}

#[tokio::test]
async fn what_is_no_commit_is_not_built() {
    let bench = Bench::new();
    bench.repository.commit("build.txt", "good");
    bench.repository.git(&["tag", "-a", "v1", "-m", "one"]);
    let builds = bench.open().await;
    for (revision, what) in [(1, "v1"), (2, "HEAD^{tree}"), (3, "HEAD:build.txt")] {
        let object = bench.repository.git(&["rev-parse", what]);
        let failure = failed(&builds, &bench.order(revision, &object)).await;
        assert!(
            [Reason::COMMIT_NOT_FOUND, Reason::BUILD_FAILED].contains(&failure.reason.as_str()),
            "{what}: {failure:?}"
        );
    }
    let empty = bench.host.repository("empty");
    drop(empty);
    let source = GitSource { url: bench.host.url("empty").parse().unwrap(), ..bench.source() };
    let order = bench.order(4, "abcdef1").with(|spec| spec.source = source);
    assert_eq!(failed(&builds, &order).await.reason.as_str(), Reason::COMMIT_NOT_FOUND);
}

#[tokio::test]
async fn a_commit_with_a_submodule_is_built_without_reaching_for_it() {
    let bench = Bench::new();
    bench.repository.commit("build.txt", "good");
    let modules = "[submodule \"lib\"]\n\tpath = lib\n\turl = http://127.0.0.1:1/lib.git\n";
    bench.repository.commit(".gitmodules", modules);
    let head = bench.repository.git(&["rev-parse", "HEAD"]);
    bench.repository.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{head},lib")]);
    bench.repository.git(&["commit", "-q", "-m", "with a submodule"]);
    let head = bench.repository.git(&["rev-parse", "HEAD"]);
    let builds = bench.open().await;
    assert_eq!(built(&builds, &bench.order(1, &head)).await, head);
}

#[tokio::test]
async fn a_repository_of_sha256_hashes_is_built() {
    let bench = Bench::new();
    let repository = bench.host.repository("next");
    repository.git(&["init", "-q", "--object-format=sha1"]);
    fs::remove_dir_all(repository.path().join(".git")).unwrap();
    repository.git(&["init", "-q", "-b", "main", "--object-format=sha256"]);
    let head = repository.commit("build.txt", "good");
    assert_eq!(head.len(), 64);
    let source = GitSource { url: bench.host.url("next").parse().unwrap(), ..bench.source() };
    let builds = bench.open().await;
    for (revision, commit) in [(1, head.as_str()), (2, &head[..7]), (3, &head[..40])] {
        let order = bench.order(revision, commit).with(|spec| spec.source = source.clone());
        assert_eq!(built(&builds, &order).await, head);
    }
}

#[tokio::test]
async fn credentials_open_the_source_and_only_the_right_ones() {
    // ada:hunter2
    let mut bench = Bench::with(Some("Basic YWRhOmh1bnRlcjI="));
    let commit = bench.repository.commit("build.txt", "good");
    let credentials = bench.path("credentials");
    fs::create_dir(&credentials).unwrap();
    fs::write(credentials.join("right"), bench.host.login("ada:hunter2")).unwrap();
    fs::write(credentials.join("wrong"), bench.host.login("ada:sesame")).unwrap();
    let named = |name: Option<&str>, revision| {
        let credentials = name.map(|name| name.parse().unwrap());
        bench.order(revision, &commit).with(|spec| spec.source = GitSource { credentials, ..bench.source() })
    };
    let orders = [named(Some("right"), 1), named(Some("wrong"), 2), named(Some("none"), 3), named(None, 4)];
    let nowhere = named(Some("right"), 5);
    bench.settings.credentials = Some(credentials);
    let builds = bench.open().await;
    assert_eq!(built(&builds, &orders[0]).await, commit);
    let text = log(&builds, orders[0].id).await;
    assert!(!text.contains("hunter2") && !text.contains("YWRhOmh1bnRlcjI"), "{text}");
    for order in &orders[1..] {
        let failure = failed(&builds, order).await;
        assert_eq!(failure.reason.as_str(), Reason::SOURCE_DENIED, "{failure:?}");
    }
    builds.close().await;
    bench.settings.credentials = None;
    let builds = bench.open().await;
    assert_eq!(failed(&builds, &nowhere).await.reason.as_str(), Reason::SOURCE_DENIED);
}

#[tokio::test]
async fn a_host_that_hangs_or_is_gone_is_given_up_on() {
    let mut bench = Bench::new();
    bench.settings.git_silence = Duration::from_secs(1);
    bench.settings.git_time = Duration::from_secs(20);
    let commit = bench.repository.commit("build.txt", "good");
    let builds = bench.open().await;
    bench.host.hang();
    let failure = failed(&builds, &bench.order(1, &commit)).await;
    assert_eq!(failure.reason.as_str(), Reason::SOURCE_UNREACHABLE, "{failure:?}");
    let gone = GitSource { url: "http://127.0.0.1:1/api.git".parse().unwrap(), ..bench.source() };
    let failure = failed(&builds, &bench.order(2, &commit).with(|spec| spec.source = gone)).await;
    assert_eq!(failure.reason.as_str(), Reason::SOURCE_UNREACHABLE, "{failure:?}");
    builds.close().await;
    bench.settings.git_silence = Duration::from_secs(600);
    bench.settings.git_time = Duration::from_secs(1);
    let builds = bench.open().await;
    let failure = failed(&builds, &bench.order(3, &commit)).await;
    assert_eq!(failure.reason.as_str(), Reason::SOURCE_UNREACHABLE, "{failure:?}");
}

#[tokio::test]
async fn a_host_that_is_away_for_a_moment_is_asked_again() {
    let mut bench = Bench::new();
    bench.settings.git_silence = Duration::from_secs(1);
    let commit = bench.repository.commit("build.txt", "good");
    let builds = bench.open().await;
    bench.host.hang();
    let order = bench.order(1, &commit);
    assert_eq!(builds.start(&order).await.unwrap(), Started::Known);
    for _ in 0..600 {
        if log(&builds, order.id).await.contains("Asking again") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    bench.host.recover();
    assert_eq!(built(&builds, &order).await, commit);
}

#[tokio::test]
async fn local_sources_are_refused_where_the_operator_does_not_allow_them() {
    let mut bench = Bench::new();
    let commit = bench.repository.commit("build.txt", "good");
    let url = format!("file://{}/.git", bench.repository.path().display());
    let order =
        bench.order(1, &commit).with(|spec| spec.source = GitSource { url: url.parse().unwrap(), ..bench.source() });
    assert_eq!(built(&*bench.open().await, &order).await, commit);
    bench.settings.sources = AllowedSources::default();
    let builds = bench.open().await;
    for order in [bench.order(2, &commit), order.with(|spec| spec.id = bench.order(3, &commit).id)] {
        assert_eq!(failed(&builds, &order).await.reason.as_str(), Reason::BUILD_REFUSED);
    }
}

#[tokio::test]
async fn the_program_is_told_what_to_build_and_none_of_the_servers_secrets() {
    let bench = Bench::new();
    let commit = bench.repository.commit("build.txt", "good");
    let builds = bench.open().await;
    let order = bench.order(7, &commit);
    built(&builds, &order).await;
    let log = log(&builds, order.id).await;
    for line in [
        format!("ROLLHOOK_COMMIT={commit}"),
        "ROLLHOOK_APP=shop-test/api".to_owned(),
        "ROLLHOOK_REVISION=7".to_owned(),
        "ROLLHOOK_BRANCH=main".to_owned(),
        "ROLLHOOK_DOCKERFILE=Dockerfile".to_owned(),
        "ROLLHOOK_CONTEXT=.".to_owned(),
        format!("ROLLHOOK_IMAGE=registry.example.com/shop/api:{commit}"),
        format!("ROLLHOOK_SOURCE_URL={}", bench.host.url("api")),
    ] {
        assert!(log.lines().any(|told| told == line), "{line} is not in {log}");
    }
    // Cargo has set these for the test, as an operator may have set a database's password.
    assert!(!log.contains("CARGO_"), "{log}");
}

#[tokio::test]
async fn nothing_of_a_cancelled_build_is_left() {
    let bench = Bench::new();
    for (revision, content) in [(1, "hang"), (2, "stubborn")] {
        let commit = bench.repository.commit("build.txt", content);
        let builds = bench.open().await;
        let order = bench.order(revision, &commit);
        builds.start(&order).await.unwrap();
        let children = match content {
            "hang" => vec![told(&builds, order.id, "child ").await, told(&builds, order.id, "stray ").await],
            _ => Vec::new(),
        };
        assert!(children.iter().all(|child| is_alive(*child)));
        builds.cancel(order.id).await.unwrap();
        let end = ended(&builds, order.id).await;
        assert!(matches!(end, BuildState::Failed(failure) if failure.reason.as_str() == Reason::CANCELLED));
        assert!(!children.iter().any(|child| is_alive(*child)), "also what left the group");
        assert!(!bench.path("builds").join(order.id.to_string()).join("work").exists());
    }
}

#[tokio::test]
async fn process_that_left_the_builds_group_and_environment_ends_with_the_build() {
    if !is_root() {
        return skip(&test_name!(), "control groups are root's, and so are other users");
    }
    let bench = Bench::new();
    let commit = bench.repository.commit("build.txt", "escape");
    let builds = bench.open().await;
    let order = bench.order(1, &commit);
    builds.start(&order).await.unwrap();
    let stray = told(&builds, order.id, "stray ").await;
    let environment = fs::read(format!("/proc/{stray}/environ")).unwrap();
    assert!(is_alive(stray) && !String::from_utf8_lossy(&environment).contains("ROLLHOOK"));
    builds.cancel(order.id).await.unwrap();
    ended(&builds, order.id).await;
    assert!(!is_alive(stray));
}

#[tokio::test]
async fn what_a_program_leaves_running_ends_with_it() {
    let bench = Bench::new();
    let commit = bench.repository.commit("build.txt", "leave");
    let builds = bench.open().await;
    let order = bench.order(1, &commit);
    built(&builds, &order).await;
    assert!(!is_alive(told(&builds, order.id, "child ").await));
}

#[tokio::test]
async fn a_server_that_stops_ends_its_builds_and_they_begin_anew() {
    let bench = Bench::new();
    let commit = bench.repository.commit("build.txt", "hang");
    let order = bench.order(1, &commit);
    let first = bench.open().await;
    first.start(&order).await.unwrap();
    let child = told(&first, order.id, "child ").await;
    let other = bench.open().await;
    assert!(other.running(order.id.app).await.unwrap_err().is_unavailable(), "it is the first one's");
    assert!(is_alive(child), "which opening another one does not end");
    first.close().await;
    assert!(!is_alive(child));
    assert!(first.start(&order).await.unwrap_err().is_unavailable(), "it is closed");
    assert_eq!(other.running(order.id.app).await.unwrap(), None);
    assert_eq!(other.observe(order.id).await.unwrap(), BuildState::Unknown);
    assert_eq!(other.start(&order).await.unwrap(), Started::Known);
    assert!(other.observe(order.id).await.unwrap().is_under_way());
    other.close().await;
}

#[tokio::test]
async fn what_a_crash_left_running_is_ended_at_the_next_start() {
    let bench = Bench::new();
    let commit = bench.repository.commit("build.txt", "good");
    let order = bench.order(1, &commit);
    // As a server that was killed leaves it: the build's number, and a process that carries it, in a group of its own.
    let directory = bench.path("builds").join(order.id.to_string());
    fs::create_dir_all(directory.join("work")).unwrap();
    fs::write(directory.join("run"), "0123").unwrap();
    let mut orphan = std::process::Command::new("setsid")
        .args(["sleep", "600"])
        .env("ROLLHOOK_BUILD", "0123")
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let mut stranger = std::process::Command::new("sleep")
        .arg("600")
        .env("ROLLHOOK_BUILD", "01234")
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let builds = bench.open().await;
    assert!(!is_alive(orphan.id()));
    assert!(is_alive(stranger.id()), "another build's number");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    orphan.wait().unwrap();
    assert_eq!(builds.observe(order.id).await.unwrap(), BuildState::Unknown);
    assert_eq!(built(&builds, &order).await, commit);
}

#[tokio::test]
async fn a_build_command_that_is_none_is_told_at_start() {
    let bench = Bench::new();
    for program in ["nothing-here", "."] {
        let settings = Settings { tool: Tool::program(bench.path(program)), ..bench.settings.clone() };
        assert!(matches!(CommandBuilds::open(settings).await, Err(Error::NotAProgram(_))), "{program}");
    }
}

#[tokio::test]
async fn answer_of_a_host_that_is_no_git_host_is_repeated_nowhere() {
    let bench = Bench::new();
    let commit = bench.repository.commit("build.txt", "good");
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("http://{}/api.git", listener.local_addr().unwrap()).parse().unwrap();
    thread::spawn(move || {
        let body = "a secret of an internal service";
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let head = "HTTP/1.1 404 Not Found\r\ncontent-type: text/plain\r\nconnection: close\r\ncontent-length:";
            let _ = stream.write_all(format!("{head} {}\r\n\r\n{body}", body.len()).as_bytes());
        }
    });
    let builds = bench.open().await;
    let order = bench.order(1, &commit).with(|spec| spec.source = GitSource { url, ..bench.source() });
    let failure = failed(&builds, &order).await;
    assert_eq!(failure.reason.as_str(), Reason::SOURCE_UNREACHABLE, "{failure:?}");
    let told = format!("{failure:?}{}", log(&builds, order.id).await);
    assert!(!told.contains("secret"), "{told}");
}
