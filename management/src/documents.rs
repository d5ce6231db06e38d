//! Records as documents: every kind of record is written, read and listed in the same way.

use std::time::Duration;

use futures_util::{Stream, TryStreamExt, stream};
use serde::{Serialize, de::DeserializeOwned};

use rollhook_core::error::{Error, Result};

use crate::ports::{NewRecord, Record, RecordKey, RecordKind, RecordStore};

/// The records per page.
const PAGE: usize = 200;

/// Returns the document of a record.
pub(crate) fn decode<T: DeserializeOwned>(record: &Record) -> Result<T> {
    serde_json::from_str(&record.document)
        .map_err(|error| Error::corrupt(format!("the document of the record {}", record.key), error))
}

/// Returns a record with this document.
pub(crate) fn encode<T: Serialize>(key: RecordKey, document: &T, ttl: Option<Duration>) -> Result<NewRecord> {
    let document = serde_json::to_string(document)
        .map_err(|error| Error::corrupt(format!("the document of the record {key}"), error))?;
    Ok(NewRecord { key, document, ttl })
}

/// Returns a record and its document.
pub(crate) async fn read<T: DeserializeOwned>(
    records: &dyn RecordStore,
    kind: RecordKind,
    key: &RecordKey,
) -> Result<Option<(Record, T)>> {
    let record = records.read(kind, key).await?;
    record.map(|record| decode(&record).map(|document| (record, document))).transpose()
}

/// Returns every record of a kind, newest first, with its document. A document that cannot be read is logged and left out.
pub(crate) async fn all<T: DeserializeOwned>(records: &dyn RecordStore, kind: RecordKind) -> Result<Vec<(Record, T)>> {
    Ok(all_and_unreadable(records, kind).await?.0)
}

/// Returns what [`all`] does, and the number of documents that were left out.
pub(crate) async fn all_and_unreadable<T: DeserializeOwned>(
    records: &dyn RecordStore,
    kind: RecordKind,
) -> Result<(Vec<(Record, T)>, usize)> {
    let (mut found, mut unreadable) = (Vec::new(), 0);
    for record in self::records(records, kind).await? {
        match decode(&record) {
            Ok(document) => found.push((record, document)),
            Err(error) => {
                unreadable += 1;
                tracing::error!(%kind, error = %error.chain(), "reading a record failed");
            }
        }
    }
    Ok((found, unreadable))
}

/// Returns every record of a kind, newest first, whether its document can be read or not.
pub(crate) async fn records(records: &dyn RecordStore, kind: RecordKind) -> Result<Vec<Record>> {
    pages(records, kind).try_concat().await
}

/// Returns the records of a kind in pages, newest first, until the first failure.
pub(crate) fn pages(records: &dyn RecordStore, kind: RecordKind) -> impl Stream<Item = Result<Vec<Record>>> {
    stream::try_unfold(Some(None), move |next| async move {
        let Some(after) = next else { return Ok(None) };
        let page = records.list(kind, after, PAGE).await?;
        let next = (page.len() == PAGE).then(|| page.last().map(Record::place));
        Ok(Some((page, next)))
    })
}
