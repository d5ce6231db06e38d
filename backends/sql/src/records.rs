//! Records as rows.

use rollhook_core::{Error, Result, ports::Version, time::Timestamp};
use rollhook_management::ports::{Record, RecordKey, RecordPlace};

use crate::located;

/// The row of a record, beside its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordRow {
    /// The number of the write, of which no other has the same.
    pub version: i64,
    /// The key.
    pub key: String,
    /// The document.
    pub document: String,
    /// The time of the first write, in milliseconds since the epoch.
    pub created_at: i64,
    /// The time from which on the record is gone, in milliseconds since the epoch.
    pub expires_at: Option<i64>,
}

impl RecordRow {
    /// Decodes the row, as it was read at this time.
    ///
    /// # Errors
    /// `Corrupt` if the columns hold no record.
    pub fn decode(self, now: Timestamp) -> Result<Record> {
        let unnamed = |error| Error::corrupt("the key of a stored record cannot be read", error);
        let key: RecordKey = self.key.parse().map_err(unnamed)?;
        let no_version = |error| located(key.as_str(), Error::corrupt("the version of a record cannot be read", error));
        Ok(Record {
            version: Version(u64::try_from(self.version).map_err(no_version)?),
            document: self.document,
            created_at: Timestamp::from_millis(self.created_at),
            expires_at: self.expires_at.map(Timestamp::from_millis),
            now,
            key,
        })
    }
}

/// Returns the number of a version in a row; for one that no store has made, a number that no row has.
pub fn record_version(version: Version) -> i64 {
    i64::try_from(version.0).unwrap_or(-1)
}

/// Returns the columns of the place after which a list begins: time and key.
pub fn place_columns(after: Option<RecordPlace>) -> (i64, String) {
    after.map_or((i64::MAX, String::new()), |place| (place.created_at.as_millis(), place.key.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> RecordRow {
        RecordRow { version: 3, key: "a.b".to_owned(), document: "{}".to_owned(), created_at: 5, expires_at: Some(9) }
    }

    #[test]
    fn row_is_a_record() {
        let record = row().decode(Timestamp::from_millis(7)).unwrap();
        assert_eq!((record.key.as_str(), record.document.as_str(), record.version), ("a.b", "{}", Version(3)));
        assert_eq!(record.created_at, Timestamp::from_millis(5));
        assert_eq!(record.expires_at, Some(Timestamp::from_millis(9)));
        assert_eq!(record.now, Timestamp::from_millis(7));
        assert_eq!(place_columns(Some(record.place())), (5, "a.b".to_owned()));
        assert_eq!(place_columns(None), (i64::MAX, String::new()));
    }

    #[test]
    fn damaged_row_is_corrupt() {
        for damaged in [RecordRow { key: "A".to_owned(), ..row() }, RecordRow { version: -1, ..row() }] {
            assert!(matches!(damaged.decode(Timestamp::default()), Err(Error::Corrupt { .. })));
        }
    }

    #[test]
    fn version_of_no_store_is_in_no_row() {
        assert_eq!(record_version(Version(3)), 3);
        assert_eq!(record_version(Version(u64::MAX)), -1);
    }
}
