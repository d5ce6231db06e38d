//! What lies beside an image at its registry, such as signatures: artifacts that refer to its digest, found as the OCI
//! distribution specification says, or at a tag; and what is in them.

use std::collections::BTreeMap;

use http::{Method, StatusCode};
use rollhook_core::{
    app::Namespace,
    error::{Entity, Error, Result},
    image::{Digest, ImageRef, Tag},
};

use crate::{
    client::{Access, Answer, Document, Question},
    failure::{self, corrupt},
    manifest,
    registry::{HttpRegistry, manifest_at, verified},
    tags,
};

/// The longest list of artifacts in bytes, of one page.
const REFERRERS_MAX: usize = 4 << 20;
/// The most pages of such a list.
const PAGES: usize = 4;
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// The description of an artifact, or of a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The media type of what has the digest.
    pub media_type: String,
    /// The kind of the artifact, if its registry names it.
    pub artifact_type: Option<String>,
    /// The digest.
    pub digest: Digest,
    /// The size in bytes, as it is said.
    pub size: u64,
    /// The annotations.
    pub annotations: BTreeMap<String, String>,
}

/// An artifact that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// Its parts, in its order.
    pub layers: Vec<Part>,
    /// The annotations.
    pub annotations: BTreeMap<String, String>,
}

impl HttpRegistry {
    /// Returns the artifacts that refer to the digest of an image; empty if there are none, or the reference has no digest. A registry
    /// that knows no such list keeps it at a tag that is made of the digest.
    ///
    /// # Errors
    /// As those of [`Registry`](rollhook_core::ports::Registry).
    pub async fn referrers(&self, environment: &Namespace, image: &ImageRef) -> Result<Vec<Part>> {
        let Some(digest) = image.digest() else { return Ok(Vec::new()) };
        let answer = self.ask((environment, image), |question| async move {
            match self.listed_referrers(&question, digest).await? {
                Some(listed) => Ok(listed),
                None => self.tagged_referrers(&question, digest).await,
            }
        });
        self.bounded(environment, answer).await
    }

    /// Returns the artifact of a tag of the image's repository; `None`: there is none.
    ///
    /// # Errors
    /// As those of [`Registry`](rollhook_core::ports::Registry).
    pub async fn tagged_artifact(
        &self,
        environment: &Namespace,
        image: &ImageRef,
        tag: &Tag,
    ) -> Result<Option<Artifact>> {
        self.bounded(environment, self.artifact(environment, image, tag.as_str(), None)).await
    }

    /// Returns an artifact of the image's repository; `None`: it is not there any more.
    ///
    /// # Errors
    /// As those of [`Registry`](rollhook_core::ports::Registry).
    pub async fn read_artifact(
        &self,
        environment: &Namespace,
        image: &ImageRef,
        digest: &Digest,
    ) -> Result<Option<Artifact>> {
        self.bounded(environment, self.artifact(environment, image, digest.as_str(), Some(digest))).await
    }

    /// Returns a blob of the image's repository, which has at most so many bytes.
    ///
    /// # Errors
    /// As those of [`Registry`](rollhook_core::ports::Registry); `Invalid` if it is longer, and `Corrupt` if it has another digest.
    pub async fn read_blob(
        &self,
        environment: &Namespace,
        image: &ImageRef,
        digest: &Digest,
        most: usize,
    ) -> Result<Vec<u8>> {
        let answer = self.ask((environment, image), |question| async move {
            self.blob(&question, digest, ("the signature", most)).await
        });
        self.bounded(environment, answer).await
    }

    /// Returns the list of artifacts by the registry's own call for it; `None` if it knows none.
    async fn listed_referrers(&self, question: &Question, digest: &Digest) -> Result<Option<Vec<Part>>> {
        let registry = question.at.registry.as_str();
        let mut listed = Vec::new();
        let mut path = format!("referrers/{digest}");
        for _ in 0..PAGES {
            let answer = match self.client.call(question, &referrers_at(path)).await {
                // Some registries refuse every call that they do not know.
                Err(Error::Denied { .. }) if listed.is_empty() => return Ok(None),
                answer => answer?,
            };
            match answer.status {
                StatusCode::OK if manifest::media_type(&answer.headers) == Some(INDEX) => {}
                StatusCode::OK => return Ok(None),
                StatusCode::NOT_FOUND if hides(question, &answer) => return Err(Error::NotFound(Entity::Repository)),
                status if status.is_client_error() && listed.is_empty() => return Ok(None),
                _ => return Err(answer.refusal(registry)),
            }
            let page = manifest::referrers(&answer.body);
            listed.extend(page.ok_or_else(|| corrupt(registry, "is no list of artifacts"))?);
            match tags::link(&answer.headers).map_err(|why| corrupt(registry, why))? {
                Some(query) => path = format!("referrers/{digest}?{query}"),
                None => break,
            }
        }
        Ok(Some(listed))
    }

    /// Returns the list of artifacts that lies at the tag of a digest.
    async fn tagged_referrers(&self, question: &Question, digest: &Digest) -> Result<Vec<Part>> {
        let registry = question.at.registry.as_str();
        let Some(body) = self.document(question, &fallback_tag(digest), None).await? else { return Ok(Vec::new()) };
        manifest::referrers(&body).ok_or_else(|| corrupt(registry, "is no list of artifacts"))
    }

    async fn artifact(
        &self,
        environment: &Namespace,
        image: &ImageRef,
        reference: &str,
        digest: Option<&Digest>,
    ) -> Result<Option<Artifact>> {
        let read = |question: Question| async move {
            let Some(body) = self.document(&question, reference, digest).await? else { return Ok(None) };
            let corrupt = || corrupt(&question.at.registry, "is no manifest of an artifact");
            manifest::artifact(&body).map(Some).ok_or_else(corrupt)
        };
        self.ask((environment, image), read).await
    }

    /// Returns a manifest as it is, by its tag or its digest; `None` if there is none.
    async fn document(&self, question: &Question, reference: &str, digest: Option<&Digest>) -> Result<Option<Vec<u8>>> {
        let registry = question.at.registry.as_str();
        let answer = self.client.call(question, &manifest_at(Method::GET, reference)).await?;
        match answer.status {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND if hides(question, &answer) => return Err(Error::NotFound(Entity::Repository)),
            StatusCode::NOT_FOUND if failure::code(&answer.body).is_some() => return Ok(None),
            // The answer of a proxy whose registry is away means nothing.
            StatusCode::NOT_FOUND => {
                let missing = self.missing(question).await;
                return if matches!(missing, Error::NotFound(Entity::Image)) { Ok(None) } else { Err(missing) };
            }
            _ => return Err(answer.refusal(registry)),
        }
        if digest.is_some() && verified(&answer, digest.cloned(), None).is_none() {
            return Err(corrupt(registry, "is another manifest than its digest says"));
        }
        Ok(Some(answer.body))
    }
}

/// Returns whether a registry may hide the repository from one of the platform's logins.
fn hides(question: &Question, answer: &Answer) -> bool {
    !matches!(question.access, Access::Own) && failure::code(&answer.body).as_deref() == Some("NAME_UNKNOWN")
}

/// Returns the tag at which the artifacts of a digest are listed where a registry has no call for it.
fn fallback_tag(digest: &Digest) -> String {
    let (algorithm, digits) = digest.as_str().split_once(':').unwrap_or((digest.as_str(), ""));
    format!("{algorithm}-{}", digits.get(..64).unwrap_or(digits))
}

fn referrers_at(path: String) -> Document {
    Document { method: Method::GET, path, accept: INDEX, name: "the list of artifacts", most: REFERRERS_MAX }
}
