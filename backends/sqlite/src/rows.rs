//! How values lie in columns.

use rollhook_core::{
    Error, Result,
    app::AppUid,
    deploy::{Revision, Status},
    request::KeyHeader,
};
use serde::{Serialize, de::DeserializeOwned};

use crate::error::unreadable;

/// The bits of an entry's id that hold its revision.
const REVISION_BITS: u32 = 32;
/// The highest revision that an app can have here.
pub(crate) const REVISION_MAX: u64 = (1 << REVISION_BITS) - 1;

/// The id of an app's entry; revision 0 lies before its first.
pub(crate) fn entry_id(app: i64, revision: u64) -> i64 {
    (app << REVISION_BITS) | i64::try_from(revision.min(REVISION_MAX)).unwrap_or(0)
}

/// The revision in an entry's id.
pub(crate) fn revision_of(id: i64) -> Option<Revision> {
    revision(id & ((1 << REVISION_BITS) - 1))
}

/// A stored revision, of which 0 means none.
pub(crate) fn revision(number: i64) -> Option<Revision> {
    u64::try_from(number).ok().and_then(Revision::new)
}

/// The number to store for a revision.
pub(crate) fn number(revision: Option<Revision>) -> i64 {
    revision.map_or(0, |revision| i64::try_from(revision.get()).unwrap_or(i64::MAX))
}

/// Numbers of 64 bits without a sign are stored by their bits.
pub(crate) const fn signed(number: u64) -> i64 {
    number.cast_signed()
}

/// What [`signed`] stored.
pub(crate) const fn unsigned(number: i64) -> u64 {
    number.cast_unsigned()
}

/// A stored uid.
pub(crate) fn uid(text: &str) -> Result<AppUid> {
    text.parse().map_err(|error| Error::corrupt("an app's uid cannot be read", error))
}

/// The number that stands for a status; `deploys_succeeded` in the schema knows 3.
pub(crate) const fn status_number(status: Status) -> i64 {
    match status {
        Status::Queued => 0,
        Status::Building => 1,
        Status::RollingOut => 2,
        Status::Succeeded => 3,
        Status::Failed => 4,
        Status::Superseded => 5,
        Status::Cancelled => 6,
    }
}

/// Whether the number stands for a status that nothing follows.
pub(crate) const fn is_terminal(status: i64) -> bool {
    status >= status_number(Status::Succeeded)
}

/// The number that stands for a header.
pub(crate) const fn header_number(header: KeyHeader) -> i64 {
    match header {
        KeyHeader::IdempotencyKey => 0,
        KeyHeader::WebhookId => 1,
        KeyHeader::GithubDelivery => 2,
    }
}

/// JSON to store, or to hand a batch to a statement as.
pub(crate) fn to_json<T: Serialize + ?Sized>(value: &T) -> sqlx::Result<String> {
    serde_json::to_string(value).map_err(|error| sqlx::Error::Encode(Box::new(error)))
}

/// Stored JSON; what it is is told by `what` if it cannot be read.
pub(crate) fn from_json<T: DeserializeOwned>(text: &[u8], what: impl FnOnce() -> String) -> Result<T> {
    serde_json::from_slice(text).map_err(|error| unreadable(what(), error))
}
