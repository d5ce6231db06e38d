//! What the suite does not ask of every reader: credentials, local sources, hosts that are gone or keep silent, and
//! nothing that is left running.

use std::{
    fs,
    io::{Read, Write},
    net::{IpAddr, TcpListener, ToSocketAddrs},
    path::Path,
    process::Command,
    sync::Arc,
    thread,
    time::Duration,
};

use rollhook_core::{
    Error,
    app::AppId,
    ports::{BranchReader, LOGGED_MIN},
    source::{AllowedSources, GitSource},
};
use rollhook_git::Settings;
use rollhook_testing::{skip, test_name, until_async};

use crate::bench::{AUTHORIZATION, Bench};

/// An app of an environment of its own.
fn app(number: usize) -> AppId {
    format!("shop-{number}/api").parse().unwrap()
}

#[tokio::test]
async fn credentials_open_the_source_and_only_the_right_ones() {
    let mut bench = Bench::with(Some(AUTHORIZATION));
    let commit = bench.repository.push("main");
    let credentials = bench.path("credentials");
    fs::create_dir(&credentials).unwrap();
    fs::write(credentials.join("right"), bench.host.login("ada:hunter2")).unwrap();
    fs::write(credentials.join("wrong"), bench.host.login("ada:sesame")).unwrap();
    let named = |name: &str| GitSource { credentials: Some(name.parse().unwrap()), ..bench.source() };
    let (right, wrong, none) = (named("right"), named("wrong"), named("none"));
    bench.settings.credentials = Some(credentials);
    let reader = bench.reader();
    assert_eq!(reader.head(&app(1), &right).await.unwrap().unwrap().as_str(), commit);
    for source in [wrong, none] {
        let error = reader.head(&app(1), &source).await.unwrap_err();
        assert!(matches!(error, Error::Denied { .. }), "{}", error.chain());
        assert!(!error.chain().contains("sesame") && !error.chain().contains("YWRh"), "{}", error.chain());
    }
    bench.settings.credentials = None;
    let error = bench.reader().head(&app(1), &right).await.unwrap_err();
    assert!(matches!(error, Error::Denied { .. }), "{}", error.chain());
}

