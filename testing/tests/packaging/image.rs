//! The images themselves: what they say of themselves, and what is in them.

use std::process::Command;

use rollhook_testing::{
    beds::{Kind, Kubectl},
    test_name, until,
};
use serde_json::{Value, json};

use crate::images::Image;

/// A namespace of the lent node, which goes with this. Without a node the test is reported as skipped.
pub(crate) struct Space(pub(crate) Kubectl);

impl Space {
    pub(crate) fn new(test: &str, name: &str) -> Option<Self> {
        let kubectl =
            Kubectl { state: Kind::Node.lent_for(test)?, namespace: format!("{name}-{}", std::process::id()) };
        kubectl.run(&["create", "namespace", &kubectl.namespace]);
        Some(Self(kubectl))
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the namespace\n{}", self.0.story());
        }
        self.0.remove_namespace();
    }
}

/// A pod as the profile `restricted` of Pod Security asks for, with nothing to write to but /tmp.
fn pod(image: &Image) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "rollhook" },
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "securityContext": { "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } },
            "containers": [{
                "name": "rollhook", "image": image.reference, "env": [{ "name": "ROLLHOOK_STORE", "value": "memory" },
                    { "name": "XDG_DATA_HOME", "value": "/tmp" }],
                "securityContext": {
                    "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": { "drop": ["ALL"] },
                },
                "volumeMounts": [{ "name": "tmp", "mountPath": "/tmp" }],
            }],
            "volumes": [{ "name": "tmp", "emptyDir": {} }],
        },
    })
}

#[test]
fn server_image_runs_as_nobodys_root_with_git_ssh_and_certificates() {
    let Some(space) = Space::new(&test_name!(), "image") else { return };
    let Space(kubectl) = &space;
    let image = Image::server(kubectl);
    let config = image.config()["config"].clone();
    assert_eq!(config["User"], "65532:65532");
    assert_eq!(config["Healthcheck"]["Test"], json!(["CMD", "/usr/bin/rollhook-server", "healthcheck"]));
    for label in ["title", "description", "licenses", "version", "revision"] {
        assert!(config["Labels"].get(format!("org.opencontainers.image.{label}")).is_some(), "{label}: {config}");
    }

    kubectl.run(&["label", "namespace", &kubectl.namespace, "pod-security.kubernetes.io/enforce=restricted"]);
    kubectl.create(&pod(image));
    kubectl.run(&["wait", "--for=condition=Ready", "pod/rollhook", "--timeout=120s"]);
    let execute =
        |command: &[&str]| kubectl.command(&[&["exec", "rollhook", "--"], command].concat()).output().unwrap();
    let says = |command: &[&str]| {
        let output = execute(command);
        let text = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&text));
        String::from_utf8(text).unwrap()
    };
    until("it is healthy", || execute(&["rollhook-server", "healthcheck"]).status.success());
    assert!(!execute(&["rollhook-server", "healthcheck", "--listen", "127.0.0.1:1"]).status.success());
    // ssh ends at once for a user without a line in /etc/passwd.
    assert!(says(&["ssh", "-G", "git.example.com"]).contains("\nuser rollhook\n"));
    assert!(says(&["rollhook", "--version"]).starts_with("rollhook "));
    let certificates = says(&["git", "config", "--file", "/dev/null", "--list"]);
    assert_eq!(certificates, "");
    let refused = execute(&["sh", "-c", "echo > /usr/bin/x"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("Read-only file system"));

    // git reads over https, and trusts by the image's certificates: this address is never reached.
    let unreached = execute(&["git", "ls-remote", "https://192.0.2.1:1/x.git"]);
    let told = String::from_utf8_lossy(&unreached.stderr).into_owned();
    assert!(told.contains("192.0.2.1") && !told.contains("CAfile") && !told.contains("remote-https"), "{told}");
}

#[test]
fn packages_that_files_were_taken_of_are_named_for_scanners() {
    let Some(space) = Space::new(&test_name!(), "image-packages") else { return };
    let listed = listing(Image::server(&space.0));
    for package in ["git", "libc6", "openssh-client", "libcurl3-gnutls", "ca-certificates"] {
        assert!(listed.contains(&format!("var/lib/dpkg/status.d/{package} ")), "{package}: {listed}");
    }
    for file in ["usr/bin/perl", "usr/bin/apt", "usr/bin/bash"] {
        assert!(!listed.contains(&format!("{file} ")), "{file}");
    }
}

#[test]
fn builder_image_gives_its_user_ids_for_the_steps_of_a_build() {
    let Some(space) = Space::new(&test_name!(), "image-builder") else { return };
    let builder = Image::build(&space.0, "builder");
    assert_eq!(builder.config()["config"]["Entrypoint"], json!(["/usr/bin/rollhook-build"]));
    let listed = listing(&builder);
    for line in [
        "usr/bin/newuidmap 0o755 0 capability",
        "usr/bin/newgidmap 0o755 0 capability",
        "usr/bin/buildctl 0o755 0 ",
        "usr/bin/buildkit-build 0o755 0 ",
        "usr/bin/buildkitd 0o755 0 ",
        "usr/bin/rollhook-build 0o755 0 ",
        "usr/bin/rootlesskit 0o755 0 ",
        "var/lib/rollhook 0o1777 0 ",
    ] {
        assert!(listed.contains(&format!("{line}\n")), "{line}: {listed}");
    }
}

/// Each file of an image with its mode, its owner and whether it has a capability, a line each.
fn listing(image: &Image) -> String {
    const LIST: &str = "import sys, tarfile
for f in tarfile.open(sys.argv[1]):
    print(f.name.lstrip('./'), oct(f.mode), f.uid, 'capability' if 'SCHILY.xattr.security.capability' in f.pax_headers else '')";
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("layer");
    image.layer(&file);
    let listed = Command::new("python3").args(["-c", LIST]).arg(&file).output().unwrap();
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    String::from_utf8(listed.stdout).unwrap()
}
