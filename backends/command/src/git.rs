//! One full SHA at the source, fetched as that SHA, checked out and verified.
//!
//! How git is started is [`rollhook_git`]'s to say. Every argument that came from outside is checked where it was parsed
//! (`rollhook_core::source`), and stands behind `--` where git would read options.

use std::{path::Path, process::ExitStatus, time::Duration};

use rollhook_core::{
    deploy::{Commit, Reason},
    ports::BuildFailure,
    source::GitSource,
};
use rollhook_git::{Complaint, Credentials, Invocation};
use tokio::{process::Command, sync::watch};

use crate::{
    environment,
    log::{Log, Tail},
    process::{self, Ended, Output, Stop},
};

/// As many candidates of a short SHA are told.
const TOLD: usize = 3;

/// Why a build ended without an image.
#[derive(Debug)]
pub(crate) enum Failed {
    /// For this reason.
    For(&'static str, String),
    /// It was told to.
    Stopped(Stop),
}

impl Failed {
    /// The failure as it is told.
    pub(crate) fn told(reason: &str, message: String, commit: Option<Commit>, log: &Log) -> BuildFailure {
        BuildFailure { reason: Reason::new(reason), message, commit, log: log.tail() }
    }
}

/// A source, and what git needs to read it for one build.
pub(crate) struct Git<'a> {
    pub(crate) source: &'a GitSource,
    pub(crate) credentials: &'a Credentials,
    /// The build's own number.
    pub(crate) run: &'a str,
    /// A directory of the build's own.
    pub(crate) work: &'a Path,
    /// For each step.
    pub(crate) limit: Duration,
    /// For how long a connection may be silent.
    pub(crate) silence: Duration,
}

/// What a git command wrote, in short.
struct Told {
    status: ExitStatus,
    /// The last lines of its standard error.
    error: Tail,
}

