//! Sources over ssh, on OpenSSH's own server: whom it lets in, and which hosts are trusted.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown, symlink},
    path::PathBuf,
    time::Duration,
};

use rollhook_conformance::samples;
use rollhook_core::{
    Error,
    ports::BranchReader,
    source::{AllowedSources, GitSource},
};
use rollhook_git::{GitBranchReader, Settings};
use rollhook_testing::{
    fixtures::{SshHost, ssh_key},
    skip, test_name,
};

/// A host with a repository, and the operator's directory of credentials with the host's key and a deploy key that it
/// lets in.
struct Bench {
    directory: tempfile::TempDir,
    host: SshHost,
    commit: String,
    settings: Settings,
}

impl Bench {
    /// None where there can be no such host, which is reported.
    fn new(test: &str) -> Option<Self> {
        let host = SshHost::start().inspect_err(|reason| skip(test, reason)).ok()?;
        let commit = host.repository("api").push("main");
        let directory = tempfile::tempdir().unwrap();
        // What a path may hold, and options of ssh give a meaning to.
        let credentials = directory.path().join("its 100%h 'keys'");
        fs::create_dir(&credentials).unwrap();
        // As patient as a test that is never to end by it.
        let limit = Duration::from_secs(600);
        let credentials = Some(credentials);
        let settings = Settings { credentials, sources: AllowedSources::all(), limit, ..Settings::default() };
        let bench = Self { directory, host, commit, settings };
        bench.write("known_hosts", &bench.host.known_host(), 0o644);
        bench.write("deploy", &bench.host.key(), 0o600);
        bench.bind("deploy");
        Some(bench)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.settings.credentials.as_ref().unwrap().join(name)
    }

    /// Keeps these credentials for the host.
    fn bind(&self, name: &str) {
        self.write(&format!("{name}.url"), &self.host.urls(), 0o644);
    }

