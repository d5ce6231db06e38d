//! `RollhookApp`s that rollhook did not make: nothing is deployed by them, and their status says so.

use std::time::Duration;

use kube::{
    api::{ObjectMeta, Patch},
    runtime::watcher::Event,
};
use rollhook_core::app::AppUid;
use serde_json::json;
use tokio::sync::mpsc;

use super::{
    api::ApiServer,
    crd::{AppObject, UID_LABEL},
    error::classify,
};
use crate::{bounded, client::patch_parameters};

/// The state that such an object shows.
const STATE: &str = "NotRegistered";
/// The field of the status that says why.
pub(crate) const MESSAGE: &str = "message";
/// The most objects that wait for their status. One that finds no room is seen again by the next list.
const WAITING: usize = 64;
/// The pause between two writes.
const PAUSE: Duration = Duration::from_millis(200);

/// Returns why the object is no app, if rollhook did not make it: a registration has the app's uid, in its spec and as its
/// label.
pub(crate) fn why_no_app(object: &AppObject) -> Option<String> {
    let metadata = &object.metadata;
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    let (namespace, name) = (part(&metadata.namespace), part(&metadata.name));
    let Some(uid) = object.spec.0.get("uid") else {
        return Some(format!(
            "the RollhookApp {name} in {namespace} was not made by rollhook, which deploys nothing by it: delete it (kubectl \
             delete rollhookapp {name} --namespace {namespace}), and register the app with rollhook app create {name} \
             --project PROJECT --environment ENVIRONMENT"
        ));
    };
    if label(object).is_some_and(|label| uid == label) {
        return None;
    }
    Some(format!(
        "the RollhookApp {name} in {namespace} has the spec.uid {uid} and the label {UID_LABEL} {:?}, so that rollhook \
         deploys nothing by it: set the label to {uid}, or delete it (kubectl delete rollhookapp \
         {name} --namespace {namespace})",
        label(object).unwrap_or_default()
    ))
}

/// The uid that the object claims: its label, its spec and its own name agree on it.
pub(crate) fn uid(object: &AppObject) -> Option<AppUid> {
    let (namespace, name) = (&object.metadata.namespace, &object.metadata.name);
    let is_own = object.spec.0.get("id") == Some(&json!({"namespace": namespace, "name": name}));
    label(object).filter(|_| is_own && why_no_app(object).is_none())?.parse().ok()
}

fn label(object: &AppObject) -> Option<&str> {
    object.metadata.labels.as_ref()?.get(UID_LABEL).map(String::as_str)
}

/// The reason why the object is no app, as its status shows it.
pub(crate) fn message(object: &AppObject) -> Option<&str> {
    object.status.as_ref()?.get(MESSAGE)?.as_str()
}

/// Whether the object is no app by itself, and its status says so already.
pub(crate) fn is_told(object: &AppObject) -> bool {
    let told = message(object);
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
            self.queue(object.metadata.clone(), why);
        }
    }

    /// Queues an object that is no app.
    pub(crate) fn queue(&self, metadata: ObjectMeta, why: String) {
        // Another list shows it again.
        let _ = self.0.try_send((metadata, why));
    }
}

async fn mark(api: &ApiServer, metadata: &ObjectMeta, why: &str) {
    let (Some(namespace), Some(name)) = (&metadata.namespace, &metadata.name) else { return };
    let patch = json!({"metadata": {"uid": metadata.uid}, "status": {"state": STATE, MESSAGE: why}});
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
        let uid_text = AppUid::from_bits(7).to_string();
        made.metadata.labels = Some([(UID_LABEL.to_owned(), uid_text.clone())].into());
        assert!(is_told(&made) && uid(&made).is_none(), "a label alone");
        made.spec.0.insert("uid".to_owned(), json!(uid_text));
        assert!(why_no_app(&made).is_none() && !is_told(&made));
        assert_eq!(uid(&made), None, "its name is no part of it");
        made.spec.0.insert("id".to_owned(), json!({"namespace": "shop-test", "name": "api"}));
        assert_eq!(uid(&made), Some(AppUid::from_bits(7)));
        made.spec.0.insert("uid".to_owned(), json!(AppUid::from_bits(8)));
        assert!(why_no_app(&made).unwrap().contains("spec.uid") && uid(&made).is_none());
        made.metadata.labels = None;
        assert!(why_no_app(&made).is_some() && uid(&made).is_none());
    }
}
