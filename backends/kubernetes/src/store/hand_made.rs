//! `RollhookApp`s that rollhook did not make: nothing is deployed by them, and their status says so.

use std::time::Duration;

use kube::{
    api::{ObjectMeta, Patch},
    runtime::watcher::Event,
};
use serde_json::json;
use tokio::sync::mpsc;

use super::{api::ApiServer, crd::AppObject, error::classify};
use crate::{bounded, client::patch_parameters};

/// The state that such an object shows.
const STATE: &str = "NotRegistered";
/// The most objects that wait for their status. One that finds no room is seen again by the next list.
const WAITING: usize = 64;
/// The pause between two writes.
const PAUSE: Duration = Duration::from_millis(200);

/// Returns why the object is no app, if rollhook did not make it: a registration has the app's uid.
pub(crate) fn why_no_app(object: &AppObject) -> Option<String> {
    if object.spec.0.contains_key("uid") {
        return None;
    }
    let metadata = &object.metadata;
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    let (namespace, name) = (part(&metadata.namespace), part(&metadata.name));
    Some(format!(
        "the RollhookApp {name} in {namespace} was not made by rollhook, which deploys nothing by it: delete it (kubectl \
         delete rollhookapp {name} --namespace {namespace}), and register the app with rollhook app create {name} --project \
         PROJECT --environment ENVIRONMENT"
    ))
}

/// Whether the object is such a one, and its status says so already.
pub(crate) fn is_told(object: &AppObject) -> bool {
    let told = object.status.as_ref().and_then(|status| status.get("message")).and_then(|message| message.as_str());
    told.is_some() && told == why_no_app(object).as_deref()
}

/// The objects whose status is to be written.
pub(crate) struct HandMade(mpsc::Sender<(ObjectMeta, String)>);

impl HandMade {
    /// Returns the queue, and the task that writes, which ends with the queue.
    pub(crate) fn new(api: ApiServer) -> (Self, impl Future<Output = ()> + Send) {
        let (sender, mut waiting) = mpsc::channel::<(ObjectMeta, String)>(WAITING);
        let task = async move {
            while let Some((metadata, why)) = waiting.recv().await {
                mark(&api, &metadata, &why).await;
                tokio::time::sleep(PAUSE).await;
            }
        };
        (Self(sender), task)
    }

    /// Queues the object of the event, if rollhook did not make it and its status does not say so.
    pub(crate) fn note(&self, event: &Event<AppObject>) {
        let (Event::Apply(object) | Event::InitApply(object)) = event else { return };
        if let Some(why) = why_no_app(object).filter(|_| !is_told(object)) {
            // Another list shows it again.
            let _ = self.0.try_send((object.metadata.clone(), why));
        }
    }
}

async fn mark(api: &ApiServer, metadata: &ObjectMeta, why: &str) {
    let (Some(namespace), Some(name)) = (&metadata.namespace, &metadata.name) else { return };
    let patch = json!({"metadata": {"uid": metadata.uid}, "status": {"state": STATE, "message": why}});
    let written = bounded(async {
        let api = api.within::<AppObject>(namespace);
        api.patch_metadata(name, &patch_parameters(), &Patch::Merge(&patch)).await.map_err(classify)
    });
    if let Err(error) = written.await {
        tracing::debug!(namespace, name, error = %error.chain(), "writing the status of a hand-made RollhookApp failed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: serde_json::Value) -> AppObject {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn object_without_the_uid_of_an_app_is_hand_made_until_its_status_says_so() {
        let mut made = object(json!({
            "apiVersion": "rollhook.dev/v1", "kind": "RollhookApp",
            "metadata": {"name": "api", "namespace": "shop-test"}, "spec": {},
        }));
        let why = why_no_app(&made).unwrap();
        assert!(why.contains("rollhook app create api") && !is_told(&made), "{why}");
        made.status = Some(serde_json::from_value(json!({"state": STATE, "message": why})).unwrap());
        assert!(is_told(&made));
        made.spec.0.insert("uid".to_owned(), json!("1"));
        assert!(why_no_app(&made).is_none() && !is_told(&made));
    }
}
