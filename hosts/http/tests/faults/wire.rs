//! A way to the API server on which one change of a Deployment is held up, while the replica that sent it is stopped.
//!
//! ```text
//!   replica ─▶ wire ─▶ kubectl proxy ─▶ API server
//!                │ a PATCH, after the driver has read: SIGSTOP, and held until `release`
//! ```

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::Stdio,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::Duration,
};

use rollhook_testing::{
    beds::Kubectl,
    process::{Running, signal},
};

/// Longer than anything that is waited for here takes.
const BOUND: Duration = Duration::from_secs(120);

/// A change that is held.
#[derive(Debug)]
pub struct Held {
    pub app: String,
    pub revision: u64,
    /// Says that it goes on.
    release: Sender<()>,
    /// Hears how the API server answered.
    answer: Receiver<u16>,
}

impl Held {
    /// Lets the change go on, and says how it was answered.
    pub fn release(self) -> u16 {
        self.release.send(()).unwrap();
        self.answer.recv_timeout(BOUND).unwrap()
    }
}

/// Whom the next change stops, and who is told of it.
type Armed = Arc<Mutex<Option<(u32, Sender<Held>)>>>;

/// The way itself; it is gone once this is dropped.
pub struct Wire {
    address: SocketAddr,
    _proxy: Running,
    armed: Armed,
}

impl Wire {
    /// Lays it to a cluster, for whomever this kubeconfig is of.
    pub fn lay(kubectl: &Kubectl, kubeconfig: &Path) -> Self {
        let mut command = kubectl.command(&["proxy", "--port", "0", "--kubeconfig", kubeconfig.to_str().unwrap()]);
        let mut proxy = Running(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
        let mut line = String::new();
        BufReader::new(proxy.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let upstream: SocketAddr = line.trim().rsplit(' ').next().unwrap().parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, armed) = (listener.local_addr().unwrap(), Armed::default());
        let shared = armed.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let armed = shared.clone();
                thread::spawn(move || carry(&client, upstream, &armed));
            }
        });
        Self { address, _proxy: proxy, armed }
    }

    /// Writes a kubeconfig that goes this way.
    pub fn write_kubeconfig(&self, file: &Path) {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: wire\n\
             clusters: [{{name: wire, cluster: {{server: \"http://{}\"}}}}]\n\
             users: [{{name: wire, user: {{}}}}]\n\
             contexts: [{{name: wire, context: {{cluster: wire, user: wire, namespace: rollhook}}}}]\n",
            self.address
        );
        std::fs::write(file, text).unwrap();
    }

    /// Waits for the next change of a Deployment; it is held, and the process that sends it is stopped.
    pub fn hold_next(&self, pid: u32) -> Held {
        let (tell, told) = channel();
        *self.armed.lock().unwrap() = Some((pid, tell));
        told.recv_timeout(BOUND).unwrap()
    }
}

/// Carries one connection until either side is done.
fn carry(client: &TcpStream, upstream: SocketAddr, armed: &Armed) {
    let Ok(server) = TcpStream::connect(upstream) else { return };
    let waiting = Arc::<Mutex<Option<Sender<u16>>>>::default();
    let answers = {
        let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        let waiting = waiting.clone();
        thread::spawn(move || {
            while let Some(bytes) = chunk(&mut from) {
                if let Some(tell) = waiting.lock().unwrap().take() {
                    let status = String::from_utf8_lossy(&bytes).split(' ').nth(1).and_then(|code| code.parse().ok());
                    let _ = tell.send(status.unwrap_or(0));
                }
                // Whoever asked may have given up.
                let _ = to.write_all(&bytes);
            }
            let _ = to.shutdown(std::net::Shutdown::Both);
        })
    };
    let (mut from, mut to) = (client, &server);
    while let Some(mut bytes) = chunk(&mut from) {
        let Some((app, (pid, tell))) = deployment(&bytes).and_then(|app| Some((app, armed.lock().unwrap().take()?)))
        else {
            if to.write_all(&bytes).is_err() {
                break;
            }
            continue;
        };
        while revision(&bytes).is_none() {
            bytes.extend(chunk(&mut from).unwrap());
        }
        signal(pid, "STOP");
        let ((release, released), (say, answer)) = (channel(), channel());
        tell.send(Held { app, revision: revision(&bytes).unwrap(), release, answer }).unwrap();
        released.recv().unwrap();
        let (answered, heard) = channel();
        *waiting.lock().unwrap() = Some(answered);
        to.write_all(&bytes).unwrap();
        // Not before the answer is there it is looked whether the one who asked has gone: that would cut the call off.
        say.send(heard.recv_timeout(BOUND).unwrap()).unwrap();
    }
    let _ = server.shutdown(std::net::Shutdown::Both);
    let _ = answers.join();
}

fn chunk(from: &mut impl Read) -> Option<Vec<u8>> {
    let mut bytes = vec![0; 64 * 1024];
    let length = from.read(&mut bytes).ok().filter(|length| *length > 0)?;
    bytes.truncate(length);
    Some(bytes)
}

/// The Deployment that a call changes.
fn deployment(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    let rest = text.strip_prefix("PATCH /apis/apps/v1/namespaces/")?.split_once("/deployments/")?.1;
    Some(rest.split(['?', ' ']).next()?.to_owned())
}

/// The revision that a change stamps.
fn revision(bytes: &[u8]) -> Option<u64> {
    let text = String::from_utf8_lossy(bytes);
    let stamp = text.split_once(r#""rollhook.dev/revision":""#)?.1.split_once('"')?.0;
    stamp.rsplit_once('/')?.1.parse().ok()
}
