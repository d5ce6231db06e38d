//! Answers that are longer, shorter or other than they should be, and what is asked at all.

use rollhook_core::error::{Entity, Error};
use rollhook_testing::fixtures::scripted::{self, Answer, Ends, Server, digest};
use serde_json::{Map, json};

use crate::images::{Image, OCI_CONFIGURATION, Reader, at, configuration};

#[tokio::test]
async fn image_that_was_read_is_asked_for_by_its_head_alone() {
    let server = Server::answering(|asked| Image::new().answer(asked));
    let reader = Reader::anonymous();
    let first = reader.resolve(&at(&server)).await.unwrap();
    let digest = Image::new().digest();
    let blob = format!("GET /v2/shop/api/blobs/{}", scripted::digest(&Image::new().configuration));
    let manifests = |reference: &str| format!("/v2/shop/api/manifests/{reference}");
    let by_tag = format!("HEAD {}", manifests("v1"));
    assert_eq!(server.lines(), [by_tag.clone(), format!("GET {}", manifests(&digest)), blob]);
    assert_eq!(reader.resolve(&at(&server)).await.unwrap(), first);
    let pinned = format!("{}@{digest}", at(&server));
    assert_eq!(reader.resolve(&pinned).await.unwrap(), first);
    assert_eq!(server.lines()[3..], [by_tag, format!("HEAD {}", manifests(&digest))]);
    let accept = server.asked()[0].headers["accept"].clone();
    for form in ["oci.image.index.v1", "oci.image.manifest.v1", "manifest.list.v2", "distribution.manifest.v2"] {
        assert!(accept.contains(form), "{accept}");
    }
}

#[tokio::test]
async fn registry_that_names_no_digest_is_read_by_its_bytes() {
    for head in [200, 405, 501] {
        let server = Server::answering(move |asked| {
            let mut says = Image::new().answer(asked);
            says.headers.retain(|(name, _)| name != "docker-content-digest");
            if asked.method == "HEAD" { Answer { status: head, ..says } } else { says }
        });
        let reader = Reader::anonymous();
        for _ in 0..2 {
            let resolved = reader.resolve(&at(&server)).await.unwrap();
            assert_eq!((resolved.digest.as_str(), resolved.platforms.len()), (&*Image::new().digest(), 1), "{head}");
        }
    }
}

#[tokio::test]
async fn digest_that_is_none_or_another_than_was_asked_for_is_refused() {
    let other = digest(b"other");
    for named in [other.clone(), "md5:1".to_owned(), String::new()] {
        let server =
            Server::answering(move |asked| Image::new().answer(asked).replaced("docker-content-digest", named.clone()));
        let pinned = format!("{}@{}", at(&server), Image::new().digest());
        let error = Reader::anonymous().resolve(&pinned).await.unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }), "{}", error.chain());
    }
    // A body that was cut off where the head does not say so.
    let server = Server::answering(|asked| {
        let says = Image::new().answer(asked);
        let half = says.body[..says.body.len() / 2].to_vec();
        says.body(half)
    });
    let error = Reader::anonymous().resolve(&at(&server)).await.unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{}", error.chain());
}

#[tokio::test]
async fn huge_answers_are_refused() {
    for part in ["/manifests/", "/tags/"] {
        for (length, ends) in [(5 << 20, Ends::Whole), (0, Ends::Never)] {
            let server = Server::answering(move |asked| {
                let says = Image::new().answer(asked);
                if !asked.path.contains(part) || asked.method == "HEAD" {
                    return says;
                }
                let body = if length > 0 { vec![b' '; length] } else { Vec::new() };
                Answer { ends, body, ..says }
            });
            let reader = Reader::anonymous();
            let error = match part {
                "/tags/" => reader.tags(&at(&server)).await.unwrap_err(),
                _ => reader.resolve(&at(&server)).await.unwrap_err(),
            };
            assert!(
                matches!(error, Error::Invalid { .. }) && error.to_string().contains("KiB"),
                "{part}: {}",
                error.chain()
            );
        }
    }
    let server = Server::answering(|asked| match asked.path.starts_with("/token") {
        true => Answer::status(200).body(vec![b' '; 65 << 10]),
        false => Answer::status(401)
            .header("www-authenticate", format!("Bearer realm=\"http://{}/token\"", asked.headers["host"])),
    });
    let error = Reader::anonymous().resolve(&at(&server)).await.unwrap_err();
    assert!(matches!(error, Error::Invalid { .. }), "{}", error.chain());
}

#[tokio::test]
async fn image_whose_configuration_has_no_end_or_cannot_be_read_is_found_without_what_it_says() {
    for answer in [
        Answer { ends: Ends::Never, ..Answer::status(200) },
        Answer::status(200).body(vec![b' '; 5 << 20]),
        Answer::status(403),
        Answer::status(500),
    ] {
        let server = Server::answering(move |asked| match asked.path.contains("/blobs/") {
            true => answer.clone(),
            false => Image::new().answer(asked),
        });
        let resolved = Reader::anonymous().resolve(&at(&server)).await.unwrap();
        assert_eq!((resolved.digest.as_str(), resolved.platforms.len()), (&*Image::new().digest(), 0));
    }
}

