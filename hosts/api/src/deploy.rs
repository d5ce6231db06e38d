//! Deploys: asking for them, their answers, and the history.

use rollhook_core::{
    app::{AppId, Environment, Namespace, Project},
    deploy::{self, Evidence, Origin, Revision, State, Status, Trigger},
    ledger::AppState,
    request::{self, Field, IdempotencyKey, Refusal},
    service::{Accepted, Authorized, Deployer},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::{app::field, path};

/// A deploy as CI's webhook call or a person asks for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeployPost {
    /// The full image reference, with a tag or a digest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The commit; for an image app a label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
}

impl DeployPost {
    /// The request that is meant.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`], naming the field.
    pub fn parse(&self, key: Option<IdempotencyKey>) -> Result<request::DeployRequest, Refusal> {
        Ok(request::DeployRequest {
            image: field(Field::Image, self.image.as_deref().map(str::parse).transpose())?,
            commit: field(Field::Commit, self.commit.as_deref().map(str::parse).transpose())?,
            key,
        })
    }
}

/// A git app's commit to be built again: the body of `POST …/rebuild`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rebuild {
    /// The commit; default: what is current.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
}

impl Rebuild {
    /// The commit that is meant.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`].
    pub fn parse(&self) -> Result<Option<deploy::Commit>, Refusal> {
        field(Field::Commit, self.commit.as_deref().map(str::parse).transpose())
    }
}

/// What an accepted deploy is answered with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeployAnswer {
    /// Project and environment, joined.
    pub namespace: String,
    /// The app.
    pub app: String,
    /// The entry's number.
    pub revision: Revision,
    /// What is deployed; none for a git app until it is built.
    pub image: Option<String>,
    /// The commit.
    pub commit: Option<String>,
    /// What caused it.
    pub trigger: Trigger,
    /// Where it stands.
    pub status: Status,
    /// The entry, relative to the server's base URL.
    pub url: String,
    /// The revision that took its place, or finally stands for it once that was waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded_by: Option<Revision>,
    /// The unfinished revisions that it ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub superseded: Vec<Revision>,
    /// The fields of the request that have no part in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored: Vec<String>,
    /// Why it ended as it did, as a code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why it ended as it did, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Whether an earlier call under the same key made the entry; on the wire a header, `Idempotent-Replayed`.
    #[serde(skip)]
    pub replayed: bool,
}

impl DeployAnswer {
    /// The answer for an entry.
    pub fn of(id: &AppId, entry: &deploy::Deploy) -> Self {
        let ending = Ending::of(&entry.state);
        Self {
            namespace: id.namespace.to_string(),
            app: id.name.to_string(),
            revision: entry.revision,
            image: entry.image.as_ref().map(ToString::to_string),
            commit: entry.commit.as_ref().map(ToString::to_string),
            trigger: entry.trigger,
            status: entry.status(),
            url: path::deploy(id, entry.revision),
            superseded_by: ending.superseded_by,
            superseded: Vec::new(),
            ignored: Vec::new(),
            reason: ending.reason,
            message: ending.message,
            replayed: false,
        }
    }

    /// The answer to an accept.
    pub fn accepted(id: &AppId, accepted: &Accepted) -> Self {
        Self {
            superseded: accepted.superseded.clone(),
            ignored: accepted.ignored.iter().map(ToString::to_string).collect(),
            replayed: accepted.replayed,
            ..Self::of(id, &accepted.deploy)
        }
    }
}

/// How a state ended, spread over the fields that show it.
#[derive(Default)]
struct Ending {
    reason: Option<String>,
    message: Option<String>,
    evidence: Option<Evidence>,
    superseded_by: Option<Revision>,
}

impl Ending {
    fn of(state: &State) -> Self {
        match state {
            State::Queued | State::Building { .. } | State::RollingOut { .. } => Self::default(),
            State::Succeeded { note } => Self { message: note.clone(), ..Self::default() },
            State::Failed { reason, message, evidence } => Self {
                reason: Some(reason.to_string()),
                message: Some(message.clone()),
                evidence: evidence.clone(),
                ..Self::default()
            },
            State::Superseded { by, rollback } => {
                let (code, what) = if *rollback { ("rolled-back", "rollback") } else { ("superseded", "revision") };
                Self {
                    reason: Some(code.to_owned()),
                    message: Some(format!("The newer {what} {by} took its place.")),
                    superseded_by: Some(*by),
                    ..Self::default()
                }
            }
            State::Cancelled { reason, message } => {
                Self { reason: Some(reason.to_string()), message: Some(message.clone()), ..Self::default() }
            }
        }
    }
}

/// Which revisions of an app run and are on its cluster; what an entry's two marks are made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The newest that succeeded.
    pub current: Option<Revision>,
    /// The newest that touched the cluster.
    pub on_cluster: Option<Revision>,
}

impl Standing {
    /// As an app's state has it.
    pub fn of(state: &AppState) -> Self {
        let current = state.current.as_ref().map(|deploy| deploy.revision);
        Self { current, on_cluster: state.on_cluster().map(|deploy| deploy.revision) }
    }

    /// Reads the standing of an app.
    ///
    /// # Errors
    /// [`Refusal::AppNotFound`] if the app was deleted; [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn read(deployer: &Deployer, access: &Authorized) -> Result<Self, Refusal> {
        deployer.state(access).await.map(|view| Self::of(&view))
    }
}

