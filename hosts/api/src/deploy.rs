//! Deploys: requests, answers and the history.

mod checks;
mod decision;
mod post;
mod promote;
mod resolution;
mod rollback;
mod scale;
mod watch;

use std::time::Duration;

pub use checks::{CheckOutcome, Measurement, PastValue};
pub use decision::{Decision, VerdictPost};
pub use post::{DeployPost, Rebuild};
pub use promote::{Promote, PromoteFrom};
pub use resolution::ImageLabels;
pub use rollback::{Rollback, RollbackAnswer, RolledBackTo};
use rollhook_core::{
    app::AppId,
    configuration::ConfigurationId,
    deploy::{
        self, Evidence, Newer, Origin, Reason, ReleaseMark, Revision, Scale, Sequence, State, Status, Trigger,
        WorkloadEnd,
    },
    engine::deadline,
    ledger::{AppState, Recovery, restore::Restoration},
    request::Refusal,
    service::{self, Accepted, Authorized, Deployer},
    time::Timestamp,
};
pub use scale::{ScalePost, Stopped};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
pub use watch::{CheckFail, Revoked, Watch};

use crate::{App, WorkloadState, openapi::schemas, operation::Operation, operations::ShowDeploy};

/// The answer to an accepted deploy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeployAnswer {
    /// Project and environment, joined by a hyphen.
    pub namespace: String,
    /// The app's name.
    pub app: String,
    /// The deploy's number.
    #[schemars(with = "u64")]
    pub revision: Revision,
    /// The image; null for a git app until it is built.
    pub image: Option<String>,
    /// The commit that the image was built from, or is to be built from.
    pub commit: Option<String>,
    /// The cause of the deploy.
    #[schemars(schema_with = "schemas::trigger")]
    pub trigger: Trigger,
    /// The status of the deploy.
    #[schemars(schema_with = "schemas::status")]
    pub status: Status,
    /// The path of the history's entry, relative to the server's base URL.
    pub url: String,
    /// The revision that superseded this one; after a wait, the last one in that line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub superseded_by: Option<Revision>,
    /// The unfinished revisions that this one superseded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<u64>")]
    pub superseded: Vec<Revision>,
    /// The fields of the request that were ignored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored: Vec<String>,
    /// The stop of an app that was stopped when the deploy was accepted, and stays so; only in the first answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Stopped>,
    /// The reason of the end, as a code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The reason of the end, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The seconds from its accept within which the deploy ends, by the app's policy and what is ahead of it, such as a
    /// restore; in the answer 202 to a call that waited. While the deploy rolls out, they end at `progress.deadline`.
    /// Outages of the cluster and waits for a build slot move both on: a repeated call has their present values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_within: Option<u64>,
    /// The progress of the look-up of the image at its registry, the build, the release command or the rollout; only while one
    /// is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// Why the registry did not name the digest of the image before the rollout: the platform then finds the image as it was posted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_resolved: Option<String>,
    /// A person's decision in the place of checks that came to no verdict: it is waited for, or was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Box<Decision>>,
    /// Whether an earlier call under the same key made the entry; on the wire, the header `Idempotent-Replayed`.
    #[serde(skip)]
    pub replayed: bool,
}

impl DeployAnswer {
    /// Returns the answer for an entry.
    pub fn of(id: &AppId, entry: &deploy::Deploy) -> Self {
        let ending = Ending::of(entry);
        Self {
            namespace: id.namespace.to_string(),
            app: id.name.to_string(),
            revision: entry.revision,
            image: entry.image.as_ref().map(ToString::to_string),
            commit: entry.commit.as_ref().map(ToString::to_string),
            trigger: entry.trigger,
            status: entry.status(),
            url: ShowDeploy::ENDPOINT.path_of(&(id.clone(), entry.revision)),
            superseded_by: ending.superseded_by,
            superseded: Vec::new(),
            ignored: Vec::new(),
            stopped: None,
            reason: ending.reason,
            message: ending.message,
            ends_within: None,
            progress: None,
            not_resolved: resolution::not_resolved(entry),
            decision: Decision::of(entry),
            replayed: false,
        }
    }

