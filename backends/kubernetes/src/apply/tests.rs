//! Races and lost answers, on a scripted API server.

use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{Arc, Mutex},
};

use http::{Request, Response, StatusCode};
use kube::client::Body;
use rollhook_core::configuration::{ConfigurationId, Variables};
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
        configuration: Option<&Configuration>,
    ) -> (Result<Applied>, Vec<String>) {
        let script = Self { answers: Arc::new(Mutex::new(answers.into_iter().collect())), ..Self::default() };
        let server = script.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let answer = server.answer(&request);
            async move { Ok::<_, Infallible>(answer) }
        });
        let applied = apply(&Cluster::of(kube::Client::new(service, "default")), rollout, configuration).await;
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
    runtime.block_on(Script::play(answers, rollout, None))
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

const SECRETS: &str = "POST secrets of shop-test";

/// The deploy of a configuration, and its Secret as the server has it.
fn configured() -> (Rollout, Configuration, (u16, Value)) {
    let configuration = Configuration::of(ConfigurationId(7 << 88));
    let rollout = Rollout { configuration: Some(configuration.id), ..rollout(5) };
    let made = configuration::secret(&owner(&rollout, &unstamped()), &configuration).metadata;
    let identity = json!({"uid": "s-1", "resourceVersion": "9"});
    let metadata = merged(serde_json::to_value(made).unwrap(), identity);
    let secret = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata});
    (rollout, configuration, (200, secret))
}

fn play_configured(answers: impl IntoIterator<Item = (u16, Value)>) -> (Result<Applied>, Vec<String>) {
    let (rollout, configuration, _) = configured();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(Script::play(answers, &rollout, Some(&configuration)))
}

#[test]
fn secret_whose_answer_was_lost_is_recognised() {
    let (rollout, _, secret) = configured();
    let patched = there(stamped(unstamped(), &rollout));
    let mut whole = secret.clone();
    whole.1["kind"] = json!("Secret");
    whole.1["apiVersion"] = json!("v1");
    whole.1["immutable"] = json!(true);
    let lost = [there(unstamped()), status(404, "NotFound"), status(409, "AlreadyExists"), secret.clone()];
    let (applied, asked) = play_configured(lost.into_iter().chain([whole.clone(), secret.clone(), patched.clone()]));
    assert_eq!(applied.unwrap(), Applied::Done);
    let read = "GET api-config-0000000007000000 of secrets";
    let adopt = "PATCH api-config-0000000007000000 of secrets";
    assert_eq!(asked, [GET, read, SECRETS, read, read, adopt, PATCH], "others may have made it: it is compared");

    // The one of an earlier deploy gets the stamp of this one, so that no other removes it meanwhile.
    let mut before = secret.clone();
    before.1["metadata"]["annotations"][STAMP] = json!(samples::rollout(4).id.to_string());
    let (applied, asked) = play_configured([there(unstamped()), before, whole, secret, patched]);
    assert_eq!(applied.unwrap(), Applied::Done);
    assert_eq!(asked, [GET, read, read, adopt, PATCH]);
}

#[test]
fn secret_of_a_refused_change_is_taken_back() {
    let (_, _, secret) = configured();
    let answers =
        [there(unstamped()), status(404, "NotFound"), (201, secret.1), status(422, "Invalid"), status(200, "Success")];
    let (applied, asked) = play_configured(answers);
    assert!(matches!(applied.unwrap(), Applied::Refused { .. }));
    assert_eq!(asked[2..], [SECRETS, PATCH, "DELETE api-config-0000000007000000 of secrets"]);
}

#[test]
fn new_secret_has_the_list_of_old_ones_read_once() {
    let (rollout, _, secret) = configured();
    let none = (
        200,
        json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {}, "items": []}),
    );
    let patched = there(stamped(unstamped(), &rollout));
    let answers = [there(unstamped()), status(404, "NotFound"), (201, secret.1), patched, none];
    let (applied, asked) = play_configured(answers);
    assert_eq!(applied.unwrap(), Applied::Done);
    assert_eq!(asked[2..], [SECRETS, PATCH, "GET secrets of shop-test"]);
}

#[test]
fn value_is_in_no_sentence_of_a_refusal() {
    let text = r#"{"salt": [0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0], "variables": [["A", "hunter2", false]]}"#;
    let variables = Variables::from_text(text).unwrap();
    let (rollout, configuration, _) = configured();
    let configuration = configuration.with(|configuration| configuration.variables = variables);
    let mut denied = status(422, "Invalid");
    denied.1["message"] = json!("the policy refuses hunter2");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let answers = [there(unstamped()), status(404, "NotFound"), denied];
    let (applied, _) = runtime.block_on(Script::play(answers, &rollout, Some(&configuration)));
    let applied = format!("{applied:?}");
    assert!(applied.contains("its reason quotes a value") && !applied.contains("hunter2"), "{applied}");
}
