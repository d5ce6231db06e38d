use futures_util::FutureExt;
use opentelemetry::{Context, trace::SpanId};
use opentelemetry_sdk::{error::OTelSdkResult, trace::Span};
use rollhook_conformance::{client, samples};
use rollhook_core::{
    deploy::{Reason, State},
    ledger::NewDeploy,
    time::Timestamp,
};
use rollhook_memory::MemoryStore;

use super::*;

/// Keeps the spans.
#[derive(Debug, Default)]
struct Kept(Mutex<Vec<SpanData>>);

impl SpanProcessor for Kept {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        self.0.lock().unwrap().push(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

impl Kept {
    fn names(&self) -> Vec<String> {
        self.0.lock().unwrap().iter().map(|span| span.name.to_string()).collect()
    }
}

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// A store, and as many replicas on it, whose spans go to one collector.
fn replicas<const N: usize>() -> ([TracedHistoryStore<Kept>; N], Arc<Kept>) {
    let (store, kept) = (Arc::new(MemoryStore::on_system_time()), Arc::<Kept>::default());
    (std::array::from_fn(|_| TracedHistoryStore::new(store.clone(), kept.clone())), kept)
}

fn building(deploy: &Deploy) -> Deploy {
    let state = State::Building { since: deploy.created_at, source: Default::default(), paused: Default::default() };
    deploy.moved(state)
}

/// Runs a future that waits for nothing.
fn run<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("the memory store answers at once")
}

#[test]
fn deploy_is_one_trace_whichever_replica_wrote_its_phases() {
    run(async {
        let ([one, two], kept) = replicas();
        let app = client::register(&one, samples::app("shop", "test", "api")).await.state.app.uid;
        let new = NewDeploy { trace: PARENT.parse().ok(), ..samples::build(1) };
        let deploy = client::admit(&one, app, samples::admission(new)).await;
        client::record(&one, app, vec![building(&deploy)]).await;
        // Another replica goes on: it has loaded what the first one wrote.
        let building = client::load(&two, app).await.state.unfinished[0].clone();
        let built = Deploy { image: Some(samples::image("v1")), step: building.step + 1, ..(*building).clone() };
        client::record(&two, app, vec![built.clone()]).await;
        client::record(&one, app, vec![built.moved(samples::rolling_out(&built))]).await;
        let rolling = client::load(&two, app).await.state.unfinished[0].clone();
        client::record(&two, app, vec![rolling.moved(State::Succeeded { note: None })]).await;
        let names = ["accept", "queue", "build", "ready", "rollout", "deploy shop-test/api"];
        assert_eq!(kept.names(), names);
        let spans = kept.0.lock().unwrap();
        let (phases, whole) = spans.split_at(5);
        let trace = whole[0].span_context.trace_id();
        assert_eq!(trace.to_string(), &PARENT[3..35]);
        assert_eq!(whole[0].parent_span_id.to_string(), &PARENT[36..52]);
        for phase in phases {
            assert_eq!(phase.span_context.trace_id(), trace);
            assert_eq!(phase.parent_span_id, whole[0].span_context.span_id());
            assert!(phase.start_time <= phase.end_time);
        }
    });
}

#[test]
fn deploy_without_a_caller_has_a_trace_of_its_own_and_an_unsampled_one_none() {
    run(async {
        let ([one], kept) = replicas();
        let app = client::register(&one, samples::app("shop", "test", "api")).await.state.app.uid;
        client::admit(&one, app, samples::admission(samples::deploy("v1"))).await;
        let unsampled = format!("{}00", &PARENT[..53]);
        let new = NewDeploy { trace: unsampled.parse().ok(), ..samples::deploy("v2") };
        client::admit(&one, app, samples::admission(new)).await;
        let spans = kept.0.lock().unwrap();
        let [own] = &spans[..] else { panic!("{spans:?}") };
        assert!(own.span_context.is_valid() && own.span_context.is_sampled());
        assert!(own.parent_span_id != SpanId::INVALID);
    });
}

#[test]
fn failure_is_told_by_its_reason_alone() {
    run(async {
        let ([one], kept) = replicas();
        let app = client::register(&one, samples::app("shop", "test", "api")).await.state.app.uid;
        let deploy = client::admit(&one, app, samples::admission(samples::deploy("v1"))).await;
        let message = "Container api ended: PASSWORD=hunter2".to_owned();
        let failed = State::Failed { reason: Reason::new("Crash"), message, evidence: Some(samples::evidence()) };
        client::record(&one, app, vec![deploy.moved(failed)]).await;
        assert_eq!(kept.names(), ["accept", "queue", "deploy shop-test/api"]);
        let told = format!("{:?}", kept.0.lock().unwrap());
        assert!(told.contains("Crash") && !told.contains("hunter2"), "{told}");
    });
}

#[test]
fn commit_that_was_not_confirmed_is_not_told() {
    run(async {
        let ([one, two], kept) = replicas();
        let loaded = client::register(&one, samples::app("shop", "test", "api")).await;
        client::admit(&two, loaded.state.app.uid, samples::admission(samples::deploy("v1"))).await;
        let mut late = rollhook_core::ledger::Change::on(loaded.state);
        samples::admit(&mut late, samples::admission(samples::deploy("v2")), Timestamp::from_millis(1));
        let refused = one.commit(vec![client::put(late, loaded.version)]).await;
        assert!(refused[0].is_err());
        assert_eq!(kept.names(), ["accept"]);
    });
}
