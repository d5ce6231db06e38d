//! The Secrets that a server in the cluster is started with.

use std::collections::BTreeMap;

use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::api::ObjectMeta;
use rollhook_core::{Error, Result};

use crate::{
    bounded,
    client::{Cluster, inferred},
    error::{classify, is_already_exists},
};

/// The annotation of the run that created a Secret.
const RUN: &str = "rollhook.dev/made-by-run";

/// The Secrets of one namespace, of which some are created and none is changed.
pub struct InstallationSecrets {
    cluster: Cluster,
    namespace: String,
}

/// A Secret that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundSecret {
    /// The run that created it, if that had a name.
    pub run: Option<String>,
}

impl InstallationSecrets {
    /// Connects as `kubectl` would, or from inside a pod with its service account. Without a namespace it is the one of
    /// the connection.
    ///
    /// # Errors
    /// `Invalid` if there is no configuration, or one that cannot be used.
    pub async fn connect(namespace: Option<&str>) -> Result<Self> {
        let config = inferred().await?;
        let namespace = namespace.unwrap_or(&config.default_namespace).to_owned();
        Ok(Self { cluster: Cluster::with(config)?, namespace })
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Returns the Secret of this name, if there is one.
    ///
    /// # Errors
    /// If the cluster does not answer, or refuses the read.
    pub async fn find(&self, name: &str) -> Result<Option<FoundSecret>> {
        let secrets = self.cluster.api::<Secret>(&self.namespace);
        let found = bounded(async { secrets.get_metadata_opt(name).await.map_err(classify) }).await?;
        Ok(found.map(|found| FoundSecret { run: found.metadata.annotations.and_then(|mut all| all.remove(RUN)) }))
    }

    /// Creates a Secret of these files, which keeps the name of the run that creates it. Returns `false`, and changes
    /// nothing, if there is one of this name.
    ///
    /// # Errors
    /// If the cluster does not answer, or refuses the Secret.
    pub async fn create(&self, name: &str, files: BTreeMap<String, Vec<u8>>, run: Option<&str>) -> Result<bool> {
        let labels = [("app.kubernetes.io/name", "rollhook"), ("app.kubernetes.io/managed-by", "rollhook")];
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
                annotations: run.map(|run| [(RUN.to_owned(), run.to_owned())].into()),
                ..ObjectMeta::default()
            },
            data: Some(files.into_iter().map(|(file, content)| (file, ByteString(content))).collect()),
            type_: Some("Opaque".to_owned()),
            ..Secret::default()
        };
        let created = bounded(async { Ok(self.cluster.create(&self.namespace, &secret).await) }).await?;
        match created {
            Ok(_) => Ok(true),
            Err(error) if is_already_exists(&error) => Ok(false),
            Err(error) => Err(self.refused(name, error)),
        }
    }

    fn refused(&self, name: &str, error: kube::Error) -> Error {
        match crate::error::refusal(&error) {
            Some(what) => Error::Invalid {
                what: format!("the cluster refuses the Secret {name} in {}: {what}", self.namespace),
                cause: None,
            },
            None => classify(error),
        }
    }
}
