//! Reading the newest image of a repository.

use std::{pin::pin, time::Duration};

use futures_util::future::{Either, select};

use crate::{
    app::Namespace,
    error::{Entity, Error, Result},
    follow::Follow,
    image::{ImageRef, Tag},
    ports::{Clock, Registry, TagQuery},
};

/// The longest time of one reading.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// The number of tags that are asked for at once; registries may answer with fewer.
const TAGS_PAGE: usize = 1_000;
/// The most tags of a repository that is followed.
pub(crate) const TAGS_MAX: usize = 50_000;
/// The most pages that are read of them.
const PAGES_MAX: usize = 500;

/// Returns the newest image of a repository, with its digest; `None` if it has no tag that the rule follows.
pub(crate) async fn newest(
    registry: &dyn Registry,
    clock: &dyn Clock,
    environment: &Namespace,
    rule: &Follow,
    repository: &ImageRef,
) -> Result<Option<ImageRef>> {
    in_time(clock, repository, async {
        let tag = match rule {
            Follow::Tag(tag) => Some(tag.clone()),
            Follow::Version(_) | Follow::Number(_) => {
                let tags = tags(registry, environment, repository).await?;
                rule.newest(&tags).cloned()
            }
        };
        let Some(tag) = tag else { return Ok(None) };
        let image = repository.clone().tagged(tag);
        match registry.resolve(environment, &image).await {
            Ok(resolved) => Ok(Some(image.pinned(resolved.digest))),
            // A tag that is followed by itself may not be pushed yet, and one of a list may be removed meanwhile.
            Err(Error::NotFound(Entity::Image)) => Ok(None),
            Err(error) => Err(error),
        }
    })
    .await
}

/// Returns all tags of a repository.
///
/// # Errors
/// As [`Registry::tags`]; `Invalid` if there are too many: the newest may be among those that are not read.
pub(crate) async fn tags(registry: &dyn Registry, environment: &Namespace, repository: &ImageRef) -> Result<Vec<Tag>> {
    let mut tags = Vec::new();
    let mut after = None;
    for _ in 0..PAGES_MAX {
        let page = registry.tags(environment, repository, &TagQuery { limit: TAGS_PAGE, after }).await?;
        tags.extend(page.tags);
        after = page.next;
        if after.is_none() {
            return Ok(tags);
        }
        if tags.len() > TAGS_MAX {
            break;
        }
    }
    Err(Error::invalid(format!("{repository} has more than {TAGS_MAX} tags, or too many pages of them")))
}

/// Returns a registry's answer, if it comes in time.
pub(crate) async fn in_time<T>(
    clock: &dyn Clock,
    repository: &ImageRef,
    answer: impl Future<Output = Result<T>>,
) -> Result<T> {
    match select(pin!(answer), clock.sleep(READ_TIMEOUT)).await {
        Either::Left((answer, _)) => answer,
        Either::Right(((), _)) => {
            let what = format!("{} has not answered in time", repository.registry());
            Err(Error::Unavailable { what, cause: None })
        }
    }
}
