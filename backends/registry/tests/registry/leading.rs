//! Where a registry leads, by redirects and by naming a server of tokens.

use rollhook_core::{error::Error, ports::Resolved};
use rollhook_registry::{HttpRegistry, LoginFiles, RegistrySettings};
use rollhook_testing::fixtures::scripted::{Answer, Reaction, Request, Server};
use rollhook_testing::free_address;
use serde_json::json;

use crate::images::{Image, Reader, at};

/// Starts a registry that keeps its blobs elsewhere.
fn leading(to: String) -> Server {
    Server::answering(move |asked| {
        if asked.path.contains("/blobs/") {
            return Answer::status(307).header("location", to.clone());
        }
        Image::new().answer(asked)
    })
}

#[tokio::test]
async fn blobs_are_read_where_the_registry_keeps_them_and_without_its_login() {
    let blobs =
        Server::start_on("127.0.0.2", |_| Reaction::Answer(Answer::status(200).body(Image::new().configuration)));
    let url = format!("http://{}/bucket/x?signature=hunter2", blobs.address);
    let server = Server::answering(move |asked| {
        let is_let_in = asked.authorization().starts_with("Basic ");
        if !is_let_in {
            return Answer::status(401).header("www-authenticate", "Basic realm=\"r\"");
        }
        if asked.path.contains("/blobs/") {
            return Answer::status(307).header("location", url.clone());
        }
        Image::new().answer(asked)
    });
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config.json");
    let login = json!({ "username": "ada", "password": "hunter2" });
    std::fs::write(&file, json!({ "auths": { &server.address.to_string(): login } }).to_string()).unwrap();
    let resolved = Reader::new(LoginFiles::At(file)).resolve(&at(&server)).await.unwrap();
    assert_eq!(resolved.platforms.len(), 1);
    let asked = blobs.asked();
    assert_eq!((asked.len(), asked[0].authorization()), (1, ""), "a login goes to its registry alone");
}

#[tokio::test]
async fn redirect_to_an_address_that_is_not_called_is_refused() {
    let hidden = Server::answering(|_| Answer::status(200).body(Image::new().configuration));
    let port = hidden.address.port();
    for url in [
        format!("http://localhost:{port}/x"),
        format!("http://127.0.0.3:{port}/x"),
        format!("https://127.0.0.3:{port}/x"),
        format!("http://[::ffff:127.0.0.1]:{port}/x"),
        "http://169.254.169.254/latest/meta-data".to_owned(),
        "http://registry.example.com/x".to_owned(),
        "ftp://127.0.0.1/x".to_owned(),
        "http://ada:hunter2@127.0.0.1/x".to_owned(),
    ] {
        let server = leading(url.clone());
        // The manifest was read: only what the image says of itself is not known.
        let resolved = Reader::anonymous().resolve(&at(&server)).await.unwrap();
        assert_eq!((resolved.digest.as_str(), resolved.platforms.len()), (&*Image::new().digest(), 0), "{url}");
    }
    assert_eq!(hidden.asked().len(), 0);
}

#[tokio::test]
async fn redirects_end() {
    let server = Server::answering(|asked| Answer::status(302).header("location", asked.path.clone()));
    let error = Reader::anonymous().resolve(&at(&server)).await.unwrap_err();
    assert!(error.is_unavailable() && server.asked().len() < 10, "{}: {:?}", error.chain(), server.lines());
    for location in ["", "nowhere", "http://", "http:///x"] {
        let server = leading(location.to_owned());
        let answer = Reader::anonymous().resolve(&at(&server)).await;
        let is_without_labels = |resolved: &Resolved| resolved.platforms.is_empty();
        assert!(
            matches!(&answer, Err(Error::Corrupt { .. })) || answer.as_ref().is_ok_and(is_without_labels),
            "{location}: {answer:?}"
        );
    }
}

#[tokio::test]
async fn server_of_tokens_is_called_only_where_registries_may_lead() {
    let hidden = Server::answering(|_| Answer::status(200).body(r#"{"token": "t"}"#));
    let port = hidden.address.port();
    for realm in [
        format!("http://localhost:{port}/token"),
        format!("https://127.0.0.3:{port}/token"),
        "http://169.254.169.254/token".to_owned(),
        "http://auth.example.com/token".to_owned(),
        "file:///etc/passwd".to_owned(),
    ] {
        let server = Server::answering(move |_: &Request| {
            Answer::status(401).header("www-authenticate", format!("Bearer realm=\"{realm}\""))
        });
        let error = Reader::anonymous().resolve(&at(&server)).await.unwrap_err();
        assert!(matches!(error, Error::Invalid { .. } | Error::Corrupt { .. }), "{}", error.chain());
    }
    assert_eq!(hidden.asked().len(), 0);
}

#[tokio::test]
async fn registry_on_this_machine_is_called_only_if_the_operator_names_it() {
    let server = Server::answering(|asked| Image::new().answer(asked));
    let settings = RegistrySettings::default();
    let strict = Reader::with(HttpRegistry::new(settings));
    let port = server.address.port();
    for host in ["127.0.0.1", "localhost", "[::1]"] {
        let error = strict.resolve(&format!("{host}:{port}/shop/api:v1")).await.unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{host}: {}", error.chain());
    }
    assert_eq!(server.asked().len(), 0);
    let others =
        RegistrySettings { hosts: vec!["registry.example.com".parse().unwrap()], ..RegistrySettings::default() };
    let error = Reader::with(HttpRegistry::new(others)).resolve("quay.io/a/b:v1").await.unwrap_err();
    assert!(matches!(error, Error::Invalid { .. }) && error.to_string().contains("quay.io"), "{}", error.chain());
}

#[tokio::test]
async fn registry_that_is_gone_is_away() {
    let error = Reader::anonymous().resolve(&format!("{}/shop/api:v1", free_address())).await.unwrap_err();
    assert!(error.is_unavailable(), "{}", error.chain());
}
