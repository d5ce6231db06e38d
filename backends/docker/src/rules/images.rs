//! Images of old versions that may be removed: those that rollhook built or pulled for an app, and that nothing uses.

use std::collections::HashSet;

use rollhook_core::image::ImageRef;
use serde::Deserialize;

use super::origin;

/// An image of the machine, as lists and inspections have it, without what its maker wrote into it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct StoredImage {
    pub(crate) id: String,
    repo_tags: Option<Vec<String>>,
    repo_digests: Option<Vec<String>>,
    identity: Option<Identity>,
}

/// What the containerd image store says of an image's origin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Identity {
    pull: Option<Vec<PulledFrom>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct PulledFrom {
    repository: String,
}

impl StoredImage {
    /// The names with tags; the engine writes `<none>` for an image that has none.
    pub(crate) fn tags(&self) -> impl Iterator<Item = ImageRef> {
        self.repo_tags.iter().flatten().filter_map(|name| name.parse().ok())
    }

    /// The names with digests.
    pub(crate) fn digests(&self) -> impl Iterator<Item = ImageRef> {
        self.repo_digests.iter().flatten().filter_map(|name| name.parse().ok())
    }

    /// The repositories that the containerd image store says it was pulled from.
    pub(crate) fn pulled_from(&self) -> impl Iterator<Item = ImageRef> {
        let pulled = self.identity.iter().filter_map(|identity| identity.pull.as_ref()).flatten();
        pulled.filter_map(|pull| pull.repository.parse().ok())
    }
}

/// Returns the names and ids under which surplus images are to be removed. One whose id is used stays, as does one
/// that came here in another way; a name that people gave an image keeps it.
pub(crate) fn removable<'a>(
    images: impl IntoIterator<Item = &'a StoredImage>,
    used: &HashSet<&str>,
    surplus: &[ImageRef],
) -> Vec<String> {
    let unused: Vec<&StoredImage> = images.into_iter().filter(|found| !used.contains(&*found.id)).collect();
    surplus.iter().flat_map(|image| unused.iter().flat_map(move |found| names_of(found, image))).collect()
}

/// Whether the id of an image of the machine is the digest of one of these: it was built here, or is in the containerd
/// image store.
pub(crate) fn is_any(found: &StoredImage, surplus: &[ImageRef]) -> bool {
    let is_id = |image: &ImageRef| image.digest().is_some_and(|digest| found.id == digest.to_string());
    surplus.iter().any(is_id)
}

/// Returns the names of an image of the machine that are rollhook's, or its id, if it is this one.
fn names_of(found: &StoredImage, image: &ImageRef) -> Vec<String> {
    let (Some(digest), id) = (image.digest(), &found.id) else { return Vec::new() };
    let digest = digest.to_string();
    let repository = image.canonical_repository();
    let (tags, digests): (Vec<ImageRef>, Vec<ImageRef>) = (found.tags().collect(), found.digests().collect());
    let is_of_it = |name: &ImageRef| name.canonical_repository() == repository;
    let is_pulled = if *id == digest {
        // The tag of a build is its commit; a person who builds an image names it otherwise.
        let built = tags.iter().filter(|name| is_of_it(name) && name.tag().is_some_and(is_commit));
        let built: Vec<String> = built.map(ToString::to_string).collect();
        if !built.is_empty() {
            return built;
        }
        origin::is_told_pulled(found, image)
    } else {
        digests.iter().any(|known| known.digest().is_some_and(|known| known.to_string() == digest))
    };
    let is_alone = tags.len() <= 1 && tags.iter().chain(&digests).all(is_of_it);
    if is_pulled && is_alone { vec![id.clone()] } else { Vec::new() }
}

