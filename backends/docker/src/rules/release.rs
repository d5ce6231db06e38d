//! The containers that run release commands, commands by hand and those of checks: their names and labels, how one is made, and what its state says.
//!
//! The engine starts an ended container again if it is asked to, so that reading the state before starting would let two
//! processes run a command twice. The name decides, as renaming is atomic in the engine:
//!
//! ```text
//! NAME.making ─► NAME ─► NAME.start-A ─► NAME.start-B …     made, ready, and a name for each attempt to start
//!                  └─────────┴──────────────┴─► NAME.failed      the engine could not start it
//!                  └─────────┴──────────────┴─► NAME.cancelled   it was cancelled, before it began or later
//! ```
//!
//! A process that starts a run renames it first, reads it again, and then starts it by the new name, which no other attempt
//! has. A start that arrives after another attempt or a cancel finds no container of its name. A run that was cancelled
//! stays as a container that never began, so that every process reads how it ended.

use std::{
    cmp::Reverse,
    hash::{BuildHasher, Hasher, RandomState},
    mem::discriminant,
};

use rollhook_core::{
    app::{AppId, AppUid},
    check::CheckKind,
    deploy::Reason,
    image::{Digest, ImageRef},
    ports::{ReleaseFailure, ReleaseRun, ReleaseState, RunId, RunKind},
};
use serde_json::{Map, Value, json};

use super::{
    container::{Container, IMAGE, Process},
    listed::ListedContainer,
    silence::{silenced, take_out_steering},
};

/// The label of the id of the run whose command the container runs.
pub(crate) const RELEASE: &str = "dev.rollhook.release";
/// The seconds that a cancelled command has to end.
const GRACE_SECONDS: u32 = 10;
/// The number of ended runs of an app that are kept beside the newest one.
const KEPT: usize = 3;
/// The most bytes of a run's log: its two files of 5 MB, with the entry that fills each.
pub(crate) const LOG_MAX: u64 = 10 * 1024 * 1024;
/// The age of a container at which its run has ended for a day, as no command may take as long.
const OLD_SECONDS: i64 = 2 * 24 * 60 * 60;
/// The time after which a check's command should have been ended.
const CHECK_SECONDS: i64 = CheckKind::COMMAND_TIMEOUT_MAX.as_secs().cast_signed() + 60;

/// The part of a run's life that its container's name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mark {
    /// The container has yet to join networks.
    Making,
    /// The run is ready.
    Ready,
    /// This attempt to start it was made; the number is random, so that no other attempt has the name.
    Start(u64),
    /// The engine could not start it.
    Failed,
    /// It was cancelled.
    Cancelled,
}

impl Mark {
    /// Returns the mark of a new attempt to start a run.
    pub(crate) fn new_start() -> Self {
        Self::Start(RandomState::new().build_hasher().finish())
    }

    fn may_start(self) -> bool {
        matches!(self, Self::Ready | Self::Start(_))
    }
}

/// Returns the name of a run's container.
pub(crate) fn name(run: &ReleaseRun, mark: Mark) -> String {
    let ReleaseRun { app, id } = run;
    let (word, number) = (id.kind.word(), id.kind.number());
    let base = format!("rollhook.{word}.{}.{}.{number}-{}", app.namespace, app.name, id.app);
    match mark {
        Mark::Making => format!("{base}.making"),
        Mark::Ready => base,
        Mark::Start(attempt) => format!("{base}.start-{attempt:016x}"),
        Mark::Failed => format!("{base}.failed"),
        Mark::Cancelled => format!("{base}.cancelled"),
    }
}

fn mark(run: &ReleaseRun, found: &str) -> Option<Mark> {
    let rest = found.strip_prefix(&name(run, Mark::Ready))?;
    match rest {
        "" => Some(Mark::Ready),
        ".making" => Some(Mark::Making),
        ".failed" => Some(Mark::Failed),
        ".cancelled" => Some(Mark::Cancelled),
        rest => u64::from_str_radix(rest.strip_prefix(".start-")?, 16).ok().map(Mark::Start),
    }
}

