//! Reads branches by `git ls-remote`, and their newest commits by `git fetch`.

use std::{
    ffi::OsStr,
    fs::{self, DirEntry},
    io,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use rollhook_core::{
    Error as PortError, Result,
    app::AppId,
    deploy::Commit,
    error::Entity,
    ports::BranchReader,
    source::{AllowedSources, BranchLog, GitSource},
};
use tempfile::TempDir;
use tokio::sync::Semaphore;

use crate::{
    Addresses, Credentials, GitError, Invocation, Unresolved, environment,
    limiter::{Limiter, Permit, Priority},
    log,
    process::{self, Finished},
};

/// The settings of a branch reader.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The directory of the credentials that sources name: a file each.
    pub credentials: Option<PathBuf>,
    /// The sources that may be read.
    pub sources: AllowedSources,
    /// The longest that a read may take, and the longest that it may wait for its turn.
    pub limit: Duration,
    /// The longest that a git server may be silent.
    pub silence: Duration,
    /// The number of sources that are read at the same time; of one host three at most, of one environment a quarter, and two
    /// of those at one host. Each takes at most 64 MiB of memory.
    pub at_once: usize,
    /// The directory in which one is made for git to run in.
    pub temporary: PathBuf,
}

impl Default for Settings {
    /// No credentials, the sources of other machines, 20 s, 10 s of silence, eight sources at once.
    fn default() -> Self {
        Self {
            credentials: None,
            sources: AllowedSources::default(),
            limit: Duration::from_secs(20),
            silence: Duration::from_secs(10),
            at_once: 8,
            temporary: std::env::temp_dir(),
        }
    }
}

