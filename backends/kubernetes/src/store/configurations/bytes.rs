//! The size of an app's configurations, announced on its `RollhookApp`: each replica's watch has that, so that the size of an
//! environment's costs no call.
//!
//! An index is read after its app, and its size written to the app only as it was read: of two announcements at the same time
//! one begins anew, and the last one has the last size. A size is announced before the Secret of a new configuration is created,
//! and after that of an old one was deleted, so that a process which ends in between leaves it too high, until the app's next change.

use kube::api::{ObjectMeta, Patch};
use rollhook_core::{Error, Result, error::Entity};
use serde_json::json;

use super::{ATTEMPTS, Registered};
use crate::{
    client::patch_parameters,
    error::{is_conflict, is_not_found},
    store::{KubernetesStore, api, crd::AppObject, error::classify},
};

/// The annotation of a `RollhookApp` with the bytes of its configurations; absent before the first.
const BYTES: &str = "rollhook.dev/configuration-bytes";

/// The announced bytes of the app with this metadata.
pub(crate) fn announced(app: &ObjectMeta) -> u64 {
    let text = app.annotations.as_ref().and_then(|annotations| annotations.get(BYTES));
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

impl KubernetesStore {
    /// Announces the bytes of the app's configurations.
    ///
    /// # Errors
    /// `NotFound` if the app is gone.
    pub(super) async fn announce_bytes(&self, app: &Registered) -> Result<()> {
        let (apps, name) = (self.api.within::<AppObject>(app.id.namespace.as_str()), app.id.name.as_str());
        for _ in 0..ATTEMPTS {
            let metadata = api::get_metadata(&apps, name).await?.ok_or(Error::NotFound(Entity::App))?;
            if metadata.uid.as_ref() != Some(&app.object) {
                return Err(Error::NotFound(Entity::App));
            }
            let bytes = self.configurations.index(app).await?.bytes().to_string();
            let patch = json!({"metadata": {
                "uid": app.object, "resourceVersion": metadata.resource_version, "annotations": {BYTES: bytes},
            }});
            match apps.patch(name, &patch_parameters(), &Patch::Merge(patch)).await {
                Ok(announced) => return self.noted(announced).await.map(drop),
                Err(error) if is_conflict(&error) => {}
                Err(error) if is_not_found(&error) => return Err(Error::NotFound(Entity::App)),
                Err(error) => return Err(classify(error)),
            }
        }
        Err(Error::Conflict(Entity::Object))
    }
}
