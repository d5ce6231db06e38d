use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
};

use http::{Request, Response};
use kube::client::Body;
use rollhook_conformance::samples;
use rollhook_core::{ledger::AppState, ports::Version};
use serde_json::json;
use tokio::sync::mpsc;
use tower::service_fn;

use super::*;
use crate::store::{
    StoreClock,
    app_record::{AppRecord, Kept},
    crd::{AppObject, UID_LABEL},
};

#[tokio::test]
async fn list_that_does_not_come_is_asked_for_again() {
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
            let list = json!({
                "apiVersion": "rollhook.dev/v1", "kind": "RollhookAppList", "metadata": {"resourceVersion": "7"}, "items": [app()],
            });
            Ok::<_, std::convert::Infallible>(Response::new(Body::from(list.to_string().into_bytes())))
        }
    });
    let api = ApiServer::new(kube::Client::new(service, "rollhook"), "rollhook");
    let (cache, (tell, mut hints)) = (Arc::new(Cache::new(StoreClock::system())), mpsc::unbounded_channel());
    let (seen, deadline) = (cache.clone(), Duration::from_millis(100));
    let task = tokio::spawn(async move {
        let show = |event| seen.app_event(event).into_iter().for_each(|change| tell.send(change).unwrap());
        follow(api.all(), deadline, seen.relists(), show).await;
    });
    let uid = samples::app("shop", "test", "api").uid;
    assert_eq!(hints.recv().await.unwrap(), AppChange::App(uid, Version(5)));
    assert_eq!(hints.recv().await.unwrap(), AppChange::Any);
    assert!(cache.app(uid).is_some());
    assert_eq!(lists.load(Ordering::SeqCst), 2);
    while asked.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    assert!(asked.lock().unwrap()[0].contains("timeoutSeconds=10"), "{asked:?}");
    task.abort();
}

fn app() -> AppObject {
    let state = AppState::new(samples::app("shop", "test", "api"));
    let metadata = kube::api::ObjectMeta {
        name: Some("api".to_owned()),
        namespace: Some("shop-test".to_owned()),
        resource_version: Some("5".to_owned()),
        labels: Some([(UID_LABEL.to_owned(), state.app.uid.to_string())].into()),
        ..Default::default()
    };
    AppRecord::new(metadata, state, Kept::default()).object().unwrap()
}
