//! The filter of activity, and the places at which its parts begin.

use std::{fmt, str::FromStr};

use rollhook_core::{
    app::AppId,
    deploy::{Deploy, Revision, Status},
    text::words,
    time::Timestamp,
};

use super::Apps;

/// The deploys that are shown of all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActivityFilter {
    /// Only deploys of these apps.
    pub apps: Apps,
    /// Only deploys whose actor has this text in its name, in capitals or not.
    pub actor: Option<String>,
    /// Only deploys of this status.
    pub status: Option<StatusFilter>,
}

/// The status of deploys, of which those before the end are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusFilter {
    /// Deploys that succeeded.
    Succeeded,
    /// Deploys that failed.
    Failed,
    /// Deploys whose place a newer one took.
    Superseded,
    /// Deploys that were cancelled.
    Cancelled,
    /// Deploys that have not ended.
    Unfinished,
}

words! { StatusFilter:
    Succeeded = "succeeded",
    Failed = "failed",
    Superseded = "superseded",
    Cancelled = "cancelled",
    Unfinished = "unfinished",
}

/// A text is not a status that activity can be narrowed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be succeeded, failed, superseded, cancelled or unfinished")]
pub struct InvalidStatus;

impl StatusFilter {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Succeeded, Self::Failed, Self::Superseded, Self::Cancelled, Self::Unfinished];

    /// Returns the one that a status belongs to.
    const fn of(status: Status) -> Self {
        match status {
            Status::Succeeded => Self::Succeeded,
            Status::Failed => Self::Failed,
            Status::Superseded => Self::Superseded,
            Status::Cancelled => Self::Cancelled,
            Status::Queued | Status::Building | Status::Releasing | Status::RollingOut | Status::Verifying => {
                Self::Unfinished
            }
        }
    }
}

impl FromStr for StatusFilter {
    type Err = InvalidStatus;

    fn from_str(text: &str) -> Result<Self, InvalidStatus> {
        Self::ALL.into_iter().find(|status| status.as_str() == text).ok_or(InvalidStatus)
    }
}

impl ActivityFilter {
    /// Returns the predicate of the deploys that are shown of the apps.
    pub(super) fn leaves(&self) -> impl Fn(&Deploy) -> bool {
        let status = self.status;
        let actor = self.actor.as_ref().map(|text| text.to_lowercase());
        move |deploy| {
            status.is_none_or(|status| status == StatusFilter::of(deploy.status()))
                && actor.as_ref().is_none_or(|actor| deploy.actor.to_string().to_lowercase().contains(actor))
        }
    }
}

/// A place among the deploys of all apps: after a deploy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActivityPlace {
    created_at: Timestamp,
    revision: Revision,
    app: AppId,
}

/// A text is not the place of a part of activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be next of the part before")]
pub struct InvalidPlace;

impl ActivityPlace {
    /// Returns the place after a deploy.
    pub(super) fn of(app: &AppId, deploy: &Deploy) -> Self {
        Self { created_at: deploy.created_at, revision: deploy.revision, app: app.clone() }
    }

    /// Returns whether a deploy comes after the place. Of one moment, the apps come in the order of their names.
    pub(super) fn is_before(&self, app: &AppId, deploy: &Deploy) -> bool {
        let place = (std::cmp::Reverse(self.created_at), &self.app, std::cmp::Reverse(self.revision));
        (std::cmp::Reverse(deploy.created_at), app, std::cmp::Reverse(deploy.revision)) > place
    }
}

impl ActivityPlace {
    /// The form of its text, as a regular expression.
    pub const PATTERN: &str = r"^[0-9]{1,15}\.[1-9][0-9]{0,14}\.[a-z](-?[a-z0-9]){0,31}/[a-z](-?[a-z0-9]){0,31}$";
}

impl fmt::Display for ActivityPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.created_at.as_millis(), self.revision, self.app)
    }
}

impl FromStr for ActivityPlace {
    type Err = InvalidPlace;

    fn from_str(text: &str) -> Result<Self, InvalidPlace> {
        let mut parts = text.splitn(3, '.');
        let mut part = || parts.next().ok_or(InvalidPlace);
        Ok(Self {
            created_at: Timestamp::from_millis(part()?.parse().map_err(|_| InvalidPlace)?),
            revision: part()?.parse().map_err(|_| InvalidPlace)?,
            app: part()?.parse().map_err(|_| InvalidPlace)?,
        })
    }
}
