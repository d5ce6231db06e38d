//! Images whose tags become digests at the machine's registry before anything is touched.

use std::{fs, process::Command};

use rollhook_testing::{App, Reply, beds::script, server, test_name, until};
use serde_json::{Value, json};

use crate::bench::{Bench, push};

/// The commit that labelled images say they were built from.
const COMMIT: &str = "4f1a77b08c2d3e5f6a7b8c9d0e1f2a3b4c5d6e7f";

/// The image that a container was made of, as its maker named it.
pub(crate) fn image_of(bench: &Bench, container: &str) -> String {
    bench.inspect(container).unwrap()["Config"]["Image"].as_str().unwrap().to_owned()
}

/// The digest by which the registry knows what was pushed under this name.
pub(crate) fn digest_of(bench: &Bench, image: &str) -> String {
    bench.docker.run(&["pull", "-q", image]);
    let named = bench.docker.run(&["image", "inspect", "--format", "{{join .RepoDigests \" \"}}", image]);
    let repository = image.rsplit_once(':').unwrap().0;
    let own = named.split_whitespace().find_map(|name| name.strip_prefix(&format!("{repository}@"))).unwrap();
    own.to_owned()
}

/// Pushes `app:v2` with a label that names [`COMMIT`] to the registry, and returns the reference with the registry.
pub(crate) fn push_labelled(bench: &Bench, name: &str) -> String {
    let (maker, image) = (bench.name("maker"), bench.name("labelled"));
    let label = format!("LABEL org.opencontainers.image.revision={COMMIT}");
    bench.docker.run(&["create", "--name", &maker, "app:v2"]);
    bench.docker.run(&["commit", "--change", &label, &maker, &image]);
    bench.docker.run(&["rm", &maker]);
    let pushed = push(&bench.docker, &image, name);
    bench.docker.run(&["rmi", &image]);
    pushed
}

/// CI's call for an image with this commit, or with none, repeated until the deploy has ended.
fn deploy_built_from(bench: &Bench, app: &App, image: &str, commit: Option<&str>) -> Reply {
    let mut body = json!({ "image": image });
    if let Some(commit) = commit {
        body["commit"] = json!(commit);
    }
    let key = commit.unwrap_or("without-commit");
    bench.server.post(app, &body).header("idempotency-key", key).repeat()
}

fn stored(entry: &Value) -> &str {
    entry["not_resolved"].as_str().unwrap_or_else(|| panic!("{entry}"))
}

#[test]
fn tag_is_deployed_by_the_digest_that_it_had() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let name = bench.name("web");
    bench.start(&name, &[], "app:v1");
    let app = bench.register(&name, &json!({}));
    let image = push(&bench.docker, "app:v2", &format!("{name}:stable"));
    bench.succeeds(&app, &image);
    let digest = digest_of(&bench, &image);
    let entry = bench.entry(&app, 2);
    assert_eq!((&entry["digest"], &entry["image"]), (&json!(digest), &json!(image)), "{entry}");
    assert_eq!(entry["not_resolved"], Value::Null);
    assert_eq!((image_of(&bench, &name), bench.version(&name)), (format!("{image}@{digest}"), "v2".to_owned()));
    // Other bits are pushed under the tag, and the version before is what it was.
    push(&bench.docker, "app:v1", &format!("{name}:stable"));
    bench.succeeds(&app, &image);
    assert_eq!(bench.version(&name), "v1");
    bench.roll_back(&app);
    assert_eq!((image_of(&bench, &name), bench.version(&name)), (format!("{image}@{digest}"), "v2".to_owned()));
}

#[test]
fn tag_that_moves_while_its_deploy_rolls_out_changes_nothing_of_it() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let name = bench.name("web");
    bench.start(&name, &[], "app:v1");
    let app = bench.register(&name, &json!({ "policy": { "settle": "5s" } }));
    let image = push(&bench.docker, "app:v2", &format!("{name}:stable"));
    let digest = digest_of(&bench, &image);
    bench.post(&app, &image).expect(202);
    until("it rolls out", || bench.entry(&app, 2)["status"] == "rolling_out");
    push(&bench.docker, "app:v1", &format!("{name}:stable"));
    let ended = bench.ended(&app, 2);
    assert_eq!((&ended["status"], &ended["digest"]), (&json!("succeeded"), &json!(digest)), "{ended}");
    assert_eq!(ended["not_resolved"], Value::Null);
    assert_eq!((image_of(&bench, &name), bench.version(&name)), (format!("{image}@{digest}"), "v2".to_owned()));
    // The same tag means the newer bits now, and a rollback the older ones.
    bench.succeeds(&app, &image);
    assert_eq!(bench.version(&name), "v1");
    bench.roll_back(&app);
    assert_eq!((image_of(&bench, &name), bench.version(&name)), (format!("{image}@{digest}"), "v2".to_owned()));
}

