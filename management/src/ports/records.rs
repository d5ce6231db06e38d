//! The port that keeps the service's own small records: API tokens, sessions, the audit, locks of environments,
//! requirements, trusted pipelines, used id_tokens, receivers of notifications and how far they were told.

use std::{fmt, str::FromStr, time::Duration};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use rollhook_core::{
    app::InvalidName,
    error::Result,
    ports::Version,
    text::{checked_text, hex, words},
    time::Timestamp,
};

/// The kind of a record. Records of different kinds share nothing, not even their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum RecordKind {
    /// The tokens of the management API.
    ApiToken,
    /// The sessions of the console.
    Session,
    /// The acts of management.
    Audit,
    /// The locks of environments.
    EnvironmentLock,
    /// The requirements on the images of projects and environments.
    Requirement,
    /// The pipelines that apps trust.
    Trusts,
    /// The id_tokens that were used.
    IdToken,
    /// The codes by which command lines sign in.
    LoginCode,
    /// The sessions and codes of each API token and person.
    SessionList,
    /// The receivers of notifications.
    Receiver,
    /// How far receivers were told of apps.
    ReceiverCursor,
    /// How deliveries to receivers went.
    ReceiverStatus,
    /// The replica that tells receivers.
    NotifierLease,
}

impl RecordKind {
    /// Returns whether callers who are not authenticated cause reads of this kind.
    pub const fn is_for_strangers(self) -> bool {
        match self {
            Self::ApiToken | Self::Session | Self::Trusts | Self::IdToken | Self::LoginCode => true,
            Self::Audit
            | Self::SessionList
            | Self::EnvironmentLock
            | Self::Requirement
            | Self::Receiver
            | Self::ReceiverCursor
            | Self::ReceiverStatus
            | Self::NotifierLease => false,
        }
    }

    /// Every kind.
    pub const ALL: [Self; 13] = [
        Self::ApiToken,
        Self::Session,
        Self::Audit,
        Self::EnvironmentLock,
        Self::Requirement,
        Self::Trusts,
        Self::IdToken,
        Self::LoginCode,
        Self::SessionList,
        Self::Receiver,
        Self::ReceiverCursor,
        Self::ReceiverStatus,
        Self::NotifierLease,
    ];
}

words! { RecordKind:
    ApiToken = "api-token",
    Session = "session",
    Audit = "audit",
    EnvironmentLock = "environment-lock",
    Requirement = "requirement",
    Trusts = "trusts",
    IdToken = "id-token",
    LoginCode = "login-code",
    SessionList = "session-list",
    Receiver = "receiver",
    ReceiverCursor = "receiver-cursor",
    ReceiverStatus = "receiver-status",
    NotifierLease = "notifier-lease",
}

checked_text! {
    /// The key of a record: 1 to 128 lower-case letters, digits, hyphens and dots; the first and the last are letters
    /// or digits.
    RecordKey, InvalidName, record_key
}

impl RecordKey {
    /// Returns the key of a hash: 64 hexadecimal digits.
    pub fn of_hash(hash: [u8; 32]) -> Self {
        Self(hex(&hash))
    }

    /// Returns the key of random bits: 32 hexadecimal digits.
    pub fn of_bits(bits: u128) -> Self {
        Self(format!("{bits:032x}"))
    }
}

/// The most records of a kind that a page shows as they are stored, whoever wrote them.
pub const LISTED_AT_ONCE: usize = 500;
/// The records per page while the oldest are looked for.
const PAGE: usize = 200;

/// The longest key of a record, in bytes.
pub const RECORD_KEY_MAX: usize = 128;

fn record_key(text: &str) -> Result<String, InvalidName> {
    let is_plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let ends = bytes.first().is_some_and(is_plain) && bytes.last().is_some_and(is_plain);
    let all = bytes.iter().all(|byte| is_plain(byte) || matches!(byte, b'-' | b'.'));
    if ends && all && bytes.len() <= RECORD_KEY_MAX {
        return Ok(text.to_owned());
    }
    Err(InvalidName::new("record", text, "must be 1 to 128 lower-case letters, digits, hyphens and dots"))
}

/// A record to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRecord {
    /// The key, within the kind.
    pub key: RecordKey,
    /// The content, as JSON: at most 16 KiB, unread by stores.
    pub document: String,
    /// The time for which the record is kept, from now on by the store's clock; `None`: until it is removed.
    pub ttl: Option<Duration>,
}

