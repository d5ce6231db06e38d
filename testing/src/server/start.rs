//! How a server is started.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    net::{SocketAddr, TcpListener},
    ops::Range,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
};

use tempfile::TempDir;

use super::Server;
use crate::process::{build_user, without_settings};

/// The recipe of a server. By default it listens on a free port of loopback, keeps everything in a directory of its
/// own, on SQLite, and its rollouts take no time.
///
/// Clones share the address, of which a replica's name is made, and the directory, which is removed with the last of
/// them and of their servers.
#[derive(Clone, Debug)]
pub struct Start {
    program: PathBuf,
    /// Another program, with its arguments, by which the server is started.
    launcher: Vec<OsString>,
    directory: Arc<TempDir>,
    log: String,
    /// Settings go by the environment, so that arguments of a test override them.
    variables: BTreeMap<String, OsString>,
    arguments: Vec<OsString>,
}

impl Start {
    /// The recipe of this program.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        let start = Self {
            program: program.into(),
            launcher: Vec::new(),
            directory: Arc::new(tempfile::tempdir().unwrap()),
            log: "log".to_owned(),
            variables: BTreeMap::new(),
            arguments: Vec::new(),
        };
        let (keys, token) = (start.file("keys"), start.file("admin-token"));
        let store = format!("sqlite:{}", start.file("rollhook.db").display());
        let start = start.variable("ROLLHOOK_KEY_DIR", keys).variable("ROLLHOOK_ADMIN_TOKEN_FILE", token);
        start.at(free_address()).store(&store).driver("simulated:0ms")
    }

    /// Listens on this address.
    pub fn at(self, address: SocketAddr) -> Self {
        self.variable("ROLLHOOK_LISTEN", address.to_string())
    }

    /// Rolls out by this driver.
    pub fn driver(self, driver: &str) -> Self {
        self.variable("ROLLHOOK_DRIVER", driver)
    }

    /// Keeps its state in this store.
    pub fn store(self, store: &str) -> Self {
        self.variable("ROLLHOOK_STORE", store)
    }

    /// Limits no caller.
    pub fn unlimited(self) -> Self {
        self.variable("ROLLHOOK_RATE_LIMIT", "off")
    }

    /// Sets an environment variable.
    pub fn variable(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.variables.insert(name.to_owned(), value.into());
        self
    }

    /// Adds arguments.
    pub fn arguments<S: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Builds git apps by this shell script, which lies beside the server's own files, from sources on this machine
    /// too; as another user where tests run as root.
    pub fn builder(self, script: &str) -> Self {
        let (command, builds) = (self.file("build-command"), self.file("builds"));
        fs::write(&command, script).unwrap();
        fs::set_permissions(&command, fs::Permissions::from_mode(0o755)).unwrap();
        let start = self.variable("ROLLHOOK_BUILD_COMMAND", command).variable("ROLLHOOK_BUILD_DIR", builds);
        let start = match build_user(start.directory()) {
            Some(user) => start.variable("ROLLHOOK_BUILD_USER", user),
            None => start,
        };
        start.arguments(["--allow-local-sources"])
    }

    /// Is started by another program, which must become the server, so that its process id is the server's.
    pub fn through<S: Into<OsString>>(mut self, program: impl IntoIterator<Item = S>) -> Self {
        self.launcher = program.into_iter().map(Into::into).collect();
        self
    }

    /// Is another program, which takes its settings from its environment.
    pub fn instead(mut self, program: PathBuf) -> Self {
        self.program = program;
        self
    }

    /// Logs to this file of its directory: several servers of one directory have one each.
    pub fn log_to(mut self, name: &str) -> Self {
        name.clone_into(&mut self.log);
        self
    }

    /// The server's program.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The directory of everything that the server keeps.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// A file of the directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory().join(name)
    }

    /// Makes a file that servers share, as people make it: `keys` or `admin-token`.
    pub fn make(self, what: &str) -> Self {
        let output = self.command().args([what, "new"]).arg(self.file(what)).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        self
    }

    /// Everything that servers of this recipe have logged.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.log_file()).unwrap_or_default()).into_owned()
    }

    pub(super) fn log_file(&self) -> PathBuf {
        self.file(&self.log)
    }

    /// The program without settings of any kind.
    pub fn command(&self) -> Command {
        let mut words = self.launcher.iter().map(OsString::as_os_str).chain([self.program.as_os_str()]);
        let mut command = Command::new(words.next().unwrap());
        command.args(words).stdin(Stdio::null());
        without_settings(&mut command);
        command
    }

    /// The program with its settings, whose standard output is to be read.
    pub fn server_command(&self) -> Command {
        let mut command = self.command();
        command.envs(&self.variables).args(&self.arguments).stdout(Stdio::piped());
        command
    }

    /// Starts the server, and waits until it listens.
    pub fn run(&self) -> Server {
        Server::launch(self.clone())
    }
}

/// Returns an address that is still free after a restart: below the ports that the kernel hands out, above those that
/// test beds take, and of a block that only this process takes addresses from, so that no other test is given it meanwhile.
pub fn free_address() -> SocketAddr {
    const FIRST: u16 = 20_000;
    const BLOCK: u16 = 50;
    const BLOCKS: u16 = 240;
    /// The listener at a block's first port is the claim on the others.
    static CLAIMS: Mutex<(Vec<TcpListener>, Range<u16>)> = Mutex::new((Vec::new(), 0..0));
    let listen = |port: u16| TcpListener::bind(("127.0.0.1", port)).ok();
    let mut claims = CLAIMS.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if let Some(port) = claims.1.find(|port| listen(*port).is_some()) {
            return SocketAddr::from(([127, 0, 0, 1], port));
        }
        let begin = u16::try_from(std::process::id() % u32::from(BLOCKS)).unwrap();
        let blocks = (0..BLOCKS).map(|block| FIRST + (begin + block) % BLOCKS * BLOCK);
        let (claim, first) = blocks.into_iter().find_map(|first| Some((listen(first)?, first))).unwrap();
        claims.0.push(claim);
        claims.1 = first + 1..first + BLOCK;
    }
}
