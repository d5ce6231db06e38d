//! The parts that pages share: the frame, times, marks of deploys, entries.

use askama::Template;
use rollhook_api::{
    App, Deploy, ImageLabels, Lock, WorkloadState,
    time::{absolute, ago},
    words::{cause, predicate, short_commit, short_image},
};
use rollhook_core::{
    app::Settings,
    deploy::{Revision, Status, Trigger},
    ports::TargetDescription,
    text::escaped,
    time::Timestamp,
};
use serde_json::Value;

use crate::{
    assets::{self, Paths},
    git_link,
    host::Permissions,
};

/// The values that the frame of every page needs.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) paths: Paths,
    /// The person's name; `None` if nobody is signed in.
    pub(crate) name: Option<String>,
    pub(crate) may: Permissions,
    pub(crate) now: Timestamp,
    /// The words and settings of what is deployed to.
    pub(crate) targets: TargetDescription,
    /// The sentence that every page shows.
    pub(crate) notice: Option<String>,
}

impl Frame {
    /// Returns the frame of a page for someone who is not signed in.
    pub(crate) fn signed_out(now: Timestamp) -> Self {
        Self {
            paths: assets::paths(),
            name: None,
            may: Permissions::default(),
            now,
            targets: TargetDescription::UNKNOWN,
            notice: None,
        }
    }
}

/// A time: relative, with the full one beside it.
#[derive(Clone, Debug, Template)]
#[template(ext = "html", source = r#"<time datetime="{{ at }}" title="{{ full }}">{{ ago }}</time>"#)]
pub(crate) struct When {
    at: String,
    full: String,
    ago: String,
}

impl When {
    pub(crate) fn new(time: Timestamp, now: Timestamp) -> Self {
        Self::with_text(time, ago(time, now))
    }

    /// Returns a time that is shown as this text.
    pub(crate) fn with_text(time: Timestamp, text: String) -> Self {
        Self { full: full(time), ago: text, at: absolute(time) }
    }
}

impl When {
    /// Returns the time in full.
    pub(crate) fn full(&self) -> &str {
        &self.full
    }
}

/// Returns a time in full.
fn full(time: Timestamp) -> String {
    absolute(time).replace('T', " ").replace('Z', " UTC")
}

/// A word with a shape and a colour, each of which would do alone.
#[derive(Clone, Debug, Template)]
#[template(ext = "html", source = r#"<span class="mark {{ tone }}">{{ shape|safe }}<span>{{ word }}</span></span>"#)]
pub(crate) struct Mark {
    pub(crate) tone: &'static str,
    pub(crate) shape: &'static str,
    pub(crate) word: String,
}

