//! The index of an app's configurations, in a Secret of its own: their sizes, times and keys, and no value.
//!
//! Secrets are never listed, as no role can narrow that; so the index says which there are. A configuration is noted before its
//! Secret is created, and stays so until that is deleted, whatever crashed in between.

use std::collections::BTreeMap;

use k8s_openapi::{ByteString, api::core::v1::Secret};
use rollhook_core::{Error, Result, configuration::ConfigurationId, ports::StoredConfiguration, time::Timestamp};
use serde::{Deserialize, Serialize};

use crate::store::secrets::object::corrupt;

const DATA: &str = "index";

/// The configurations of an app.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Index(pub(crate) BTreeMap<ConfigurationId, Entry>);

/// A configuration of the index.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// The size of the sealed form.
    pub(crate) bytes: u64,
    pub(crate) created_at: Timestamp,
    /// The key that it is sealed with, or was before it was sealed anew.
    pub(crate) key: String,
}

impl Index {
    /// Reads the index in its Secret.
    pub(crate) fn read(object: &Secret) -> Result<Self> {
        let data = object.data.as_ref().and_then(|data| data.get(DATA));
        let index = data.and_then(|data| serde_json::from_slice(&data.0).ok());
        index.ok_or_else(|| corrupt(object, "its index of configurations is damaged"))
    }

    /// Writes the index into its Secret.
    pub(crate) fn fill(&self, object: &mut Secret) -> Result<()> {
        let json = serde_json::to_vec(self).map_err(|error| Error::Invalid {
            what: "an index of configurations cannot be stored".to_owned(),
            cause: Some(error.into()),
        })?;
        object.data.get_or_insert_default().insert(DATA.to_owned(), ByteString(json));
        Ok(())
    }

    /// The size of all configurations of the app.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.values().map(|entry| entry.bytes).sum()
    }

    /// The configurations as a store lists them.
    pub(crate) fn listed(self) -> Vec<StoredConfiguration> {
        let listed = self.0.into_iter().map(|(id, entry)| {
            let Entry { bytes, created_at, .. } = entry;
            StoredConfiguration { id, bytes, created_at }
        });
        listed.collect()
    }
}
