//! The files of a site.
//!
//! ```text
//!   ROOT/lock                              held while a site is changed
//!   ROOT/images/REPOSITORY/v2@sha256:…/    a release, as CI uploads it
//!   ROOT/images/REPOSITORY/v2              link to the release that the tag means now
//!   SITE/current                           link to the release that is to be served
//!   SITE/deploy                            the deploy id, its image, and whether `current` was switched to it, or the
//!                                          deploy is a restore which keeps what an earlier deploy serves
//!   SITE/served, SITE/log                  written by the server: what it serves, and what that has logged
//! ```

use std::{
    fs::{self, File},
    io::{self, ErrorKind},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use rollhook_core::{Error, Result, error::Entity, image::ImageRef, ports::DeployId};

/// A site's directory.
pub(crate) struct Site {
    directory: PathBuf,
    images: PathBuf,
    lock: PathBuf,
}

/// The deploy that was applied last.
#[derive(Clone)]
pub(crate) struct Record {
    pub(crate) deploy: DeployId,
    pub(crate) image: ImageRef,
    pub(crate) step: Step,
}

/// How far a deploy is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// Its release is not there yet.
    Waiting,
    /// `current` leads to its release.
    Switched,
    /// What runs was left as it is: the process of this deploy, or from before the first one.
    Kept(Option<DeployId>),
}

impl Record {
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.step, Step::Waiting)
    }

    /// The deploy whose process is to be served; `None`: the one from before the first deploy.
    pub(crate) fn serves(&self) -> Option<DeployId> {
        match self.step {
            Step::Kept(before) => before,
            Step::Waiting | Step::Switched => Some(self.deploy),
        }
    }
}

/// The server's answer about itself.
pub(crate) struct Served {
    /// The deploy that it serves; none before the first one.
    pub(crate) deploy: Option<DeployId>,
    pub(crate) ready: bool,
    pub(crate) restarts: u32,
    /// The time at which it began to serve this release, and at which it ended last, in milliseconds since the epoch.
    pub(crate) first_start: u64,
    pub(crate) last_end: u64,
    pub(crate) image: Option<ImageRef>,
}

impl Site {
    pub(crate) fn new(root: &Path, directory: PathBuf) -> Result<Self> {
        let images = fs::canonicalize(root.join("images")).map_err(failed)?;
        Ok(Self { directory, images, lock: root.join("lock") })
    }

    /// Keeps other processes from changing a site until the answer is dropped. It never waits: the other one may have
    /// been stopped while it held the lock.
    pub(crate) fn locked(&self) -> Result<File> {
        let file = File::create(&self.lock).map_err(failed)?;
        file.try_lock().map_err(|_| Error::Conflict(Entity::Object))?;
        Ok(file)
    }

    /// Returns the deploy that was applied last; `None` before the first one.
    pub(crate) fn record(&self) -> Result<Option<Record>> {
        let Some(text) = self.read("deploy")? else { return Ok(None) };
        let record = match text.split_whitespace().collect::<Vec<_>>()[..] {
            [deploy, image, state] => deploy.parse().ok().zip(image.parse().ok()).map(|(deploy, image)| Record {
                deploy,
                image,
                step: match state.strip_prefix("kept=") {
                    Some(before) => Step::Kept(before.parse().ok()),
                    None if state == "switched" => Step::Switched,
                    None => Step::Waiting,
                },
            }),
            _ => None,
        };
        record.map(Some).ok_or_else(|| Error::corrupt("the file deploy of a site", text))
    }

    /// Replaces the record in one step.
    pub(crate) fn write(&self, record: &Record) -> Result<()> {
        let state = match record.step {
            Step::Waiting => "waiting".to_owned(),
            Step::Switched => "switched".to_owned(),
            Step::Kept(None) => "kept=-".to_owned(),
            Step::Kept(Some(before)) => format!("kept={before}"),
        };
        let new = self.directory.join("deploy.new");
        fs::create_dir_all(&self.directory).map_err(failed)?;
        fs::write(&new, format!("{} {} {state}\n", record.deploy, record.image)).map_err(failed)?;
        File::open(&new).and_then(|file| file.sync_all()).map_err(failed)?;
        fs::rename(new, self.directory.join("deploy")).map_err(failed)
    }

    /// Switches to the release of what was applied, once there is one. Taken again, the step does nothing.
    pub(crate) fn advance(&self, record: Record) -> Result<Record> {
        let release = if record.is_waiting() { self.release(&record.image)? } else { None };
        let Some(release) = release else { return Ok(record) };
        let new = self.directory.join("current.new");
        found(fs::remove_file(&new))?;
        symlink(release, &new).map_err(failed)?;
        fs::rename(new, self.directory.join("current")).map_err(failed)?;
        let record = Record { step: Step::Switched, ..record };
        self.write(&record)?;
        Ok(record)
    }

    /// The image that `current` leads to; the inner one is none where that is no release.
    pub(crate) fn current(&self) -> Result<Option<Option<ImageRef>>> {
        Ok(found(fs::canonicalize(self.directory.join("current")))?.map(|release| self.image(&release)))
    }

    /// Returns the server's answer; `None` before it serves anything.
    pub(crate) fn served(&self) -> Result<Option<Served>> {
        let Some(text) = self.read("served")? else { return Ok(None) };
        let mut words = text.trim_end().splitn(6, ' ');
        let [deploy, state, restarts, start, end, release] = [(); 6].map(|()| words.next().unwrap_or_default());
        let (deploy, restarts) = (deploy.parse().ok(), restarts.parse().unwrap_or(0));
        let (first_start, last_end) = (start.parse().unwrap_or(0), end.parse().unwrap_or(0));
        let (ready, image) = (state == "ready", self.image(Path::new(release)));
        Ok(Some(Served { deploy, ready, restarts, first_start, last_end, image }))
    }

    /// The last lines that the server logged.
    pub(crate) fn log(&self) -> Result<Vec<String>> {
        let text = self.read("log")?.unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let last = lines.iter().skip(lines.len().saturating_sub(50));
        Ok(last.map(|line| line.chars().take(500).collect()).collect())
    }

    /// The directory of an image; none where it was not uploaded. A digest says which one, whatever the tag means now.
    fn release(&self, image: &ImageRef) -> Result<Option<PathBuf>> {
        let repository = self.images.join(image.canonical_repository());
        let Some(digest) = image.digest() else {
            return found(fs::canonicalize(repository.join(image.tag().unwrap_or("latest"))));
        };
        let Some(releases) = found(fs::read_dir(&repository))? else { return Ok(None) };
        let is_it = |path: &PathBuf| path.to_string_lossy().ends_with(&format!("@{digest}"));
        Ok(releases.flatten().map(|entry| entry.path()).find(is_it))
    }

    /// The image of a release, by the name of its directory.
    fn image(&self, release: &Path) -> Option<ImageRef> {
        let (repository, version) = release.strip_prefix(&self.images).ok()?.to_str()?.rsplit_once('/')?;
        format!("{repository}:{version}").parse().ok()
    }

    fn read(&self, file: &str) -> Result<Option<String>> {
        Ok(found(fs::read(self.directory.join(file)))?.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }
}

/// The milliseconds since the Unix epoch.
#[expect(clippy::disallowed_methods, reason = "the server beside writes its times by the wall clock")]
pub(crate) fn now_millis() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

fn found<T>(done: io::Result<T>) -> Result<Option<T>> {
    match done {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

fn failed(error: io::Error) -> Error {
    Error::unavailable("the files of a site", error)
}
