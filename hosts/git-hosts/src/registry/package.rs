//! The packages of git hosts: GitHub's `package` and `registry_package` ("Webhook events and payloads"), and the
//! `package` of Gitea and Forgejo, which have two members of their own.

use rollhook_core::follow::PushedImage;
use serde::Deserialize;

use super::{GHCR, RegistryEvent, given, image};
use crate::{Error, field::PostedText, object};

#[derive(Deserialize)]
struct Sent {
    /// `published` or `updated` at GitHub, `created` or `deleted` at Gitea.
    #[serde(default)]
    action: PostedText,
    #[serde(alias = "registry_package")]
    package: Option<Package>,
}

#[derive(Deserialize)]
struct Package {
    owner: Option<Owner>,
    #[serde(default)]
    name: PostedText,
    /// The kind at GitHub, such as `CONTAINER`.
    #[serde(default)]
    package_type: PostedText,
    /// The kind at Gitea, such as `container`.
    #[serde(default, rename = "type")]
    kind: PostedText,
    /// The tag at Gitea; the digest of an image without one.
    #[serde(default)]
    version: PostedText,
    package_version: Option<Version>,
}

#[derive(Deserialize)]
struct Owner {
    #[serde(default)]
    login: PostedText,
}

/// The version at GitHub.
#[derive(Deserialize)]
struct Version {
    /// The image, such as `ghcr.io/octocat/api:v1`. It ends with the colon if there is no tag.
    #[serde(default)]
    package_url: PostedText,
    container_metadata: Option<Metadata>,
}

#[derive(Deserialize)]
struct Metadata {
    tag: Option<Named>,
}

#[derive(Deserialize)]
struct Named {
    #[serde(default)]
    name: PostedText,
}

impl Package {
    /// Returns the image that was pushed. People and organisations may have capitals in their names, images may not.
    fn image(&self, registry: &str) -> Option<PushedImage> {
        let kind = given(&self.package_type).or(given(&self.kind))?;
        if !["container", "docker"].iter().any(|known| kind.eq_ignore_ascii_case(known)) {
            return None;
        }
        let version = self.package_version.as_ref();
        let tag = if registry == GHCR { version.and_then(Version::tag) } else { given(&self.version) };
        if let Some(path) = version.and_then(Version::path) {
            return image(&path.to_ascii_lowercase(), tag);
        }
        let owner = given(&self.owner.as_ref()?.login)?;
        image(&format!("{owner}/{}", given(&self.name)?).to_ascii_lowercase(), tag)
    }
}

impl Version {
    /// Returns path and tag of the version's URL.
    fn url(&self) -> Option<(&str, &str)> {
        let (_, image) = given(&self.package_url)?.split_once('/')?;
        Some(image.split_once(':').unwrap_or((image, "")))
    }

    fn path(&self) -> Option<&str> {
        self.url().map(|(path, _)| path)
    }

    fn tag(&self) -> Option<&str> {
        let named = self.container_metadata.as_ref().and_then(|metadata| metadata.tag.as_ref());
        let named = named.and_then(|tag| given(&tag.name));
        named.or_else(|| self.url().map(|(_, tag)| tag))
    }
}

/// Returns the event of a package.
pub(super) fn event(registry: &'static str, payload: &[u8]) -> Result<RegistryEvent, Error> {
    let sent: Sent = object(payload)?;
    let is_push = matches!(given(&sent.action), Some("published" | "updated" | "created"));
    let package = sent.package.filter(|_| is_push);
    Ok(RegistryEvent::new(registry, package.iter().map(|package| package.image(registry))))
}
