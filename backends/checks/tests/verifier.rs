//! Checks, measured on real servers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may")]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use rollhook_checks::{AllowedAddresses, HttpVerifier};
use rollhook_core::{
    app::{AppId, AppUid, Settings, Target},
    check::{Check, Measurement, Verdict},
    deploy::Revision,
    ports::{DeployId, MeasureSpec, Measured, TimesBefore, Verifier},
    time::Timestamp,
};
use serde_json::{Value, json};

fn verifier() -> HttpVerifier {
    HttpVerifier::new(AllowedAddresses { local: true, hosts: Vec::new() })
}

fn settings(value: Value) -> Settings {
    serde_json::from_value(value).unwrap()
}

fn spec(kind: &str, settings: Settings) -> MeasureSpec {
    let app = AppId { namespace: "shop-test".parse().unwrap(), name: "api".parse().unwrap() };
    let deploy = DeployId { app: AppUid::from_bits(7), revision: Revision::new(3).unwrap() };
    let target = Target { settings: self::settings(json!({ "name": "api-web" })), ..Target::default() };
    let image = "registry.example.com/api:v3".parse().unwrap();
    let check = Check::new("front".parse().unwrap(), kind.parse().unwrap(), settings);
    let check = check.with(|check| check.timeout = Duration::from_secs(5));
    let now = Timestamp::from_millis(1_700_000_000_500);
    MeasureSpec::new(&app, deploy, (target, image), check, now)
        .with(|spec| spec.rollout_began = Timestamp::from_millis(1_699_999_000_250))
}

/// A request, with its body.
struct Seen {
    line: String,
    body: String,
}

fn read(stream: &TcpStream) -> Seen {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).unwrap();
        if header.trim().is_empty() {
            break;
        }
        if let Some(text) = header.to_ascii_lowercase().strip_prefix("content-length:") {
            length = text.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    Seen { line: line.trim().to_owned(), body: String::from_utf8(body).unwrap() }
}

/// Returns the URL of a server that answers its calls so, one after the other, and the requests.
fn server(answers: impl IntoIterator<Item = Vec<u8>>) -> (String, Receiver<Seen>) {
    let answers: Vec<_> = answers.into_iter().collect();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, seen) = channel();
    thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let request = read(&stream);
            let _ = sender.send(request); // first, as a test reads it as soon as it has the answer
            let _ = stream.write_all(&answer);
        }
    });
    (url, seen)
}

fn answer(status: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len()).into_bytes()
}

/// Measures a check of kind `http` once; `more` are its settings beside the URL.
async fn http(url: &str, more: Value) -> Measured {
    let mut given = settings(more);
    given.insert("url".to_owned(), url.into());
    let verifier = verifier();
    let kind = "http".parse().unwrap();
    let complete = verifier.check(&kind, &given).unwrap();
    assert_eq!(verifier.check(&kind, &complete).as_ref(), Ok(&complete), "settings_are_complete_once_checked");
    let spec = spec("http", complete);
    let measuring = verifier.measure(&spec);
    tokio::time::timeout(Duration::from_secs(20), measuring).await.expect("measure_is_bounded").unwrap()
}

fn outcome(measurement: &Measurement) -> (Verdict, Option<&str>) {
    (measurement.verdict, measurement.value.as_deref())
}

#[tokio::test]
async fn statuses_decide() {
    for (given, expected, verdict) in [
        ("200", json!({}), Verdict::Pass),
        ("204", json!({}), Verdict::Fail),
        ("204", json!({ "status": "200-299" }), Verdict::Pass),
        ("404", json!({ "status": [200, 404] }), Verdict::Pass),
        ("302", json!({}), Verdict::Fail),
        ("302", json!({ "status": 302 }), Verdict::Pass),
        // A proxy says that the version behind it does not answer.
        ("502", json!({}), Verdict::Fail),
        ("503", json!({}), Verdict::Fail),
        ("504", json!({}), Verdict::Fail),
    ] {
        let (url, _) = server([answer(given, "")]);
        let measured = http(&url, expected.clone()).await;
        assert_eq!(outcome(&measured.measurement), (verdict, Some(given)), "{expected} {measured:?}");
    }
}

