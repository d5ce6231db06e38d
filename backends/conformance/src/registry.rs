//! The promises of [`rollhook_core::ports::Registry`].

use std::time::Duration;

use futures_util::{FutureExt, select_biased};
use rollhook_core::{
    Error, Result,
    error::Entity,
    image::{ImageLabels, ImageRef, Platform, Tag},
    ports::{Resolved, TagPage, TagQuery},
};

use crate::{
    registries::{ImageSample, Registries, RegistryAnswer},
    report::Can,
};

/// The time after which a call counts as one without an end, on a machine that is slow.
const ENDLESS: Duration = Duration::from_secs(120);
/// The most pages of a short list.
const PAGES_MAX: usize = 20;

fn tag(text: &str) -> Tag {
    text.parse().unwrap()
}

fn platform(architecture: &str, variant: Option<&str>) -> Platform {
    Platform::new("linux", architecture, variant).unwrap()
}

/// An image for one platform.
fn sample(number: u32) -> ImageSample {
    ImageSample {
        number,
        platforms: vec![platform("amd64", None)],
        is_attested: false,
        annotations: ImageLabels::default(),
        labels: ImageLabels::default(),
    }
}

/// An image for two platforms.
fn index(number: u32) -> ImageSample {
    let platforms = vec![platform("amd64", None), platform("arm64", Some("v8"))];
    ImageSample { platforms, ..sample(number) }
}

async fn in_time<T>(harness: &dyn Registries, call: impl Future<Output = Result<T>> + Send) -> Result<T> {
    let call = std::pin::pin!(call);
    select_biased! {
        answer = call.fuse() => answer,
        () = harness.sleep(ENDLESS).fuse() => panic!("a call ends in time"),
    }
}

async fn resolve(harness: &dyn Registries, image: &ImageRef) -> Result<Resolved> {
    let (registry, environment) = (harness.registry(), harness.environment());
    in_time(harness, registry.resolve(&environment, image)).await
}

async fn page(harness: &dyn Registries, repository: &ImageRef, query: &TagQuery) -> Result<TagPage> {
    let (registry, environment) = (harness.registry(), harness.environment());
    in_time(harness, registry.tags(&environment, repository, query)).await
}

async fn first_page(harness: &dyn Registries, repository: &ImageRef) -> Result<TagPage> {
    page(harness, repository, &TagQuery { limit: 10, after: None }).await
}

/// Digest and media type of what a tag points to; without a tag, of what `latest` does.
pub async fn resolve_is_what_was_pushed(harness: &dyn Registries) -> Can {
    let repository = harness.repository();
    for (name, sample) in [("v1", sample(1)), ("latest", sample(2)), ("both", index(3))] {
        let (digest, media_type) = harness.push(&repository, &tag(name), &sample).await?;
        let image = repository.clone().tagged(tag(name));
        let resolved = resolve(harness, &image).await.unwrap();
        assert_eq!((&resolved.digest, &resolved.media_type), (&digest, &media_type), "{image}");
        if name == "latest" {
            let untagged = resolve(harness, &repository).await.unwrap();
            assert_eq!(untagged, resolved, "a reference without a tag means latest");
        }
    }
    Ok(())
}

/// What a tag means is read anew by each call.
pub async fn resolve_follows_a_moved_tag(harness: &dyn Registries) -> Can {
    let repository = harness.repository();
    let image = repository.clone().tagged(tag("v1"));
    for number in [1, 2, 1] {
        let (digest, _) = harness.push(&repository, &tag("v1"), &sample(number)).await?;
        for _ in 0..2 {
            let resolved = resolve(harness, &image).await.unwrap();
            assert_eq!(resolved.digest, digest, "the tag was moved to image {number}");
        }
    }
    Ok(())
}

/// A digest is that image, whatever stands beside it.
pub async fn resolve_by_digest_is_that_image(harness: &dyn Registries) -> Can {
    let repository = harness.repository();
    let (first, _) = harness.push(&repository, &tag("v1"), &sample(1)).await?;
    let (second, _) = harness.push(&repository, &tag("v1"), &index(2)).await?;
    assert_ne!(first, second);
    for digest in [first, second] {
        for image in [repository.clone(), repository.clone().tagged(tag("v1")), repository.clone().tagged(tag("gone"))]
        {
            let image = image.pinned(digest.clone());
            assert_eq!(resolve(harness, &image).await.unwrap().digest, digest, "{image}: the digest is the image");
        }
    }
    let missing = format!("sha256:{}", "0".repeat(64)).parse().unwrap();
    let missing = resolve(harness, &repository.clone().pinned(missing)).await;
    assert!(matches!(missing, Err(Error::NotFound(Entity::Image))), "an image that is not there: {missing:?}");
    Ok(())
}

