//! Checks that ask each instance, measured on real servers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, reason = "a test may")]

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use rollhook_checks::{AllowedAddresses, HttpVerifier};
use rollhook_core::{
    app::{AppId, AppUid, Settings, Target},
    check::{Check, Verdict},
    deploy::Revision,
    ports::{DeployId, InstanceAddress, MeasureSpec, Measured, ReadyInstances, Verifier},
    time::Timestamp,
};
use serde_json::{Value, json};

/// An instance of an app: a server at an address of its own, which answers all calls so.
struct Instance {
    address: SocketAddr,
    /// The heads of the requests.
    seen: Arc<Mutex<Vec<String>>>,
}

impl Instance {
    fn that_answers(answer: &str) -> Self {
        Self::that(Duration::ZERO, answer, Arc::default())
    }

    /// An instance that takes its time, and counts those that answer at the same time with it.
    fn that(takes: Duration, answer: &str, at_once: Arc<[AtomicUsize; 2]>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, seen) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let (answer, heads) = (answer.to_owned(), Arc::clone(&seen));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let now = at_once[0].fetch_add(1, Ordering::SeqCst) + 1;
                at_once[1].fetch_max(now, Ordering::SeqCst);
                let lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let head: Vec<_> = lines.map_while(|line| line.ok().filter(|line| !line.is_empty())).collect();
                heads.lock().unwrap().push(head.join("\n"));
                thread::sleep(takes);
                at_once[0].fetch_sub(1, Ordering::SeqCst);
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        Self { address, seen }
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

fn answer(status: u16, body: &str) -> String {
    format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
}

fn settings(value: Value) -> Settings {
    serde_json::from_value(value).unwrap()
}

/// A verifier as most operators have it: no URL leads to a local address, where the instances of these tests are.
fn verifier() -> HttpVerifier {
    HttpVerifier::new(AllowedAddresses::default())
}

/// The instances `api-0`, `api-1` and so on, at these addresses.
fn ready(addresses: impl IntoIterator<Item = Option<SocketAddr>>) -> ReadyInstances {
    let named = addresses.into_iter().enumerate();
    ReadyInstances::of(
        named.map(|(number, address)| InstanceAddress { instance: format!("api-{number}").parse().unwrap(), address }),
    )
}

/// Measures once a check of these settings beside the URL, of these instances.
async fn measured(more: Value, instances: Option<ReadyInstances>) -> Measured {
    measured_within(Duration::from_secs(5), more, instances).await
}

async fn measured_within(time: Duration, more: Value, instances: Option<ReadyInstances>) -> Measured {
    let mut given = settings(json!({ "url": "https://shop.example.com/health?of={{app}}", "each_instance": 8080 }));
    given.extend(settings(more));
    let (verifier, kind) = (verifier(), "http".parse().unwrap());
    let complete = verifier.check(&kind, &given).unwrap();
    assert_eq!(verifier.check(&kind, &complete).as_ref(), Ok(&complete), "settings_are_complete_once_checked");
    assert_eq!(verifier.instance_port(&kind, &complete), Some(8080));
    let app = AppId { namespace: "shop-test".parse().unwrap(), name: "api".parse().unwrap() };
    let deploy = DeployId { app: AppUid::from_bits(7), revision: Revision::new(3).unwrap() };
    let check = Check::new("front".parse().unwrap(), kind, complete).with(|check| check.timeout = time);
    let image = "registry.example.com/api:v3".parse().unwrap();
    let now = Timestamp::from_millis(1_700_000_000_500);
    let spec = MeasureSpec::new(&app, deploy, (Target::default(), image), check, now);
    let spec = spec.with(|spec| spec.instances = instances);
    tokio::time::timeout(Duration::from_secs(20), verifier.measure(&spec)).await.expect("measure_is_bounded").unwrap()
}

fn outcome(measured: &Measured) -> (Verdict, Option<&str>, &str) {
    (measured.measurement.verdict, measured.measurement.value.as_deref(), &measured.measurement.message)
}

/// An address of this machine where nothing listens.
fn nowhere() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[tokio::test]
async fn each_instance_is_asked_as_the_url_says_and_the_server_of_the_url_is_not() {
    let instances = [Instance::that_answers(&answer(200, "Welcome")), Instance::that_answers(&answer(200, "Welcome"))];
    let at = ready(instances.iter().map(|instance| Some(instance.address)));
    let measured = measured(json!({ "method": "POST", "contains": "Welcome" }), Some(at)).await;
    assert_eq!(outcome(&measured), (Verdict::Pass, Some("2 of 2 instances"), "2 of 2 instances passed."));
    let request = "POST https://shop.example.com/health?of=api at port 8080 of each instance: api-0, api-1";
    assert_eq!((measured.request.as_str(), measured.condition.as_str()), (request, "status 200, text \"Welcome\""));
    for instance in &instances {
        let [head] = &instance.seen()[..] else { panic!("asked once: {:?}", instance.seen()) };
        assert!(head.starts_with("POST /health?of=api HTTP/1.1\n"), "{head}");
        assert!(head.to_lowercase().contains("\nhost: shop.example.com\n"), "{head}");
    }
}

#[tokio::test]
async fn one_instance_that_fails_fails_the_check_and_is_named_with_its_status() {
    let (good, bad) = (Instance::that_answers(&answer(200, "")), Instance::that_answers(&answer(500, "")));
    for more in [json!({}), json!({ "unreachable": "fail" })] {
        let measured = measured(more, Some(ready([Some(good.address), Some(bad.address)]))).await;
        let message = "1 of 2 instances failed. api-1: Expected status 200, and the answer has 500.";
        assert_eq!(outcome(&measured), (Verdict::Fail, Some("500 from api-1 (1 of 2 instances)"), message));
    }
    // Also where another one is silent.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = ready([Some(silent.local_addr().unwrap()), Some(bad.address), Some(good.address)]);
    let measured = measured_within(Duration::from_secs(2), json!({}), Some(at)).await;
    let value = Some("500 from api-1 (1 of 3 instances)");
    assert_eq!((measured.measurement.verdict, measured.measurement.value.as_deref()), (Verdict::Fail, value));
}

#[tokio::test]
async fn silence_of_an_instance_is_no_verdict_unless_the_check_says_so() {
    let good = Instance::that_answers(&answer(200, ""));
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let part = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nO";
    let torn = Instance::that_answers(part);
    for (unreachable, verdict, value) in
        [("none", Verdict::None, Some("1 of 2 instances")), ("fail", Verdict::Fail, None)]
    {
        for other in [nowhere(), silent.local_addr().unwrap()] {
            let at = ready([Some(good.address), Some(other)]);
            let measured =
                measured_within(Duration::from_secs(2), json!({ "unreachable": unreachable }), Some(at)).await;
            let (found, shown, message) = outcome(&measured);
            assert_eq!((found, shown), (verdict, value), "{measured:?}");
            assert!(message.contains("api-1: The request was not answered"), "{message}");
        }
        let at = ready([Some(torn.address)]);
        let expected = json!({ "unreachable": unreachable, "contains": "OK" });
        assert_eq!(measured(expected, Some(at)).await.measurement.verdict, verdict);
    }
}

#[tokio::test]
async fn without_addresses_there_is_no_verdict_whatever_the_check_says() {
    let good = Instance::that_answers(&answer(200, ""));
    let part = ReadyInstances { is_part: true, ..ready([Some(good.address)]) };
    for (instances, message) in [
        (None, "Nothing was measured: the platform names no addresses of instances."),
        (Some(ready([])), "No instance is ready."),
        (Some(ready([Some(good.address), None])), "1 of 2 instances passed. api-1: It has no address of its own."),
        (Some(part), "There are more instances than the 1 that were asked, which passed."),
    ] {
        let measured = measured(json!({ "unreachable": "fail" }), instances).await;
        assert_eq!((measured.measurement.verdict, measured.measurement.message.as_str()), (Verdict::None, message));
    }
}

#[tokio::test]
async fn redirect_of_an_instance_is_not_followed_and_its_answer_is_bounded() {
    let elsewhere = Instance::that_answers(&answer(200, ""));
    let to = format!("HTTP/1.1 302 x\r\nlocation: http://{}/\r\ncontent-length: 0\r\n\r\n", elsewhere.address);
    let leads = Instance::that_answers(&to);
    let measured_once = measured(json!({}), Some(ready([Some(leads.address)]))).await;
    let value = Some("302 from api-0 (1 of 1 instances)");
    assert_eq!((measured_once.measurement.verdict, measured_once.measurement.value.as_deref()), (Verdict::Fail, value));
    assert_eq!(elsewhere.seen(), [""; 0]);
    let long = Instance::that_answers(&answer(200, &format!("{}needle", "x".repeat(64 * 1024))));
    let measured = measured(json!({ "contains": "needle" }), Some(ready([Some(long.address)]))).await;
    assert_eq!(measured.measurement.verdict, Verdict::None, "the rest is not read: {measured:?}");
    assert!(measured.measurement.message.contains("The first 64 KiB"), "{measured:?}");
}

#[tokio::test]
async fn twenty_instances_are_asked_at_once_and_all_of_them_in_the_end() {
    let at_once = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let slow = || Instance::that(Duration::from_millis(50), &answer(200, ""), Arc::clone(&at_once));
    let instances: Vec<_> = (0..45).map(|_| slow()).collect();
    let at = ready(instances.iter().map(|instance| Some(instance.address)));
    let measured = measured_within(Duration::from_secs(20), json!({}), Some(at)).await;
    assert_eq!(outcome(&measured), (Verdict::Pass, Some("45 of 45 instances"), "45 of 45 instances passed."));
    assert!(measured.request.ends_with("api-0, api-1, api-10 and 42 more"), "{}", measured.request);
    let most = at_once[1].load(Ordering::SeqCst);
    assert!(most <= 20, "{most} at once");
}

#[tokio::test]
async fn instances_that_time_does_not_reach_are_no_fail() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = ready((0..30).map(|_| Some(silent.local_addr().unwrap())));
    let measured = measured_within(Duration::from_secs(1), json!({ "unreachable": "fail" }), Some(at)).await;
    let message = "20 of 30 instances failed. api-0: The request was not answered in time.";
    assert_eq!(outcome(&measured), (Verdict::Fail, None, message));
}