    fn write(&self, name: &str, text: &str, mode: u32) {
        let file = self.file(name);
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn source(&self, credentials: &str) -> GitSource {
        let url = self.host.url("api").parse().unwrap();
        GitSource { url, credentials: Some(credentials.parse().unwrap()), ..samples::git_source() }
    }

    async fn read(&self, source: &GitSource) -> Result<Option<String>, Error> {
        let app = samples::app("shop", "test", "api").id;
        let head = GitBranchReader::open(self.settings.clone()).unwrap().head(&app, source).await?;
        Ok(head.map(|commit| commit.to_string()))
    }

    /// Reads with these credentials.
    async fn lets_in(&self, credentials: &str) {
        match self.read(&self.source(credentials)).await {
            Ok(head) => assert_eq!(head.as_deref(), Some(self.commit.as_str())),
            Err(error) => panic!("{}\n{}", error.chain(), self.host.log()),
        }
    }

    /// The sentence with which these credentials are refused.
    async fn denial(&self, credentials: &str) -> String {
        let error = self.read(&self.source(credentials)).await.unwrap_err();
        let chain = error.chain();
        let Error::Denied { what, .. } = error else { panic!("{chain}") };
        what
    }

    fn scan(&self) -> String {
        format!("(ssh-keyscan -p {} 127.0.0.1), after checking it", self.host.address.port())
    }
}

#[tokio::test]
async fn a_deploy_key_opens_the_source() {
    let Some(bench) = Bench::new(&test_name!()) else { return };
    bench.lets_in("deploy").await;
    let gone = GitSource { url: bench.host.url("web").parse().unwrap(), ..bench.source("deploy") };
    let error = bench.read(&gone).await.unwrap_err();
    assert!(matches!(&error, Error::Denied { what, .. } if what.contains("no repository")), "{}", error.chain());
}

#[tokio::test]
async fn a_key_that_the_host_does_not_know_is_denied() {
    let Some(bench) = Bench::new(&test_name!()) else { return };
    bench.bind("other");
    ssh_key(&bench.file("other"), "").unwrap();
    let told = bench.denial("other").await;
    assert!(told.contains("does not let this server in with the credentials other"), "{told}");
}

#[tokio::test]
async fn a_host_that_is_not_known_is_refused() {
    let Some(bench) = Bench::new(&test_name!()) else { return };
    for known in ["", "git.example.com ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdXWQ==\n"] {
        bench.write("known_hosts", known, 0o644);
        let told = bench.denial("deploy").await;
        assert!(told.contains("127.0.0.1 is not known to ssh") && told.contains(&bench.scan()), "{told}");
        assert_eq!(fs::read_to_string(bench.file("known_hosts")).unwrap(), known, "nothing is added");
    }
    // Without credentials of its own, a source is held to the same hosts.
    let public = GitSource { credentials: None, ..bench.source("deploy") };
    let error = bench.read(&public).await.unwrap_err();
    assert!(matches!(&error, Error::Denied { what, .. } if what.contains(&bench.scan())), "{}", error.chain());
    // And where there is no such file, to those that the server's user knows, who never was here.
    fs::remove_file(bench.file("known_hosts")).unwrap();
    assert!(bench.denial("deploy").await.contains(&bench.scan()));
}

#[tokio::test]
async fn a_host_that_shows_another_key_is_refused() {
    let Some(bench) = Bench::new(&test_name!()) else { return };
    bench.host.change_host_key();
    let told = bench.denial("deploy").await;
    assert!(told.contains("shows another host key") && told.contains(&bench.scan()), "{told}");
    bench.write("known_hosts", &bench.host.known_host(), 0o644);
    bench.lets_in("deploy").await;
}

#[tokio::test]
async fn a_private_key_that_ssh_cannot_use_is_told_with_the_reason() {
    let Some(bench) = Bench::new(&test_name!()) else { return };
    let key = bench.host.key();
    bench.write("open", &key, 0o644);
    bench.write("windows", &key.replace('\n', "\r\n"), 0o600);
    bench.write("endless", key.trim_end(), 0o600);
    bench.write("cut", &key[..key.len() / 2], 0o600);
    bench.write("password", "ada:hunter2\n", 0o600);
    ssh_key(&bench.file("locked"), "sesame").unwrap();
    for (name, reason) in [
        ("open", "give its file the mode 0400"),
        ("windows", "no carriage returns"),
        ("endless", "a line end at its end"),
        ("cut", "it must be whole"),
        ("password", "no private key"),
        ("locked", "has a passphrase"),
        ("nothing", "no credentials named nothing"),
    ] {
        bench.bind(name);
        let told = bench.denial(name).await;
        assert!(told.contains(reason) && told.contains(name), "{name}: {told}");
        assert!(!told.contains("hunter2") && !told.contains("keys'"), "{name}: {told}");
    }
}

/// As a cluster mounts a Secret: links, files that their group may read, of another user.
#[tokio::test]
async fn a_mounted_secret_is_taken() {
    let Some(bench) = Bench::new(&test_name!()) else { return };
    let (first, second) = (bench.file("..2026_1"), bench.file("..2026_2"));
    fs::create_dir(&first).unwrap();
    for name in ["deploy", "deploy.url", "known_hosts"] {
        let file = first.join(name);
        fs::rename(bench.file(name), &file).unwrap();
        // Who is not root cannot give a file away; of one's own, ssh takes no key that a group may read.
        let mode = if chown(&file, Some(65534), None).is_ok() { 0o440 } else { 0o400 };
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        symlink(format!("..data/{name}"), bench.file(name)).unwrap();
    }
    symlink("..2026_1", bench.file("..data")).unwrap();
    bench.lets_in("deploy").await;
    // The files are replaced as a whole.
    fs::rename(&first, &second).unwrap();
    symlink("..2026_2", bench.file("..data_tmp")).unwrap();
    fs::rename(bench.file("..data_tmp"), bench.file("..data")).unwrap();
    bench.lets_in("deploy").await;
}

#[tokio::test]
async fn a_host_that_takes_the_connection_and_says_nothing_is_given_up_on() {
    let test = "a_host_that_takes_the_connection_and_says_nothing_is_given_up_on";
    let Some(mut bench) = Bench::new(test) else { return };
    bench.settings.silence = Duration::from_secs(1);
    bench.host.hang();
    let error = bench.read(&bench.source("deploy")).await.unwrap_err();
    assert!(error.is_unavailable(), "{}", error.chain());
    assert!(error.chain().contains("timed out during banner exchange"), "by its silence: {}", error.chain());
}

#[tokio::test]
async fn a_directory_of_credentials_that_is_none_is_told() {
    let Some(mut bench) = Bench::new(&test_name!()) else { return };
    let file = bench.directory.path().join("file");
    fs::write(&file, "").unwrap();
    bench.settings.credentials = Some(file);
    assert!(bench.denial("deploy").await.contains("known_hosts beside the credentials cannot be read"));
    bench.settings.credentials = None;
    assert!(bench.denial("deploy").await.contains("--build-credentials"));
}
