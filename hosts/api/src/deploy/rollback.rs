//! Rollbacks: request and answer.

use rollhook_core::{
    app::AppId,
    deploy::{self, Origin, Revision},
    request::{self, IdempotencyKey},
    service::Accepted,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{DeployAnswer, Revoked, is_false};

/// A request for a rollback: the body of `POST …/rollback`, which may be empty. A misspelt field is refused: otherwise
/// the rollback would go to another revision than the one that was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Rollback {
    /// The revision to return to; by default, the last good version before the one that is on the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>", extend("minimum" = 1))]
    pub revision: Option<Revision>,
    /// The revision that the caller believes to be current; the call is refused if another one is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>", extend("minimum" = 1))]
    pub if_current: Option<Revision>,
    /// Whether the rollback goes back past revisions whose release commands may have run: what they changed, such as the
    /// schema of a database, stays as it is.
    #[serde(skip_serializing_if = "is_false")]
    pub past_releases: bool,
    /// Whether the rollback returns to a version whose release command did not succeed: it is not run.
    #[serde(skip_serializing_if = "is_false")]
    pub without_release: bool,
    /// Whether the version's configuration is brought back as well; otherwise the current one stays.
    #[serde(skip_serializing_if = "is_false")]
    pub with_config: bool,
    /// Whether the configuration may come back with values that were revoked.
    #[serde(skip_serializing_if = "is_false")]
    pub with_revoked: bool,
}

impl Rollback {
    /// Returns the request.
    pub fn parse(&self, key: Option<IdempotencyKey>) -> request::RollbackRequest {
        request::RollbackRequest::default().with(|request| {
            request.revision = self.revision;
            request.if_current = self.if_current;
            request.past_releases = self.past_releases;
            request.without_release = self.without_release;
            request.with_configuration = self.with_config;
            request.with_revoked = self.with_revoked;
            request.key = key;
        })
    }
}

/// The answer to an accepted rollback.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RollbackAnswer {
    /// The new deploy; `superseded` lists the unfinished revisions that it ended.
    #[serde(flatten)]
    pub deploy: DeployAnswer,
    /// The version that it returns to.
    pub to: RolledBackTo,
    /// A reminder of the rollback's limits.
    pub note: String,
}

/// The version that a rollback returns to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RolledBackTo {
    /// The version's revision.
    #[schemars(with = "u64")]
    pub revision: Revision,
    /// The version's image, by digest if it is known.
    pub image: Option<String>,
    /// The version's commit.
    pub commit: Option<String>,
    /// The revocation of the version's verification, by a check that failed while it was watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<Revoked>,
}

impl RolledBackTo {
    /// Returns the version that a rollback to an entry returns to: with its configuration, the entry's own.
    pub fn of(entry: &deploy::Deploy, with_config: bool) -> Self {
        Self {
            revision: if with_config { entry.revision } else { entry.effective },
            image: entry.pinned_image().map(|image| image.to_string()),
            commit: entry.commit.as_ref().map(ToString::to_string),
            revoked: None,
        }
    }
}

impl RollbackAnswer {
    /// Returns the answer to an accepted rollback.
    pub fn of(id: &AppId, accepted: &Accepted) -> Self {
        let deploy = DeployAnswer::accepted(id, accepted);
        let revision = match &accepted.deploy.from {
            Some(Origin::Revision(revision)) => *revision,
            Some(Origin::Same(_) | Origin::Built(_) | Origin::Promoted { .. }) | None => accepted.deploy.effective,
        };
        let stays = deploy.stopped.as_ref().map(|stopped| format!(" {}", stopped.stays()));
        let restores = if accepted.deploy.configures {
            "The rollback restores the image and the configuration of that revision."
        } else {
            "A rollback restores the image, not configuration."
        };
        Self {
            to: RolledBackTo { revision, image: deploy.image.clone(), commit: deploy.commit.clone(), revoked: None },
            deploy,
            note: restores.to_owned() + &stays.unwrap_or_default(),
        }
    }
}
