//! The tags of a repository, page by page.

use crate::{
    app::Namespace,
    error::Result,
    image::{ImageRef, Tag},
    ports::{Registry, TagQuery},
};

/// The number of tags that are asked for at once; registries may answer with fewer, or with all that they have.
const PAGE: usize = 1_000;

/// The bounds of a reading.
#[derive(Clone, Copy)]
pub(crate) struct TagBounds {
    /// The number of tags after which no further page is read.
    pub(crate) tags: usize,
    /// The most pages.
    pub(crate) pages: usize,
}

/// Tags that were read.
pub(crate) struct ReadTags {
    pub(crate) tags: Vec<Tag>,
    /// Whether these are all of them, or the failure of the page behind them.
    pub(crate) are_all: Result<bool>,
}

/// Returns the tags of an image's repository.
pub(crate) async fn read(
    registry: &dyn Registry,
    environment: &Namespace,
    repository: &ImageRef,
    bounds: TagBounds,
) -> ReadTags {
    let mut tags = Vec::new();
    let mut after = None;
    for _ in 0..bounds.pages {
        let limit = PAGE.min(bounds.tags - tags.len());
        let page = match registry.tags(environment, repository, &TagQuery { limit, after }).await {
            Ok(page) => page,
            Err(error) => return ReadTags { tags, are_all: Err(error) },
        };
        tags.extend(page.tags);
        after = page.next;
        if after.is_none() || tags.len() >= bounds.tags {
            break;
        }
    }
    ReadTags { tags, are_all: Ok(after.is_none()) }
}