#[tokio::test]
async fn redirect_to_another_host_is_not_followed_and_gets_no_credentials() {
    let mut bench = Bench::new();
    let elsewhere = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    elsewhere.set_nonblocking(true).unwrap();
    let first = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let (host, moved) = (first.local_addr().unwrap(), elsewhere.local_addr().unwrap());
    let redirecting = thread::spawn(move || {
        let (mut stream, _) = first.accept().unwrap();
        let mut request = [0; 4096];
        let length = stream.read(&mut request).unwrap();
        let answer = format!(
            "HTTP/1.1 302 Found\r\nlocation: http://{moved}/api.git/info/refs?service=git-upload-pack\r\n\
             content-length: 0\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(answer.as_bytes()).unwrap();
        String::from_utf8_lossy(&request[..length]).into_owned()
    });
    let credentials = bench.path("credentials");
    fs::create_dir(&credentials).unwrap();
    fs::write(credentials.join("shop"), format!("http://ada:hunter2@{host}/")).unwrap();
    bench.settings.credentials = Some(credentials);
    let url = format!("http://{host}/api.git").parse().unwrap();
    let source = GitSource { url, credentials: Some("shop".parse().unwrap()), ..bench.source() };
    let error = bench.reader().head(&app(1), &source).await.unwrap_err();
    assert!(error.to_string().contains("leads elsewhere"), "{}", error.chain());
    assert!(redirecting.join().unwrap().contains(AUTHORIZATION), "the host itself has got them");
    assert!(elsewhere.accept().is_err(), "nothing was sent to the other host");
}

#[tokio::test]
async fn credentials_for_another_host_are_not_sent() {
    let mut bench = Bench::new();
    bench.repository.push("main");
    let credentials = bench.path("credentials");
    fs::create_dir(&credentials).unwrap();
    fs::write(credentials.join("shop"), "http://ada:hunter2@git.example.com/").unwrap();
    bench.settings.credentials = Some(credentials);
    let source = GitSource { credentials: Some("shop".parse().unwrap()), ..bench.source() };
    let error = bench.reader().head(&app(1), &source).await.unwrap_err();
    let expected = format!("The credentials shop are not for {}", source.url);
    assert!(matches!(&error, Error::Denied { what, .. } if what.starts_with(&expected)), "{}", error.chain());
}

#[tokio::test]
async fn a_repository_that_is_not_there_or_empty_is_told_apart() {
    let bench = Bench::new();
    let reader = bench.reader();
    assert_eq!(reader.head(&app(1), &bench.source()).await.unwrap(), None, "no commit yet");
    let gone = GitSource { url: bench.host.url("gone").parse().unwrap(), ..bench.source() };
    assert!(matches!(reader.head(&app(1), &gone).await.unwrap_err(), Error::Denied { .. }));
    let nobody = GitSource { url: "http://127.0.0.1:1/api.git".parse().unwrap(), ..bench.source() };
    assert!(reader.head(&app(1), &nobody).await.unwrap_err().is_unavailable());
}

#[tokio::test]
async fn local_sources_are_refused_where_the_operator_does_not_allow_them() {
    let mut bench = Bench::new();
    let commit = bench.repository.push("main");
    let url = format!("file://{}/.git", bench.repository.path().display());
    let file = GitSource { url: url.parse().unwrap(), ..bench.source() };
    assert_eq!(bench.reader().head(&app(1), &file).await.unwrap().unwrap().as_str(), commit);
    bench.settings.sources = AllowedSources::default();
    let reader = bench.reader();
    for source in [file, bench.source()] {
        assert!(matches!(reader.head(&app(1), &source).await.unwrap_err(), Error::Invalid { .. }));
    }
}

#[tokio::test]
async fn name_that_leads_to_this_machine_is_refused_before_a_connection() {
    let mut bench = Bench::new();
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let Some(name) = name_of_this_machine() else {
        return skip(&test_name!(), "/etc/hosts has no name for loopback besides localhost");
    };
    bench.settings.sources = AllowedSources::default();
    let reader = bench.reader();
    for protocol in ["https", "ssh"] {
        let url = format!("{protocol}://{name}:{}/api.git", listener.local_addr().unwrap().port());
        let source = GitSource { url: url.parse().unwrap(), ..bench.source() };
        let error = reader.head(&app(1), &source).await.unwrap_err();
        assert!(matches!(&error, Error::Invalid { what, .. } if what.contains("leads to this machine")), "{error}");
        assert!(!error.chain().contains("127.0.0.1"), "{}", error.chain());
    }
    assert!(listener.accept().is_err(), "nothing was connected to");
}

/// A name that leads to loopback, and does not say so.
fn name_of_this_machine() -> Option<String> {
    let hosts = fs::read_to_string("/etc/hosts").ok()?;
    let names = hosts.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let loopback = words.next()?.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        words.find(|name| loopback && !name.contains("localhost")).map(str::to_owned)
    });
    let resolves = |name: &String| (name.as_str(), 0).to_socket_addrs().is_ok_and(|mut found| found.next().is_some());
    names.into_iter().find(resolves)
}

