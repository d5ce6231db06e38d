//! Checks out one commit of a source: resolved to its full SHA, fetched as that SHA, and verified.
//!
//! How git is started is [`rollhook_git`]'s to say. Every argument that came from outside is checked where it was
//! parsed (`rollhook_core::source`), and stands behind `--` where git would read options.

use std::{
    future::pending,
    path::Path,
    process::ExitStatus,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use rollhook_core::{
    app::AppId,
    deploy::{Commit, Reason},
    source::{AllowedSources, GitSource},
};
use rollhook_git::{Addresses, Credentials, GitError, Invocation, Limiter, Priority, Unresolved};
use tokio::{process::Command, sync::watch};

use crate::{
    checkout_limits::{CheckoutLimits, EntryCount},
    disk_limits::{Bytes, DiskLimits},
    environment,
    log::{Log, Tail},
    process::{self, Bounds, Ended, Output, Stop},
    slots::{HostSlot, HostSlots},
    space::{self, Space},
};

/// The number of candidates of a short SHA that a message names.
const NAMED: usize = 3;

/// The pauses before a source that did not answer is read again.
const PAUSES: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(3), Duration::from_secs(8)];

/// The end of a build without an image.
#[derive(Debug)]
pub(crate) enum Failed {
    /// A reason code, and a sentence for people.
    For(&'static str, String),
    /// The build was stopped.
    Stopped(Stop),
}

/// The source of one build, and what git needs to read it.
pub(crate) struct Git<'a> {
    pub(crate) source: &'a GitSource,
    pub(crate) credentials: &'a Credentials,
    /// The sources that may be read.
    pub(crate) allowed: &'a AllowedSources,
    /// The addresses of the source's host, once they are known.
    pub(crate) addresses: Addresses,
    /// The build's own number.
    pub(crate) run: &'a str,
    /// A directory of the build's own.
    pub(crate) work: &'a Path,
    /// The longest that each step may take.
    pub(crate) limit: Duration,
    /// The most that the commit may check out.
    pub(crate) limits: CheckoutLimits,
    /// The most memory that a process may have.
    pub(crate) memory: u64,
    /// The space that is left on the disk of the directory.
    pub(crate) disk: DiskLimits,
    /// The longest that a connection may be silent.
    pub(crate) silence: Duration,
    pub(crate) log: &'a mut Log,
    pub(crate) stop: &'a mut watch::Receiver<Option<Stop>>,
    /// The app whose source it is.
    pub(crate) app: &'a AppId,
    /// Limits the names that are resolved at once.
    pub(crate) lookups: &'a Limiter,
    /// Limits the reads of one host.
    pub(crate) limiter: &'a HostSlots,
    /// Whether this build waits for others.
    pub(crate) waits: &'a AtomicBool,
}

/// A git command that has ended.
struct Finished {
    status: ExitStatus,
    /// The last lines of its standard output, if they were not written to the log.
    output: Tail,
    /// The last lines of its standard error.
    error: Tail,
}

/// The use of a command's standard output.
enum Stdout<'a> {
    Log,
    Tail,
    Each(&'a mut (dyn FnMut(&[u8]) + Send)),
}

/// The use of a command's standard error, besides its last lines.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stderr {
    Log,
    /// Dropped: it may hold the answer of a host that is no git host, which is not shown to those who chose the host.
    Tail,
}