/// The error of opening a branch reader.
#[derive(Debug, thiserror::Error)]
#[error("cannot make a directory for git to run in")]
pub struct Error(#[from] io::Error);

/// Reads branches with git.
pub struct GitBranchReader {
    settings: Settings,
    limiter: Limiter,
    /// Empty: git finds no repository here, and so no configuration of one.
    home: Mutex<Arc<TempDir>>,
    /// The turns to fetch a branch.
    fetches: Semaphore,
}

impl GitBranchReader {
    /// Opens a reader of branches. If git cannot be run, the log says so; git may be installed later.
    ///
    /// # Errors
    /// If no temporary directory can be made.
    pub fn open(settings: Settings) -> std::result::Result<Self, Error> {
        let home = Mutex::new(Arc::new(home_in(&settings)?));
        match version() {
            Err(error) => tracing::warn!(
                %error,
                "running git failed: branches of git apps are not read, so that polling finds nothing, and late pushes are \
                 recognized by the history alone; install git (and ssh, for ssh sources) on the server's machine"
            ),
            Ok(version) if !settings.sources.local && connects_anywhere(&version) => tracing::warn!(
                version,
                "git before 2.37 resolves the names of https sources anew, and may connect to another address than the one \
                 that was checked; install a newer one, or bound the server's network"
            ),
            Ok(_) => {}
        }
        remove_left(&settings.temporary);
        let (limiter, fetches) = (Limiter::new(settings.at_once), Semaphore::new(log::AT_ONCE));
        Ok(Self { limiter, settings, home, fetches })
    }

    /// Returns the empty directory, which is made again if a cleaner of temporary files has removed it.
    fn home(&self) -> Result<Arc<TempDir>> {
        let mut home = self.home.lock().unwrap_or_else(PoisonError::into_inner);
        if !home.path().is_dir() {
            let made = home_in(&self.settings).map_err(no_room)?;
            *home = Arc::new(made);
        }
        Ok(Arc::clone(&home))
    }

    /// Waits for the permit to read a source.
    async fn permit(&self, app: &AppId, source: &GitSource, priority: Priority) -> Result<Permit> {
        let url = &source.url;
        let permit = self.limiter.acquire(app, url.host().unwrap_or_default(), priority);
        match tokio::time::timeout(self.settings.limit, permit).await {
            Ok(Some(permit)) => Ok(permit),
            Ok(None) | Err(_) => Err(match priority {
                Priority::Polling => PortError::Conflict(Entity::Capacity),
                Priority::Waiting => {
                    let what = format!("{url} was not read: this server reads as many sources as it may at once");
                    PortError::Unavailable { what, cause: None }
                }
            }),
        }
    }

    /// Runs git in a directory for a source that is being read.
    async fn git(
        &self,
        source: &GitSource,
        open: &Open,
        directory: &Path,
        arguments: &[impl AsRef<OsStr>],
    ) -> Result<Finished> {
        let (url, home) = (&source.url, self.home()?);
        let Open { credentials, addresses, .. } = open;
        let invocation =
            Invocation { source, credentials, addresses, home: home.path(), silence: self.settings.silence };
        let mut git = invocation.git(directory);
        // Other users may write above a directory for temporary files.
        git.env("GIT_CEILING_DIRECTORIES", directory.parent().unwrap_or(directory));
        git.args(arguments);
        process::run(git, self.settings.limit).await.map_err(|error| {
            let what = if error.kind() == io::ErrorKind::TimedOut {
                format!("{url} did not answer in time")
            } else if error.kind() == io::ErrorKind::FileTooLarge {
                format!("{url} answered with more than a branch")
            } else {
                "git cannot be run on the server's machine".to_owned()
            };
            PortError::unavailable(what, error)
        })
    }
}

/// A source that may be read now.
struct Open {
    credentials: Credentials,
    addresses: Addresses,
    _permit: Arc<Permit>,
}

#[async_trait]
impl BranchReader for GitBranchReader {
    async fn head(&self, app: &AppId, source: &GitSource) -> Result<Option<Commit>> {
        self.read(app, source, Priority::Waiting).await
    }

    async fn look(&self, app: &AppId, source: &GitSource) -> Result<Option<Commit>> {
        self.read(app, source, Priority::Polling).await
    }

    async fn log(&self, app: &AppId, source: &GitSource) -> Result<BranchLog> {
        // Who waits for the turn keeps no other read from its permit.
        let closed = |error| PortError::unavailable("no branch is fetched any more".to_owned(), error);
        let _turn = self.fetches.acquire().await.map_err(closed)?;
        let open = self.open_source(app, source, Priority::Waiting).await?;
        for format in log::FORMATS {
            if let Some(log) = self.fetched(source, &open, format).await? {
                return Ok(log);
            }
        }
        Err(PortError::invalid(format!("{} has commits of an unknown kind", source.url)))
    }
}

impl GitBranchReader {
    async fn read(&self, app: &AppId, source: &GitSource, priority: Priority) -> Result<Option<Commit>> {
        let open = self.open_source(app, source, priority).await?;
        let (url, reference, home) = (source.url.as_str(), reference(source), self.home()?);
        let arguments = ["ls-remote", "-q", "--heads", "--refs", "--", url, &reference];
        head_of(source, &self.done(source, &open, home.path(), &arguments).await?)
    }

    /// Returns the newest commits of a branch; `None` if their names are of another kind than this one.
    async fn fetched(&self, source: &GitSource, open: &Open, format: &str) -> Result<Option<BranchLog>> {
        let directory = TempDir::with_prefix_in(log::PREFIX, &self.settings.temporary).map_err(no_room)?;
        let directory = directory.path();
        self.done(source, open, directory, &log::init(format)).await?;
        let fetched = self.git(source, open, directory, &log::fetch(source.url.as_str(), &reference(source))).await?;
        if fetched.status.success() {
            return log::parsed(&self.done(source, open, directory, &log::LIST).await?).map(Some);
        }
        if log::is_of_another_format(&fetched.error) {
            return Ok(None);
        }
        if GitError::of(&fetched.error) == GitError::NoSuchCommit {
            return Ok(Some(BranchLog::default()));
        }
        Err(classified(source, fetched.error))
    }

    /// Runs git to a good end, and returns its output.
    async fn done(
        &self,
        source: &GitSource,
        open: &Open,
        directory: &Path,
        arguments: &[impl AsRef<OsStr>],
    ) -> Result<String> {
        let finished = self.git(source, open, directory, arguments).await?;
        if finished.status.success() { Ok(finished.output) } else { Err(classified(source, finished.error)) }
    }

    /// Waits until a source may be read.
    async fn open_source(&self, app: &AppId, source: &GitSource, priority: Priority) -> Result<Open> {
        let Settings { sources, silence, .. } = &self.settings;
        let url = &source.url;
        sources.check(url).map_err(|refused| PortError::invalid(format!("{url} is {refused}")))?;
        let credentials = Credentials::find(source, self.settings.credentials.as_deref())
            .map_err(|what| PortError::Denied { what: what.trim_end_matches('.').to_owned(), cause: None })?;
        // Held by the resolving of the name too, which may take longer than it is waited for.
        let permit = Arc::new(self.permit(app, source, priority).await?);
        let addresses = Addresses::of(url, sources, *silence, Arc::clone(&permit)).await.map_err(|error| {
            let what = format!("{url} {error}");
            match error {
                Unresolved::Local => PortError::invalid(what),
                Unresolved::Unknown(cause) => PortError::unavailable(what, cause),
            }
        })?;
        Ok(Open { credentials, addresses, _permit: permit })
    }
}

/// Removes the directories that a process which was killed has left behind.
fn remove_left(temporary: &Path) {
    let found = fs::read_dir(temporary).into_iter().flatten().flatten();
    let is_left = |entry: &DirEntry| {
        let age = entry.metadata().and_then(|metadata| metadata.modified()).ok().and_then(|at| at.elapsed().ok());
        let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(log::PREFIX));
        is_ours && age.is_some_and(|age| age >= log::LEFT_AFTER)
    };
    for left in found.filter(is_left) {
        if let Err(error) = fs::remove_dir_all(left.path()) {
            tracing::debug!(%error, path = %left.path().display(), "removing a directory that was left behind failed");
        }
    }
}

