use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
};

use http::{Request, Response};
use kube::client::Body;
use serde_json::json;
use tower::service_fn;

use super::*;
use crate::store::StoreClock;

#[tokio::test]
async fn a_list_that_does_not_come_is_asked_for_again() {
    let (lists, asked) = (Arc::<AtomicUsize>::default(), Arc::<Mutex<Vec<String>>>::default());
    let (counted, noted) = (lists.clone(), asked.clone());
    let service = service_fn(move |request: Request<Body>| {
        let (counted, noted) = (counted.clone(), noted.clone());
        async move {
            let watches = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            if watches {
                noted.lock().unwrap().push(request.uri().query().unwrap_or_default().to_owned());
            }
            // As behind a connection that died: the first answer never comes, nor does anything on a watch.
            if watches || counted.fetch_add(1, Ordering::SeqCst) == 0 {
                std::future::pending::<()>().await;
            }
            let lease = json!({"metadata": {"name": "one", "resourceVersion": "5"}});
            let list = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "LeaseList",
                "metadata": {"resourceVersion": "7"}, "items": [lease],
            });
            Ok::<_, std::convert::Infallible>(Response::new(Body::from(list.to_string().into_bytes())))
        }
    });
    let calls = Calls::new(kube::Client::new(service, "rollhook"), "rollhook");
    let mirror = Arc::new(Mirror::new(StoreClock::system()));
    let (wakes, mut woken) = broadcast::channel(8);
    let feed = Feed { mirror: mirror.clone(), wakes, list: Duration::from_millis(100) };
    let task = tokio::spawn(run::<Lease>(calls.leases(), watcher::Config::default().timeout(WATCH), feed));
    assert_eq!(woken.recv().await.unwrap(), Wake::Any);
    assert!(mirror.lease("one").is_some());
    assert_eq!(lists.load(Ordering::SeqCst), 2);
    while asked.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    assert!(asked.lock().unwrap()[0].contains("timeoutSeconds=10"), "{asked:?}");
    task.abort();
}
