//! Builds from a source over ssh, on OpenSSH's own server.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, time::Duration};

use rollhook_core::{deploy::Reason, ports::BuildSpec, source::GitSource};
use rollhook_testing::{
    fixtures::{SshHost, ssh_key},
    skip, test_name,
};

use crate::bench::{Bench, built, failed, log};

/// A builder that has the host's key and a deploy key among its credentials; nothing where there can be no such host.
fn bench(test: &str) -> Option<(Bench, SshHost)> {
    let host = SshHost::start().inspect_err(|reason| skip(test, reason)).ok()?;
    let mut bench = Bench::new();
    let credentials = bench.path("credentials");
    fs::create_dir(&credentials).unwrap();
    fs::write(credentials.join("known_hosts"), host.known_host()).unwrap();
    for name in ["deploy", "other", "locked"] {
        fs::write(credentials.join(format!("{name}.url")), host.urls()).unwrap();
    }
    fs::write(credentials.join("deploy"), host.key()).unwrap();
    fs::set_permissions(credentials.join("deploy"), fs::Permissions::from_mode(0o600)).unwrap();
    bench.settings.credentials = Some(credentials);
    Some((bench, host))
}

fn order(bench: &Bench, host: &SshHost, revision: u64, commit: &str, credentials: &str) -> BuildSpec {
    let url = host.url("api").parse().unwrap();
    let source = GitSource { url, credentials: Some(credentials.parse().unwrap()), ..bench.source() };
    bench.order(revision, commit).with(|spec| spec.source = source)
}

#[tokio::test]
async fn exactly_the_commit_is_built_with_a_deploy_key() {
    let Some((bench, host)) = bench(&test_name!()) else { return };
    let repository = host.repository("api");
    let first = repository.commit("build.txt", "first");
    let gone = repository.commit("build.txt", "second");
    repository.git(&["reset", "-q", "--hard", "HEAD~1"]);
    let head = repository.commit("build.txt", "third");
    let builds = bench.open().await;
    for (revision, posted, commit) in [(1, &first[..], &first), (2, &head[..8], &head), (3, &gone[..], &gone)] {
        let order = order(&bench, &host, revision, posted, "deploy");
        assert_eq!(built(&builds, &order).await, *commit, "{}", host.log());
        let log = log(&builds, order.id).await;
        assert!(log.contains(&format!("\nhead {commit}\n")), "{log}");
        // The program has no use for them.
        assert!(!log.contains("ROLLHOOK_SSH_") && !log.contains("PRIVATE KEY"), "{log}");
    }
}

#[tokio::test]
async fn who_is_not_let_in_and_whom_ssh_does_not_trust_is_told_apart() {
    let Some((bench, host)) = bench(&test_name!()) else { return };
    let commit = host.repository("api").commit("build.txt", "good");
    let credentials = bench.path("credentials");
    ssh_key(&credentials.join("other"), "").unwrap();
    ssh_key(&credentials.join("locked"), "sesame").unwrap();
    let builds = bench.open().await;
    let known_hosts: &Path = &credentials.join("known_hosts");
    let scan = format!("(ssh-keyscan -p {} 127.0.0.1), after checking it.", host.address.port());
    for (revision, name, told) in
        [(1, "other", "does not let the builder in with the credentials other"), (2, "locked", "has a passphrase")]
    {
        let failure = failed(&builds, &order(&bench, &host, revision, &commit, name)).await;
        assert_eq!(failure.reason.as_str(), Reason::SOURCE_DENIED, "{failure:?}");
        assert!(failure.message.contains(told), "{failure:?}");
    }
    host.change_host_key();
    let failure = failed(&builds, &order(&bench, &host, 3, &commit, "deploy")).await;
    assert_eq!(failure.reason.as_str(), Reason::SOURCE_DENIED, "{failure:?}");
    assert!(failure.message.contains("shows another host key") && failure.message.ends_with(&scan), "{failure:?}");
    fs::write(known_hosts, "").unwrap();
    let failure = failed(&builds, &order(&bench, &host, 4, &commit, "deploy")).await;
    assert_eq!(failure.reason.as_str(), Reason::SOURCE_DENIED, "{failure:?}");
    assert!(failure.message.contains("is not known to ssh") && failure.message.ends_with(&scan), "{failure:?}");
    fs::write(known_hosts, host.known_host()).unwrap();
    assert_eq!(built(&builds, &order(&bench, &host, 5, &commit, "deploy")).await, commit);
}

#[tokio::test]
async fn a_host_that_says_nothing_is_given_up_on() {
    let Some((mut bench, host)) = bench(&test_name!()) else { return };
    let commit = host.repository("api").commit("build.txt", "good");
    bench.settings.git_silence = Duration::from_secs(1);
    let builds = bench.open().await;
    host.hang();
    let failure = failed(&builds, &order(&bench, &host, 1, &commit, "deploy")).await;
    assert_eq!(failure.reason.as_str(), Reason::SOURCE_UNREACHABLE, "{failure:?}");
    assert!(failure.message.contains("timed out"), "ssh's own word, and not git's advice: {failure:?}");
}
