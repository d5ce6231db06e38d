//! Processes: signals, environments, and programs that get into a server's way.

use std::{
    collections::BTreeSet,
    env, fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, SystemTime},
};

use crate::documents::root;

/// A child process that is killed, by its own process id, at the latest when this is dropped.
#[derive(Debug)]
pub struct Running(pub Child);

impl Running {
    /// Kills the process with SIGKILL and waits for its end.
    pub fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Sends a process a signal, such as `STOP`.
pub fn signal(pid: u32, name: &str) {
    assert!(Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap().success());
}

/// A strace that kills a process at a call.
#[derive(Debug)]
pub struct Tracer(Child);

impl Tracer {
    /// Kills the process with SIGKILL before one of these calls happens for this time.
    pub fn attach(pid: u32, calls: &str, time: usize) -> Self {
        let mut strace = Command::new("strace")
            .args(["-f", "-o", "/dev/null", "-e", &format!("trace={calls}")])
            .args(["-e", &format!("inject={calls}:signal=SIGKILL:when={time}"), "-p", &pid.to_string()])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut words = BufReader::new(strace.stderr.take().unwrap());
        let mut line = String::new();
        words.read_line(&mut line).unwrap();
        assert!(line.contains(" attached"), "{line}");
        // A strace that nobody listens to ends early.
        thread::spawn(move || words.lines().map_while(Result::ok).for_each(drop));
        // One that has missed the end of a thread would keep the killed process, with its open sockets, for ever.
        let tracer = strace.id();
        thread::spawn(move || {
            while is_alive(tracer) {
                if !is_alive(pid) {
                    // It may end by itself meanwhile.
                    let _ = Command::new("kill").args(["-KILL", &tracer.to_string()]).stderr(Stdio::null()).status();
                    break;
                }
                thread::sleep(Duration::from_millis(20));
            }
        });
        Self(strace)
    }

    /// Waits for its end, after that of the process.
    pub fn wait(mut self) {
        self.0.wait().unwrap();
    }

    /// Lets the process go on.
    pub fn detach(self) {
        signal(self.0.id(), "TERM");
        self.wait();
    }
}

/// Whether a process is there, and not one that has ended and was not waited for yet.
fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
}

/// Removes settings of rollhook, logging, traces and clusters from what a command inherits.
pub fn without_settings(command: &mut Command) {
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("ROLLHOOK_") || text.starts_with("OTEL_") || name == "RUST_LOG" || name == "KUBECONFIG" {
            command.env_remove(name);
        }
    }
}

/// Returns the user that builds of a test run as, and lets it enter this directory: another one where tests run as
/// root, as which nothing is built; else `None`, the one who runs them.
pub fn build_user(directory: &Path) -> Option<String> {
    if !is_root() {
        return None;
    }
    fs::set_permissions(directory, fs::Permissions::from_mode(0o711)).unwrap();
    Some("nobody".to_owned())
}

/// Returns whether tests run as root.
pub fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().unwrap();
    id.stdout == b"0\n"
}

/// Returns whether a program can be run, by asking for its version.
pub fn is_installed(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Returns the path of a program that `.ci/setup` has put into the cache, such as `bin/promtool`. If it is missing, the
/// test is reported as skipped.
pub fn tool(path: &str, test: &str) -> Option<PathBuf> {
    let program = installed_tool(path);
    if program.is_none() {
        crate::skip(test, &format!("there is no {path}: .ci/setup installs it"));
    }
    program
}

/// Returns the path of such a program, if it is there.
pub fn installed_tool(path: &str) -> Option<PathBuf> {
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")))?;
    Some(cache.join("rollhook-tools").join(path)).filter(|program| program.exists())
}

/// Returns the path of another package's program, which lies in the directory of `program`: see `built`.
pub fn beside(program: impl AsRef<Path>, package: &str, name: &str) -> PathBuf {
    built(program.as_ref().parent().unwrap(), package, name)
}

/// Returns the path of another package's program, which lies beside the running test: see `built`.
pub fn program(package: &str, name: &str) -> PathBuf {
    // The test is `target/debug/deps/NAME-HASH`.
    let test = env::current_exe().unwrap();
    built(test.parent().unwrap().parent().unwrap(), package, name)
}

/// Returns the path of a package's program in one of cargo's directories, such as `target/debug`.
///
/// Cargo tells a test the programs of its own package, and builds no others for it. Another one is there if the whole
/// workspace was built. If it is missing, or a source has changed since, it is built here, once: no test judges an old
/// program. The test command sets `ROLLHOOK_BUILT`: it has built all, and a source that is edited meanwhile is not meant.
fn built(directory: &Path, package: &str, name: &str) -> PathBuf {
    static FRESH: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let program = directory.join(name);
    let mut fresh = FRESH.lock().unwrap_or_else(PoisonError::into_inner);
    if !fresh.contains(&program) {
        if !is_fresh(&program) {
            let mut build = Command::new(env!("CARGO"));
            build.args(["build", "--quiet", "-p", package, "--target-dir"]).arg(directory.parent().unwrap());
            build.args(directory.ends_with("release").then_some("--release"));
            assert!(build.current_dir(root()).status().unwrap().success());
            assert!(program.exists(), "no {}", program.display());
        }
        fresh.insert(program.clone());
    }
    program
}

fn is_fresh(program: &Path) -> bool {
    let built = fs::metadata(program).and_then(|found| found.modified());
    let is_older = |time: SystemTime| {
        ["core", "management", "backends", "hosts"].iter().all(|part| is_older(&root().join(part), time))
    };
    built.is_ok_and(|time| env::var_os("ROLLHOOK_BUILT").is_some() || is_older(time))
}

/// Returns whether no manifest and no source in this directory has changed after this time.
fn is_older(directory: &Path, time: SystemTime) -> bool {
    fs::read_dir(directory).unwrap().map(Result::unwrap).all(|entry| {
        let name = entry.file_name();
        if entry.file_type().unwrap().is_dir() {
            return ["tests", "testbed"].iter().any(|not| name == *not) || is_older(&entry.path(), time);
        }
        // It may be the file of an editor, and gone again.
        entry.metadata().and_then(|found| found.modified()).map_or(true, |changed| changed <= time)
    })
}

/// A Python program that has said `ready` and ends when its standard input is closed.
pub struct Python {
    process: Running,
    stdin: Option<ChildStdin>,
}

impl Python {
    /// Runs a program and waits until it is ready. Returns `None` if there is no Python.
    pub fn run(program: &str, arguments: &[&str]) -> Option<Self> {
        let mut command = Command::new("python3");
        command.args(["-c", program]).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Running(command.spawn().ok()?);
        let stdin = process.0.stdin.take();
        let mut line = String::new();
        BufReader::new(process.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Some(Self { process, stdin })
    }

    /// Ends the program and waits for it.
    pub fn end(mut self) {
        drop(self.stdin.take());
        assert!(self.process.0.wait().unwrap().success());
    }
}
