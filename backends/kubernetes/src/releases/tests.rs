use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use http::{Method, Request, Response};
use kube::client::Body;
use rollhook_core::{app::AppUid, deploy::Revision, ports::DeployId};

use super::*;
use crate::lock;

fn run() -> ReleaseRun {
    let id = DeployId { app: AppUid::from_bits(7), revision: Revision::new(3).unwrap() };
    ReleaseRun { app: "shop-test/api".parse().unwrap(), id: id.into() }
}

/// A Job of the run in its namespace.
fn job() -> Value {
    let labels = json!({
        "app.kubernetes.io/managed-by": "rollhook", "app.kubernetes.io/component": "release-command",
        "rollhook.dev/release-app": run().id.app.to_string(), "rollhook.dev/release-revision": "3",
    });
    json!({
        "metadata": {"name": job::name(run().id), "uid": "job", "resourceVersion": "12", "labels": labels,
                     "annotations": {STARTED: "true"}},
        "spec": {"suspend": false, "template": {"spec": {"containers": [{"name": "app", "image": "api:v7"}]}}},
        "status": {"active": 1},
    })
}

/// A pod of this controller with annotations of so many bytes.
fn pod(name: &str, controller: &str, annotation: usize) -> Value {
    let owner = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": controller, "controller": true}]);
    json!({
        "metadata": {"name": name, "uid": name, "creationTimestamp": "2020-01-01T00:00:00Z", "ownerReferences": owner,
                     "annotations": {"theirs": "x".repeat(annotation)}},
        "spec": {"containers": [{"name": "app", "image": "api:v7"}]},
        "status": {"phase": "Pending"},
    })
}

/// A cluster with this Job, if any, and these pods; and the patches that it takes. Lists are read in pages.
fn cluster(job: Option<Value>, pods: Vec<Value>) -> (Cluster, Arc<Mutex<Vec<Value>>>) {
    let taken = Arc::<Mutex<Vec<Value>>>::default();
    let (kept, pods) = (taken.clone(), Arc::new(pods));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (job, pods, kept) = (job.clone(), pods.clone(), kept.clone());
        async move {
            let (parts, body) = request.into_parts();
            let parameter = |name: &str| {
                let query = parts.uri.query().unwrap_or_default();
                query.split('&').find_map(|part| part.strip_prefix(name)?.strip_prefix('=')?.parse::<usize>().ok())
            };
            let (status, answer) = if parts.uri.path().ends_with("/pods") {
                let (from, limit) = (parameter("continue").unwrap_or(0), parameter("limit").expect("a page"));
                let to = (from + limit).min(pods.len());
                let token = if to < pods.len() { to.to_string() } else { String::new() };
                (200, json!({"metadata": {"continue": token}, "items": pods[from..to]}))
            } else if parts.method == Method::PATCH {
                let patch = serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap();
                lock(&kept).push(patch);
                (200, job.unwrap())
            } else {
                let gone =
                    json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "message": "", "code": 404});
                job.map_or((404, gone), |job| (200, job))
            };
            let answer = Response::builder().status(status).body(Body::from(answer.to_string().into_bytes()));
            Ok::<_, Infallible>(answer.unwrap())
        }
    });
    (Cluster::of(kube::Client::new(service, "default")), taken)
}

async fn own_pods(pods: Vec<Value>) -> (Vec<String>, Extent) {
    let run = run();
    let (kept, extent) =
        Run::of(&cluster(None, pods).0, &run).pods(&serde_json::from_value(job()).unwrap()).await.unwrap();
    assert!(kept.iter().all(|pod| pod.metadata.annotations.is_none()), "no annotation of others is kept");
    (kept.iter().map(|pod| pods::name(pod).to_owned()).collect(), extent)
}

#[tokio::test]
async fn own_pod_is_found_among_those_that_others_have_made() {
    let mut pods: Vec<Value> = (0..120).map(|at| pod(&format!("a-{at}"), "another", 100 << 10)).collect();
    pods.push(pod("own", "job", 0));
    assert_eq!(own_pods(pods).await, (vec!["own".to_owned()], Extent::Whole));
}

#[tokio::test]
async fn few_pods_are_kept_and_those_that_go_on_before_others() {
    let mut pods: Vec<Value> = (0..100).map(|at| pod(&format!("a-{at}"), "job", 0)).collect();
    for over in &mut pods[..95] {
        over["status"]["phase"] = json!("Failed");
        over["metadata"]["creationTimestamp"] = json!("2020-01-01T01:00:00Z");
    }
    let (kept, _) = own_pods(pods).await;
    assert_eq!((kept.len(), &kept[..5]), (10, &["a-95", "a-96", "a-97", "a-98", "a-99"].map(str::to_owned)[..]));
    let fat = (0..400).map(|at| pod(&format!("a-{at}"), "another", 256 << 10)).collect();
    assert_eq!(own_pods(fat).await, (Vec::new(), Extent::Part));
}

#[tokio::test]
async fn run_without_a_job_goes_on_as_long_as_a_pod_does() {
    let run = run();
    let over = |mut pod: Value| {
        pod["status"]["phase"] = json!("Failed");
        pod
    };
    let state = async |pods: Vec<Value>| Run::of(&cluster(None, pods).0, &run).state().await.unwrap();
    assert_eq!(state(Vec::new()).await, ReleaseState::Unknown);
    assert_eq!(state(vec![over(pod("own", "job", 0))]).await, ReleaseState::Unknown);
    assert_eq!(state(vec![over(pod("own", "job", 0)), pod("other", "job", 0)]).await, ReleaseState::Running);
}

#[tokio::test]
async fn cancelled_run_counts_as_begun_unless_all_its_pods_were_read() {
    let run = run();
    let began = async |pods: Vec<Value>| {
        let (cluster, patches) = cluster(Some(job()), pods);
        Run::of(&cluster, &run).cancel().await.unwrap();
        let patch = lock(&patches).remove(0);
        let stopped: Value = serde_json::from_str(patch["metadata"]["annotations"][STOPPED].as_str().unwrap()).unwrap();
        stopped["began"].clone()
    };
    assert_eq!(began(vec![pod("own", "job", 0)]).await, json!({"unseen": {"pod": "own"}}));
    let fat = (0..400).map(|at| pod(&format!("a-{at}"), "another", 256 << 10));
    assert_eq!(began([pod("own", "job", 0)].into_iter().chain(fat).collect()).await, json!("yes"));
    assert_eq!(began(Vec::new()).await, json!("yes"));
}

#[tokio::test]
async fn kept_end_of_a_log_is_shown_from_the_beginning_alone() {
    let mut job = job();
    let stopped = json!({"began": "yes", "reason": "cancelled", "message": "cancelled", "log": ["one", "two"]});
    job["metadata"]["annotations"][STOPPED] = stopped.to_string().into();
    let (cluster, run) = (cluster(None, Vec::new()).0, run());
    let job: Job = serde_json::from_value(job).unwrap();
    let read = async |from| Run::of(&cluster, &run).log(&Logs::default(), &job, &[], from).await.unwrap().unwrap();
    let whole = String::from_utf8(read(0).await).unwrap();
    assert_eq!(whole, "[rollhook: the pod is gone; these were its last lines]\none\ntwo\n");
    // The pod's own log was followed so far: it may be longer or shorter than the kept text.
    for followed in [1, 20, whole.len() as u64, 10_000] {
        assert_eq!(read(followed).await, b"", "from {followed}");
    }
}
