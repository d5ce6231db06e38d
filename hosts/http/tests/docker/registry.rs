//! A registry that fails in the middle of a layer: a way to a sound one.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    thread,
    time::Duration,
};

/// The bytes that each connection brings before the fault: more than a manifest, less than a layer.
const SOUND: usize = 20_000;
/// The bytes of one that trickles: the engine tells progress once a hundredth of the layer has come.
const FEW: usize = 100;
/// The pause between them, and between two looks whether it is sound again.
const PAUSE: Duration = Duration::from_millis(100);

/// The way in which the rest of a connection comes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Sound,
    Breaks,
    Stalls,
    Trickles,
}

/// A way to a registry that fails.
pub(crate) struct Faulty {
    pub(crate) address: SocketAddr,
    mode: Arc<AtomicU8>,
}

impl Faulty {
    /// Listens before the registry at this address.
    pub(crate) fn before(registry: &str, mode: Mode) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, registry) = (listener.local_addr().unwrap(), registry.to_owned());
        let mode = Arc::new(AtomicU8::new(mode as u8));
        let now = mode.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(sound) = TcpStream::connect(&registry) else { continue };
                let (mut asks, mut asked) = (client.try_clone().unwrap(), sound.try_clone().unwrap());
                thread::spawn(move || io::copy(&mut asks, &mut asked));
                let now = now.clone();
                thread::spawn(move || {
                    drop(answer(&sound, &client, &now));
                    drop((sound.shutdown(Shutdown::Both), client.shutdown(Shutdown::Both)));
                });
            }
        });
        Self { address, mode }
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.mode.store(mode as u8, Ordering::Relaxed);
    }
}

/// Passes answers on until the fault.
fn answer(mut sound: &TcpStream, mut client: &TcpStream, mode: &AtomicU8) -> io::Result<()> {
    let (mut bytes, mut passed) = ([0; 4096], 0);
    loop {
        let is = |wanted: Mode| mode.load(Ordering::Relaxed) == wanted as u8;
        let length = sound.read(&mut bytes)?;
        if length == 0 {
            return Ok(());
        }
        passed += length;
        if passed > SOUND && !is(Mode::Sound) {
            if is(Mode::Breaks) {
                return Ok(());
            }
            for few in bytes[..length].chunks(FEW) {
                while is(Mode::Stalls) {
                    thread::sleep(PAUSE);
                }
                if is(Mode::Trickles) {
                    thread::sleep(PAUSE);
                }
                client.write_all(few)?;
            }
        } else {
            client.write_all(&bytes[..length])?;
        }
    }
}
