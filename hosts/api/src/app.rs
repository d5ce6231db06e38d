//! Apps: registering, showing and changing them, and their webhooks.

use std::fmt;

use rollhook_core::{
    app::{self, AppId, HoldPolicy, OnFailure, Settings, Source},
    deploy::Revision,
    image::Repositories,
    ledger::AppState,
    ports::{Sealing, WebhookSecret},
    request::{Field, PolicyChange, Refusal, Registration},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::{
    deploy::{Deploy, Standing},
    duration, path,
    polling::Polling,
    source::{GitChoice, SourcePatch},
};

/// An app to be registered: the body of `POST /api/v1/apps`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CreateApp {
    /// Its project.
    pub project: String,
    /// The project's environment.
    pub environment: String,
    /// Its name.
    pub app: String,
    /// Where it is built, for an app that is built from git; without, CI builds its images.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git: Option<GitChoice>,
    /// What its deploys change, as the server's rollout driver knows it.
    pub workload: Settings,
    /// The image to start with where there is no workload yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// How to make the workload where there is none: another of its settings, by the name `template`.
    pub template: Settings,
    /// What differs from the default policy.
    pub policy: PolicyPatch,
    /// Whether another registration's stamp on the workload may be overwritten.
    pub take_over: bool,
}

/// The setting of a target that stands beside its others on the wire, and is not shown: it may be long, and hold secrets.
const TEMPLATE: &str = "template";

impl CreateApp {
    /// The registration that is asked for.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`], naming the field.
    pub fn parse(self) -> Result<Registration, Refusal> {
        let mut target = self.workload;
        if !self.template.is_empty() {
            target.insert(TEMPLATE.to_owned(), self.template.into());
        }
        Ok(Registration {
            project: field(Field::Project, self.project.parse())?,
            environment: field(Field::Environment, self.environment.parse())?,
            name: field(Field::App, self.app.parse())?,
            source: self.git.map_or(Ok(Source::Image), |git| git.parse().map(Source::Git))?,
            target,
            image: field(Field::Image, self.image.as_deref().map(str::parse).transpose())?,
            policy: self.policy.parse()?.apply(app::Policy::default()),
            take_over: self.take_over,
        })
    }
}

pub(crate) fn field<T, E: fmt::Display>(name: Field, parsed: Result<T, E>) -> Result<T, Refusal> {
    parsed.map_err(|why| Refusal::InvalidField(name, format!("{why}.")))
}

/// What an app's owner decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// After a failed rollout: `restore` or `leave`.
    pub on_failure: OnFailure,
    /// What a rollback's hold refuses: `automatic` triggers, or `all`.
    pub hold: HoldPolicy,
    /// How long new pods must stay ready before a deploy counts as succeeded.
    pub settle: String,
    /// How long a rollout may take.
    pub rollout_deadline: String,
    /// How long a build may take.
    pub build_deadline: String,
    /// The image repositories that a webhook may deploy from; empty: any.
    pub repositories: Vec<String>,
    /// How often a git app's branch is looked at for changes, or `off`.
    #[serde(default = "off")]
    pub poll: String,
}

/// The word for what does not happen.
const OFF: &str = "off";

fn off() -> String {
    OFF.to_owned()
}

impl Policy {
    /// The policy's wire form.
    pub fn of(policy: &app::Policy) -> Self {
        Self {
            on_failure: policy.on_failure,
            hold: policy.hold,
            settle: duration::format(policy.settle),
            rollout_deadline: duration::format(policy.rollout_deadline),
            build_deadline: duration::format(policy.build_deadline),
            repositories: policy.repositories.as_slice().to_vec(),
            poll: policy.poll.map_or_else(off, duration::format),
        }
    }
}

/// A change of some of an app's policy; what is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyPatch {
    /// See [`Policy::on_failure`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<String>,
    /// See [`Policy::hold`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<String>,
    /// See [`Policy::settle`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settle: Option<String>,
    /// See [`Policy::rollout_deadline`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout_deadline: Option<String>,
    /// See [`Policy::build_deadline`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build_deadline: Option<String>,
    /// See [`Policy::repositories`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repositories: Option<Vec<String>>,
    /// See [`Policy::poll`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub poll: Option<String>,
}

impl PolicyPatch {
    /// The change that is asked for.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`], naming the field.
    pub fn parse(self) -> Result<PolicyChange, Refusal> {
        let length = |name, text: Option<String>| {
            text.map(|text| duration::parse(&text).ok_or(duration::RULE))
                .transpose()
                .map_err(|rule| invalid(name, rule))
        };
        let on_failure = self.on_failure.map(|word| match word.as_str() {
            "restore" => Ok(OnFailure::Restore),
            "leave" => Ok(OnFailure::Leave),
            _ => Err(invalid(Field::PolicyOnFailure, "must be restore or leave")),
        });
        let hold = self.hold.map(|word| match word.as_str() {
            "automatic" => Ok(HoldPolicy::Automatic),
            "all" => Ok(HoldPolicy::All),
            _ => Err(invalid(Field::PolicyHold, "must be automatic or all")),
        });
        Ok(PolicyChange {
            on_failure: on_failure.transpose()?,
            hold: hold.transpose()?,
            settle: length(Field::PolicySettle, self.settle)?,
            rollout_deadline: length(Field::PolicyRolloutDeadline, self.rollout_deadline)?,
            build_deadline: length(Field::PolicyBuildDeadline, self.build_deadline)?,
            repositories: field(Field::PolicyRepositories, self.repositories.map(Repositories::try_from).transpose())?,
            poll: match self.poll {
                Some(word) if word == OFF => Some(None),
                text => length(Field::PolicyPoll, text)?.map(Some),
            },
        })
    }
}

