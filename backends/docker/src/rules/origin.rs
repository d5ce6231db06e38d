//! Where an image of the machine comes from: whether its tag may have moved in a registry.
//!
//! The classic image store has the digests of the repositories that an image was pulled from or pushed to. In the
//! containerd image store each image has a digest of its every name, and its origin apart from that, in engines from
//! API 1.53 on.

use rollhook_core::{
    image::{Digest, ImageRef},
    ports::Purpose,
};
use serde_json::Value;

use super::images::StoredImage;

/// The first version of the API that tells the origin of images in the containerd image store.
const TELLS_ORIGINS: (u32, u32) = (1, 53);

/// The origin of an image, as one of a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The image was made on this machine, and neither pulled from nor pushed to the repository.
    Here,
    /// The image was pulled from the repository, or pushed to it.
    Repository,
    /// The engine does not tell.
    Unknown,
}

/// Returns the origin of an image, as inspecting it tells. `version` is what the engine tells of itself.
pub(crate) fn origin(found: &StoredImage, image: &ImageRef, version: &Value) -> Origin {
    let is_of_it = if !is_in_containerd(found) {
        found.digests().any(|known| known.canonical_repository() == image.canonical_repository())
    } else if tells_origins(version) {
        as_noted(image).is_none() || is_told_pulled(found, image)
    } else {
        return Origin::Unknown;
    };
    if is_of_it { Origin::Repository } else { Origin::Here }
}

/// Whether the containerd image store says that the image was pulled from the repository, or pushed to it.
pub(crate) fn is_told_pulled(found: &StoredImage, image: &ImageRef) -> bool {
    let ours = as_noted(image);
    ours.is_some_and(|ours| found.pulled_from().any(|theirs| theirs.canonical_repository() == ours))
}

/// Whether a name says nothing of its registry, such as `shop/web`: it is Docker Hub's, or means this machine alone.
pub(crate) fn is_bare(image: &ImageRef) -> bool {
    let rest = image.canonical_repository();
    let rest = rest.strip_prefix("docker.io/").unwrap_or_default();
    rest == image.repository() || rest.strip_prefix("library/") == Some(image.repository())
}

/// The digest by which an image of the repository can be had again: the registry's, or the image's own id where it was
/// made on this machine.
pub(crate) fn digest(found: &StoredImage, wanted: &ImageRef) -> Option<Digest> {
    let named = found.digests().filter(|known| known.canonical_repository() == wanted.canonical_repository());
    let ours: Vec<Digest> = named.filter_map(|known| known.digest().cloned()).collect();
    let asked = wanted.digest().filter(|digest| ours.contains(digest)).cloned();
    let id = || found.id.parse().ok();
    asked.or_else(|| ours.into_iter().next()).or_else(id)
}

/// Whether a deploy may run an image of this machine that was found for the wanted one. The engine finds an image by its id
/// in whichever repository, and an app may be limited to some: the image must have a name in the wanted one. A return to a
/// deploy is to what ran, which may have lost its name to a newer build.
pub(crate) fn is_meant(found: &StoredImage, wanted: &ImageRef, purpose: Purpose) -> bool {
    let mut names = found.tags().chain(found.digests());
    purpose.returns_to().is_some() || names.any(|name| name.canonical_repository() == wanted.canonical_repository())
}

/// An image's id is the digest of its manifest there, and of its configuration in the classic store.
fn is_in_containerd(found: &StoredImage) -> bool {
    let is_id = |digest: &Digest| found.id == digest.to_string();
    found.digests().any(|known| known.digest().is_some_and(is_id))
}

fn tells_origins(version: &Value) -> bool {
    let told = version["ApiVersion"].as_str().and_then(|told| told.split_once('.'));
    let parsed = told.and_then(|(major, minor)| Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?)));
    parsed.is_some_and(|version| version >= TELLS_ORIGINS)
}

