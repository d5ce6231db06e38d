//! Images that must be signed by a key before the machine runs them, signed by real cosign.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use rollhook_testing::{process::tool, server, test_name};
use serde_json::json;
use tempfile::TempDir;

use crate::{
    bench::{Bench, push},
    resolving::digest_of,
};

/// The keys of two signers, `cosign` and `other`, and the cosign that signs by them.
struct Signers {
    cosign: PathBuf,
    directory: TempDir,
}

impl Signers {
    /// Makes the keys. Without cosign, the test is reported as skipped.
    fn new(test: &str) -> Option<Self> {
        let (cosign, directory) = (tool("bin/cosign-3", test)?, tempfile::tempdir().unwrap());
        let signers = Self { cosign, directory };
        let root = signatures().join("src/recorded/root-times.json");
        std::fs::copy(root, signers.directory.path().join("root-times.json")).unwrap();
        signers.run(Command::new(&signers.cosign).args(["signing-config", "create", "--out", "none.json"]));
        for name in ["cosign", "other"] {
            let mut command = Command::new(&signers.cosign);
            signers.run(command.args(["generate-key-pair", "--output-key-prefix", name]).env("COSIGN_PASSWORD", ""));
        }
        Some(signers)
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }

    /// Signs an image, which is named by its digest, at its registry.
    fn sign(&self, key: &str, image: &str) {
        let mut command = Command::new(signatures().join("testbed/sign.sh"));
        let signs = command.args(["key-3", &self.path(""), image]).env("COSIGN_3", &self.cosign);
        self.run(signs.env("KEY", format!("{key}.key")));
    }

    fn run(&self, command: &mut Command) {
        let output = command.current_dir(self.directory.path()).output().unwrap();
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// The folder of the crate that verifies signatures.
fn signatures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../backends/signatures")
}

#[test]
fn image_runs_once_the_named_key_has_signed_it() {
    let Some(signers) = Signers::new(&test_name!()) else { return };
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let name = bench.name("web");
    bench.start(&name, &[], "app:v1");
    let key = std::fs::read_to_string(signers.path("cosign.pub")).unwrap();
    let policy = json!({ "settle": "1s", "require_signature": [format!("key={key}")] });
    let app = bench.register(&name, &json!({ "policy": policy }));
    let image = push(&bench.docker, "app:v2", &format!("{name}:v2"));
    let pinned = format!("{}@{}", image.rsplit_once(':').unwrap().0, digest_of(&bench, &image));
    let before = bench.inspect(&name).unwrap()["Id"].clone();

    let unsigned = bench.fails(&app, &image);
    assert_eq!(unsigned["reason"], "image-not-signed", "{unsigned}");
    signers.sign("other", &pinned);
    let foreign = bench.fails(&app, &image);
    assert_eq!(foreign["reason"], "image-not-signed", "{foreign}");
    assert!(foreign["message"].as_str().unwrap().contains("another key"), "{foreign}");
    assert_eq!((bench.version(&name), &bench.inspect(&name).unwrap()["Id"]), ("v1".to_owned(), &before));

    signers.sign("cosign", &pinned);
    let answer = bench.succeeds(&app, &image);
    let entry = bench.entry(&app, answer["revision"].as_u64().unwrap());
    let by = entry["signed_by"][0].as_str().unwrap_or_else(|| panic!("{entry}"));
    assert!(by.starts_with("signature by key=sha256:"), "{entry}");
    assert_eq!(bench.version(&name), "v2");
}

#[test]
fn environment_requires_what_no_app_of_it_loosens() {
    let Some(signers) = Signers::new(&test_name!()) else { return };
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let name = bench.name("web");
    bench.start(&name, &[], "app:v1");
    let app = bench.register(&name, &json!({ "policy": { "settle": "1s", "resolve": "off" } }));
    let shown = || bench.server.manage("GET", &app.path).expect(200).json();
    let [project, environment] = ["project", "environment"].map(|part| shown()[part].as_str().unwrap().to_owned());
    let key = format!("key={}", signers.path("cosign.pub"));
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
    let pinned = format!("{}@{}", image.rsplit_once(':').unwrap().0, digest_of(&bench, &image));
    signers.sign("cosign", &pinned);
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
