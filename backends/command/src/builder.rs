//! The port, on builds that run as tasks of this process.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    os::unix::fs::PermissionsExt,
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
};
use tokio::{
    sync::{Semaphore, watch},
    task::JoinHandle,
};

use crate::{
    log, orphans,
    process::Stop,
    record::{End, Records},
    run::Run,
};

/// How builds are made.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The program that builds and pushes; see the crate's documentation.
    pub program: PathBuf,
    /// Where builds, their logs and their ends are kept; it survives restarts.
    pub directory: PathBuf,
    /// Where the credentials are that sources name: a file each.
    pub credentials: Option<PathBuf>,
    /// Whether local sources may be read (`rollhook_core::source::GitUrl::is_local`).
    pub local_sources: bool,
    /// How long each step of git may take.
    pub git_time: Duration,
    /// How long a git server may be silent.
    pub git_silence: Duration,
}

impl Settings {
    /// A program and a directory, with the rest as most want it: no credentials, no local sources, ten minutes for each
    /// step of git, and half a minute of silence.
    pub fn new(program: PathBuf, directory: PathBuf) -> Self {
        Self {
            program,
            directory,
            credentials: None,
            local_sources: false,
            git_time: Duration::from_secs(600),
            git_silence: Duration::from_secs(30),
        }
    }
}

