//! Requests of people and CI, put to one replica.

use std::{sync::Arc, time::Duration};

use rollhook_conformance::samples::settings;
use rollhook_core::{
    action::Action,
    app::{AppId, AppUid, FullName, HoldPolicy, OnFailure, Policy, Settings, Source},
    configuration::{Variable, VariablesChange},
    delivery::Delivery,
    deploy::{Actor, Commit, Deploy, Revision, Ruling, Sequence},
    follow::PushedImage,
    lock::PrincipalKey,
    ports::WebhookSecret,
    request::{
        ConfigureRequest, DeployRequest, IdempotencyKey, KeyHeader, PolicyChange, PromoteRequest, RedeployRequest,
        Refusal, Registration, RollbackRequest, RunRequest, ScaleRequest, SourceChange, TargetChange,
    },
    requirement::ScopedRequirement,
    service::{Accepted, Configured, Deployer, Hinted, NewLock, Outcome, Pushed},
    token::{Credentials, Token},
};
use serde_json::json;

use crate::{choices::Kind, images::image, replica::POLL, signatures::signed_by, sources, workloads::Also};

/// Where the apps are: the third wants the first one's workload.
const APPS: [(&str, &str); 3] = [("test", "api"), ("prod", "api"), ("test", "other")];

/// The name of an app.
pub(crate) fn id(app: usize) -> AppId {
    let (environment, name) = APPS[app];
    format!("shop-{environment}/{name}").parse().unwrap()
}

fn full_name(app: usize) -> FullName {
    let (environment, name) = APPS[app];
    FullName {
        project: "shop".parse().unwrap(),
        environment: environment.parse().unwrap(),
        name: name.parse().unwrap(),
    }
}

/// The first workload of all of them, in their namespaces.
pub(crate) const WORKLOAD: &str = "api";

/// A call with everything it needs, so that it can be repeated.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "there are few of them")]
pub(crate) enum Request {
    Post(Token, DeployRequest),
    /// A git host tells of a push.
    Push(Token, Delivery, Option<IdempotencyKey>),
    /// Only whether a token is let in.
    Probe(Token),
    Deploy(AppId, DeployRequest),
    /// What runs is deployed once more.
    Redeploy(AppId, RedeployRequest),
    Scale(AppId, ScaleRequest),
    Configure(AppId, ConfigureRequest),
    Rollback(AppId, RollbackRequest),
    /// A command is run by hand, which ends well, fails, or never ends by itself.
    Run(AppId, RunRequest),
    /// The newest run by hand is to end.
    EndRun(AppId),
    Cancel(AppId, Revision),
    Decide(AppId, Revision, Ruling),
    Promote(Option<IdempotencyKey>),
    Release,
    Rebuild(AppId, Option<Commit>, Option<IdempotencyKey>),
    Source(AppId, SourceChange),
    /// Changes the further workloads of an app.
    Workloads(AppId, Also),
    /// Locks an app, or ends its lock.
    Lock(AppId, Option<NewLock>),
    Policy(AppId, PolicyChange),
    /// The requirement of an app's environment or project comes to it.
    Require(AppId, ScopedRequirement),
    /// The registry tells an app of a push.
    Hint(AppId),
    Enable,
    Disable,
    Delete(AppId),
    Register(usize, bool, Kind, Also),
}

/// The answer to a call.
#[derive(Debug)]
pub(crate) enum Answer {
    Accepted(AppUid, Accepted),
    /// With the first revision, where there is one.
    Registered(AppUid, Option<Deploy>),
    Token(WebhookSecret),
    Cancelled(AppUid, Deploy),
    Decided(AppUid, Deploy),
    Hinted(Hinted),
    Changed,
    Done,
    /// Nothing was done, for this reason.
    Nothing(String),
}