#[test]
fn check_of_each_instance_has_no_login_and_a_port() {
    let (verifier, kind) = (verifier(), "http".parse().unwrap());
    let why = |more: Value| {
        let mut given = settings(json!({ "url": "https://shop.example.com/" }));
        given.extend(settings(more));
        verifier.check(&kind, &given).unwrap_err()
    };
    for port in [json!("http"), json!(0), json!(65536), json!(true), json!("-1"), json!([80, 81])] {
        let why = why(json!({ "each_instance": port }));
        assert_eq!(why, "each_instance must be the port of the container, from 1 to 65535.", "{port}");
    }
    for login in ["bearer", "basic", "header=X-Api-Key"] {
        let why = why(json!({ "each_instance": 8080, "login": login }));
        assert!(why.starts_with("login cannot be given with each_instance"), "{why}");
    }
    // The rules for addresses are for those who are called.
    let local = settings(json!({ "url": "http://localhost/health", "each_instance": 8080 }));
    assert!(verifier.check(&kind, &local).is_ok());
    for url in ["health", "ftp://api/", "https://a@api/", "http://{{app}}/"] {
        assert!(why(json!({ "url": url, "each_instance": 8080 })).starts_with("url "), "{url}");
    }
    let of = |kind: &str, value: Value| verifier.instance_port(&kind.parse().unwrap(), &settings(value));
    assert_eq!(of("http", json!({ "each_instance": "8080" })), Some(8080));
    for (kind, value) in [
        ("http", json!({})),
        ("http", json!({ "each_instance": "x" })),
        ("prometheus", json!({ "each_instance": 8080 })),
        ("command", json!({ "each_instance": 8080 })),
    ] {
        assert_eq!(of(kind, value), None);
    }
}
