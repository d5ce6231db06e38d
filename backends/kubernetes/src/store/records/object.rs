//! A `ServerRecord`: its name, and the record that it holds.

use kube::api::ObjectMeta;
use rollhook_core::{Error, Result, ports::Version, time::Timestamp};
use rollhook_management::ports::{NewRecord, Record, RecordKey, RecordKind, RecordPlace};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::store::{
    app_record::{named, object, trimmed, value, version},
    clock::calendar,
    crd::{CREATED_ANNOTATION, EXPIRY_ANNOTATION, RECORD_KEY_ANNOTATION, RECORD_LABEL, RecordObject, RecordSpec},
};

/// A record as its object holds it.
#[derive(Clone, Debug)]
pub(crate) struct StoredRecord {
    metadata: ObjectMeta,
    pub(crate) version: Version,
    fields: Fields,
}

/// The fields of an object's `spec`.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Fields {
    kind: String,
    key: RecordKey,
    document: String,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
    /// The number of writes: the API server leaves out a write that changes nothing, which would make no version.
    writes: u64,
    /// The end of the record's time, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<String>,
}

impl StoredRecord {
    /// A record that is not stored yet.
    pub(crate) fn new(kind: RecordKind, record: NewRecord, now: Timestamp) -> Self {
        let NewRecord { key, document, ttl } = record;
        let expires_at = ttl.map(|ttl| now.after(ttl));
        let name = name(kind, &key);
        let fields = Fields {
            kind: kind.to_string(),
            key,
            document,
            created_at: now,
            expires_at,
            writes: 1,
            expires: expires_at.map(|end| calendar(end).to_string()),
        };
        Self { metadata: ObjectMeta { name: Some(name), ..ObjectMeta::default() }, version: Version(0), fields }
    }

    /// This record as the next write of another one's object.
    pub(crate) fn in_place_of(self, stored: &Self) -> Self {
        let writes = stored.fields.writes.wrapping_add(1);
        Self { metadata: stored.metadata.clone(), version: stored.version, fields: Fields { writes, ..self.fields } }
    }

    /// This record with another time of its first write.
    pub(crate) fn created(self, created_at: Timestamp) -> Self {
        Self { fields: Fields { created_at, ..self.fields }, ..self }
    }

    /// Reads an object.
    ///
    /// # Errors
    /// `Corrupt` if a field is damaged, or the object is a copy of another record's under a name of its own.
    pub(crate) fn read(object: RecordObject) -> Result<Self> {
        let RecordObject { metadata, spec } = object;
        let what = || format!("the ServerRecord {} cannot be read: a field is damaged", named(&metadata));
        let fields: Fields = value(Value::Object(spec.0), what)?;
        if metadata.name.as_ref() != Some(&spelled(&fields.kind, &fields.key)) {
            let what = format!("the ServerRecord {} cannot be read: it is a copy of another one", named(&metadata));
            return Err(Error::Corrupt { what, cause: None });
        }
        let created_at = created_at(&metadata).unwrap_or(fields.created_at);
        let fields = Fields { created_at, ..fields };
        Ok(Self { version: version(&metadata)?, metadata: trimmed(metadata), fields })
    }

    /// The object, to be created, or to replace the one of its version.
    pub(crate) fn object(&self) -> Result<RecordObject> {
        let Self { mut metadata, fields, .. } = self.clone();
        metadata.labels.get_or_insert_default().insert(RECORD_LABEL.to_owned(), fields.kind.clone());
        let annotations = metadata.annotations.get_or_insert_default();
        match fields.expires_at {
            Some(end) => annotations.insert(EXPIRY_ANNOTATION.to_owned(), end.as_millis().to_string()),
            None => annotations.remove(EXPIRY_ANNOTATION),
        };
        annotations.insert(CREATED_ANNOTATION.to_owned(), fields.created_at.as_millis().to_string());
        if !is_spelled(&fields.key) {
            annotations.insert(RECORD_KEY_ANNOTATION.to_owned(), fields.key.to_string());
        }
        Ok(RecordObject { metadata, spec: RecordSpec(object(&fields)?) })
    }