    /// Returns the answer to an accepted request.
    pub fn accepted(id: &AppId, accepted: &Accepted) -> Self {
        Self {
            superseded: accepted.superseded.clone(),
            ignored: accepted.ignored.iter().map(ToString::to_string).collect(),
            stopped: accepted.stopped.as_ref().map(Stopped::of),
            replayed: accepted.replayed,
            ..Self::of(id, &accepted.deploy)
        }
    }
}

/// Returns the seconds from the accept of a deploy within which the last of its line ends: the deploy itself, or the one
/// that superseded it. While that one rolls out, they end at the deadline of its progress; `None` once it has ended.
pub fn ends_within(app_state: &AppState, deploy: &deploy::Deploy, last: &deploy::Deploy) -> Option<u64> {
    let whole = deadline::of_deploy(app_state, last)?.since(deploy.created_at);
    Some(whole.as_secs() + u64::from(whole.subsec_nanos() > 0))
}

/// The restore that puts a failed rollout right: in the entry of the failed deploy, and the member `restore` of the problem
/// `deploy-failed`. A repeated call has its present state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Restore {
    /// The restore's own revision; absent while the restore is owed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub revision: Option<Revision>,
    /// The revision that it returns to.
    #[schemars(with = "u64")]
    pub to: Revision,
    /// The image that it rolls out.
    pub image: Option<String>,
    /// The workloads that the failed deploy had touched, and that the restore brings back; absent for an app that has one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workloads: Vec<String>,
    /// Whether the configuration comes back as well: the failed deploy had another one.
    #[serde(default, skip_serializing_if = "is_false")]
    pub configures: bool,
    /// The status of the restore; absent while the restore is owed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::status")]
    pub status: Option<Status>,
}

impl Restore {
    /// Returns the restore of this entry that is owed or was made.
    fn of(ended: &Deploy, restoration: &Restoration) -> Option<Self> {
        let (entry, made) = match restoration {
            Restoration::NotOwed | Restoration::NothingToRestore => return None,
            Restoration::Owed(to) => (to, None),
            Restoration::Made(entry) => (entry, Some(entry)),
        };
        let states = ended.evidence.iter().flat_map(|evidence| &evidence.workloads);
        let touched = states.filter(|workload| workload.state != WorkloadEnd::NotTouched);
        Some(Self {
            revision: made.map(|made| made.revision),
            to: entry.effective,
            image: entry.image.as_ref().map(ToString::to_string),
            workloads: touched.map(|workload| workload.name.clone()).collect(),
            configures: entry.configuration.map(ConfigurationId::short) != ended.configuration,
            status: made.map(|made| made.status()),
        })
    }
}

/// The progress of a look-up of an image, a build, a release command or a rollout, as far as the server that answers knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Progress {
    /// The begin of the step.
    #[serde(with = "crate::time")]
    #[schemars(schema_with = "schemas::time")]
    pub since: Timestamp,
    /// The number of pods of this revision that are ready. Absent, like `wanted` and `message`, if another server drives
    /// the app: what was observed is not stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<u32>,
    /// The number of pods of this revision that should run once the rollout is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted: Option<u32>,
    /// The condition that the step waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Stands for the counts and the condition: `mark` of a call that waits for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<String>,
    /// The time at which the step fails unless it is over. Absent while the cluster or the builder cannot be reached, or the
    /// build waits for a slot: that time does not count, so that the deadline moves on. Absent as well while the image is looked
    /// up.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::time::maybe")]
    #[schemars(schema_with = "schemas::time")]
    pub deadline: Option<Timestamp>,
    /// The state of each of the app's workloads; absent if it has one, and as `message` is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workloads: Vec<WorkloadState>,
}

impl Progress {
    /// Returns the progress as it is on the wire.
    pub fn of(progress: &service::Progress) -> Self {
        Self {
            since: progress.since,
            ready: progress.instances.map(|instances| instances.ready),
            wanted: progress.instances.map(|instances| instances.wanted),
            message: progress.message.clone(),
            mark: Some(progress.mark()),
            deadline: progress.deadline,
            workloads: progress.workloads.iter().map(WorkloadState::of).collect(),
        }
    }
}