#[tokio::test]
async fn a_repository_above_does_not_configure_the_reader() {
    let mut bench = Bench::new();
    let commit = bench.repository.push("main");
    // As somebody may have put one where temporary files are.
    let temporary = bench.path("temporary");
    fs::create_dir_all(temporary.join(".git/refs")).unwrap();
    fs::create_dir_all(temporary.join(".git/objects")).unwrap();
    fs::write(temporary.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
    let elsewhere = "[url \"http://127.0.0.1:1/\"]\n\tinsteadOf = http://\n";
    fs::write(temporary.join(".git/config"), format!("[core]\n\trepositoryformatversion = 0\n{elsewhere}")).unwrap();
    bench.settings.temporary = temporary;
    assert_eq!(bench.reader().head(&app(1), &bench.source()).await.unwrap().unwrap().as_str(), commit);
}

#[tokio::test]
async fn nothing_is_left_of_a_reading_that_nobody_waits_for() {
    let mut bench = Bench::new();
    bench.settings = Settings { silence: Duration::from_secs(600), limit: Duration::from_secs(600), ..bench.settings };
    bench.repository.push("main");
    bench.host.hang();
    let reader = Arc::new(bench.reader());
    let source = bench.source();
    let reading = tokio::spawn({
        let (reader, source) = (reader.clone(), source.clone());
        async move { reader.head(&app(1), &source).await.map(drop) }
    });
    let url = source.url.as_str();
    until_async("git and what speaks http for it run", async || processes_with(&[url]) >= 2).await;
    reading.abort();
    until_async("they are gone", async || processes_with(&[url]) == 0).await;

    bench.settings.limit = Duration::from_millis(300);
    let reader = bench.reader();
    assert!(reader.head(&app(1), &source).await.unwrap_err().is_unavailable());
    until_async("these as well", async || processes_with(&[url]) == 0).await;
}

#[tokio::test]
async fn only_so_many_sources_are_read_at_once() {
    let mut bench = Bench::new();
    bench.settings =
        Settings { silence: Duration::from_secs(600), limit: Duration::from_secs(3), at_once: 1, ..bench.settings };
    bench.repository.push("main");
    bench.host.hang();
    let reader = bench.reader();
    let source = bench.source();
    let most = async {
        let mut most = 0;
        for _ in 0..20 {
            most = most.max(readers(source.url.as_str()));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        most
    };
    let apps = [1, 2].map(app);
    let (one, other, most) = tokio::join!(reader.head(&apps[0], &source), reader.head(&apps[1], &source), most);
    assert!(one.unwrap_err().is_unavailable() && other.unwrap_err().is_unavailable());
    assert_eq!(most, 1);
}

#[tokio::test]
async fn of_one_host_three_are_read_at_once() {
    let mut bench = Bench::new();
    bench.settings = Settings { silence: Duration::from_secs(600), limit: Duration::from_secs(3), ..bench.settings };
    bench.repository.push("main");
    bench.host.hang();
    let reader = bench.reader();
    let source = bench.source();
    let most = async {
        let mut most = 0;
        for _ in 0..20 {
            most = most.max(readers(source.url.as_str()));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        most
    };
    let apps = [1, 2, 3, 4].map(app);
    let looks = async {
        tokio::join!(reader.look(&apps[0], &source), reader.look(&apps[1], &source), reader.look(&apps[2], &source))
    };
    let ((one, two, three), head, most) = tokio::join!(looks, reader.head(&apps[3], &source), most);
    assert!([one, two, three, head].iter().all(Result::is_err));
    assert_eq!(most, 3);
    bench.host.recover();
    assert!(reader.look(&app(1), &source).await.unwrap().is_some());
}

#[tokio::test]
async fn environment_whose_hosts_are_silent_leaves_turns_to_others() {
    let mut bench = Bench::new();
    bench.settings = Settings { silence: Duration::from_secs(600), limit: Duration::from_secs(600), ..bench.settings };
    let commit = bench.repository.push("main");
    let reader = Arc::new(bench.reader());
    // The kernel takes the connections, and nothing answers.
    let hosts = [2, 3, 4, 5, 6].map(|host| TcpListener::bind((format!("127.0.0.{host}"), 0)).unwrap());
    let reads: Vec<_> = hosts
        .iter()
        .flat_map(|host| [host; 2])
        .enumerate()
        .map(|(number, host)| {
            let url = format!("http://{}/api.git", host.local_addr().unwrap()).parse().unwrap();
            let source = GitSource { url, ..bench.source() };
            let (reader, app) = (reader.clone(), format!("shop-test/app-{number}").parse().unwrap());
            tokio::spawn(async move { reader.head(&app, &source).await.map(drop) })
        })
        .collect();
    let urls = hosts.each_ref().map(|host| format!("http://{}/api.git", host.local_addr().unwrap()));
    let silent = || urls.iter().map(|url| readers(url)).sum::<usize>();
    until_async("its quarter is taken", async || silent() >= 2).await;
    let source = bench.source();
    assert_eq!(reader.head(&app(1), &source).await.unwrap().unwrap().as_str(), commit);
    assert_eq!(silent(), 2);
    reads.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn host_that_answers_with_refs_without_end_takes_no_memory() {
    let bench = Bench::new();
    let host = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("http://{}/api.git", host.local_addr().unwrap()).parse().unwrap();
    let answering = thread::spawn(move || {
        let (mut stream, _) = host.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]).unwrap();
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/x-git-upload-pack-advertisement\r\n\r\n";
        stream.write_all(format!("{head}001e# service=git-upload-pack\n0000").as_bytes()).unwrap();
        // 64 MiB, unless git ends before.
        let refs = format!("003d{} refs/heads/main\n", "a".repeat(40)).repeat(1024);
        (0..1074).all(|_| stream.write_all(refs.as_bytes()).is_ok())
    });
    let error = bench.reader().head(&app(1), &GitSource { url, ..bench.source() }).await.unwrap_err();
    // Either of its two processes is the first to have no memory.
    assert!(error.is_unavailable(), "{}", error.chain());
    assert!(!answering.join().unwrap(), "git ends before the answer does");
}

#[tokio::test]
async fn a_look_for_which_there_is_no_room_says_nothing_of_its_source() {
    let mut bench = Bench::new();
    bench.repository.push("main");
    bench.settings = Settings { limit: Duration::from_millis(200), at_once: 0, ..bench.settings };
    let reader = bench.reader();
    assert!(matches!(
        reader.look(&app(1), &bench.source()).await,
        Err(Error::Conflict(rollhook_core::error::Entity::Capacity))
    ));
    assert!(reader.head(&app(1), &bench.source()).await.unwrap_err().is_unavailable());
}

#[tokio::test]
async fn a_directory_that_somebody_has_removed_is_made_anew() {
    let mut bench = Bench::new();
    let commit = bench.repository.push("main");
    let temporary = bench.path("temporary");
    fs::create_dir(&temporary).unwrap();
    bench.settings.temporary = temporary.clone();
    let reader = bench.reader();
    for entry in fs::read_dir(&temporary).unwrap() {
        fs::remove_dir_all(entry.unwrap().path()).unwrap();
    }
    assert_eq!(reader.head(&app(1), &bench.source()).await.unwrap().unwrap().as_str(), commit);
    fs::remove_dir_all(&temporary).unwrap();
    assert!(reader.head(&app(1), &bench.source()).await.unwrap_err().is_unavailable());
    fs::create_dir(&temporary).unwrap();
    assert_eq!(reader.head(&app(1), &bench.source()).await.unwrap().unwrap().as_str(), commit);
}

/// How many processes have these among their arguments.
fn processes_with(arguments: &[&str]) -> usize {
    pids_with(arguments).count()
}

/// How many times git reads this URL: what it starts has its arguments too for a moment, and is not its group's leader.
fn readers(url: &str) -> usize {
    let leads = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let group = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(2)?.parse().ok());
        group == Some(*pid)
    };
    pids_with(&["ls-remote", url]).filter(leads).count()
}