/// The platforms of a single image and of an index, without what is no image.
pub async fn resolve_names_the_platforms(harness: &dyn Registries) -> Can {
    let repository = harness.repository();
    let of_arm = ImageSample { platforms: vec![platform("arm", Some("v7"))], ..sample(2) };
    let attested = ImageSample { is_attested: true, ..index(4) };
    for sample in [sample(1), of_arm, index(3), attested] {
        harness.push(&repository, &tag("v1"), &sample).await?;
        let resolved = resolve(harness, &repository.clone().tagged(tag("v1"))).await.unwrap();
        assert_eq!(resolved.platforms, sample.platforms, "the platforms of {sample:?}");
    }
    Ok(())
}

/// The labels of the configuration, and annotations before them.
pub async fn resolve_reads_the_labels(harness: &dyn Registries) -> Can {
    let repository = harness.repository();
    let labels = |revision: &str| ImageLabels::default().or([("org.opencontainers.image.revision", revision)]);
    let more = |labels: ImageLabels| labels.or([("org.opencontainers.image.source", "https://git.example.com/api")]);
    for sample in [sample(1), index(2)] {
        harness.push(&repository, &tag("bare"), &sample).await?;
        let bare = resolve(harness, &repository.clone().tagged(tag("bare"))).await.unwrap();
        assert_eq!(bare.labels, ImageLabels::default(), "there are none of {sample:?}");
        let labelled = ImageSample { labels: more(labels("abc")), ..sample.clone() };
        harness.push(&repository, &tag("labelled"), &labelled).await?;
        let resolved = resolve(harness, &repository.clone().tagged(tag("labelled"))).await.unwrap();
        assert_eq!(resolved.labels, more(labels("abc")), "the labels of {labelled:?}");
        let annotated = ImageSample { annotations: labels("def"), ..labelled };
        harness.push(&repository, &tag("annotated"), &annotated).await?;
        let resolved = resolve(harness, &repository.clone().tagged(tag("annotated"))).await.unwrap();
        assert_eq!(resolved.labels, more(labels("def")), "annotations come before labels");
    }
    Ok(())
}

/// Of a repository that is there, only the image is missing.
pub async fn missing_tag_is_not_found(harness: &dyn Registries) -> Can {
    let repository = harness.repository();
    harness.push(&repository, &tag("v1"), &sample(1)).await?;
    for name in ["v", "v2", "latest"] {
        let missing = resolve(harness, &repository.clone().tagged(tag(name))).await;
        assert!(matches!(missing, Err(Error::NotFound(Entity::Image))), "the tag {name} is missing: {missing:?}");
    }
    Ok(())
}

/// Of a repository that is not there, the repository is missing.
pub async fn missing_repository_is_not_found(harness: &dyn Registries) -> Can {
    let missing = resolve(harness, &harness.repository().tagged(tag("v1"))).await;
    assert!(matches!(missing, Err(Error::NotFound(Entity::Repository))), "the repository is missing: {missing:?}");
    Ok(())
}

/// The pages of a list have each tag once, however long they are.
pub async fn tags_are_all_there(harness: &dyn Registries) -> Can {
    let repository = harness.repository();
    let missing = first_page(harness, &repository).await;
    assert!(matches!(missing, Err(Error::NotFound(Entity::Repository))), "there is no repository: {missing:?}");
    let mut names = ["v1", "v2", "v10", "latest", "B"].map(tag);
    for name in &names {
        harness.push(&repository, name, &sample(1)).await?;
    }
    names.sort();
    for limit in [1, 2, 5, 100] {
        let (mut found, mut query) = (Vec::new(), TagQuery { limit, after: None });
        for number in 1.. {
            assert!(number <= PAGES_MAX, "the list ends, in pages of {limit}: {found:?}");
            let page = page(harness, &repository, &query).await.unwrap();
            found.extend(page.tags);
            query.after = page.next;
            if query.after.is_none() {
                break;
            }
        }
        found.sort();
        assert_eq!(found, names, "all tags are there once, in pages of {limit}");
    }
    Ok(())
}

