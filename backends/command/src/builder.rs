//! Implements the port: builds run as tasks of this process.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use event_listener::Event;
use rollhook_core::{
    Result,
    app::AppUid,
    deploy::Revision,
    ports::{BuildSpec, BuildState, BuildTrigger, DeployId, Started},
    source::AllowedSources,
};
use tokio::{sync::watch, task::JoinHandle};

use crate::{
    checkout_limits::CheckoutLimits,
    disk_limits::DiskLimits,
    log,
    process::{self, Stop},
    reaper,
    record::{End, Records},
    run::{Limits, Run},
    tool::{OpenedTool, Tool},
};

/// The settings of a builder.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The tool that makes images of checkouts.
    pub tool: Tool,
    /// The builds that may run at the same time.
    pub at_once: usize,
    /// The directory of builds, their logs and their ends; it survives restarts.
    pub directory: PathBuf,
    /// The directory of the credentials that sources name: a file each.
    pub credentials: Option<PathBuf>,
    /// The sources that may be read.
    pub sources: AllowedSources,
    /// The longest that each step of git may take.
    pub git_time: Duration,
    /// The longest that a git server may be silent.
    pub git_silence: Duration,
    /// The most that a commit may check out.
    pub checkout: CheckoutLimits,
    /// The most memory that each process of git may have, in bytes.
    pub git_memory: u64,
    /// The space that is left on the disk of the directory.
    pub disk: DiskLimits,
}

impl Settings {
    /// Returns settings with defaults for the rest: as many builds at once as the machine has processors, no
    /// credentials, the sources of other machines, ten minutes for each step of git, half a minute of silence, and for
    /// git 2 GiB of memory, or half of the machine's.
    pub fn new(tool: Tool, directory: PathBuf) -> Self {
        Self {
            tool,
            at_once: std::thread::available_parallelism().map_or(1, usize::from),
            directory,
            credentials: None,
            sources: AllowedSources::default(),
            git_time: Duration::from_secs(600),
            git_silence: Duration::from_secs(30),
            checkout: CheckoutLimits::default(),
            git_memory: (2 << 30).min(process::machine_memory() / 2),
            disk: DiskLimits::default(),
        }
    }
}

/// The error of opening a builder.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program is missing, or no program.
    #[error("the build command {} is no program that can be run", .0.display())]
    NotAProgram(PathBuf),
    /// The program would run as root.
    #[error(
        "the build command would run as root, and the code of repositories with it: name another user with --build-user \
         USER, or run this as one"
    )]
    Root,
    /// The named user is unknown.
    #[error("the user {0} to build as (--build-user) is unknown on this machine")]
    NoUser(String),
    /// The program cannot be run with the limits, or as the named user.
    #[error("the build command cannot be run as its user and with limits: {0}")]
    Confinement(String),
    /// The directory cannot be used.
    #[error("cannot use the builds' directory {}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// Builds commits on this machine, with a program or a container engine.
pub struct CommandBuilds {
    shared: Arc<Shared>,
}

struct Shared {
    settings: Arc<Settings>,
    records: Records,
    limits: Arc<Limits>,
    tool: Arc<OpenedTool>,
    running: Mutex<Running>,
    /// Held while a build is started or looked for: both are short, and two starts must not overlap.
    starting: tokio::sync::Mutex<()>,
    changed: Event,
}

#[derive(Default)]
struct Running {
    apps: BTreeMap<AppUid, Active>,
    /// Ends that could not be stored.
    unstored: BTreeMap<(AppUid, Revision), End>,
    closing: bool,
}

/// A build that runs, with the lock of its app.
struct Active {
    revision: Revision,
    /// Whether it waits for others.
    waits: Arc<AtomicBool>,
    stop: watch::Sender<Option<Stop>>,
    task: Option<JoinHandle<()>>,
    /// Whether the app was deleted, so that its records go when the build ends.
    is_forgotten: bool,
    _lock: File,
}

