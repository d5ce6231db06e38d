use rollhook_conformance::samples;
use rollhook_core::{
    deploy::{Evidence, Reason, Resolution, WorkloadEnd, WorkloadEvidence},
    image::ImageLabels,
    ledger::{AppState, Change, NewDeploy, Record},
};

use super::*;

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// An app, and the spans of its commits.
struct Traced {
    state: AppState,
    spans: Vec<SpanData>,
}

impl Traced {
    fn new() -> Self {
        Self { state: AppState::new(samples::app("shop", "test", "api")), spans: Vec::new() }
    }

    /// Commits a change.
    fn commit(&mut self, make: impl FnOnce(&mut Change, Timestamp)) {
        let mut change = Change::on(self.state.clone());
        make(&mut change, self.state.app.created_at);
        let commit = ConfirmedCommit { before: Some(&self.state), change: &change, took: Duration::from_millis(7) };
        self.spans.extend(of_commit(&commit, "https://deploys.example.com"));
        self.state = change.state;
    }

    fn accept(&mut self, new: NewDeploy) -> Deploy {
        self.commit(|change, now| drop(samples::admit(change, samples::admission(new), now)));
        Deploy::clone(self.state.unfinished.last().unwrap())
    }

    /// Records the next state of the deploy. Returns it as it is stored.
    fn record(&mut self, deploy: Deploy) -> Option<Deploy> {
        let revision = deploy.revision;
        self.commit(|change, now| change.record(Record { changes: vec![deploy], ..Record::default() }, now).unwrap());
        self.state.unfinished(revision).map(|deploy| Deploy::clone(deploy))
    }

    fn names(&self) -> Vec<&str> {
        self.spans.iter().map(|span| &*span.name).collect()
    }
}

/// An attribute of a span, as text.
fn fact(span: &SpanData, key: &str) -> String {
    let found = span.attributes.iter().find(|attribute| attribute.key.as_str() == key);
    found.map(|attribute| attribute.value.to_string()).unwrap_or_default()
}

