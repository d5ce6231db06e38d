//! Images that must be signed by a key or an identity before the machine runs them, signed by real cosign.

use rollhook_testing::{fixtures::Signers, server, test_name};
use serde_json::json;

use crate::{
    bench::{Bench, push},
    resolving::digest_of,
};

/// The identities of two pipelines of one issuer.
const OF_API: &str = "issuer=https://issuer.test,subject=https://git.test/shop/api/.ci/release.yml@refs/tags/v1";
const OF_WEB: &str = "issuer=https://issuer.test,subject=https://git.test/shop/web/.ci/release.yml@refs/tags/v1";

/// Returns a pushed image by its digest alone, as it is signed.
fn pinned(bench: &Bench, image: &str) -> String {
    format!("{}@{}", image.rsplit_once(':').unwrap().0, digest_of(bench, image))
}

#[test]
fn image_runs_once_the_named_key_has_signed_it() {
    let Some(signers) = Signers::start(&test_name!()) else { return };
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let name = bench.name("web");
    bench.start(&name, &[], "app:v1");
    let policy = json!({ "settle": "1s", "require_signature": [signers.key("cosign.pub")] });
    let app = bench.register(&name, &json!({ "policy": policy }));
    let image = push(&bench.docker, "app:v2", &format!("{name}:v2"));
    let pinned = pinned(&bench, &image);
    let before = bench.inspect(&name).unwrap()["Id"].clone();

    let unsigned = bench.fails(&app, &image);
    assert_eq!(unsigned["reason"], "image-not-signed", "{unsigned}");
    signers.sign_by_key("other", &pinned);
    let foreign = bench.fails(&app, &image);
    assert_eq!(foreign["reason"], "image-not-signed", "{foreign}");
    assert!(foreign["message"].as_str().unwrap().contains("another key"), "{foreign}");
    assert_eq!((bench.version(&name), &bench.inspect(&name).unwrap()["Id"]), ("v1".to_owned(), &before));

    signers.sign_by_key("cosign", &pinned);
    let answer = bench.succeeds(&app, &image);
    let entry = bench.entry(&app, answer["revision"].as_u64().unwrap());
    let by = entry["signed_by"][0].as_str().unwrap_or_else(|| panic!("{entry}"));
    assert!(by.starts_with("signature by key=sha256:"), "{entry}");
    assert_eq!(bench.version(&name), "v2");
}

#[test]
fn image_runs_once_the_named_identity_of_the_trust_root_has_signed_it() {
    let Some(signers) = Signers::start(&test_name!()) else { return };
    let root = signers.file("root-times.json");
    let start = server!().arguments(["--signature-root", root.to_str().unwrap()]);
    let Some(bench) = Bench::lent(start, &test_name!()) else { return };
    let name = bench.name("web");
    bench.start(&name, &[], "app:v1");
    let app = bench.register(&name, &json!({ "policy": { "settle": "1s", "require_signature": [OF_API] } }));
    let image = push(&bench.docker, "app:v2", &format!("{name}:v2"));
    let pinned = pinned(&bench, &image);
    let before = bench.inspect(&name).unwrap()["Id"].clone();

    signers.sign_as(OF_WEB, &pinned);
    let foreign = bench.fails(&app, &image);
    assert_eq!(foreign["reason"], "image-not-signed", "{foreign}");
    let message = foreign["message"].as_str().unwrap();
    assert!(message.contains(&format!("a signature by {OF_WEB}")), "{foreign}");
    assert_eq!((bench.version(&name), &bench.inspect(&name).unwrap()["Id"]), ("v1".to_owned(), &before));

    signers.sign_as(OF_API, &pinned);
    let answer = bench.succeeds(&app, &image);
    let entry = bench.entry(&app, answer["revision"].as_u64().unwrap());
    assert_eq!(entry["signed_by"], json!([format!("signature by {OF_API}")]), "{entry}");
    assert_eq!(bench.version(&name), "v2");
}

#[test]
fn environment_requires_what_no_app_of_it_loosens() {
    let Some(signers) = Signers::start(&test_name!()) else { return };
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let name = bench.name("web");
    bench.start(&name, &[], "app:v1");
    let app = bench.register(&name, &json!({ "policy": { "settle": "1s", "resolve": "off" } }));
    let shown = || bench.server.manage("GET", &app.path).expect(200).json();
    let [project, environment] = ["project", "environment"].map(|part| shown()[part].as_str().unwrap().to_owned());
    let key = format!("key={}", signers.file("cosign.pub").display());
    let set = format!("requirement set -p {project} -e {environment} --require-signature {key}");
    let set = bench.cli().run(&set).ok();
    assert!(set.out.contains("must be signed by key=sha256:"), "{set:?}");
    let listed = bench.cli().run("requirement list").ok();
    assert!(listed.out.contains(&environment) && listed.out.contains("signed by key=sha256:"), "{listed:?}");
    assert_eq!(shown()["requirements"][0]["on"], "environment");

    let image = push(&bench.docker, "app:v2", &format!("{name}:v2"));
    let unsigned = bench.fails(&app, &image);
    assert_eq!(unsigned["reason"], "image-not-signed", "{unsigned}");
    assert!(unsigned["message"].as_str().unwrap().starts_with("The environment requires"), "{unsigned}");
    assert_eq!(bench.version(&name), "v1");
    signers.sign_by_key("cosign", &pinned(&bench, &image));
    bench.succeeds(&app, &image);
    assert_eq!(bench.version(&name), "v2");

    let path = format!("/api/v1/requirements/{project}/{environment}");
    let empty = bench.server.manage("PUT", &path).json(&json!({})).expect(422).json();
    assert!(empty["detail"].as_str().unwrap().contains("names a signer or an attestation"), "{empty}");
    let ended = bench.cli().run(&format!("requirement remove -p {project} -e {environment}")).ok();
    assert_eq!(ended.out, format!("Ended the requirement on project {project}, environment {environment}\n"));
    let unsigned = push(&bench.docker, "app:v1", &format!("{name}:v3"));
    bench.succeeds(&app, &unsigned);
    assert_eq!(bench.version(&name), "v1");
}