fn is_commit(tag: &str) -> bool {
    matches!(tag.len(), 40 | 64) && tag.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn digest(of: char) -> String {
        format!("sha256:{}", of.to_string().repeat(64))
    }

    fn found(id: char, tags: &[&str], digests: &[String]) -> StoredImage {
        serde_json::from_value(json!({ "Id": digest(id), "RepoTags": tags, "RepoDigests": digests })).unwrap()
    }

    fn removable(images: &[StoredImage], used: &[&str], surplus: &[ImageRef]) -> Vec<String> {
        super::removable(images, &used.iter().copied().collect(), surplus)
    }

    fn surplus(of: char) -> Vec<ImageRef> {
        vec![format!("shop/web@{}", digest(of)).parse().unwrap()]
    }

    #[test]
    fn image_that_was_built_or_pulled_for_the_app_is_removed() {
        let commit = format!("shop/web:{}", "0a".repeat(20));
        let built = [found('a', &[&commit], &["<none>@<none>".to_owned()])];
        assert_eq!(removable(&built, &[], &surplus('a')), std::slice::from_ref(&commit));
        let other = format!("shop/web:{}", "0b".repeat(20));
        let several = [found('a', &[&commit, "shop/web:stable", "prod/web:v1", &other], &[])];
        assert_eq!(removable(&several, &[], &surplus('a')), [commit, other], "what people named stays");
        let pulled = |tags: &[&str]| [found('a', tags, &[format!("docker.io/shop/web@{}", digest('b'))])];
        for tags in [&[][..], &["<none>:<none>"], &["shop/web:v1"]] {
            assert_eq!(removable(&pulled(tags), &[], &surplus('b')), [digest('a')], "{tags:?}");
        }
        assert!(removable(&pulled(&[]), &[], &surplus('c')).is_empty(), "another image");
        assert!(removable(&pulled(&[]), &[&digest('a')], &surplus('b')).is_empty(), "in use");
    }

    #[test]
    fn image_of_the_containerd_store_is_removed_if_the_engine_says_that_it_was_pulled() {
        let stored = |tags: &[&str], identity: Value| {
            let digests: Vec<String> = tags.iter().map(|_| format!("shop/web@{}", digest('a'))).collect();
            let image = json!({ "Id": digest('a'), "RepoTags": tags, "RepoDigests": digests, "Identity": identity });
            serde_json::from_value::<StoredImage>(image).unwrap()
        };
        let pulled = json!({ "Pull": [{ "Repository": "docker.io/shop/web" }] });
        for tags in [&[][..], &["shop/web:v1"]] {
            let images = [stored(tags, pulled.clone())];
            assert!(is_any(&images[0], &surplus('a')) && !is_any(&images[0], &surplus('b')));
            assert_eq!(removable(&images, &[], &surplus('a')), [digest('a')], "{tags:?}");
        }
        for (tags, identity) in [
            (&["shop/web:v1"][..], Value::Null),
            (&["shop/web:v1"], json!({ "Build": [{ "Ref": "r" }] })),
            (&["shop/web:v1"], json!({ "Pull": [{ "Repository": "docker.io/other/web" }] })),
            (&["shop/web:v1", "shop/web:v2"], pulled.clone()),
            (&["other/web:v1"], pulled),
        ] {
            let images = [stored(tags, identity)];
            assert!(removable(&images, &[], &surplus('a')).is_empty(), "{images:?}");
        }
        let commit = format!("shop/web:{}", "0a".repeat(20));
        assert_eq!(removable(&[stored(&[&commit], Value::Null)], &[], &surplus('a')), [commit]);
    }

    #[test]
    fn image_that_people_made_or_named_stays() {
        let pulled = [format!("shop/web@{}", digest('a'))];
        for (tags, digests) in
            [(&["shop/web:v1"][..], &[][..]), (&["shop/web:v1"], &pulled), (&["other/web:v1"], &[]), (&[], &[])]
        {
            let images = [found('a', tags, digests)];
            assert!(removable(&images, &[], &surplus('a')).is_empty(), "{images:?}");
        }
        let elsewhere = [format!("shop/web@{}", digest('b')), format!("other/web@{}", digest('b'))];
        assert!(removable(&[found('a', &[], &elsewhere)], &[], &surplus('b')).is_empty());
    }
}
