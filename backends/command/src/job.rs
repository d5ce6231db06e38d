//! Makes one build in a container of its own, as a build Job runs it: the environment says what to build, the log goes
//! to standard output, and the end to the termination message that Kubernetes hands back.

use std::{fs, io, path::PathBuf, sync::Arc};

use rollhook_core::{
    app::{AppId, AppUid},
    deploy::Commit,
    ports::{BuildSpec, DeployId},
    source::{AllowedSources, GitSource},
};
use serde_json::json;
use tokio::sync::watch;

use crate::{
    builder::{Settings, number},
    confinement::Confinement,
    disk_limits::DiskLimits,
    log::Log,
    process::Stop,
    record::{End, Record},
    run::{Limits, Run, Variables},
    tool::{OpenedTool, Tool},
};

/// The longest sentence in a termination message, in characters. Kubernetes keeps 4096 bytes of a message, and a
/// sentence may quote git.
const SENTENCE: usize = 2000;

/// The paths in a build's container.
#[derive(Clone, Debug)]
pub struct Paths {
    /// The program that builds a checkout.
    pub program: PathBuf,
    /// A directory like [`Settings::credentials`], with the credentials of this source; it may be missing.
    pub source: PathBuf,
    /// A directory with the `config.json` by which the program logs in to registries; it may be missing.
    pub registry: PathBuf,
    /// The directory of the checkout.
    pub state: PathBuf,
    /// The file of the termination message.
    pub message: PathBuf,
    /// The kernel's map of the container's users to those of the node.
    pub users: PathBuf,
}

impl Paths {
    /// Returns the paths of the builder image.
    pub fn of_builder_image() -> Self {
        Self {
            program: "/usr/bin/buildkit-build".into(),
            source: "/run/rollhook/source".into(),
            registry: "/run/rollhook/registry".into(),
            state: "/var/lib/rollhook".into(),
            message: "/dev/termination-log".into(),
            users: "/proc/self/uid_map".into(),
        }
    }
}

/// The outcome of a build in a container of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The image is pushed; the message names it.
    Built,
    /// The build failed; the message says why.
    Failed,
    /// The build was stopped before its end; no message is written.
    Stopped,
}

/// Makes the build that the environment describes (`variable`), until `stop` resolves. The log goes to `output`, up to
/// the size of any log: Kubernetes would start a new file at 10 MiB.
///
/// # Errors
/// If the termination message cannot be written.
pub async fn run(
    paths: &Paths,
    variable: impl Fn(&str) -> Option<String>,
    output: fs::File,
    stop: impl Future<Output = ()>,
) -> io::Result<Outcome> {
    let mut log = Log::of_container(output);
    let (stopping, stopped) = watch::channel(None);
    let mut build = std::pin::pin!(build(paths, variable, stopped, &mut log));
    let end = tokio::select! {
        end = &mut build => end,
        () = stop => {
            stopping.send_replace(Some(Stop::Interrupted));
            build.await
        }
    };
    let Some(end) = end else { return Ok(Outcome::Stopped) };
    let (outcome, message) = match &end {
        End::Built { image, commit } => (Outcome::Built, json!({ "image": image, "commit": commit })),
        End::Failed { reason, message, commit, log: _ } => {
            let message: String = message.chars().take(SENTENCE).collect();
            (Outcome::Failed, json!({ "reason": reason, "message": message, "commit": commit }))
        }
    };
    fs::write(&paths.message, serde_json::to_vec(&message)?)?;
    Ok(outcome)
}

async fn build(
    paths: &Paths,
    variable: impl Fn(&str) -> Option<String>,
    stop: watch::Receiver<Option<Stop>>,
    log: &mut Log,
) -> Option<End> {
    let run = match prepare(paths, variable, stop) {
        Ok(run) => run,
        Err(message) => {
            log.say(&message);
            return Some(End::before_the_log(message));
        }
    };
    Box::pin(run.run_into(log)).await
}

const CREDENTIALS: &str = "ROLLHOOK_CREDENTIALS";
const PROFILE: &str = "ROLLHOOK_BUILDKIT_PROFILE";
/// The profile in which the container is privileged, over no more than a user namespace of its pod's own.
const USER_NAMESPACE: &str = "userns";
/// The number of all users: a container that has all of them is in no namespace of its own.
const ALL_USERS: &str = "4294967295";

