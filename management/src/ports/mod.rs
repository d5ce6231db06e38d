//! The ports that only the management plane needs; each one's documentation is its contract.
//!
//! A store implements [`RecordStore`] beside the stores of the core. A version of a record is a number that no write
//! before had, such as a sequence's: a record that was removed and written anew must not fit an old version. One that has
//! expired is none to every call, whether its row is deleted yet or not.

mod identities;
mod notifier;
mod records;
mod reviewer;
mod sign_in;

pub use identities::IdentityVerifier;
pub use notifier::{Delivered, DeliveryFailure, Notifier, Sealer};
pub use records::{LISTED_AT_ONCE, NewRecord, RECORD_KEY_MAX, Record, RecordKey, RecordKind, RecordPlace, RecordStore};
pub(crate) use reviewer::SERVICE_ACCOUNT;
pub use reviewer::{AccessReviewer, BearerToken, ReviewScope, ReviewedCaller, SignatureCheck};
pub use sign_in::{SignInProvider, SignInRequest, SignedIn};
