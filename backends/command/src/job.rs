//! One build in a container of its own, as a build Job runs it: the order comes from the environment, the log goes to
//! standard output, and the end to the file that Kubernetes hands back.

use std::{fs, io, path::PathBuf, sync::Arc};

use rollhook_core::{
    app::{AppId, AppUid},
    deploy::{Commit, Reason},
    ports::{BuildSpec, DeployId},
    source::GitSource,
};
use serde::Serialize;
use tokio::sync::{Semaphore, watch};

use crate::{
    builder::{Settings, number},
    log::Log,
    process::Stop,
    record::{End, Record},
    run::Run,
};

/// As much as Kubernetes keeps of a termination message is 4096 bytes; a sentence of ours is never near it, but what git
/// says in one may be long.
const SENTENCE: usize = 2000;

/// Where a build's container has what.
#[derive(Clone, Debug)]
pub struct Places {
    /// The program that builds a checkout.
    pub program: PathBuf,
    /// A directory as [`Settings::credentials`] is, with what this source names, if anything; it need not be there.
    pub source: PathBuf,
    /// A directory with the `config.json` by which the program is let into registries; it need not be there.
    pub registry: PathBuf,
    /// Where the checkout is made.
    pub state: PathBuf,
    /// Where the end is told.
    pub message: PathBuf,
    /// Where the kernel says which users of the node this container's are.
    pub users: PathBuf,
}

impl Places {
    /// As they are in the builder image.
    pub fn of_the_image() -> Self {
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

/// How a build in a container of its own ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The image is pushed, and told.
    Built,
    /// There is none, and why is told.
    Failed,
    /// It was told to stop before its end: nothing is told.
    Stopped,
}

/// What is told of a build's end.
#[derive(Serialize)]
#[serde(untagged)]
enum Message<'a> {
    Built {
        image: String,
        commit: &'a Commit,
    },
    Failed {
        reason: &'a str,
        message: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        commit: Option<&'a Commit>,
    },
}

/// What the environment orders.
struct Ordered {
    order: BuildSpec,
    /// What only the program needs to know.
    further: Vec<(&'static str, String)>,
}

/// Builds what the environment orders (`variable`), until `stop` resolves. All that the build says goes to `output`, up to
/// the size of any log: what is longer than 10 MiB, Kubernetes would begin anew.
///
/// # Errors
/// Where the end cannot be told.
pub async fn run(
    places: &Places,
    variable: impl Fn(&str) -> Option<String>,
    output: fs::File,
    stop: impl Future<Output = ()>,
) -> io::Result<Ended> {
    let mut log = Log::of_container(output);
    let (order_to_stop, stopped) = watch::channel(None);
    let mut build = std::pin::pin!(build(places, variable, stopped, &mut log));
    let end = tokio::select! {
        end = &mut build => end,
        () = stop => {
            order_to_stop.send_replace(Some(Stop::Interrupted));
            build.await
        }
    };
    let Some(end) = end else { return Ok(Ended::Stopped) };
    let (ended, message) = match &end {
        End::Built { image, commit } => (Ended::Built, Message::Built { image: image.to_string(), commit }),
        End::Failed { reason, message, commit, log: _ } => {
            let message = message.chars().take(SENTENCE).collect();
            (Ended::Failed, Message::Failed { reason: reason.as_str(), message, commit: commit.as_ref() })
        }
    };
    fs::write(&places.message, serde_json::to_vec(&message)?)?;
    Ok(ended)
}

async fn build(
    places: &Places,
    variable: impl Fn(&str) -> Option<String>,
    stop: watch::Receiver<Option<Stop>>,
    log: &mut Log,
) -> Option<End> {
    let run = match prepare(places, variable, stop) {
        Ok(run) => run,
        Err(message) => {
            log.say(&message);
            let reason = Reason::new(Reason::BUILD_FAILED);
            return Some(End::Failed { reason, message, commit: None, log: Vec::new() });
        }
    };
    Box::pin(run.run_into(log)).await
}

const CREDENTIALS: &str = "ROLLHOOK_CREDENTIALS";
const PROFILE: &str = "ROLLHOOK_BUILDKIT_PROFILE";
/// The profile in which the container is privileged, over no more than a user namespace of its pod's own.
const USER_NAMESPACE: &str = "userns";
/// As many users as there are: whoever has all of them is in no namespace of its own.
const ALL_USERS: &str = "4294967295";

/// Whether these users (`user_namespaces(7)`) are not those of the node: one that knows no user namespaces for pods makes
/// the container root of the node, without a word.
fn confined(users: &str) -> Result<(), String> {
    let counts: Vec<&str> = users.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    if counts.is_empty() || counts.contains(&ALL_USERS) {
        let message = "The node gave this pod no user namespace of its own: build with --build-profile rootless.";
        return Err(message.to_owned());
    }
    Ok(())
}

fn prepare(
    places: &Places,
    variable: impl Fn(&str) -> Option<String>,
    stop: watch::Receiver<Option<Stop>>,
) -> Result<Run, String> {
    let mut ordered = ordered(&variable)?;
    if variable(PROFILE).as_deref() == Some(USER_NAMESPACE) {
        // Before anything of the commit is looked at: as root of the node, git would be as well.
        let users = fs::read_to_string(&places.users)
            .map_err(|error| format!("The builder's container cannot know which users it has: {error}."))?;
        confined(&users)?;
    }
    if places.registry.join("config.json").is_file() {
        ordered.further.push(("DOCKER_CONFIG", places.registry.display().to_string()));
    }
    let number = number().map_err(|error| error.to_string())?;
    let record = Record::at(places.state.join("build"));
    record.begin(&number).map_err(|error| format!("The builder's container has no place to build in: {error}."))?;
    let settings = Settings {
        credentials: Some(places.source.clone()),
        // Whether an app may be built from such a source was decided by the server that made the order.
        local_sources: true,
        ..Settings::new(places.program.clone(), places.state.clone())
    };
    let Ordered { order, further } = ordered;
    let (room, waits) = (Arc::new(Semaphore::new(1)), Arc::default());
    Ok(Run { settings: Arc::new(settings), order, record, number, stop, room, waits, further })
}

/// Reads the order.
fn ordered(variable: &impl Fn(&str) -> Option<String>) -> Result<Ordered, String> {
    let app: AppId = parsed(variable, "ROLLHOOK_APP")?;
    let stamp = DeployId {
        // Of the one build that this container makes, nobody here asks whose it is.
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
    let further = [PROFILE, "ROLLHOOK_CACHE", "ROLLHOOK_INSECURE_REGISTRIES"];
    let further = further.map(|name| (name, variable(name).unwrap_or_default())).to_vec();
    Ok(Ordered { order: BuildSpec { app, id: stamp, source, commit }, further })
}

fn parsed<T: std::str::FromStr>(variable: &impl Fn(&str) -> Option<String>, name: &str) -> Result<T, String>
where
    T::Err: std::fmt::Display,
{
    let value = variable(name).ok_or_else(|| format!("The builder's container lacks {name} in its environment."))?;
    value.parse().map_err(|error| format!("The builder's container was given a wrong {name}: {error}."))
}
