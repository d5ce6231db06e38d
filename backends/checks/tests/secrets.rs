//! Checks that have a secret: logins, and signed calls of a service, on real servers.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::time::Duration;

use rollhook_checks::{AllowedAddresses, HttpVerifier};
use rollhook_core::{
    app::{AppId, AppUid, Settings, Target},
    check::{Check, CheckSecret, Verdict},
    deploy::Revision,
    ports::{DeployId, MeasureSpec, Measured, Verifier},
    time::Timestamp,
};
use rollhook_testing::fixtures::Receiver;
use serde_json::{Value, json};

/// The secret of signatures in the published example of Standard Webhooks.
const KEY: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn verifier() -> HttpVerifier {
    HttpVerifier::new(AllowedAddresses { local: true, hosts: Vec::new() })
}

fn spec(kind: &str, settings: Value, secret: &str) -> MeasureSpec {
    let app = AppId { namespace: "shop-test".parse().unwrap(), name: "api".parse().unwrap() };
    let deploy = DeployId { app: AppUid::from_bits(7), revision: Revision::new(3).unwrap() };
    let image = "registry.example.com/api:v3".parse().unwrap();
    let settings: Settings = serde_json::from_value(settings).unwrap();
    let verifier = verifier();
    let (kind, secret) = (kind.parse().unwrap(), secret.parse::<CheckSecret>().unwrap());
    let settings = verifier.check(&kind, &settings).unwrap();
    assert_eq!(verifier.check(&kind, &settings).as_ref(), Ok(&settings), "settings_are_complete_once_checked");
    verifier.check_secret(&kind, &settings, &secret).unwrap();
    let check = Check::new("front".parse().unwrap(), kind, settings);
    let check = check.with(|check| check.timeout = Duration::from_secs(5));
    let now = Timestamp::from_millis(1_700_000_000_500);
    MeasureSpec::new(&app, deploy, (Target::default(), image), check, now).with(|spec| {
        spec.secret = Some(secret);
        spec.commit = Some("abc123f".parse().unwrap());
    })
}

async fn measure(kind: &str, settings: Value, secret: &str) -> Measured {
    let spec = spec(kind, settings, secret);
    assert!(!format!("{spec:?}").contains(secret), "{spec:?}");
    let measured = verifier().measure(&spec).await.unwrap();
    assert!(!format!("{measured:?}").contains(secret), "{measured:?}");
    measured
}

#[tokio::test]
async fn login_is_sent_with_each_request_and_shown_without_its_secret() {
    let number = r#"{"status":"success","data":{"resultType":"scalar","result":[1,"0"]}}"#;
    for (login, secret, header, value, shown) in [
        ("bearer", "hunter2-hunter2", "authorization", "Bearer hunter2-hunter2", "Authorization: Bearer (secret)"),
        ("basic", "al:wonderland", "authorization", "Basic YWw6d29uZGVybGFuZA==", "Authorization: Basic (secret)"),
        ("header=X-Api-Key", "hunter2-hunter2", "x-api-key", "hunter2-hunter2", "x-api-key: (secret)"),
    ] {
        let route = Receiver::start();
        let url = format!("{}/{{{{app}}}}", route.url);
        let measured = measure("http", json!({ "url": url, "status": 204, "login": login }), secret).await;
        assert_eq!(measured.measurement.verdict, Verdict::Pass, "{measured:?}");
        assert_eq!(measured.request, format!("GET {}/api, with {shown}", route.url));
        assert_eq!(route.sent()[0].headers[header], value);

        let prometheus = Receiver::start();
        prometheus.serve(move |_| ("200 OK".to_owned(), number.to_owned()));
        let query = json!({
            "url": prometheus.url, "query": "errors", "condition": "< 1", "samples_query": "count", "minimum": 1,
            "login": login,
        });
        let measured = measure("prometheus", query, secret).await;
        assert_eq!(measured.request, format!("{}/api/v1/query, with {shown}: errors", prometheus.url));
        let sent = prometheus.sent();
        assert_eq!(sent.len(), 2, "the query, and that of the samples");
        assert!(sent.iter().all(|sent| sent.headers[header] == value), "{sent:?}");
    }
}

