//! Apps: registering, showing and changing them.

mod policy;
mod webhook;

use std::{fmt, marker::PhantomData, str::FromStr};

pub(crate) use policy::word;
pub use policy::{Policy, PolicyPatch};
pub use rollhook_core::app::Hold;
use rollhook_core::{
    app::{self, LABEL_MAX, Settings, Source},
    deploy::{Revision, Sequence},
    ledger::{self, AppState},
    request::{Field, Refusal, Registration},
    service::Condition,
    text::escaped,
    time::Timestamp,
};
use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{MapAccess, Visitor, value::MapAccessDeserializer},
};
pub use webhook::{Rotate, Webhook};

use crate::{
    deploy::{Deploy, Standing, Stopped},
    lock::Lock,
    openapi::schemas,
    polling::Polling,
    requirement::RequirementOnApp,
    source::{GitChoice, SourcePatch},
    template::{self, TEMPLATE},
    workload::{WorkloadPatch, WorkloadState},
};

/// A registration: the body of `POST /api/v1/apps`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["project", "environment", "app"]))]
pub struct CreateApp {
    /// The app's project.
    #[schemars(extend("pattern" = schemas::LABEL, "maxLength" = LABEL_MAX))]
    pub project: String,
    /// The project's environment.
    #[schemars(extend("pattern" = schemas::LABEL, "maxLength" = LABEL_MAX))]
    pub environment: String,
    /// The app's name.
    #[schemars(extend("pattern" = schemas::LABEL, "maxLength" = LABEL_MAX))]
    pub app: String,
    /// The source of an app that rollhook builds; absent for an app whose images CI builds.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "optional_object")]
    pub git: Option<GitChoice>,
    /// The workload that deploys change, in the settings of the server's rollout driver.
    #[schemars(schema_with = "schemas::workload")]
    pub workload: Settings,
    /// The first image of a workload that does not exist yet; the path of its repository is at most 255 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = schemas::image()))]
    pub image: Option<String>,
    /// The template of a workload that does not exist yet: the driver's setting `template`.
    #[schemars(schema_with = "schemas::template")]
    pub template: Settings,
    /// The differences from the default policy.
    #[serde(deserialize_with = "object")]
    pub policy: PolicyPatch,
    /// Whether another registration's deploy id on the workload may be overwritten.
    pub take_over: bool,
    /// Whether a workload that exists is registered as it is, although `image` and `template` say how a new one is made.
    pub adopt: bool,
}

impl CreateApp {
    /// Returns the registration.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`], naming the field.
    pub fn parse(self) -> Result<Registration, Refusal> {
        let mut target = self.workload;
        if !self.template.is_empty() {
            target.insert(TEMPLATE.to_owned(), self.template.into());
        }
        let project = field(Field::Project, self.project.parse())?;
        let environment = field(Field::Environment, self.environment.parse())?;
        let mut app = Registration::new(project, environment, field(Field::App, self.app.parse())?);
        if let Some(git) = self.git {
            app.source = Source::Git(git.parse()?);
        }
        app.target = target;
        app.image = optional(Field::Image, self.image.as_deref())?;
        app.policy = self.policy.parse()?.apply(app::Policy::default())?;
        app.take_over = self.take_over;
        app.adopt = self.adopt;
        Ok(app)
    }
}

pub(crate) fn field<T, E: fmt::Display>(name: Field, parsed: Result<T, E>) -> Result<T, Refusal> {
    parsed.map_err(|why| Refusal::InvalidField(name, format!("{why}.")))
}

pub(crate) fn invalid(name: Field, rule: &str) -> Refusal {
    Refusal::InvalidField(name, format!("{rule}."))
}

pub(crate) fn optional<T>(name: Field, given: Option<&str>) -> Result<Option<T>, Refusal>
where
    T: FromStr<Err: fmt::Display>,
{
    field(name, given.map(str::parse).transpose())
}

/// A JSON object: a derived type alone takes the members as an array too, by their order.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        struct Members<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Members<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(members))
            }
        }

        json.deserialize_map(Members(PhantomData)).map(Self)
    }
}

/// Reads a JSON object, and nothing else.
pub(crate) fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(json: D) -> Result<T, D::Error> {
    Object::deserialize(json).map(|Object(read)| read)
}

