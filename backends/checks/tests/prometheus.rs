//! Checks of kind `prometheus`, measured on Prometheus itself.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test may")]

use std::time::Duration;

use rollhook_checks::{AllowedAddresses, HttpVerifier};
use rollhook_core::{
    app::{AppId, AppUid, Settings, Target},
    check::{Check, PAST_VALUES_MAX, Verdict},
    deploy::Revision,
    ports::{DeployId, MeasureSpec, Measured, TimesBefore, Verifier},
    time::Timestamp,
};
use rollhook_testing::{Call, fixtures::Prometheus, test_name, until};
use serde_json::{Value, json};

#[tokio::test]
async fn queries_are_answered_by_prometheus() {
    let scrapes = |address| {
        format!("[{{job_name: api, static_configs: [{{targets: ['{address}'], labels: {{namespace: shop-test}}}}]}}]")
    };
    let Some(prometheus) = Prometheus::run(scrapes, &test_name!()) else { return };
    let address = prometheus.address;
    let scraped = "/api/v1/query?query=count_over_time(up%5B1h%5D)%20%3E%202";
    until("prometheus has scraped itself", || {
        let answer = Call::to(address, "GET", scraped).send();
        answer.text().contains("shop-test").then_some(())
    });

    let verifier = HttpVerifier::new(AllowedAddresses { local: true, hosts: Vec::new() });
    let measure = async |query: &str, condition: &str, more: Value| -> Measured {
        let mut given: Settings = serde_json::from_value(more).unwrap();
        for (name, value) in [("url", &*format!("http://{address}")), ("query", query), ("condition", condition)] {
            given.insert(name.to_owned(), value.into());
        }
        let complete = verifier.check(&"prometheus".parse().unwrap(), &given).unwrap();
        let app = AppId { namespace: "shop-test".parse().unwrap(), name: "api".parse().unwrap() };
        let deploy = DeployId { app: AppUid::from_bits(7), revision: Revision::FIRST };
        let check = Check::new("errors".parse().unwrap(), "prometheus".parse().unwrap(), complete);
        let image = "registry.example.com/api:v1".parse().unwrap();
        let now = Timestamp::from(std::time::SystemTime::now());
        let spec = MeasureSpec::new(&app, deploy, (Target::default(), image), check, now)
            .with(|spec| spec.rollout_began = now.before(Duration::from_secs(3600)));
        verifier.measure(&spec).await.unwrap()
    };
    // Prometheus has scraped for a few seconds: the times before that have no value.
    let now = Timestamp::from(std::time::SystemTime::now());
    let values = async |query: &str| -> Vec<(Timestamp, Option<String>)> {
        let given = json!({ "url": format!("http://{address}"), "query": query, "condition": "== 1" });
        let kind = "prometheus".parse().unwrap();
        let complete = verifier.check(&kind, &serde_json::from_value(given).unwrap()).unwrap();
        let app = AppId { namespace: "shop-test".parse().unwrap(), name: "api".parse().unwrap() };
        let deploy = DeployId { app: AppUid::from_bits(7), revision: Revision::FIRST };
        let check = Check::new("errors".parse().unwrap(), kind, complete);
        let check = check.with(|check| check.every = Duration::from_secs(1));
        let image = "registry.example.com/api:v1".parse().unwrap();
        let spec = MeasureSpec::new(&app, deploy, (Target::default(), image), check, now);
        let times = TimesBefore::new(&spec.check, now);
        let values = verifier.values_before(&spec, &times).await;
        assert!(values.iter().all(|past| times.all().any(|at| at == past.at)), "{values:?}");
        values.into_iter().map(|past| (past.at, past.value)).collect()
    };
    let scraped = values(r#"up{namespace="{{namespace}}"}"#).await;
    assert_eq!(scraped.last(), Some(&(now, Some("1".to_owned()))), "{scraped:?}");
    assert_eq!(values("vector(2)").await.len(), PAST_VALUES_MAX);
    for query in ["absent_metric", "sum(", "prometheus_http_requests_total", "vector(0) / 0"] {
        assert_eq!(values(query).await, [], "{query}");
    }

    let of_app = r#"up{namespace="{{namespace}}",job="{{workload}}"}"#;
    let samples = json!({ "samples_query": "sum(count_over_time(up[{{window}}]))", "minimum": 2 });
    for (query, condition, more, verdict, value, message) in [
        (of_app, "== 1", json!({}), Verdict::Pass, Some("1"), "1 is == 1"),
        (of_app, "> 1", json!({}), Verdict::Fail, Some("1"), "Expected > 1"),
        (of_app, "== 1", samples, Verdict::Pass, Some("1"), "1 is"),
        ("scalar(up)", "== 1", json!({}), Verdict::Pass, Some("1"), "1 is"),
        ("absent_metric", "== 1", json!({}), Verdict::None, None, "no data"),
        ("vector(0) / 0", "< 1", json!({}), Verdict::None, None, "NaN"),
        ("vector(1) / 0", "< 1", json!({}), Verdict::None, None, "+Inf"),
        ("prometheus_http_requests_total", ">= 0", json!({}), Verdict::None, None, "series"),
        ("up[1m]", "== 1", json!({}), Verdict::None, None, "a matrix"),
        ("sum(", "== 1", json!({}), Verdict::None, None, "parse error"),
        // Nothing was scraped an hour ago.
        (of_app, "<=", json!({ "than": "before" }), Verdict::None, Some("1"), "before the deploy"),
        ("vector(2)", "<=", json!({ "than": "before", "factor": 1.5 }), Verdict::Pass, Some("2"), "2 is <= 3"),
    ] {
        let measured = measure(query, condition, more).await.measurement;
        assert_eq!((measured.verdict, measured.value.as_deref()), (verdict, value), "{query}: {measured:?}");
        assert!(measured.message.contains(message), "{query}: {measured:?}");
    }
}
