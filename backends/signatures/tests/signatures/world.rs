//! A registry, an authority that vouches for whoever asks, and cosign.

use std::{fs, net::SocketAddr, sync::Arc};

use rollhook_core::{
    app::Namespace,
    image::ImageRef,
    ports::{ImageVerifier, Verified},
    requirement::Requirement,
};
use rollhook_registry::{HttpRegistry, LoginFiles, RegistrySettings};
use rollhook_signatures::SignatureVerifier;
use rollhook_testing::{
    Call,
    fixtures::{ImageRegistry, RegistryProgram, Signers},
    process::tool,
    skip, usually_or_long,
};
use serde_json::json;

/// The identity that signs.
pub(crate) const IDENTITY: &str =
    "issuer=https://issuer.test,subject=https://git.test/shop/api/.ci/release.yml@refs/tags/v1";
/// The builder that attestations name.
pub(crate) const BUILDER: &str = "https://ci.test/shop/builder@v1";
const OCI: &str = "application/vnd.oci.image";
/// The media type of a bundle.
pub(crate) const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";

pub(crate) struct World {
    registry: ImageRegistry,
    signers: Signers,
}

impl World {
    /// Starts a world, if its programs are there.
    pub(crate) fn start(test: &str, program: RegistryProgram) -> Option<Self> {
        if let Some(missing) = program.missing() {
            skip(test, missing);
            return None;
        }
        let signers = Signers::start(test)?;
        signers.set_identity(IDENTITY);
        let predicate = json!({
            "buildDefinition": {"buildType": "https://ci.test/v1"}, "runDetails": {"builder": {"id": BUILDER}},
        });
        fs::write(signers.file("predicate.json"), predicate.to_string()).unwrap();
        Some(Self { registry: ImageRegistry::start(program), signers })
    }

    /// Returns whether cosign of the version is there that signs this way. The older one signs in the long run alone, as it takes as
    /// long to build as all of the other: what it makes was recorded.
    pub(crate) fn knows(&self, test: &str, way: &str) -> bool {
        let program = format!("bin/cosign-{}", way.rsplit('-').next().unwrap());
        let is_left = program.ends_with('2') && usually_or_long(true, false);
        !is_left && tool(&program, test).is_some()
    }

    pub(crate) fn sign(&self, way: &str, image: &ImageRef, variables: &[(&str, &str)]) {
        self.signers.sign(way, &image.to_string(), variables);
    }

    /// Pushes an image, and returns its reference with its digest.
    pub(crate) fn image(&self, repository: &str) -> ImageRef {
        self.pushed(repository, "one")
    }

    /// Pushes another image than [`image`](Self::image).
    pub(crate) fn other_image(&self, repository: &str) -> ImageRef {
        self.pushed(repository, "two")
    }

    /// Pushes an image that differs from others by this text, which is its tag as well.
    pub(crate) fn pushed(&self, repository: &str, content: &str) -> ImageRef {
        let configuration = json!({
            "os": "linux", "architecture": "amd64", "rootfs": {"type": "layers", "diff_ids": []},
            "config": {"Env": [format!("IT={content}")]},
        });
        let configuration = configuration.to_string().into_bytes();
        let digest = self.registry.push_blob(repository, &configuration);
        let manifest = json!({
            "schemaVersion": 2, "mediaType": format!("{OCI}.manifest.v1+json"), "layers": [],
            "config": {"mediaType": format!("{OCI}.config.v1+json"), "digest": digest, "size": configuration.len()},
        });
        let media_type = format!("{OCI}.manifest.v1+json");
        let digest = self.registry.push_manifest(repository, content, &media_type, manifest.to_string().as_bytes());
        format!("{}/{repository}@{digest}", self.registry.address).parse().unwrap()
    }

    /// The address of the registry.
    pub(crate) fn registry(&self) -> SocketAddr {
        self.registry.address
    }