impl Request {
    /// Asks for it.
    pub(crate) async fn send(self, deployer: Arc<Deployer>, name: String) -> Outcome<Answer> {
        let person = Actor::person(&name);
        let allowed = async |id: &AppId| deployer.allow(person.clone(), id, Action::ALL).await;
        let first = id(0);
        match self {
            Self::Post(token, request) => {
                let access = deployer.authorize(&first, &credentials(&token), b"").await?;
                let accepted = deployer.submit(&access, request).await?;
                Ok(Answer::Accepted(access.uid(), accepted))
            }
            Self::Push(token, delivery, key) => {
                let access = deployer.authorize(&first, &credentials(&token), b"").await?;
                Ok(match deployer.push(&access, &delivery, key).await? {
                    Pushed::Accepted(accepted) => Answer::Accepted(access.uid(), *accepted),
                    Pushed::Ignored(why) => Answer::Nothing(why),
                })
            }
            Self::Probe(token) => deployer.authorize(&first, &credentials(&token), b"").await.map(|_| Answer::Done),
            Self::Deploy(id, request) => {
                let access = allowed(&id).await?;
                let accepted = deployer.submit(&access, request).await?;
                Ok(Answer::Accepted(access.uid(), accepted))
            }
            Self::Redeploy(id, request) => {
                let access = allowed(&id).await?;
                let accepted = deployer.redeploy(&access, request).await?;
                Ok(Answer::Accepted(access.uid(), accepted))
            }
            Self::Scale(id, request) => {
                let access = allowed(&id).await?;
                let accepted = deployer.scale(&access, request).await?;
                Ok(Answer::Accepted(access.uid(), accepted))
            }
            Self::Configure(id, request) => {
                let access = allowed(&id).await?;
                Ok(match deployer.configure(&access, request).await? {
                    Configured::Deploy(accepted) => Answer::Accepted(access.uid(), *accepted),
                    Configured::Staged { .. } => Answer::Changed,
                    Configured::Unchanged => Answer::Nothing("nothing is to be configured".to_owned()),
                    other => Answer::Nothing(format!("{other:?}")),
                })
            }
            Self::Rollback(id, request) => {
                let access = allowed(&id).await?;
                let accepted = deployer.rollback(&access, request).await?;
                Ok(Answer::Accepted(access.uid(), accepted))
            }
            Self::Run(id, request) => {
                let access = allowed(&id).await?;
                deployer.begin_run(&access, request).await.map(|_| Answer::Changed)
            }
            Self::EndRun(id) => {
                let access = allowed(&id).await?;
                let newest = deployer.runs(&access).await?.first().map(|run| run.number);
                match newest {
                    Some(number) => deployer.cancel_run(&access, number).await.map(|_| Answer::Changed),
                    None => Ok(Answer::Nothing("there is no run".to_owned())),
                }
            }
            Self::Cancel(id, revision) => {
                let access = allowed(&id).await?;
                Ok(Answer::Cancelled(access.uid(), deployer.cancel(&access, revision).await?))
            }
            Self::Decide(id, revision, ruling) => {
                let access = allowed(&id).await?;
                Ok(Answer::Decided(access.uid(), deployer.decide(&access, revision, ruling).await?))
            }
            Self::Promote(key) => {
                let access = allowed(&id(1)).await?;
                let accepted = deployer
                    .promote(&access, PromoteRequest::new(full_name(0)).with(|request| request.key = key))
                    .await?;
                Ok(Answer::Accepted(access.uid(), accepted))
            }
            Self::Rebuild(id, commit, key) => {
                let access = allowed(&id).await?;
                let accepted = deployer.rebuild(&access, commit, key).await?;
                Ok(Answer::Accepted(access.uid(), accepted))
            }
            Self::Source(id, change) => {
                let access = allowed(&id).await?;
                let target = TargetChange::default();
                deployer.change(&access, PolicyChange::default(), change, target).await.map(|_| Answer::Changed)
            }
            Self::Workloads(id, also) => {
                let access = allowed(&id).await?;
                let target = TargetChange { settings: settings(json!({ "also": also })), take_over: false };
                let (policy, source) = (PolicyChange::default(), SourceChange::default());
                deployer.change(&access, policy, source, target).await.map(|_| Answer::Changed)
            }
            Self::Release => deployer.release_hold(&allowed(&first).await?).await.map(|_| Answer::Changed),
            Self::Lock(id, wanted) => {
                let access = allowed(&id).await?;
                let present = deployer.state(&access).await?.app.locks.app.clone();
                deployer.set_lock(&access, present, wanted).await.map(|_| Answer::Changed)
            }
            Self::Policy(id, change) => {
                deployer.change_policy(&allowed(&id).await?, change).await.map(|_| Answer::Changed)
            }
            Self::Require(id, place) => {
                let app = deployer.state(&allowed(&id).await?).await?.app;
                deployer.copy_requirement(&app, place).await.map(|()| Answer::Changed)
            }
            Self::Hint(id) => {
                let pushed = PushedImage { repository: "api".to_owned(), tag: None };
                deployer.hint(&allowed(&id).await?, &[pushed]).await.map(Answer::Hinted)
            }
            Self::Enable => deployer.enable_webhook(&allowed(&first).await?).await.map(Answer::Token),
            Self::Disable => deployer.disable_webhook(&allowed(&first).await?).await.map(|()| Answer::Done),
            Self::Delete(id) => deployer.delete(&allowed(&id).await?).await.map(|()| Answer::Done),
            Self::Register(app, take_over, kind, also) => {
                let registered = deployer.register(&person, registration(app, take_over, kind, also), None).await?;
                Ok(Answer::Registered(registered.app.app.uid, registered.deploy))
            }
        }
    }
}

fn credentials(token: &Token) -> Credentials {
    Credentials::token(token.expose().as_bytes())
}

