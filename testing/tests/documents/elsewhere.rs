//! The commands that cannot be run by these tests, and what is tested in their place.

/// Page, beginning of the command, reason.
pub(crate) const ELSEWHERE: &[(&str, &str, &str)] = &[
    (
        "docs/install.md",
        "kubectl port-forward service/rollhook",
        "simulated pods take no connection; the service and its port are looked up in place of it",
    ),
    (
        "docs/install.md",
        "systemctl daemon-reload",
        "no systemd runs where tests do; packaging/machine.rs verifies unit and drop-ins by systemd-analyze",
    ),
    (
        "docs/install.md",
        "docker build -f packaging/image/Dockerfile",
        "its base images are in a registry; packaging/image.rs builds the file by BuildKit from its own",
    ),
    (
        "docs/install.md",
        "docker compose -f packaging/compose.yaml up",
        "Docker has no compose here; packaging/machine.rs checks the file by the specification",
    ),
    ("docs/install.md", "docker compose -f packaging/compose.yaml exec", "as the one before it"),
    ("docs/install.md", "cosign verify $by", "it asks the public log of signatures about a release's image"),
    ("docs/install.md", "cosign verify-blob $by", "it asks the public log of signatures about a release's files"),
    (
        "docs/install.md",
        "gh attestation verify \"rollhook-",
        "it asks GitHub about a release; release.rs checks what the workflow attests",
    ),
    ("docs/install.md", "gh attestation verify \"oci:", "as the one before it"),
    ("docs/keyless.md", "gh api repos/", "it asks GitHub"),
    (
        "docs/following.md",
        "rollhook app set api --follow",
        "the simulated cluster pulls no images; tests/docker/following.rs of the server follows a real registry",
    ),
    ("docs/following.md", "rollhook app set api --poll", "as the one before it"),
    ("docs/following.md", "rollhook app show api", "as the one before it"),
    (
        "docs/registries.md",
        "rollhook app set api --require-signature key",
        "the simulated cluster pulls no images; tests/docker/signed.rs of the server requires a real signature",
    ),
    ("docs/registries.md", "rollhook app set api --require-signature 'issuer", "as the one before it"),
    ("docs/registries.md", "rollhook app set api --require-attestation", "as the one before it"),
    ("docs/registries.md", "rollhook app set api --require-signature off", "as the one before it"),
    (
        "docs/registries.md",
        "rollhook requirement set -p shop -e prod --require-signature key",
        "as the one before it; tests/docker/signed.rs of the server requires it of an environment",
    ),
    ("docs/registries.md", "rollhook requirement set -p shop --whole-project", "as the one before it"),
    ("docs/registries.md", "rollhook requirement list", "as the one before it"),
    ("docs/registries.md", "rollhook requirement remove -p shop -e prod", "as the one before it"),
    ("docs/registries.md", "digest=$(docker buildx", "it asks a registry about an image of the reader's"),
    (
        "docs/registries.md",
        "cosign sign --yes --key",
        "it signs an image of the reader's; the tests of signatures run cosign in each of the ways",
    ),
    ("docs/registries.md", "cosign sign --yes registry", "as the one before it"),
    ("docs/registries.md", "curl --fail", "the deploy behind it; docs/ci.md has the whole call"),
    (
        "docs/one-machine.md",
        "systemctl daemon-reload",
        "no systemd runs where tests do; packaging/machine.rs verifies unit and drop-ins by systemd-analyze",
    ),
    (
        "docs/running.md",
        "docker build -f packaging/image/Dockerfile",
        "its base images are in a registry; packaging/image.rs builds the file by BuildKit from its own",
    ),
    (
        "docs/running.md",
        "docker run -d",
        "it runs the image of the one before it; packaging/image.rs runs that read-only, with /tmp, on a kubelet",
    ),
    ("docs/runbook/engine-stuck.md", "kubectl top pod", "the cluster has no metrics server"),
];

/// Returns whether a command of a page is run elsewhere.
pub(crate) fn is_elsewhere(page: &str, statement: &str) -> bool {
    ELSEWHERE.iter().any(|(of, command, _)| *of == page && statement.starts_with(command))
}
