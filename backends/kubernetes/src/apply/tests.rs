//! Races and lost answers, on a scripted API server.

use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{Arc, Mutex},
};

use http::{Request, Response, StatusCode};
use kube::client::Body;
use serde_json::{Value, json};

use super::*;
use crate::rules::{
    object::STAMP,
    samples::{self, merged, rollout, stamped},
};

/// The server's answers in their order, and the requests that it received.
#[derive(Clone, Default)]
struct Script {
    answers: Arc<Mutex<VecDeque<(u16, Value)>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Script {
    async fn play(
        answers: impl IntoIterator<Item = (u16, Value)>,
        rollout: &Rollout,
    ) -> (Result<Applied>, Vec<String>) {
        let script = Self { answers: Arc::new(Mutex::new(answers.into_iter().collect())), ..Self::default() };
        let server = script.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let answer = server.answer(&request);
            async move { Ok::<_, Infallible>(answer) }
        });
        let applied = apply(&Cluster::of(kube::Client::new(service, "default")), rollout, None).await;
        assert!(script.answers.lock().unwrap().is_empty(), "all that was scripted was asked for");
        let asked = script.asked.lock().unwrap().clone();
        (applied, asked)
    }

    fn answer(&self, request: &Request<Body>) -> Response<Body> {
        let resource = request.uri().path().rsplit('/').take(2).collect::<Vec<_>>();
        self.asked.lock().unwrap().push(format!("{} {}", request.method(), resource.join(" of ")));
        let (code, body) = self.answers.lock().unwrap().pop_front().expect("a scripted answer");
        let response = Response::builder().status(StatusCode::from_u16(code).unwrap());
        response.body(Body::from(serde_json::to_vec(&body).unwrap())).unwrap()
    }
}

const GET: &str = "GET api of deployments";
const PATCH: &str = "PATCH api of deployments";

fn there(object: Object) -> (u16, Value) {
    let Object::Deployment(object) = object else { panic!("no Deployment") };
    (200, serde_json::to_value(object).unwrap())
}

fn status(code: u16, reason: &str) -> (u16, Value) {
    (code, json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "recorded"}))
}

fn play(answers: impl IntoIterator<Item = (u16, Value)>, rollout: &Rollout) -> (Result<Applied>, Vec<String>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(Script::play(answers, rollout))
}

fn unstamped() -> Object {
    samples::deployment(json!({}))
}

#[test]
fn patch_whose_answer_was_lost_is_recognised() {
    // The first patch landed and its answer was lost; a proxy on the way repeated it, and got the conflict.
    let answers = [there(unstamped()), status(409, "Conflict"), there(stamped(unstamped(), &rollout(5)))];
    let (applied, asked) = play(answers, &rollout(5));
    assert_eq!(applied.unwrap(), Applied::Done);
    assert_eq!(asked, [GET, PATCH, GET]);
}

#[test]
fn conflict_is_decided_anew() {
    let answers = [there(unstamped()), status(409, "Conflict"), there(stamped(unstamped(), &rollout(6)))];
    let (applied, asked) = play(answers, &rollout(5));
    assert_eq!(applied.unwrap(), Applied::Newer(rollout(6).id.revision));
    assert_eq!(asked, [GET, PATCH, GET]);

    let answers =
        [there(unstamped()), status(409, "Conflict"), there(unstamped()), there(stamped(unstamped(), &rollout(5)))];
    let (applied, asked) = play(answers, &rollout(5));
    assert_eq!(applied.unwrap(), Applied::Done);
    assert_eq!(asked, [GET, PATCH, GET, PATCH]);
}

#[test]
fn conflicts_without_end_are_a_conflict() {
    let round = [there(unstamped()), status(409, "Conflict")];
    let (applied, _) = play(round.into_iter().cycle().take(2 * ATTEMPTS as usize), &rollout(5));
    assert!(applied.unwrap_err().is_conflict());
}

#[test]
fn outage_is_returned_without_a_retry() {
    for (code, reason) in [(503, "ServiceUnavailable"), (429, "TooManyRequests"), (500, "InternalError")] {
        let (applied, asked) = play([there(unstamped()), status(code, reason)], &rollout(5));
        assert!(applied.unwrap_err().is_unavailable());
        assert_eq!(asked, [GET, PATCH]);
    }
}

#[test]
fn workload_created_by_others_first_is_read_again() {
    let mut rollout = rollout(5);
    rollout.workload.template = Some(Template::default());
    let foreign = json!({"metadata": {"annotations": {STAMP: "00000000000000000000000000000bad/3"}}});
    let Object::Deployment(object) = unstamped() else { panic!("no Deployment") };
    let foreign = samples::deployment(merged(serde_json::to_value(object).unwrap(), foreign));
    let (applied, asked) = play([status(404, "NotFound"), status(409, "AlreadyExists"), there(foreign)], &rollout);
    assert!(matches!(applied.unwrap(), Applied::Refused { .. }));
    assert_eq!(asked, [GET, "POST deployments of shop-test", GET]);
}

#[test]
fn rollout_is_applied_again_if_listing_pods_is_denied_for_now_and_is_done_if_that_is_refused() {
    let rollout = samples::rollout_of(WorkloadKind::StatefulSet, 5);
    let set = || samples::stateful_set(json!({"status": {"replicas": 3, "observedGeneration": 3}}));
    let there = |object: Object| {
        let Object::StatefulSet(object) = object else { panic!("no StatefulSet") };
        (200, serde_json::to_value(object).unwrap())
    };
    let patched = || there(stamped(set(), &rollout));
    let (applied, asked) = play([there(set()), patched(), patched(), status(422, "Invalid")], &rollout);
    assert_eq!(applied.unwrap(), Applied::Done);
    assert_eq!(asked.last().unwrap(), "GET pods of shop-test");
    let mut denied = status(403, "Forbidden");
    denied.1["message"] = json!("pods is forbidden: User \"rollhook\" cannot list resource \"pods\"");
    let (applied, _) = play([there(set()), patched(), patched(), denied], &rollout);
    assert!(matches!(applied.unwrap_err(), Error::Denied { .. }));
}