/// A run's container, as inspecting it returns it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Run {
    pub(crate) container: Container,
    pub(crate) mark: Mark,
}

impl Run {
    /// Reads a container. Returns `None` if it is not this run's: an image may bring the label along, but no name.
    pub(crate) fn of(run: &ReleaseRun, object: Value) -> Option<Self> {
        let container = Container { object, is_doubtful: false };
        let mark = mark(run, container.name())?;
        (container.label(RELEASE) == Some(run.id.to_string().as_str())).then_some(Self { container, mark })
    }

    /// Returns whether the run can be started.
    pub(crate) fn may_start(&self) -> bool {
        self.mark.may_start() && !self.has_begun() && self.container.start_error().is_none()
    }

    /// Returns whether the command has begun.
    pub(crate) fn has_begun(&self) -> bool {
        self.container.process() != Process::Created
    }

    /// Returns whether the engine could not start the run, and an attempt that is late could do so yet.
    pub(crate) fn is_unsealed_failure(&self) -> bool {
        self.mark.may_start() && !self.has_begun() && self.container.start_error().is_some()
    }

    /// Returns the image that the run was made for.
    pub(crate) fn image(&self) -> Option<ImageRef> {
        self.container.label(IMAGE)?.parse().ok()
    }

    /// Returns the state of the run. `digest` is that of its image, and `log` the last lines of its log.
    pub(crate) fn state(&self, digest: Option<Digest>, log: Vec<String>) -> ReleaseState {
        let is_cancelled = self.mark == Mark::Cancelled;
        let code = i32::try_from(self.container.exit_code()).ok();
        match (self.container.process(), self.mark) {
            (Process::Running | Process::Restarting, _) => ReleaseState::Running,
            (Process::Created, Mark::Cancelled) => cancelled_before(),
            (Process::Created, mark) => match (self.container.start_error(), mark) {
                (None, Mark::Making) => ReleaseState::Preparing,
                (None, Mark::Ready | Mark::Start(_) | Mark::Cancelled) => ReleaseState::Prepared,
                (error, _) => {
                    let why = error.map(|error| format!(": {error}")).unwrap_or_default();
                    let message = format!("Docker cannot start the release command{why}");
                    failed(false, Reason::RELEASE_FAILED, message, None, Vec::new())
                }
            },
            (Process::Ended, _) if is_cancelled => {
                failed(true, Reason::CANCELLED, "The release command was ended.".to_owned(), code, log)
            }
            (Process::Ended, _) if self.container.exit_code() == 0 && self.container.start_error().is_none() => {
                ReleaseState::Succeeded { digest }
            }
            (Process::Ended, _) => {
                failed(true, Reason::RELEASE_FAILED, ended(&self.container), code.filter(|code| *code != 0), log)
            }
        }
    }
}

/// Returns the container that decides on a run. A process that is late may have made another one, which never begins.
pub(crate) fn deciding(runs: Vec<Run>) -> Option<Run> {
    runs.into_iter().max_by_key(|run| (run.has_begun(), run.mark, run.container.id().to_owned()))
}

/// Returns the state of a run that never begins.
pub(crate) fn cancelled_before() -> ReleaseState {
    failed(false, Reason::CANCELLED, "The release command was ended before it began.".to_owned(), None, Vec::new())
}

fn failed(began: bool, reason: &str, message: String, exit_code: Option<i32>, log: Vec<String>) -> ReleaseState {
    ReleaseState::Failed(ReleaseFailure { began, reason: Reason::new(reason), message, exit_code, log })
}

/// Returns how a command ended without success, in a sentence.
fn ended(container: &Container) -> String {
    let code = container.exit_code();
    if container.is_out_of_memory() {
        return format!("The release command ran out of memory and was killed (exit code {code}).");
    }
    if let Some(error) = container.start_error() {
        return format!("The release command ended with exit code {code}: {error}");
    }
    match code {
        255 => {
            "The release command ended with exit code 255, which is also Docker's where the machine went down under it."
                .to_owned()
        }
        code => match signal(code - 128) {
            Some(signal) => format!("The release command was ended by {signal} (exit code {code})."),
            None => format!("The release command ended with exit code {code}."),
        },
    }
}