/// The reason of a deploy whose place a newer one took.
const SUPERSEDED: &str = "superseded";
/// The reason of a deploy that came after one with a higher sequence.
const OLDER_SEQUENCE: &str = "older-sequence";
/// The code of a deploy that came after one of a newer commit.
const OLDER_COMMIT: &str = "older-commit";

/// The end of a deploy, in the fields that show it.
#[derive(Default)]
struct Ending {
    reason: Option<String>,
    message: Option<String>,
    evidence: Option<Evidence>,
    superseded_by: Option<Revision>,
}

impl Ending {
    fn of(entry: &deploy::Deploy) -> Self {
        match &entry.state {
            State::Queued | State::Building { .. } | State::Releasing { .. } | State::RollingOut { .. } => {
                Self::default()
            }
            State::Succeeded { note } => Self { message: note.clone(), ..Self::default() },
            State::Failed { reason, message, evidence } => Self {
                reason: Some(reason.to_string()),
                message: Some(message.clone()),
                evidence: evidence.clone(),
                ..Self::default()
            },
            State::Superseded { by, rollback: _, newer: Some(newer) } => {
                let (reason, what) = match newer {
                    Newer::Sequence(newer) => {
                        let own = entry.sequence.map(|own| format!(" {own}")).unwrap_or_default();
                        (OLDER_SEQUENCE, format!("the sequence{own} is lower than {newer}"))
                    }
                    Newer::Commit(newer) => {
                        let own = entry.commit.as_ref().map(|own| format!(" {own}")).unwrap_or_default();
                        (OLDER_COMMIT, format!("the commit{own} is older than {newer}"))
                    }
                };
                Self {
                    reason: Some(reason.to_owned()),
                    message: Some(format!("Nothing was deployed: {what}, which revision {by} had brought before.")),
                    superseded_by: Some(*by),
                    ..Self::default()
                }
            }
            State::Superseded { by, rollback, newer: None } => {
                let (code, what) = if *rollback { ("rolled-back", "rollback") } else { (SUPERSEDED, "revision") };
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

/// The revisions of an app that are current and on the cluster, and those that have recovered, from which an entry's marks
/// follow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The newest revision that succeeded.
    pub current: Option<Revision>,
    /// The newest revision that touched the cluster.
    pub on_cluster: Option<Revision>,
    /// The revisions that ended without success, and whose instances ran well afterwards.
    pub recoveries: Vec<Recovery>,
    /// The watches over revisions after their deploys have succeeded.
    pub watches: Vec<deploy::Watch>,
}

impl Standing {
    /// Returns the standing of an app's state.
    pub fn of(state: &AppState) -> Self {
        let current = state.current.as_ref().map(|deploy| deploy.revision);
        let on_cluster = state.on_cluster().map(|deploy| deploy.revision);
        Self { current, on_cluster, recoveries: state.recoveries.clone(), watches: state.watches.clone() }
    }

    /// Reads an app's state and returns its standing, for an entry that was read before and has ended: any other one
    /// may have moved on since.
    ///
    /// # Errors
    /// [`Refusal::AppNotFound`] if the app was deleted; [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn read(deployer: &Deployer, access: &Authorized) -> Result<Self, Refusal> {
        deployer.state(access).await.map(|state| Self::of(&state))
    }
}

/// One entry of an app's history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Deploy {
    /// Project and environment, joined by a hyphen.
    pub namespace: String,
    /// The app's name.
    pub app: String,
    /// The deploy's number.
    #[schemars(with = "u64")]
    pub revision: Revision,
    /// The image; null for a git app until it is built.
    pub image: Option<String>,
    /// The commit that the image was built from, or is to be built from.
    pub commit: Option<String>,
    /// The time of the commit, if whoever asked for the deploy has said it.
    #[serde(default, with = "crate::time::maybe", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::time")]
    pub committed_at: Option<Timestamp>,
    /// The place of the deploy among those of the app's webhook, if the caller has said it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub sequence: Option<Sequence>,
    /// The cause of the deploy.
    #[schemars(schema_with = "schemas::trigger")]
    pub trigger: Trigger,
    /// The service, CI, git host or person that caused the deploy.
    pub actor: String,
    /// The status of the deploy.
    #[schemars(schema_with = "schemas::status")]
    pub status: Status,
    /// Whether this is the newest deploy that succeeded.
    pub current: bool,
    /// Whether this is the newest deploy that touched the cluster.
    pub on_cluster: bool,
    /// Whether the image ran already when the app was registered.
    pub adopted: bool,
    /// The change of the number of instances: `stop` or `start`. Of a stop or a start, of a deploy that superseded one, and
    /// of a return that took one back; absent for every other deploy, which leaves the number as it is.
    #[serde(default, skip_serializing_if = "Scale::is_keep")]
    #[schemars(schema_with = "schemas::scale")]
    pub scale: Scale,
    /// The first digits of the id of the configuration that the deploy runs with; null if none was set through this service.
    /// Entries with the same id have the same variables.
    #[serde(default)]
    pub configuration: Option<String>,
    /// Whether the deploy was made to bring its configuration: it changes it, or returns to an earlier one.
    #[serde(default, skip_serializing_if = "is_false")]
    pub configures: bool,
    /// The deploy's own revision, or the one whose version it is: that a rollback finally returns to, or a redeploy repeats.
    #[schemars(with = "u64")]
    pub effective: Revision,
    /// The deploy that the image was taken from; absent if the image was posted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<TakenFrom>,
    /// The digest of the image: named by the registry before the rollout, or observed running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The labels by which the image says where it comes from; absent if its registry was not asked, or names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Box<ImageLabels>>,
    /// The reason of the end, as a code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The reason of the end, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The revision that superseded this one: a newer one, or, with the reason `older-sequence` or `older-commit`, an earlier one
    /// with a higher sequence or a newer commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub superseded_by: Option<Revision>,
    /// The time by which the instances of a deploy that had ended without success ran well: it is what runs as long as it
    /// is on the cluster.
    #[serde(default, with = "crate::time::maybe", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::time")]
    pub recovered_at: Option<Timestamp>,
    /// The progress of the look-up of the image at its registry, the build, the release command or the rollout; only while one
    /// is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// The knowledge of the entry's release command: `may-have-run`, recorded before its start, or `done` once it ended
    /// without an error. Absent if it has certainly not begun, or there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::release_mark")]
    pub release: Option<ReleaseMark>,
    /// The restore that puts the rollout right; only where the history or one entry is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<Restore>,
    /// What the checks of the app say of the deploy; empty before they are measured, and where there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<CheckOutcome>,
    /// Why the deploy is not verified, or not by all checks that decide, although the app has some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_verified: Option<String>,
    /// The signers of the image, and of its attestation, each as a line; only where the app required it of this deploy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signed_by: Vec<String>,
    /// Why the registry did not name the digest of the image before the rollout: the platform then finds the image as it was posted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_resolved: Option<String>,
    /// A person's decision in the place of checks that came to no verdict: it is waited for, or was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Box<Decision>>,
    /// The watch over the version after the deploy has succeeded; absent without one, and once it is forgotten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch: Option<Box<Watch>>,
    /// The revocation of the deploy's verification, by a check that failed while the version was watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<Revoked>,
    /// The evidence of a failed rollout; where several entries are asked for, the states of several workloads alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::evidence")]
    pub evidence: Option<Evidence>,
    /// The number of changes since the accept.
    pub step: u32,
    /// The time of the accept.
    #[serde(with = "crate::time")]
    #[schemars(schema_with = "schemas::time")]
    pub created_at: Timestamp,
    /// The time of the last change; once the deploy has ended, of its end.
    #[serde(with = "crate::time")]
    #[schemars(schema_with = "schemas::time")]
    pub updated_at: Timestamp,
    /// The path of the history's entry, relative to the server's base URL.
    pub url: String,
}

/// The condition that a reader of an entry waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until<'a> {
    /// The entry is past this many steps, or the progress of its step changes, or has another mark than this one.
    Changed(u32, Option<&'a str>),
    /// The entry has ended.
    Ended,
}

/// The deploy that another deploy's image was taken from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TakenFrom {
    /// The promoted app's namespace; absent if the revision is the app's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The promoted app's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<String>,
    /// The revision that was rolled back to (trigger `rollback`) or promoted (`promotion`), or that was current and is
    /// deployed once more (`manual`, with a lower `effective` revision), or with another configuration (`config`); else the one that the image was built as: a restore took the cluster during the build, so that the image was entered anew behind it.
    #[schemars(with = "u64")]
    pub revision: Revision,
}