fn optional_object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(json: D) -> Result<Option<T>, D::Error> {
    Ok(Option::<Object<T>>::deserialize(json)?.map(|Object(read)| read))
}

/// A change of an app, as a JSON merge patch (RFC 7396) of what `GET` shows: the body of
/// `PATCH /api/v1/apps/{ns}/{app}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("minProperties" = 1))]
pub struct AppPatch {
    /// The change of the policy.
    #[serde(default, deserialize_with = "object")]
    pub policy: PolicyPatch,
    /// The change of a git app's source.
    #[serde(default, skip_serializing_if = "SourcePatch::is_empty", deserialize_with = "object")]
    pub source: SourcePatch,
    /// The change of the workload's settings.
    #[serde(default, skip_serializing_if = "WorkloadPatch::is_empty", deserialize_with = "object")]
    pub workload: WorkloadPatch,
    /// Whether deploys may overwrite the deploy id of another registration that the workload carries now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub take_over: bool,
}

impl AppPatch {
    /// Returns the names of what is changed, for the audit: values may be secret.
    pub fn remark(&self) -> String {
        let value = serde_json::to_value(self).unwrap_or_default();
        let mut names = Vec::new();
        for (name, value) in value.as_object().into_iter().flatten() {
            match value.as_object() {
                Some(members) => names.extend(members.keys().map(|member| format!("{name}.{member}"))),
                None => names.push(name.clone()),
            }
        }
        format!("set {}", escaped(&names.join(", ")))
    }
}

/// An app and its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct App {
    /// Project and environment, joined by a hyphen.
    pub namespace: String,
    /// The app's name.
    pub app: String,
    /// The app's project.
    pub project: String,
    /// The project's environment.
    pub environment: String,
    /// The id of the registration: a name that is registered again has another.
    pub uid: String,
    /// The source of the app's images.
    #[schemars(schema_with = "schemas::source")]
    pub source: Source,
    /// The workload that deploys change, in the settings of the server's rollout driver; in a list its `kind` and `name`
    /// alone.
    #[schemars(schema_with = "schemas::workload")]
    pub workload: Settings,
    /// The settings by which the workload is made where it does not exist; of environment variables and labels the names
    /// alone. Absent if the workload existed, and in a list.
    #[serde(default, skip_serializing_if = "Settings::is_empty")]
    #[schemars(schema_with = "schemas::shown_template")]
    pub template: Settings,
    /// The app's policy.
    pub policy: Policy,
    /// The images and commits that people rolled away from, oldest first; automation does not bring them back.
    #[schemars(schema_with = "schemas::holds")]
    pub holds: Vec<Hold>,
    /// The locks that refuse new deploys.
    #[serde(default)]
    pub locks: Vec<Lock>,
    /// The requirements of the project and of the environment, which its images must meet beside the policy's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requirements: Vec<RequirementOnApp>,
    /// The newest deploy that succeeded.
    pub current: Option<Deploy>,
    /// The newest deploy that touched the cluster; not `current` if that deploy has not succeeded.
    pub on_cluster: Option<Deploy>,
    /// The newest deploy, whatever its status, but for those whose sequence was lower than an earlier one's.
    #[serde(default)]
    pub newest: Option<Deploy>,
    /// The stop of the app; absent while it is not stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Stopped>,
    /// The highest sequence that the app's webhook has brought since it was enabled: a webhook's deploy with a lower one
    /// changes nothing. Absent as long as none has come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub highest_sequence: Option<Sequence>,
    /// The revisions that have not ended, ascending.
    #[schemars(with = "Vec<u64>")]
    pub unfinished: Vec<Revision>,
    /// The newest 50 revisions whose release commands may have run, ascending; only where one app is asked for. A rollback
    /// to an earlier revision leaves what they changed, such as the schema of a database, as it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub released: Vec<Released>,
    /// The image that the workload is set to, as it stands there; absent as far as it is not known. It may be another name of the
    /// same bits than the deploy's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_image: Option<String>,
    /// The change that another party made to the workload since `current`; absent as far as none is
    /// known. A deploy or a rollback to `current` puts it right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<Drift>,
    /// The Secrets and ConfigMaps that the workload reads without rollhook, as far as they were changed since the deploy on it began,
    /// or that is not known; absent if there are none. What runs is left as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub references: Option<References>,
    /// The trouble of what runs, since its deploy ended: it crashes again and again, or instances are missing for longer
    /// than the app's patience; absent as far as none is known. It ends by itself once the instances have recovered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub degraded: Option<Degraded>,
    /// The workloads of an app that has several, each with its state since the deploy ended; absent as far as they were not
    /// looked at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workloads: Vec<WorkloadState>,
    /// The last reading of the app's branch, if the server that answers is the one that polls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub polling: Option<Polling>,
    /// A decision that the app's owner should make; only where one app is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// What the owner should know of the workload as it was changed, in sentences; only in the answer to a change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The time of the registration.
    #[serde(with = "crate::time")]
    #[schemars(schema_with = "schemas::time")]
    pub created_at: Timestamp,
}

