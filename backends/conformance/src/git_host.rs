//! A git host on loopback, for tests of builders: real repositories behind git's own HTTP backend.

use std::{
    fs,
    io::{self, BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

/// The host; it serves until it is dropped.
pub struct GitHost {
    /// Where it listens.
    pub address: SocketAddr,
    root: PathBuf,
    shared: Arc<Shared>,
}

struct Shared {
    root: PathBuf,
    /// What a caller must send as `Authorization`.
    password: Option<String>,
    hangs: AtomicBool,
    over: AtomicBool,
    /// Connections that are kept without an answer.
    kept: Mutex<Vec<TcpStream>>,
}

/// A repository of the host.
#[derive(Clone, Debug)]
pub struct GitRepository {
    directory: PathBuf,
}

impl GitHost {
    /// A host of the repositories below `root`. `authorization` is the header's value that callers must send.
    pub fn serve(root: &Path, authorization: Option<&str>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            root: root.to_owned(),
            password: authorization.map(str::to_owned),
            hangs: AtomicBool::new(false),
            over: AtomicBool::new(false),
            kept: Mutex::default(),
        });
        let served = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                if served.over.load(Ordering::SeqCst) {
                    return;
                }
                let (Ok(stream), served) = (stream, served.clone()) else { continue };
                // A caller that goes away in the middle is no failure of the host.
                thread::spawn(move || drop(served.answer(stream)));
            }
        });
        Self { address, root: root.to_owned(), shared }
    }

    /// From now on it takes calls and answers none.
    pub fn hang(&self) {
        self.shared.hangs.store(true, Ordering::SeqCst);
    }

    /// From now on it answers again; what it was asked meanwhile stays unanswered.
    pub fn recover(&self) {
        self.shared.hangs.store(false, Ordering::SeqCst);
    }

    /// A new repository, with nothing in it.
    pub fn repository(&self, name: &str) -> GitRepository {
        GitRepository::create(self.root.join(name))
    }

    /// Where a repository is read from.
    pub fn url(&self, name: &str) -> String {
        format!("http://{}/{name}/.git", self.address)
    }
}

impl Drop for GitHost {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        self.shared.kept.lock().unwrap().clear();
        // The listener's thread looks up once more, and ends.
        drop(TcpStream::connect(self.address));
    }
}

impl GitRepository {
    pub(crate) fn create(directory: PathBuf) -> Self {
        fs::create_dir_all(&directory).unwrap();
        let repository = Self { directory };
        repository.git(&["init", "-q", "-b", "main"]);
        repository
    }

    /// Runs git in the repository, and returns what it writes.
    pub fn git(&self, arguments: &[&str]) -> String {
        self.git_with(arguments, "")
    }

