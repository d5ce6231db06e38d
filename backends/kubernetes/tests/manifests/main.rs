//! The committed manifests, and the generated files of the Helm chart, are what the code prints.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{fs, path::Path};

use rollhook_kubernetes::{builds, manifests};

/// The image in `manifests/server.yaml`: none is published yet, so that operators build and keep their own.
const IMAGE: &str = "registry.example.com/rollhook-server:0.1.0";

#[test]
fn committed_manifests_are_those_that_the_code_prints() {
    let printed = [
        ("crds.yaml", manifests::crds()),
        ("rbac.yaml", manifests::rbac(manifests::NAMESPACE, &["shop-test".parse().unwrap()], false)),
        ("roles.yaml", manifests::roles()),
        ("builds.yaml", manifests::builds(manifests::NAMESPACE, builds::NAMESPACE, &[])),
        ("server.yaml", manifests::server(manifests::NAMESPACE, IMAGE, None, None)),
    ];
    let manifests = printed.map(|(name, text)| (Path::new("manifests").join(name), text));
    let chart = Path::new("../../packaging/helm/rollhook/generated");
    let generated = [("crds.yaml", manifests::crds()), ("access.yaml", manifests::chart())];
    let generated = generated.map(|(name, text)| (chart.join(name), text));
    for (path, text) in manifests.into_iter().chain(generated) {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        if std::env::var_os("ROLLHOOK_PRINT_MANIFESTS").is_some() {
            fs::write(&file, &text).unwrap();
        }
        let committed = fs::read_to_string(&file).unwrap_or_default();
        assert!(
            committed == text,
            "{} is not what the code prints; write it anew with \
             ROLLHOOK_PRINT_MANIFESTS=1 cargo test -p rollhook-kubernetes --test manifests, and look at the difference",
            file.display()
        );
    }
}
