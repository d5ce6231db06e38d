//! Servers under measurement: started here, watched through /proc, and stopped by their own number.

use std::{
    env, fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout},
    time::timeout,
};

use crate::Failure;

/// The unit of time in /proc on Linux, whatever the kernel's own.
const TICKS_PER_SECOND: u64 = 100;
const START: Duration = Duration::from_secs(60);
const STOP: Duration = Duration::from_secs(20);

/// A running server.
pub(crate) struct Process {
    child: Child,
    pid: u32,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// Kept open: a server that writes to a closed pipe would end.
    _stdout: Lines<BufReader<ChildStdout>>,
}

/// A process's use of memory, in KiB.
#[derive(Clone, Copy, Default)]
pub(crate) struct Resident {
    /// Now.
    pub(crate) now: u64,
    /// At most, since its start.
    pub(crate) peak: u64,
}

impl Process {
    /// Starts a server that says `listening on http://ADDRESS` on stdout; its log goes to a file.
    pub(crate) async fn start(
        program: &Path,
        arguments: &[String],
        environment: &[(&str, &Path)],
        log: &Path,
    ) -> Result<Self, Failure> {
        let mut command = tokio::process::Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(fs::File::create(log)?);
        command.envs(environment.iter().copied()).kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        let pid = child.id().ok_or("the server ended at once")?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("the server has no stdout")?).lines();
        let address = async {
            while let Some(line) = lines.next_line().await? {
                if let Some(address) = line.strip_prefix("listening on http://") {
                    return Ok(address.parse::<SocketAddr>()?);
                }
            }
            Err(Failure::from(format!("the server ended: {}", fs::read_to_string(log)?)))
        };
        let address = timeout(START, address).await.map_err(|_| "the server does not start")??;
        Ok(Self { child, pid, address, _stdout: lines })
    }

    /// The processor time that it has used.
    pub(crate) fn cpu(&self) -> Result<Duration, Failure> {
        cpu(&self.pid.to_string())
    }

    /// Its memory.
    pub(crate) fn resident(&self) -> Result<Resident, Failure> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
        };
        Ok(Resident { now: field("VmRSS:"), peak: field("VmHWM:") })
    }

    /// Ends it without any farewell, as a crash does; returns once it is gone.
    pub(crate) async fn kill(mut self) -> Result<(), Failure> {
        Ok(self.child.kill().await?)
    }

    /// Asks it to end, and waits until it has.
    pub(crate) async fn stop(mut self) -> Result<(), Failure> {
        Command::new("kill").arg(self.pid.to_string()).status()?;
        if timeout(STOP, self.child.wait()).await.is_err() {
            self.child.kill().await?;
        }
        Ok(())
    }
}

/// The processor time of this process.
pub(crate) fn own_cpu() -> Result<Duration, Failure> {
    cpu("self")
}

fn cpu(process: &str) -> Result<Duration, Failure> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name, in parentheses, may hold spaces; user and system time are the 12th and 13th field after it.
    let (_, rest) = stat.rsplit_once(')').ok_or("/proc is not as expected")?;
    let ticks: u64 = rest.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND))
}

/// Builds rollhook-server in release, and returns the binary: beside this one.
pub(crate) fn build_server() -> Result<PathBuf, Failure> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--release", "-p", "rollhook-server"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .status()?;
    if !built.success() {
        return Err("rollhook-server cannot be built".into());
    }
    let directory = env::current_exe()?.parent().map(Path::to_owned).ok_or("this binary lies nowhere")?;
    Ok(directory.with_file_name("release").join("rollhook-server"))
}
