//! The port that reads what a registry knows of images.

use async_trait::async_trait;

use crate::{
    app::Namespace,
    error::Result,
    image::{Digest, ImageLabels, ImageRef, Platform, Tag},
    text::with_fields,
};

/// The image that a reference means now.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resolved {
    /// The digest: of an image for several platforms that of its index, so that each node finds its own.
    pub digest: Digest,
    /// The media type of what has the digest, such as `application/vnd.oci.image.index.v1+json`.
    pub media_type: String,
    /// The platforms that the image is for, in the registry's order; empty if it names none.
    pub platforms: Vec<Platform>,
    /// The labels of the image.
    pub labels: ImageLabels,
}

with_fields!(Resolved);

impl Resolved {
    /// Returns the image of this digest, of which no platform and no label is known.
    pub fn new(digest: Digest, media_type: impl Into<String>) -> Self {
        Self { digest, media_type: media_type.into(), platforms: Vec::new(), labels: ImageLabels::default() }
    }
}

/// The place in a list of tags at which it goes on. It is the backend's own text, and means something to no other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagCursor(pub String);

/// The part of a list of tags that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagQuery {
    /// The number of tags that the caller would like. Registries that know no pages return all.
    pub limit: usize,
    /// The place at which the list goes on; `None`: at its begin.
    pub after: Option<TagCursor>,
}

/// A part of a list of tags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagPage {
    /// The tags, in the registry's order.
    pub tags: Vec<Tag>,
    /// The place at which the list goes on; `None`: it has ended.
    pub next: Option<TagCursor>,
}

/// Reads images at their registries; without effects. A call is made for an environment, with the logins that it may use:
/// what one environment may read is no answer for another. What a registry says of a tag holds for that moment, and is
/// read anew by each call; what has a digest never changes, and may be kept, but is shown only to those whom the registry
/// lets read it now.
///
/// Finding an image:
///
/// - `resolve_is_what_was_pushed`: digest and media type of what the tag points to; a reference with neither a tag nor a
///   digest means `latest`.
/// - `resolve_follows_a_moved_tag`: also back to what it was before.
/// - `resolve_by_digest_is_that_image`: whatever the tag beside it points to.
/// - `resolve_names_the_platforms`: those of an index, and the one of a single image. What belongs to images without
///   being one, such as attestations, is none.
/// - `resolve_reads_the_labels`: an index' own before its first image's, and there annotations before labels.
/// - `missing_tag_is_not_found`, `missing_repository_is_not_found`: `NotFound(Image)` if the repository is there, else
///   `NotFound(Repository)`.
///
/// Listing tags:
///
/// - `tags_are_all_there`: page by page, each once; the list ends. Of a repository that is not there it is
///   `NotFound(Repository)`.
///
/// Failures, of both calls:
///
/// - `closed_repository_is_denied`: `Denied` if the login is missing, wrong or has expired, also where the registry hides
///   so that there is no such repository; no word of it has the login.
/// - `away_is_unavailable`: `Unavailable` if the registry is away, does not answer in a bounded time, or fails.
/// - `busy_is_unavailable_with_its_time`: `Unavailable` if there were too many calls, with the time that the registry asks
///   for, if it does ([`Error::retry_after`](crate::Error::retry_after)).
/// - `wrong_answer_is_no_image`: a document that has another digest than the registry says, or than was asked for, is
///   `Corrupt`; one that ends early is `Corrupt` or `Unavailable`.
/// - `answers_are_bounded`: an answer without an end ends the call with an error, and takes little memory.
#[async_trait]
pub trait Registry: Send + Sync {
    /// Returns what this reference means now. The tag of a reference with a digest is not looked up.
    async fn resolve(&self, environment: &Namespace, image: &ImageRef) -> Result<Resolved>;

    /// Returns a part of the tags of a reference's repository; its own tag and digest say nothing here.
    async fn tags(&self, environment: &Namespace, repository: &ImageRef, query: &TagQuery) -> Result<TagPage>;
}