#[tokio::test]
async fn request_is_as_the_check_says() {
    let (url, seen) = server([answer("200", ""), answer("200", "")]);
    let measured = http(&format!("{url}/{{{{namespace}}}}/{{{{app}}}}?r={{{{revision}}}}"), json!({})).await;
    assert_eq!(measured.request, format!("GET {url}/shop-test/api?r=3"));
    assert_eq!(measured.condition, "status 200");
    assert_eq!(measured.measurement.at.as_millis(), 1_700_000_000_500);
    assert_eq!(seen.recv().unwrap().line, "GET /shop-test/api?r=3 HTTP/1.1");
    http(&url, json!({ "method": "HEAD" })).await;
    assert_eq!(seen.recv().unwrap().line, "HEAD / HTTP/1.1");
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let (elsewhere, seen) = server([answer("200", "")]);
    let (url, _) =
        server([format!("HTTP/1.1 302 x\r\nlocation: {elsewhere}\r\ncontent-length: 0\r\n\r\n").into_bytes()]);
    assert_eq!(outcome(&http(&url, json!({})).await.measurement), (Verdict::Fail, Some("302")));
    assert!(seen.try_recv().is_err());
}

#[tokio::test]
async fn texts_and_values_decide() {
    let long = format!("{}needle", "x".repeat(64 * 1024));
    let body = r#"{"status":"ok","checks":[{"count":3,"on":true,"none":null}]}"#;
    for (body, expected, verdict, value) in [
        ("all OK here", json!({ "contains": "OK" }), Verdict::Pass, "200"),
        ("all ok here", json!({ "contains": "OK" }), Verdict::Fail, "200"),
        ("", json!({ "contains": "OK" }), Verdict::Fail, "200"),
        (&long, json!({ "contains": "xxx" }), Verdict::Pass, "200"),
        // The rest is not read.
        (&long, json!({ "contains": "needle" }), Verdict::None, "200"),
        (body, json!({ "json": "/status", "equals": "ok" }), Verdict::Pass, "ok"),
        (body, json!({ "json": "/status", "equals": "up" }), Verdict::Fail, "ok"),
        (body, json!({ "json": "/checks/0/count", "equals": 3 }), Verdict::Pass, "3"),
        (body, json!({ "json": "/checks/0/on", "equals": true }), Verdict::Pass, "true"),
        (body, json!({ "json": "/checks/0/none", "equals": "null" }), Verdict::Pass, "null"),
        (body, json!({ "json": "/checks", "equals": "ok" }), Verdict::Fail, "200"),
        (body, json!({ "json": "/missing", "equals": "ok" }), Verdict::Fail, "200"),
        (body, json!({ "json": "/status", "equals": "ok", "contains": "nothing" }), Verdict::Fail, "200"),
        ("<html>", json!({ "json": "/status", "equals": "ok" }), Verdict::Fail, "200"),
        (&format!("[{}0]", "0,".repeat(5_000)), json!({ "json": "/0", "equals": "0" }), Verdict::None, "200"),
        (&format!("\"{long}\""), json!({ "json": "/0", "equals": "0" }), Verdict::None, "200"),
    ] {
        let (url, _) = server([answer("200", body)]);
        let measured = http(&url, expected.clone()).await;
        assert_eq!(outcome(&measured.measurement), (verdict, Some(value)), "{expected} {measured:?}");
    }
}