/// A deploy whose commit is its caller's name.
pub(crate) fn deploy(tag: &str, name: &str, key: Option<IdempotencyKey>) -> DeployRequest {
    let commit: Commit = name.parse().unwrap();
    DeployRequest::image(image(tag)).with(|request| {
        request.commit = Some(commit);
        request.key = key;
    })
}

/// The sequence of a post, by the number of its call: of most there is one, which mostly grows, now and then is that of the call
/// before, and now and then is lower than that of some calls before.
pub(crate) fn sequence(call: usize) -> Option<Sequence> {
    let number = 10 * (call as u64 + 10);
    match call % 8 {
        0..3 => None,
        3 => Sequence::new(number - 45),
        4 | 6 => Sequence::new(number - 10),
        _ => Sequence::new(number),
    }
}

/// A change of one of two variables, and of the setting of its name, to a value that no other app has.
pub(crate) fn configure(app: usize, (variable, value): (u8, u8), staged: bool) -> ConfigureRequest {
    let (name, value) = (["A", "B"][usize::from(variable)], format!("{} {value}", id(app)));
    let set = [(name.parse().unwrap(), Variable::new(value.clone(), false))].into();
    let settings = Settings::from_iter([(name.to_owned(), value.into())]);
    ConfigureRequest::default().with(|request| {
        request.change = VariablesChange { set, settings, ..VariablesChange::default() };
        request.staged = staged;
    })
}

/// A command by hand that may take 20 s.
pub(crate) fn run(word: &str, key: Option<IdempotencyKey>) -> RunRequest {
    RunRequest::new(vec![word.to_owned()]).with(|request| {
        request.deadline = Some(Duration::from_secs(20));
        request.key = key;
    })
}

/// A lock for so many seconds.
pub(crate) fn lock(seconds: Option<u8>) -> NewLock {
    NewLock {
        reason: "a freeze".parse().unwrap(),
        owner: PrincipalKey::of("name", &["ops"]),
        ttl: seconds.map(|seconds| Duration::from_secs(seconds.into())),
    }
}

/// The key of a call, which always asks for the same.
pub(crate) fn key(name: &str) -> IdempotencyKey {
    let mut request = [0; 32];
    request[..name.len()].copy_from_slice(name.as_bytes());
    IdempotencyKey::new(KeyHeader::IdempotencyKey, name, request).unwrap()
}

/// Settling times with which deploys run a release command that ends well, fails, or never ends by itself.
pub(crate) const MIGRATES: u8 = 5;
pub(crate) const FAILS: u8 = 6;
pub(crate) const HANGS: u8 = 7;

pub(crate) fn policy(leave: bool, hold_all: bool, settle: u8) -> PolicyChange {
    let word = match settle {
        MIGRATES => Some("migrate"),
        FAILS => Some("fail"),
        HANGS => Some("hang"),
        _ => None,
    };
    PolicyChange {
        on_failure: Some(if leave { OnFailure::Leave } else { OnFailure::Restore }),
        hold: Some(if hold_all { HoldPolicy::All } else { HoldPolicy::Automatic }),
        settle: Some(Duration::from_secs(settle.into())),
        release_command: Some(word.map(str::to_owned).into_iter().collect()),
        release_deadline: Some(Duration::from_secs(20)),
        release_on_config: Some(!hold_all),
        ..PolicyChange::default()
    }
}

/// A change of policy by which a source is looked at now and then, or never.
pub(crate) fn poll(on: bool) -> PolicyChange {
    PolicyChange { poll: Some(on.then_some(POLL)), ..PolicyChange::default() }
}

/// A change of policy by which an app follows the versions of its repository, or not any more.
pub(crate) fn follow(on: bool) -> PolicyChange {
    PolicyChange {
        follow: Some(on.then(|| VERSIONS.parse().unwrap())),
        follow_settle: Some(Duration::from_secs(3)),
        poll: Some(on.then_some(POLL)),
        ..PolicyChange::default()
    }
}

/// A change of policy by which an app's images need a signature, or none any more.
pub(crate) fn sign(signer: Option<u8>) -> PolicyChange {
    let signers = signer.map(|number| signed_by(number).signers().to_vec());
    PolicyChange { signers: Some(signers.unwrap_or_default()), ..PolicyChange::default() }
}

/// The rule of following: the number behind a version's name.
pub(crate) const VERSIONS: &str = r"regex:[a-z0-9]+-(?<n>\d+)";

