//! Logins and tokens: asked for, kept, renewed, and shown to nobody.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use rollhook_core::{
    app::Namespace,
    error::{Error, Result},
    image::{ImageLabels, ImageRef},
    ports::{Registry, TagQuery},
};
use rollhook_registry::{LoginFiles, PlatformLogins};
use rollhook_registry_logins::Logins;
use rollhook_testing::fixtures::scripted::{Answer, Request, Server};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::images::{Image, Reader, at, configuration, manifest, named};

/// The words of ada with the password hunter2.
const BASIC: &str = "Basic YWRhOmh1bnRlcjI=";

/// Returns a reader with the login of a server.
fn reader(server: &Server, login: &Value) -> (Reader, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config.json");
    fs::write(&file, json!({ "auths": { &server.address.to_string(): login } }).to_string()).unwrap();
    (Reader::new(LoginFiles::At(file)), directory)
}

fn ada() -> Value {
    json!({ "username": "ada", "password": "hunter2" })
}

fn bearer(asked: &Request) -> Answer {
    let realm = format!("http://{}/token", asked.headers["host"]);
    Answer::status(401).header("www-authenticate", format!("Bearer realm=\"{realm}\",service=\"r\",scope=\"x\""))
}

/// Starts a registry whose tokens let in, each for so many calls.
fn with_tokens(calls: usize, token: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Server {
    let left = AtomicUsize::new(0);
    Server::answering(move |asked| {
        if asked.path.starts_with("/token") {
            left.store(calls, Ordering::SeqCst);
            return token(asked);
        }
        let is_let_in = asked.authorization() == "Bearer t"
            && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        if is_let_in { Image::new().answer(asked) } else { bearer(asked) }
    })
}

fn token() -> Answer {
    Answer::status(200).body(r#"{"token": "t", "expires_in": 300}"#)
}

#[tokio::test]
async fn name_and_password_let_in() {
    let server = Server::answering(|asked| {
        if asked.authorization() == BASIC {
            return Image::new().answer(asked);
        }
        Answer::status(401).header("www-authenticate", "Basic realm=\"r\"")
    });
    let (reader, _directory) = reader(&server, &ada());
    assert_eq!(reader.resolve(&at(&server)).await.unwrap().digest.as_str(), Image::new().digest());
    let asked = server.asked();
    assert!(asked[0].authorization().is_empty(), "no login is sent before it is asked for");
    assert!(asked[1..].iter().all(|asked| asked.authorization() == BASIC), "{:?}", server.lines());
    let nobody = Reader::anonymous().resolve(&at(&server)).await.unwrap_err();
    assert!(matches!(nobody, Error::Denied { .. }), "{}", nobody.chain());
}

#[tokio::test]
async fn token_is_asked_for_once_and_kept_for_the_repository() {
    let server = with_tokens(100, |asked| if asked.authorization() == BASIC { token() } else { Answer::status(401) });
    let (reader, _directory) = reader(&server, &ada());
    for _ in 0..3 {
        reader.resolve(&at(&server)).await.unwrap();
        reader.tags(&at(&server)).await.unwrap();
    }
    let tokens =
        |server: &Server| server.lines().iter().filter(|line| line.contains("/token")).cloned().collect::<Vec<_>>();
    assert_eq!(tokens(&server), ["GET /token?service=r&scope=repository%3Ashop%2Fapi%3Apull"]);
    reader.resolve(&format!("{}/shop/web:v1", server.address)).await.unwrap();
    reader.of("shop-prod").resolve(&at(&server)).await.unwrap();
    assert_eq!(tokens(&server).len(), 3, "a token is for one environment and one repository");
}

#[tokio::test]
async fn token_that_has_ended_is_renewed() {
    // A first question asks three times: for the digest, the manifest and the configuration.
    let server = with_tokens(2, |_| token());
    let reader = Reader::anonymous();
    for _ in 0..3 {
        assert_eq!(reader.resolve(&at(&server)).await.unwrap().digest.as_str(), Image::new().digest());
    }
}

#[tokio::test]
async fn steady_poll_asks_the_registry_twice() {
    // Each token has ended by the next call.
    let tags: Vec<String> = (0..1_001).map(|number| format!("1.0.{number}")).collect();
    let list = json!({ "name": "shop/api", "tags": tags }).to_string();
    let server = Server::answering(move |asked| {
        if asked.path.starts_with("/token") {
            return Answer::status(200).body(r#"{"token": "t", "expires_in": 1}"#);
        }
        match asked.authorization() {
            "Bearer t" if asked.path.contains("/tags/") => Answer::status(200).body(list.clone()),
            "Bearer t" => Image::new().answer(asked),
            _ => bearer(asked),
        }
    });
    let reader = Reader::anonymous();
    let repository: ImageRef = at(&server).parse().unwrap();
    let environment: Namespace = "shop-test".parse().unwrap();
    for poll in 0..3 {
        let before = server.lines().len();
        let query = TagQuery { limit: 1_000, after: None };
        let page = reader.registry.tags(&environment, &repository, &query).await.unwrap();
        assert_eq!((page.tags.len(), page.next), (1_001, None));
        reader.resolve(&at(&server)).await.unwrap();
        let lines = server.lines().split_off(before);
        let asked = lines.iter().filter(|line| !line.contains("/token")).count();
        assert!(poll == 0 || asked == 2, "{lines:?}");
    }
}

#[tokio::test]
async fn what_a_registry_wants_may_change() {
    let is_open = Arc::new(AtomicUsize::new(0));
    let opened = Arc::clone(&is_open);
    let server = Server::answering(move |asked| {
        let is_open = opened.load(Ordering::SeqCst) == 1;
        if asked.path.starts_with("/token") {
            let token = Answer::status(200).body(r#"{"token": "t", "expires_in": 1}"#);
            return if is_open { Answer::status(404) } else { token };
        }
        if is_open || asked.authorization() == "Bearer t" { Image::new().answer(asked) } else { bearer(asked) }
    });
    let reader = Reader::anonymous();
    reader.resolve(&at(&server)).await.unwrap();
    is_open.store(1, Ordering::SeqCst);
    for _ in 0..2 {
        reader.resolve(&at(&server)).await.unwrap();
    }
    assert_eq!(server.lines().iter().filter(|line| line.contains("/token")).count(), 4, "{:?}", server.lines());
}

/// The logins of a cluster: `config.json` texts, or none while it is away; and how often it was asked.
#[derive(Debug)]
struct Cluster(Option<Vec<String>>, AtomicUsize);

impl Cluster {
    fn new(texts: Option<Vec<String>>) -> Arc<Self> {
        Arc::new(Self(texts, AtomicUsize::new(0)))
    }

    fn asked(&self) -> usize {
        self.1.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl PlatformLogins for Cluster {
    async fn logins(&self, _: &Namespace, _: &ImageRef) -> Result<Vec<Logins>> {
        self.1.fetch_add(1, Ordering::SeqCst);
        let away = || Error::Unavailable { what: "the cluster is away".to_owned(), cause: None };
        let texts = self.0.as_ref().ok_or_else(away)?;
        Ok(texts.iter().map(|text| Logins::without_programs(text)).collect())
    }
}

fn nowhere() -> LoginFiles {
    LoginFiles::At("/nonexistent/config.json".into())
}

/// The words of eve with the password p.
const EVE: &str = "Basic ZXZlOnA=";

/// The logins of eve and of ada for a server, in this order.
fn both(server: &Server) -> Vec<String> {
    let config = |login: Value| json!({ "auths": { &server.address.to_string(): login } }).to_string();
    vec![config(json!({ "username": "eve", "password": "p" })), config(ada())]
}

/// Starts a registry that answers all but ada so, and asks for a password where somebody gives none.
fn for_ada(others: u16, nobody: u16) -> Server {
    Server::answering(move |asked| {
        let status = match asked.authorization() {
            BASIC => return Image::new().answer(asked),
            "" => nobody,
            _ => others,
        };
        let body = r#"{"errors": [{"code": "NAME_UNKNOWN"}]}"#;
        Answer::status(status).header("www-authenticate", "Basic realm=\"r\"").body(body)
    })
}

#[tokio::test]
async fn logins_of_the_platform_are_tried_in_their_order_where_the_operator_has_none() {
    for others in [401, 403, 404] {
        let server = for_ada(others, 401);
        let cluster = Cluster::new(Some(both(&server)));
        let reader = Reader::on(cluster.clone(), nowhere());
        reader.resolve(&at(&server)).await.unwrap();
        let logins = |from: usize| -> Vec<String> {
            let asked = server.asked().into_iter().skip(from).map(|asked| asked.authorization().to_owned());
            asked.filter(|login| !login.is_empty()).collect()
        };
        let first = logins(0);
        assert!(first.starts_with(&[EVE.to_owned()]) && first.last().unwrap() == BASIC, "{others}: {first:?}");
        // What was let in comes first from then on, and its authorization is kept.
        let before = server.asked().len();
        for _ in 0..3 {
            reader.resolve(&at(&server)).await.unwrap();
        }
        assert_eq!(logins(before), [BASIC; 3], "{others}");
        assert_eq!(cluster.asked(), 1, "{others}");
    }
}

#[tokio::test]
async fn login_of_the_platform_that_sees_nothing_is_no_proof_that_there_is_nothing() {
    let server = for_ada(404, 401);
    let eve = both(&server).swap_remove(0);
    let other = json!({ "auths": { "r.example.com": ada() } }).to_string();
    for texts in [vec![eve], vec![other], Vec::new()] {
        let error = Reader::on(Cluster::new(Some(texts)), nowhere()).resolve(&at(&server)).await.unwrap_err();
        assert!(matches!(error, Error::Denied { .. }), "{}", error.chain());
    }
    let away = Reader::on(Cluster::new(None), nowhere()).resolve(&at(&server)).await.unwrap_err();
    assert!(away.is_unavailable(), "{}", away.chain());
}

#[tokio::test]
async fn token_of_the_platform_that_ends_within_a_look_loses_no_label() {
    let labels = ImageLabels::default().with(|labels| labels.revision = Some("4f1a77b08c2d".to_owned()));
    let configured = configuration("amd64", named(&labels));
    let labelled = Image { manifest: manifest(&configured), configuration: configured };
    let (is_second, left) = (Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
    let second = Arc::clone(&is_second);
    let server = Server::answering(move |asked| {
        if asked.path.starts_with("/token") {
            // Five calls: those of the first look, and two of the second.
            left.store(5, Ordering::SeqCst);
            return if asked.authorization() == BASIC { token() } else { Answer::status(401) };
        }
        let is_let_in = asked.authorization() == "Bearer t"
            && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        let image = if second.load(Ordering::SeqCst) == 1 { labelled.clone() } else { Image::new() };
        if is_let_in { image.answer(asked) } else { bearer(asked) }
    });
    let reader = Reader::on(Cluster::new(Some(both(&server))), nowhere());
    assert_eq!(reader.resolve(&at(&server)).await.unwrap().labels, ImageLabels::default());
    is_second.store(1, Ordering::SeqCst);
    assert_eq!(reader.resolve(&at(&server)).await.unwrap().labels, labels);
}

#[tokio::test]
async fn login_that_is_answered_with_a_page_is_not_the_last_one() {
    let server = Server::answering(|asked| match asked.authorization() {
        BASIC => Image::new().answer(asked),
        EVE => Answer::status(200).header("docker-content-digest", "page").body("<html>"),
        _ => Answer::status(401).header("www-authenticate", "Basic realm=\"r\""),
    });
    let reader = Reader::on(Cluster::new(Some(both(&server))), nowhere());
    reader.resolve(&at(&server)).await.unwrap();
    let alone = Reader::on(Cluster::new(Some(vec![both(&server).swap_remove(0)])), nowhere());
    let error = alone.resolve(&at(&server)).await.unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{}", error.chain());
}

#[tokio::test]
async fn platform_is_asked_for_no_image_that_anyone_or_the_operator_may_read() {
    let cluster = Cluster::new(None);
    let open = with_tokens(100, |_| token());
    let reader = Reader::on(cluster.clone(), nowhere());
    for _ in 0..2 {
        reader.resolve(&at(&open)).await.unwrap();
    }
    let closed = for_ada(403, 401);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config.json");
    fs::write(&file, both(&closed).swap_remove(1)).unwrap();
    Reader::on(cluster.clone(), LoginFiles::At(file)).resolve(&at(&closed)).await.unwrap();
    assert_eq!(cluster.asked(), 0);
}

#[tokio::test]
async fn identity_token_is_exchanged() {
    let server = with_tokens(100, |asked| {
        let is_exchange = asked.method == "POST" && asked.body.ends_with("refresh_token=id");
        if is_exchange { Answer::status(200).body(r#"{"access_token": "t"}"#) } else { Answer::status(401) }
    });
    let (reader, _directory) = reader(&server, &json!({ "identitytoken": "id" }));
    reader.resolve(&at(&server)).await.unwrap();
}

#[tokio::test]
async fn login_that_is_refused_or_has_expired_is_a_denial() {
    for status in [400, 401, 403, 404] {
        let server = with_tokens(0, move |_| {
            Answer::status(status).body(r#"{"errors": [{"code": "UNAUTHORIZED", "message": "ada hunter2"}]}"#)
        });
        let (reader, _directory) = reader(&server, &ada());
        let error = reader.resolve(&at(&server)).await.unwrap_err();
        assert!(matches!(error, Error::Denied { .. }), "{status}: {}", error.chain());
        shows_nothing(&error);
    }
    // A token that lets nobody in is not kept, and not asked for again and again.
    let server = with_tokens(0, |_| token());
    let error = Reader::anonymous().resolve(&at(&server)).await.unwrap_err();
    assert!(matches!(error, Error::Denied { .. }), "{}", error.chain());
    assert_eq!(server.lines().len(), 3, "{:?}", server.lines());
}

#[tokio::test]
async fn server_of_tokens_that_is_away_or_busy_is_no_denial() {
    let away = with_tokens(0, |_| Answer::status(503));
    let error = Reader::anonymous().resolve(&at(&away)).await.unwrap_err();
    assert!(error.is_unavailable(), "{}", error.chain());
    let busy = with_tokens(0, |_| Answer::status(429).header("retry-after", "7"));
    let reader = Reader::anonymous();
    let error = reader.resolve(&at(&busy)).await.unwrap_err();
    assert_eq!(error.retry_after().map(|time| time.as_secs()), Some(7), "{}", error.chain());
    let error = reader.resolve(&at(&busy)).await.unwrap_err();
    assert!(error.retry_after().is_some() && busy.lines().len() == 2, "{}: {:?}", error.chain(), busy.lines());
    let odd = with_tokens(0, |_| Answer::status(200).body("<html>"));
    let error = Reader::anonymous().resolve(&at(&odd)).await.unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{}", error.chain());
}

#[tokio::test]
async fn login_that_cannot_be_read_is_a_denial_once_it_is_needed() {
    let server = with_tokens(100, |_| token());
    let (reader, directory) = reader(&server, &ada());
    fs::write(directory.path().join("config.json"), "{ hunter2").unwrap();
    let error = reader.resolve(&at(&server)).await.unwrap_err();
    assert!(matches!(error, Error::Denied { .. }) && error.chain().contains("line 1"), "{}", error.chain());
    shows_nothing(&error);
    let open = Server::answering(|asked| Image::new().answer(asked));
    reader.resolve(&at(&open)).await.unwrap();
}

#[tokio::test]
async fn what_one_environment_may_read_is_no_answer_for_another() {
    let server = Server::answering(|asked| {
        if asked.authorization() == BASIC {
            return Image::new().answer(asked);
        }
        Answer::status(401).header("www-authenticate", "Basic realm=\"r\"")
    });
    let directory = tempfile::tempdir().unwrap();
    let config = json!({ "auths": { &server.address.to_string(): ada() } });
    fs::write(directory.path().join("shop-test.json"), config.to_string()).unwrap();
    let reader = Reader::new(LoginFiles::At(directory.path().to_owned()));
    let pinned = format!("{}@{}", at(&server), Image::new().digest());
    for image in [at(&server), pinned] {
        reader.resolve(&image).await.unwrap();
        let error = reader.of("shop-prod").resolve(&image).await.unwrap_err();
        assert!(matches!(error, Error::Denied { .. }), "{image}: {}", error.chain());
    }
}

fn shows_nothing(error: &Error) {
    let shown = format!("{error:?} {}", error.chain());
    for secret in ["hunter2", "YWRh", "Bearer t"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}
