//! A simulated registry: images that a test pushes, and failures that it sets.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use rollhook_core::{
    app::Namespace,
    error::{Entity, Error, Result, RetryAfter},
    image::{Digest, ImageRef, Tag},
    ports::{Clock, Registry, Resolved, TagCursor, TagPage, TagQuery},
};

/// The time for which a registry that does not answer is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a registry answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answering {
    /// What it has.
    #[default]
    Usual,
    /// That it lets nobody read.
    Denied,
    /// That it has failed.
    Failing,
    /// Nothing, until its reader gives up.
    Silent,
    /// That there were too many calls, with the time to be left alone for.
    Busy(Option<Duration>),
    /// What is not what it says.
    Corrupt,
}

/// A registry in memory, for all hosts.
pub struct SimulatedRegistry {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    repositories: BTreeMap<String, Repository>,
    answering: Answering,
    asked: Vec<ImageRef>,
    listings: usize,
}

#[derive(Default)]
struct Repository {
    images: BTreeMap<Digest, Resolved>,
    tags: BTreeMap<Tag, Digest>,
}

impl SimulatedRegistry {
    /// Returns an empty registry on this clock.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, state: Mutex::default() }
    }

    /// Pushes an image to a reference's repository; a tag points to it from now on.
    pub fn push(&self, repository: &ImageRef, tag: &Tag, image: Resolved) {
        let mut state = self.lock();
        let repository = state.repositories.entry(repository.canonical_repository()).or_default();
        repository.tags.insert(tag.clone(), image.digest.clone());
        repository.images.insert(image.digest.clone(), image);
    }

    /// Sets what is answered from now on.
    pub fn answers(&self, answering: Answering) {
        self.lock().answering = answering;
    }

    /// The references that were looked up, in order.
    pub fn asked(&self) -> Vec<ImageRef> {
        self.lock().asked.clone()
    }

    /// The number of pages of tags that were asked for.
    pub fn listings(&self) -> usize {
        self.lock().listings
    }

    /// Removes a tag.
    pub fn remove(&self, repository: &ImageRef, tag: &Tag) {
        let mut state = self.lock();
        let repository = state.repositories.get_mut(&repository.canonical_repository());
        repository.map(|repository| repository.tags.remove(tag));
    }

    async fn answering(&self) -> Result<()> {
        let answering = self.lock().answering;
        let unavailable = |what: &str| Error::Unavailable { what: what.to_owned(), cause: None };
        match answering {
            Answering::Usual => Ok(()),
            Answering::Denied => {
                Err(Error::Denied { what: "the registry does not let this server read it".to_owned(), cause: None })
            }
            Answering::Failing => Err(unavailable("the registry has failed")),
            Answering::Silent => {
                self.clock.sleep(PATIENCE).await;
                Err(unavailable("the registry does not answer in time"))
            }
            Answering::Busy(None) => Err(unavailable("the registry has had too many calls")),
            Answering::Busy(Some(time)) => {
                Err(Error::unavailable("the registry has had too many calls", RetryAfter(time)))
            }
            Answering::Corrupt => {
                Err(Error::Corrupt { what: "the answer of the registry has another digest".to_owned(), cause: None })
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Registry for SimulatedRegistry {
    async fn resolve(&self, _: &Namespace, image: &ImageRef) -> Result<Resolved> {
        self.lock().asked.push(image.clone());
        self.answering().await?;
        let state = self.lock();
        let repository = state.repositories.get(&image.canonical_repository());
        let repository = repository.ok_or(Error::NotFound(Entity::Repository))?;
        let tag = image.tag().unwrap_or("latest");
        let digest = image.digest().or_else(|| repository.tags.get(&tag.parse().ok()?));
        let found = digest.and_then(|digest| repository.images.get(digest));
        found.cloned().ok_or(Error::NotFound(Entity::Image))
    }

    async fn tags(&self, _: &Namespace, repository: &ImageRef, query: &TagQuery) -> Result<TagPage> {
        self.lock().listings += 1;
        self.answering().await?;
        let state = self.lock();
        let repository = state.repositories.get(&repository.canonical_repository());
        let repository = repository.ok_or(Error::NotFound(Entity::Repository))?;
        let after = query.after.as_ref().map_or("", |cursor| &cursor.0);
        let mut rest = repository.tags.keys().filter(|tag| tag.as_str() > after).cloned();
        let tags: Vec<Tag> = rest.by_ref().take(query.limit.max(1)).collect();
        let next = rest.next().and_then(|_| tags.last()).map(|last| TagCursor(last.to_string()));
        Ok(TagPage { tags, next })
    }
}
