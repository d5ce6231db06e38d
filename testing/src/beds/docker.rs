//! Docker engines.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, PoisonError},
};

use tempfile::TempDir;

use super::{Kind, run_script};

/// An engine of the test bed.
#[derive(Debug)]
pub struct Docker {
    /// The state directory.
    pub state: PathBuf,
    /// Present if the engine is the test's own; it goes down when this is dropped, or with the test's process.
    own: Option<TempDir>,
}

impl Docker {
    /// Returns the engine that all tests share, or the reason why there is none.
    ///
    /// # Errors
    /// If none is lent.
    pub fn lent() -> Result<Self, &'static str> {
        Ok(Self { state: Kind::Docker.lent()?, own: None })
    }

    /// Starts an engine that a test may stop.
    ///
    /// # Errors
    /// If none is lent, which says whether the machine has Docker.
    pub fn own() -> Result<Self, &'static str> {
        Kind::Docker.lent()?;
        Ok(Self::up(tempfile::tempdir().unwrap()))
    }

    /// Starts an engine whose images and containers have 100 MB on a disk of their own.
    ///
    /// # Errors
    /// If none is lent, which says whether the machine has Docker.
    pub fn own_on_small_disk() -> Result<Self, &'static str> {
        Kind::Docker.lent()?;
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        fs::create_dir(&data).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=100m", "tmpfs"]).arg(&data);
        assert!(mount.status().unwrap().success(), "mounting a disk for the engine failed");
        Ok(Self::up(directory))
    }

    /// The engine goes down when this is dropped, and its script unmounts what lies in its directory.
    fn up(directory: TempDir) -> Self {
        let engine = Self { state: directory.path().to_owned(), own: Some(directory) };
        engine.script("up.sh", &[&std::process::id().to_string()]);
        engine
    }

    /// Acts on the engine: `stop` is orderly, `kill` is not, `start` starts it again; `pause`, `resume`.
    pub fn control(&self, action: &str) {
        self.script("engine.sh", &[action]);
    }

    /// The engine's socket.
    pub fn socket(&self) -> PathBuf {
        self.state.join("docker.sock")
    }

    /// The network that containers of tests join.
    pub fn network(&self) -> String {
        self.variable("NETWORK")
    }

    /// The registry, `HOST:PORT`.
    pub fn registry(&self) -> String {
        self.variable("REGISTRY")
    }

    /// Runs Docker's client, which must succeed, and returns what it printed.
    pub fn run(&self, arguments: &[&str]) -> String {
        self.output(arguments).unwrap_or_else(|error| panic!("docker {}: {error}", arguments.join(" ")))
    }

    /// Runs Docker's client, and returns what it printed if it succeeded.
    pub fn try_run(&self, arguments: &[&str]) -> Option<String> {
        self.output(arguments).ok()
    }

    fn output(&self, arguments: &[&str]) -> Result<String, String> {
        let asked = self.process();
        let mut client = Command::new("timeout");
        client.args(["-k", "5", "240"]).arg(self.variable("CLIENT"));
        client.env("DOCKER_HOST", format!("unix://{}", self.socket().display()));
        client.env("DOCKER_CONFIG", self.state.join("config")).args(arguments);
        let output = client.output().unwrap();
        if output.status.code() == Some(124) {
            self.restart_hung(&asked);
            return Err("the engine hung".to_owned());
        }
        match output.status.success() {
            true => Ok(String::from_utf8(output.stdout).unwrap()),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        }
    }

    /// The process that is the engine now.
    fn process(&self) -> String {
        fs::read_to_string(self.state.join("dockerd.pid")).unwrap_or_default()
    }

    /// Engines of some versions hang for good if they are called often enough. That fails the tests that wait for it, which
    /// see where it hangs; those after them find another engine on the same state.
    fn restart_hung(&self, hung: &str) {
        static RESTART: Mutex<()> = Mutex::new(());
        let _one_at_a_time = RESTART.lock().unwrap_or_else(PoisonError::into_inner);
        if self.process() == hung {
            for action in ["dump", "kill", "start"] {
                self.control(action);
            }
        }
    }

    fn variable(&self, name: &str) -> String {
        let env = fs::read_to_string(self.state.join("env")).unwrap();
        let value = env.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        value.unwrap_or_else(|| panic!("no {name} in {env}")).to_owned()
    }

    fn script(&self, name: &str, arguments: &[&str]) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../backends/docker/testbed").join(name);
        run_script(&script, &self.state, arguments);
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        if self.own.is_some() {
            self.script("down.sh", &[]);
        }
    }
}
