//! Disks with little space left.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use rollhook_testing::{Start, fixtures::GitHost, server, test_name, until};
use serde_json::json;

use crate::{
    bench::Bench,
    builds::{building, git_app},
    pulls::push_large,
};

/// Fills a disk up to so many bytes, and returns the file that does.
pub(crate) fn fill(disk: &Path, left: u64) -> PathBuf {
    let path = disk.join("rest");
    let mut file = fs::File::create(&path).unwrap();
    let mut written = 0;
    while file.write_all(&[1; 64 * 1024]).is_ok() {
        written += 64 * 1024;
    }
    file.set_len(written - left).unwrap();
    path
}

/// The server on a disk of 100 MiB counts 48 MiB as little, and refuses to fill the last 12.
fn small_disk(start: Start, test: &str) -> Option<Bench> {
    Bench::small_disk(start.variable("ROLLHOOK_LOW_DISK", "48m"), test)
}

/// Fills the disk so far that images are refused, and one that is there still fits.
fn fill_to_the_last(bench: &Bench) -> PathBuf {
    fill(&bench.docker.state.join("data"), 11 << 20)
}

fn images_are_low(bench: &Bench) -> bool {
    bench.server.counted(r#"rollhook_disk_low{of="images"}"#) == 1
}

/// The console's first page.
fn console(bench: &Bench) -> String {
    let sign_in = bench.server.call("POST", "/sign-in").header("sec-fetch-site", "same-origin");
    let sign_in = sign_in.header("content-type", "application/x-www-form-urlencoded");
    let reply = sign_in.body(format!("token={}&name=Ada", bench.server.admin).as_bytes()).expect(303);
    let cookie = reply.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    bench.server.call("GET", "/").header("cookie", &cookie).expect(200).text()
}

#[test]
fn little_disk_space_is_told_and_no_image_is_pulled_onto_the_rest() {
    let Some(bench) = small_disk(server!(), &test_name!()) else { return };
    let name = bench.name("web");
    bench.start(&name, &["--restart", "unless-stopped"], "app:v1");
    let before = bench.inspect(&name).unwrap();
    let app = bench.register(&name, &json!({}));
    let image = format!("{}/{}", bench.docker.registry(), push_large(&bench, &name));
    until("the size is told", || bench.server.counted(r#"rollhook_disk_size_bytes{of="images"}"#) == 100 << 20);
    assert!(!images_are_low(&bench));
    let notice = "Little disk space is left for images";
    assert!(!console(&bench).contains(notice));

    let rest = fill_to_the_last(&bench);
    until("little space is told", || images_are_low(&bench));
    assert!(console(&bench).contains(notice));
    let failed = bench.fails(&app, &image);
    assert_eq!(failed["reason"], "disk-full", "{failed}");
    let message = failed["message"].as_str().unwrap();
    assert!(message.contains("nearly full") && message.contains("docker system df"), "{failed}");
    let after = bench.inspect(&name).unwrap();
    assert_eq!((&after["Id"], &after["State"]["StartedAt"]), (&before["Id"], &before["State"]["StartedAt"]));

    // Images that are on the machine need no room.
    bench.succeeds(&app, "app:v2");
    bench.roll_back(&app);
    assert_eq!(bench.version(&name), "v1");

    fs::remove_file(rest).unwrap();
    bench.succeeds(&app, &image);
    until("enough space is told", || !images_are_low(&bench));
    assert!(!console(&bench).contains(notice));
    let log = bench.server.log();
    for line in ["little disk space is left", "enough disk space is left again"] {
        assert_eq!(log.matches(line).count(), 1, "{line}: {log}");
    }
}

#[test]
fn no_image_is_built_onto_the_rest_of_a_disk() {
    let Some(bench) = small_disk(building(server!()), &test_name!()) else { return };
    let host = GitHost::start();
    let commit = host.repository("web").commit("Dockerfile", "FROM app:v1\n");
    let app = git_app(&bench, &host, &bench.name("web"));
    let rest = fill_to_the_last(&bench);
    let build =
        |key: &str| bench.server.post(&app, &json!({ "commit": commit })).header("idempotency-key", key).repeat();
    let refused = build("full");
    assert_eq!(refused.status, 424, "{}", refused.text());
    let failed = &refused.json()["deploy"];
    assert_eq!(failed["reason"], "build-failed", "{failed}");
    assert!(failed["message"].as_str().unwrap().contains("nearly full"), "{failed}");
    fs::remove_file(rest).unwrap();
    assert_eq!(build("room").status, 200);
}

#[test]
fn images_that_no_rollback_needs_are_removed_once_little_space_is_left() {
    let start = building(server!()).variable("ROLLHOOK_KEEP_IMAGES", "0");
    let Some(mut bench) = Bench::lent(start, &test_name!()) else { return };
    let host = GitHost::start();
    let repository = host.repository("web");
    repository.commit("Dockerfile", "FROM app:v1\nCOPY version /www/version\n");
    let name = bench.name("web");
    let app = git_app(&bench, &host, &name);
    let commits = ["one", "two", "three"].map(|version| {
        let commit = repository.commit("version", &format!("{name} {version}\n"));
        let call = bench.server.post(&app, &json!({ "commit": commit })).header("idempotency-key", &commit);
        assert_eq!(call.repeat().status, 200);
        commit
    });
    let tags = |bench: &Bench| bench.docker.run(&["images", "--format", "{{.Tag}}", &format!("{name}/web")]);
    assert!(commits.iter().all(|commit| tags(&bench).contains(commit)), "{}", tags(&bench));
    // No disk has as much free.
    let start = bench.server.recipe().variable("ROLLHOOK_KEEP_IMAGES", "2").variable("ROLLHOOK_LOW_DISK", "99999t");
    bench.server.down();
    bench.server = start.run();
    until("the first image is gone", || !tags(&bench).contains(&commits[0]));
    let left = tags(&bench);
    assert!(left.contains(&commits[1]) && left.contains(&commits[2]), "{left}");
    bench.roll_back(&app);
    assert_eq!(bench.version(&name), format!("{name} two"));
}
