//! The registrations, as far as tokens need them.

use std::time::Duration;

use kube::api::Patch;
use rollhook_core::{
    Error, Result,
    app::{AppId, AppUid, Namespace},
    error::Entity,
    time::Timestamp,
};
use serde_json::json;

use crate::{
    client::patch_parameters,
    error::{is_conflict, is_not_found},
    store::{
        KubernetesStore,
        app_record::{AppRecord, is_copy},
        configurations,
        crd::AppObject,
        error::classify,
        hand_made::why_no_app,
    },
};

/// The annotation of a `RollhookApp` that names the version of its Secret; absent while its webhook is closed.
pub(crate) const ANNOUNCED: &str = "rollhook.dev/webhook";

/// How long to wait for the first list of apps.
const FIRST_LIST: Duration = Duration::from_secs(5);

/// The part of an app that its token needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Registered {
    pub(crate) id: AppId,
    pub(crate) uid: AppUid,
    /// Kubernetes' own uid of the `RollhookApp`.
    pub(crate) object: String,
    /// The version of the Secret that was announced last.
    pub(crate) webhook: Option<String>,
    /// The bytes of its configurations, as they were announced last.
    pub(crate) configuration_bytes: u64,
    pub(crate) created_at: Timestamp,
}

impl Registered {
    pub(crate) fn of(record: &AppRecord) -> Self {
        let (app, metadata) = (&record.state.app, &record.metadata);
        Self {
            id: app.id.clone(),
            uid: app.uid,
            object: metadata.uid.clone().unwrap_or_default(),
            webhook: metadata.annotations.as_ref().and_then(|annotations| annotations.get(ANNOUNCED)).cloned(),
            configuration_bytes: configurations::announced(metadata),
            created_at: app.created_at,
        }
    }
}

impl KubernetesStore {
    /// Returns the app of this name, from the watch; costs no call.
    pub(super) async fn known(&self, id: &AppId) -> Result<Option<Registered>> {
        self.listed().await?;
        Ok(self.cache.named(id).as_deref().map(Registered::of))
    }

    /// Returns the apps of an environment, from the watch.
    pub(in crate::store) async fn known_of(&self, namespace: &Namespace) -> Result<Vec<Registered>> {
        self.listed().await?;
        let (records, _) = self.cache.pick(|record| record.state.app.id.namespace == *namespace);
        Ok(records.iter().map(|record| Registered::of(record)).collect())
    }

    async fn listed(&self) -> Result<()> {
        tokio::time::timeout(FIRST_LIST, self.cache.apps_listed()).await.map_err(|error| {
            Error::unavailable("the apps could not be read from the cluster since this process began", error)
        })
    }

    /// Returns the app of this name, by one call.
    pub(super) async fn look_up(&self, id: &AppId) -> Result<Option<Registered>> {
        let Some(object) = self.get_named(id).await?.0 else { return Ok(None) };
        // A copy of an app is answered like no app, in an environment that was cloned, Secrets and all; and so is what
        // rollhook did not make.
        if is_copy(&object) || why_no_app(&object).is_some() {
            return Ok(None);
        }
        match self.noted(object).await {
            Ok(record) => Ok(Some(Registered::of(&record))),
            // Another object holds its uid.
            Err(Error::Invalid { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the app of this uid, read now.
    pub(crate) async fn registered(&self, uid: AppUid) -> Result<Option<Registered>> {
        Ok(self.read_uid(uid).await?.as_deref().map(Registered::of))
    }

    /// Announces to every replica that the app has another token, or none.
    ///
    /// # Errors
    /// `NotFound` if the app is gone.
    pub(super) async fn announce(&self, app: &Registered, webhook: Option<&str>) -> Result<()> {
        // With the uid in it, the patch fits no other object of the name.
        let patch = json!({"metadata": {"uid": app.object, "annotations": {ANNOUNCED: webhook}}});
        let apps = self.api.within::<AppObject>(app.id.namespace.as_str());
        match apps.patch(app.id.name.as_str(), &patch_parameters(), &Patch::Merge(patch)).await {
            Ok(announced) => self.noted(announced).await.map(drop),
            Err(error) if is_not_found(&error) || is_conflict(&error) => Err(Error::NotFound(Entity::App)),
            Err(error) => Err(classify(error)),
        }
    }
}