/// Why the builder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program is not there, or not one.
    #[error("the build command {} is no program that can be run", .0.display())]
    NotAProgram(PathBuf),
    /// The directory cannot be used.
    #[error("cannot use the builds' directory {}", path.display())]
    Directory {
        /// Which.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

/// Builds commits with a program on this machine.
pub struct CommandBuilds {
    shared: Arc<Shared>,
}

struct Shared {
    settings: Arc<Settings>,
    records: Records,
    room: Arc<Semaphore>,
    running: Mutex<Running>,
    /// One start or look at a time for all apps: both are short, and only one may decide who begins.
    deciding: tokio::sync::Mutex<()>,
    changed: Event,
}

#[derive(Default)]
struct Running {
    apps: BTreeMap<AppUid, Active>,
    /// Ends that could not be stored.
    unstored: BTreeMap<(AppUid, Revision), End>,
    closing: bool,
}

/// A build that runs, and the right to build its app.
struct Active {
    revision: Revision,
    /// Whether there is no room for it yet.
    waits: Arc<AtomicBool>,
    stop: watch::Sender<Option<Stop>>,
    task: Option<JoinHandle<()>>,
    _lock: File,
}

impl CommandBuilds {
    /// Opens the builder, and ends what an earlier process on this directory has left running.
    ///
    /// # Errors
    /// Where the program is none, and where the directory cannot be used.
    pub async fn open(settings: Settings) -> std::result::Result<Self, Error> {
        let path = settings.directory.clone();
        let program = settings.program.canonicalize().and_then(|program| Ok((fs::metadata(&program)?, program)));
        let program = match program {
            Ok((metadata, program)) if metadata.is_file() && metadata.permissions().mode() & 0o111 != 0 => program,
            Ok(_) | Err(_) => return Err(Error::NotAProgram(settings.program)),
        };
        let fail = |source| Error::Directory { path: path.clone(), source };
        make_private(&settings.directory).map_err(fail)?;
        let directory = settings.directory.canonicalize().map_err(fail)?;
        let at_once = std::thread::available_parallelism().map_or(1, usize::from);
        let shared = Arc::new(Shared {
            records: Records(directory.clone()),
            settings: Arc::new(Settings { program, directory, ..settings }),
            room: Arc::new(Semaphore::new(at_once)),
            running: Mutex::default(),
            deciding: tokio::sync::Mutex::default(),
            changed: Event::new(),
        });
        for app in shared.records.apps().map_err(fail)? {
            // What another process builds is its own to end.
            if let Some(_lock) = shared.records.lock(app, false).map_err(fail)? {
                shared.end_left_over(app).await.map_err(fail)?;
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
                tracing::warn!("a build did not end in order");
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
    async fn start(&self, order: &BuildSpec) -> Result<Started> {
        let _deciding = self.shared.deciding.lock().await;
        let app = order.id.app;
        if self.shared.ended(order.id)?.is_some() {
            return Ok(Started::Known);
        }
        if let Some(revision) = self.shared.building(app) {
            return Ok(if revision == order.id.revision { Started::Known } else { Started::Busy(revision) });
        }
        let lock = self.shared.take(app, true).await?.ok_or_else(away)?;
        self.shared.begin(order, lock)?;
        Ok(Started::Known)
    }

    async fn running(&self, app: AppUid) -> Result<Option<Revision>> {
        let _deciding = self.shared.deciding.lock().await;
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
            // What is to begin anew is not cancelled by being told twice.
            active.stop.send_if_modified(|stop| {
                let first = stop.is_none();
                stop.get_or_insert(Stop::Cancelled);
                first
            });
        }
        Ok(())
    }

    async fn log(&self, build: DeployId, from: u64) -> Result<Option<Vec<u8>>> {
        log::read(&self.shared.records.of(build).log(), from).map_err(|error| broken(&error))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn building(&self, app: AppUid) -> Option<Revision> {
        self.lock().apps.get(&app).map(|active| active.revision)
    }

    /// Whether a build that is under way waits for room.
    fn waits(&self, build: DeployId) -> Option<bool> {
        let running = self.lock();
        let active = running.apps.get(&build.app).filter(|active| active.revision == build.revision)?;
        Some(active.waits.load(Ordering::Relaxed))
    }

    fn ended(&self, build: DeployId) -> Result<Option<End>> {
        if let Some(end) = self.lock().unstored.get(&(build.app, build.revision)) {
            return Ok(Some(end.clone()));
        }
        self.records.of(build).ended().map_err(|error| broken(&error))
    }

    /// The right to build the app, with nothing left running of it; none where nothing is known of the app.
    async fn take(&self, app: AppUid, make: bool) -> Result<Option<File>> {
        if !make && !self.records.knows(app) {
            return Ok(None);
        }
        let lock = self.records.lock(app, make).map_err(|error| broken(&error))?;
        let lock = lock.ok_or_else(away)?;
        self.end_left_over(app).await.map_err(|error| broken(&error))?;
        Ok(Some(lock))
    }

    /// Ends what an earlier process has left running of the app, and forgets it: it begins anew. Needs the lock.
    async fn end_left_over(&self, app: AppUid) -> io::Result<()> {
        for record in self.records.builds(app)? {
            if let Some(run) = record.unfinished()? {
                if !run.is_empty() {
                    tracing::warn!(%app, "a build was left by an earlier process: it begins anew");
                    orphans::end(&run, None).await;
                }
                record.forget()?;
            }
        }
        Ok(())
    }

    fn begin(self: &Arc<Self>, order: &BuildSpec, lock: File) -> Result<()> {
        let record = self.records.of(order.id);
        let number = number()?;
        self.records.prune(order.id.app).and_then(|()| record.begin(&number)).map_err(|error| broken(&error))?;
        let (stop, stopped) = watch::channel(None);
        let waits = Arc::new(AtomicBool::new(true));
        let run = Run {
            settings: self.settings.clone(),
            order: order.clone(),
            record: record.clone(),
            number,
            stop: stopped,
            room: self.room.clone(),
            waits: waits.clone(),
            further: Vec::new(),
        };
        let mut running = self.lock();
        if running.closing {
            return Err(away());
        }
        let (shared, build) = (self.clone(), order.id);
        let task = tokio::spawn(async move {
            let end = Box::pin(run.run()).await;
            let stored = match &end {
                Some(end) => record.end(end),
                None => record.forget(),
            };
            if let Err(error) = stored {
                tracing::error!(%error, "a build's end cannot be stored; it is known until this process ends");
                let unstored = end.map(|end| ((build.app, build.revision), end));
                shared.lock().unstored.extend(unstored);
            }
            shared.lock().apps.remove(&build.app);
            shared.changed.notify(usize::MAX);
        });
        let active = Active { revision: build.revision, waits, stop, task: Some(task), _lock: lock };
        running.apps.insert(build.app, active);
        Ok(())
    }
}

/// A build's own number: nobody else's environment holds it.
pub(crate) fn number() -> Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        rollhook_core::Error::unavailable("random bytes for a build", io::Error::other(error.to_string()))
    })?;
    Ok(format!("{:032x}", u128::from_le_bytes(bytes)))
}

fn away() -> rollhook_core::Error {
    rollhook_core::Error::Unavailable { what: "another process on this machine builds the app".to_owned(), cause: None }
}

fn broken(error: &io::Error) -> rollhook_core::Error {
    let cause = io::Error::new(error.kind(), error.to_string());
    if error.kind() == io::ErrorKind::InvalidData {
        return rollhook_core::Error::corrupt("a build's end cannot be read", cause);
    }
    rollhook_core::Error::unavailable("the builds' directory", cause)
}
