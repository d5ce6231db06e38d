//! Finds images and lists tags.

use std::{any::Any, sync::Arc, time::Duration};

use async_trait::async_trait;
use http::{Method, StatusCode};
use rollhook_core::{
    app::Namespace,
    error::{Entity, Error, Result},
    image::{Digest, ImageRef, Platform},
    ports::{Registry, Resolved, TagPage, TagQuery},
    slots::Slots,
    text::hex,
};
use rollhook_https::holding;
use sha2::{Digest as _, Sha256, Sha512};
use tokio::time::{Instant, timeout_at};

use crate::{
    client::{Answer, Client, Document, Question},
    failure::{self, corrupt},
    known::Known,
    manifest::{self, Configuration, Content, Manifest, Unreadable},
    settings::RegistrySettings,
    tags,
};

/// The longest time of a question, with all of its calls.
const TIME: Duration = Duration::from_secs(30);
/// The questions that are asked at once, and the most of them of one environment. One lasts until the look-ups of its names
/// have ended, as those of checks do.
const TURNS: (usize, usize) = (16, 4);
/// The longest manifest in bytes, as the OCI distribution specification has it.
const MANIFEST_MAX: usize = 4 << 20;
/// The longest configuration in bytes.
const CONFIGURATION_MAX: usize = 1 << 20;
/// The longest list of tags in bytes.
const TAGS_MAX: usize = 4 << 20;
/// The header with the digest of what is answered.
const DIGEST: &str = "docker-content-digest";

/// Reads images and tags at registries over https.
pub struct HttpRegistry {
    pub(crate) client: Client,
    known: Known,
    turns: Slots,
}

/// A manifest that was read, and its digest.
struct Found {
    digest: Digest,
    manifest: Manifest,
}

/// What a `HEAD` says of a manifest.
enum Head {
    /// The digest.
    Digest(Digest),
    /// Nothing: the registry names no digest, or knows no `HEAD`.
    Silent,
}

impl HttpRegistry {
    /// Returns a reader of the registries that the operator allows.
    pub fn new(settings: RegistrySettings) -> Self {
        let turns = Slots::with_share(TURNS.0, TURNS.1);
        Self { client: Client::new(settings), known: Known::default(), turns }
    }

    /// Answers a question in its turn, and in time.
    pub(crate) async fn bounded<T>(
        &self,
        environment: &Namespace,
        answer: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let until = Instant::now() + TIME;
        let late = |what: &str| Error::Unavailable { what: what.to_owned(), cause: None };
        let turn = timeout_at(until, self.turns.acquire(environment)).await;
        let turn: Arc<dyn Any + Send + Sync> =
            Arc::new(turn.map_err(|_| late("registries are asked about other images, which came before"))?);
        let answer = timeout_at(until, holding(turn, answer)).await;
        answer.unwrap_or_else(|_| Err(late("the registry has not answered in time")))
    }

    async fn resolved(&self, question: &Question, image: &ImageRef) -> Result<Resolved> {
        let at = &question.at;
        let latest = image.clone().or_latest();
        let reference = match (image.digest(), latest.tag()) {
            (Some(digest), _) => digest.as_str(),
            (None, tag) => tag.unwrap_or("latest"),
        };
        let reference = match self.head(question, reference).await? {
            Head::Digest(digest) => {
                if image.digest().is_some_and(|asked| *asked != digest) {
                    return Err(corrupt(&at.registry, "has another digest than was asked for"));
                }
                if let Some(known) = self.known.get(&at.name(), &digest) {
                    return Ok(known);
                }
                digest.to_string()
            }
            Head::Silent => reference.to_owned(),
        };
        let found = self.manifest(question, &reference).await?;
        if let Some(known) = self.known.get(&at.name(), &found.digest) {
            return Ok(known);
        }
        let (resolved, is_whole) = self.described(question, found).await?;
        if is_whole {
            self.known.put(&at.name(), &resolved);
        }
        Ok(resolved)
    }

