//! Reading the newest image of a repository.

use std::time::Duration;

use crate::{
    app::Namespace,
    error::{Entity, Error, Result},
    follow::Follow,
    image::{ImageRef, Tag},
    ports::{Clock, Registry},
    service::{
        in_time::in_time,
        tags::{self, TagBounds},
    },
};

/// The longest time of one reading.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// The most tags of a repository that is followed.
const TAGS_MAX: usize = 50_000;
/// What is read of a repository: one tag more than it may have.
const BOUNDS: TagBounds = TagBounds { tags: TAGS_MAX + 1, pages: 500 };

/// A reading of a repository.
pub(crate) struct Reading {
    /// The tags that were found: of a rule that follows one tag, that one if it is there.
    pub(crate) tags: Vec<Tag>,
    /// The newest image, with its digest; `None`: the repository has no tag that the rule follows.
    pub(crate) newest: Option<ImageRef>,
}

/// Returns what a repository has now by a rule.
///
/// # Errors
/// As [`Registry::tags`] and [`Registry::resolve`]; `Invalid` if there are too many tags: the newest may be among those that are
/// not read.
pub(crate) async fn read(
    registry: &dyn Registry,
    clock: &dyn Clock,
    environment: &Namespace,
    rule: &Follow,
    repository: &ImageRef,
) -> Result<Reading> {
    let reading = async {
        let tags = match rule {
            Follow::Tag(tag) => vec![tag.clone()],
            Follow::Version(_) | Follow::Number(_) => all_tags(registry, environment, repository).await?,
        };
        let Some(tag) = rule.newest(&tags).cloned() else { return Ok(Reading { tags, newest: None }) };
        let image = repository.clone().tagged(tag);
        let newest = match registry.resolve(environment, &image).await {
            Ok(resolved) => image.pinned(resolved.digest),
            // A tag that is followed by itself may not be pushed yet, and one of a list may be removed meanwhile.
            Err(Error::NotFound(Entity::Image)) => {
                let tags = tags.into_iter().filter(|tag| image.tag() != Some(tag.as_str())).collect();
                return Ok(Reading { tags, newest: None });
            }
            Err(error) => return Err(error),
        };
        Ok(Reading { tags, newest: Some(newest) })
    };
    in_time(clock, READ_TIMEOUT, reading).await.unwrap_or_else(|| {
        let what = format!("{} has not answered in time", repository.registry());
        Err(Error::Unavailable { what, cause: None })
    })
}

async fn all_tags(registry: &dyn Registry, environment: &Namespace, repository: &ImageRef) -> Result<Vec<Tag>> {
    let read = tags::read(registry, environment, repository, BOUNDS).await;
    match read.are_all? {
        true => Ok(read.tags),
        false => Err(Error::invalid(format!("{repository} has more than {TAGS_MAX} tags, or too many pages of them"))),
    }
}
