//! Reading what lies beside an image, until the requirement is met: the only place with effects.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use rollhook_core::{
    app::Namespace,
    error::{Error, Result},
    image::{Digest, ImageRef, Tag},
    ports::{FOUND_MAX, ImageVerifier, Verified},
    requirement::Requirement,
};
use rollhook_registry::{Artifact, HttpRegistry, Part};
use tokio::time::timeout;

use crate::{
    forms::{self, BUNDLE, Candidate, ENVELOPE, SIMPLE_ARTIFACT, SIMPLE_SIGNING, Unreadable},
    judge::{Demand, Verdict, shown, verdict},
    trust::{self, Trust},
};

/// The longest time of a verification, with all of its calls.
const TIME: Duration = Duration::from_secs(30);
/// The most signatures that are read for one image.
const READ_MAX: usize = 64;
/// The longest bundle or envelope in bytes: provenance lists what a build has used.
const STATEMENT_MAX: usize = 4 << 20;
/// The longest payload of simple signing in bytes.
const PAYLOAD_MAX: usize = 64 << 10;
/// The line about an image with more signatures.
const TOO_MANY: &str = "more than 64 signatures, of which the others were not read";
/// The annotation of an artifact with the kind of statement that it holds.
const PREDICATE: &str = "dev.sigstore.bundle.predicateType";

/// Verifies signatures of images with what a trust root names, at their registries.
pub struct SignatureVerifier {
    registry: Arc<HttpRegistry>,
    trust: Trust,
}

/// The findings about an image and a requirement so far.
struct Findings<'a> {
    digest: &'a Digest,
    trust: &'a Trust,
    /// The demands that are not met.
    open: Vec<Demand<'a>>,
    by: Vec<String>,
    found: Vec<String>,
    /// How many more signatures may be read.
    left: usize,
}

impl SignatureVerifier {
    /// Returns a verifier that reads signatures by this reader of registries. `trust_root` is the text of a trust root of Sigstore
    /// (`trusted_root.json`) with those who vouch for identities; `None`: the public instance, as it was known when this program was
    /// built. Nothing is ever fetched for it.
    ///
    /// # Errors
    /// The fault of the trust root, as the end of a sentence that begins with it.
    pub fn new(registry: Arc<HttpRegistry>, trust_root: Option<&str>) -> std::result::Result<Self, String> {
        Ok(Self { registry, trust: Trust::new(trust_root)? })
    }

    async fn verified(&self, place: Place<'_>, requirement: &Requirement) -> Result<Verified> {
        let mut findings = Findings::new(place.digest, &self.trust, requirement);
        self.read_referrers(place, &mut findings).await?;
        for (ending, media_type) in [("sig", SIMPLE_SIGNING), ("att", ENVELOPE)] {
            if findings.are_complete() {
                break;
            }
            let Some(tag) = tag(place.digest, ending) else { continue };
            match self.registry.tagged_artifact(place.environment, place.image, &tag).await {
                Ok(Some(artifact)) => self.read_layers(place, &artifact, media_type, &mut findings).await?,
                Ok(None) => {}
                Err(error) => findings.unreadable(error)?,
            }
        }
        Ok(findings.verified())
    }

    /// Reads the artifacts that refer to the image.
    async fn read_referrers(&self, place: Place<'_>, findings: &mut Findings<'_>) -> Result<()> {
        let Place { environment, image, .. } = place;
        let mut listed = self.registry.referrers(environment, image).await?;
        listed.retain(|part| findings.may_count(part));
        for part in listed.iter().take(READ_MAX) {
            if findings.are_complete() {
                break;
            }
            match self.registry.read_artifact(environment, image, &part.digest).await {
                Ok(Some(artifact)) => {
                    for media_type in [BUNDLE, SIMPLE_SIGNING] {
                        self.read_layers(place, &artifact, media_type, findings).await?;
                    }
                }
                Ok(None) => {}
                Err(error) => findings.unreadable(error)?,
            }
        }
        if listed.len() > READ_MAX {
            findings.find(TOO_MANY);
        }
        Ok(())
    }

    /// Reads the parts of an artifact whose media type begins so.
    async fn read_layers(
        &self,
        place: Place<'_>,
        artifact: &Artifact,
        media_type: &str,
        findings: &mut Findings<'_>,
    ) -> Result<()> {
        for part in artifact.layers.iter().filter(|part| part.media_type.starts_with(media_type)) {
            if findings.are_complete() {
                break;
            }
            findings.left -= 1;
            let most = if media_type == SIMPLE_SIGNING { PAYLOAD_MAX } else { STATEMENT_MAX };
            match self.registry.read_blob(place.environment, place.image, &part.digest, most).await {
                Ok(body) => findings.judge(candidate(media_type, &body, part)),
                Err(error) => findings.unreadable(error)?,
            }
        }
        Ok(())
    }
}