impl Deploy {
    /// Returns whether the service returned to this version by itself, as the deploy before failed.
    pub fn is_restore(&self) -> bool {
        self.trigger == Trigger::Rollback && self.actor == "auto"
    }

    /// Returns the newer deploy that decides what has become of this one; `None` for one that a rollback superseded.
    pub fn successor(&self) -> Option<Revision> {
        let is_followed = |reason: &&str| [SUPERSEDED, OLDER_SEQUENCE, OLDER_COMMIT].contains(reason);
        self.superseded_by.filter(|_| self.reason.as_deref().is_some_and(|reason| is_followed(&reason)))
    }

    /// Returns whether the deploy is of the version that was current, once more.
    pub fn is_redeploy(&self) -> bool {
        self.trigger == Trigger::Manual && self.effective < self.revision
    }

    /// Returns the decision of a person that the deploy waits for.
    pub fn awaited_decision(&self) -> Option<&Decision> {
        let decision = self.decision.as_deref().filter(|_| self.status == Status::Verifying)?;
        decision.verdict.is_none().then_some(decision)
    }

    /// Returns whether this restore failed and has recovered since: what runs is the version that it was to bring back.
    pub fn has_restored_late(&self) -> bool {
        self.is_restore() && self.recovered_at.is_some()
    }

