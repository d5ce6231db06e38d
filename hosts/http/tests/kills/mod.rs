//! A way from the server to its platform on which the server is killed at a chosen call.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::unix::net::{UnixListener, UnixStream},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

use rollhook_testing::process::signal;

/// The moment at which a server is killed: at the change of this number, before it arrives or after it was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) change: usize,
    pub(crate) is_after: bool,
}

impl Moment {
    /// The moments before the first change and after each, of which every other one is left out from this one on.
    pub(crate) fn every_other(first: usize) -> impl Iterator<Item = Self> {
        (first..30).step_by(2).map(|number| Self { change: usize::max(number, 1), is_after: number > 0 })
    }
}

/// The next kill.
struct Trap {
    moment: Moment,
    pid: u32,
    changes: usize,
}

/// Returns whether a request, by its first line, changes something.
type IsChange = fn(&str) -> bool;

/// A way on which a server is killed.
pub(crate) struct Way {
    armed: Arc<Mutex<Option<Trap>>>,
}

impl Way {
    /// Lays a way to an address; returns it with its own address.
    #[allow(dead_code, reason = "one of the programs uses it")]
    pub(crate) fn lay(upstream: SocketAddr, is_change: IsChange) -> (Self, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connect = move || TcpStream::connect(upstream).ok();
        (Self::serve(move || listener.accept().ok().map(|(client, _)| client), connect, is_change), address)
    }

    /// Lays a way from one socket to another.
    #[allow(dead_code, reason = "one of the programs uses it")]
    pub(crate) fn lay_to_socket(upstream: &Path, socket: &Path, is_change: IsChange) -> Self {
        let listener = UnixListener::bind(socket).unwrap();
        let upstream = upstream.to_owned();
        let connect = move || UnixStream::connect(&upstream).ok();
        Self::serve(move || listener.accept().ok().map(|(client, _)| client), connect, is_change)
    }

    fn serve<S: Stream>(
        mut accept: impl FnMut() -> Option<S> + Send + 'static,
        connect: impl Fn() -> Option<S> + Send + 'static,
        is_change: IsChange,
    ) -> Self {
        let way = Self { armed: Arc::default() };
        let armed = Arc::clone(&way.armed);
        thread::spawn(move || {
            while let Some(client) = accept() {
                let Some(server) = connect() else { continue };
                let armed = Arc::clone(&armed);
                thread::spawn(move || carry(&client, &server, &armed, is_change));
            }
        });
        way
    }

    pub(crate) fn arm(&self, pid: u32, moment: Moment) {
        *self.armed.lock().unwrap_or_else(PoisonError::into_inner) = Some(Trap { moment, pid, changes: 0 });
    }

    /// Takes the trap away, and returns whether it still waited.
    pub(crate) fn disarm(&self) -> bool {
        self.armed.lock().unwrap_or_else(PoisonError::into_inner).take().is_some()
    }
}

/// A connection.
trait Stream: Read + Write + Send + Sync + Sized + 'static {
    fn twin(&self) -> Self;
    fn close(&self, how: Shutdown);
}

impl Stream for TcpStream {
    fn twin(&self) -> Self {
        self.try_clone().unwrap()
    }

    fn close(&self, how: Shutdown) {
        let _ = self.shutdown(how);
    }
}

impl Stream for UnixStream {
    fn twin(&self) -> Self {
        self.try_clone().unwrap()
    }

    fn close(&self, how: Shutdown) {
        let _ = self.shutdown(how);
    }
}

/// Carries one connection until either side is done.
fn carry<S: Stream>(client: &S, server: &S, armed: &Mutex<Option<Trap>>, is_change: IsChange) {
    // The process to kill once the next answer is there.
    let condemned = Arc::new(AtomicU32::new(0));
    let answers = {
        let (mut from, mut to) = (server.twin(), client.twin());
        let condemned = Arc::clone(&condemned);
        thread::spawn(move || {
            while let Some(bytes) = chunk(&mut from) {
                let pid = condemned.load(Ordering::SeqCst);
                if pid != 0 {
                    signal(pid, "KILL");
                    break;
                }
                if to.write_all(&bytes).is_err() {
                    break;
                }
            }
            to.close(Shutdown::Both);
        })
    };
    let (mut from, mut to) = (client.twin(), server.twin());
    while let Some(bytes) = chunk(&mut from) {
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4096)]);
        if is_change(text.lines().next().unwrap_or_default())
            && let Some(trap) = sprung(armed)
        {
            if !trap.moment.is_after {
                signal(trap.pid, "KILL");
                break;
            }
            condemned.store(trap.pid, Ordering::SeqCst);
        }
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    server.close(Shutdown::Write);
    let _ = answers.join();
}

fn sprung(armed: &Mutex<Option<Trap>>) -> Option<Trap> {
    let mut armed = armed.lock().unwrap_or_else(PoisonError::into_inner);
    let trap = armed.as_mut()?;
    trap.changes += 1;
    if trap.changes == trap.moment.change { armed.take() } else { None }
}

fn chunk(from: &mut impl Read) -> Option<Vec<u8>> {
    let mut bytes = vec![0; 64 * 1024];
    let length = from.read(&mut bytes).ok().filter(|length| *length > 0)?;
    bytes.truncate(length);
    Some(bytes)
}
