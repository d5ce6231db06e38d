//! Load: connections that each send the next request as soon as the last is answered.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{task::JoinSet, time::Instant};

use crate::{
    Failure,
    client::{self, Connection},
    process::own_cpu,
    seed::SeededApp,
    table::percentile,
};

/// The number of connections.
pub(crate) const CONNECTIONS: usize = 64;
/// The placeholder of an idempotency key, before its number is written.
const KEY: &str = "run-0000000000000000";

/// The outcome of a load.
#[derive(Default)]
pub(crate) struct Sent {
    /// The number of answers with status 202.
    pub(crate) accepted: u64,
    /// The number of answers with another status.
    pub(crate) refused: u64,
    /// The duration of the load.
    pub(crate) time: Duration,
    /// This process's processor time in that duration.
    pub(crate) cpu: Duration,
    /// The latency of each answer, in microseconds.
    pub(crate) latencies: Vec<u32>,
}

impl Sent {
    pub(crate) fn per_second(&self) -> f64 {
        self.accepted as f64 / self.time.as_secs_f64()
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.accepted += other.accepted;
        self.refused += other.refused;
        self.time += other.time;
        self.cpu += other.cpu;
        self.latencies.extend(other.latencies);
    }

    /// The share of one processor that the load itself used, in percent.
    pub(crate) fn cpu_share(&self) -> f64 {
        100.0 * self.cpu.as_secs_f64() / self.time.as_secs_f64()
    }

    /// The rate and the latencies, in words.
    pub(crate) fn summary(&mut self) -> String {
        let millis = |micros: u32| f64::from(micros) / 1000.0;
        let (middle, slow) = (millis(percentile(&mut self.latencies, 50)), millis(percentile(&mut self.latencies, 99)));
        format!("{:.0}/s, p50 {middle:.1} ms, p99 {slow:.1} ms", self.per_second())
    }
}

/// Prepared webhook calls, one per app.
pub(crate) struct Calls {
    requests: Vec<Vec<u8>>,
    /// The positions of the key's number in the requests, if calls have keys.
    number_at: Option<Vec<usize>>,
    next: AtomicU64,
}

impl Calls {
    /// Prepares a call of each app's webhook; with `keyed`, every sent call has an `Idempotency-Key` of its own.
    pub(crate) fn new(apps: &[SeededApp], keyed: bool) -> Arc<Self> {
        let requests: Vec<Vec<u8>> = apps.iter().map(|app| call(app, keyed)).collect();
        let place = |request: &Vec<u8>| {
            let start = request.windows(KEY.len()).position(|window| window == KEY.as_bytes());
            start.map_or(0, |start| start + 4)
        };
        let number_at = keyed.then(|| requests.iter().map(place).collect());
        Arc::new(Self { requests, number_at, next: AtomicU64::new(0) })
    }

    fn write(&self, index: usize, request: &mut Vec<u8>) {
        let index = index % self.requests.len();
        request.clear();
        request.extend_from_slice(&self.requests[index]);
        if let Some(places) = &self.number_at {
            let number = format!("{:016x}", self.next.fetch_add(1, Ordering::Relaxed));
            request[places[index]..places[index] + number.len()].copy_from_slice(number.as_bytes());
        }
    }
}

fn call(app: &SeededApp, keyed: bool) -> Vec<u8> {
    let body = r#"{"image":"registry.example.com/shop/api:4f2a9c1","commit":"4f2a9c1"}"#;
    let path = format!("/api/v1/webhook/{}", app.id);
    let mut headers = vec![("X-Service-Token", app.token.as_str())];
    if keyed {
        headers.push(("Idempotency-Key", KEY));
    }
    client::request("POST", &path, &headers, body)
}

/// Sends calls for this long, on all connections.
pub(crate) async fn send(address: SocketAddr, calls: &Arc<Calls>, time: Duration) -> Result<Sent, Failure> {
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(Connection::open(address).await?);
    }
    let (cpu, start) = (own_cpu()?, Instant::now());
    let mut tasks = JoinSet::new();
    for (first, connection) in connections.into_iter().enumerate() {
        tasks.spawn(keep_calling(connection, Arc::clone(calls), first, start + time));
    }
    let mut sent = Sent::default();
    while let Some(part) = tasks.join_next().await {
        sent.add(part??);
    }
    Ok(Sent { time: start.elapsed(), cpu: own_cpu()?.saturating_sub(cpu), ..sent })
}

async fn keep_calling(
    mut connection: Connection,
    calls: Arc<Calls>,
    first: usize,
    end: Instant,
) -> Result<Sent, Failure> {
    let mut sent = Sent::default();
    let mut request = Vec::new();
    let mut index = first;
    loop {
        let start = Instant::now();
        if start >= end {
            return Ok(sent);
        }
        calls.write(index, &mut request);
        match connection.call(&request).await? {
            202 => sent.accepted += 1,
            status => {
                sent.refused += 1;
                if sent.refused == 1 && first == 0 {
                    // The first answer stands for all of them.
                    eprintln!("a call is answered {status}: {}", String::from_utf8_lossy(connection.body()));
                }
            }
        }
        sent.latencies.push(u32::try_from(start.elapsed().as_micros()).unwrap_or(u32::MAX));
        index += CONNECTIONS;
    }
}