/// One entry of an app's history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deploy {
    /// Project and environment, joined.
    pub namespace: String,
    /// The app.
    pub app: String,
    /// Its number.
    pub revision: Revision,
    /// What is rolled out; none for a git app until it is built.
    pub image: Option<String>,
    /// The commit.
    pub commit: Option<String>,
    /// What caused it.
    pub trigger: Trigger,
    /// Who caused it.
    pub actor: String,
    /// Where it stands.
    pub status: Status,
    /// Whether it is the newest that succeeded: what runs.
    pub current: bool,
    /// Whether it is the newest that touched the cluster.
    pub on_cluster: bool,
    /// Whether it records what already ran when the app was registered.
    pub adopted: bool,
    /// The revision that it stands for: its own, or the one that a rollback finally returns to.
    pub effective: Revision,
    /// Where its image was taken from, where it was not posted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<TakenFrom>,
    /// The digest that was observed running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Why it ended as it did, as a code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why it ended as it did, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The revision that took its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded_by: Option<Revision>,
    /// What was seen of a failed rollout; only where one entry is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
    /// How often it was changed since it was accepted.
    pub step: u32,
    /// When it was accepted.
    #[serde(with = "crate::time")]
    pub created_at: Timestamp,
    /// When it last changed; for one that ended, when it ended.
    #[serde(with = "crate::time")]
    pub updated_at: Timestamp,
    /// The entry, relative to the server's base URL.
    pub url: String,
}

/// Where a deploy's image was taken from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenFrom {
    /// The promoted app's namespace; none where it is the app's own history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The promoted app.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<String>,
    /// The revision that was rolled back to, or promoted.
    pub revision: Revision,
}

impl Deploy {
    /// The wire form of an entry.
    pub fn of(id: &AppId, entry: &deploy::Deploy, standing: Standing) -> Self {
        let ending = Ending::of(&entry.state);
        Self {
            namespace: id.namespace.to_string(),
            app: id.name.to_string(),
            revision: entry.revision,
            image: entry.image.as_ref().map(ToString::to_string),
            commit: entry.commit.as_ref().map(ToString::to_string),
            trigger: entry.trigger,
            actor: entry.actor.to_string(),
            status: entry.status(),
            current: standing.current == Some(entry.revision),
            on_cluster: standing.on_cluster == Some(entry.revision),
            adopted: entry.adopted,
            effective: entry.effective,
            from: entry.from.as_ref().map(TakenFrom::of),
            digest: entry.digest.as_ref().map(ToString::to_string),
            reason: ending.reason,
            message: ending.message,
            superseded_by: ending.superseded_by,
            evidence: ending.evidence,
            step: entry.step,
            created_at: entry.created_at,
            updated_at: entry.updated_at,
            url: path::deploy(id, entry.revision),
        }
    }

    /// The entry as lists show it.
    #[must_use]
    pub fn without_evidence(mut self) -> Self {
        self.evidence = None;
        self
    }
}

impl TakenFrom {
    fn of(origin: &Origin) -> Self {
        match origin {
            Origin::Revision(revision) => Self { namespace: None, app: None, revision: *revision },
            Origin::Promoted { app, revision } => Self {
                namespace: Some(app.namespace.to_string()),
                app: Some(app.name.to_string()),
                revision: *revision,
            },
        }
    }
}

/// A part of an app's history, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeployList {
    /// The entries, without evidence.
    pub deploys: Vec<Deploy>,
    /// What to pass as `before` for the older part; none where this is the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Revision>,
}

/// A rollback to be made: the body of `POST …/rollback`, which may be empty. A misspelt field is refused: it must not
/// mean another revision than the one that was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rollback {
    /// The revision to return to; without, the last good version before what is on the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<Revision>,
    /// What the caller believes to be current.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub if_current: Option<Revision>,
}

impl Rollback {
    /// The request that is meant.
    pub const fn parse(&self, key: Option<IdempotencyKey>) -> request::RollbackRequest {
        request::RollbackRequest { revision: self.revision, if_current: self.if_current, key }
    }
}

/// What an accepted rollback is answered with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RollbackAnswer {
    /// The new revision; `superseded` lists the unfinished ones that it ended.
    #[serde(flatten)]
    pub deploy: DeployAnswer,
    /// The version that it returns to.
    pub to: RolledBackTo,
    /// What a rollback does not do.
    pub note: String,
}

/// The version that a rollback returns to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolledBackTo {
    /// Its revision.
    pub revision: Revision,
    /// Its image, by digest where that is known.
    pub image: Option<String>,
    /// Its commit.
    pub commit: Option<String>,
}

impl RollbackAnswer {
    /// The answer to an accepted rollback.
    pub fn of(id: &AppId, accepted: &Accepted) -> Self {
        let deploy = DeployAnswer::accepted(id, accepted);
        let revision = match &accepted.deploy.from {
            Some(Origin::Revision(revision) | Origin::Promoted { revision, .. }) => *revision,
            None => accepted.deploy.effective,
        };
        Self {
            to: RolledBackTo { revision, image: deploy.image.clone(), commit: deploy.commit.clone() },
            deploy,
            note: "A rollback restores the image, not configuration.".to_owned(),
        }
    }
}

/// A promotion to be made: the body of `POST …/promote`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Promote {
    /// From where.
    pub from: PromoteFrom,
}

/// The environment whose app of the same name is promoted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromoteFrom {
    /// The project.
    pub project: String,
    /// The environment.
    pub environment: String,
}

impl Promote {
    /// The app whose current image is meant.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`], naming the field.
    pub fn parse(&self, to: &AppId) -> Result<AppId, Refusal> {
        let project: Project = field(Field::FromProject, self.from.project.parse())?;
        let environment: Environment = field(Field::FromEnvironment, self.from.environment.parse())?;
        let namespace = field(Field::FromEnvironment, Namespace::of(&project, &environment))?;
        Ok(AppId { namespace, name: to.name.clone() })
    }
}