/// Fails if these users (`user_namespaces(7)`) are those of the node: a node without user namespaces for pods silently
/// makes the container root of the node.
fn confined(users: &str) -> Result<(), String> {
    let counts: Vec<&str> = users.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    if counts.is_empty() || counts.contains(&ALL_USERS) {
        let message = "The node gave this pod no user namespace of its own: build with --build-profile rootless.";
        return Err(message.to_owned());
    }
    Ok(())
}

fn prepare(
    paths: &Paths,
    variable: impl Fn(&str) -> Option<String>,
    stop: watch::Receiver<Option<Stop>>,
) -> Result<Run, String> {
    let (spec, mut variables) = described(&variable)?;
    if variable(PROFILE).as_deref() == Some(USER_NAMESPACE) {
        // Checked before git reads the commit: git would run as root of the node as well.
        let users = fs::read_to_string(&paths.users)
            .map_err(|error| format!("The builder's container cannot know which users it has: {error}."))?;
        confined(&users)?;
    }
    if paths.registry.join("config.json").is_file() {
        variables.push(("DOCKER_CONFIG", paths.registry.display().to_string()));
    }
    let number = number().map_err(|error| error.to_string())?;
    let record = Record::at(paths.state.join("build"));
    record.begin(&number).map_err(|error| format!("The builder's container has no place to build in: {error}."))?;
    let settings = Settings {
        credentials: Some(paths.source.clone()),
        // The server that made the Job has decided whether the app may be built from such a source.
        sources: AllowedSources::all(),
        // The node bounds the pod's disk.
        disk: DiskLimits::below(0),
        ..Settings::new(Tool::program(paths.program.clone()), paths.state.clone())
    };
    let (limits, waits) = (Arc::new(Limits::new(1)), Arc::default());
    let tool = OpenedTool::Program { path: paths.program.clone(), confinement: Confinement::container() };
    let tool = Arc::new(tool);
    Ok(Run { settings: Arc::new(settings), spec, record, number, stop, limits, tool, waits, variables })
}

/// Returns the build that the environment describes, and the variables that are handed on to the program.
fn described(variable: &impl Fn(&str) -> Option<String>) -> Result<(BuildSpec, Variables), String> {
    let app: AppId = parsed(variable, "ROLLHOOK_APP")?;
    let id = DeployId {
        // The container makes one build, so that any uid will do.
        app: AppUid::from_bits(0),
        revision: parsed(variable, "ROLLHOOK_REVISION")?,
    };
    let source = GitSource {
        url: parsed(variable, "ROLLHOOK_SOURCE_URL")?,
        branch: parsed(variable, "ROLLHOOK_BRANCH")?,
        dockerfile: parsed(variable, "ROLLHOOK_DOCKERFILE")?,
        context: parsed(variable, "ROLLHOOK_CONTEXT")?,
        image_repository: parsed(variable, "ROLLHOOK_IMAGE_REPOSITORY")?,
        credentials: match variable(CREDENTIALS).unwrap_or_default().is_empty() {
            true => None,
            false => Some(parsed(variable, CREDENTIALS)?),
        },
    };
    let commit: Commit = parsed(variable, "ROLLHOOK_COMMIT")?;
    if !commit.is_sha() {
        return Err(format!(
            "The builder's container was given a wrong ROLLHOOK_COMMIT: {commit} is no hash of git's."
        ));
    }
    let handed_on = [PROFILE, "ROLLHOOK_CACHE", "ROLLHOOK_INSECURE_REGISTRIES"];
    let handed_on = handed_on.map(|name| (name, variable(name).unwrap_or_default())).to_vec();
    Ok((BuildSpec::new(app, id, source, commit), handed_on))
}

fn parsed<T: std::str::FromStr>(variable: &impl Fn(&str) -> Option<String>, name: &str) -> Result<T, String>
where
    T::Err: std::fmt::Display,
{
    let value = variable(name).ok_or_else(|| format!("The builder's container lacks {name} in its environment."))?;
    value.parse().map_err(|error| format!("The builder's container was given a wrong {name}: {error}."))
}