fn invalid(name: Field, rule: &str) -> Refusal {
    Refusal::InvalidField(name, format!("{rule}."))
}

/// A change of an app, as a JSON merge patch (RFC 7396) of what `GET` shows: the body of `PATCH /api/v1/apps/{ns}/{app}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AppPatch {
    /// Its policy.
    #[serde(default)]
    pub policy: PolicyPatch,
    /// A git app's source.
    #[serde(default, skip_serializing_if = "SourcePatch::is_empty")]
    pub source: SourcePatch,
}

/// An app and where it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct App {
    /// Project and environment, joined.
    pub namespace: String,
    /// Its name.
    pub app: String,
    /// Its project.
    pub project: String,
    /// The project's environment.
    pub environment: String,
    /// Which registration of that name this is.
    pub uid: String,
    /// Where its images come from.
    pub source: Source,
    /// What its deploys change, as the server's rollout driver knows it.
    pub workload: Settings,
    /// What its owner decided.
    pub policy: Policy,
    /// What people rolled away from, oldest first.
    pub holds: Vec<Hold>,
    /// The newest deploy that succeeded: what runs.
    pub current: Option<Deploy>,
    /// The newest deploy that touched the cluster; another than `current` where that one has not succeeded.
    pub on_cluster: Option<Deploy>,
    /// The revisions that have not ended, ascending.
    pub unfinished: Vec<Revision>,
    /// The last look at its branch, where the server that was asked is the one that polls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub polling: Option<Polling>,
    /// What its owner should decide, where one app is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// When it was registered.
    #[serde(with = "crate::time")]
    pub created_at: Timestamp,
}

/// What a person rolled away from; automation does not bring it back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// The rollback that set it.
    pub by: Revision,
    /// The image that ran.
    pub image: Option<String>,
    /// Its digest, where it was observed.
    pub digest: Option<String>,
    /// The commit that ran.
    pub commit: Option<String>,
}

impl App {
    /// The app of a state. Entries come without their evidence, which is shown one entry at a time.
    pub fn of(view: &AppState) -> Self {
        let app = &view.app;
        let standing = Standing::of(view);
        let entry = |deploy: &std::sync::Arc<rollhook_core::deploy::Deploy>| {
            Deploy::of(&app.id, deploy, standing).without_evidence()
        };
        Self {
            namespace: app.id.namespace.to_string(),
            app: app.id.name.to_string(),
            project: app.project.to_string(),
            environment: app.environment.to_string(),
            uid: app.uid.to_string(),
            source: app.source.clone(),
            workload: shown(&app.target.settings),
            policy: Policy::of(&app.policy),
            holds: app.holds.iter().map(Hold::of).collect(),
            current: view.current.as_ref().map(entry),
            on_cluster: view.on_cluster().map(entry),
            unfinished: view.unfinished.iter().map(|deploy| deploy.revision).collect(),
            polling: None,
            warning: None,
            created_at: app.created_at,
        }
    }

    /// The app's path below the server's base URL.
    pub fn path(&self) -> String {
        format!("/api/v1/apps/{}/{}", self.namespace, self.app)
    }
}

fn shown(settings: &Settings) -> Settings {
    let mut settings = settings.clone();
    settings.remove(TEMPLATE);
    settings
}

impl Hold {
    fn of(hold: &app::Hold) -> Self {
        Self {
            by: hold.by,
            image: hold.image.as_ref().map(ToString::to_string),
            digest: hold.digest.as_ref().map(ToString::to_string),
            commit: hold.commit.as_ref().map(ToString::to_string),
        }
    }
}

/// A part of the list of apps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppList {
    /// By namespace, then name.
    pub apps: Vec<App>,
    /// What to pass as `after` for the part that follows; none where this is the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// The answer to a registration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// The app.
    pub app: App,
    /// Revision 1: what runs already, or what the workload is made with; none where a git app's first build makes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deploy: Option<Deploy>,
    /// Whether the workload existed, so that nothing is patched.
    pub adopted: bool,
}

/// An app's webhook with its secret; `Debug` does not show it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Webhook {
    /// Where CI posts to.
    pub url: String,
    /// The secret.
    pub token: String,
    /// The key of Standard Webhooks that follows from it, `whsec_` and base64, for git hosts that sign so: as secret.
    #[serde(default)]
    pub signing_key: String,
    /// When it was made.
    #[serde(with = "crate::time")]
    pub created_at: Timestamp,
    /// Who keeps it from being read where it is stored: `sealed`, `cluster` or `memory`.
    pub sealing: String,
    /// What a person should know about that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Webhook {
    /// The wire form of a secret, for a server that is reached at `base_url`.
    pub fn of(base_url: &str, id: &AppId, secret: &WebhookSecret, sealing: Sealing) -> Self {
        let (word, note) = match sealing {
            Sealing::Sealed => ("sealed", None),
            Sealing::Cluster => (
                "cluster",
                Some(
                    "The token is kept as the cluster keeps Secrets: it is sealed only if the cluster encrypts them at rest.",
                ),
            ),
            Sealing::Memory => ("memory", Some("The token is kept in memory only and is gone when the server stops.")),
        };
        Self {
            url: format!("{}{}", base_url.trim_end_matches('/'), path::webhook(id)),
            token: secret.token.expose().to_owned(),
            signing_key: secret.token.signing_key().expose().to_string(),
            created_at: secret.created_at,
            sealing: word.to_owned(),
            note: note.map(str::to_owned),
        }
    }
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook")
            .field("url", &self.url)
            .field("created_at", &self.created_at)
            .field("sealing", &self.sealing)
            .finish_non_exhaustive()
    }
}