    /// Has something lie beside an image, as bundles do or at its tag, that looks like a signature and is none.
    pub(crate) fn push_unreadable(&self, image: &ImageRef, is_bundle: bool) {
        let (_, repository) = image.repository().split_once('/').unwrap();
        let blob = self.registry.push_blob(repository, b"{}");
        let kind = if is_bundle { BUNDLE } else { "application/vnd.dev.cosign.simplesigning.v1+json" };
        let empty = json!({"mediaType": format!("{OCI}.config.v1+json"), "digest": blob, "size": 2});
        let annotations = json!({"dev.cosignproject.cosign/signature": "AQID"});
        let layer = json!({"mediaType": kind, "digest": blob, "size": 2, "annotations": annotations});
        let media_type = format!("{OCI}.manifest.v1+json");
        let manifest = json!({"schemaVersion": 2, "mediaType": media_type, "config": empty, "layers": [layer]});
        let manifest = manifest.to_string().into_bytes();
        let tag = image.digest().unwrap().as_str().replace(':', "-");
        if !is_bundle {
            self.registry.push_manifest(repository, &format!("{tag}.sig"), &media_type, &manifest);
            return;
        }
        let digest = self.registry.push_manifest(repository, "unreadable", &media_type, &manifest);
        let listed = json!({"mediaType": media_type, "artifactType": BUNDLE, "digest": digest, "size": manifest.len()});
        let index = json!({"schemaVersion": 2, "mediaType": format!("{OCI}.index.v1+json"), "manifests": [listed]});
        self.registry.push_manifest(repository, &tag, &format!("{OCI}.index.v1+json"), index.to_string().as_bytes());
    }

    /// Has the signatures of an image lie beside another one as well.
    pub(crate) fn copy_signatures(&self, from: &ImageRef, to: &ImageRef) {
        let (_, repository) = from.repository().split_once('/').unwrap();
        let tag = |image: &ImageRef| image.digest().unwrap().as_str().replace(':', "-");
        for (ending, kind) in [("", "index"), (".sig", "manifest")] {
            let media_type = format!("{OCI}.{kind}.v1+json");
            let path = format!("/v2/{repository}/manifests/{}{ending}", tag(from));
            let found = Call::to(self.registry.address, "GET", &path).header("accept", &media_type).send();
            if found.status == 200 {
                self.registry.push_manifest(repository, &format!("{}{ending}", tag(to)), &media_type, &found.body);
            }
        }
    }

    /// Returns the words of a signer with this key.
    pub(crate) fn key(&self, file: &str) -> String {
        self.signers.key(file)
    }

    pub(crate) fn signed_by_key(&self, file: &str) -> Requirement {
        Requirement::new(vec![self.key(file).parse().unwrap()], None).unwrap()
    }

    /// Returns a verifier with a trust root of this world.
    pub(crate) fn verifier(&self, root: &str) -> SignatureVerifier {
        let root = fs::read_to_string(self.signers.file(root)).unwrap();
        verifier(Some(&root))
    }

    pub(crate) async fn verify(&self, image: &ImageRef, requirement: &Requirement) -> Verified {
        self.verify_with("root-times.json", image, requirement).await
    }

    pub(crate) async fn verify_with(&self, root: &str, image: &ImageRef, requirement: &Requirement) -> Verified {
        self.verifier(root).verify(&environment(), image, requirement).await.unwrap()
    }
}

pub(crate) fn environment() -> Namespace {
    "shop-test".parse().unwrap()
}

/// Returns a verifier that may call this machine.
pub(crate) fn verifier(root: Option<&str>) -> SignatureVerifier {
    let logins = LoginFiles::At("/nonexistent/config.json".into());
    let insecure = vec!["127.0.0.1".parse().unwrap()];
    let settings = RegistrySettings { logins, insecure, ..RegistrySettings::default() };
    SignatureVerifier::new(Arc::new(HttpRegistry::new(settings)), root).unwrap()
}
