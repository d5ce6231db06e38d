//! The sessions of the console and of command lines.

use rollhook_core::time::Timestamp;
use rollhook_management::{
    access::{SessionId, SignedIn},
    ports::RecordPlace,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{AuditPlace, openapi::schemas};

/// The longest name of a token or person whose sessions are to end, in characters.
pub const ACTOR_MAX: usize = 512;

/// A session that has not ended, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Session {
    /// The id, which opens nothing.
    #[schemars(with = "String")]
    pub id: SessionId,
    /// The API token or person that it stands for, as the history names it.
    pub actor: String,
    /// The session of the console that lent it to a command line; absent: it is one of the console itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub lent_by: Option<SessionId>,
    /// The time at which it began.
    #[serde(with = "crate::time")]
    #[schemars(schema_with = "schemas::time")]
    pub began_at: Timestamp,
    /// The time of its last use, with an error of some minutes; absent: it is not known.
    #[serde(default, with = "crate::time::maybe", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::time")]
    pub last_used_at: Option<Timestamp>,
    /// The time at which it ends unless it is used.
    #[serde(with = "crate::time")]
    #[schemars(schema_with = "schemas::time")]
    pub ends_at: Timestamp,
    /// Whether this call was made by it.
    pub current: bool,
}

impl Session {
    /// Returns the answer for a session.
    pub fn of(session: &SignedIn) -> Self {
        Self {
            id: session.id.clone(),
            actor: session.actor.to_string(),
            lent_by: session.lent_by.clone(),
            began_at: session.began_at,
            last_used_at: session.last_used_at,
            ends_at: session.ends_at,
            current: session.is_current,
        }
    }

    /// Returns the place of the session: `console` or `command line`.
    pub const fn place(&self) -> &'static str {
        if self.lent_by.is_some() { "command line" } else { "console" }
    }
}

/// A part of the sessions that a caller may end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionList {
    /// The sessions, newest first.
    pub sessions: Vec<Session>,
    /// The value of `after` for the next part; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl SessionList {
    /// Returns the answer of these sessions, and of the place that the next part begins after.
    pub fn of(sessions: &[SignedIn], next: Option<&RecordPlace>) -> Self {
        Self {
            sessions: sessions.iter().map(Session::of).collect(),
            next: next.map(|place| AuditPlace(place.clone()).to_string()),
        }
    }
}

/// The sessions of a token or person that were ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EndedSessions {
    /// The number of sessions.
    pub ended: usize,
}
