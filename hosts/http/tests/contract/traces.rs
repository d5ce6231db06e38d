//! Deploys as traces: the real binary, and a collector on this machine that reads OTLP.

use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value::Value},
    trace::v1::Span,
};
use prost::Message;
use rollhook_testing::{App, Server, fixtures::Receiver, image, server, until};
use serde_json::json;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

fn traceparent(flags: &str) -> String {
    format!("00-{TRACE}-{PARENT}-{flags}")
}

/// The spans that a collector has taken.
fn spans(collector: &Receiver) -> Vec<Span> {
    let requests = collector.sent().into_iter().map(|sent| {
        assert_eq!(sent.request, "POST /v1/traces HTTP/1.1");
        ExportTraceServiceRequest::decode(&sent.bytes[..]).unwrap()
    });
    let scopes = requests.flat_map(|request| request.resource_spans).flat_map(|resource| resource.scope_spans);
    scopes.flat_map(|scope| scope.spans).collect()
}

fn int(attribute: &KeyValue) -> Option<i64> {
    let Value::IntValue(number) = attribute.value.as_ref()?.value.as_ref()? else { return None };
    Some(*number)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn deploy(server: &Server, app: &App, tag: &str, traceparent: &str) {
    server.post(app, &image(tag)).header("traceparent", traceparent).header("prefer", "wait=50").expect(200);
}

#[test]
fn deploy_is_one_trace_from_the_callers_span_on_even_if_the_server_is_killed() {
    let collector = Receiver::start();
    let mut server = server!().arguments(["--otlp-endpoint", &collector.url, "--driver", "simulated:3s"]).run();
    let app = server.app("api");
    let accepted = server.post(&app, &image("v2")).header("traceparent", &traceparent("01")).expect(202).json();
    assert_eq!(accepted["revision"], 2);
    let of_trace = || spans(&collector).into_iter().filter(|span| hex(&span.trace_id) == TRACE).collect::<Vec<_>>();
    until("the begin is told", || of_trace().iter().any(|span| span.name == "queue"));
    server.restart();
    let told = until("the end is told", || {
        let told = of_trace();
        told.iter().any(|span| span.name.starts_with("deploy")).then_some(told)
    });
    let mut names: Vec<_> = told.iter().map(|span| span.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["accept", "deploy shop-test/api", "queue", "rollout"]);
    let (whole, phases): (Vec<_>, Vec<_>) = told.iter().partition(|span| span.name.starts_with("deploy"));
    assert_eq!(hex(&whole[0].parent_span_id), PARENT);
    assert!(phases.iter().all(|phase| phase.parent_span_id == whole[0].span_id));
    let text = collector.sent().iter().map(|sent| sent.body.clone()).collect::<String>();
    assert!(text.contains("shop-test/api") && !text.contains(&app.token), "no span has the token");
}

#[test]
fn trace_that_the_caller_does_not_keep_is_not_told_and_a_wrong_one_is_ignored() {
    let collector = Receiver::start();
    let server = server!().arguments(["--otlp-endpoint", &collector.url]).run();
    let app = server.app("api");
    deploy(&server, &app, "v2", &traceparent("00"));
    deploy(&server, &app, "v3", "00-0-0-01");
    let is_of = |span: &Span, revision| {
        span.attributes.iter().any(|known| known.key == "rollhook.revision" && int(known) == Some(revision))
    };
    let told = until("the third is told", || {
        let told = spans(&collector);
        told.iter().any(|span| span.name.starts_with("deploy") && is_of(span, 3)).then_some(told)
    });
    assert!(told.iter().all(|span| hex(&span.trace_id) != TRACE && !is_of(span, 2)), "{told:?}");
}

#[test]
fn dead_collector_hurts_nobody() {
    let collector = Receiver::start();
    // The one answers nothing, the other is not there.
    collector.answer(None);
    for endpoint in [collector.url.as_str(), "http://127.0.0.1:9"] {
        let mut server = server!().arguments(["--otlp-endpoint", endpoint]).run();
        let app = server.app("api");
        for revision in 2..5 {
            let call = json!({ "image": format!("r.example.com/api:v{revision}"), "commit": "x" });
            server.post(&app, &call).header("prefer", "wait=50").expect(200);
        }
        until("the log says so", || server.log().contains("exporting traces failed"));
        assert_eq!(server.log().matches("exporting traces failed").count(), 1, "once");
        server.signal("TERM");
        assert!(server.ended() && server.log().contains("stopped"), "{}", server.log());
    }
}