impl App {
    /// Returns the app of a state, with the locks that are in force now. Its entries lack their evidence, which is shown
    /// one entry at a time.
    pub fn of(state: &AppState, now: Timestamp) -> Self {
        let app = &state.app;
        let standing = Standing::of(state);
        let entry = |deploy: &std::sync::Arc<rollhook_core::deploy::Deploy>| {
            Deploy::of(&app.id, deploy, &standing).without_evidence()
        };
        Self {
            namespace: app.id.namespace.to_string(),
            app: app.id.name.to_string(),
            project: app.project.to_string(),
            environment: app.environment.to_string(),
            uid: app.uid.to_string(),
            source: app.source.clone(),
            workload: shown(&app.target.settings),
            template: template::shown(&app.target.settings),
            policy: Policy::of(&app.policy),
            holds: app.holds.clone(),
            locks: app.locks.in_force(now).map(|(scope, lock)| Lock::of(scope, lock)).collect(),
            requirements: RequirementOnApp::all(app),
            current: state.current.as_ref().map(entry),
            on_cluster: state.on_cluster().map(entry),
            newest: state.newest().map(entry),
            stopped: state.stopped.as_ref().map(Stopped::of),
            highest_sequence: state.highest_sequence.map(|highest| highest.sequence),
            unfinished: state.unfinished.iter().map(|deploy| deploy.revision).collect(),
            released: state.released.iter().map(Released::of).collect(),
            workload_image: None,
            drift: None,
            references: None,
            degraded: None,
            workloads: Vec::new(),
            polling: None,
            warning: None,
            notes: Vec::new(),
            created_at: app.created_at,
        }
    }

    /// Returns the app as lists show it: without the settings of its workload but those that name it, which are most of
    /// what a long list would take in memory.
    #[must_use]
    pub fn listed(self) -> Self {
        let names = ["kind", "name"];
        let workload = self.workload.into_iter().filter(|(name, _)| names.contains(&name.as_str())).collect();
        Self {
            workload,
            template: Settings::new(),
            released: Vec::new(),
            workloads: Vec::new(),
            references: None,
            ..self
        }
    }

    /// Returns the revisions above this one whose release commands may have run, ascending.
    pub fn released_since(&self, target: Revision) -> impl DoubleEndedIterator<Item = &Released> {
        self.released.iter().filter(move |released| released.revision > target)
    }

    /// Returns the app with what is known of its target at rest.
    #[must_use]
    pub fn in_condition(self, condition: &Condition) -> Self {
        Self {
            workload_image: condition.image.as_ref().map(ToString::to_string),
            drift: condition.drift.as_ref().map(Drift::of),
            references: References::of(&condition.references),
            degraded: condition.degraded.as_ref().map(Degraded::of),
            workloads: condition.workloads.iter().map(WorkloadState::of).collect(),
            ..self
        }
    }

    /// Returns the deploy on the cluster if the app runs something else than `current` because of it: not if it is the
    /// restore of `current`, and has recovered.
    pub fn beside_current(&self) -> Option<&Deploy> {
        self.on_cluster.as_ref().filter(|deploy| !deploy.current && !deploy.has_restored_late())
    }

    /// Returns whether the app runs a version that the service returned to, as the deploy before failed.
    pub fn is_restored(&self) -> bool {
        self.current.as_ref().is_some_and(Deploy::is_restore)
    }

