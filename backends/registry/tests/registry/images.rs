//! Images, as their documents, and a registry that has one.

use std::sync::Arc;

use rollhook_core::{
    app::Namespace,
    error::Result,
    image::{ImageLabels, ImageRef},
    ports::{Registry, Resolved, TagPage, TagQuery},
};
use rollhook_registry::{HttpRegistry, LoginFiles, PlatformLogins, RegistrySettings};
use rollhook_testing::fixtures::scripted::{Answer, Request, Server, digest};
use serde_json::{Map, Value, json};

pub(crate) const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(crate) const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const OCI_CONFIGURATION: &str = "application/vnd.oci.image.config.v1+json";

/// Returns labels by their full names.
pub(crate) fn named(labels: &ImageLabels) -> Map<String, Value> {
    let labels = [
        ("revision", &labels.revision),
        ("source", &labels.source),
        ("version", &labels.version),
        ("url", &labels.url),
    ];
    let named = labels
        .into_iter()
        .filter_map(|(name, value)| Some((format!("org.opencontainers.image.{name}"), Value::String(value.clone()?))));
    named.collect()
}

/// Returns a configuration with these labels.
pub(crate) fn configuration(architecture: &str, labels: Map<String, Value>) -> Vec<u8> {
    json!({
        "os": "linux", "architecture": architecture, "rootfs": {"type": "layers", "diff_ids": []},
        "config": {"Labels": labels, "Env": ["PATH=/bin"]},
    })
    .to_string()
    .into_bytes()
}

/// Returns the descriptor of a document.
pub(crate) fn descriptor(media_type: &str, document: &[u8]) -> Value {
    json!({"mediaType": media_type, "digest": digest(document), "size": document.len()})
}

/// Returns the manifest of an image with this configuration.
pub(crate) fn manifest(configuration: &[u8]) -> Vec<u8> {
    json!({
        "schemaVersion": 2, "mediaType": OCI_MANIFEST, "layers": [],
        "config": descriptor(OCI_CONFIGURATION, configuration),
    })
    .to_string()
    .into_bytes()
}

/// An image, as its documents.
#[derive(Clone)]
pub(crate) struct Image {
    pub(crate) manifest: Vec<u8>,
    pub(crate) configuration: Vec<u8>,
}

impl Image {
    pub(crate) fn new() -> Self {
        let configuration = configuration("amd64", Map::new());
        Self { manifest: manifest(&configuration), configuration }
    }

    pub(crate) fn digest(&self) -> String {
        digest(&self.manifest)
    }

    /// Returns the answer of a registry that has it.
    pub(crate) fn answer(&self, asked: &Request) -> Answer {
        if asked.path.contains("/manifests/") {
            let found = Answer::status(200).header("content-type", OCI_MANIFEST);
            return found.header("docker-content-digest", self.digest()).body(self.manifest.clone());
        }
        if asked.path.contains("/blobs/") {
            return Answer::status(200).body(self.configuration.clone());
        }
        Answer::status(200).body(r#"{"name": "api", "tags": ["v1"]}"#)
    }
}

/// A reader of servers on this machine.
pub(crate) struct Reader {
    pub(crate) registry: Arc<HttpRegistry>,
    environment: Namespace,
}

impl Reader {
    pub(crate) fn new(logins: LoginFiles) -> Self {
        let insecure = ["127.0.0.1", "127.0.0.2"].map(|host| host.parse().unwrap()).to_vec();
        let settings = RegistrySettings { logins, insecure, ..RegistrySettings::default() };
        Self::with(HttpRegistry::new(settings))
    }

    /// Returns a reader that has the logins of a platform beside these.
    pub(crate) fn on(platform: Arc<dyn PlatformLogins>, logins: LoginFiles) -> Self {
        let insecure = vec!["127.0.0.1".parse().unwrap()];
        let settings = RegistrySettings { logins, insecure, platform: Some(platform), ..RegistrySettings::default() };
        Self::with(HttpRegistry::new(settings))
    }

    /// Returns a reader of this backend.
    pub(crate) fn with(registry: HttpRegistry) -> Self {
        Self { registry: Arc::new(registry), environment: "shop-test".parse().unwrap() }
    }

    /// Returns a reader without logins.
    pub(crate) fn anonymous() -> Self {
        Self::new(LoginFiles::At("/nonexistent/config.json".into()))
    }

    /// Returns the same reader, asked by another environment.
    pub(crate) fn of(&self, environment: &str) -> Self {
        Self { registry: Arc::clone(&self.registry), environment: environment.parse().unwrap() }
    }

    pub(crate) async fn resolve(&self, image: &str) -> Result<Resolved> {
        self.registry.resolve(&self.environment, &image.parse().unwrap()).await
    }

    pub(crate) async fn tags(&self, repository: &str) -> Result<TagPage> {
        let repository: ImageRef = repository.parse().unwrap();
        self.registry.tags(&self.environment, &repository, &TagQuery { limit: 10, after: None }).await
    }
}

/// Returns the reference of an image at a server.
pub(crate) fn at(server: &Server) -> String {
    format!("{}/shop/api:v1", server.address)
}
