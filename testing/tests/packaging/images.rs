//! The images, built once for all tests of this process, by BuildKit on the lent node.

use std::{fs, path::Path, process::Command, sync::OnceLock};

use rollhook_testing::{
    beds::{Kubectl, script},
    process::program,
};
use serde_json::Value;
use tempfile::TempDir;

/// An image in the node's registry.
pub(crate) struct Image {
    pub(crate) reference: String,
    pub(crate) digest: String,
}

impl Image {
    /// Returns the server's image.
    pub(crate) fn server(kubectl: &Kubectl) -> &'static Self {
        static SERVER: OnceLock<Image> = OnceLock::new();
        SERVER.get_or_init(|| Self::build(kubectl, "server"))
    }

    /// Builds a target of the Dockerfile of the programs that were built with this test.
    pub(crate) fn build(kubectl: &Kubectl, target: &str) -> Self {
        static PROGRAMS: OnceLock<TempDir> = OnceLock::new();
        let programs = PROGRAMS.get_or_init(programs).path();
        let built = Command::new(script("node/image.sh")).arg(&kubectl.state).arg(target).arg(programs).output();
        let built = built.unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let printed = String::from_utf8(built.stdout).unwrap().trim().to_owned();
        let digest = printed.split_once('@').unwrap().1.to_owned();
        Self { reference: printed, digest }
    }

    /// The registry and the repository.
    pub(crate) fn repository(&self) -> &str {
        self.reference.split_once('@').unwrap().0
    }

    /// The image's configuration.
    pub(crate) fn config(&self) -> Value {
        let manifest: Value = serde_json::from_slice(&self.read("manifests", &self.digest)).unwrap();
        serde_json::from_slice(&self.read("blobs", manifest["config"]["digest"].as_str().unwrap())).unwrap()
    }

    /// Writes the files of the image to a tar archive. It has one layer.
    pub(crate) fn layer(&self, file: &Path) {
        let manifest: Value = serde_json::from_slice(&self.read("manifests", &self.digest)).unwrap();
        let layers = manifest["layers"].as_array().unwrap();
        assert_eq!(layers.len(), 1, "{manifest}");
        fs::write(file, self.read("blobs", layers[0]["digest"].as_str().unwrap())).unwrap();
    }

    fn read(&self, kind: &str, digest: &str) -> Vec<u8> {
        let (registry, path) = self.repository().split_once('/').unwrap();
        let accepts =
            "accept: application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json";
        let url = format!("http://{registry}/v2/{path}/{kind}/{digest}");
        let read = Command::new("curl").args(["-sSf", "--noproxy", "*", "-H", accepts, &url]).output().unwrap();
        assert!(read.status.success(), "{url}: {}", String::from_utf8_lossy(&read.stderr));
        read.stdout
    }
}

/// The programs without their symbols, in a directory of this machine's architecture.
fn programs() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let place = directory.path().join(architecture);
    fs::create_dir(&place).unwrap();
    let server = program("rollhook-server", "rollhook-server");
    let cli = program("rollhook-cli", "rollhook");
    let builder = program("rollhook-command", "rollhook-build");
    for built in [server, cli, builder] {
        let strip = Command::new("strip").arg("-o").arg(place.join(built.file_name().unwrap())).arg(&built).status();
        assert!(strip.unwrap().success(), "{}", built.display());
    }
    directory
}