impl CommandBuilds {
    /// Opens the builder, and ends what an earlier process on this directory has left running.
    ///
    /// # Errors
    /// If the program cannot be run, or only as root, or the directory cannot be used.
    pub async fn open(settings: Settings) -> std::result::Result<Self, Error> {
        let path = settings.directory.clone();
        let fail = |source| Error::Directory { path: path.clone(), source };
        make_private(&settings.directory).map_err(fail)?;
        let directory = settings.directory.canonicalize().map_err(fail)?;
        let tool = settings.tool.open(&directory).await?;
        let shared = Arc::new(Shared {
            records: Records::open(directory.clone()).map_err(fail)?,
            limits: Arc::new(Limits::new(settings.at_once)),
            settings: Arc::new(Settings { directory, ..settings }),
            tool: Arc::new(tool),
            running: Mutex::default(),
            starting: tokio::sync::Mutex::default(),
            changed: Event::new(),
        });
        for app in shared.records.apps().map_err(fail)? {
            // A build of another process is left to that process.
            if let Some(_lock) = shared.records.lock(app, false).map_err(fail)? {
                shared.reap(app).await.map_err(fail)?;
            }
        }
        Ok(Self { shared })
    }

    /// Ends all builds, which begin anew with the next process on this directory. Nothing is started any more.
    pub async fn close(&self) {
        let tasks: Vec<_> = {
            let mut running = self.shared.lock();
            running.closing = true;
            running
                .apps
                .values_mut()
                .filter_map(|active| {
                    active.stop.send_replace(Some(Stop::Interrupted));
                    active.task.take()
                })
                .collect()
        };
        for task in tasks {
            if task.await.is_err() {
                tracing::warn!("waiting for a build to end failed");
            }
        }
    }
}

