//! The port: builds as process groups, recorded in files.
//!
//! ```text
//!   ROOT/git/HOST/PATH/             a mirror of a source, kept up to date by others
//!   ROOT/builds/APP/lock            held by the app's build; names its revision
//!   ROOT/builds/APP/REVISION/       the directory of a build: it exists once the build was started
//!     group, log, end, cancelled    its process group, what it printed, how it ended, and the wish to end it
//! ```
//!
//! One process at a time uses the directory. Builds outlive it, and the next process finds them.

use std::{
    fs::{self, File, TryLockError},
    io::{self, ErrorKind, Read, Seek, SeekFrom, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
};

use async_trait::async_trait;
use rollhook_core::{
    Error, Result,
    app::AppUid,
    deploy::{Reason, Revision},
    ports::{BuildFailure, BuildSpec, BuildState, BuildTrigger, DeployId, Started},
};

use crate::branches::mirror;

const SCRIPT: &str = include_str!("build.sh");
/// The most of a failed build's log that goes into the history.
const LINES: usize = 50;
const LINE: usize = 500;

/// Builds sites below one directory.
pub(crate) struct SiteBuilder {
    root: PathBuf,
    /// Held while a call looks at locks: two calls would take each other for a build.
    looking: Mutex<()>,
}

impl SiteBuilder {
    pub(crate) fn open(root: &Path) -> Self {
        Self { root: root.to_owned(), looking: Mutex::default() }
    }

    fn directory(&self, build: DeployId) -> PathBuf {
        self.root.join("builds").join(build.to_string())
    }

    fn look(&self) -> MutexGuard<'_, ()> {
        self.looking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the app's lock, or the revision of the build that holds it.
    fn lock(&self, app: AppUid) -> Result<std::result::Result<File, Revision>> {
        let directory = self.root.join("builds").join(app.to_string());
        fs::create_dir_all(&directory).map_err(failed)?;
        let path = directory.join("lock");
        let file = File::options().create(true).truncate(false).read(true).write(true).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Ok(file)),
            Err(TryLockError::WouldBlock) => Ok(Err(number(&path)?)),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    /// Runs the build's script with the lock as its standard input.
    fn run(&self, spec: &BuildSpec, mut lock: File) -> Result<()> {
        let (directory, mirror) = (self.directory(spec.id), mirror(&self.root, &spec.source)?);
        lock.set_len(0).and_then(|()| lock.write_all(spec.id.revision.to_string().as_bytes())).map_err(failed)?;
        fs::create_dir(&directory).map_err(failed)?;
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "build"]).arg(mirror).arg(spec.commit.as_str());
        command.arg(spec.source.image_repository.as_str()).current_dir(&directory);
        command.stdin(Stdio::from(lock)).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let mut child = command.spawn().map_err(failed)?;
        let recorded = fs::write(directory.join("group"), child.id().to_string());
        if recorded.is_err() {
            // A build that cannot be cancelled later must not run.
            drop(child.kill());
        }
        thread::spawn(move || child.wait());
        recorded.map_err(failed)
    }
}

#[async_trait]
impl BuildTrigger for SiteBuilder {
    async fn start(&self, spec: &BuildSpec) -> Result<Started> {
        let _alone = self.look();
        if self.directory(spec.id).exists() {
            return Ok(Started::Known);
        }
        match self.lock(spec.id.app)? {
            Ok(lock) => self.run(spec, lock).map(|()| Started::Known),
            Err(other) => Ok(Started::Busy(other)),
        }
    }

    async fn running(&self, app: AppUid) -> Result<Option<Revision>> {
        let _alone = self.look();
        Ok(self.lock(app)?.err())
    }

    async fn observe(&self, build: DeployId) -> Result<BuildState> {
        let _alone = self.look();
        let directory = self.directory(build);
        if !directory.exists() {
            return Ok(BuildState::Unknown);
        }
        if self.lock(build.app)?.is_err_and(|running| running == build.revision) {
            return Ok(BuildState::Running);
        }
        match fs::read_to_string(directory.join("end")) {
            Ok(end) => ended(&end, &directory),
            Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(error)),
            Err(_) if directory.join("cancelled").exists() => {
                Ok(failure(Reason::CANCELLED, "The build was cancelled.", "", &directory))
            }
            // The machine went down in the middle of it.
            Err(_) => Ok(BuildState::Unknown),
        }
    }

    async fn changed(&self, _build: DeployId) {
        // No event tells: returning never is allowed, since callers poll as well.
        std::future::pending().await
    }

    async fn cancel(&self, build: DeployId) -> Result<()> {
        let _alone = self.look();
        let directory = self.directory(build);
        if self.lock(build.app)?.is_err_and(|running| running == build.revision) {
            fs::write(directory.join("cancelled"), "").map_err(failed)?;
            // The lock is held, so that the group is this build's, and no later one of the same number.
            let group = fs::read_to_string(directory.join("group")).map_err(failed)?;
            Command::new("kill").args(["-KILL", "--", &format!("-{group}")]).status().map_err(failed)?;
        }
        Ok(())
    }

    async fn log(&self, build: DeployId, from: u64) -> Result<Option<Vec<u8>>> {
        let mut part = Vec::new();
        match File::open(self.directory(build).join("log")) {
            Ok(mut file) => {
                let end = file.metadata().map_err(failed)?.len();
                file.seek(SeekFrom::Start(from.min(end))).map_err(failed)?;
                file.read_to_end(&mut part).map_err(failed)?;
                Ok(Some(part))
            }
            // The script may not have opened it yet.
            Err(_) if self.directory(build).exists() => Ok(Some(part)),
            Err(_) => Ok(None),
        }
    }
}

/// Returns the end that a build has written.
fn ended(end: &str, directory: &Path) -> Result<BuildState> {
    let damaged = || Error::corrupt("a build's end", end.to_owned());
    let mut lines = end.lines();
    let (Some(outcome), Some(commit), Some(rest)) = (lines.next(), lines.next(), lines.next()) else {
        return Err(damaged());
    };
    if outcome != "built" {
        return Ok(failure(outcome, rest, commit, directory));
    }
    let image = rest.parse().map_err(|_| damaged())?;
    Ok(BuildState::Built { image, commit: commit.parse().map_err(|_| damaged())? })
}

fn failure(reason: &str, message: &str, commit: &str, directory: &Path) -> BuildState {
    let log = fs::read(directory.join("log")).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = log.lines().collect();
    let last = lines.iter().skip(lines.len().saturating_sub(LINES));
    BuildState::Failed(BuildFailure {
        reason: Reason::new(reason),
        message: message.to_owned(),
        commit: commit.parse().ok(),
        log: last.map(|line| line.chars().take(LINE).collect()).collect(),
    })
}

fn number(path: &Path) -> Result<Revision> {
    let text = fs::read_to_string(path).map_err(failed)?;
    text.parse().ok().and_then(Revision::new).ok_or_else(|| Error::corrupt("a build's lock", text))
}

fn failed(error: io::Error) -> Error {
    Error::unavailable("the directory of builds cannot be used", error)
}
