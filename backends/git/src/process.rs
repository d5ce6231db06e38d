//! Runs git for a few lines of output, within a bounded time.

use std::{
    io,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::{Child, Command},
};

use crate::limits::{limit_files, limit_memory};

/// The most bytes of memory that each process of a read may have: git, and its helper for https or ssh. A helper needs some
/// 12 MiB for TLS, and 8 MiB more where it resolves names itself.
const MEMORY_MAX: u64 = 32 << 20;
/// The largest file that git may write: the commits of a branch have some 300 bytes each.
const FILE_MAX: u64 = 4 << 20;
/// The longest output that is read.
const OUTPUT_MAX: u64 = 64 << 10;
/// The most of the end of standard error that is kept.
const ERROR_MAX: usize = 4 << 10;

/// A command that has ended, and its output.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) output: String,
    /// The end of its standard error.
    pub(crate) error: String,
}

/// A command in a process group of its own, which is killed when this is dropped.
struct Group {
    child: Child,
    /// `None` once the leader was waited for: its number is free then.
    leader: Option<Pid>,
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.leader {
            // A group that is gone needs no signal.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

/// Runs a command to its end; dropped before, it is killed with all that it started.
///
/// # Errors
/// `TimedOut` if it takes longer than the limit; `FileTooLarge` if its output is too long; others if it cannot be
/// started.
pub(crate) async fn run(mut command: Command, limit: Duration) -> io::Result<Finished> {
    command.process_group(0).kill_on_drop(true).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn()?;
    limit_memory(child.id(), MEMORY_MAX);
    limit_files(child.id(), FILE_MAX);
    let leader = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let mut group = Group { child, leader };
    let finished = async {
        let (out, err) = (group.child.stdout.take(), group.child.stderr.take());
        // What it started holds the pipes open: only once they are closed is the leader waited for.
        let (output, error) = tokio::try_join!(whole(out), end(err))?;
        let status = group.child.wait().await?;
        group.leader = None;
        Ok(Finished { status, output, error })
    };
    match tokio::time::timeout(limit, finished).await {
        Ok(finished) => finished,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

async fn whole(from: Option<impl AsyncRead + Unpin>) -> io::Result<String> {
    let Some(from) = from else { return Ok(String::new()) };
    let mut bytes = Vec::new();
    from.take(OUTPUT_MAX + 1).read_to_end(&mut bytes).await?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > OUTPUT_MAX) {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

async fn end(from: Option<impl AsyncRead + Unpin>) -> io::Result<String> {
    let Some(mut from) = from else { return Ok(String::new()) };
    let mut kept = Vec::new();
    let mut piece = vec![0; ERROR_MAX];
    loop {
        let length = from.read(&mut piece).await?;
        if length == 0 {
            return Ok(String::from_utf8_lossy(&kept).trim().to_owned());
        }
        kept.extend_from_slice(&piece[..length]);
        kept.drain(..kept.len().saturating_sub(ERROR_MAX));
    }
}
