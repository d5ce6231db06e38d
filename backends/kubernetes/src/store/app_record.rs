//! An app as its `RollhookApp` object holds it.

use std::{collections::BTreeMap, sync::Arc};

use kube::api::ObjectMeta;
use rollhook_core::{
    Error, Result,
    app::AppId,
    deploy::{Deploy, Revision},
    ledger::{AppState, KeyUse, KeyWrite},
    ports::Version,
    request::{IdempotencyKey, KeyHeader},
    time::Timestamp,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{
    crd::{AppObject, AppSpec, Fields},
    hand_made,
};

/// An app's state, and what the store keeps with it until its deploys are archived.
#[derive(Clone, Debug)]
pub(crate) struct AppRecord {
    /// The object's metadata, without the API server's notes on who manages which field.
    pub(crate) metadata: ObjectMeta,
    pub(crate) version: Version,
    pub(crate) state: AppState,
    pub(crate) kept: Kept,
    /// The fields of spec and status that a newer version has added: they stay as they are.
    added: (Fields, Fields),
}

/// The part of a record that only the store knows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Kept {
    /// Ended deploys whose `AppDeploy`s may not tell their end yet.
    pub(crate) archiving: Vec<Arc<Deploy>>,
    /// The idempotency keys of deploys that are unfinished or archiving.
    pub(crate) keys: BTreeMap<Revision, StoredKey>,
    /// The namespace of the Lease of the replica that has the app's lease.
    pub(crate) lease_namespace: Option<String>,
}

/// An idempotency key and its use, in the form in which objects hold it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredKey {
    header: KeyHeader,
    key: String,
    /// SHA-256 of the request, in hexadecimal digits.
    request: String,
    pub(crate) expires_at: Timestamp,
}

/// The hash of an idempotency key: the same text in another header is another key.
pub(crate) type KeyHash = [u8; 16];

impl AppRecord {
    /// The record of an app that is not stored yet.
    pub(crate) fn new(metadata: ObjectMeta, state: AppState, kept: Kept) -> Self {
        Self { metadata, version: Version(0), state, kept, added: Default::default() }
    }

    /// Reads an object.
    pub(crate) fn read(object: AppObject) -> Result<Self> {
        if let Some(why) = hand_made::why_no_app(&object) {
            return Err(Error::invalid(why));
        }
        let (spec, mut status) = (object.spec.0, object.status.unwrap_or_default());
        // It was no app for a while.
        status.remove(hand_made::MESSAGE);
        let metadata = trimmed(object.metadata);
        let id = named(&metadata);
        let what = || format!("the app {id} cannot be read");
        let kept: Kept = value(Value::Object(status.clone()), what)?;
        status.insert("app".to_owned(), Value::Object(spec.clone()));
        let state: AppState = value(Value::Object(status.clone()), what)?;
        if state.app.id.to_string() != id {
            let what = format!("the app {id} is a copy of {}; delete it, and register the app", state.app.id);
            return Err(Error::Corrupt { what, cause: None });
        }
        let version = version(&metadata)?;
        let mut record = Self { metadata, version, state, kept, added: Default::default() };
        let (known_spec, known_status) = record.fields()?;
        let unknown = |fields: Fields, known: &Fields| -> Fields {
            let is_unknown = |name: &str, value: &Value| name != "app" && !value.is_null() && !known.contains_key(name);
            fields.into_iter().filter(|(name, value)| is_unknown(name, value)).collect()
        };
        record.added = (unknown(spec, &known_spec), unknown(status, &known_status));
        Ok(record)
    }

    /// The object of this record; valid for the version in its metadata.
    pub(crate) fn object(&self) -> Result<AppObject> {
        let (mut spec, mut status) = self.fields()?;
        spec.extend(self.added.0.clone());
        status.extend(self.added.1.clone());
        let mut object = AppObject::new("", AppSpec(spec));
        (object.metadata, object.status) = (self.metadata.clone(), Some(status));
        Ok(object)
    }

