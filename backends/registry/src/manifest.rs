//! Manifests, indexes and configurations of images: pure. Only what is used of them is read, so that a long one takes
//! little memory.

use std::collections::BTreeMap;

use http::{HeaderMap, header::CONTENT_TYPE};
use rollhook_core::{
    image::{Digest, ImageLabels, Platform},
    text::json_values,
};
use serde::{Deserialize, de::IgnoredAny};

use crate::artifacts::{Artifact, Part};

/// The forms that are asked for: those of the OCI image specification, and Docker's own before it.
pub(crate) const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.v2+json";

const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEXES: [&str; 2] = [OCI_INDEX, "application/vnd.docker.distribution.manifest.list.v2+json"];
const MANIFESTS: [&str; 2] = [OCI_MANIFEST, "application/vnd.docker.distribution.manifest.v2+json"];
const CONFIGURATIONS: [&str; 2] =
    ["application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json"];
/// The begin of the media types of Docker's first schema.
const FIRST_SCHEMA: &str = "application/vnd.docker.distribution.manifest.v1+";
/// The annotation of what BuildKit adds to an index that is no image, such as an attestation.
const REFERENCE: &str = "vnd.docker.reference.type";
/// The most JSON values of a document: in memory they take many times its bytes.
const VALUES_MAX: usize = 50_000;
/// The most artifacts of a list, and parts of an artifact.
const PARTS_MAX: usize = 1_000;
/// The most platforms of an image.
const PLATFORMS_MAX: usize = 100;

/// The reason why a document is no image's, as the end of a sentence about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// It is none that an image has.
    Document(&'static str),
    /// It has the form of Docker's first schema.
    FirstSchema,
}

/// A manifest or an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) media_type: String,
    pub(crate) labels: ImageLabels,
    pub(crate) content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// The platforms of an index, and the digest of its first image.
    Index { platforms: Vec<Platform>, first: Option<Digest> },
    /// The configuration of an image.
    Image { configuration: Digest, size: u64 },
    /// Something else that registries keep, such as a chart.
    Other,
}

/// The configuration of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Configuration {
    pub(crate) platform: Option<Platform>,
    labels: BTreeMap<String, String>,
}

impl Configuration {
    /// The labels, by their names.
    pub(crate) fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.labels.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

type Annotations = Option<BTreeMap<String, String>>;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    media_type: Option<String>,
    config: Option<Descriptor>,
    layers: Option<IgnoredAny>,
    manifests: Option<Vec<Descriptor>>,
    annotations: Annotations,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    #[serde(default)]
    media_type: String,
    digest: Digest,
    size: u64,
    platform: Option<PlatformDocument>,
    annotations: Annotations,
}

#[derive(Deserialize)]
struct PlatformDocument {
    os: Option<String>,
    architecture: Option<String>,
    variant: Option<String>,
}

#[derive(Deserialize)]
struct ConfigurationDocument {
    os: Option<String>,
    architecture: Option<String>,
    variant: Option<String>,
    config: Option<Labels>,
}

#[derive(Deserialize)]
struct Labels {
    #[serde(rename = "Labels")]
    labels: Annotations,
}