fn pids_with(arguments: &[&str]) -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").unwrap();
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(move |pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let parts: Vec<_> = line.split(|byte| *byte == 0).collect();
        arguments.iter().all(|argument| parts.contains(&argument.as_bytes()))
    })
}

/// Runs git in a directory, without any configuration of this machine.
fn git(directory: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("git");
    command.arg("-C").arg(directory).args(["-c", "user.name=Ada", "-c", "user.email=ada@example.com"]).args(arguments);
    let output = command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1").output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A repository whose commits have names of this kind, with so many of them on `main`; they are the newest first.
fn repository(directory: &Path, format: &str, count: usize) -> Vec<String> {
    fs::create_dir(directory).unwrap();
    git(directory, &["init", "-q", "-b", "main", &format!("--object-format={format}"), "."]);
    (0..count).for_each(|number| {
        git(directory, &["commit", "-q", "--allow-empty", "-m", &format!("commit {number}")]);
    });
    git(directory, &["rev-list", "main"]).lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn log_is_read_of_each_kind_of_repository_and_leaves_nothing_behind() {
    let mut bench = Bench::new();
    let temporary = bench.path("temporary");
    fs::create_dir(&temporary).unwrap();
    bench.settings.temporary = temporary.clone();
    let reader = bench.reader();
    for (name, format, filters) in [("one", "sha1", false), ("two", "sha1", true), ("three", "sha256", true)] {
        let place = bench.path(name);
        let commits = repository(&place, format, 120);
        git(&place, &["config", "uploadpack.allowFilter", &filters.to_string()]);
        let url = format!("file://{}", place.display()).parse().unwrap();
        let log = reader.log(&app(1), &GitSource { url, ..bench.source() }).await.unwrap();
        let logged: Vec<&str> = log.commits().iter().map(|logged| logged.commit.as_str()).collect();
        assert!(logged.len() >= LOGGED_MIN && logged.len() < commits.len(), "{name}: {}", logged.len());
        assert_eq!(logged, commits[..logged.len()], "{name}");
    }
    let left: Vec<_> = fs::read_dir(&temporary).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left.len(), 1, "git's empty home: {left:?}");
}

#[tokio::test]
async fn log_of_a_server_that_sends_every_file_is_bounded() {
    let bench = Bench::new();
    let place = bench.path("large");
    repository(&place, "sha1", 1);
    let mut random = fs::File::open("/dev/urandom").unwrap().take(6 << 20);
    std::io::copy(&mut random, &mut fs::File::create(place.join("large")).unwrap()).unwrap();
    git(&place, &["add", "large"]);
    git(&place, &["commit", "-q", "-m", "a large file"]);
    let source = GitSource { url: format!("file://{}", place.display()).parse().unwrap(), ..bench.source() };
    let error = bench.reader().log(&app(1), &source).await.unwrap_err();
    assert!(error.is_unavailable(), "{}", error.chain());
    git(&place, &["config", "uploadpack.allowFilter", "true"]);
    assert_eq!(bench.reader().log(&app(1), &source).await.unwrap().commits().len(), 2);
}