/// A stored record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The key, within the kind.
    pub key: RecordKey,
    /// The content, as JSON.
    pub document: String,
    /// The version: each write makes another.
    pub version: Version,
    /// The time of the first write, by the store's clock; later writes keep it.
    pub created_at: Timestamp,
    /// The end of the record's time: the record is gone from then on.
    pub expires_at: Option<Timestamp>,
    /// The store's clock at the read.
    pub now: Timestamp,
}

/// A place in the order of a kind's records, which are listed from the greatest place to the least.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordPlace {
    /// The time of the record's first write.
    pub created_at: Timestamp,
    /// The record's key.
    pub key: RecordKey,
}

impl Record {
    /// Returns the record's place in the order of its kind.
    pub fn place(&self) -> RecordPlace {
        RecordPlace { created_at: self.created_at, key: self.key.clone() }
    }
}

/// Keeps small records that all replicas share; it knows nothing of what they mean. A platform that authenticates
/// people itself needs none.
///
/// - `write_then_read`: what was written is read, with `created_at` by the store's clock: at once by the handle that
///   wrote it, soon by others. Every document of up to 16 KiB is returned unchanged, under every key.
/// - `read_returns_what_is_stored`: a returned record was read by this very call, so that another handle's removal or
///   rewrite counts at once. The absence of a record of a kind that [strangers ask for](RecordKind::is_for_strangers) may
///   be answered from memory, so that callers without a good key cost the store little.
/// - `kinds_are_apart`: one key may stand in each kind.
/// - `write_is_compare_and_swap`: a write with a version needs this version, a write without one needs that there is
///   none; else `Conflict(Version)`, and nothing is written. Of several writers at the same time, one succeeds, also
///   where they write what is stored already.
/// - `write_keeps_created_at` of the record that it replaces, and takes the new `ttl`.
/// - `remove_forgets`; removing a missing record is no error, and a later write without a version succeeds.
/// - `versions_are_not_reused`: a version that was read before a removal fits no record that is written after it.
/// - `expired_is_gone`: from `expires_at` on, a record is neither read nor listed, its version fits no write, and a
///   write without a version succeeds, as the first one of a new record.
/// - `write_outlives_an_abrupt_end`: in a store that outlives its process, what was written or removed is so after a
///   loss of power.
/// - `list_is_newest_first`: by `created_at` and then by key, both descending, in pages. Each record that stays is
///   listed once, whatever is written meanwhile; a page shows what is stored, by any handle. Of a kind with more than
///   [`LISTED_AT_ONCE`] records, a page shows soon what another handle has written.
/// - `remove_oldest_keeps_the_newest`, and returns how many records it has removed. What another handle has written may
///   be counted a moment later.
#[async_trait]
pub trait RecordStore: Send + Sync {
    /// Returns the record.
    ///
    /// Unauthenticated callers cause these calls. A store with expensive reads answers the absence of a record from
    /// memory.
    async fn read(&self, kind: RecordKind, key: &RecordKey) -> Result<Option<Record>>;

    /// Writes the record if its version is still this one (`None`: if there is no record), and returns the new version.
    async fn write(&self, kind: RecordKind, record: NewRecord, version: Option<Version>) -> Result<Version>;

    /// Removes the record.
    async fn remove(&self, kind: RecordKind, key: &RecordKey) -> Result<()>;

    /// Returns at most `limit` records after this place, newest first.
    async fn list(&self, kind: RecordKind, after: Option<RecordPlace>, limit: usize) -> Result<Vec<Record>>;

    /// Removes all but the newest `keep` records of a kind, and returns how many. A store that knows the order of its
    /// records without reading them does this without pages.
    async fn remove_oldest(&self, kind: RecordKind, keep: usize) -> Result<usize> {
        let (mut seen, mut removed, mut after) = (0, 0, None);
        loop {
            let page = self.list(kind, after, PAGE).await?;
            let is_last = page.len() < PAGE;
            after = page.last().map(Record::place);
            for record in &page {
                if seen >= keep {
                    self.remove(kind, &record.key).await?;
                    removed += 1;
                }
                seen += 1;
            }
            if is_last {
                return Ok(removed);
            }
        }
    }
}