impl Git<'_> {
    /// Returns the full SHA of the one commit of the source that begins with this one. A source that does not answer is
    /// read again a few times.
    pub(crate) async fn resolve(&mut self, commit: &Commit) -> Result<String, Failed> {
        for pause in PAUSES {
            match self.try_resolve(commit).await {
                Err(Failed::For(Reason::SOURCE_UNREACHABLE, message)) => {
                    self.log.say(&format!("{message} Asking again."));
                }
                other => return other,
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                why = process::stopped(self.stop) => return Err(Failed::Stopped(why)),
            }
        }
        self.try_resolve(commit).await
    }

    async fn try_resolve(&mut self, commit: &Commit) -> Result<String, Failed> {
        self.locate().await?;
        let given = commit.as_str().to_ascii_lowercase();
        let length = match self.hash_length().await? {
            Some(length) => length,
            None if matches!(given.len(), 40 | 64) => given.len(),
            None => return Err(self.not_found(commit)),
        };
        if given.len() == length {
            return Ok(given);
        }
        if given.len() > length {
            return Err(self.not_found(commit));
        }
        self.log.say(&format!("looking for the commit that begins with {given}"));
        let repository = self.work.join("resolve.git");
        self.init(&repository, length, true).await?;
        let mut fetch = self.git(&repository);
        fetch.args(["fetch", "-q", "--filter=tree:0", "--no-recurse-submodules", "--", self.source.url.as_str()]);
        fetch.args(["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"]);
        self.remote(fetch).await?;
        let mut list = self.git(&repository);
        list.args(["rev-list", "--all"]);
        let mut candidates = Candidates { prefix: given, ..Candidates::default() };
        let mut take = |bytes: &[u8]| candidates.take_in(bytes);
        let listed = self.run(list, Stdout::Each(&mut take), Stderr::Log, pending()).await?;
        if !listed.status.success() {
            return Err(checkout_failed(&listed));
        }
        match candidates.commits.as_slice() {
            [] => Err(self.not_found(commit)),
            [one] => Ok(one.clone()),
            several => {
                let named: Vec<&str> = several.iter().take(NAMED).map(|sha| &sha[..sha.len().min(16)]).collect();
                let message =
                    format!("More than one commit begins with {commit}: {}; post more digits.", named.join(", "));
                Err(Failed::For(Reason::COMMIT_AMBIGUOUS, message))
            }
        }
    }

    /// Waits until it is this build's turn, or the build is stopped.
    pub(crate) async fn turn<T>(&mut self, turn: impl Future<Output = T>) -> Result<T, Failed> {
        self.waits.store(true, Ordering::Relaxed);
        let turn = tokio::select! {
            turn = turn => Ok(turn),
            why = process::stopped(self.stop) => Err(Failed::Stopped(why)),
        };
        self.waits.store(false, Ordering::Relaxed);
        turn
    }

    /// Fetches exactly this commit into a directory that does not exist yet.
    pub(crate) async fn fetch(&mut self, sha: &str, directory: &Path) -> Result<(), Failed> {
        self.init(directory, sha.len(), false).await?;
        let mut fetch = self.git(directory);
        fetch.args(["fetch", "-q", "--depth=1", "--no-tags", "--no-recurse-submodules", "--"]);
        fetch.args([self.source.url.as_str(), sha]);
        self.remote(fetch).await
    }

    /// Fails if the disk of the directory is nearly full.
    pub(crate) async fn check_disk(&self) -> Result<(), Failed> {
        space::refusal(self.work, self.disk).await.map_or(Ok(()), |message| Err(too_much(message)))
    }

    /// Fails if the commit that was fetched into this directory would check out more than it may. The first limit that is
    /// passed ends the reading of its directories, which may never end.
    pub(crate) async fn measure(&mut self, sha: &str, directory: &Path) -> Result<(), Failed> {
        let mut list = self.git(directory);
        list.args(["ls-tree", "-r", "-t", "-l", "-z", sha]);
        let mut count = EntryCount::new(self.limits);
        let (passed, mut is_passed) = watch::channel(None);
        let mut take = |bytes: &[u8]| {
            if passed.borrow().is_none() {
                passed.send_replace(count.add(bytes).err());
            }
        };
        let limit = async {
            match is_passed.wait_for(Option::is_some).await.ok().and_then(|message| message.clone()) {
                Some(message) => too_much(message),
                None => pending().await,
            }
        };
        let listed = self.run(list, Stdout::Each(&mut take), Stderr::Log, limit).await;
        // The last of the output may have been read after git had exited.
        if let Some(message) = passed.send_replace(None) {
            return Err(too_much(message));
        }
        let listed = listed?;
        if listed.status.success() { Ok(()) } else { Err(checkout_failed(&listed)) }
    }

    /// Checks out the commit that was fetched into this directory.
    pub(crate) async fn check_out(&mut self, sha: &str, directory: &Path) -> Result<(), Failed> {
        let mut checkout = self.git(directory);
        checkout.args(["checkout", "-q", "--detach", sha, "--"]);
        // Attributes may ask for encodings in which files are larger than they are stored.
        let space = self.space(self.limits.fetched.saturating_mul(2));
        let finished = self.run_within(space, checkout, Stderr::Log).await?;
        if !finished.status.success() {
            return Err(checkout_failed(&finished));
        }
        let mut verify = self.git(directory);
        verify.args(["rev-parse", "HEAD"]);
        let head = self.run(verify, Stdout::Tail, Stderr::Log, pending()).await?;
        if head.status.success() && head.output.last().as_deref() == Some(sha) {
            return Ok(());
        }
        // The hash of a tag leads to a commit too, but is none.
        let message = format!("{sha} is not a commit of {}.", self.source.url);
        Err(Failed::For(Reason::COMMIT_NOT_FOUND, message))
    }

    /// Resolves the name of the source's host.
    async fn locate(&mut self) -> Result<(), Failed> {
        let (limiter, app, url) = (self.lookups, self.app, &self.source.url);
        let turn = self.turn(limiter.acquire(app, url.host().unwrap_or_default(), Priority::Waiting)).await?;
        let addresses = tokio::select! {
            addresses = Addresses::of(url, self.allowed, self.silence, turn) => addresses,
            why = process::stopped(self.stop) => return Err(Failed::Stopped(why)),
        };
        self.addresses = addresses.map_err(|error| {
            let reason = match &error {
                Unresolved::Local => Reason::BUILD_REFUSED,
                Unresolved::Unknown(_) => Reason::SOURCE_UNREACHABLE,
            };
            Failed::For(reason, format!("{url} {error}."))
        })?;
        Ok(())
    }

    /// Returns the length of the source's hashes; `None` if it has no branch to tell by. Fails if it cannot be read.
    async fn hash_length(&mut self) -> Result<Option<usize>, Failed> {
        let mut list = self.git(self.work);
        let branch = format!("refs/heads/{}", self.source.branch);
        list.args(["ls-remote", "-q", "--", self.source.url.as_str(), "HEAD", branch.as_str()]);
        let _permit = self.permit().await?;
        let listed = self.run(list, Stdout::Tail, Stderr::Tail, pending()).await?;
        if !listed.status.success() {
            return Err(self.explained(&listed));
        }
        let length = listed.output.last().and_then(|line| line.split_whitespace().next().map(str::len));
        Ok(length.filter(|length| matches!(length, 40 | 64)))
    }

    async fn init(&mut self, directory: &Path, length: usize, bare: bool) -> Result<(), Failed> {
        let mut init = self.git(self.work);
        let format = if length == 64 { "sha256" } else { "sha1" };
        init.args(["init", "-q", "--template=", "-b", "main", "--object-format", format]);
        init.args(bare.then_some("--bare")).arg("--").arg(directory);
        self.local(init).await
    }

    /// Runs a command that reads the source.
    async fn remote(&mut self, command: Command) -> Result<(), Failed> {
        let _permit = self.permit().await?;
        let space = self.space(self.limits.fetched);
        let finished = self.run_within(space, command, Stderr::Tail).await?;
        if finished.status.success() { Ok(()) } else { Err(self.explained(&finished)) }
    }

    /// Waits for the permit to read from the source's host; pauses between reads are made without one.
    async fn permit(&mut self) -> Result<HostSlot, Failed> {
        let host = self.source.url.host().unwrap_or_default();
        self.turn(self.limiter.acquire(host, &self.app.namespace)).await
    }

    /// Runs a command that reads and writes files of this machine only.
    async fn local(&mut self, command: Command) -> Result<(), Failed> {
        let finished = self.run(command, Stdout::Log, Stderr::Log, pending()).await?;
        if finished.status.success() { Ok(()) } else { Err(checkout_failed(&finished)) }
    }

    /// Returns the space of the build's directory, with this limit.
    fn space(&self, most: u64) -> Space {
        Space { directory: self.work.to_owned(), most, disk: self.disk }
    }

    /// Runs a command that writes to the build's directory, and ends it once it has written too much.
    async fn run_within(&mut self, space: Space, command: Command, stderr: Stderr) -> Result<Finished, Failed> {
        let exceeded = space.clone().exceeded();
        let finished = self.run(command, Stdout::Log, stderr, async { too_much(exceeded.await) }).await?;
        // It may have ended between two looks.
        space.check().await.map_err(too_much)?;
        Ok(finished)
    }

    /// Runs a command to its end, or until `passed` returns why it may not go on.
    async fn run(
        &mut self,
        command: Command,
        mut stdout: Stdout<'_>,
        stderr: Stderr,
        passed: impl Future<Output = Failed>,
    ) -> Result<Finished, Failed> {
        let (url, time) = (&self.source.url, self.limit);
        let limit = async {
            tokio::select! {
                failed = passed => failed,
                () = tokio::time::sleep(time) => {
                    let message = format!("{url} did not answer within {} s.", time.as_secs_f64());
                    Failed::For(Reason::SOURCE_UNREACHABLE, message)
                }
            }
        };
        let (mut output, mut error) = (Tail::default(), Tail::default());
        let log = &mut *self.log;
        let ended = process::run(
            command,
            self.run,
            Bounds { owner: None, memory: Some(self.memory), leads_session: false },
            limit,
            self.stop,
            |pipe, bytes| match (pipe, &mut stdout) {
                (Output::Err, _) => {
                    error.write(bytes);
                    if stderr == Stderr::Log {
                        log.write(bytes);
                    }
                }
                (Output::Out, Stdout::Log) => log.write(bytes),
                (Output::Out, Stdout::Tail) => output.write(bytes),
                (Output::Out, Stdout::Each(each)) => each(bytes),
            },
        );
        match ended.await {
            Ok(Ended::Exited(status)) if !status.success() && GitError::is_out_of_memory(&error.lines().join("\n")) => {
                let most = Bytes(self.memory);
                Err(too_much(format!("git needs more memory than {most} for this commit: build from smaller files.")))
            }
            Ok(Ended::Exited(status)) => Ok(Finished { status, output, error }),
            Ok(Ended::Limited(failed)) => Err(failed),
            Ok(Ended::Stopped(why)) => Err(Failed::Stopped(why)),
            Err(error) => {
                tracing::error!(%error, "starting git failed");
                Err(Failed::For(Reason::BUILD_FAILED, "git cannot be started on the builder's machine.".to_owned()))
            }
        }
    }

    /// Returns a git command that carries the build's number.
    fn git(&self, directory: &Path) -> Command {
        let (source, credentials) = (self.source, self.credentials);
        let invocation =
            Invocation { source, credentials, addresses: &self.addresses, home: self.work, silence: self.silence };
        environment::numbered(invocation.git(directory), self.run)
    }

    fn not_found(&self, commit: &Commit) -> Failed {
        let message = format!(
            "{} has no commit {commit}. A short one is looked for on branches and tags; one that was pushed over can only \
             be named in full.",
            self.source.url
        );
        Failed::For(Reason::COMMIT_NOT_FOUND, message)
    }

    /// Returns the failure that a command's standard error tells of; its own words are in the server's log.
    fn explained(&self, finished: &Finished) -> Failed {
        let url = &self.source.url;
        let lines = finished.error.lines();
        tracing::warn!(source = %url, error = lines.join("\n"), "reading a source failed");
        match GitError::of(&lines.join("\n")) {
            GitError::NoSuchCommit => {
                let message = format!("{url} has no such commit, or does not hand it out by its hash.");
                Failed::For(Reason::COMMIT_NOT_FOUND, message)
            }
            GitError::Denied => {
                let message = match &self.source.credentials {
                    Some(name) => format!("{url} does not let the builder in with the credentials {name}."),
                    None => format!("{url} does not let the builder in without credentials."),
                };
                Failed::For(Reason::SOURCE_DENIED, message)
            }
            GitError::Ssh(error) => Failed::For(Reason::SOURCE_DENIED, error.sentence(self.source)),
            GitError::NoRepository | GitError::Moved | GitError::Unreachable => {
                let cause = GitError::cause(&lines);
                Failed::For(Reason::SOURCE_UNREACHABLE, format!("{url} cannot be read: {cause}."))
            }
        }
    }
}

/// The failure of a build that has passed a limit, which the sentence names.
fn too_much(message: String) -> Failed {
    Failed::For(Reason::BUILD_FAILED, message)
}

fn checkout_failed(finished: &Finished) -> Failed {
    let last = finished.error.last().unwrap_or_else(|| finished.status.to_string());
    Failed::For(Reason::BUILD_FAILED, format!("The commit could not be checked out: {last}."))
}

/// The commits that begin with a prefix, out of a list that may be as long as a history.
#[derive(Default)]
struct Candidates {
    prefix: String,
    open: Vec<u8>,
    commits: Vec<String>,
}

impl Candidates {
    fn take_in(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.open.extend_from_slice(piece);
            if !piece.ends_with(b"\n") {
                continue;
            }
            if self.open.starts_with(self.prefix.as_bytes()) && self.commits.len() <= NAMED {
                self.commits.push(String::from_utf8_lossy(&self.open).trim_end().to_owned());
            }
            self.open.clear();
        }
    }
}