fn signal(number: i64) -> Option<&'static str> {
    Some(match number {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        15 => "SIGTERM",
        _ => return None,
    })
}

/// Returns the document that makes a run's container, of that which would make the deploy's.
///
/// The target's labels are left out, as are its names, addresses, ports, and variables that lead requests to it: no proxy,
/// Compose project or other container takes the run for an instance. `brought` is the image's configuration, whose labels the engine adds.
pub(crate) fn body(mut deploy: Value, id: RunId, image: &ImageRef, command: &[String], brought: &Value) -> Value {
    let Some(config) = deploy.as_object_mut() else { return deploy };
    for name in ["Hostname", "ExposedPorts", "MacAddress", "Tty", "OpenStdin", "StdinOnce", "AttachStdin"] {
        config.remove(name);
    }
    let (program, arguments) = command.split_at(command.len().min(1));
    let mut labels: Map<String, Value> = silenced(brought).map(|(name, _)| (name.clone(), "".into())).collect();
    labels.insert(RELEASE.to_owned(), id.to_string().into());
    labels.insert(IMAGE.to_owned(), image.to_string().into());
    let set = json!({
        "Entrypoint": program, "Cmd": arguments, "Labels": labels, "Healthcheck": { "Test": ["NONE"] },
        "StopSignal": "SIGTERM", "StopTimeout": GRACE_SECONDS,
    });
    config.extend(set.as_object().cloned().unwrap_or_default());
    take_out_steering(config, brought);
    let host = config.entry("HostConfig").or_insert_with(|| json!({}));
    host["PortBindings"] = json!({});
    host["PublishAllPorts"] = false.into();
    host["RestartPolicy"] = json!({ "Name": "no" });
    host["AutoRemove"] = false.into();
    // The log is read from any byte on, which not every driver allows. With a single file, the engine would empty the log
    // once that is full; of two it drops the older one, and the last lines stay.
    host["LogConfig"] = json!({ "Type": "json-file", "Config": { "max-size": "5m", "max-file": "2" } });
    let networks = config.get_mut("NetworkingConfig").and_then(|networks| networks["EndpointsConfig"].as_object_mut());
    for (_, settings) in networks.into_iter().flatten() {
        *settings = endpoint(settings);
    }
    deploy
}

/// Returns the settings of a network without the names and addresses of the target.
pub(crate) fn endpoint(settings: &Value) -> Value {
    let kept = settings.as_object().into_iter().flatten();
    let kept = kept.filter(|(name, _)| !matches!(name.as_str(), "Aliases" | "IPAMConfig" | "MacAddress"));
    Value::Object(kept.map(|(name, value)| (name.clone(), value.clone())).collect())
}

/// Whether a container of a list has the name of this run, by which it is known.
pub(crate) fn is_of(run: &ReleaseRun, listed: &ListedContainer) -> bool {
    listed.names().any(|name| mark(run, name).is_some())
}

/// A container of a run of an app, as the engine's list has it.
struct Listed<'a> {
    container: &'a ListedContainer,
    id: RunId,
    mark: Mark,
}

impl<'a> Listed<'a> {
    fn of(container: &'a ListedContainer, app: &AppId, uid: AppUid) -> Option<Self> {
        container.names().find_map(|name| {
            let run = ReleaseRun { app: app.clone(), id: named(name, app, uid)? };
            Some(Self { container, id: run.id, mark: mark(&run, name)? })
        })
    }

    fn runs(&self) -> bool {
        !matches!(&*self.container.state, "created" | "exited" | "dead")
    }

    /// Returns whether the run has ended, or never begins.
    fn is_over(&self) -> bool {
        let may_begin = self.container.state == "created" && !matches!(self.mark, Mark::Failed | Mark::Cancelled);
        !self.runs() && !may_begin
    }

    fn container_id(&self) -> String {
        self.container.id.clone()
    }
}