/// An image, and for whom it is read.
#[derive(Clone, Copy)]
struct Place<'a> {
    environment: &'a Namespace,
    image: &'a ImageRef,
    digest: &'a Digest,
}

impl<'a> Findings<'a> {
    fn new(digest: &'a Digest, trust: &'a Trust, requirement: &'a Requirement) -> Self {
        Self { digest, trust, open: Demand::of(requirement), by: Vec::new(), found: Vec::new(), left: READ_MAX }
    }

    /// Returns whether nothing more is to be read.
    fn are_complete(&self) -> bool {
        self.open.is_empty() || self.left == 0
    }

    /// Returns whether an artifact may hold what is demanded, as far as its description says. One without any is read.
    fn may_count(&self, part: &Part) -> bool {
        let is_known = |kind: &str| kind.starts_with(BUNDLE) || kind == SIMPLE_ARTIFACT;
        let is_about = |predicate: &String| self.open.iter().any(|demand| demand.is_about(predicate));
        part.artifact_type.as_deref().is_none_or(is_known) && part.annotations.get(PREDICATE).is_none_or(is_about)
    }

    /// Judges a signature by each demand that is not met.
    fn judge(&mut self, candidate: std::result::Result<Candidate, Unreadable>) {
        let candidate = match candidate {
            Ok(candidate) => candidate,
            Err(why) => return self.find(&format!("what lies beside it {why}")),
        };
        let mut open = Vec::new();
        for demand in std::mem::take(&mut self.open) {
            match verdict(&candidate, self.digest, demand, self.trust) {
                Verdict::Meets(by) => {
                    self.by.push(by);
                    continue;
                }
                Verdict::Fails(why) => self.find(&why),
                Verdict::Other => {}
            }
            open.push(demand);
        }
        self.open = open;
    }

    /// Notes what could not be read. Only an answer that is one is noted: without it, or without a login, nothing is known.
    fn unreadable(&mut self, error: Error) -> Result<()> {
        match error {
            Error::Invalid { .. } | Error::Corrupt { .. } => self.find(&error.to_string()),
            Error::NotFound(_) | Error::Conflict(_) | Error::Denied { .. } | Error::Unavailable { .. } => {
                return Err(error);
            }
        }
        Ok(())
    }

    fn find(&mut self, line: &str) {
        let (lines, characters) = FOUND_MAX;
        let line: String = shown(line, characters);
        if self.found.len() < lines && !self.found.contains(&line) {
            self.found.push(line);
        }
    }

    fn verified(mut self) -> Verified {
        if self.open.is_empty() {
            return Verified::Signed { by: self.by };
        }
        if self.left == 0 {
            self.find(TOO_MANY);
        }
        Verified::NotSigned { found: self.found }
    }
}

/// Reads a part of an artifact that has this media type.
fn candidate(media_type: &str, body: &[u8], part: &Part) -> std::result::Result<Candidate, Unreadable> {
    match media_type {
        BUNDLE => forms::bundle(body),
        SIMPLE_SIGNING => forms::simple(body, &part.annotations),
        _ => forms::envelope(body, &part.annotations),
    }
}

/// Returns the tag at which older signatures of a digest lie.
fn tag(digest: &Digest, ending: &str) -> Option<Tag> {
    format!("{}.{ending}", digest.as_str().replacen(':', "-", 1)).parse().ok()
}

#[async_trait]
impl ImageVerifier for SignatureVerifier {
    fn check(&self, requirement: &Requirement) -> std::result::Result<(), String> {
        trust::check(requirement)
    }

    async fn verify(&self, environment: &Namespace, image: &ImageRef, requirement: &Requirement) -> Result<Verified> {
        let Some(digest) = image.digest() else {
            return Err(Error::invalid(format!("{image} has no digest: signatures are of one")));
        };
        let answer = timeout(TIME, self.verified(Place { environment, image, digest }, requirement)).await;
        answer.unwrap_or_else(|_| {
            let what = format!("{} has not answered in time about the signatures of the image", image.registry());
            Err(Error::Unavailable { what, cause: None })
        })
    }
}