    /// The known fields of spec and status.
    fn fields(&self) -> Result<(Fields, Fields)> {
        let (mut status, kept) = (object(&self.state)?, object(&self.kept)?);
        let spec = match status.remove("app") {
            Some(Value::Object(spec)) => spec,
            _ => Fields::new(),
        };
        status.extend(kept);
        // For the columns that people see: a column shows one value of a list.
        let unfinished: Vec<String> = self.state.unfinished.iter().map(|deploy| deploy.revision.to_string()).collect();
        status.insert("unfinished_revisions".to_owned(), Value::String(unfinished.join(", ")));
        let image = self.state.on_cluster().and_then(|deploy| deploy.image.as_ref());
        status.insert("image".to_owned(), image.map(ToString::to_string).into());
        status.insert("state".to_owned(), self.state.newest().map(|deploy| deploy.status().as_str()).into());
        Ok((present(spec), present(status)))
    }

    /// The record as it was written, by the metadata of the API server's answer.
    pub(crate) fn written(self, metadata: ObjectMeta) -> Result<Self> {
        let metadata = trimmed(metadata);
        Ok(Self { version: version(&metadata)?, metadata, ..self })
    }

    /// The app's name for people.
    pub(crate) fn id(&self) -> &AppId {
        &self.state.app.id
    }

    pub(crate) fn namespace(&self) -> &str {
        self.id().namespace.as_str()
    }

    /// The deploys whose `AppDeploy`s this record answers for: the unfinished ones, and those that it still archives.
    pub(crate) fn deploys(&self) -> impl Iterator<Item = &Arc<Deploy>> {
        self.state.unfinished.iter().chain(&self.kept.archiving)
    }

    /// Whether the deploy of this revision is not archived yet.
    pub(crate) fn is_open(&self, revision: Revision) -> bool {
        self.deploys().any(|deploy| deploy.revision == revision)
    }

    /// The newest use of an idempotency key among the deploys that are not archived yet.
    pub(crate) fn key_use(&self, key: &IdempotencyKey) -> Option<KeyUse> {
        let is_same = |stored: &StoredKey| stored.header == key.header && stored.key == key.key;
        let (revision, stored) = self.kept.keys.iter().rev().find(|(_, stored)| is_same(stored))?;
        stored.made(*revision)
    }
}

impl StoredKey {
    pub(crate) fn of(write: &KeyWrite) -> Self {
        let IdempotencyKey { header, key, .. } = write.key.clone();
        let request = rollhook_core::text::hex(&write.made.request);
        Self { header, key, request, expires_at: write.made.expires_at }
    }

    /// The use of the key. Returns `None` if it is damaged.
    pub(crate) fn made(&self, revision: Revision) -> Option<KeyUse> {
        let mut request = [0; 32];
        for (at, byte) in request.iter_mut().enumerate() {
            *byte = u8::from_str_radix(self.request.get(2 * at..2 * at + 2)?, 16).ok()?;
        }
        Some(KeyUse { request, revision, expires_at: self.expires_at })
    }

    pub(crate) fn hash(&self) -> KeyHash {
        key_hash(self.header, &self.key)
    }
}

/// The hash of a key.
pub(crate) fn key_hash(header: KeyHeader, key: &str) -> KeyHash {
    let digest = Sha256::digest(format!("{}\n{key}", header.as_str()));
    std::array::from_fn(|at| digest[at])
}

/// Whether the object is a copy of a registration under another name, as a cloned environment has it: it is no app.
pub(crate) fn is_copy(object: &AppObject) -> bool {
    let (namespace, name) = (&object.metadata.namespace, &object.metadata.name);
    object.spec.0.get("id").is_some_and(|id| *id != json!({"namespace": namespace, "name": name}))
}

/// The version of an object.
pub(crate) fn version(metadata: &ObjectMeta) -> Result<Version> {
    let version = metadata.resource_version.as_deref().and_then(|text| text.parse().ok());
    let what = || format!("the version of {} is no number: {:?}", named(metadata), metadata.resource_version);
    version.map(Version).ok_or_else(|| Error::Corrupt { what: what(), cause: None })
}

/// `{namespace}/{name}` of an object.
pub(crate) fn named(metadata: &ObjectMeta) -> String {
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    format!("{}/{}", part(&metadata.namespace), part(&metadata.name))
}