#[tokio::test]
async fn status_404_that_is_not_a_registrys_makes_no_verdict() {
    let proxy = Server::answering(|_| Answer::status(404).body("404 page not found"));
    let error = Reader::anonymous().resolve(&at(&proxy)).await.unwrap_err();
    assert!(error.is_unavailable() && error.to_string().contains("not as a registry"), "{}", error.chain());
    let unknown = r#"{"errors": [{"code": "NAME_UNKNOWN", "message": "repository name not known"}]}"#;
    let open = Server::answering(move |_| Answer::status(404).body(unknown));
    let error = Reader::anonymous().resolve(&at(&open)).await.unwrap_err();
    assert!(matches!(error, Error::NotFound(Entity::Repository)), "{}", error.chain());
    // One that wants a token may hide what this reader has no login for.
    let hiding = Server::answering(move |asked| match (asked.path.starts_with("/token"), asked.authorization()) {
        (true, _) => Answer::status(200).body(r#"{"token": "t", "expires_in": 300}"#),
        (false, "Bearer t") => Answer::status(404).body(unknown),
        (false, _) => {
            let realm = format!("http://{}/token", asked.headers["host"]);
            Answer::status(401).header("www-authenticate", format!("Bearer realm=\"{realm}\""))
        }
    });
    let error = Reader::anonymous().resolve(&at(&hiding)).await.unwrap_err();
    assert!(matches!(error, Error::Denied { .. }), "{}", error.chain());
    // A list of tags that cannot be read says nothing of the image.
    let closed = Server::answering(|asked| Answer::status(if asked.path.contains("/tags/") { 500 } else { 404 }));
    let error = Reader::anonymous().resolve(&at(&closed)).await.unwrap_err();
    assert!(error.is_unavailable(), "{}", error.chain());
}

#[tokio::test]
async fn image_with_a_long_configuration_is_found_without_what_it_says() {
    let mut labels = Map::new();
    labels.insert("x".to_owned(), "x".repeat(2 << 20).into());
    let configuration = configuration("amd64", labels);
    let image = Image { manifest: crate::images::manifest(&configuration), configuration };
    let expected = image.digest();
    let server = Server::answering(move |asked| image.answer(asked));
    let resolved = Reader::anonymous().resolve(&at(&server)).await.unwrap();
    assert_eq!((resolved.digest.as_str(), resolved.platforms.len()), (&*expected, 0));
    assert!(server.lines().iter().all(|line| !line.contains("/blobs/")), "{:?}", server.lines());
}

#[tokio::test]
async fn index_of_which_an_image_was_removed_is_found() {
    let index = json!({
        "schemaVersion": 2,
        "manifests": [{
            "mediaType": crate::images::OCI_MANIFEST, "digest": digest(b"gone"), "size": 4,
            "platform": {"os": "linux", "architecture": "amd64"},
        }],
    });
    let index = index.to_string().into_bytes();
    let own = digest(&index);
    let server = Server::answering(move |asked| {
        let found = Answer::status(200).header("content-type", crate::images::OCI_INDEX).body(index.clone());
        match asked.path.contains(&digest(b"gone")) {
            true => Answer::status(404),
            false => found.header("docker-content-digest", digest(&index)),
        }
    });
    let resolved = Reader::anonymous().resolve(&at(&server)).await.unwrap();
    assert_eq!((resolved.digest.as_str(), resolved.platforms.len()), (&*own, 1));
}

#[tokio::test]
async fn other_documents_are_no_images() {
    let first = r#"{"schemaVersion": 1, "name": "api", "tag": "v1"}"#;
    let first_type = "application/vnd.docker.distribution.manifest.v1+prettyjws";
    let both = json!({"manifests": [], "config": {"mediaType": OCI_CONFIGURATION, "digest": digest(b""), "size": 0}});
    for (body, media_type, is_invalid) in [
        (first.to_owned(), first_type, true),
        (both.to_string(), crate::images::OCI_INDEX, false),
        ("<html>".to_owned(), "text/html", false),
    ] {
        let server =
            Server::answering(move |_| Answer::status(200).header("content-type", media_type).body(body.clone()));
        let error = Reader::anonymous().resolve(&at(&server)).await.unwrap_err();
        let (invalid, corrupt) = (matches!(error, Error::Invalid { .. }), matches!(error, Error::Corrupt { .. }));
        assert_eq!((invalid, corrupt), (is_invalid, !is_invalid), "{}", error.chain());
    }
}

#[tokio::test]
async fn registry_that_asks_to_be_left_alone_is_not_called_until_then() {
    let server = Server::answering(|_| Answer::status(429).header("retry-after", "3600"));
    let reader = Reader::anonymous();
    for _ in 0..3 {
        let error = reader.resolve(&at(&server)).await.unwrap_err();
        assert!(error.retry_after().is_some_and(|time| time.as_secs() > 3000), "{}", error.chain());
        assert!(reader.tags(&at(&server)).await.unwrap_err().retry_after().is_some());
    }
    assert_eq!(server.lines().len(), 1, "{:?}", server.lines());
    // The calls of another environment may be others', with a login of its own.
    reader.of("shop-prod").resolve(&at(&server)).await.unwrap_err();
    assert_eq!(server.lines().len(), 2);
}
