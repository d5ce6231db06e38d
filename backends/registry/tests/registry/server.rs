//! A registry that answers as a test says, and keeps what it was asked.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use sha2::{Digest, Sha256};

/// The longest time for which a connection is kept silent.
const SILENCE: Duration = Duration::from_secs(60);
/// The most bytes of an answer without an end: a reader that takes them all has no bound.
const ENDLESS: usize = 256 << 20;

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    /// The headers, by their names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Request {
    pub(crate) fn authorization(&self) -> &str {
        self.headers.get("authorization").map_or("", String::as_str)
    }
}

/// How a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    Whole,
    /// After half of what the head says.
    Early,
    Never,
}

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) ends: Ends,
}

impl Answer {
    pub(crate) fn status(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Vec::new(), ends: Ends::Whole }
    }

    pub(crate) fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// Sets a header in place of another one of its name.
    pub(crate) fn replaced(mut self, name: &str, value: String) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self.header(name, value)
    }

    pub(crate) fn body(self, body: impl Into<Vec<u8>>) -> Self {
        Self { body: body.into(), ..self }
    }
}

/// The reaction to a request: an answer, silence, or the end of the connection.
pub(crate) enum Reaction {
    Answer(Answer),
    Hangs,
    Closes,
}

type Service = Arc<dyn Fn(&Request) -> Reaction + Send + Sync>;

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// Starts a server at this address of the machine.
    pub(crate) fn start_on(host: &str, service: impl Fn(&Request) -> Reaction + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((host, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (service, asked): (Service, _) = (Arc::new(service), Arc::new(Mutex::new(Vec::new())));
        let server = Self { address, asked: Arc::clone(&asked) };
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (service, asked) = (Arc::clone(&service), Arc::clone(&asked));
                thread::spawn(move || serve(stream, &service, &asked));
            }
        });
        server
    }

    pub(crate) fn start(service: impl Fn(&Request) -> Reaction + Send + Sync + 'static) -> Self {
        Self::start_on("127.0.0.1", service)
    }

    /// Starts a server that always answers.
    pub(crate) fn answering(service: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        Self::start(move |asked| Reaction::Answer(service(asked)))
    }

    /// The requests so far.
    pub(crate) fn asked(&self) -> Vec<Request> {
        self.asked.lock().unwrap().clone()
    }

    /// The methods and paths of the requests so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.asked().iter().map(|asked| format!("{} {}", asked.method, asked.path)).collect()
    }
}

fn serve(stream: TcpStream, service: &Service, kept: &Mutex<Vec<Request>>) {
    let Some(asked) = read(&stream) else { return };
    kept.lock().unwrap().push(asked.clone());
    match service(&asked) {
        Reaction::Answer(says) => write(stream, &says, asked.method == "HEAD"),
        Reaction::Hangs => {
            // The reader hangs up first.
            stream.set_read_timeout(Some(SILENCE)).unwrap();
            let _ = (&stream).read(&mut [0]);
        }
        Reaction::Closes => {}
    }
}

fn read(stream: &TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut lines = reader.by_ref().lines().map_while(Result::ok);
    let first = lines.next()?;
    let mut words = first.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let headers: BTreeMap<String, String> = lines
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_once(':').map(|(name, value)| (name.to_lowercase(), value.trim().to_owned())))
        .collect();
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Request { method, path, headers, body: String::from_utf8(body).unwrap() })
}

fn write(mut stream: TcpStream, says: &Answer, is_head: bool) {
    let mut head = format!("HTTP/1.1 {} x\r\nconnection: close\r\n", says.status);
    for (name, value) in &says.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if says.ends != Ends::Never {
        head.push_str(&format!("content-length: {}\r\n", says.body.len()));
    }
    head.push_str("\r\n");
    // The reader may have hung up.
    let _ = stream.write_all(head.as_bytes());
    if is_head {
        return;
    }
    match says.ends {
        Ends::Whole => drop(stream.write_all(&says.body)),
        Ends::Early => drop(stream.write_all(&says.body[..says.body.len() / 2])),
        Ends::Never => {
            let part = vec![b' '; 64 << 10];
            let written = (0..ENDLESS / part.len()).take_while(|_| stream.write_all(&part).is_ok()).count();
            assert!(written < ENDLESS / part.len(), "a reader takes an answer without an end");
        }
    }
}

/// Returns the digest of bytes.
pub(crate) fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}