impl Git<'_> {
    /// The one commit of the source that begins so, in full, and the length of its hash.
    pub(crate) async fn resolve(
        &self,
        commit: &Commit,
        log: &mut Log,
        stop: &mut watch::Receiver<Option<Stop>>,
    ) -> Result<String, Failed> {
        let given = commit.as_str().to_ascii_lowercase();
        let length = match self.hash_length(log, stop).await? {
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
        log.say(&format!("looking for the commit that begins with {given}"));
        let repository = self.work.join("resolve.git");
        self.init(&repository, length, true, log, stop).await?;
        let mut fetch = self.git(&repository);
        fetch.args(["fetch", "-q", "--filter=tree:0", "--no-recurse-submodules", "--", self.source.url.as_str()]);
        fetch.args(["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"]);
        self.remote(fetch, log, stop).await?;
        let mut list = self.git(&repository);
        list.args(["rev-list", "--all"]);
        let mut found = Candidates { prefix: given, ..Candidates::default() };
        let told = self
            .run(list, stop, |output, bytes| {
                if output == Output::Out {
                    found.take_in(bytes)
                }
            })
            .await?;
        if !told.status.success() {
            return Err(broken(&told));
        }
        match found.commits.as_slice() {
            [] => Err(self.not_found(commit)),
            [one] => Ok(one.clone()),
            several => {
                let shown: Vec<&str> = several.iter().take(TOLD).map(|sha| &sha[..sha.len().min(16)]).collect();
                let message =
                    format!("More than one commit begins with {commit}: {}; post more digits.", shown.join(", "));
                Err(Failed::For(Reason::COMMIT_AMBIGUOUS, message))
            }
        }
    }

    /// A checkout of exactly this commit, in a directory that is not there yet.
    pub(crate) async fn check_out(
        &self,
        sha: &str,
        directory: &Path,
        log: &mut Log,
        stop: &mut watch::Receiver<Option<Stop>>,
    ) -> Result<(), Failed> {
        self.init(directory, sha.len(), false, log, stop).await?;
        let mut fetch = self.git(directory);
        fetch.args(["fetch", "-q", "--depth=1", "--no-tags", "--no-recurse-submodules", "--"]);
        fetch.args([self.source.url.as_str(), sha]);
        self.remote(fetch, log, stop).await?;
        let mut checkout = self.git(directory);
        checkout.args(["checkout", "-q", "--detach", sha, "--"]);
        self.local(checkout, log, stop).await?;
        let mut head = Tail::default();
        let mut verify = self.git(directory);
        verify.args(["rev-parse", "HEAD"]);
        let told = self
            .run(verify, stop, |output, bytes| {
                if output == Output::Out {
                    head.write(bytes)
                }
            })
            .await?;
        if told.status.success() && head.last().as_deref() == Some(sha) {
            return Ok(());
        }
        // The hash of a tag leads to a commit too, but is none.
        let message = format!("{sha} is not a commit of {}.", self.source.url);
        Err(Failed::For(Reason::COMMIT_NOT_FOUND, message))
    }

    /// How long the source's hashes are; none where it has no branch to tell by. Also whether it can be read at all.
    async fn hash_length(
        &self,
        log: &mut Log,
        stop: &mut watch::Receiver<Option<Stop>>,
    ) -> Result<Option<usize>, Failed> {
        let mut list = self.git(self.work);
        let branch = format!("refs/heads/{}", self.source.branch);
        list.args(["ls-remote", "-q", "--", self.source.url.as_str(), "HEAD", branch.as_str()]);
        let mut heads = Tail::default();
        let told = self
            .run(list, stop, |output, bytes| match output {
                Output::Out => heads.write(bytes),
                Output::Err => log.write(bytes),
            })
            .await?;
        if !told.status.success() {
            return Err(self.explained(&told));
        }
        let length = heads.last().and_then(|line| line.split_whitespace().next().map(str::len));
        Ok(length.filter(|length| matches!(length, 40 | 64)))
    }

    async fn init(
        &self,
        directory: &Path,
        length: usize,
        bare: bool,
        log: &mut Log,
        stop: &mut watch::Receiver<Option<Stop>>,
    ) -> Result<(), Failed> {
        let mut init = self.git(self.work);
        let format = if length == 64 { "sha256" } else { "sha1" };
        init.args(["init", "-q", "--template=", "-b", "main", "--object-format", format]);
        init.args(bare.then_some("--bare")).arg("--").arg(directory);
        self.local(init, log, stop).await
    }

    /// Runs a command that reads the source.
    async fn remote(
        &self,
        command: Command,
        log: &mut Log,
        stop: &mut watch::Receiver<Option<Stop>>,
    ) -> Result<(), Failed> {
        let told = self.run(command, stop, |_, bytes| log.write(bytes)).await?;
        if told.status.success() { Ok(()) } else { Err(self.explained(&told)) }
    }

    /// Runs a command that only works on what is here.
    async fn local(
        &self,
        command: Command,
        log: &mut Log,
        stop: &mut watch::Receiver<Option<Stop>>,
    ) -> Result<(), Failed> {
        let told = self.run(command, stop, |_, bytes| log.write(bytes)).await?;
        if told.status.success() { Ok(()) } else { Err(broken(&told)) }
    }

    async fn run(
        &self,
        command: Command,
        stop: &mut watch::Receiver<Option<Stop>>,
        mut took: impl FnMut(Output, &[u8]) + Send,
    ) -> Result<Told, Failed> {
        let mut error = Tail::default();
        let ended = process::run(command, self.run, Some(self.limit), stop, |output, bytes| {
            if output == Output::Err {
                error.write(bytes);
            }
            took(output, bytes);
        });
        match ended.await {
            Ok(Ended::Exited(status)) => Ok(Told { status, error }),
            Ok(Ended::TimedOut) => {
                let message = format!("{} did not answer within {} s.", self.source.url, self.limit.as_secs_f64());
                Err(Failed::For(Reason::SOURCE_UNREACHABLE, message))
            }
            Ok(Ended::Stopped(why)) => Err(Failed::Stopped(why)),
            Err(error) => {
                tracing::error!(%error, "git cannot be started");
                Err(Failed::For(Reason::BUILD_FAILED, "git cannot be started on the builder's machine.".to_owned()))
            }
        }
    }

    /// git, which carries the build's number.
    fn git(&self, directory: &Path) -> Command {
        let (source, credentials) = (self.source, self.credentials);
        let invocation = Invocation { source, credentials, home: self.work, silence: self.silence };
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

    /// What git says, in our words; its own are in the log.
    fn explained(&self, told: &Told) -> Failed {
        let url = &self.source.url;
        let lines = told.error.lines();
        match Complaint::of(&lines.join("\n")) {
            Complaint::NoSuchCommit => {
                let message = format!("{url} has no such commit, or does not hand it out by its hash.");
                Failed::For(Reason::COMMIT_NOT_FOUND, message)
            }
            Complaint::Denied => {
                let message = match &self.source.credentials {
                    Some(name) => format!("{url} does not let the builder in with the credentials {name}."),
                    None => format!("{url} does not let the builder in without credentials."),
                };
                Failed::For(Reason::SOURCE_DENIED, message)
            }
            Complaint::Refused(refusal) => Failed::For(Reason::SOURCE_DENIED, refusal.sentence(self.source)),
            Complaint::NoRepository | Complaint::Moved | Complaint::Unreachable => {
                let last = Complaint::last_word(&lines).unwrap_or("git said nothing").trim_end_matches('.');
                Failed::For(Reason::SOURCE_UNREACHABLE, format!("{url} cannot be read: {last}."))
            }
        }
    }
}

fn broken(told: &Told) -> Failed {
    let last = told.error.last().unwrap_or_else(|| told.status.to_string());
    Failed::For(Reason::BUILD_FAILED, format!("The commit could not be checked out: {last}."))
}

/// The commits of a list that begin with a prefix; the list may be as long as a history.
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
            if self.open.starts_with(self.prefix.as_bytes()) && self.commits.len() <= TOLD {
                self.commits.push(String::from_utf8_lossy(&self.open).trim_end().to_owned());
            }
            self.open.clear();
        }
    }
}