#[tokio::test]
async fn refused_login_is_no_verdict_and_goes_nowhere_else() {
    for (status, expected, verdict) in [
        ("401 Unauthorized", json!(200), Verdict::None),
        ("403 Forbidden", json!(200), Verdict::None),
        ("401 Unauthorized", json!([200, 401]), Verdict::Pass),
        ("404 Not Found", json!(200), Verdict::Fail),
    ] {
        let route = Receiver::start();
        route.answer(Some(status));
        let check = json!({ "url": route.url, "status": expected, "login": "bearer" });
        let measured = measure("http", check, "hunter2-hunter2").await;
        assert_eq!(measured.measurement.verdict, verdict, "{status}: {measured:?}");
        assert_eq!(measured.measurement.value.as_deref(), Some(&status[..3]));
    }
    let (route, elsewhere) = (Receiver::start(), Receiver::start());
    route.answer(Some(&format!("302 Found\r\nLocation: {}/", elsewhere.url)));
    measure("http", json!({ "url": route.url, "login": "bearer" }), "hunter2-hunter2").await;
    assert_eq!((route.sent().len(), elsewhere.sent().len()), (1, 0), "redirects are not followed");
}

/// A check must not become a way to read its secret, by a place that repeats what it is sent.
#[tokio::test]
async fn answer_that_repeats_the_secret_is_not_read() {
    let secret = "hunter2/hunter2";
    for body in [
        r#"{"headers":{"Authorization":"Bearer hunter2/hunter2"}}"#.to_owned(),
        r#"{"headers":{"Authorization":"Bearer hunter2\/hunter2"}}"#.to_owned(),
        // It begins in what is judged, and ends behind it.
        format!("{}hunter2/hunter2", "Bearer h".repeat(8 * 1024 - 1)),
    ] {
        for more in [
            json!({ "json": "/headers/Authorization", "equals": "x" }),
            json!({ "contains": "Bearer h" }),
            json!({ "contains": "Bearer x" }),
        ] {
            let route = Receiver::start();
            let repeated = body.clone();
            route.serve(move |_| ("200 OK".to_owned(), repeated.clone()));
            let mut check = json!({ "url": route.url, "login": "bearer" });
            check.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let found = measure("http", check, secret).await.measurement;
            assert_eq!((found.verdict, found.value), (Verdict::None, None), "{more}: {}", found.message);
            assert!(found.message.contains("repeats the check's secret"), "{}", found.message);
        }
    }
    let prometheus = Receiver::start();
    prometheus.serve(|_| {
        ("400 Bad Request".to_owned(), r#"{"status":"error","error":"no tenant hunter2\/hunter2"}"#.to_owned())
    });
    let check = json!({ "url": prometheus.url, "query": "up", "condition": "< 1", "login": "header=X-Scope-OrgID" });
    let found = measure("prometheus", check, secret).await.measurement;
    assert!(found.message.contains("no tenant (secret)"), "{}", found.message);
}

#[tokio::test]
async fn webhook_is_called_with_a_signature_and_answers_the_verdict() {
    let service = Receiver::start();
    service.serve(|_| ("200 OK".to_owned(), r#"{"verdict":"fail","message":"p95 is high","value":812}"#.to_owned()));
    let url = format!("{}/verify?suite=smoke", service.url);
    let (first, again) = {
        let spec = spec("webhook", json!({ "url": url }), KEY);
        (verifier().measure(&spec).await.unwrap(), verifier().measure(&spec).await.unwrap())
    };
    assert_eq!(first, again);
    let found = &first.measurement;
    assert_eq!((found.verdict, found.value.as_deref()), (Verdict::Fail, Some("812")));
    assert_eq!((found.message.as_str(), first.condition.as_str()), ("p95 is high", "verdict pass"));
    let sent = service.sent();
    assert_eq!(sent[0].request, "POST /verify?suite=smoke HTTP/1.1");
    assert!(sent.iter().all(|sent| sent.is_signed(KEY) && !sent.is_signed("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSx")));
    assert_eq!(sent[0].headers["webhook-id"], sent[1].headers["webhook-id"], "of the same measurement");
    assert_eq!(sent[0].headers["webhook-timestamp"], "1700000000");
    let expected = json!({
        "namespace": "shop-test", "app": "api", "check": "front", "revision": 3, "deploy": format!("{}/3", AppUid::from_bits(7)),
        "image": "registry.example.com/api:v3", "commit": "abc123f", "window": "60s",
    });
    assert_eq!(sent[0].json(), expected);
    assert_eq!(first.request, format!("POST {url} {expected}"));
    let later =
        spec("webhook", json!({ "url": url }), KEY).with(|spec| spec.now = Timestamp::from_millis(1_700_000_015_500));
    verifier().measure(&later).await.unwrap();
    assert_ne!(service.sent()[2].headers["webhook-id"], sent[0].headers["webhook-id"]);
}

#[tokio::test]
async fn webhook_without_a_readable_answer_is_no_verdict() {
    let pass = r#"{"verdict":"pass"}"#;
    for (head, body, verdict) in [
        ("200 OK", pass.to_owned(), Verdict::Pass),
        ("201 Created", pass.to_owned(), Verdict::Pass),
        ("200 OK", r#"{"verdict":"pending"}"#.to_owned(), Verdict::None),
        ("204 No Content", String::new(), Verdict::None),
        ("200 OK", "ok".to_owned(), Verdict::None),
        ("200 OK", format!(r#"{{"verdict":"pass","more":"{}"}}"#, "x".repeat(64 * 1024)), Verdict::None),
        ("302 Found", pass.to_owned(), Verdict::None),
        ("401 Unauthorized", pass.to_owned(), Verdict::None),
        ("404 Not Found", pass.to_owned(), Verdict::None),
        ("500 Internal Server Error", r#"{"verdict":"fail"}"#.to_owned(), Verdict::None),
    ] {
        let service = Receiver::start();
        let answer = (head.to_owned(), body);
        service.serve(move |_| answer.clone());
        let measured = measure("webhook", json!({ "url": service.url }), KEY).await;
        assert_eq!(measured.measurement.verdict, verdict, "{head}: {measured:?}");
    }
    let gone = measure("webhook", json!({ "url": "http://service.invalid/" }), KEY).await;
    assert_eq!(gone.measurement.verdict, Verdict::None, "{gone:?}");
    let silent = Receiver::start();
    silent.answer(None);
    let spec =
        spec("webhook", json!({ "url": silent.url }), KEY).with(|spec| spec.check.timeout = Duration::from_secs(1));
    let silent = verifier().measure(&spec).await.unwrap().measurement;
    assert_eq!((silent.verdict, silent.message.as_str()), (Verdict::None, "The call was not answered within 1 s."));
}

#[test]
fn secrets_are_for_the_origin_of_checks_that_have_one() {
    let verifier = verifier();
    let place = |kind: &str, settings: Value| {
        let settings = serde_json::from_value(settings).unwrap();
        verifier.secret_for(&kind.parse().unwrap(), &settings)
    };
    let url = "https://Shop.example.com:443/{{app}}";
    assert_eq!(place("http", json!({ "url": url })), None);
    for (kind, login) in [("http", Some("bearer")), ("prometheus", Some("basic")), ("webhook", None)] {
        let settings = json!({ "url": url, "login": login });
        assert_eq!(place(kind, settings).as_deref(), Some("https://shop.example.com"));
    }
    let refused = |kind: &str, settings: Value, secret: &str| {
        let settings = serde_json::from_value(settings).unwrap();
        verifier.check_secret(&kind.parse().unwrap(), &settings, &secret.parse().unwrap()).unwrap_err()
    };
    for (kind, settings, secret, rule) in [
        ("http", json!({ "url": url }), "hunter2-hunter2", "bearer, basic or header=NAME"),
        ("http", json!({ "url": url, "login": "basic" }), "hunter2-hunter2", "USER:PASSWORD"),
        ("webhook", json!({ "url": "https://a.example/" }), "hunter2-hunter2", "whsec_ and the base64"),
    ] {
        let why = refused(kind, settings, secret);
        assert!(why.contains(rule) && !why.contains(secret), "{why}");
    }
    let unmade = verifier.check(&"webhook".parse().unwrap(), &serde_json::from_value(json!({ "url": url })).unwrap());
    assert!(unmade.unwrap_err().contains("no placeholders"));
}
