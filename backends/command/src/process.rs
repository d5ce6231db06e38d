//! One child process in a group of its own, until it has ended, whatever it takes.

use std::{
    io,
    os::unix::fs::fchown,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::{
    io::AsyncReadExt,
    net::unix::pipe::Receiver,
    process::{Child, Command},
    sync::watch,
};

use crate::reaper::{self, First};

/// The time that a process has to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(5);
/// The time in which the rest of the pipes is read, once all processes are gone.
const DRAIN: Duration = Duration::from_secs(2);

/// The reason to stop a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The build was cancelled.
    Cancelled,
    /// The server stops; the build is to begin anew with the next one.
    Interrupted,
}

/// The end of a process.
#[derive(Debug)]
pub(crate) enum Ended<L> {
    /// The process exited.
    Exited(ExitStatus),
    /// The process passed this limit.
    Limited(L),
    /// The build was stopped.
    Stopped(Stop),
}

/// An output of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// A user and a group of this machine, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// What a process is bounded by from its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// The user that the process becomes; `None`: this process's own.
    pub(crate) owner: Option<Owner>,
    /// The most bytes of memory that it, and each process that it starts, may have.
    pub(crate) memory: Option<u64>,
    /// Whether the command makes itself the leader of a session, and so of a process group.
    pub(crate) leads_session: bool,
}

/// Returns the memory of this machine, in bytes.
pub(crate) fn machine_memory() -> u64 {
    let info = rustix::system::sysinfo();
    // The kernel's types differ between machines.
    #[allow(clippy::useless_conversion, reason = "the number has another type on machines of 32 bits")]
    u64::from(info.totalram).saturating_mul(info.mem_unit.into())
}

/// Runs a process to its end, or until `limit` returns, and ends all that it started. Its output is handed to `took`; the pipes for it belong to
/// the owner, if there is one, who can open `/dev/stderr` then.
///
/// # Errors
/// If the process cannot be started.
pub(crate) async fn run<L>(
    mut command: Command,
    build: &str,
    Bounds { owner, memory, leads_session }: Bounds,
    limit: impl Future<Output = L>,
    stop: &mut watch::Receiver<Option<Stop>>,
    mut took: impl FnMut(Output, &[u8]) + Send,
) -> io::Result<Ended<L>> {
    let ((mut out, stdout), (mut err, stderr)) = (Pipe::open(owner)?, Pipe::open(owner)?);
    command.kill_on_drop(true).stdin(Stdio::null()).stdout(stdout).stderr(stderr);
    if !leads_session {
        command.process_group(0);
    }
    let mut child = command.spawn()?;
    // The command has the writing ends, which are to be the child's alone.
    drop(command);
    let group = child.id();
    if let Some(most) = memory {
        rollhook_git::limit_memory(group, most);
    }
    let begun = owner.and_then(|owner| Some((owner.uid, reaper::begun(group?)?)));
    let mut limit = std::pin::pin!(limit);
    let ended = loop {
        tokio::select! {
            bytes = out.read() => took(Output::Out, bytes),
            bytes = err.read() => took(Output::Err, bytes),
            status = child.wait() => break Ended::Exited(status?),
            passed = &mut limit => break Ended::Limited(passed),
            why = stopped(stop) => break Ended::Stopped(why),
        }
    };
    if !matches!(ended, Ended::Exited(_)) {
        terminate(&mut child, group, &mut out, &mut err, &mut took).await;
    }
    reaper::end(build, First { group, begun }).await;
    let drain = async {
        while !(out.is_closed() && err.is_closed()) {
            tokio::select! {
                bytes = out.read() => took(Output::Out, bytes),
                bytes = err.read() => took(Output::Err, bytes),
            }
        }
    };
    let _ = tokio::time::timeout(DRAIN, drain).await;
    Ok(ended)
}

/// Returns once the build is stopped; never if the sender is gone.
pub(crate) async fn stopped(stop: &mut watch::Receiver<Option<Stop>>) -> Stop {
    let why = stop.wait_for(Option::is_some).await.ok().and_then(|why| *why);
    match why {
        Some(why) => why,
        None => std::future::pending().await,
    }
}

/// Asks the group to end, and kills it if it does not.
async fn terminate(
    child: &mut Child,
    group: Option<u32>,
    out: &mut Pipe,
    err: &mut Pipe,
    took: &mut impl FnMut(Output, &[u8]),
) {
    signal(group, Signal::TERM);
    let ended = async {
        loop {
            tokio::select! {
                bytes = out.read() => took(Output::Out, bytes),
                bytes = err.read() => took(Output::Err, bytes),
                _ = child.wait() => return,
            }
        }
    };
    if tokio::time::timeout(GRACE, ended).await.is_err() {
        // The leader was not waited for yet, so that the group's number is still its own.
        signal(group, Signal::KILL);
        let _ = child.wait().await;
    }
}

fn pid(process: Option<u32>) -> Option<Pid> {
    process.and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw)
}

fn signal(group: Option<u32>, signal: Signal) {
    if let Some(group) = pid(group) {
        // A leader that has just begun may not have made its session yet. One that is gone needs no signal.
        if kill_process_group(group, signal).is_err() {
            let _ = kill_process(group, signal);
        }
    }
}

/// The reading end of a pipe; reading from a closed one never returns.
struct Pipe {
    from: Option<Receiver>,
    piece: Vec<u8>,
}

impl Pipe {
    /// Opens a pipe of this owner; also returns its writing end.
    fn open(owner: Option<Owner>) -> io::Result<(Self, io::PipeWriter)> {
        let (reader, writer) = io::pipe()?;
        if let Some(Owner { uid, gid }) = owner {
            fchown(&writer, Some(uid), Some(gid))?;
        }
        Ok((Self { from: Some(Receiver::from_owned_fd(reader.into())?), piece: vec![0; 16 << 10] }, writer))
    }

    fn is_closed(&self) -> bool {
        self.from.is_none()
    }

    /// Reads the next piece; it is empty once, when the pipe is closed. Nothing is lost if the future is dropped.
    async fn read(&mut self) -> &[u8] {
        let Some(from) = &mut self.from else { return std::future::pending().await };
        match from.read(&mut self.piece).await {
            Ok(length @ 1..) => &self.piece[..length],
            Ok(0) | Err(_) => {
                self.from = None;
                &[]
            }
        }
    }
}