/// A registry that lets nobody in says so, in both of its ways.
pub async fn closed_repository_is_denied(harness: &dyn Registries) -> Can {
    for answer in [RegistryAnswer::Closed, RegistryAnswer::Hidden] {
        failing(harness, answer, |error| {
            assert!(matches!(error, Error::Denied { .. }), "{answer:?} is a denial: {}", error.chain());
        })
        .await?;
    }
    Ok(())
}

/// A registry that is away is asked again later.
pub async fn away_is_unavailable(harness: &dyn Registries) -> Can {
    for answer in [RegistryAnswer::Gone, RegistryAnswer::Silence, RegistryAnswer::Failure] {
        failing(harness, answer, |error| {
            assert!(error.is_unavailable(), "{answer:?} may pass: {}", error.chain());
        })
        .await?;
    }
    Ok(())
}

/// A registry that had too many calls says when to come back, if it does.
pub async fn busy_is_unavailable_with_its_time(harness: &dyn Registries) -> Can {
    for time in [None, Some(Duration::from_secs(2))] {
        failing(harness, RegistryAnswer::Busy(time), |error| {
            assert!(error.is_unavailable(), "too many calls may pass: {}", error.chain());
            // Of a pause that has begun, the rest is left.
            let named = error.retry_after().map(|left| Some(left) <= time && !left.is_zero());
            assert_eq!(named, time.map(|_| true), "the time that the registry asks for: {}", error.chain());
        })
        .await?;
    }
    Ok(())
}

/// A document is what its digest says, or nothing.
pub async fn wrong_answer_is_no_image(harness: &dyn Registries) -> Can {
    let repository = harness.repository();
    let mut number = 0;
    for answer in [RegistryAnswer::OtherDigest, RegistryAnswer::CutOff] {
        for sample in [sample, index] {
            // What was read before may be kept, so that each is an image that was never read.
            number += 1;
            harness.answer(RegistryAnswer::Usual).await?;
            let (digest, _) = harness.push(&repository, &tag("v1"), &sample(number)).await?;
            harness.answer(answer).await?;
            let tagged = repository.clone().tagged(tag("v1"));
            for image in [tagged.clone(), tagged.clone().pinned(digest.clone())] {
                let is_refused = match resolve(harness, &image).await {
                    Err(Error::Corrupt { .. }) => true,
                    Err(Error::Unavailable { .. }) => answer == RegistryAnswer::CutOff,
                    _ => false,
                };
                assert!(is_refused, "{answer:?} of {image} is no image");
            }
            harness.answer(RegistryAnswer::Usual).await?;
            assert_eq!(resolve(harness, &tagged).await.unwrap().digest, digest, "after {answer:?}");
        }
    }
    Ok(())
}

/// A call ends, whatever is answered.
pub async fn answers_are_bounded(harness: &dyn Registries) -> Can {
    failing(harness, RegistryAnswer::Endless, |_| {}).await
}

/// Judges the errors of both calls while a registry answers so, and sees that they end with it.
async fn failing(harness: &dyn Registries, answer: RegistryAnswer, judge: impl Fn(&Error)) -> Can {
    let repository = harness.repository();
    let (digest, _) = harness.push(&repository, &tag("v1"), &sample(1)).await?;
    let image = repository.clone().tagged(tag("v1"));
    harness.answer(answer).await?;
    match resolve(harness, &image).await {
        Err(error) => judge(&error),
        Ok(resolved) => panic!("{answer:?} is a failure of resolving: {resolved:?}"),
    }
    match first_page(harness, &repository).await {
        Err(error) => judge(&error),
        Ok(page) => panic!("{answer:?} is a failure of listing: {page:?}"),
    }
    harness.answer(RegistryAnswer::Usual).await?;
    if let RegistryAnswer::Busy(Some(time)) = answer {
        harness.sleep(time).await;
    }
    assert_eq!(resolve(harness, &image).await.unwrap().digest, digest, "after {answer:?} it is found");
    Ok(())
}
