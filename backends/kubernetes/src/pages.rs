//! Lists of objects that others write, read page by page: what a list costs does not grow with what a namespace has.

use kube::{
    Client,
    api::{ListMeta, ListParams},
    core::Request,
};
use rollhook_core::{Error, Result};
use serde::{Deserialize, de::DeserializeOwned};

use crate::{bounded_answers::too_long, error::classify};

/// The most objects of a page.
const PAGE: u32 = 50;
/// The most bytes of a page. A page that is longer is read again with fewer objects.
pub(crate) const PAGE_BYTES: usize = 4 << 20;
/// The most bytes that are read of a list.
pub(crate) const LIST_BYTES: usize = 64 << 20;

/// Whether a list was read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All objects were read.
    Whole,
    /// There are more objects than were read.
    Part,
}

/// A page, as far as it is used.
#[derive(Deserialize)]
#[serde(bound = "T: DeserializeOwned")]
struct Page<T> {
    #[serde(default)]
    metadata: ListMeta,
    items: Vec<T>,
}

/// Hands over each page of the objects at this URL. The client reads at most [`PAGE_BYTES`] of an answer.
pub(crate) async fn each<T: DeserializeOwned>(
    client: &Client,
    url: &str,
    mut parameters: ListParams,
    mut keep: impl FnMut(Vec<T>),
) -> Result<Extent> {
    let (mut limit, mut read) = (PAGE, 0);
    while read < LIST_BYTES {
        parameters.limit = Some(limit);
        let request =
            Request::new(url).list(&parameters).map_err(|error| classify(kube::Error::BuildRequest(error)))?;
        let text = match client.request_text(request).await {
            Ok(text) => text,
            Err(error) => match too_long(&error) {
                // One object alone is longer than a page. Its successors cannot be reached.
                Some(_) if limit == 1 => return Ok(Extent::Part),
                Some(long) => {
                    read += long.most;
                    limit /= 2;
                    continue;
                }
                None => return Err(classify(error)),
            },
        };
        read += text.len();
        let page: Page<T> = serde_json::from_str(&text)
            .map_err(|error| Error::corrupt("the API server's answer cannot be read", error))?;
        keep(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters.continue_token = Some(token),
            None => return Ok(Extent::Whole),
        }
    }
    Ok(Extent::Part)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::{Request, Response};
    use kube::client::Body;
    use rollhook_core::ports::{Observation, Phase};
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        client::Cluster,
        lock,
        rules::{
            observation,
            pod_list::{KEPT, PodList},
            retained::Retained,
            samples::{self, merged, stamped},
        },
        workload::Rollout,
    };

    /// An API server that has these objects of each kind, and the limits of the lists that it was asked for.
    fn server(objects: Vec<Value>) -> (Cluster, Arc<Mutex<Vec<usize>>>) {
        let asked = Arc::<Mutex<Vec<usize>>>::default();
        let (objects, limits) = (Arc::new(objects), asked.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let parameter = |name: &str| {
                let query = request.uri().query().unwrap_or_default();
                query.split('&').find_map(|part| part.strip_prefix(name)?.strip_prefix('=')?.parse::<usize>().ok())
            };
            let (from, limit) = (parameter("continue").unwrap_or(0), parameter("limit").expect("a list with a limit"));
            lock(&limits).push(limit);
            let to = (from + limit).min(objects.len());
            let token = if to < objects.len() { to.to_string() } else { String::new() };
            let page = json!({"metadata": {"resourceVersion": "7", "continue": token}, "items": objects[from..to]});
            async move { Ok::<_, std::convert::Infallible>(Response::new(Body::from(page.to_string().into_bytes()))) }
        });
        (Cluster::of(kube::Client::new(service, "default")), asked)
    }

    /// The number of objects that are read of so many with annotations of this size.
    async fn read(count: usize, annotation: usize) -> (usize, Extent, Vec<usize>) {
        let object = json!({"metadata": {"annotations": {"theirs": "x".repeat(annotation)}}});
        let (cluster, asked) = server(vec![object; count]);
        let mut read = 0;
        let keep = |page: Vec<serde::de::IgnoredAny>| read += page.len();
        let extent = each(cluster.lists(), "/api/v1/namespaces/shop-test/pods", ListParams::default(), keep).await;
        let asked = lock(&asked).clone();
        (read, extent.unwrap(), asked)
    }

    #[tokio::test]
    async fn list_is_read_in_pages() {
        assert_eq!(read(120, 10).await, (120, Extent::Whole, vec![50, 50, 50]));
        assert_eq!(read(0, 10).await, (0, Extent::Whole, vec![50]));
    }

    #[tokio::test]
    async fn page_that_is_too_long_is_read_again_with_fewer_objects() {
        assert_eq!(read(30, 256 << 10).await, (30, Extent::Whole, vec![50, 25, 12, 12, 12]));
    }

    #[tokio::test]
    async fn list_ends_at_its_bound_and_at_an_object_that_is_longer_than_a_page() {
        let (count, extent, asked) = read(200, 1 << 20).await;
        assert_eq!((extent, &asked[..5]), (Extent::Part, &[50, 25, 12, 6, 3][..]));
        assert!(count <= LIST_BYTES >> 20, "{count}");
        assert_eq!(read(2, PAGE_BYTES).await, (0, Extent::Part, vec![50, 25, 12, 6, 3, 1]));
    }

    fn pod(name: &str, rollout: Option<&Rollout>, patch: Value) -> Value {
        let annotations = rollout.map(|rollout| json!({"rollhook.dev/revision": rollout.id.to_string()}));
        let base = json!({
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"containers": [{"name": "app", "image": "registry.example.com/api:v5"}]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        });
        merged(base, patch)
    }

    fn foreign(count: usize, annotation: usize) -> Vec<Value> {
        let patch = json!({"metadata": {"annotations": {"theirs": "x".repeat(annotation)}}});
        (0..count).map(|at| pod(&format!("a-{at}"), None, patch.clone())).collect()
    }

    /// The observation of revision 5 of the Deployment, of which so many pods are wanted and available, with these pods.
    async fn observed(wanted: usize, pods: Vec<Value>) -> (PodList, Observation) {
        let counts = json!({"spec": {"replicas": wanted}, "status": {"observedGeneration": 3, "replicas": wanted,
            "updatedReplicas": wanted, "readyReplicas": wanted, "availableReplicas": wanted}});
        let rollout = samples::rollout(5);
        let object = stamped(samples::deployment(counts), &rollout);
        let pods = server(pods).0.pods(&rollout, &object).await.unwrap();
        let seen = observation::of(&rollout, &object, &pods, jiff::Timestamp::UNIX_EPOCH);
        (pods, seen)
    }

    fn is_complete(seen: &Observation) -> bool {
        matches!(seen.phase, Phase::Complete { .. })
    }

    #[tokio::test]
    async fn own_pods_are_kept_among_those_of_strangers() {
        let own: Vec<Value> = (0..3).map(|at| pod(&format!("z-{at}"), Some(&samples::rollout(5)), json!({}))).collect();
        let (list, seen) = observed(3, [foreign(1000, 10), own].concat()).await;
        assert_eq!((list.kept.len(), list.is_part), (KEPT, false));
        assert!(is_complete(&seen), "{seen:?}");
        assert_eq!(seen.message, "3 of 3 new pods are available");
    }

    #[tokio::test]
    async fn pods_that_were_not_read_are_no_success() {
        let own: Vec<Value> = (0..3).map(|at| pod(&format!("z-{at}"), Some(&samples::rollout(5)), json!({}))).collect();
        let (list, seen) = observed(3, [foreign(400, 256 << 10), own].concat()).await;
        assert!(list.is_part);
        assert!(list.kept.iter().all(|pod| pod.metadata.annotations.is_none()), "no annotation of others is kept");
        assert!(!is_complete(&seen), "{seen:?}");
        let expected = "0 of 3 new pods are ready; not all pods were read: too many, or too large ones, match the selector of \
                        Deployment api";
        assert_eq!((seen.message.as_str(), seen.down_for), (expected, None));
    }

    #[tokio::test]
    async fn more_pods_than_are_kept_are_counted_and_troubled_ones_are_kept() {
        let rollout = samples::rollout(5);
        let crashed = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}], "containerStatuses": [
            {"name": "app", "image": "", "imageID": "", "ready": false, "restartCount": 3,
             "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}});
        let mut own: Vec<Value> = (0..800).map(|at| pod(&format!("z-{at}"), Some(&rollout), json!({}))).collect();
        let (list, seen) = observed(800, own.clone()).await;
        assert_eq!((list.kept.len(), list.counted.ready), (KEPT, 800 - KEPT));
        assert!(is_complete(&seen), "{seen:?}");
        own[700] = pod("z-700", Some(&rollout), crashed);
        let (_, seen) = observed(800, own).await;
        assert!(!is_complete(&seen), "{seen:?}");
        assert_eq!((seen.instances.unwrap().ready, seen.restarts), (799, 3));
        assert!(seen.failure.unwrap().message.contains("z-700"));
    }

    #[tokio::test]
    async fn pods_beyond_those_that_are_read_are_ready_by_the_counts_of_their_workload() {
        let rollout = samples::rollout(5);
        let large = json!({"metadata": {"annotations": {"theirs": "x".repeat(100 << 10)}}});
        let mut own: Vec<Value> = (0..900).map(|at| pod(&format!("z-{at}"), Some(&rollout), large.clone())).collect();
        let (list, seen) = observed(900, own.clone()).await;
        assert!(list.is_part && is_complete(&seen), "{seen:?}");
        assert_eq!(seen.instances.unwrap().ready, 900);
        assert!(seen.message.ends_with("the others are ready by the counts of Deployment api"), "{}", seen.message);
        own[0]["status"]["conditions"][0]["status"] = json!("False");
        let (_, seen) = observed(900, own).await;
        assert!(!is_complete(&seen), "one that was read is not ready: {seen:?}");
    }

    #[tokio::test]
    async fn newest_revisions_are_kept_and_large_ones_are_not() {
        let object = samples::deployment(json!({}));
        let owner = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "api", "controller": true, "uid": samples::UID}]);
        let set = |number: usize, size: usize| {
            json!({"metadata": {"name": "api", "ownerReferences": owner,
                                "annotations": {"deployment.kubernetes.io/revision": number.to_string()}},
                   "spec": {"template": {"spec": {"containers": [{"name": "app", "args": ["x".repeat(size)]}]}}}})
        };
        let stranger = json!({"metadata": {"name": "a"}, "spec": {"template": {}}});
        let sets = [vec![stranger; 300], (0..70).map(|at| set(at, 10)).collect(), vec![set(99, 1 << 20)]].concat();
        let kept = server(sets).0.retained("shop-test", &object).await.unwrap();
        assert_eq!(kept.len(), 50);
        let numbers: Vec<i64> = kept.iter().map(Retained::number).collect();
        assert_eq!(numbers, (20..70).rev().collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn newest_events_are_kept() {
        let event = |second: usize| {
            let at = jiff::Timestamp::from_second(1_767_225_600 + i64::try_from(second).unwrap()).unwrap();
            json!({"metadata": {"name": "e"}, "involvedObject": {}, "reason": "Failed", "message": "x".repeat(20_000),
                   "lastTimestamp": at.to_string()})
        };
        let kept = server((0..600).map(event).collect()).0.events("shop-test", "7").await;
        assert_eq!(kept.len(), 200);
        let oldest = kept[0].last_timestamp.as_ref().unwrap().0.as_second() - 1_767_225_600;
        assert_eq!((oldest, kept[0].message.as_ref().unwrap().len()), (400, 1000));
    }
}