    /// The time of the first write.
    pub(crate) fn created_at(&self) -> Timestamp {
        self.fields.created_at
    }

    /// Returns whether the record's time is over.
    pub(crate) fn is_over(&self, now: Timestamp) -> bool {
        self.fields.expires_at.is_some_and(|end| end <= now)
    }

    /// Returns the record, unless its time is over, or its object waits for its deletion.
    pub(crate) fn record(self, now: Timestamp) -> Option<Record> {
        if self.is_over(now) || self.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let Fields { key, document, created_at, expires_at, .. } = self.fields;
        Some(Record { key, document, version: self.version, created_at, expires_at, now })
    }
}

/// The name of a record's object.
pub(crate) fn name(kind: RecordKind, key: &RecordKey) -> String {
    spelled(kind.as_str(), key)
}

/// Kinds have no dots, and none ends in `-hashed`, so that no two records spell one name. A key whose parts are no
/// names to Kubernetes is spelled by its hash.
fn spelled(kind: &str, key: &RecordKey) -> String {
    if is_spelled(key) {
        return format!("{kind}.{key}");
    }
    let digits = rollhook_core::text::hex(&Sha256::digest(key.as_str()));
    format!("{kind}-hashed.{digits}")
}

/// Whether the name of a record's object spells its key.
fn is_spelled(key: &RecordKey) -> bool {
    let is_end = |byte: Option<&u8>| byte.is_some_and(|byte| *byte != b'-');
    let is_name = |part: &str| is_end(part.as_bytes().first()) && is_end(part.as_bytes().last());
    key.as_str().split('.').all(is_name)
}

/// The kind of the record that an object holds, and its place, by the object's metadata. Returns `None` if a person made
/// or damaged it.
pub(crate) fn place(metadata: &ObjectMeta) -> Option<(RecordKind, RecordPlace)> {
    let label = metadata.labels.as_ref()?.get(RECORD_LABEL)?;
    let kind = RecordKind::ALL.into_iter().find(|kind| kind.as_str() == label)?;
    let (object, spelled_kind) = (metadata.name.as_deref()?, format!("{kind}."));
    let key: RecordKey = match object.strip_prefix(&spelled_kind) {
        Some(key) => key.parse().ok()?,
        None => annotation(metadata, RECORD_KEY_ANNOTATION)?.parse().ok()?,
    };
    if object != name(kind, &key) {
        return None;
    }
    Some((kind, RecordPlace { created_at: created_at(metadata)?, key }))
}

/// The time of a record's first write.
fn created_at(metadata: &ObjectMeta) -> Option<Timestamp> {
    let written = annotation(metadata, CREATED_ANNOTATION).and_then(|millis| millis.parse().ok());
    let made = || Some(metadata.creation_timestamp.as_ref()?.0.as_millisecond());
    written.or_else(made).map(Timestamp::from_millis)
}

fn annotation<'metadata>(metadata: &'metadata ObjectMeta, name: &str) -> Option<&'metadata str> {
    metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

