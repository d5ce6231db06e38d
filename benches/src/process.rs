//! The measured servers: started here, measured through /proc, and stopped by their process ids.

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
/// The resolution of a difference of processor times: user and system time are rounded separately.
pub(crate) const RESOLUTION: Duration = Duration::from_millis(20);
const START: Duration = Duration::from_secs(60);
const STOP: Duration = Duration::from_secs(20);

/// A running server, which is killed with this value.
pub(crate) struct Process {
    child: Child,
    pid: u32,
    /// The address to call.
    pub(crate) address: SocketAddr,
    /// Kept open: a server that writes to a closed pipe would end.
    _stdout: Lines<BufReader<ChildStdout>>,
}

/// The resident memory of a process, in KiB.
#[derive(Clone, Copy, Default)]
pub(crate) struct Resident {
    /// The memory now.
    pub(crate) now: u64,
    /// The most since the start.
    pub(crate) peak: u64,
}

impl Process {
    /// Starts a server that prints `listening on http://ADDRESS` on stdout; its log goes to a file.
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

    /// The processor time so far.
    pub(crate) fn cpu(&self) -> Result<Duration, Failure> {
        Ok(Stat::read(&self.pid.to_string())?.own)
    }

    /// The resident memory.
    pub(crate) fn resident(&self) -> Result<Resident, Failure> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
        };
        Ok(Resident { now: field("VmRSS:"), peak: field("VmHWM:") })
    }

    /// Kills the server, as a crash does, and waits for its end.
    pub(crate) async fn kill(mut self) -> Result<(), Failure> {
        Ok(self.child.kill().await?)
    }

    /// Stops the server, and waits for its end.
    pub(crate) async fn stop(mut self) -> Result<(), Failure> {
        Command::new("kill").arg(self.pid.to_string()).status()?;
        if timeout(STOP, self.child.wait()).await.is_err() {
            self.child.kill().await?;
        }
        Ok(())
    }
}

/// The processor time of this process so far.
pub(crate) fn own_cpu() -> Result<Duration, Failure> {
    Ok(Stat::read("self")?.own)
}

/// The processor time of a process and of its children so far, those that have ended among them.
pub(crate) fn family_cpu(pid: u32) -> Result<Duration, Failure> {
    let Stat { own, ended_children, .. } = Stat::read(&pid.to_string())?;
    // A process may end before it is read.
    let all = fs::read_dir("/proc")?.filter_map(|entry| Stat::read(entry.ok()?.file_name().to_str()?).ok());
    let children: Duration = all.filter(|stat| stat.parent == u64::from(pid)).map(|stat| stat.own).sum();
    Ok(own + ended_children + children)
}

/// The fields of `/proc/PID/stat` that are used here.
struct Stat {
    parent: u64,
    own: Duration,
    ended_children: Duration,
}

impl Stat {
    fn read(process: &str) -> Result<Self, Failure> {
        let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
        // The name, in parentheses, may hold spaces. After it, the 2nd field is the parent, and user and system time
        // are the 12th and 13th, of ended children the 14th and 15th.
        let (_, rest) = stat.rsplit_once(')').ok_or("/proc is not as expected")?;
        let fields: Vec<u64> = rest.split_whitespace().map(|field| field.parse().unwrap_or(0)).collect();
        let [_, parent, .., user, system, children_user, children_system] =
            fields.get(..15).ok_or("/proc is not as expected")?
        else {
            return Err("/proc is not as expected".into());
        };
        let time = |ticks: u64| Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND);
        Ok(Self { parent: *parent, own: time(user + system), ended_children: time(children_user + children_system) })
    }
}

/// Builds rollhook-server in release, and returns the path of the binary.
pub(crate) fn build_server() -> Result<PathBuf, Failure> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--release", "-p", "rollhook-server"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .status()?;
    if !built.success() {
        return Err("building rollhook-server failed".into());
    }
    let directory = env::current_exe()?.parent().map(Path::to_owned).ok_or("this binary has no directory")?;
    Ok(directory.with_file_name("release").join("rollhook-server"))
}