#[derive(Deserialize)]
struct ReferrersDocument {
    manifests: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct ArtifactDocument {
    layers: Vec<serde_json::Value>,
    annotations: Annotations,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PartDocument {
    #[serde(default)]
    media_type: String,
    artifact_type: Option<String>,
    digest: Digest,
    size: u64,
    annotations: Annotations,
}

impl PlatformDocument {
    /// Returns the platform, unless it is none that anything runs on.
    fn platform(&self) -> Option<Platform> {
        let (os, architecture) = (self.os.as_deref()?, self.architecture.as_deref()?);
        Platform::new(os, architecture, self.variant.as_deref()).filter(|named| named.os() != "unknown")
    }
}

impl Descriptor {
    fn platform(&self) -> Option<Platform> {
        self.platform.as_ref()?.platform()
    }

    /// Returns whether it is that of an image, and not of what belongs to one.
    fn is_image(&self) -> bool {
        let is_reference = self.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(REFERENCE));
        !is_reference && (self.platform.is_none() || self.platform().is_some())
    }
}

fn texts(annotations: &Annotations) -> impl Iterator<Item = (&str, &str)> {
    annotations.iter().flatten().map(|(name, value)| (name.as_str(), value.as_str()))
}

/// Returns the media type that an answer names, without parameters.
pub(crate) fn media_type(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    text.split(';').next().map(str::trim)
}

/// Reads a manifest or an index; `named` is the media type of the answer.
pub(crate) fn read(named: Option<&str>, body: &[u8]) -> Result<Manifest, Unreadable> {
    if named.is_some_and(|named| named.starts_with(FIRST_SCHEMA)) {
        return Err(Unreadable::FirstSchema);
    }
    let document: Document = document(body).ok_or(Unreadable::Document("is no manifest of an image"))?;
    // A document of both kinds would be one image for this reader and another one for the next.
    let (is_index, is_manifest) =
        (document.manifests.is_some(), document.config.is_some() || document.layers.is_some());
    if is_index && is_manifest {
        return Err(Unreadable::Document("is a manifest and an index at once"));
    }
    let (own, kinds) = if is_index { (OCI_INDEX, INDEXES) } else { (OCI_MANIFEST, MANIFESTS) };
    let known = |text: &&str| INDEXES.contains(text) || MANIFESTS.contains(text);
    let said = [named, document.media_type.as_deref()].into_iter().flatten().filter(known);
    if said.clone().any(|text| !kinds.contains(&text)) {
        return Err(Unreadable::Document("has another form than it says"));
    }
    let media_type = document.media_type.as_deref().filter(known).or_else(|| said.clone().next()).unwrap_or(own);
    let labels = ImageLabels::default().or(texts(&document.annotations));
    let content = match (&document.manifests, &document.config) {
        (Some(manifests), _) => index(manifests),
        (None, Some(config)) if CONFIGURATIONS.contains(&config.media_type.as_str()) => {
            Content::Image { configuration: config.digest.clone(), size: config.size }
        }
        (None, Some(_)) => Content::Other,
        (None, None) => return Err(Unreadable::Document("is no manifest of an image")),
    };
    Ok(Manifest { media_type: media_type.to_owned(), labels, content })
}

fn index(manifests: &[Descriptor]) -> Content {
    let images = || manifests.iter().filter(|descriptor| descriptor.is_image());
    let mut platforms = Vec::new();
    for platform in images().filter_map(Descriptor::platform) {
        if platforms.len() < PLATFORMS_MAX && !platforms.contains(&platform) {
            platforms.push(platform);
        }
    }
    let first = images().find(|descriptor| MANIFESTS.contains(&descriptor.media_type.as_str()));
    Content::Index { platforms, first: first.map(|descriptor| descriptor.digest.clone()) }
}

/// Reads a configuration.
pub(crate) fn configuration(body: &[u8]) -> Option<Configuration> {
    let ConfigurationDocument { os, architecture, variant, config } = document(body)?;
    let labels = config.and_then(|config| config.labels).unwrap_or_default();
    Some(Configuration { platform: PlatformDocument { os, architecture, variant }.platform(), labels })
}

/// Reads a list of artifacts. One that cannot be read is left out: the others are as good as without it.
pub(crate) fn referrers(body: &[u8]) -> Option<Vec<Part>> {
    let ReferrersDocument { manifests } = document(body)?;
    Some(parts(manifests))
}

/// Reads an artifact, of which only the layers count.
pub(crate) fn artifact(body: &[u8]) -> Option<Artifact> {
    let ArtifactDocument { layers, annotations } = document(body)?;
    Some(Artifact { layers: parts(layers), annotations: annotations.unwrap_or_default() })
}

fn parts(documents: Vec<serde_json::Value>) -> Vec<Part> {
    let read = |document| serde_json::from_value::<PartDocument>(document).ok();
    let part = |document: PartDocument| Part {
        media_type: document.media_type,
        artifact_type: document.artifact_type,
        digest: document.digest,
        size: document.size,
        annotations: document.annotations.unwrap_or_default(),
    };
    documents.into_iter().take(PARTS_MAX).filter_map(read).map(part).collect()
}

fn document<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Option<T> {
    if json_values(body) > VALUES_MAX { None } else { serde_json::from_slice(body).ok() }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn digest(number: u8) -> String {
        format!("sha256:{number:064x}")
    }

    fn parsed(named: Option<&str>, document: &Value) -> Result<Manifest, Unreadable> {
        read(named, document.to_string().as_bytes())
    }

    fn image() -> Value {
        json!({
            "schemaVersion": 2,
            "config": {"mediaType": CONFIGURATIONS[0], "digest": digest(1), "size": 7},
            "layers": [{"mediaType": "x", "digest": "y", "size": 1}],
        })
    }

    #[test]
    fn index_of_buildkit_names_its_platforms_and_its_first_image() {
        let entry = |number, platform: Value| json!({"mediaType": OCI_MANIFEST, "digest": digest(number), "size": 1, "platform": platform});
        let mut attestation = entry(3, json!({"os": "unknown", "architecture": "unknown"}));
        attestation["annotations"] = json!({REFERENCE: "attestation-manifest"});
        let index = json!({
            "schemaVersion": 2,
            "mediaType": OCI_INDEX,
            "manifests": [
                attestation,
                entry(1, json!({"os": "linux", "architecture": "amd64"})),
                entry(2, json!({"os": "linux", "architecture": "arm", "variant": "v7"})),
                entry(4, json!({"os": "linux", "architecture": "amd64"})),
            ],
            "annotations": {"org.opencontainers.image.revision": "abc"},
        });
        let manifest = parsed(Some(OCI_INDEX), &index).unwrap();
        let Content::Index { platforms, first } = manifest.content else { panic!("{manifest:?}") };
        let names: Vec<String> = platforms.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["linux/amd64", "linux/arm/v7"]);
        assert_eq!(first.unwrap().as_str(), digest(1));
        assert_eq!(manifest.labels.revision.as_deref(), Some("abc"));
    }