#[tokio::test]
async fn values_of_others_are_short_and_escaped() {
    let text = format!("\\u001b[31m{}", "é".repeat(1_000));
    let (url, _) = server([answer("200", &format!(r#"{{"a":"{text}"}}"#))]);
    let measured = http(&url, json!({ "json": "/a", "equals": "b" })).await.measurement;
    let value = measured.value.unwrap();
    assert!(value.chars().count() <= 200 && !value.contains('\u{1b}'), "{value}");
    assert!(measured.message.chars().count() <= 300 && !measured.message.contains('é'), "{}", measured.message);
}

#[tokio::test]
async fn silence_is_no_verdict_unless_the_check_says_so() {
    let torn = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nO".to_vec();
    for (unreachable, verdict) in [("none", Verdict::None), ("fail", Verdict::Fail)] {
        let expected = json!({ "unreachable": unreachable });
        // Nothing listens there.
        let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert_eq!(outcome(&http(&format!("http://{gone}"), expected.clone()).await.measurement), (verdict, None));
        // A name that does not exist.
        let measured = http("http://route.invalid/", expected.clone()).await;
        assert_eq!(outcome(&measured.measurement), (verdict, None), "{measured:?}");
        // A connection that ends without an answer.
        let (url, _) = server([Vec::new()]);
        assert_eq!(outcome(&http(&url, expected.clone()).await.measurement), (verdict, None));
        let (url, _) = server([torn.clone()]);
        let text = json!({ "unreachable": unreachable, "contains": "OK" });
        assert_eq!(outcome(&http(&url, text).await.measurement), (verdict, Some("200")));
        // A server that takes the connection, and is silent.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", silent.local_addr().unwrap());
        let measured = http(&url, expected).await;
        assert_eq!(outcome(&measured.measurement), (verdict, None));
        assert_eq!(measured.measurement.message, "The request was not answered within 5 s.");
    }
    // Where the status decides, the rest of an answer need not come.
    let (url, _) = server([b"HTTP/1.1 500 No\r\ncontent-length: 10\r\n\r\n".to_vec()]);
    let measured = http(&url, json!({ "contains": "OK" })).await;
    assert_eq!(outcome(&measured.measurement), (Verdict::Fail, Some("500")));
}

#[tokio::test]
async fn address_that_the_operator_does_not_allow_is_not_called() {
    let (url, seen) = server([answer("500", "")]);
    let given = settings(json!({ "url": url, "unreachable": "fail" }));
    let strict = HttpVerifier::new(AllowedAddresses::default());
    let why = strict.check(&"http".parse().unwrap(), &given).unwrap_err();
    assert!(why.starts_with("url must begin with https://") && why.contains("--allow-local-receivers"), "{why}");
    let elsewhere = HttpVerifier::new(AllowedAddresses { local: true, hosts: vec!["*.example.com".parse().unwrap()] });
    let why = elsewhere.check(&"http".parse().unwrap(), &given).unwrap_err();
    assert!(why.contains("--receiver-host"), "{why}");
    // The operator has taken back what was allowed: no verdict, whatever the check says.
    for verifier in [strict, elsewhere] {
        let measured = verifier.measure(&spec("http", given.clone())).await.unwrap();
        assert_eq!(outcome(&measured.measurement), (Verdict::None, None));
    }
    assert!(seen.try_recv().is_err());
}

#[test]
fn settings_that_cannot_be_measured_are_refused() {
    let verifier = verifier();
    let url = "https://shop.example.com/";
    let prometheus = |more: Value| {
        let mut all = settings(json!({ "url": url, "query": "up", "condition": "> 0" }));
        all.extend(settings(more));
        ("prometheus", Value::Object(all))
    };
    let http = |more: Value| {
        let mut all = settings(json!({ "url": url }));
        all.extend(settings(more));
        ("http", Value::Object(all))
    };
    for ((kind, given), rule) in [
        (("command", json!({})), "there are http, prometheus, webhook"),
        (("http", json!({})), "url must be given"),
        (http(json!({ "url": "shop" })), "url must be a URL"),
        (http(json!({ "url": "https://a@shop.example.com/" })), "url must be a URL"),
        (http(json!({ "url": "https://{{app}}.example.com/" })), "path and its query only"),
        (http(json!({ "url": "https://shop.example.com/{{workload}}" })), "knows {{namespace}}"),
        (http(json!({ "method": "DELETE" })), "method must be"),
        (http(json!({ "status": "ok" })), "status must be"),
        (http(json!({ "json": "/a" })), "together"),
        (http(json!({ "equals": "a" })), "together"),
        (http(json!({ "json": "a", "equals": "a" })), "JSON pointer"),
        (http(json!({ "contains": "" })), "1 to 4096 characters"),
        (http(json!({ "contains": {} })), "a text or a number"),
        (http(json!({ "method": "HEAD", "contains": "a" })), "HEAD"),
        (http(json!({ "unreachable": "pass" })), "none or fail"),
        (http(json!({ "login": "Bearer" })), "login must be bearer, basic or header=NAME"),
        (http(json!({ "login": "header=Host" })), "login must not set the header host"),
        (prometheus(json!({ "login": "header=a b" })), "login must name a header"),
        (http(json!({ "header": "a" })), "http has no setting \"header\""),
        (prometheus(json!({ "url": "https://h.example.com/?a=b" })), "no query"),
        (prometheus(json!({ "query": null })), "query must be given"),
        (prometheus(json!({ "query": "up{app={{app}}}" })), "in quotes"),
        (prometheus(json!({ "condition": "0.01" })), "condition must be"),
        (prometheus(json!({ "than": "before" })), "alone"),
        (prometheus(json!({ "factor": 2 })), "than before only"),
        (prometheus(json!({ "minimum": 5 })), "together"),
        (prometheus(json!({ "minimum": 0, "samples_query": "up" })), "above 0"),
    ] {
        let why = verifier.check(&kind.parse().unwrap(), &settings(given.clone())).unwrap_err();
        assert!(why.contains(rule), "{kind} {given}: {why}");
    }
}

#[test]
fn kinds_are_described_with_all_of_their_settings() {
    let described = verifier().describe();
    let kinds: Vec<_> = described.iter().map(|kind| (kind.kind.as_str(), kind.settings.len())).collect();
    assert_eq!(kinds, [("http", 9), ("prometheus", 8), ("webhook", 1)]);
}

/// Measures a check of kind `prometheus` once, with these answers of the API.
async fn prometheus(more: Value, answers: &[(&str, &str)]) -> (Measured, Vec<Seen>) {
    let (url, seen) = server(answers.iter().map(|(status, body)| answer(status, body)));
    let mut given = settings(json!({
        "url": format!("{url}/prometheus/"),
        "query": r#"sum(rate(errors{ns="{{namespace}}",w="{{workload}}"}[{{window}}]))"#,
        "condition": "< 0.01",
    }));
    given.extend(settings(more));
    let verifier = verifier();
    let kind = "prometheus".parse().unwrap();
    let complete = verifier.check(&kind, &given).unwrap();
    assert_eq!(verifier.check(&kind, &complete).as_ref(), Ok(&complete), "settings_are_complete_once_checked");
    let measured = verifier.measure(&spec("prometheus", complete)).await.unwrap();
    (measured, seen.try_iter().collect())
}

fn scalar(value: &str) -> String {
    format!(r#"{{"status":"success","data":{{"resultType":"scalar","result":[1700000000.5,"{value}"]}}}}"#)
}

#[tokio::test]
async fn query_is_as_the_check_says() {
    let (measured, seen) = prometheus(json!({}), &[("200", &scalar("0.009"))]).await;
    assert_eq!(outcome(&measured.measurement), (Verdict::Pass, Some("0.009")));
    let query = r#"sum(rate(errors{ns="shop-test",w="api-web"}[60s]))"#;
    assert!(measured.request.ends_with(&format!("/prometheus/api/v1/query {query}")), "{}", measured.request);
    assert_eq!(measured.condition, "< 0.01");
    assert_eq!(seen[0].line, "POST /prometheus/api/v1/query HTTP/1.1");
    let form: Vec<(String, String)> = form_urlencoded::parse(seen[0].body.as_bytes()).into_owned().collect();
    assert_eq!(form, [("query".to_owned(), query.to_owned()), ("timeout".to_owned(), "5s".to_owned())]);
}

#[tokio::test]
async fn numbers_decide() {
    for (value, verdict) in [("0", Verdict::Pass), ("0.01", Verdict::Fail), ("0.5", Verdict::Fail)] {
        let (measured, _) = prometheus(json!({}), &[("200", &scalar(value))]).await;
        assert_eq!(outcome(&measured.measurement), (verdict, Some(value)));
    }
    for (status, body) in [("200", scalar("NaN")), ("200", "<html>".to_owned()), ("503", String::new())] {
        let (measured, _) = prometheus(json!({}), &[(status, &body)]).await;
        assert_eq!(outcome(&measured.measurement), (Verdict::None, None), "{body}");
    }
    let long = scalar(&"1".repeat(300 * 1024));
    let (measured, _) = prometheus(json!({}), &[("200", &long)]).await;
    assert_eq!(outcome(&measured.measurement), (Verdict::None, None), "measure_is_bounded");
}

#[tokio::test]
async fn few_samples_are_no_verdict() {
    let needed = json!({ "samples_query": "sum(increase(requests[{{window}}]))", "minimum": 50 });
    for (value, samples, verdict) in [
        ("0", "49.4", Verdict::None),
        ("0", "50", Verdict::Pass),
        ("1", "50", Verdict::Fail),
        ("1", "3", Verdict::None),
    ] {
        let (measured, seen) = prometheus(needed.clone(), &[("200", &scalar(value)), ("200", &scalar(samples))]).await;
        assert_eq!(outcome(&measured.measurement), (verdict, Some(value)), "{samples}");
        assert_eq!(measured.measurement.samples, samples.parse().map(|samples: f64| samples as u64).ok());
        assert!(seen[1].body.contains("increase"), "{}", seen[1].body);
    }
    let nothing = r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#;
    let (measured, _) = prometheus(needed, &[("200", &scalar("1")), ("200", nothing)]).await;
    assert_eq!(outcome(&measured.measurement), (Verdict::None, Some("1")));
}

#[tokio::test]
async fn value_is_compared_with_that_before_the_deploy() {
    let relative = json!({ "condition": "<=", "than": "before", "factor": 1.5 });
    for (now, before, verdict) in
        [("0.3", "0.2", Verdict::Pass), ("0.31", "0.2", Verdict::Fail), ("0.1", "NaN", Verdict::None)]
    {
        let (measured, seen) = prometheus(relative.clone(), &[("200", &scalar(now)), ("200", &scalar(before))]).await;
        assert_eq!(outcome(&measured.measurement), (verdict, Some(now)), "{before}");
        assert!(!seen[0].body.contains("&time=") && seen[1].body.contains("&time=1699999000.250"), "{}", seen[1].body);
    }
}

/// Returns the values before the deploy of a check of this kind, by one answer of the API, and the requests.
async fn before(kind: &str, secret: Option<&str>, body: &str) -> (Vec<Option<String>>, Vec<Seen>) {
    let (url, seen) = server([answer("200", body)]);
    let mut given = settings(json!({ "url": url }));
    if kind == "prometheus" {
        given.extend(settings(json!({ "query": "rate(errors[{{window}}])", "condition": "<", "than": "before" })));
    }
    if secret.is_some() {
        given.insert("login".to_owned(), "bearer".into());
    }
    let verifier = verifier();
    let complete = verifier.check(&kind.parse().unwrap(), &given).unwrap();
    let spec = spec(kind, complete).with(|spec| spec.secret = secret.map(|text| text.parse().unwrap()));
    let times = TimesBefore::new(&spec.check, spec.rollout_began);
    let values = verifier.values_before(&spec, &times).await;
    assert!(values.iter().rev().zip(times.all().collect::<Vec<_>>().iter().rev()).all(|(past, at)| past.at == *at));
    (values.into_iter().map(|past| past.value).collect(), seen.try_iter().collect())
}

#[tokio::test]
async fn values_before_the_deploy_are_those_of_one_query_over_a_range() {
    let matrix =
        |series: &str| format!(r#"{{"status":"success","data":{{"resultType":"matrix","result":[{series}]}}}}"#);
    let series = r#"{"metric":{},"values":[[1699998955.25,"9"],[1699998970.25,"0.5"],[1699998985.25,"NaN"],[1699999000.25,"1"]]}"#;
    let (values, seen) = before("prometheus", None, &matrix(series)).await;
    assert_eq!(values, [Some("9".to_owned()), Some("0.5".to_owned()), None, Some("1".to_owned())]);
    assert_eq!(seen[0].line, "POST /api/v1/query_range HTTP/1.1");
    let form: Vec<(String, String)> = form_urlencoded::parse(seen[0].body.as_bytes()).into_owned().collect();
    let expected = [
        ("query", "rate(errors[60s])"),
        ("timeout", "5s"),
        ("start", "1699998835.250"),
        ("end", "1699999000.250"),
        ("step", "15.000"),
    ];
    assert_eq!(form, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    for body in ["<html>".to_owned(), matrix(""), matrix(&format!("{series},{series}")), scalar("1")] {
        assert_eq!(before("prometheus", None, &body).await.0, Vec::new(), "{body}");
    }
    // Its API repeats the secret, which is a number.
    let told = matrix(r#"{"metric":{},"values":[[1699998985.25,"1"],[1699999000.25,"1234567890"]]}"#);
    let (values, seen) = before("prometheus", Some("1234567890"), &told).await;
    assert_eq!((values, seen.len()), (vec![Some("1".to_owned()), None], 1));
    let (values, seen) = before("http", None, "").await;
    assert_eq!((values, seen.len()), (Vec::new(), 0), "nobody knows what the route answered");
}

#[tokio::test]
async fn provider_that_is_away_is_no_verdict() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    for address in [gone, silent.local_addr().unwrap()] {
        let given = settings(json!({ "url": format!("http://{address}"), "query": "up", "condition": "> 0" }));
        let spec = spec("prometheus", given).with(|spec| spec.check.timeout = Duration::from_secs(1));
        let measured = verifier().measure(&spec).await.unwrap();
        assert_eq!(outcome(&measured.measurement), (Verdict::None, None), "{measured:?}");
    }
}