macro_rules! shape {
    ($inner:literal) => {
        concat!(r#"<svg class="shape" viewBox="0 0 16 16" aria-hidden="true">"#, $inner, "</svg>")
    };
}

const CHECK: &str = shape!(r#"<circle cx="8" cy="8" r="7"/><path class="cut" d="m4.8 8.3 2.2 2.2 4.3-4.6"/>"#);
const RING: &str =
    shape!(r#"<circle class="line faint" cx="8" cy="8" r="6"/><path class="line turn" d="M8 2a6 6 0 0 1 6 6"/>"#);
const DOTS: &str = shape!(r#"<circle class="line dashed" cx="8" cy="8" r="6"/>"#);
const CROSS: &str = shape!(
    r#"<path d="M5.1 1h5.8L15 5.1v5.8L10.900 15H5.100L1 10.900V5.100z"/><path class="cut" d="m5.600 5.600 4.800 4.800m0-4.800-4.800 4.800"/>"#
);
const SKIP: &str = shape!(r#"<path class="line" d="m4 4 4 4-4 4m5-8 4 4-4 4"/>"#);
const SLASH: &str = shape!(r#"<circle class="line" cx="8" cy="8" r="6"/><path class="line" d="m4 12 8-8"/>"#);
const TRIANGLE: &str = shape!(r#"<path d="M8 1.200 15.600 14.600H.4z"/><path class="cut" d="M8 6v4m0 2v.4"/>"#);
const ARROW: &str = shape!(r#"<path class="line" d="M2.500 8h10.500m-4.200-4.200L13 8l-4.200 4.200"/>"#);
const LOCK: &str = shape!(r#"<path d="M3 7h10v8H3z"/><path class="line" d="M5 7V4.500a3 3 0 0 1 6 0V7"/>"#);

impl Mark {
    /// Returns the mark of a status.
    pub(crate) fn of(deploy: &Deploy) -> Self {
        let (tone, shape, word) = match deploy.status {
            Status::Queued => ("wait", DOTS, "queued"),
            Status::Building => ("busy", RING, "building"),
            Status::Releasing => ("busy", RING, "releasing"),
            Status::RollingOut => ("busy", RING, "rolling out"),
            Status::Verifying if deploy.awaited_decision().is_some() => ("warn", TRIANGLE, "awaits a decision"),
            Status::Verifying => ("busy", RING, "verifying"),
            Status::Succeeded if deploy.current => ("good", CHECK, "succeeded"),
            Status::Succeeded => ("past", CHECK, "succeeded"),
            Status::Failed => ("bad", CROSS, "failed"),
            Status::Superseded => ("past", SKIP, "superseded"),
            Status::Cancelled => ("past", SLASH, "cancelled"),
        };
        Self { tone, shape, word: word.to_owned() }
    }

    pub(crate) fn busy(word: impl Into<String>) -> Self {
        Self { tone: "busy", shape: RING, word: word.into() }
    }

    pub(crate) fn warning(word: impl Into<String>) -> Self {
        Self { tone: "warn", shape: TRIANGLE, word: word.into() }
    }

    pub(crate) fn held(word: impl Into<String>) -> Self {
        Self { tone: "held", shape: LOCK, word: word.into() }
    }

    /// Returns the mark of an answer with this HTTP status.
    pub(crate) fn answer(status: u16, word: String) -> Self {
        let (tone, shape) = match status {
            0..400 => ("good", CHECK),
            400..500 => ("bad", CROSS),
            _ => ("warn", TRIANGLE),
        };
        Self { tone, shape, word }
    }

    pub(crate) fn behind(word: impl Into<String>) -> Self {
        Self { tone: "past", shape: ARROW, word: word.into() }
    }

    pub(crate) fn nothing(word: impl Into<String>) -> Self {
        Self { tone: "past", shape: DOTS, word: word.into() }
    }
}

/// An image: its last part in the foreground, the whole reference at hand.
#[derive(Clone, Debug, Template)]
#[template(
    ext = "html",
    source = r#"<span class="image" title="{{ full }}"><span class="registry">{{ before }}</span><wbr><span class="name">{{ name }}</span></span>"#
)]
pub(crate) struct Image {
    full: String,
    before: String,
    pub(crate) name: String,
}

impl Image {
    pub(crate) fn new(image: &str) -> Self {
        let short = escaped(&short_image(image));
        let (before, name) = match short.rsplit_once('/') {
            Some((before, name)) => (format!("{before}/"), name.to_owned()),
            None => (String::new(), short),
        };
        Self { full: escaped(image), before, name }
    }
}

/// A commit, with its page at the git host if that is known.
#[derive(Clone, Debug)]
pub(crate) struct Commit {
    pub(crate) short: String,
    pub(crate) full: String,
    pub(crate) link: Option<String>,
}

impl Commit {
    /// Returns the commit of an entry; `None` if neither its caller nor its image names one.
    pub(crate) fn of(app: &App, deploy: &Deploy) -> Option<Self> {
        let commit = deploy.shown_commit()?;
        // Labels that do not name the commit may be those of a base image, from another repository.
        let is_named = |labels: &&ImageLabels| labels.commit().is_some() && deploy.other_commit().is_none();
        let labels = deploy.labels.as_deref().filter(is_named);
        let link = git_link::commit(&app.source, labels.and_then(|labels| labels.source.as_deref()), commit);
        Some(Self { short: escaped(&short_commit(commit)), full: escaped(commit), link })
    }
}

/// An entry of the history.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) revision: Revision,
    pub(crate) href: String,
    pub(crate) mark: Mark,
    pub(crate) is_current: bool,
    /// Whether a check failed after the deploy had succeeded.
    pub(crate) is_revoked: bool,
    /// Whether the entry is on the cluster without being current.
    pub(crate) is_on_cluster: bool,
    pub(crate) image: Option<Image>,
    pub(crate) commit: Option<Commit>,
    pub(crate) committed: Option<When>,
    pub(crate) trigger: &'static str,
    /// The revision or app that the image was taken from.
    pub(crate) from: Option<String>,
    pub(crate) actor: String,
    pub(crate) when: When,
    /// The remark under the status in the history.
    pub(crate) remark: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) message: Option<String>,
    pub(crate) is_unfinished: bool,
    pub(crate) has_failed: bool,
    /// Whether the entry offers a rollback to it.
    pub(crate) may_roll_back: bool,
    /// The sentence that assistive technology hears of a change.
    pub(crate) spoken: String,
}

impl Entry {
    pub(crate) fn new(app: &App, deploy: &Deploy, frame: &Frame) -> Self {
        let path = app_path(app);
        let is_unfinished = !deploy.status.is_terminal();
        let is_on_cluster = deploy.on_cluster && !deploy.current;
        Self {
            revision: deploy.revision,
            href: format!("{path}/deploys/{}", deploy.revision),
            mark: Mark::of(deploy),
            is_current: deploy.current,
            is_revoked: deploy.revoked.is_some(),
            is_on_cluster,
            image: deploy.image.as_deref().map(Image::new),
            commit: Commit::of(app, deploy),
            committed: deploy.committed_at.map(|at| When::new(at, frame.now)),
            trigger: cause(deploy),
            from: origin(deploy),
            actor: escaped(&deploy.actor),
            when: When::new(deploy.created_at, frame.now),
            remark: match (deploy.status, deploy.superseded_by) {
                (Status::Superseded, Some(by)) => Some(format!("by #{by}")),
                (_, _) => deploy.reason.as_deref().filter(|reason| *reason != deploy.status.as_str()).map(escaped),
            },
            reason: deploy.reason.as_deref().map(escaped),
            message: deploy.message.as_deref().map(escaped),
            is_unfinished,
            has_failed: deploy.status == Status::Failed,
            // The revision that runs is no target, unless it was changed from outside or another revision took its
            // place.
            may_roll_back: frame.may.may_deploy
                && !is_unfinished
                && deploy.image.is_some()
                && (!deploy.on_cluster || app.drift.is_some()),
            spoken: format!("Revision {} {}", deploy.revision, predicate(deploy.status)),
        }
    }
}

fn origin(deploy: &Deploy) -> Option<String> {
    let from = deploy.from.as_ref()?;
    Some(match (&from.namespace, &from.app) {
        (Some(namespace), Some(app)) => escaped(&format!("from {namespace}/{app} #{}", from.revision)),
        (Some(_) | None, _) if deploy.trigger == Trigger::Rollback && deploy.configures => {
            format!("to #{} with its configuration", from.revision)
        }
        (Some(_) | None, _) if deploy.trigger == Trigger::Rollback => format!("to #{}", from.revision),
        (Some(_) | None, _) if deploy.trigger == Trigger::Config => format!("image of #{}", from.revision),
        (Some(_) | None, _) if deploy.is_redeploy() && !deploy.scale.is_keep() => format!("of #{}", from.revision),
        (Some(_) | None, _) if deploy.is_redeploy() => format!("same as #{}", from.revision),
        (Some(_) | None, _) => format!("built as #{}", from.revision),
    })
}

/// Returns the path of an app's pages.
pub(crate) fn app_path(app: &App) -> String {
    format!("/apps/{}/{}", app.namespace, app.app)
}

/// The head of an app's pages: names and tabs.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) path: String,
    pub(crate) app: String,
    pub(crate) project: String,
    pub(crate) environment: String,
    pub(crate) workload: String,
    /// The address at which people reach the app.
    pub(crate) url: Option<String>,
    /// The state of each of several workloads.
    pub(crate) states: Vec<String>,
    pub(crate) tab: &'static str,
    pub(crate) locks: Vec<Locked>,
}

/// A lock that refuses deploys of the app.
#[derive(Clone, Debug)]
pub(crate) struct Locked {
    pub(crate) mark: Mark,
    /// The apps that the lock is on: `app` or `environment`.
    pub(crate) on: String,
    pub(crate) by: String,
    pub(crate) until: String,
    pub(crate) reason: String,
}

impl Locked {
    fn of(lock: &Lock) -> Self {
        let what = if lock.on == "environment" { "The environment is locked" } else { "Deploys are locked" };
        Self {
            mark: Mark::held(what),
            on: escaped(&lock.on),
            by: escaped(&lock.by),
            until: lock.until.map_or_else(|| "it is unlocked".to_owned(), full),
            reason: escaped(&lock.reason),
        }
    }
}

impl Head {
    pub(crate) fn new(app: &App, tab: &'static str) -> Self {
        Self {
            path: app_path(app),
            app: escaped(&app.app),
            project: escaped(&app.project),
            environment: escaped(&app.environment),
            workload: workload(app),
            url: Some(app.policy.url.clone()).filter(|url| !url.is_empty()),
            states: app.workloads.iter().map(state).collect(),
            tab,
            locks: app.locks.iter().map(Locked::of).collect(),
        }
    }
}

/// Returns the state of one of several workloads.
fn state(state: &WorkloadState) -> String {
    let at = state.revision.map(|revision| format!(", revision {revision}")).unwrap_or_default();
    escaped(&format!("{}{at}: {}", state.name, state.message))
}

/// Returns kind and name of each workload, or all settings if the rollout driver has others.
fn workload(app: &App) -> String {
    let title = |settings: &Settings| {
        let text = |name: &str| settings.get(name).and_then(Value::as_str);
        match (text("kind"), text("name")) {
            (Some(kind), Some(name)) => format!("{kind} {name}"),
            (_, _) => Value::Object(settings.clone()).to_string(),
        }
    };
    let also = app.workload.get("also").and_then(Value::as_array);
    let also = also.into_iter().flatten().filter_map(Value::as_object).map(title);
    escaped(&[title(&app.workload)].into_iter().chain(also).collect::<Vec<_>>().join(", "))
}

/// Returns the words of a list: "1", "1 and 2", "1, 2 and 3".
pub(crate) fn and(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [all @ .., last] => format!("{} and {last}", all.join(", ")),
    }
}
