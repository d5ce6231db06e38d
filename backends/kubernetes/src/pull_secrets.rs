//! The pull secrets of a namespace: the logins with which its pods get their images.

use std::fmt;

use async_trait::async_trait;
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, StatefulSet},
    batch::v1::CronJob,
    core::v1::{Pod, Secret},
};
use kube::{api::ListParams, core::NamespaceResourceScope};
use rollhook_core::{Error, Result, app::Namespace, image::ImageRef};
use rollhook_registry_logins::{Logins, PlatformLogins};

use crate::{
    bounded,
    client::Cluster,
    rules::pull_secrets::{ListedPuller, PullSecretNames},
};

/// Reads the Secrets that workloads and pods of a namespace name as theirs for the pulls of images (`imagePullSecrets`), by
/// name: those of a service account stand in its pods. It needs no permission beyond the driver's, and finds nothing
/// where one is missing.
#[derive(Clone)]
pub struct PullSecrets {
    cluster: Cluster,
}

impl fmt::Debug for PullSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PullSecrets(…)")
    }
}

impl PullSecrets {
    pub(crate) fn new(cluster: Cluster) -> Self {
        Self { cluster }
    }

    async fn read(&self, namespace: &str, image: &ImageRef) -> Result<Vec<Logins>> {
        let mut names = PullSecretNames::new(image);
        self.list::<Deployment>(namespace, &mut names).await?;
        self.list::<StatefulSet>(namespace, &mut names).await?;
        self.list::<DaemonSet>(namespace, &mut names).await?;
        self.list::<CronJob>(namespace, &mut names).await?;
        if !names.has_own() {
            self.list::<Pod>(namespace, &mut names).await?;
        }
        let mut logins = Vec::new();
        for name in names.into_names() {
            let secret = self.cluster.find::<Secret>(namespace, &name).await?;
            logins.extend(secret.as_deref().and_then(logins_of));
        }
        Ok(logins)
    }

    async fn list<K>(&self, namespace: &str, names: &mut PullSecretNames) -> Result<()>
    where
        K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        let add = |page: Vec<ListedPuller>| names.add(page);
        self.cluster.list::<K, _>(namespace, ListParams::default(), add).await.map(drop)
    }
}

#[async_trait]
impl PlatformLogins for PullSecrets {
    async fn logins(&self, environment: &Namespace, image: &ImageRef) -> Result<Vec<Logins>> {
        match bounded(self.read(environment.as_str(), image)).await {
            Err(error @ (Error::Denied { .. } | Error::NotFound(_) | Error::Invalid { .. })) => {
                tracing::debug!(%environment, error = %error.chain(), "reading the pull secrets of a namespace failed");
                Ok(Vec::new())
            }
            read => read,
        }
    }
}

/// Returns the logins of a Secret, of either form that pods may name.
fn logins_of(secret: &Secret) -> Option<Logins> {
    let data = secret.data.as_ref()?;
    let text = |key: &str| data.get(key).and_then(|bytes| std::str::from_utf8(&bytes.0).ok());
    if let Some(config) = text(".dockerconfigjson") {
        return Some(Logins::without_programs(config));
    }
    // The older form is what the other one has in `auths`.
    text(".dockercfg").map(|auths| Logins::without_programs(&format!(r#"{{"auths": {auths}}}"#)))
}
