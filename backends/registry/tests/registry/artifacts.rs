//! Artifacts beside an image, as registries list them.

use rollhook_core::{
    error::{Entity, Error},
    image::ImageRef,
};
use rollhook_registry::{HttpRegistry, Part};
use rollhook_testing::fixtures::scripted::{Answer, Request, Server, digest};
use serde_json::json;

use crate::images::{OCI_INDEX, OCI_MANIFEST, Reader};

const UNKNOWN: &str = r#"{"errors": [{"code": "MANIFEST_UNKNOWN"}]}"#;

fn image(server: &Server) -> ImageRef {
    format!("{}/shop/api@{}", server.address, digest(b"image")).parse().unwrap()
}

fn part(number: u8) -> serde_json::Value {
    json!({"mediaType": OCI_MANIFEST, "artifactType": "a", "digest": format!("sha256:{number:064x}"), "size": 1})
}

fn index(parts: &[serde_json::Value]) -> Answer {
    let body = json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": parts}).to_string();
    Answer::status(200).header("content-type", OCI_INDEX).body(body)
}

async fn referrers(registry: &HttpRegistry, server: &Server) -> Result<Vec<Part>, Error> {
    registry.referrers(&"shop-test".parse().unwrap(), &image(server)).await
}

#[tokio::test]
async fn list_goes_on_over_its_pages() {
    let server = Server::answering(|asked: &Request| match asked.path.split_once('?') {
        Some((_, "page=2")) => index(&[part(2)]),
        Some((_, "page=forever")) => {
            index(&[part(3)]).header("link", "<http://evil.example/?page=forever>; rel=\"next\"")
        }
        _ if asked.path.contains("/referrers/") => index(&[part(1)]).header("link", "</x?page=2>; rel=\"next\""),
        _ => Answer::status(500),
    });
    let registry = Reader::anonymous().registry;
    let listed = referrers(&registry, &server).await.unwrap();
    assert_eq!(
        listed.iter().map(|part| part.digest.to_string()).collect::<Vec<_>>(),
        [format!("sha256:{:064x}", 1), format!("sha256:{:064x}", 2)]
    );
    let endless = Server::answering(|_: &Request| index(&[part(3)]).header("link", "</x?page=forever>; rel=\"next\""));
    assert_eq!(referrers(&registry, &endless).await.unwrap().len(), 4);
}

#[tokio::test]
async fn list_of_an_older_registry_is_at_a_tag() {
    for status in [400, 403, 404, 405] {
        let server = Server::answering(move |asked: &Request| {
            let tag = digest(b"image").replace(':', "-");
            if asked.path.contains("/referrers/") {
                return Answer::status(status).body("404 page not found");
            }
            if asked.path.ends_with(&format!("/manifests/{tag}")) { index(&[part(1)]) } else { Answer::status(500) }
        });
        let listed = referrers(&Reader::anonymous().registry, &server).await.unwrap();
        assert_eq!(listed.len(), 1, "{status}");
    }
    let without = Server::answering(|_: &Request| Answer::status(404).body(UNKNOWN));
    assert_eq!(referrers(&Reader::anonymous().registry, &without).await.unwrap(), []);
}

/// A proxy answers 404 too when its registry is away: that is no answer about signatures.
#[tokio::test]
async fn nothing_is_known_of_a_registry_that_is_away() {
    let proxy = Server::answering(|_: &Request| Answer::status(404).body("no such backend"));
    let answer = referrers(&Reader::anonymous().registry, &proxy).await;
    assert!(matches!(answer, Err(Error::Unavailable { .. })), "{answer:?}");
    let failing = Server::answering(|_: &Request| Answer::status(503));
    let answer = referrers(&Reader::anonymous().registry, &failing).await;
    assert!(matches!(answer, Err(Error::Unavailable { .. })), "{answer:?}");
    let gone = Server::answering(|asked: &Request| {
        if asked.path.contains("/tags/") {
            return Answer::status(404).body(r#"{"errors": [{"code": "NAME_UNKNOWN"}]}"#);
        }
        Answer::status(404)
    });
    let answer = referrers(&Reader::anonymous().registry, &gone).await;
    assert!(matches!(answer, Err(Error::NotFound(Entity::Repository))), "{answer:?}");
}

#[tokio::test]
async fn artifact_and_blob_are_what_their_digests_say() {
    let manifest = json!({"schemaVersion": 2, "layers": [part(1)], "annotations": {"k": "v"}}).to_string();
    let (served, own) = (manifest.clone(), digest(manifest.as_bytes()));
    let server = Server::answering(move |asked: &Request| {
        let is_blob = asked.path.contains("/blobs/");
        Answer::status(200).header("content-type", OCI_MANIFEST).body(if is_blob { "blob" } else { served.as_str() })
    });
    let registry = Reader::anonymous().registry;
    let (environment, image) = ("shop-test".parse().unwrap(), image(&server));
    let read = async |digest: &str| registry.read_artifact(&environment, &image, &digest.parse().unwrap()).await;
    let found = read(&own).await.unwrap().unwrap();
    assert_eq!((found.layers.len(), found.annotations["k"].as_str()), (1, "v"));
    assert!(matches!(read(&digest(b"other")).await, Err(Error::Corrupt { .. })));
    let blob = async |content: &[u8], most: usize| {
        registry.read_blob(&environment, &image, &digest(content).parse().unwrap(), most).await
    };
    assert_eq!(blob(b"blob", 4).await.unwrap(), b"blob");
    assert!(matches!(blob(b"blob", 3).await, Err(Error::Invalid { .. })));
    assert!(matches!(blob(b"other", 9).await, Err(Error::Corrupt { .. })));
}