/// Returns the run of an app whose container has this name.
fn named(name: &str, app: &AppId, uid: AppUid) -> Option<RunId> {
    let (word, rest) = name.strip_prefix("rollhook.")?.split_once('.')?;
    let (number, _) = rest.strip_prefix(&format!("{}.{}.", app.namespace, app.name))?.split_once('-')?;
    RunKind::named(word, number).map(|kind| RunId { app: uid, kind })
}

/// Returns whether a run is an earlier one of the same kind.
fn precedes(run: RunKind, other: RunKind) -> bool {
    discriminant(&run) == discriminant(&other) && run < other
}

/// Returns the containers of an app's runs in a list: those that run, and the others.
pub(crate) fn of_app(containers: &[ListedContainer], app: &AppId, uid: AppUid) -> (Vec<String>, Vec<String>) {
    let listed = containers.iter().filter_map(|container| Listed::of(container, app, uid));
    let (running, others): (Vec<_>, Vec<_>) = listed.partition(Listed::runs);
    let ids = |runs: Vec<Listed<'_>>| runs.iter().map(Listed::container_id).collect();
    (ids(running), ids(others))
}

/// Returns the containers of an app's runs that are removed once this one is ready: of those of its kind, none that runs,
/// and none of the last three of each series before it.
pub(crate) fn outdated(containers: &[ListedContainer], ready: &ReleaseRun) -> Vec<String> {
    let listed = containers.iter().filter_map(|container| Listed::of(container, &ready.app, ready.id.app));
    let earlier: Vec<Listed<'_>> = listed.filter(|run| precedes(run.id.kind, ready.id.kind) && !run.runs()).collect();
    let mut ids: Vec<_> = earlier.iter().map(|run| Reverse(run.id)).collect();
    ids.sort_unstable();
    ids.dedup();
    let is_outdated = |run: &&Listed<'_>| {
        let own = run.id.kind.series(ready.id.kind);
        let newer = ids.iter().take_while(|Reverse(newer)| *newer != run.id);
        newer.filter(|Reverse(newer)| newer.kind.series(ready.id.kind) == own).count() >= KEPT
    };
    earlier.iter().filter(is_outdated).map(Listed::container_id).collect()
}

/// Returns the containers of an app's checks that go on although a later deploy is released or verified, or for longer than
/// any check may take: those of a process that was stopped before it ended them.
pub(crate) fn abandoned(containers: &[ListedContainer], ready: &ReleaseRun, now: jiff::Timestamp) -> Vec<String> {
    let measured = match ready.id.kind {
        RunKind::Check(check) => Some(check.revision()),
        RunKind::Release(revision) => Some(revision),
        RunKind::ByHand(_) => None,
    };
    let is_abandoned = |container: &&ListedContainer| {
        let Some(run) = Listed::of(container, &ready.app, ready.id.app).filter(Listed::runs) else { return false };
        let RunKind::Check(check) = run.id.kind else { return false };
        let is_of_earlier = measured.is_some_and(|measured| check.revision() < measured);
        is_of_earlier || container.created.is_some_and(|made_at| now.as_second() - made_at > CHECK_SECONDS)
    };
    containers.iter().filter(is_abandoned).map(|container| container.id.clone()).collect()
}

/// Returns whether a container of a list is of an ended run of the app that need not be reported any more, so that it
/// does not keep its image: a later one has ended, or it is older than two days.
pub(crate) fn is_spent(
    container: &ListedContainer,
    containers: &[ListedContainer],
    (app, uid): (&AppId, AppUid),
    now: jiff::Timestamp,
) -> bool {
    let Some(run) = Listed::of(container, app, uid).filter(Listed::is_over) else { return false };
    let made_at = container.created;
    let mut all = containers.iter().filter_map(|other| Listed::of(other, app, uid));
    made_at.is_some_and(|made_at| now.as_second() - made_at >= OLD_SECONDS)
        || all.any(|other| precedes(run.id.kind, other.id.kind) && other.is_over())
}

#[cfg(test)]
mod tests;