    /// Runs git on this input.
    pub fn git_with(&self, arguments: &[&str], input: &str) -> String {
        let mut child = git(&self.directory)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("git is installed");
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_owned();
        let writer = thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        assert!(output.status.success(), "git {arguments:?}: {}", output.status);
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Commits a file with this content on top of what is there, and returns the commit.
    pub fn commit(&self, file: &str, content: &str) -> String {
        let path = self.directory.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", content]);
        self.git(&["rev-parse", "HEAD"])
    }

    /// Commits something that was never there before to a branch, which is made where there is none, and returns it.
    pub fn push(&self, branch: &str) -> String {
        let name = format!("refs/heads/{branch}");
        let known = self.git(&["for-each-ref", "--format=%(objectname)", "--", &name]);
        let count = self.git(&["rev-list", "--all", "--count"]);
        let tree = self.git(&["write-tree"]);
        let message = format!("push {count} to {branch}, after {known}");
        let mut arguments = vec!["commit-tree", tree.as_str(), "-m", message.as_str()];
        arguments.extend((!known.is_empty()).then_some(["-p", known.as_str()]).into_iter().flatten());
        let commit = self.git(&arguments);
        self.push_back(branch, &commit);
        commit
    }

    /// Has a branch be at this commit, whatever it was at before.
    pub fn push_back(&self, branch: &str, to: &str) {
        self.git(&["update-ref", &format!("refs/heads/{branch}"), to]);
    }

    /// A long history on a branch of its own, and the first digits that two of its commits share.
    pub fn ambiguous(&self) -> String {
        const COMMITS: u32 = 40_000;
        let mut stream = String::new();
        for number in 0..COMMITS {
            let message = format!("commit {number}");
            stream.push_str("commit refs/heads/many\ncommitter Ada <ada@example.com> 1700000000 +0000\n");
            stream.push_str(&format!("data {}\n{message}\n", message.len()));
        }
        self.git_with(&["fast-import", "--quiet"], &stream);
        let list = self.git(&["rev-list", "many"]);
        let mut commits: Vec<&str> = list.lines().collect();
        commits.sort_unstable();
        let twins = commits.windows(2).find(|pair| pair[0][..7] == pair[1][..7]);
        twins.expect("so many commits have two that begin alike")[0][..7].to_owned()
    }
}

/// git, as nobody has configured it, at a time that is always the same.
fn git(directory: &Path) -> Command {
    let mut command = Command::new("git");
    command
        .current_dir(directory)
        .env("HOME", directory)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .envs(["GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"].map(|name| (name, "Ada")))
        .envs(["GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"].map(|name| (name, "ada@example.com")))
        .envs(["GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"].map(|name| (name, "1700000000 +0000")));
    command
}

/// A call, as a CGI program is told of it.
#[derive(Default)]
struct Call {
    method: String,
    path: String,
    query: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Call {
    fn read(from: &mut impl BufRead) -> io::Result<Self> {
        let mut call = Self::default();
        let first = line(from)?;
        let mut words = first.split(' ');
        call.method = words.next().unwrap_or_default().to_owned();
        let target = words.next().unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        (call.path, call.query) = (path.to_owned(), query.to_owned());
        loop {
            let header = line(from)?;
            let Some((name, value)) = header.split_once(':') else { break };
            call.headers.push((name.to_lowercase(), value.trim().to_owned()));
        }
        if call.header("transfer-encoding") == "chunked" {
            loop {
                let length = usize::from_str_radix(&line(from)?, 16).unwrap_or(0);
                let start = call.body.len();
                call.body.resize(start + length, 0);
                from.read_exact(&mut call.body[start..])?;
                line(from)?;
                if length == 0 {
                    break;
                }
            }
        } else {
            call.body.resize(call.header("content-length").parse().unwrap_or(0), 0);
            from.read_exact(&mut call.body)?;
        }
        Ok(call)
    }

    fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }
}

fn line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}

impl Shared {
    /// Answers one call by git's own program.
    fn answer(&self, mut stream: TcpStream) -> io::Result<()> {
        let call = Call::read(&mut BufReader::new(stream.try_clone()?))?;
        if self.hangs.load(Ordering::SeqCst) {
            self.kept.lock().unwrap().push(stream);
            return Ok(());
        }
        if self.password.as_deref().is_some_and(|password| password != call.header("authorization")) {
            return stream.write_all(
                b"HTTP/1.1 401 No\r\nwww-authenticate: Basic realm=\"git\"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
            );
        }
        let mut backend = git(&self.root);
        backend
            .arg("http-backend")
            .env("GIT_PROJECT_ROOT", &self.root)
            .env("GIT_HTTP_EXPORT_ALL", "1")
            .env("REQUEST_METHOD", &call.method)
            .env("PATH_INFO", &call.path)
            .env("QUERY_STRING", &call.query)
            .env("CONTENT_TYPE", call.header("content-type"))
            .env("CONTENT_LENGTH", call.body.len().to_string())
            .env("HTTP_CONTENT_ENCODING", call.header("content-encoding"))
            .env("GIT_PROTOCOL", call.header("git-protocol"))
            .env("REMOTE_ADDR", "127.0.0.1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = backend.spawn()?;
        let mut stdin = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut body = BufReader::new(child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?);
        let writer = thread::spawn(move || drop(stdin.write_all(&call.body)));
        let (mut status, mut head) = ("200 OK".to_owned(), String::new());
        loop {
            let header = line(&mut body)?;
            match header.split_once(": ") {
                Some(("Status", given)) => status = given.to_owned(),
                Some((name, value)) => head.push_str(&format!("{name}: {value}\r\n")),
                None => break,
            }
        }
        stream.write_all(format!("HTTP/1.1 {status}\r\n{head}connection: close\r\n\r\n").as_bytes())?;
        io::copy(&mut body, &mut stream)?;
        let _ = writer.join();
        child.wait().map(drop)
    }
}