    #[test]
    fn media_type_is_the_documents_own_or_else_the_answers() {
        let mut document = image();
        let media_type = |named, document: &Value| parsed(named, document).unwrap().media_type;
        assert_eq!(media_type(Some(MANIFESTS[1]), &document), MANIFESTS[1]);
        assert_eq!(media_type(None, &document), OCI_MANIFEST);
        assert_eq!(media_type(Some("application/json"), &document), OCI_MANIFEST);
        document["mediaType"] = json!(MANIFESTS[1]);
        assert_eq!(media_type(Some(OCI_MANIFEST), &document), MANIFESTS[1]);
    }

    #[test]
    fn document_of_another_form_is_no_image() {
        let mut both = image();
        both["manifests"] = json!([]);
        assert_eq!(parsed(None, &both), Err(Unreadable::Document("is a manifest and an index at once")));
        let other = Err(Unreadable::Document("has another form than it says"));
        assert_eq!(parsed(Some(OCI_INDEX), &image()), other);
        let mut liar = image();
        liar["mediaType"] = json!(INDEXES[1]);
        assert_eq!(parsed(Some(OCI_MANIFEST), &liar), other);
        let first = "application/vnd.docker.distribution.manifest.v1+prettyjws";
        assert_eq!(parsed(Some(first), &json!({"schemaVersion": 1})), Err(Unreadable::FirstSchema));
        for text in ["", "{}", "[]", "<html>", r#"{"config": {"digest": "../x", "size": 1}}"#, r#"{"config": {}}"#] {
            assert!(read(None, text.as_bytes()).is_err(), "{text}");
        }
        let many = format!(
            r#"{{"config": {{"digest": "{}", "size": 1}}, "layers": [0{}]}}"#,
            digest(1),
            ",0".repeat(VALUES_MAX)
        );
        assert!(read(None, many.as_bytes()).is_err());
    }

    #[test]
    fn chart_is_no_image_and_has_a_digest_all_the_same() {
        let mut chart = image();
        chart["config"]["mediaType"] = json!("application/vnd.cncf.helm.config.v1+json");
        assert_eq!(parsed(None, &chart).unwrap().content, Content::Other);
    }

    #[test]
    fn artifact_has_its_layers_and_a_list_its_artifacts() {
        let part =
            json!({"mediaType": "m", "artifactType": "a", "digest": digest(1), "size": 7, "annotations": {"k": "v"}});
        let list = json!({"manifests": [part, {"mediaType": "m"}, "x", {"digest": digest(2), "size": 1}]});
        let read = referrers(list.to_string().as_bytes()).unwrap();
        assert_eq!(read.len(), 2, "{read:?}");
        assert_eq!((read[0].artifact_type.as_deref(), read[0].size, &*read[0].annotations["k"]), (Some("a"), 7, "v"));
        let read = artifact(json!({"layers": [part], "annotations": null}).to_string().as_bytes()).unwrap();
        assert_eq!(read.layers[0].digest.as_str(), digest(1));
        let many = json!({"manifests": vec![part; PARTS_MAX + 1]});
        assert_eq!(referrers(many.to_string().as_bytes()).unwrap().len(), PARTS_MAX);
        for text in ["", "[]", "{}", "<html>", r#"{"manifests": 7}"#] {
            assert!(referrers(text.as_bytes()).is_none() && artifact(text.as_bytes()).is_none(), "{text}");
        }
    }

    #[test]
    fn configuration_has_the_platform_and_the_labels() {
        let read = |document: Value| configuration(document.to_string().as_bytes());
        let full = read(json!({
            "os": "linux", "architecture": "arm64", "variant": "v8", "history": [{"created": "x"}],
            "config": {"Labels": {"org.opencontainers.image.revision": "abc"}, "Env": ["A=b"]},
        }));
        let full = full.unwrap();
        assert_eq!(full.platform.as_ref().unwrap().to_string(), "linux/arm64/v8");
        assert_eq!(full.labels().collect::<Vec<_>>(), [("org.opencontainers.image.revision", "abc")]);
        for sparse in [json!({}), json!({"config": null}), json!({"config": {"Labels": null}, "os": "linux"})] {
            let read = read(sparse.clone()).unwrap();
            assert_eq!((read.platform.is_none(), read.labels().count()), (true, 0), "{sparse}");
        }
        assert_eq!(configuration(b"<html>"), None);
    }
}