/// The metadata of an object as it was seen, for a guarded deletion.
pub(crate) fn as_seen(name: &str, version: Version) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), resource_version: Some(version.0.to_string()), ..ObjectMeta::default() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn stored(ttl: Option<Duration>) -> RecordObject {
        let record = NewRecord { key: "alice.1".parse().unwrap(), document: "{\"a\":1}".to_owned(), ttl };
        let mut object = StoredRecord::new(RecordKind::ApiToken, record, Timestamp::from_millis(5)).object().unwrap();
        object.metadata.resource_version = Some("7".to_owned());
        object
    }

    #[test]
    fn record_is_read_as_it_was_written() {
        let read = StoredRecord::read(stored(Some(Duration::from_millis(10)))).unwrap();
        let now = Timestamp::from_millis(14);
        let record = read.clone().record(now).unwrap();
        assert_eq!((record.key.as_str(), record.document.as_str()), ("alice.1", "{\"a\":1}"));
        assert_eq!((record.version, record.created_at, record.now), (Version(7), Timestamp::from_millis(5), now));
        assert_eq!(record.expires_at, Some(Timestamp::from_millis(15)));
        assert!(read.record(Timestamp::from_millis(15)).is_none(), "its time is over");
        let mut leaving = StoredRecord::read(stored(None)).unwrap();
        assert!(leaving.clone().record(now).is_some());
        leaving.metadata.deletion_timestamp = serde_json::from_str("\"2026-11-22T10:00:00Z\"").unwrap();
        assert!(leaving.record(now).is_none(), "it was removed, and something holds the object up");
    }

    #[test]
    fn next_write_differs_and_keeps_what_others_have_added() {
        let mut object = stored(Some(Duration::from_secs(1)));
        object.metadata.annotations.as_mut().unwrap().insert("team".to_owned(), "a".to_owned());
        let before = StoredRecord::read(object).unwrap();
        let same = NewRecord { key: "alice.1".parse().unwrap(), document: "{\"a\":1}".to_owned(), ttl: None };
        let next = StoredRecord::new(RecordKind::ApiToken, same, Timestamp::from_millis(99)).in_place_of(&before);
        let next = next.created(before.created_at()).object().unwrap();
        assert_eq!(next.spec.0["writes"], 2);
        assert_eq!(next.spec.0["created_at"], 5);
        assert_eq!(next.metadata.resource_version.as_deref(), Some("7"));
        let annotations = next.metadata.annotations.unwrap();
        assert_eq!(annotations.keys().map(String::as_str).collect::<Vec<_>>(), [CREATED_ANNOTATION, "team"]);
        assert_eq!((annotations["team"].as_str(), annotations[CREATED_ANNOTATION].as_str()), ("a", "5"));
    }

    #[test]
    fn place_is_known_by_the_metadata_alone() {
        for key in ["alice.1", "a..b", "a.-b", "hashed.a"] {
            let record = NewRecord { key: key.parse().unwrap(), document: "1".to_owned(), ttl: None };
            let stored = StoredRecord::new(RecordKind::Audit, record, Timestamp::from_millis(5));
            let mut object = stored.object().unwrap();
            object.metadata.creation_timestamp = serde_json::from_str("\"2026-11-22T10:00:00Z\"").unwrap();
            object.metadata.resource_version = Some("7".to_owned());
            let (kind, found) = place(&object.metadata).unwrap();
            let read = StoredRecord::read(object.clone()).unwrap().record(Timestamp::from_millis(6)).unwrap();
            assert_eq!((kind, &found), (RecordKind::Audit, &read.place()));
            assert_eq!((found.key.as_str(), found.created_at), (key, Timestamp::from_millis(5)));
            object.metadata.annotations.as_mut().unwrap().remove(CREATED_ANNOTATION);
            let found = place(&object.metadata).unwrap().1;
            assert_eq!(
                found,
                StoredRecord::read(object.clone()).unwrap().record(Timestamp::default()).unwrap().place()
            );
            object.metadata.name = Some("audit.another".to_owned());
            assert!(place(&object.metadata).is_none_or(|(_, found)| found.key.as_str() == "another"));
            object.metadata.labels = None;
            assert_eq!(place(&object.metadata), None);
        }
    }

    #[test]
    fn names_are_those_of_kubernetes_and_differ() {
        let spelled = |key: &str| name(RecordKind::Session, &key.parse().unwrap());
        assert_eq!(spelled("a-1.b"), "session.a-1.b");
        let hashed = ["a..b", "a.-b", "a-.b"].map(spelled);
        for name in &hashed {
            assert!(name.starts_with("session-hashed.") && name.len() == 79, "{name}");
        }
        assert_ne!(hashed[0], hashed[1]);
        assert_ne!(hashed[1], hashed[2]);
    }

    #[test]
    fn damaged_or_copied_object_is_corrupt() {
        let mut copy = stored(None);
        copy.metadata.name = Some("api-token.bob".to_owned());
        let mut damaged = stored(None);
        damaged.spec.0.remove("document");
        for object in [copy, damaged] {
            let told = StoredRecord::read(object).unwrap_err();
            assert!(matches!(told, Error::Corrupt { .. }) && told.to_string().contains("api-token."), "{told}");
        }
    }
}
