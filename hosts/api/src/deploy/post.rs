//! Requests for deploys, of an image or of a commit.

use rollhook_core::{
    deploy::{self, Revision, Sequence},
    lock::{LockReason, REASON_MAX},
    request::{self, Field, IdempotencyKey, Refusal},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::is_false;
use crate::{app::optional, openapi::schemas};

/// A request for a deploy, by a webhook call of CI or by a person. `same`, `if_current` and `break_glass` are a person's: a
/// webhook ignores them, as a person's deploy ignores `sequence`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DeployPost {
    /// The full image reference, with a tag or a digest; the path of its repository is at most 255 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = schemas::image()))]
    pub image: Option<String>,
    /// The commit to build; for an image app, a label.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minLength" = 1, "maxLength" = deploy::COMMIT_MAX, "pattern" = schemas::COMMIT))]
    pub commit: Option<String>,
    /// The time of the commit, as RFC 3339 writes it and `git log -1 --format=%cI` prints it: the lead time of the change
    /// begins with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub committed_at: Option<String>,
    /// A webhook's: the place of the deploy among those of the app's webhook, such as the number of the CI run. A deploy with a
    /// lower one than an earlier deploy had, since the webhook was enabled, is recorded as `superseded` by that one, and changes
    /// nothing. The same digits as a string are taken too. Without one, the source of a git app is asked whether the commit is
    /// older than what the webhook brought before; `none` deploys it whatever came before. A person's deploy is in order whenever it
    /// comes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::posted_sequence")]
    pub sequence: Option<Sequence>,
    /// Deploy what is current once more, such as to restart it without a gap: its bits, without a build and without its
    /// release command. `image`, `commit` and `committed_at` are left out.
    #[serde(skip_serializing_if = "is_false")]
    pub same: bool,
    /// With `same`: the revision that the caller believes to be current; the call is refused if another one is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>", extend("minimum" = 1))]
    pub if_current: Option<Revision>,
    /// The reason for deploying in spite of a lock: an admin's, for a deploy by hand. The audit keeps it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minLength" = 1, "maxLength" = REASON_MAX))]
    pub break_glass: Option<String>,
}

impl DeployPost {
    /// Returns the request.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`], naming the field.
    pub fn parse(&self, key: Option<IdempotencyKey>) -> Result<request::DeployRequest, Refusal> {
        let (image, commit) = (self.image.as_deref(), self.commit.as_deref());
        request::DeployRequest::parse(image, commit, self.committed_at.as_deref(), key)
    }

    /// Returns the request to deploy what is current once more; `None` if it names an image or a commit.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`], naming the field.
    pub fn redeploy(&self, key: Option<IdempotencyKey>) -> Result<Option<request::RedeployRequest>, Refusal> {
        let invalid = |field, rule: &str| Err(Refusal::InvalidField(field, rule.to_owned()));
        if !self.same && self.if_current.is_some() {
            return invalid(Field::IfCurrent, "goes with same; a deploy of an image or a commit takes no condition.");
        }
        if self.same && (self.image.is_some() || self.commit.is_some() || self.committed_at.is_some()) {
            return invalid(
                Field::Same,
                "deploys the image and the commit that are current; leave out image and commit.",
            );
        }
        Ok(self.same.then(|| {
            request::RedeployRequest::default().with(|request| {
                request.if_current = self.if_current;
                request.key = key;
            })
        }))
    }

    /// Returns the reason for deploying in spite of a lock.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`].
    pub fn break_glass(&self) -> Result<Option<LockReason>, Refusal> {
        optional(Field::BreakGlass, self.break_glass.as_deref())
    }
}

/// A request to build a commit of a git app: the body of `POST …/rebuild`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Rebuild {
    /// The commit; by default the head of the app's branch.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minLength" = 1, "maxLength" = deploy::COMMIT_MAX, "pattern" = schemas::COMMIT))]
    pub commit: Option<String>,
}

impl Rebuild {
    /// Returns the commit.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`].
    pub fn parse(&self) -> Result<Option<deploy::Commit>, Refusal> {
        optional(Field::Commit, self.commit.as_deref())
    }
}
