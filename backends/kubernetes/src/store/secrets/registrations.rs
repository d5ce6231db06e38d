//! What tokens need to know of apps.

use std::time::Duration;

use async_trait::async_trait;
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use rollhook_core::{
    Error, Result,
    app::{AppId, AppUid},
    time::Timestamp,
};
use serde_json::json;

use super::super::{
    KubernetesStore, calls,
    crd::{AppObject, UID_LABEL},
    error::classify,
};
use crate::{error::is_not_found, rules::object::MANAGER};

/// The annotation of an `App` that names the version of its Secret; none while its webhook is closed.
pub(crate) const ANNOUNCED: &str = "rollhook.dev/webhook";

/// How long to wait for what the watch lists first.
const SYNC: Duration = Duration::from_secs(5);

/// An app, as far as its token is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Registered {
    pub(crate) id: AppId,
    pub(crate) uid: AppUid,
    /// Kubernetes' own uid of the `App`.
    pub(crate) object: String,
    /// What was announced last: the version of the Secret.
    pub(crate) webhook: Option<String>,
    pub(crate) created_at: Timestamp,
}

/// Where apps are found.
#[async_trait]
pub(crate) trait Registrations: Send + Sync {
    /// The app of this name, as the watch has it; costs no call.
    async fn known(&self, id: &AppId) -> Result<Option<Registered>>;

    /// The app of this name, by one call.
    async fn look_up(&self, id: &AppId) -> Result<Option<Registered>>;

    /// The app of this uid, read now.
    async fn read(&self, uid: AppUid) -> Result<Option<Registered>>;

    /// All apps, read now.
    async fn all(&self) -> Result<Vec<Registered>>;

    /// Tells every replica that the app has another token, or none; `NotFound("app")` where it is gone.
    async fn announce(&self, app: &Registered, webhook: Option<&str>) -> Result<()>;
}

impl Registered {
    /// None for a copy of a registration: an environment that was cloned, Secrets and all, opens nothing.
    fn of(object: &AppObject) -> Option<Self> {
        if !object.is_original() {
            return None;
        }
        let id = AppId { namespace: object.namespace()?.parse().ok()?, name: object.name_any().parse().ok()? };
        let created_at = object.spec.created_at.parse::<jiff::Timestamp>().unwrap_or_default();
        Some(Self {
            id,
            uid: object.spec.uid.parse().ok()?,
            object: object.metadata.uid.clone().unwrap_or_default(),
            webhook: object.annotations().get(ANNOUNCED).cloned(),
            created_at: Timestamp::from_millis(created_at.as_millisecond()),
        })
    }
}

#[async_trait]
impl Registrations for KubernetesStore {
    async fn known(&self, id: &AppId) -> Result<Option<Registered>> {
        if !self.mirror.is_synced() {
            tokio::time::timeout(SYNC, self.mirror.synced()).await.map_err(|error| {
                Error::unavailable("the apps could not be read from the cluster since this process began", error)
            })?;
        }
        Ok(self.mirror.named(id).as_deref().and_then(Registered::of))
    }

    async fn look_up(&self, id: &AppId) -> Result<Option<Registered>> {
        let found = calls::get(&self.calls.apps(id.namespace.as_str()), id.name.as_str()).await?;
        let found = found.filter(|app: &AppObject| app.metadata.deletion_timestamp.is_none());
        let registered = found.as_ref().and_then(Registered::of);
        if let Some(app) = found {
            self.mirror.note_app(app);
        }
        Ok(registered)
    }

    async fn read(&self, uid: AppUid) -> Result<Option<Registered>> {
        if let Some(known) = self.mirror.app(uid).as_deref().and_then(Registered::of) {
            return Ok(self.look_up(&known.id).await?.filter(|app| app.uid == uid));
        }
        let found: Vec<AppObject> = calls::list(&self.calls.all_apps(), Some(&format!("{UID_LABEL}={uid}"))).await?;
        Ok(found.iter().filter_map(Registered::of).find(|app| app.uid == uid))
    }

    async fn all(&self) -> Result<Vec<Registered>> {
        let found: Vec<AppObject> = calls::list(&self.calls.all_apps(), None).await?;
        Ok(found.iter().filter_map(Registered::of).collect())
    }

    async fn announce(&self, app: &Registered, webhook: Option<&str>) -> Result<()> {
        // With the uid in it, the patch fits no other object of the name.
        let patch = json!({"metadata": {"uid": app.object, "annotations": {ANNOUNCED: webhook}}});
        let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let apps = self.calls.apps(app.id.namespace.as_str());
        match apps.patch(app.id.name.as_str(), &parameters, &Patch::Merge(patch)).await {
            Ok(announced) => {
                self.mirror.note_app(announced);
                Ok(())
            }
            Err(error) if is_not_found(&error) || crate::error::is_conflict(&error) => Err(Error::NotFound("app")),
            Err(error) => Err(classify(error)),
        }
    }
}