    /// Returns the newest deploy if it ended without success before it touched the cluster, as one whose build failed:
    /// neither `current` nor `on_cluster` tells of it.
    pub fn ended_off_cluster(&self) -> Option<&Deploy> {
        self.newest.as_ref().filter(|deploy| deploy.status.is_terminal() && !deploy.current && !deploy.on_cluster)
    }

    /// Returns the settings by which the workload is made, a line each, by the words of their flags.
    pub fn template_lines(&self) -> Vec<String> {
        template::lines(&self.template)
    }

    /// Returns the app's path below the server's base URL.
    pub fn path(&self) -> String {
        format!("/api/v1/apps/{}/{}", self.namespace, self.app)
    }
}

/// A revision whose release command may have run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Released {
    /// The revision.
    #[schemars(with = "u64")]
    pub revision: Revision,
    /// The time at which the command may have begun.
    #[serde(with = "crate::time")]
    #[schemars(schema_with = "schemas::time")]
    pub at: Timestamp,
}

impl Released {
    /// Returns the revision as it is on the wire.
    pub fn of(released: &ledger::Released) -> Self {
        Self { revision: released.revision, at: released.at }
    }
}

/// A change of the workload that the current deploy did not make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Drift {
    /// The image that the workload is set to; `null` if it is the deploy's, or not known.
    pub image: Option<String>,
    /// The change, and its author where known.
    pub message: String,
}

impl Drift {
    /// Returns what the rollout driver has reported.
    pub fn of(drift: &rollhook_core::ports::Drift) -> Self {
        Self { image: drift.image.as_ref().map(ToString::to_string), message: drift.message.clone() }
    }
}

/// What has become of the Secrets and ConfigMaps of others that a workload reads, since its deploy began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct References {
    /// Those that were changed, made anew or removed, such as `ConfigMap settings`.
    pub changed: Vec<String>,
    /// Those of which that is not known.
    pub unknown: Vec<String>,
}

impl References {
    /// Returns what the rollout driver has told; `None` if there is nothing to show.
    pub fn of(references: &rollhook_core::ports::References) -> Option<Self> {
        let rollhook_core::ports::References { changed, unknown } = references.clone();
        (!references.is_empty()).then_some(Self { changed, unknown })
    }

    /// Returns a sentence about those that were changed; `None` if none was.
    pub fn changed_sentence(&self) -> Option<String> {
        let names = self.changed.join(", ");
        (!names.is_empty()).then(|| format!("Changed since this revision began: {names}."))
    }

    /// Returns a sentence about those of which it is not known whether they were changed; `None` if there are none.
    pub fn unknown_sentence(&self) -> Option<String> {
        let names = self.unknown.join(", ");
        (!names.is_empty()).then(|| format!("Not known whether changed since this revision began: {names}."))
    }
}

/// A trouble of what runs on an app's workload, since its deploy ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Degraded {
    /// The trouble, as a code.
    pub reason: String,
    /// The trouble, as a sentence.
    pub message: String,
    /// The time since which it is known.
    #[serde(with = "crate::time")]
    #[schemars(schema_with = "schemas::time")]
    pub since: Timestamp,
}

impl Degraded {
    /// Returns what was observed.
    pub fn of(degraded: &rollhook_core::engine::health::Degraded) -> Self {
        Self { reason: degraded.reason.to_string(), message: degraded.message.clone(), since: degraded.since }
    }
}

fn shown(settings: &Settings) -> Settings {
    let mut settings = settings.clone();
    settings.remove(TEMPLATE);
    settings
}

/// A part of the list of apps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AppList {
    /// The apps, by namespace, then name.
    pub apps: Vec<App>,
    /// The names of the apps that are stored and cannot be read; the server's log says why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
    /// The value of `after` for the next part; absent at the end of the list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// The answer to a registration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Registered {
    /// The registered app.
    pub app: App,
    /// Revision 1: the image that runs already, or the first image of the workload; absent if the first build makes the
    /// workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deploy: Option<Deploy>,
    /// Whether the workload existed; then nothing is patched.
    pub adopted: bool,
    /// The fields of the request that say how to make the workload, and were not used because it existed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored: Vec<String>,
    /// What the owner should know of this workload's deploys, in sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}