fn registration(app: usize, take_over: bool, kind: Kind, also: Also) -> Registration {
    let (environment, name) = APPS[app];
    let short = Policy::default().with(|policy| {
        policy.settle = Duration::from_secs(3);
        policy.rollout_deadline = Duration::from_secs(45);
        policy.build_deadline = Duration::from_secs(45);
        policy.release_group = "database".parse().ok();
    });
    let app = Registration::new("shop".parse().unwrap(), environment.parse().unwrap(), name.parse().unwrap());
    app.with(|app| {
        app.source = if kind == Kind::Image { Source::Image } else { Source::Git(sources::source()) };
        app.target = settings(json!({ "name": WORKLOAD, "containers": ["api"], "template": { "replicas": 2 } }));
        if !also.is_empty() {
            app.target.insert("also".to_owned(), json!(also));
        }
        app.image = (kind != Kind::BareGit).then(|| image("v1"));
        app.policy = short;
        app.take_over = take_over;
        app.adopt = true;
    })
}

/// The word of a refusal, for counting.
pub(crate) const fn word(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::Unauthorized => "refused: unauthorized",
        Refusal::NotAllowed(_) => "refused: not allowed",
        Refusal::AppNotFound(_) | Refusal::AppNotFoundIn(_) => "refused: no such app",
        Refusal::RevisionNotFound(_) => "refused: no such revision",
        Refusal::RotatedAlready => "refused: rotated already",
        Refusal::NoWebhook => "refused: no webhook",
        Refusal::AppExists(_) => "refused: the app exists",
        Refusal::NamespaceTaken { .. } => "refused: the namespace is taken",
        Refusal::WrongKind(_) | Refusal::NoBuilder => "refused: wrong kind",
        Refusal::InvalidField(..) | Refusal::InvalidSetting(..) | Refusal::SourceNotAllowed(_) => {
            "refused: invalid field"
        }
        Refusal::ImageNotAllowed { .. } => "refused: image not allowed",
        Refusal::ImageHeld { .. } => "refused: image held",
        Refusal::Locked(_) => "refused: locked",
        Refusal::KeyReused => "refused: key reused",
        Refusal::TooManyUnfinished => "refused: too many unfinished",
        Refusal::NothingToRollBackTo(_) => "refused: nothing to roll back to",
        Refusal::NotRedeployable(_) => "refused: not redeployable",
        Refusal::NotStopped => "refused: not stopped",
        Refusal::CannotBeStopped(_) => "refused: cannot be stopped",
        Refusal::CannotBeConfigured(_) => "refused: cannot be configured",
        Refusal::ConfigurationsFull => "refused: configurations are full",
        Refusal::ConfigurationForgotten(_) => "refused: the configuration is forgotten",
        Refusal::CurrentChanged { .. } => "refused: current changed",
        Refusal::AlreadyEnded(_) => "refused: already ended",
        Refusal::NotAwaited { .. } => "refused: no decision is waited for",
        Refusal::DecidedAlready(..) => "refused: decided already",
        Refusal::Workload(_) => "refused: the workload",
        Refusal::WorkloadTaken(_) => "refused: the workload is taken",
        Refusal::WorkloadExists { .. } => "refused: the workload exists",
        Refusal::Busy => "refused: busy",
        Refusal::StoreUnavailable { maybe_recorded: false } => "refused: the store is away",
        Refusal::StoreUnavailable { maybe_recorded: true } => "refused: may have been recorded",
        Refusal::ClusterUnavailable | Refusal::ClusterDenied(_) => "refused: the cluster is away",
        Refusal::BuilderUnavailable => "refused: the builder is away",
        Refusal::SourceUnavailable { .. } => "refused: the source is away",
        Refusal::VariablesMissing { .. } => "refused: variables are missing",
        Refusal::DeployUnfinished(_) => "refused: a deploy rolls out",
        Refusal::NotReleased { .. } => "refused: without its release command",
        Refusal::ReleaseBetween { .. } => "refused: past release commands",
        Refusal::ConfigurationRevoked { .. } => "refused: a revoked value",
        Refusal::NoReleaseLog(_) => "refused: no log of a release command",
        Refusal::RunUnfinished(_) => "refused: a command by hand goes on",
        Refusal::RunNotFound(_) | Refusal::NoRunLog(_) => "refused: no such run by hand",
        Refusal::RunEnded(_) => "refused: the run by hand has ended",
        Refusal::ImageNotFound { .. }
        | Refusal::RegistryDenied(_)
        | Refusal::RegistryUnavailable { .. }
        | Refusal::NoRegistry => "refused: the image at its registry",
        Refusal::NothingRuns(_) | Refusal::NoCommands => "refused: nothing to run a command with",
        Refusal::CheckNotFound(_) => "refused: no such check",
        Refusal::NoSuchWorkload { .. } => "refused: no such workload",
        Refusal::NoSuchInstance(_) => "refused: no such instance",
        Refusal::NoInstanceLogs => "refused: no logs of instances",
        Refusal::NoBuildLog(_) => "refused: no build log",
        Refusal::StoreRefused(_) => "refused: by the store",
        Refusal::Internal => "refused: internal",
    }
}