/// The repository as the containerd image store notes it, such as `127.0.0.1/web` for `127.0.0.1:5000/web`; `None` if it
/// cannot.
fn as_noted(image: &ImageRef) -> Option<String> {
    let repository = image.canonical_repository();
    let (host, path) = repository.split_once('/')?;
    let host = host.split_once(':').map_or(host, |(name, _)| name);
    let noted = format!("{host}/{path}").parse::<ImageRef>().ok()?;
    Some(noted.canonical_repository())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sha(of: char) -> String {
        format!("sha256:{}", of.to_string().repeat(64))
    }

    fn read(image: Value) -> StoredImage {
        serde_json::from_value(image).unwrap()
    }

    fn image(text: &str) -> ImageRef {
        text.parse().unwrap()
    }

    /// An image of the containerd image store, with these names.
    fn stored(repositories: &[&str], pulled: &[&str]) -> StoredImage {
        let digests: Vec<String> = repositories.iter().map(|name| format!("{name}@{}", sha('a'))).collect();
        let pulled: Vec<Value> = pulled.iter().map(|name| json!({ "Repository": name })).collect();
        let identity = if pulled.is_empty() { Value::Null } else { json!({ "Pull": pulled }) };
        read(json!({ "Id": sha('a'), "RepoDigests": digests, "Identity": identity }))
    }

    #[test]
    fn image_that_its_repository_never_had_is_made_here() {
        let found =
            |repository: &str| read(json!({"Id": sha('b'), "RepoDigests": [format!("{repository}@{}", sha('a'))]}));
        let old = json!({"ApiVersion": "1.41"});
        let of = |found: &StoredImage| origin(found, &image("shop/web:v1"), &old);
        assert_eq!(of(&read(json!({"Id": sha('b'), "RepoDigests": []}))), Origin::Here);
        assert_eq!(of(&found("registry.example.com/web")), Origin::Here, "another name of the same bits");
        assert_eq!(of(&found("docker.io/shop/web")), Origin::Repository);
    }

    #[test]
    fn origin_in_the_containerd_store_is_what_the_engine_tells() {
        let new = json!({"ApiVersion": "1.53"});
        let of = |name: &str, pulled: &[&str]| origin(&stored(&[name], pulled), &image(name), &new);
        assert_eq!(of("shop/web", &[]), Origin::Here);
        assert_eq!(of("shop/web", &["docker.io/shop/web"]), Origin::Repository);
        assert_eq!(of("shop/web", &["registry.example.com/shop/web"]), Origin::Here);
        // As an engine of API 1.56 told them.
        assert_eq!(of("127.0.0.1:5000/shop/web", &["127.0.0.1/shop/web"]), Origin::Repository);
        assert_eq!(of("registry:5000/web", &["docker.io/registry/web"]), Origin::Repository);
        assert_eq!(of("[::1]:5000/web", &[]), Origin::Repository, "the engine has no word for it");
        for version in ["1.52", "1.44", "", "2"] {
            let told = origin(&stored(&["web"], &[]), &image("web:v1"), &json!({ "ApiVersion": version }));
            assert_eq!(told, Origin::Unknown, "{version:?}");
        }
        assert_eq!(origin(&stored(&["web"], &[]), &image("web"), &json!({"ApiVersion": "2.0"})), Origin::Here);
    }

    #[test]
    fn digest_is_the_registrys_or_the_images_own() {
        let listed = [format!("other/web@{}", sha('1')), format!("registry.example.com/web@{}", sha('2'))];
        let found = read(json!({"Id": sha('9'), "RepoDigests": listed}));
        let of = |found: &StoredImage, wanted: &str| digest(found, &image(wanted)).unwrap().to_string();
        assert_eq!(of(&found, "registry.example.com/web:v1"), sha('2'));
        assert_eq!(of(&found, "docker.io/other/web"), sha('1'));
        assert_eq!(of(&read(json!({"Id": sha('9'), "RepoDigests": []})), "web:v1"), sha('9'));
    }

    #[test]
    fn image_of_another_repository_is_not_meant_by_its_id() {
        let found =
            |tags: Value, digests: &[String]| read(json!({"Id": sha('9'), "RepoTags": tags, "RepoDigests": digests}));
        let wanted = image(&format!("shop/web@{}", sha('9')));
        let deploy = |found: &StoredImage| is_meant(found, &wanted, Purpose::Deploy);
        assert!(deploy(&found(json!(["other/db:v1", "docker.io/shop/web:v1"]), &[])));
        assert!(deploy(&found(json!([]), &[format!("shop/web@{}", sha('1'))])));
        let theirs = found(json!(["other/db:v1", "shop/web2:v1"]), &[format!("other/db@{}", sha('1'))]);
        let unnamed = found(json!(["<none>:<none>"]), &[]);
        for found in [&theirs, &unnamed, &found(Value::Null, &[])] {
            assert!(!deploy(found), "{found:?}");
        }
        let to = rollhook_core::deploy::Revision::FIRST;
        for purpose in [Purpose::Rollback { to }, Purpose::Restore { to }] {
            assert!(is_meant(&unnamed, &wanted, purpose), "it ran before");
        }
        // A tag that looks like an id.
        let id = image(&sha('9'));
        assert!(!is_meant(&theirs, &id, Purpose::Deploy));
    }

    #[test]
    fn name_without_a_registry_is_bare() {
        assert!(is_bare(&image("web:v1")) && is_bare(&image("shop/web:v1")) && is_bare(&image("library/web")));
        for named in ["docker.io/web", "docker.io/shop/web", "index.docker.io/web", "localhost/web", "a.example/web"] {
            assert!(!is_bare(&image(named)), "{named}");
        }
    }
}
