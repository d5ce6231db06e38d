//! Access: who a caller is, and what it may do.

mod api_tokens;
mod audit;
mod cli_sessions;
mod known_callers;
mod permission;
mod permit;
mod principal;
mod reviews;
mod role;
mod session_list;
mod sessions;
mod signed_in;
mod unknown_tokens;

pub use api_tokens::{Adopted, ApiToken, NewApiToken, replace_admin_token};
pub use audit::{AuditEntry, Audited};
pub use cli_sessions::LOGIN_MAX;
pub use known_callers::KnownCaller;
pub use permission::{Permission, Resource};
pub use principal::Principal;
pub use role::{Action, Grant, GroupGrant, Realm, Role, TokenName};
pub use rollhook_core::lock::PrincipalKey;
pub use session_list::{LOGIN_CODES_MAX, SESSIONS_MAX};
pub use sessions::{PERSON_SESSION_MAX, Person, SESSION_IDLE, SESSION_MAX, SessionSecret, SignInGrants};
pub use signed_in::{SessionId, SignedIn};

pub(crate) use audit::{Acts, Subject};
pub(crate) use known_callers::{KnownCallers, KnownNamespaces};
pub(crate) use permit::{Granted, Place};
pub(crate) use reviews::Readable;
pub(crate) use unknown_tokens::UnknownTokens;