#[test]
fn failed_deploy_of_several_workloads_has_the_state_of_each() {
    let mut traced = Traced::new();
    let deploy = traced.accept(samples::deploy("v1"));
    let rolling = traced.record(deploy.moved(samples::rolling_out(&deploy))).unwrap();
    let workload = |name: &str, state| WorkloadEvidence { name: name.to_owned(), state, message: "secret".to_owned() };
    let workloads =
        vec![workload("Deployment/worker", WorkloadEnd::Failed), workload("Deployment/web", WorkloadEnd::NotTouched)];
    let evidence = Some(Evidence { workloads, ..Evidence::default() });
    let (reason, message) = (Reason::new("CrashLoopBackOff"), String::new());
    traced.record(rolling.moved(State::Failed { reason, message, evidence }));
    let whole = traced.spans.last().unwrap();
    assert_eq!(fact(whole, "rollhook.workloads"), r#"["Deployment/worker: failed","Deployment/web: not touched"]"#);
}

#[test]
fn deploy_is_one_trace_of_what_its_commits_end() {
    let mut traced = Traced::new();
    let new = NewDeploy { trace: PARENT.parse().ok(), ..samples::build(1) };
    let deploy = traced.accept(new);
    let state = State::Building { since: deploy.created_at, source: Default::default(), paused: Default::default() };
    let building = traced.record(deploy.moved(state)).unwrap();
    let built = Deploy { image: Some(samples::image("v1")), step: building.step + 1, ..building };
    let built = traced.record(built).unwrap();
    let rolling = traced.record(built.moved(samples::rolling_out(&built))).unwrap();
    assert!(traced.record(rolling.moved(State::Succeeded { note: None })).is_none());
    let names = ["accept", "queue", "build", "ready", "rollout", "deploy shop-test/api"];
    assert_eq!(traced.names(), names);
    let (phases, whole) = traced.spans.split_at(5);
    let trace = whole[0].span_context.trace_id();
    assert_eq!(trace.to_string(), &PARENT[3..35]);
    assert_eq!(whole[0].parent_span_id.to_string(), &PARENT[36..52]);
    for phase in phases {
        assert_eq!(phase.span_context.trace_id(), trace);
        assert_eq!(phase.parent_span_id, whole[0].span_context.span_id());
        assert!(phase.start_time <= phase.end_time);
    }
    let image = samples::image("v1");
    let repository = image.repository().to_owned();
    assert_eq!(fact(&whole[0], "cicd.pipeline.result"), "success");
    let page = fact(&whole[0], "cicd.pipeline.run.url.full");
    assert!(page.starts_with("https://deploys.example.com/apps/") && page.contains("/deploys/"), "{page}");
    assert_eq!(fact(&whole[0], "container.image.name"), repository);
    assert_eq!(fact(&whole[0], "container.image.tags"), "[\"v1\"]");
    for (phase, task) in [(2, ("build", "build")), (4, ("rollout", "deploy"))] {
        let facts = ["cicd.pipeline.task.name", "cicd.pipeline.task.type"].map(|key| fact(&phases[phase], key));
        assert_eq!((&*facts[0], &*facts[1]), task);
    }
    assert_eq!(fact(&phases[1], "cicd.pipeline.run.state"), "pending", "the queue is no task");
    let accept = &phases[0];
    assert_eq!(accept.end_time.duration_since(accept.start_time).unwrap(), Duration::from_millis(7), "the write");
}

#[test]
fn digest_that_the_registry_named_is_exported_with_the_image() {
    let mut traced = Traced::new();
    let deploy = traced.accept(NewDeploy { resolves: true, ..samples::deploy("v1") });
    let digest = format!("sha256:{}", "0a".repeat(32));
    let resolution = Some(Box::new(Resolution::resolved(ImageLabels::default(), &[], &[], &[])));
    let resolved = Deploy { digest: digest.parse().ok(), resolution, ..deploy.moved(State::Queued) };
    let resolved = traced.record(resolved).unwrap();
    let rolling = traced.record(resolved.moved(samples::rolling_out(&resolved))).unwrap();
    traced.record(rolling.moved(State::Succeeded { note: None }));
    let whole = traced.spans.last().unwrap();
    let repository = samples::image("v1").repository().to_owned();
    assert_eq!(fact(whole, "container.image.repo_digests"), format!("[\"{repository}@{digest}\"]"));
    assert_eq!(fact(whole, "container.image.tags"), "[\"v1\"]");
    assert_eq!(
        traced.names(),
        ["accept", "queue", "rollout", "deploy shop-test/api"],
        "the look is a part of the queue"
    );
}

#[test]
fn deploy_without_a_caller_has_a_trace_of_its_own_and_an_unsampled_one_none() {
    let mut traced = Traced::new();
    traced.accept(samples::deploy("v1"));
    let unsampled = format!("{}00", &PARENT[..53]);
    traced.accept(NewDeploy { trace: unsampled.parse().ok(), ..samples::deploy("v2") });
    let [own] = &traced.spans[..] else { panic!("{:?}", traced.spans) };
    assert!(own.span_context.is_valid() && own.span_context.is_sampled());
    assert!(own.parent_span_id != SpanId::INVALID);
}

#[test]
fn failure_is_exported_by_its_reason_alone() {
    let mut traced = Traced::new();
    let deploy = traced.accept(samples::deploy("v1"));
    let message = "Container api ended: PASSWORD=hunter2".to_owned();
    let failed = State::Failed { reason: Reason::new("Crash"), message, evidence: Some(samples::evidence()) };
    traced.record(deploy.moved(failed));
    assert_eq!(traced.names(), ["accept", "queue", "deploy shop-test/api"]);
    let exported = format!("{:?}", traced.spans);
    assert!(exported.contains("Crash") && !exported.contains("hunter2"), "{exported}");
}

#[test]
fn end_is_the_result_of_the_run() {
    let failed = |reason| State::Failed { reason: Reason::new(reason), message: String::new(), evidence: None };
    for (state, wanted) in [
        (failed(Reason::RELEASE_DEADLINE), "timeout"),
        (failed(Reason::UNREACHABLE), "error"),
        (failed(Reason::IMAGE_NOT_RESOLVED), "error"),
        (failed(Reason::IMAGE_NOT_FOUND), "failure"),
        (failed("Crash"), "failure"),
        (State::Superseded { by: rollhook_core::deploy::Revision::FIRST, rollback: false, newer: None }, "skip"),
        (State::Cancelled { reason: Reason::new(Reason::CANCELLED), message: String::new() }, "cancellation"),
    ] {
        let mut traced = Traced::new();
        let deploy = traced.accept(samples::deploy("v1"));
        traced.record(deploy.moved(state));
        assert_eq!(fact(traced.spans.last().unwrap(), "cicd.pipeline.result"), wanted);
    }
}

#[test]
fn commit_that_changes_no_deploy_has_no_span() {
    let mut traced = Traced::new();
    traced.commit(|change, now| change.lease(&samples::replica("one", 1), now));
    assert_eq!(traced.spans, []);
}