fn no_room(error: io::Error) -> PortError {
    PortError::unavailable("the server's machine has no room for a temporary directory".to_owned(), error)
}

fn home_in(settings: &Settings) -> io::Result<TempDir> {
    TempDir::with_prefix_in("rollhook-git-", &settings.temporary)
}

/// Returns the version of git; fails if it cannot be run.
fn version() -> io::Result<String> {
    let output = environment::child("git").into_std().arg("--version").stdin(Stdio::null()).output()?;
    let version = String::from_utf8_lossy(&output.stdout).trim().trim_start_matches("git version ").to_owned();
    if output.status.success() {
        Ok(version)
    } else {
        Err(io::Error::other(format!("git --version: {}", output.status)))
    }
}

/// Returns whether this version of git is without `http.curloptResolve`, which others ignore in silence.
fn connects_anywhere(version: &str) -> bool {
    let mut numbers = version.split('.').map(|number| number.parse().ok());
    let (Some(Some(major)), Some(Some(minor))) = (numbers.next(), numbers.next()) else { return false };
    (major, minor) < (2_u32, 37_u32)
}

fn reference(source: &GitSource) -> String {
    format!("refs/heads/{}", source.branch)
}

/// The branch's commit among the lines of an answer: git matches the end of names, so that it also names
/// `a/refs/heads/b` where `b` is asked for.
fn head_of(source: &GitSource, answer: &str) -> Result<Option<Commit>> {
    let wanted = reference(source);
    let found = answer.lines().find_map(|line| {
        let (hash, name) = line.split_once('\t')?;
        (name == wanted).then_some(hash)
    });
    let Some(hash) = found else { return Ok(None) };
    let commit = hash.parse().ok().filter(|commit: &Commit| commit.is_sha() && matches!(hash.len(), 40 | 64));
    match commit {
        Some(commit) => Ok(Some(commit)),
        None => Err(PortError::invalid(format!("{} answered with what is no commit", source.url))),
    }
}

/// Returns the error that git's standard error tells of.
fn classified(source: &GitSource, stderr: String) -> PortError {
    let url = &source.url;
    if GitError::is_out_of_memory(&stderr) {
        return PortError::unavailable(format!("{url} answered with more than a branch"), io::Error::other(stderr));
    }
    let kind = GitError::of(&stderr);
    let cause = Some(stderr.into());
    match kind {
        GitError::Denied => {
            let what = match &source.credentials {
                Some(name) => format!("{url} does not let this server in with the credentials {name}"),
                None => format!("{url} does not let this server in without credentials"),
            };
            PortError::Denied { what, cause }
        }
        GitError::NoRepository => {
            let what = format!("there is no repository at {url}, or none that this server may read");
            PortError::Denied { what, cause }
        }
        GitError::Moved => {
            PortError::Invalid { what: format!("{url} leads elsewhere: name the repository's new URL"), cause }
        }
        GitError::Ssh(error) => {
            PortError::Denied { what: error.sentence(source).trim_end_matches('.').to_owned(), cause }
        }
        GitError::NoSuchCommit | GitError::Unreachable => {
            PortError::Unavailable { what: format!("{url} cannot be read"), cause }
        }
    }
}

#[cfg(test)]
mod tests {
    use rollhook_conformance::samples;

    use super::*;

    #[test]
    fn only_the_branch_itself_is_read_from_an_answer() {
        let source = samples::git_source();
        let (ours, theirs) = ("a".repeat(40), "b".repeat(40));
        let other = format!("{theirs}\trefs/heads/x/refs/heads/main\n");
        assert_eq!(head_of(&source, &other).unwrap(), None);
        let both = format!("{other}{ours}\trefs/heads/main\n");
        assert_eq!(head_of(&source, &both).unwrap().unwrap().as_str(), ours);
        assert_eq!(head_of(&source, "").unwrap(), None);
        for hash in ["", "main", "0123", &"g".repeat(40), &"a".repeat(41)] {
            assert!(head_of(&source, &format!("{hash}\trefs/heads/main")).is_err(), "{hash}");
        }
    }

    #[test]
    fn old_git_is_recognized_by_its_version() {
        for (version, old) in [("2.34.1", true), ("2.37.0", false), ("2.39.5 (Apple Git-154)", false), ("3.0.0", false)]
        {
            assert_eq!(connects_anywhere(version), old, "{version}");
        }
    }

    #[test]
    fn words_of_git_stay_in_the_log() {
        let source = samples::git_source();
        for stderr in ["Authentication failed", "' not found", "error: 301", "10.1.2.3 is away"] {
            let error = classified(&source, stderr.to_owned());
            assert!(!error.to_string().contains(stderr), "{error}");
            assert!(error.chain().contains(stderr), "{}", error.chain());
        }
    }
}
