//! Repositories that would use up the machine: each is refused before it has, by a sentence that names the limit.

use std::{fs, time::Duration};

use rollhook_command::{CheckoutLimits, DiskLimits};
use rollhook_core::deploy::Reason;
use rollhook_testing::fixtures::GitRepository;

use crate::bench::{Bench, built, failed, log};

/// Commits a directory, and returns the commit.
fn commit(repository: &GitRepository, tree: &str) -> String {
    repository.git(&["commit-tree", tree, "-m", "large"])
}

/// Makes a directory in which each of these names is the same object.
fn tree(repository: &GitRepository, kind: &str, object: &str, names: impl IntoIterator<Item = String>) -> String {
    let entries = names.into_iter().map(|name| format!("{kind} {object}\t{name}\n"));
    repository.git_with(&["mktree"], &entries.collect::<String>())
}

fn blob(repository: &GitRepository, content: &str) -> String {
    repository.git_with(&["hash-object", "-w", "--stdin"], content)
}

/// Commits these files, and returns the commit. A repository's own `commit` would have the content in its message.
fn commit_of(repository: &GitRepository, files: &[(&str, &str)]) -> String {
    let entries = files.iter().map(|(name, content)| format!("100644 blob {}\t{name}\n", blob(repository, content)));
    let tree = repository.git_with(&["mktree"], &entries.collect::<String>());
    commit(repository, &tree)
}

/// Refuses this commit, and returns the sentence.
async fn refused(bench: &Bench, commit: &str) -> String {
    let builds = bench.open().await;
    let order = bench.order(1, commit);
    let failure = failed(&builds, &order).await;
    assert_eq!(failure.reason.as_str(), Reason::BUILD_FAILED, "{failure:?}");
    let log = log(&builds, order.id).await;
    assert!(!log.contains(&format!("checked out {commit}")) && log.contains(&failure.message), "{log}");
    failure.message
}

#[tokio::test]
async fn directories_that_all_are_the_same_directory_are_refused_before_they_are_checked_out() {
    let bench = Bench::new();
    let names = || (0..10).map(|name| name.to_string());
    let mut bomb = tree(&bench.repository, "100644 blob", &blob(&bench.repository, "x"), names());
    for _ in 0..9 {
        bomb = tree(&bench.repository, "040000 tree", &bomb, names());
    }
    let message = refused(&bench, &commit(&bench.repository, &bomb)).await;
    assert!(message.contains("more than 500000 files and directories"), "{message}");
}

#[tokio::test]
async fn files_that_are_large_only_once_they_are_checked_out_are_refused() {
    let bench = Bench::new();
    let zeros = blob(&bench.repository, &"\0".repeat(16 << 20));
    let files = tree(&bench.repository, "100644 blob", &zeros, (0..300).map(|name| name.to_string()));
    let message = refused(&bench, &commit(&bench.repository, &files)).await;
    assert!(message.contains("larger than 4 GiB"), "{message}");
}

#[tokio::test]
async fn commit_within_the_limits_is_built() {
    let mut bench = Bench::new();
    bench.repository.commit("a/b/file", "text");
    let commit = bench.repository.commit("build.txt", "good");
    // a, a/b, a/b/file and build.txt.
    let limits = CheckoutLimits { bytes: 8, entries: 4, paths: 21, depth: 2, ..CheckoutLimits::default() };
    bench.settings.checkout = limits;
    let builds = bench.open().await;
    assert_eq!(built(&builds, &bench.order(1, &commit)).await, commit);
    builds.close().await;
    for (limits, named) in [
        (CheckoutLimits { bytes: 7, ..limits }, "larger than 7 bytes"),
        (CheckoutLimits { entries: 3, ..limits }, "more than 3 files"),
        (CheckoutLimits { paths: 20, ..limits }, "longer than 20 bytes"),
        (CheckoutLimits { depth: 1, ..limits }, "more than 1 directories"),
    ] {
        let other = Bench::new();
        other.repository.commit("a/b/file", "text");
        let commit = other.repository.commit("build.txt", "good");
        let other =
            Bench { settings: rollhook_command::Settings { checkout: limits, ..other.settings.clone() }, ..other };
        let message = refused(&other, &commit).await;
        assert!(message.contains(named), "{message}");
    }
}

#[tokio::test]
async fn fetch_ends_once_it_has_brought_too_much() {
    let mut bench = Bench::new();
    bench.settings.checkout.fetched = 1 << 20;
    // Digits that no compression makes much smaller.
    let mut state: u64 = 1;
    let content: String = (0..400_000)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            format!("{:08x}", state >> 32)
        })
        .collect();
    let commit = commit_of(&bench.repository, &[("build.txt", &content)]);
    let message = refused(&bench, &commit).await;
    assert!(message.contains("more than 1 MiB of disk space"), "{message}");
}

#[tokio::test]
async fn checkout_ends_once_it_has_written_too_much() {
    let mut bench = Bench::new();
    bench.settings.checkout.fetched = 1 << 20;
    let attributes = "*.txt text working-tree-encoding=UTF-32\n";
    let content = "x".repeat(1 << 20);
    let commit = commit_of(&bench.repository, &[(".gitattributes", attributes), ("build.txt", &content)]);
    let message = refused(&bench, &commit).await;
    assert!(message.contains("more than 2 MiB of disk space"), "{message}");
}

#[tokio::test]
async fn git_that_needs_too_much_memory_ends() {
    let mut bench = Bench::new();
    bench.settings.git_memory = 128 << 20;
    let commit = commit_of(&bench.repository, &[("build.txt", &"x".repeat(200 << 20))]);
    let message = refused(&bench, &commit).await;
    assert!(message.contains("more memory than 128 MiB"), "{message}");
}

#[tokio::test]
async fn nothing_is_fetched_onto_a_disk_that_is_nearly_full() {
    let mut bench = Bench::new();
    let commit = bench.repository.commit("build.txt", "good");
    bench.settings.disk = DiskLimits::below(u64::MAX);
    // A call to the host would never be answered.
    bench.settings.git_silence = Duration::from_secs(600);
    bench.host.hang();
    let message = refused(&bench, &commit).await;
    assert!(message.contains("nearly full"), "{message}");
    let builds = bench.open().await;
    assert!(!fs::exists(bench.path("builds").join(bench.order(1, &commit).id.to_string()).join("work")).unwrap());
    builds.close().await;
}
