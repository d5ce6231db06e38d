use rollhook_core::ports::Instances;
use serde_json::json;

use super::*;
use crate::rules::samples::{self, merged, stamped};

fn metadata(object: &Object) -> ObjectVersion {
    ObjectVersion { metadata: object.metadata().clone() }
}

fn seen(ready: u32) -> Observation {
    let phase = if ready == 3 { Phase::Complete { digest: None, note: None } } else { Phase::Progressing };
    let instances = Some(Instances { ready, wanted: 3 });
    Observation::new(None, phase, "", "").with(|seen| seen.instances = instances)
}

/// The Deployment at revision 5, and the same after another party changed its image.
fn before_and_after() -> (Object, Object) {
    let before = stamped(samples::deployment(json!({})), &samples::rollout(5));
    let Object::Deployment(object) = before.clone() else { panic!("no Deployment") };
    let container = json!([{"name": "app", "image": "registry.example.com/api:hotfix"}]);
    let changed = json!({"metadata": {"generation": 4, "resourceVersion": "1300"}, "spec": {"template": {"spec": {"containers": container}}}});
    (before, samples::deployment(merged(serde_json::to_value(object).unwrap(), changed)))
}

#[tokio::test]
async fn answer_holds_until_the_workload_changes() {
    let nobody = kube::Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
    let targets = TargetsAtRest::new(Cluster::of(nobody));
    let (rollout, (before, after)) = (samples::rollout(5), before_and_after());
    let app = rollout.id.app;
    targets.begin(&rollout);
    let found = targets.note(&rollout, &before, seen(3));
    assert_eq!(found.drift, None);
    let event = |event| lock(&targets.shared.state).note(&place(&rollout), event);
    let known = || lock(&targets.shared.state).known(&rollout).map(|look| look.found);
    assert_eq!(known(), None, "nothing is known of changes");
    assert_eq!(event(Event::Init), []);
    assert_eq!(event(Event::InitApply(metadata(&before))), []);
    assert_eq!(event(Event::InitDone), []);
    assert_eq!(known(), Some(found));
    assert_eq!(event(Event::Apply(metadata(&before))), [], "as it was read");
    assert_eq!(event(Event::Apply(metadata(&after))), [app]);
    assert_eq!(known(), None, "it must be read");
    let found = targets.note(&rollout, &after, seen(2));
    assert_eq!(found.drift.as_ref().unwrap().image.as_ref().unwrap().to_string(), "registry.example.com/api:hotfix");
    assert_eq!(known(), Some(found));
    assert!(lock(&targets.shared.state).known(&samples::rollout(6)).is_none(), "of another revision");
    assert_eq!(event(Event::Delete(metadata(&after))), [app]);
    targets.forget(app);
    assert!(lock(&targets.shared.state).places.is_empty(), "its watch has ended");
}

#[tokio::test]
async fn app_whose_workload_changes_all_the_time_is_queued_once() {
    let nobody = kube::Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
    let targets = TargetsAtRest::new(Cluster::of(nobody));
    let mut hints = targets.take_hints().unwrap();
    assert!(targets.take_hints().is_none());
    let [one, other] = [1, 2].map(AppUid::from_bits);
    for _ in 0..1000 {
        targets.shared.queue(vec![one]);
    }
    targets.shared.queue(vec![other, one]);
    assert_eq!(lock(&targets.shared.queue).order, [one, other]);
    assert_eq!((hints.next().await, hints.next().await), (Some(one), Some(other)));
    targets.shared.queue(vec![one]);
    assert_eq!(hints.next().await, Some(one), "queued anew after it was taken");
    let waiting = tokio::spawn(async move { hints.next().await });
    tokio::task::yield_now().await;
    drop(targets);
    assert_eq!(waiting.await.unwrap(), None);
}

#[tokio::test]
async fn app_is_looked_at_for_its_secret_once_in_a_while() {
    let nobody = kube::Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
    let targets = TargetsAtRest::new(Cluster::of(nobody));
    let id = rollhook_core::configuration::ConfigurationId(7 << 88);
    let rollout = Rollout { configuration: Some(id), ..samples::rollout(5) };
    let (Object::Deployment(object), _) = before_and_after() else { panic!("no Deployment") };
    let entries = json!([{"secretRef": {"name": "api-config-0000000007000000"}}]);
    let containers = json!([{"name": "app", "image": "registry.example.com/api:v5", "envFrom": entries}]);
    let configured = json!({"spec": {"template": {"spec": {"containers": containers}}}});
    let object = samples::deployment(merged(serde_json::to_value(object).unwrap(), configured));
    targets.note(&rollout, &object, seen(3));
    let next = || lock(&targets.shared.state).next_with_secret();
    assert_eq!(next(), None, "it has just been looked at");
    let age = |targets: &TargetsAtRest| {
        let mut state = lock(&targets.shared.state);
        let known = state.targets.get_mut(&rollout.key()).unwrap();
        known.secret_at = known.secret_at.checked_sub(SECRETS_AGE).unwrap();
    };
    age(&targets);
    assert_eq!((next(), next()), (Some(rollout.id.app), None));
    let without = samples::rollout(5);
    targets.note(&without, &before_and_after().0, seen(3));
    age(&targets);
    assert_eq!(next(), None, "it has no configuration any more");
}

#[tokio::test]
async fn pods_that_are_not_well_are_read_each_time() {
    let nobody = kube::Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
    let targets = TargetsAtRest::new(Cluster::of(nobody));
    let (rollout, (before, _)) = (samples::rollout(5), before_and_after());
    targets.begin(&rollout);
    let event = |event| lock(&targets.shared.state).note(&place(&rollout), event);
    assert_eq!(event(Event::InitApply(metadata(&before))), []);
    assert_eq!(event(Event::InitDone), []);
    let known = |ready| {
        targets.note(&rollout, &before, seen(ready));
        lock(&targets.shared.state).known(&rollout).map(|look| look.found)
    };
    assert_eq!(known(2), None);
    assert!(known(3).is_some());
}

#[tokio::test]
async fn look_that_ends_after_its_app_was_forgotten_leaves_nothing() {
    let nobody = kube::Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
    let targets = Arc::new(TargetsAtRest::new(Cluster::of(nobody)));
    let rollout = samples::rollout(5);
    let (app, asked) = (rollout.id.app, targets.clone());
    let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
        assert_eq!(lock(&asked.shared.state).places.len(), 1, "it is watched before it is read");
        asked.forget(app);
        let gone = json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "message": "", "code": 404});
        let answer = http::Response::builder().status(404);
        let answer = answer.body(kube::client::Body::from(gone.to_string().into_bytes())).unwrap();
        std::future::ready(Ok::<_, std::convert::Infallible>(answer))
    });
    let cluster = Cluster::of(kube::Client::new(service, "default"));
    assert!(targets.look(&cluster, &rollout).await.unwrap().drift.is_some(), "it is answered");
    let state = lock(&targets.shared.state);
    assert!(state.targets.is_empty() && state.places.is_empty());
}