#[test]
fn tag_that_was_never_pushed_fails_with_the_nearest_and_touches_nothing() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let name = bench.name("web");
    bench.start(&name, &[], "app:v1");
    let before = bench.inspect(&name).unwrap();
    let app = bench.register(&name, &json!({}));
    let image = push(&bench.docker, "app:v2", &format!("{name}:v1.4.2"));
    let failed = bench.fails(&app, &image.replace("v1.4.2", "v1.42"));
    assert_eq!(failed["reason"], "image-not-found", "{failed}");
    assert!(failed["message"].as_str().unwrap().contains("nearest: v1.4.2"), "{failed}");
    let unknown = bench.fails(&app, &image.replace(&name, &bench.name("wbe")));
    assert!(unknown["message"].as_str().unwrap().contains("has no repository"), "{unknown}");
    let after = bench.inspect(&name).unwrap();
    assert_eq!((&after["Id"], &after["State"]["StartedAt"]), (&before["Id"], &before["State"]["StartedAt"]));
    assert_eq!(bench.containers(&name), [&*name]);
}

#[test]
fn image_that_only_the_machine_has_is_deployed_and_says_so() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let name = bench.name("web");
    bench.start(&name, &[], "app:v1");
    let app = bench.register(&name, &json!({}));
    let local = format!("{}/{name}:built-here", bench.docker.registry());
    bench.docker.run(&["tag", "app:v2", &local]);
    bench.succeeds(&app, &local);
    let entry = bench.entry(&app, 2);
    assert!(stored(&entry).contains("came from no registry"), "{entry}");
    assert_eq!((image_of(&bench, &name), bench.version(&name)), (local.clone(), "v2".to_owned()));
    // Its digest is known to nobody else.
    let require = json!({ "policy": { "resolve": "require" } });
    bench.server.manage("PATCH", &app.path).json(&require).expect(200);
    let failed = bench.fails(&app, &local);
    assert_eq!(failed["reason"], "image-not-resolved", "{failed}");
    assert_eq!(bench.version(&name), "v2");
    bench.docker.run(&["rmi", "-f", &local]);
}

#[test]
fn program_for_other_machines_fails_as_it_begins_with_the_platform_that_it_is_for() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let name = bench.name("web");
    bench.start(&name, &["--restart", "unless-stopped"], "app:v1");
    let app = bench.register(&name, &json!({}));
    let program = bench.server.file("app");
    fs::write(&program, [0x7f, b'E', b'L', b'F', 2, 1, 1, 0]).unwrap();
    let image = format!("{}/{name}:riscv", bench.docker.registry());
    let mut push = Command::new("python3");
    push.arg(script("../builder-image/mkimage.py")).arg(&image).arg(program);
    assert!(push.args(["--architecture", "riscv64", "--push"]).status().unwrap().success());
    let failed = bench.fails(&app, &image);
    let said = failed["message"].as_str().unwrap();
    assert!(said.contains(&format!("{image} is for linux/riscv64, as its registry says.")), "{failed}");
    bench.ended(&app, 3);
    assert_eq!(bench.version(&name), "v1");
}

#[test]
fn image_of_another_commit_than_the_posted_one_fails_where_they_must_match() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let name = bench.name("web");
    bench.start(&name, &[], "app:v1");
    let app = bench.register(&name, &json!({}));
    bench.cli().run(&format!("app set {name} --commit must-match")).ok();
    let image = push_labelled(&bench, &format!("{name}:v2"));
    let before = bench.inspect(&name).unwrap()["Id"].clone();

    let answer = deploy_built_from(&bench, &app, &image, Some("abc123f"));
    assert_eq!(answer.status, 424, "{}", answer.text());
    let failed = bench.entry(&app, 2);
    assert_eq!(failed["reason"], "commit-mismatch", "{failed}");
    let message = failed["message"].as_str().unwrap();
    assert!(message.contains(COMMIT) && message.contains("abc123f"), "{failed}");
    assert_eq!((bench.version(&name), &bench.inspect(&name).unwrap()["Id"]), ("v1".to_owned(), &before));

    let answer = deploy_built_from(&bench, &app, &image, Some(&COMMIT[..7]));
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(bench.version(&name), "v2");
}

#[test]
fn entry_without_a_posted_commit_has_the_one_of_its_images_label() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let name = bench.name("web");
    bench.start(&name, &[], "app:v1");
    let app = bench.register(&name, &json!({}));
    let image = push_labelled(&bench, &format!("{name}:v2"));
    let answer = deploy_built_from(&bench, &app, &image, None);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(bench.version(&name), "v2");
    let entry = bench.entry(&app, 2);
    assert_eq!((&entry["labels"]["revision"], &entry["commit"]), (&json!(COMMIT), &Value::Null), "{entry}");
    let shown = bench.cli().run(&format!("app history {name} --revision 2")).ok();
    assert!(shown.out.contains(&format!("{COMMIT} (as the image says)")), "{shown:?}");
}
