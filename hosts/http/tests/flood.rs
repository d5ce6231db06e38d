//! Strangers who hold as many connections as they can, and guess tokens at full speed, beside a CI that posts: against
//! the real binary. The long form of the test command holds 1,000 connections of each kind for a minute.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "a test may")]

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rollhook_testing::{App, Server, image, server, skip, test_name, usually_or_long};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    runtime::Runtime,
};

/// The most memory that the server may have needed, in KiB.
const MEMORY: u64 = 128 * 1024;

#[derive(Clone, Copy, Debug)]
enum Stranger {
    NeverReads,
    NeverWrites,
    WritesHalfAHeader,
    WritesAPartOfABody,
    GuessesTokens,
}

use Stranger::{GuessesTokens, NeverReads, NeverWrites, WritesAPartOfABody, WritesHalfAHeader};

const STRANGERS: [Stranger; 5] = [NeverReads, NeverWrites, WritesHalfAHeader, WritesAPartOfABody, GuessesTokens];

/// Strangers on a runtime of their own, until this is dropped.
struct Flood {
    runtime: Runtime,
    /// The guesses that were answered, per kind of answer: refused, limited.
    refused: Arc<AtomicUsize>,
    limited: Arc<AtomicUsize>,
}

impl Flood {
    fn of(server: &Server, app: &App, each: usize) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (refused, limited) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let guess = server.post(&App { token: "rh_wrong".to_owned(), ..app.clone() }, &image("v2"));
        let guess = without_close([guess.head(image("v2").to_string().len()), image("v2").to_string().into()].concat());
        let ask = without_close(server.call("GET", "/api/v1/openapi.json").head(0)).repeat(100);
        let head = server.call("POST", &app.hook).head(71_680);
        for (index, kind) in STRANGERS.iter().flat_map(|kind| std::iter::repeat_n(*kind, each)).enumerate() {
            // They come back one after the other.
            let pause = Duration::from_millis(1_000 + index as u64 % 1_000);
            // Guessers share the address of the CI; the others have one of their own.
            let own = if matches!(kind, GuessesTokens) { 1 } else { 2 + kind as u8 };
            let (from, to) = (Ipv4Addr::new(127, 0, 0, own), server.address);
            let bytes = match kind {
                NeverReads => ask.clone(),
                NeverWrites => Vec::new(),
                WritesHalfAHeader => head[..head.len() / 2].to_vec(),
                WritesAPartOfABody => [head.clone(), vec![b'x'; 70_000]].concat(),
                GuessesTokens => guess.clone(),
            };
            let (refused, limited) = (refused.clone(), limited.clone());
            runtime.spawn(async move {
                loop {
                    let _ = misbehave(kind, from, to, &bytes, (&refused, &limited)).await;
                    tokio::time::sleep(pause).await;
                }
            });
        }
        Self { runtime, refused, limited }
    }
}

fn without_close(head: Vec<u8>) -> Vec<u8> {
    String::from_utf8(head).unwrap().replace("connection: close\r\n", "").into_bytes()
}

async fn connect(from: Ipv4Addr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    socket.connect(to).await
}

async fn misbehave(
    kind: Stranger,
    from: Ipv4Addr,
    to: SocketAddr,
    bytes: &[u8],
    (refused, limited): (&AtomicUsize, &AtomicUsize),
) -> io::Result<()> {
    let mut stream = connect(from, to).await?;
    stream.write_all(bytes).await?;
    let mut answer = [0; 4096];
    loop {
        match kind {
            NeverReads => stream.write_all(bytes).await?,
            NeverWrites | WritesHalfAHeader | WritesAPartOfABody => {
                if stream.read(&mut answer).await? == 0 {
                    return Ok(());
                }
            }
            GuessesTokens => {
                let length = stream.read(&mut answer).await?;
                match answer[..length].get(..12) {
                    Some(b"HTTP/1.1 401") => refused.fetch_add(1, Ordering::Relaxed),
                    Some(b"HTTP/1.1 429") => limited.fetch_add(1, Ordering::Relaxed),
                    _ => return Ok(()),
                };
                stream.write_all(bytes).await?;
            }
        }
    }
}

/// The peak of the memory that the server has needed, in KiB.
fn peak(server: &Server) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn open_files_max() -> usize {
    let limits = fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap_or(usize::MAX)
}

#[test]
fn every_call_of_ci_is_answered_while_strangers_flood_the_server() {
    let (each, calls) = usually_or_long((100, 4), (1_000, 60));
    if open_files_max() < 2 * STRANGERS.len() * each {
        return skip(&test_name!(), "too few files may be open: raise `ulimit -n`");
    }
    // A line per guess would fill the disk.
    let server = server!().variable("RUST_LOG", "warn").run();
    let app = server.app("api");
    let flood = Flood::of(&server, &app, each);
    let mut slowest = Duration::ZERO;
    for number in 0..calls {
        thread::sleep(Duration::from_secs(1));
        let begun = Instant::now();
        let call = server.post(&app, &image(&format!("v{number}"))).header("idempotency-key", &number.to_string());
        let answer = call.expect(202).json();
        slowest = slowest.max(begun.elapsed());
        assert_eq!(answer["revision"], number + 2);
    }
    let (refused, limited) = (flood.refused.load(Ordering::Relaxed), flood.limited.load(Ordering::Relaxed));
    flood.runtime.shutdown_background();
    let page: Value = server.manage("GET", &format!("{}/deploys?limit=200", app.path)).expect(200).json();
    assert_eq!(page["deploys"].as_array().unwrap().len(), calls + 1, "each call made one deploy");
    let peak = peak(&server);
    println!(
        "{calls} calls, the slowest in {slowest:?}; guesses refused {refused}, limited {limited}; peak {peak} KiB"
    );
    assert!(limited > 0 && peak < MEMORY, "{limited} guesses were limited; the server needed {peak} KiB");
}
