//! Images that must be signed by a key before a real kubelet runs them, signed by real cosign.

use rollhook_testing::{fixtures::Signers, server, test_name};
use serde_json::json;

use crate::{
    containers::{answers, push},
    resolving::bed_of,
};

#[test]
fn image_signed_by_another_key_makes_no_pod_and_one_signed_by_the_named_key_runs() {
    let Some(signers) = Signers::start(&test_name!()) else { return };
    let Some(bed) = bed_of(server!(), &test_name!()) else { return };
    // The registry keeps what earlier runs have signed.
    let repository = format!("signed-{}", std::process::id());
    let (v1, _) = push(&bed, &format!("{repository}:v1"), "app-v1");
    let (v2, digest) = push(&bed, &format!("{repository}:v2"), "app-v2");
    let pinned = format!("{}@{digest}", v2.rsplit_once(':').unwrap().0);
    bed.kubectl.make("Deployment", "api", &v1, json!({ "replicas": 2 }));
    let policy = json!({ "settle": "1s", "require_signature": [signers.key("cosign.pub")] });
    let app = bed.adopt("Deployment", "api", policy);
    let before = bed.kubectl.generation("deployment/api");

    signers.sign_by_key("other", &pinned);
    let failed = bed.fails(&app, &v2);
    assert_eq!(failed["reason"], "image-not-signed", "{failed}");
    assert!(failed["message"].as_str().unwrap().contains("another key"), "{failed}");
    assert_eq!(bed.kubectl.generation("deployment/api"), before);
    assert_eq!(answers(&bed, "api"), ["version=v1", "version=v1"]);

    signers.sign_by_key("cosign", &pinned);
    let entry = bed.entry(&app, bed.succeeds(&app, &v2));
    assert_eq!(entry["digest"], digest, "{entry}");
    let by = entry["signed_by"][0].as_str().unwrap_or_else(|| panic!("{entry}"));
    assert!(by.starts_with("signature by key=sha256:"), "{entry}");
    assert_eq!(bed.kubectl.image("deployment/api"), format!("{v2}@{digest}"));
    assert_eq!(answers(&bed, "api"), ["version=v2", "version=v2"]);
}