fn make_private(directory: &std::path::Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

#[async_trait]
impl BuildTrigger for CommandBuilds {
    async fn start(&self, spec: &BuildSpec) -> Result<Started> {
        let _starting = self.shared.starting.lock().await;
        let app = spec.id.app;
        if self.shared.ended(spec.id)?.is_some() {
            return Ok(Started::Known);
        }
        if let Some(revision) = self.shared.building(app) {
            return Ok(if revision == spec.id.revision { Started::Known } else { Started::Busy(revision) });
        }
        let lock = self.shared.take(app, true).await?.ok_or_else(locked)?;
        self.shared.begin(spec, lock)?;
        Ok(Started::Known)
    }

    async fn running(&self, app: AppUid) -> Result<Option<Revision>> {
        let _starting = self.shared.starting.lock().await;
        if let Some(revision) = self.shared.building(app) {
            return Ok(Some(revision));
        }
        self.shared.take(app, false).await.map(|_| None)
    }

    async fn observe(&self, build: DeployId) -> Result<BuildState> {
        if let Some(waits) = self.shared.waits(build) {
            return Ok(if waits { BuildState::Waiting } else { BuildState::Running });
        }
        Ok(self.shared.ended(build)?.map_or(BuildState::Unknown, BuildState::from))
    }

    async fn changed(&self, _build: DeployId) {
        self.shared.changed.listen().await;
    }

    async fn cancel(&self, build: DeployId) -> Result<()> {
        if let Some(active) = self.shared.lock().apps.get(&build.app).filter(|active| active.revision == build.revision)
        {
            // A build that was interrupted begins anew, and is not cancelled.
            active.stop.send_if_modified(|stop| {
                let first = stop.is_none();
                stop.get_or_insert(Stop::Cancelled);
                first
            });
        }
        Ok(())
    }

    async fn log(&self, build: DeployId, from: u64) -> Result<Option<Vec<u8>>> {
        log::read(&self.shared.records.of(build).log(), from).map_err(|error| directory_error(&error))
    }

    async fn forget(&self, app: AppUid) -> Result<()> {
        let _starting = self.shared.starting.lock().await;
        if let Some(active) = self.shared.lock().apps.get_mut(&app) {
            active.is_forgotten = true;
            return Ok(());
        }
        let _lock = self.shared.take(app, false).await?;
        self.shared.forget(app).map_err(|error| directory_error(&error))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn building(&self, app: AppUid) -> Option<Revision> {
        self.lock().apps.get(&app).map(|active| active.revision)
    }

    /// Returns whether an active build waits for others; `None` if it is not active.
    fn waits(&self, build: DeployId) -> Option<bool> {
        let running = self.lock();
        let active = running.apps.get(&build.app).filter(|active| active.revision == build.revision)?;
        Some(active.waits.load(Ordering::Relaxed))
    }

    fn ended(&self, build: DeployId) -> Result<Option<End>> {
        if let Some(end) = self.lock().unstored.get(&(build.app, build.revision)) {
            return Ok(Some(end.clone()));
        }
        self.records.of(build).ended().map_err(|error| directory_error(&error))
    }

    /// Locks the app, and ends what an earlier process has left running of it. Returns `None` if the app is unknown.
    async fn take(&self, app: AppUid, make: bool) -> Result<Option<File>> {
        if !make && !self.records.knows(app) {
            return Ok(None);
        }
        let lock = self.records.lock(app, make).map_err(|error| directory_error(&error))?;
        let lock = lock.ok_or_else(locked)?;
        self.reap(app).await.map_err(|error| directory_error(&error))?;
        Ok(Some(lock))
    }

    /// Removes all records of an app. The caller has the lock.
    fn forget(&self, app: AppUid) -> io::Result<()> {
        self.lock().unstored.retain(|(of, _), _| *of != app);
        self.records.forget_app(app)
    }

    /// Ends the builds of the app that an earlier process has left running, and removes their records, so that they
    /// begin anew. The caller has the lock.
    async fn reap(&self, app: AppUid) -> io::Result<()> {
        for record in self.records.builds(app)? {
            if let Some(run) = record.unfinished()? {
                if !run.is_empty() {
                    tracing::warn!(uid = %app, "ending a build that an earlier process has left; it begins anew");
                    reaper::end(&run, reaper::First::default()).await;
                }
                self.records.forget(&record)?;
            }
        }
        Ok(())
    }

    fn begin(self: &Arc<Self>, spec: &BuildSpec, lock: File) -> Result<()> {
        let record = self.records.of(spec.id);
        let number = number()?;
        self.records
            .prune(spec.id.app)
            .and_then(|()| record.begin(&number))
            .map_err(|error| directory_error(&error))?;
        let (stop, stopped) = watch::channel(None);
        let waits = Arc::<AtomicBool>::default();
        let run = Run {
            settings: self.settings.clone(),
            spec: spec.clone(),
            record: record.clone(),
            number,
            stop: stopped,
            limits: self.limits.clone(),
            tool: self.tool.clone(),
            waits: waits.clone(),
            variables: Vec::new(),
        };
        let mut running = self.lock();
        if running.closing {
            return Err(locked());
        }
        let (shared, build, name) = (self.clone(), spec.id, spec.app.clone());
        let task = tokio::spawn(async move {
            let end = Box::pin(run.run()).await;
            let stored = match &end {
                Some(end) => shared.records.end(&record, end),
                None => shared.records.forget(&record),
            };
            if let Err(error) = stored {
                tracing::error!(app = %name, revision = %build.revision, %error, "storing a build's end failed; it is kept in memory");
                let unstored = end.map(|end| ((build.app, build.revision), end));
                shared.lock().unstored.extend(unstored);
            }
            // The lock of the app is held until its records are gone.
            let active = shared.lock().apps.remove(&build.app);
            if active.is_some_and(|active| active.is_forgotten)
                && let Err(error) = shared.forget(build.app)
            {
                tracing::warn!(app = %name, %error, "removing the logs of a deleted app failed");
            }
            shared.changed.notify(usize::MAX);
        });
        let active =
            Active { revision: build.revision, waits, stop, task: Some(task), is_forgotten: false, _lock: lock };
        running.apps.insert(build.app, active);
        Ok(())
    }
}

/// Returns a random number for a build, by which its processes are found.
pub(crate) fn number() -> Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        rollhook_core::Error::unavailable(
            "reading random bytes for a build failed",
            io::Error::other(error.to_string()),
        )
    })?;
    Ok(format!("{:032x}", u128::from_le_bytes(bytes)))
}

fn locked() -> rollhook_core::Error {
    rollhook_core::Error::Unavailable { what: "another process on this machine builds the app".to_owned(), cause: None }
}

fn directory_error(error: &io::Error) -> rollhook_core::Error {
    let cause = io::Error::new(error.kind(), error.to_string());
    if error.kind() == io::ErrorKind::InvalidData {
        return rollhook_core::Error::corrupt("a build's end cannot be read", cause);
    }
    rollhook_core::Error::unavailable("the builds' directory cannot be read or written", cause)
}
