//! A git host on loopback that is spoken to by ssh, for tests of builders: OpenSSH's own server in front of git's own
//! `upload-pack`.
//!
//! The server is started for each connection, as a user without rights: as `postgres` where tests run as root, since it has
//! a shell and is there for the tests of the database; else as whoever runs them. It lets in one key, which may read
//! repositories and do nothing else.

use std::{
    env, fs,
    io::{self, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::{
        fd::OwnedFd,
        unix::{
            fs::{OpenOptionsExt, PermissionsExt, chown},
            process::CommandExt,
        },
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use tempfile::TempDir;

use crate::{Can, GitRepository, Lack};

/// The user of the server where tests run as root, whom it would not serve.
const UNPRIVILEGED: &str = "postgres";

const NO_SSHD: Lack = Lack::Skip("there is no sshd, which .ci/setup downloads");
const NO_SSH: Lack = Lack::Skip("there is no ssh-keygen");
const NO_USER: Lack = Lack::Skip("tests run as root, and there is no user postgres");
const NO_PLACE: Lack = Lack::Skip("the user postgres can enter no directory for temporary files");

/// Lets the holder of the key read repositories by their names.
const SERVE: &str = r#"#!/bin/sh
name=${SSH_ORIGINAL_COMMAND#"git-upload-pack '/"}
name=${name%"'"}
case "$name" in '' | *[!a-z0-9-]*) echo "ERROR: Repository not found." >&2; exit 1 ;; esac
[ -d "$ROOT/$name" ] || { echo "ERROR: Repository not found." >&2; exit 1; }
# The repositories are the one's who runs the tests.
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
exec git upload-pack "$ROOT/$name/.git"
"#;

/// The host; it serves until it is dropped.
pub struct SshHost {
    /// Where it listens.
    pub address: SocketAddr,
    shared: Arc<Shared>,
    listening: Option<JoinHandle<()>>,
}

struct Shared {
    directory: TempDir,
    user: User,
    hangs: AtomicBool,
    over: AtomicBool,
    /// Connections that are kept without an answer.
    kept: Mutex<Vec<TcpStream>>,
    /// A server for each connection.
    servers: Mutex<Vec<Child>>,
}

/// Whom the server runs as.
struct User {
    name: String,
    /// User and group, where they are not those of the tests.
    ids: Option<(u32, u32)>,
}

impl SshHost {
    /// A host without repositories.
    ///
    /// # Errors
    /// [`Lack::Skip`] where the machine has no OpenSSH server, or nobody to run it.
    pub fn serve() -> Can<Self> {
        let sshd = sshd().ok_or(NO_SSHD)?;
        let user = User::of_the_server()?;
        let directory = user.place()?;
        for file in sshd {
            fs::copy(&file, directory.path().join(file.file_name().unwrap())).unwrap();
        }
        let shared = Shared {
            directory,
            user,
            hangs: AtomicBool::new(false),
            over: AtomicBool::new(false),
            kept: Mutex::default(),
            servers: Mutex::default(),
        };
        shared.configure()?;
        let shared = Arc::new(shared);
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let served = shared.clone();
        let listening = thread::spawn(move || {
            for stream in listener.incoming() {
                if served.over.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                // A caller that goes away at once is no failure of the host.
                drop(served.answer(stream));
            }
        });
        Ok(Self { address, shared, listening: Some(listening) })
    }

    /// From now on it takes connections and says nothing.
    pub fn hang(&self) {
        self.shared.hangs.store(true, Ordering::SeqCst);
    }

    /// A new repository, with nothing in it.
    pub fn repository(&self, name: &str) -> GitRepository {
        GitRepository::create(self.shared.path("repositories").join(name))
    }

    /// Where a repository is read from.
    pub fn url(&self, name: &str) -> String {
        format!("ssh://{}@{}/{name}", self.shared.user.name, self.address)
    }

    /// The private key that the host lets in.
    pub fn key(&self) -> String {
        fs::read_to_string(self.shared.path("client")).unwrap()
    }

    /// The host's key, as a line of `known_hosts`.
    pub fn known_host(&self) -> String {
        let key = fs::read_to_string(self.shared.path("host.pub")).unwrap();
        format!("[{}]:{} {key}", self.address.ip(), self.address.port())
    }

    /// From now on it has another host key.
    pub fn change_host_key(&self) {
        self.shared.make_host_key().unwrap();
    }

    /// What the server wrote, for whoever looks for the reason of a failure.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.shared.path("log")).unwrap_or_default()).into_owned()
    }
}

impl Drop for SshHost {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        self.shared.kept.lock().unwrap().clear();
        // The listener's thread looks up once more, and ends: it holds the directory, which is to go as well.
        if TcpStream::connect(self.address).is_ok() {
            let _ = self.listening.take().map(JoinHandle::join);
        }
        for mut server in self.shared.servers.lock().unwrap().drain(..) {
            // One that has ended needs no signal.
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// Makes a key in this file, and its public half beside it; without a passphrase where that is empty.
///
/// # Errors
/// [`Lack::Skip`] where ssh is not installed.
pub fn ssh_key(file: &Path, passphrase: &str) -> Can {
    let keygen = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-C", "test", "-N", passphrase, "-f"])
        .arg(file)
        .stdin(Stdio::null())
        .status();
    let status = keygen.map_err(|_| NO_SSH)?;
    assert!(status.success(), "ssh-keygen: {status}");
    Ok(())
}

impl Shared {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn configure(&self) -> Can {
        fs::create_dir(self.path("repositories")).unwrap();
        self.make_host_key()?;
        ssh_key(&self.path("client"), "")?;
        let root = format!("ROOT='{}'\nPATH='{}'\n", self.path("repositories").display(), search_path());
        write(&self.path("serve"), &SERVE.replacen('\n', &format!("\n{root}"), 1), 0o755);
        let key = fs::read_to_string(self.path("client.pub")).unwrap();
        let only = format!("restrict,command=\"{}\" {key}", self.path("serve").display());
        write(&self.path("authorized_keys"), &only, 0o644);
        let configuration = format!(
            "HostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\nPidFile none\nAcceptEnv GIT_PROTOCOL\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\n",
            self.path("host").display(),
            self.path("authorized_keys").display(),
        );
        write(&self.path("sshd_config"), &configuration, 0o644);
        Ok(())
    }

    fn make_host_key(&self) -> Can {
        let draft = self.path("host.draft");
        ssh_key(&draft, "")?;
        if let Some((user, group)) = self.user.ids {
            chown(&draft, Some(user), Some(group)).unwrap();
        }
        fs::rename(&draft, self.path("host")).unwrap();
        fs::rename(self.path("host.draft.pub"), self.path("host.pub")).unwrap();
        Ok(())
    }

    /// Hands a connection to a server of its own.
    fn answer(&self, stream: TcpStream) -> io::Result<()> {
        if self.hangs.load(Ordering::SeqCst) {
            self.kept.lock().unwrap().push(stream);
            return Ok(());
        }
        let log = fs::File::options().create(true).append(true).open(self.path("log"))?;
        let mut server = Command::new(self.path("sshd"));
        server
            .args(["-i", "-e", "-f"])
            .arg(self.path("sshd_config"))
            .current_dir("/")
            .env_clear()
            .env("PATH", search_path())
            .env("LD_LIBRARY_PATH", self.directory.path())
            .stdin(Stdio::from(OwnedFd::from(stream.try_clone()?)))
            .stdout(Stdio::from(OwnedFd::from(stream)))
            .stderr(log);
        if let Some((user, group)) = self.user.ids {
            server.uid(user).gid(group);
        }
        let server = server.spawn()?;
        let mut servers = self.servers.lock().unwrap();
        servers.retain_mut(|server| matches!(server.try_wait(), Ok(None)));
        servers.push(server);
        Ok(())
    }
}

impl User {
    fn of_the_server() -> Can<Self> {
        let name = id(&["-un"]).ok_or(NO_USER)?;
        if id(&["-u"]).as_deref() != Some("0") {
            return Ok(Self { name, ids: None });
        }
        let number = |option| id(&[option, UNPRIVILEGED]).and_then(|number| number.parse().ok()).ok_or(NO_USER);
        Ok(Self { name: UNPRIVILEGED.to_owned(), ids: Some((number("-u")?, number("-g")?)) })
    }

    /// A directory that the user can enter.
    fn place(&self) -> Can<TempDir> {
        for place in [env::temp_dir(), "/tmp".into(), "/dev/shm".into()] {
            let Ok(directory) = TempDir::with_prefix_in("rollhook-ssh-", place) else { continue };
            fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
            let mut test = Command::new("test");
            test.arg("-x").arg(directory.path()).current_dir("/");
            if let Some((user, group)) = self.ids {
                test.uid(user).gid(group);
            }
            if test.status().is_ok_and(|status| status.success()) {
                return Ok(directory);
            }
        }
        Err(NO_PLACE)
    }
}

/// The server and the libraries that the system lacks for it: what was unpacked for tests, or what is installed.
fn sshd() -> Option<Vec<PathBuf>> {
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")));
    let unpacked = cache.map(|cache| cache.join("rollhook-tools/sshd/usr"));
    if let Some(usr) = unpacked.filter(|usr| usr.join("sbin/sshd").is_file()) {
        let libraries = fs::read_dir(usr.join("lib")).into_iter().flatten().flatten();
        let libraries = libraries.map(|entry| entry.path().join("libwrap.so.0")).filter(|library| library.is_file());
        return Some(libraries.chain([usr.join("sbin/sshd")]).collect());
    }
    let installed = PathBuf::from("/usr/sbin/sshd");
    installed.is_file().then(|| vec![installed])
}

fn search_path() -> String {
    env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".to_owned())
}

fn id(arguments: &[&str]) -> Option<String> {
    let output = Command::new("id").args(arguments).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn write(file: &Path, text: &str, mode: u32) {
    let mut file = fs::File::options().write(true).create_new(true).mode(mode).open(file).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}
