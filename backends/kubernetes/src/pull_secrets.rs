//! The pull secrets of a namespace: the logins with which its pods get their images.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, StatefulSet},
    batch::v1::CronJob,
    core::v1::{Pod, Secret},
};
use kube::{Api, api::ListParams, core::NamespaceResourceScope};
use rollhook_core::{Error, Result, app::Namespace, image::ImageRef};
use rollhook_registry_logins::{Logins, PlatformLogins};
use tokio::{sync, time::Instant};

use crate::{
    client::{Cluster, parsed},
    error::classify,
    for_app, lock,
    rules::pull_secrets::{ListedPuller, Pullers},
};

/// The time for which the workloads of a namespace are kept.
const KEPT: Duration = Duration::from_secs(60);
/// The time after which they are read anew where they name no Secret for an image.
const FRESH: Duration = Duration::from_secs(2);
/// The most Secrets that are read for an image.
const SECRETS: usize = 16;
/// The most workloads of one repository whose pods are read for the Secrets of their service account.
const ACCOUNTS: usize = 2;

/// Reads the Secrets that workloads of a namespace, or their pods, name as theirs for the pulls of images
/// (`imagePullSecrets`), by name: those of a service account stand in its pods. It needs no permission beyond the
/// driver's.
pub struct PullSecrets {
    cluster: Cluster,
    known: Mutex<BTreeMap<String, Arc<Slot>>>,
}

/// The workloads of a namespace, which one caller at a time reads.
type Slot = sync::Mutex<Option<(Instant, Arc<Pullers>)>>;

impl fmt::Debug for PullSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PullSecrets(…)")
    }
}

impl PullSecrets {
    pub(crate) fn new(cluster: Cluster) -> Self {
        Self { cluster, known: Mutex::default() }
    }

    async fn read(&self, namespace: &str, image: &ImageRef) -> Result<Vec<Logins>> {
        let (pullers, is_fresh) = self.pullers(namespace, KEPT).await?;
        let is_known = pullers.of(image).next().is_some();
        let found = if is_known || is_fresh { self.logins(namespace, &pullers, image).await? } else { Vec::new() };
        if is_fresh || !found.is_empty() {
            return Ok(found);
        }
        // The workload may have come, or may have got its Secrets, since.
        let (pullers, _) = self.pullers(namespace, FRESH).await?;
        self.logins(namespace, &pullers, image).await
    }

    async fn logins(&self, namespace: &str, pullers: &Pullers, image: &ImageRef) -> Result<Vec<Logins>> {
        let mut own: Vec<String> = pullers.of(image).flat_map(|puller| puller.secrets.clone()).collect();
        if own.is_empty() {
            for selector in pullers.of(image).filter_map(|puller| puller.selector.as_ref()).take(ACCOUNTS) {
                let one = ListParams::default().labels_from(&parsed(selector)?).limit(1);
                let pods = Api::<Pod>::namespaced(self.cluster.lists().clone(), namespace).list(&one).await;
                let secrets = pods.map_err(classify)?.items.into_iter().filter_map(|pod| pod.spec?.image_pull_secrets);
                own.extend(secrets.flatten().map(|secret| secret.name));
            }
        }
        own.sort();
        own.dedup();
        let logins = self.logins_of(namespace, &own, image).await?;
        if !logins.is_empty() {
            return Ok(logins);
        }
        let others: Vec<String> = pullers.secrets().into_iter().filter(|name| !own.contains(name)).collect();
        self.logins_of(namespace, &others, image).await
    }

    /// Returns the logins of Secrets that have one for the image.
    async fn logins_of(&self, namespace: &str, names: &[String], image: &ImageRef) -> Result<Vec<Logins>> {
        let (mut found, mut unread) = (Vec::new(), None);
        for name in names.iter().take(SECRETS) {
            let secret = match self.cluster.find::<Secret>(namespace, name).await {
                Ok(secret) => secret,
                Err(error @ (Error::Invalid { .. } | Error::Denied { .. })) => {
                    tracing::debug!(namespace, name, error = %error.chain(), "reading a pull secret failed");
                    unread.get_or_insert(error);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let Some(logins) = secret.as_deref().and_then(logins_of) else { continue };
            if matches!(logins.login(image).await, Ok(Some(_))) {
                found.push(logins);
            }
        }
        unread.filter(|_| found.is_empty()).map_or(Ok(found), Err)
    }

    /// Returns the workloads of a namespace as they were at most so long ago, and whether that is a moment.
    async fn pullers(&self, namespace: &str, age: Duration) -> Result<(Arc<Pullers>, bool)> {
        let slot = self.slot(namespace);
        let mut slot = slot.lock().await;
        if let Some((at, known)) = slot.as_ref().filter(|(at, _)| at.elapsed() < age) {
            return Ok((Arc::clone(known), at.elapsed() < FRESH));
        }
        let mut pullers = Pullers::default();
        self.list::<Deployment>(namespace, &mut pullers).await?;
        self.list::<StatefulSet>(namespace, &mut pullers).await?;
        self.list::<DaemonSet>(namespace, &mut pullers).await?;
        self.list::<CronJob>(namespace, &mut pullers).await?;
        let pullers = Arc::new(pullers);
        *slot = Some((Instant::now(), Arc::clone(&pullers)));
        Ok((pullers, true))
    }

    fn slot(&self, namespace: &str) -> Arc<Slot> {
        let mut known = lock(&self.known);
        if !known.contains_key(namespace) {
            let is_kept = |slot: &Slot| {
                slot.try_lock().is_ok_and(|slot| slot.as_ref().is_some_and(|(at, _)| at.elapsed() < KEPT))
            };
            known.retain(|_, slot| Arc::strong_count(slot) > 1 || is_kept(slot));
        }
        Arc::clone(known.entry(namespace.to_owned()).or_default())
    }

    async fn list<K>(&self, namespace: &str, pullers: &mut Pullers) -> Result<()>
    where
        K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        let add = |page: Vec<ListedPuller>| pullers.add(page);
        self.cluster.list::<K, _>(namespace, ListParams::default(), add).await.map(drop)
    }
}

#[async_trait]
impl PlatformLogins for PullSecrets {
    async fn logins(&self, environment: &Namespace, image: &ImageRef) -> Result<Vec<Logins>> {
        for_app(self.read(environment.as_str(), image)).await
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

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::*;

    #[tokio::test]
    async fn both_forms_of_a_secret_have_logins_and_name_no_programs() {
        let secret = |key: &str, text: &str| Secret {
            data: Some([(key.to_owned(), ByteString(text.as_bytes().to_vec()))].into()),
            ..Secret::default()
        };
        let entry = r#"{"registry.example.com": {"username": "ada", "password": "p"}}"#;
        let image: ImageRef = "registry.example.com/shop/api:v1".parse().unwrap();
        let new = format!(r#"{{"auths": {entry}, "credsStore": "evil"}}"#);
        for secret in [secret(".dockerconfigjson", &new), secret(".dockercfg", entry)] {
            assert!(matches!(logins_of(&secret).unwrap().login(&image).await, Ok(Some(_))));
        }
        let splice = format!(r#"{entry}, "credHelpers": {{"registry.example.com": "evil"}}"#);
        assert!(matches!(logins_of(&secret(".dockercfg", &splice)).unwrap().login(&image).await, Ok(Some(_))));
        assert!(logins_of(&secret("config.json", &new)).is_none() && logins_of(&Secret::default()).is_none());
    }
}
