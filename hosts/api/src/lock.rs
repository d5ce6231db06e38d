//! Locks of apps and environments.

use rollhook_core::{
    lock::{self, LockScope, REASON_MAX},
    request::{Field, Refusal},
    time::Timestamp,
};
use rollhook_management::locks::{EnvironmentLock, NewLock};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    access::{EXPIRES_RULE, expires},
    app::field,
    openapi::schemas,
};

/// A request for a lock: the body of `PUT …/lock`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["reason"]))]
pub struct LockRequest {
    /// The reason, for those whose deploys are refused: one line.
    #[schemars(extend("minLength" = 1, "maxLength" = REASON_MAX))]
    pub reason: String,
    /// The time after which the lock ends by itself, such as `2h` or `3d`; absent: it is ended by hand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
}

impl LockRequest {
    /// Returns the request.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`], naming the field.
    pub fn parse(self) -> Result<NewLock, Refusal> {
        let ttl = self.expires.map(|text| expires(&text).ok_or(EXPIRES_RULE)).transpose();
        Ok(NewLock { reason: field(Field::LockReason, self.reason.parse())?, ttl: field(Field::Expires, ttl)? })
    }
}

/// A lock that refuses new deploys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Lock {
    /// The apps that the lock is on: this `app`, or all of its `environment`.
    #[schemars(schema_with = "schemas::lock_scope")]
    pub on: String,
    /// The reason for the lock.
    pub reason: String,
    /// The party that set the lock.
    pub by: String,
    /// The time at which it was set.
    #[serde(with = "crate::time")]
    #[schemars(schema_with = "schemas::time")]
    pub at: Timestamp,
    /// The time at which it ends by itself; absent: it is ended by hand.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::time::maybe")]
    #[schemars(schema_with = "schemas::time")]
    pub until: Option<Timestamp>,
}

impl Lock {
    /// Returns a lock as it is on the wire.
    pub fn of(scope: LockScope, lock: &lock::Lock) -> Self {
        Self {
            on: scope.to_string(),
            reason: lock.reason.to_string(),
            by: lock.by.to_string(),
            at: lock.at,
            until: lock.until,
        }
    }
}

/// A locked environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LockedEnvironment {
    /// The project.
    pub project: String,
    /// The project's environment.
    pub environment: String,
    /// The lock on all of its apps.
    #[serde(flatten)]
    pub lock: Lock,
    /// What the caller that has just set the lock should know: such as that the environment has no app.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl LockedEnvironment {
    /// Returns an environment's lock as it is on the wire.
    pub fn of(locked: &EnvironmentLock) -> Self {
        Self {
            project: locked.project.to_string(),
            environment: locked.environment.to_string(),
            lock: Lock::of(LockScope::Environment, &locked.lock),
            notes: locked.notes.clone(),
        }
    }
}

/// The locked environments that the caller may read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LockList {
    /// The environments, those that were locked last first.
    pub locks: Vec<LockedEnvironment>,
}