/// The metadata without what only the API server needs: it is by far the largest part.
pub(crate) fn trimmed(metadata: ObjectMeta) -> ObjectMeta {
    ObjectMeta { managed_fields: None, ..metadata }
}

/// Reads a value of stored JSON.
pub(crate) fn value<T: DeserializeOwned>(stored: Value, what: impl FnOnce() -> String) -> Result<T> {
    serde_json::from_value(stored).map_err(|error| Error::corrupt(what(), error))
}

/// The fields that have a value: `kubectl` shows an absent field as an empty cell, and a null as `<no value>`.
pub(crate) fn present(fields: Fields) -> Fields {
    fields.into_iter().filter(|(_, value)| !value.is_null()).collect()
}

/// The fields of a value, as they are stored.
pub(crate) fn object<T: Serialize>(value: &T) -> Result<Fields> {
    match serde_json::to_value(value) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err(Error::invalid("a value without fields cannot be stored")),
        Err(error) => {
            Err(Error::Invalid { what: "a value cannot be stored as JSON".to_owned(), cause: Some(error.into()) })
        }
    }
}

#[cfg(test)]
mod tests {
    use rollhook_conformance::samples;
    use rollhook_core::ledger::{Admission, Change};

    use super::*;
    use crate::store::crd::UID_LABEL;

    fn stored() -> (AppRecord, AppObject) {
        let mut change = Change::register(samples::app("shop", "test", "api"));
        let key = IdempotencyKey { header: KeyHeader::WebhookId, ..samples::key("run \"1\"", 0xa5) };
        let admission = Admission {
            driver: Some(samples::replica("pod-1", u64::MAX >> 1)),
            ..samples::admission(samples::deploy("v1"))
        };
        samples::admit(&mut change, Admission { key: Some(key), ..admission }, Timestamp::from_millis(5));
        let keys = change.keys.iter().map(|write| (write.made.revision, StoredKey::of(write))).collect();
        let kept = Kept { keys, lease_namespace: Some("rollhook".to_owned()), ..Kept::default() };
        let metadata = ObjectMeta {
            name: Some("api".to_owned()),
            namespace: Some("shop-test".to_owned()),
            resource_version: Some("7".to_owned()),
            labels: Some([(UID_LABEL.to_owned(), change.state.app.uid.to_string())].into()),
            ..ObjectMeta::default()
        };
        let record = AppRecord::new(metadata.clone(), change.state, kept).written(metadata).unwrap();
        let object = record.object().unwrap();
        (record, object)
    }

    #[test]
    fn record_is_read_as_it_was_written() {
        let (record, object) = stored();
        let read = AppRecord::read(object.clone()).unwrap();
        assert_eq!((&read.state, &read.kept, read.version), (&record.state, &record.kept, Version(7)));
        assert_eq!(read.object().unwrap().status, object.status);
        let key = IdempotencyKey { header: KeyHeader::WebhookId, ..samples::key("run \"1\"", 0) };
        let used = read.key_use(&key).unwrap();
        assert_eq!((used.revision, used.request), (Revision::FIRST, [0xa5; 32]));
        assert_eq!(read.key_use(&IdempotencyKey { header: KeyHeader::IdempotencyKey, ..key }), None);
    }

    #[test]
    fn field_that_a_newer_version_has_added_stays() {
        let (_, mut object) = stored();
        object.spec.0.insert("invented".to_owned(), json!({"later": 1}));
        object.status.as_mut().unwrap().insert("also".to_owned(), json!([2]));
        let written = AppRecord::read(object.clone()).unwrap().object().unwrap();
        assert_eq!((written.spec, written.status), (object.spec, object.status));
    }

    #[test]
    fn damaged_object_is_corrupt_and_named() {
        let (_, sound) = stored();
        for field in ["latest", "unfinished", "keys", "archiving"] {
            let mut object = sound.clone();
            object.status.as_mut().unwrap().insert(field.to_owned(), json!("damaged"));
            let told = AppRecord::read(object).unwrap_err();
            assert!(matches!(told, Error::Corrupt { .. }) && told.to_string().contains("shop-test/api"), "{told}");
        }
        let mut object = sound;
        object.metadata.name = Some("web".to_owned());
        assert!(is_copy(&object) && AppRecord::read(object).is_err());
    }
}