    /// Returns whether the deploy comes to a release command by its app's policy, is at it, or came to one.
    pub fn has_release_step(&self, app: &App) -> bool {
        let may_come = !self.status.is_terminal() && !app.policy.release_command.is_empty();
        let has_run = self.trigger == Trigger::Rollback || self.is_redeploy();
        let is_left_out = self.trigger == Trigger::Config && !app.policy.release_on_config;
        self.release.is_some() || self.status == Status::Releasing || may_come && !has_run && !is_left_out
    }

    /// Returns whether the deploy failed at its release command, so that its evidence is the command's.
    pub fn failed_at_release(&self) -> bool {
        let reasons = [Reason::RELEASE_FAILED, Reason::RELEASE_UNKNOWN, Reason::RELEASE_DEADLINE];
        let is_named = self.reason.as_deref().is_some_and(|reason| reasons.contains(&reason));
        self.status == Status::Failed && (is_named || self.release == Some(ReleaseMark::MayHaveRun))
    }

    /// Returns an entry as it is on the wire.
    pub fn of(id: &AppId, entry: &deploy::Deploy, standing: &Standing) -> Self {
        let recovery = standing.recoveries.iter().find(|recovery| recovery.revision == entry.revision);
        let watch = standing.watches.iter().find(|watch| watch.revision == entry.revision);
        let ending = Ending::of(entry);
        Self {
            namespace: id.namespace.to_string(),
            app: id.name.to_string(),
            revision: entry.revision,
            image: entry.image.as_ref().map(ToString::to_string),
            commit: entry.commit.as_ref().map(ToString::to_string),
            committed_at: entry.committed_at,
            sequence: entry.sequence,
            trigger: entry.trigger,
            actor: entry.actor.to_string(),
            status: entry.status(),
            current: standing.current == Some(entry.revision),
            on_cluster: standing.on_cluster == Some(entry.revision),
            adopted: entry.adopted,
            scale: entry.scale,
            configuration: entry.configuration.map(ConfigurationId::short),
            configures: entry.configures,
            effective: entry.effective,
            from: entry.from.as_ref().map(TakenFrom::of),
            digest: entry.digest.as_ref().map(ToString::to_string),
            labels: ImageLabels::of(entry),
            signed_by: entry.signed_by().to_vec(),
            reason: ending.reason,
            message: ending.message,
            superseded_by: ending.superseded_by,
            recovered_at: recovery.map(|recovery| recovery.at),
            progress: None,
            release: entry.release,
            restore: None,
            checks: entry.verification.as_deref().map(CheckOutcome::of).unwrap_or_default(),
            not_verified: entry.not_verified(),
            not_resolved: resolution::not_resolved(entry),
            decision: Decision::of(entry),
            watch: watch.map(Watch::of).map(Box::new),
            revoked: watch.and_then(Revoked::of),
            evidence: ending.evidence,
            step: entry.step,
            created_at: entry.created_at,
            updated_at: entry.updated_at,
            url: ShowDeploy::ENDPOINT.path_of(&(id.clone(), entry.revision)),
        }
    }

