//! git, run for an answer of a few lines within a bounded time.

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

/// The longest answer that is read.
const ANSWER_MAX: u64 = 64 << 10;
/// As much of the end of what it complained of is kept.
const COMPLAINT_MAX: usize = 4 << 10;

/// What a command wrote, and how it ended.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) status: ExitStatus,
    pub(crate) answer: String,
    /// The end of its standard error.
    pub(crate) complaint: String,
}

/// A command in a process group of its own, of which nothing is left once this is dropped.
struct Group {
    child: Child,
    /// Until the leader was waited for: the number is the group's until then.
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
/// Where it cannot be started; `TimedOut` where it took longer than it may; `FileTooLarge` where it said more than anybody
/// reads.
pub(crate) async fn run(mut command: Command, limit: Duration) -> io::Result<Said> {
    command.process_group(0).kill_on_drop(true).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn()?;
    let leader = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let mut group = Group { child, leader };
    let said = async {
        let (out, err) = (group.child.stdout.take(), group.child.stderr.take());
        // What it started holds the pipes open: only once they are closed is the leader waited for.
        let (answer, complaint) = tokio::try_join!(whole(out), end(err))?;
        let status = group.child.wait().await?;
        group.leader = None;
        Ok(Said { status, answer, complaint })
    };
    match tokio::time::timeout(limit, said).await {
        Ok(said) => said,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

async fn whole(from: Option<impl AsyncRead + Unpin>) -> io::Result<String> {
    let Some(from) = from else { return Ok(String::new()) };
    let mut bytes = Vec::new();
    from.take(ANSWER_MAX + 1).read_to_end(&mut bytes).await?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > ANSWER_MAX) {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

async fn end(from: Option<impl AsyncRead + Unpin>) -> io::Result<String> {
    let Some(mut from) = from else { return Ok(String::new()) };
    let mut kept = Vec::new();
    let mut piece = vec![0; COMPLAINT_MAX];
    loop {
        let length = from.read(&mut piece).await?;
        if length == 0 {
            return Ok(String::from_utf8_lossy(&kept).trim().to_owned());
        }
        kept.extend_from_slice(&piece[..length]);
        kept.drain(..kept.len().saturating_sub(COMPLAINT_MAX));
    }
}