    async fn head(&self, question: &Question, reference: &str) -> Result<Head> {
        let registry = question.at.registry.as_str();
        let answer = self.client.call(question, &manifest_at(Method::HEAD, reference)).await?;
        match answer.status {
            StatusCode::OK => match answer.headers.get(DIGEST) {
                Some(digest) => digest_of(digest).map(Head::Digest).ok_or_else(|| corrupt(registry, "names no digest")),
                None => Ok(Head::Silent),
            },
            StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => Ok(Head::Silent),
            StatusCode::NOT_FOUND => Err(self.missing(question).await),
            _ => Err(answer.refusal(registry)),
        }
    }

    /// Returns what is missing where an image was not found: registries say it by the repository's tags.
    pub(crate) async fn missing(&self, question: &Question) -> Error {
        let registry = question.at.registry.as_str();
        match self.client.call(question, &tags_at(&tags::query(1, None))).await {
            Ok(answer) if answer.status == StatusCode::OK => Error::NotFound(Entity::Image),
            // A proxy whose registry is away answers 404 as well, and not as a registry does.
            Ok(answer) if answer.status == StatusCode::NOT_FOUND && failure::code(&answer.body).is_none() => {
                let what = format!("{registry} answered with status 404, and not as a registry");
                Error::Unavailable { what, cause: None }
            }
            Ok(answer) if answer.status == StatusCode::NOT_FOUND => {
                if self.client.is_anonymous(question) {
                    return failure::denied(registry, "it shows no such repository to those without a login");
                }
                Error::NotFound(Entity::Repository)
            }
            Ok(answer) => answer.refusal(registry),
            Err(error) => error,
        }
    }

    /// Reads a manifest by its digest or its tag.
    async fn manifest(&self, question: &Question, reference: &str) -> Result<Found> {
        let registry = question.at.registry.as_str();
        let answer = self.client.call(question, &manifest_at(Method::GET, reference)).await?;
        match answer.status {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => return Err(self.missing(question).await),
            _ => return Err(answer.refusal(registry)),
        }
        let asked = reference.parse::<Digest>().ok();
        let named = answer.headers.get(DIGEST).and_then(digest_of);
        let digest = verified(&answer, asked.or(named.clone()), named).ok_or_else(|| {
            corrupt(registry, "is another manifest than its digest says: it was cut off or changed on its way")
        })?;
        match manifest::read(manifest::media_type(&answer.headers), &answer.body) {
            Ok(manifest) => Ok(Found { digest, manifest }),
            Err(Unreadable::Document(why)) => Err(corrupt(registry, why)),
            Err(Unreadable::FirstSchema) => Err(Error::invalid(format!(
                "{registry} has the image in the form of Docker's first schema only: push it again with a newer program"
            ))),
        }
    }

    /// Returns what is known of an image, by its configuration: of an index by that of its first image. Returns also whether that is
    /// all that can be known.
    async fn described(&self, question: &Question, found: Found) -> Result<(Resolved, bool)> {
        let Found { digest, manifest: Manifest { media_type, labels, content } } = found;
        let mut resolved = Resolved::new(digest, media_type).with(|resolved| resolved.labels = labels);
        let content = match content {
            Content::Index { platforms, first } => {
                resolved.platforms = platforms;
                let Some(first) = first else { return Ok((resolved, true)) };
                match self.manifest(question, first.as_str()).await {
                    Ok(image) => {
                        resolved.labels = resolved.labels.or_those(image.manifest.labels);
                        image.manifest.content
                    }
                    // Registries keep indexes of which some images were removed.
                    Err(Error::NotFound(_)) => return Ok((resolved, true)),
                    Err(Error::Unavailable { .. } | Error::Denied { .. }) if !question.access.is_kept() => {
                        return Ok((resolved, false));
                    }
                    Err(error) => return Err(error),
                }
            }
            content @ (Content::Image { .. } | Content::Other) => content,
        };
        // An image with a longer configuration is deployed all the same.
        if let Content::Image { configuration, size } = content
            && size <= CONFIGURATION_MAX as u64
        {
            let configuration = match self.configuration(question, &configuration).await {
                Ok(configuration) => configuration,
                // What the image says of itself may lie elsewhere, where this server is not let in: the digest is known all the same.
                Err(Error::Unavailable { .. } | Error::Denied { .. } | Error::Invalid { .. })
                    if !question.access.is_kept() =>
                {
                    return Ok((resolved, false));
                }
                Err(error) => return Err(error),
            };
            let platform: Option<Platform> = configuration.platform.clone();
            if resolved.platforms.is_empty() {
                resolved.platforms.extend(platform);
            }
            resolved.labels = resolved.labels.or(configuration.labels());
        }
        Ok((resolved, true))
    }