    /// Returns an entry with the progress of its rollout, by the app's state of the same time.
    pub fn shown(deployer: &Deployer, state: &AppState, entry: &deploy::Deploy) -> Self {
        let progress = Progress::shown(entry, deployer.progress(state, entry).as_ref());
        Self { progress, ..Self::of(&state.app.id, entry, &Standing::of(state)) }
    }

    /// Returns an entry with its progress and its restore: at once if `limit` is zero, else as [`Until`] says, but after
    /// `limit` at the latest. An entry that has ended before the call is waited for until the restore that it owes exists.
    ///
    /// # Errors
    /// As [`Deployer::changed`] and [`Deployer::wait_for_restore`].
    pub async fn read(
        deployer: &Deployer,
        access: &Authorized,
        revision: Revision,
        (until, limit): (Until<'_>, Duration),
    ) -> Result<Self, Refusal> {
        let (mut state, mut entry) = deployer.entry_and_state(access, revision).await?;
        let mut restore_limit = limit;
        if !entry.is_terminal() {
            // An end is returned at once: the restore is the next call's.
            restore_limit = Duration::ZERO;
            (state, entry) = match until {
                _ if limit.is_zero() => (state, entry),
                Until::Changed(seen, _) if entry.step > seen => (state, entry),
                Until::Changed(seen, mark) => deployer.progressed(access, revision, (seen, mark), limit).await?,
                // No entry has so many steps.
                Until::Ended => deployer.changed(access, revision, u32::MAX, limit).await?,
            };
        }
        let restoration = deployer.wait_for_restore(access, &entry, restore_limit).await?;
        Ok(Self::shown(deployer, &state, &entry).restored(&restoration))
    }

    /// Returns the entry with its restore.
    #[must_use]
    pub fn restored(self, restoration: &Restoration) -> Self {
        let restore = Restore::of(&self, restoration);
        Self { restore, ..self }
    }

    /// Returns the entry as lists show it: of its evidence the states of several workloads alone.
    #[must_use]
    pub fn without_evidence(mut self) -> Self {
        self.evidence = self.evidence.as_ref().and_then(Evidence::of_workloads);
        let watched = self.watch.iter_mut().flat_map(|watch| &mut watch.checks);
        for check in self.checks.iter_mut().chain(watched) {
            let surplus = check.measurements.len().saturating_sub(1);
            check.measurements.drain(..surplus);
        }
        self
    }
}

/// Returns whether a flag is left out on the wire.
pub(crate) fn is_false(flag: &bool) -> bool {
    !flag
}

impl TakenFrom {
    fn of(origin: &Origin) -> Self {
        match origin {
            Origin::Revision(revision) | Origin::Same(revision) | Origin::Built(revision) => {
                Self { namespace: None, app: None, revision: *revision }
            }
            Origin::Promoted { app, revision } => Self {
                namespace: Some(app.namespace.to_string()),
                app: Some(app.name.to_string()),
                revision: *revision,
            },
        }
    }
}

/// A part of an app's history, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeployList {
    /// The entries, of whose evidence the states of several workloads alone.
    pub deploys: Vec<Deploy>,
    /// The value of `before` for the next part, which is older; absent at the end of the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub next: Option<Revision>,
}
