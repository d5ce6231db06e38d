//! Records of builds, in files: `DIR/{app uid}/lock`, and for each build `DIR/{app uid}/{revision}/` with
//! `run` (the build's own number), `log`, `work/` while it runs, and `end.json` once it has ended. `DIR/trash/` has what is
//! being removed.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use rollhook_core::{
    app::AppUid,
    deploy::{Commit, Reason, Revision},
    image::ImageRef,
    ports::{BuildFailure, BuildState, DeployId},
};
use serde::{Deserialize, Serialize};

use crate::{builder::number, trash::Trash};

/// The number of ended builds that are kept of each app, with their logs; more than an app can have unfinished.
const KEPT: usize = 200;
/// The most bytes of their logs: with more, the oldest go.
const LOGS_MAX: u64 = 64 << 20;

/// The end of a build, as it is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum End {
    Built { image: ImageRef, commit: Commit },
    Failed { reason: Reason, message: String, commit: Option<Commit>, log: Vec<String> },
}

impl End {
    /// The end of a build that failed before it had a log.
    pub(crate) fn before_the_log(message: String) -> Self {
        Self::Failed { reason: Reason::new(Reason::BUILD_FAILED), message, commit: None, log: Vec::new() }
    }
}

impl From<End> for BuildState {
    fn from(end: End) -> Self {
        match end {
            End::Built { image, commit } => Self::Built { image, commit },
            End::Failed { reason, message, commit, log } => Self::Failed(BuildFailure { reason, message, commit, log }),
        }
    }
}

/// The builder's directory.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    directory: PathBuf,
    trash: Trash,
}

/// One build's directory.
#[derive(Clone, Debug)]
pub(crate) struct Record(PathBuf);

impl Records {
    /// Opens the records of a directory, and its trash.
    pub(crate) fn open(directory: PathBuf) -> io::Result<Self> {
        let trash = Trash::open(directory.join("trash"), number().map_err(io::Error::other)?)?;
        Ok(Self { directory, trash })
    }

    /// Returns the apps that have records.
    pub(crate) fn apps(&self) -> io::Result<Vec<AppUid>> {
        names(&self.directory).map(|names| names.iter().filter_map(|name| name.parse().ok()).collect())
    }

    /// Returns the record of a build, which may be missing.
    pub(crate) fn of(&self, build: DeployId) -> Record {
        Record(self.app(build.app).join(build.revision.to_string()))
    }

    fn app(&self, app: AppUid) -> PathBuf {
        self.directory.join(app.to_string())
    }

    /// Locks the app until the file is dropped. Returns `None` if another process has the lock. The app's directory is
    /// created only if `make` is set.
    pub(crate) fn lock(&self, app: AppUid, make: bool) -> io::Result<Option<File>> {
        let directory = self.app(app);
        if make {
            fs::create_dir_all(&directory)?;
        }
        let file = File::options().create(true).append(true).mode(0o600).open(directory.join("lock"))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Returns whether the app has records.
    pub(crate) fn knows(&self, app: AppUid) -> bool {
        self.app(app).is_dir()
    }

    /// Returns the app's builds, oldest first.
    pub(crate) fn builds(&self, app: AppUid) -> io::Result<Vec<Record>> {
        let mut revisions: Vec<Revision> = names(&self.app(app))?.iter().filter_map(|name| name.parse().ok()).collect();
        revisions.sort_unstable();
        Ok(revisions.into_iter().map(|revision| self.of(DeployId { app, revision })).collect())
    }

    /// Removes the oldest builds beyond those that are kept.
    pub(crate) fn prune(&self, app: AppUid) -> io::Result<()> {
        let builds = self.builds(app)?;
        let mut bytes = 0_u64;
        for (index, record) in builds.iter().rev().enumerate() {
            bytes = bytes.saturating_add(fs::metadata(record.log()).map_or(0, |log| log.len()));
            if (index >= KEPT || bytes > LOGS_MAX) && record.unfinished()?.is_none() {
                self.forget(record)?;
            }
        }
        Ok(())
    }

    /// Stores the end of a build, and removes its checkout.
    pub(crate) fn end(&self, record: &Record, end: &End) -> io::Result<()> {
        record.write("end.json", &serde_json::to_vec(end)?)?;
        if let Err(error) = self.trash.take(&record.work()) {
            tracing::warn!(directory = %record.work().display(), %error, "removing a checkout failed");
        }
        Ok(())
    }

    /// Removes the records of an app.
    pub(crate) fn forget_app(&self, app: AppUid) -> io::Result<()> {
        self.trash.take(&self.app(app))
    }

    /// Removes the record of a build.
    pub(crate) fn forget(&self, record: &Record) -> io::Result<()> {
        self.trash.take(&record.0)
    }
}

fn names(directory: &Path) -> io::Result<Vec<String>> {
    match fs::read_dir(directory) {
        Ok(entries) => Ok(entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

impl Record {
    /// Returns the record of the only build of this directory.
    pub(crate) fn at(directory: PathBuf) -> Self {
        Self(directory)
    }

    /// Creates the record with the build's number, before a process is started that carries it.
    pub(crate) fn begin(&self, run: &str) -> io::Result<()> {
        fs::create_dir_all(self.work())?;
        self.write("run", run.as_bytes())
    }

    /// Returns the number of a build that has begun and has not ended.
    pub(crate) fn unfinished(&self) -> io::Result<Option<String>> {
        if self.0.join("end.json").exists() {
            return Ok(None);
        }
        match fs::read_to_string(self.0.join("run")) {
            Ok(run) => Ok(Some(run)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Some(String::new())),
            Err(error) => Err(error),
        }
    }

    /// Returns the end; `None` if the build has not ended.
    pub(crate) fn ended(&self) -> io::Result<Option<End>> {
        match fs::read(self.0.join("end.json")) {
            Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.0.join("work")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.0.join("log")
    }

    /// Writes a file that is complete as soon as it exists.
    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut draft = tempfile::NamedTempFile::new_in(&self.0)?;
        draft.write_all(bytes)?;
        draft.as_file().sync_all()?;
        draft.persist(self.0.join(name)).map(drop).map_err(|error| error.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_builds_go_with_their_logs_and_those_that_run_stay() {
        let directory = tempfile::tempdir().unwrap();
        let records = Records::open(directory.path().to_owned()).unwrap();
        let app = AppUid::from_bits(1);
        let end = End::before_the_log("It failed.".to_owned());
        for revision in 1..=205 {
            let record = records.of(DeployId { app, revision: Revision::new(revision).unwrap() });
            record.begin("1").unwrap();
            File::create(record.log()).unwrap().set_len(if revision > 150 { 8 << 20 } else { 0 }).unwrap();
            if revision != 180 {
                records.end(&record, &end).unwrap();
            }
        }
        let kept = || records.builds(app).unwrap().len();
        records.prune(app).unwrap();
        assert_eq!(kept(), 9, "64 MiB of logs, and the one that runs");
        let running = records.of(DeployId { app, revision: Revision::new(180).unwrap() });
        assert!(running.log().parent().is_some_and(Path::exists));
    }
}