    async fn configuration(&self, question: &Question, digest: &Digest) -> Result<Configuration> {
        let registry = question.at.registry.as_str();
        let body = self.blob(question, digest, ("the configuration of the image", CONFIGURATION_MAX)).await?;
        manifest::configuration(&body).ok_or_else(|| corrupt(registry, "is no configuration of an image"))
    }

    /// Reads a blob; beside its digest its name for errors, and the most bytes of it.
    pub(crate) async fn blob(
        &self,
        question: &Question,
        digest: &Digest,
        (name, most): (&'static str, usize),
    ) -> Result<Vec<u8>> {
        let registry = question.at.registry.as_str();
        let document = Document { method: Method::GET, path: format!("blobs/{digest}"), accept: "*/*", name, most };
        let answer = self.client.call(question, &document).await?;
        match answer.status {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => return Err(corrupt(registry, &format!("names {name}, which is not there"))),
            _ => return Err(answer.refusal(registry)),
        }
        if verified(&answer, Some(digest.clone()), None).is_none() {
            return Err(corrupt(registry, &format!("has {name} with another digest than it says")));
        }
        Ok(answer.body)
    }

    async fn listed(&self, question: &Question, query: &TagQuery) -> Result<TagPage> {
        let at = &question.at;
        let place = query.after.as_ref().map(tags::Place::read);
        let place = match place {
            Some(None) => return Err(Error::invalid("the place in the list of tags is none of this list's")),
            Some(Some(place)) => Some(place),
            None => None,
        };
        let limit = tags::limit(query);
        let answer = self.client.call(question, &tags_at(&tags::query(limit, place.as_ref()))).await?;
        match answer.status {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => return Err(Error::NotFound(Entity::Repository)),
            _ => return Err(answer.refusal(&at.registry)),
        }
        let page = tags::page(limit, place.as_ref(), &answer.headers, &answer.body);
        page.map_err(|why| corrupt(&at.registry, why))
    }
}

#[async_trait]
impl Registry for HttpRegistry {
    async fn resolve(&self, environment: &Namespace, image: &ImageRef) -> Result<Resolved> {
        let answer = self.ask((environment, image), |question| async move { self.resolved(&question, image).await });
        self.bounded(environment, answer).await
    }

    async fn tags(&self, environment: &Namespace, repository: &ImageRef, query: &TagQuery) -> Result<TagPage> {
        let answer = self.ask((environment, repository), |question| async move { self.listed(&question, query).await });
        self.bounded(environment, answer).await
    }
}

pub(crate) fn manifest_at(method: Method, reference: &str) -> Document {
    Document {
        method,
        path: format!("manifests/{reference}"),
        accept: manifest::ACCEPT,
        name: "the manifest of the image",
        most: MANIFEST_MAX,
    }
}

fn tags_at(query: &str) -> Document {
    Document {
        method: Method::GET,
        path: format!("tags/list?{query}"),
        accept: "application/json",
        name: "the list of tags",
        most: TAGS_MAX,
    }
}

fn digest_of(header: &http::HeaderValue) -> Option<Digest> {
    header.to_str().ok()?.trim().parse().ok()
}

/// Returns the digest of an answer's body, if it is the one that is wanted, and the one that the answer names; without
/// either, that of SHA-256.
pub(crate) fn verified(answer: &Answer, wanted: Option<Digest>, named: Option<Digest>) -> Option<Digest> {
    let of_body = |digest: &Digest| match digest.as_str().split_once(':') {
        Some(("sha512", digits)) => hex(&Sha512::digest(&answer.body)) == digits,
        Some((_, digits)) => hex(&Sha256::digest(&answer.body)) == digits,
        None => false,
    };
    match wanted {
        Some(wanted) => (of_body(&wanted) && named.as_ref().is_none_or(of_body)).then_some(wanted),
        None => format!("sha256:{}", hex(&Sha256::digest(&answer.body))).parse().ok(),
    }
}
