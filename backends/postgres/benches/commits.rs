//! Accepts per second that the store commits, beside `pgbench`, which sends the statements of one accept on the same
//! server in the same run. By hand, because a loaded machine says little: `cargo bench -p rollhook-postgres`, with
//! `ROLLHOOK_TEST_POSTGRES` as for the tests.

#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on ends")]
#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use rollhook_conformance::{client, samples};
use rollhook_core::{
    ledger::Change,
    ports::{HistoryStore, Loaded, TokenStore},
};
use rollhook_postgres::PostgresStore;
use rollhook_sealing::KeyRing;
use rollhook_sql::CommitRows;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

const APPS: usize = 1024;
const CLIENTS: usize = 64;
const PHASE: Duration = Duration::from_secs(4);
const PHASES: usize = 3;

struct Bed {
    home: PathBuf,
    url: String,
}

impl Bed {
    async fn new() -> Self {
        let place = PathBuf::from(std::env::var_os("ROLLHOOK_TEST_POSTGRES").unwrap());
        let admin = fs::read_to_string(place.join("url")).unwrap();
        let name = format!("commits_{}", std::process::id());
        let mut connection = PgConnection::connect(admin.trim()).await.unwrap();
        run(&mut connection, &format!("CREATE DATABASE {name}")).await;
        Self { home: place.join("home"), url: admin.trim().strip_suffix("postgres").unwrap().to_owned() + &name }
    }

    /// Processor time of the server so far, in seconds: says more than rates on a machine that others use too.
    fn processor(&self) -> f64 {
        let main = fs::read_to_string(self.home.join("data/postmaster.pid")).unwrap();
        let main = main.lines().next().unwrap().to_owned();
        let processes =
            fs::read_dir("/proc").unwrap().filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("stat")).ok());
        let ticks = processes.map(|stat| {
            let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
            let sum =
                |range: std::ops::Range<usize>| fields[range].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum();
            match (stat.split(' ').next() == Some(&main), fields[1] == main) {
                (true, _) => sum(11..15),
                (_, true) => sum(11..13),
                (false, false) => 0,
            }
        });
        ticks.sum::<u64>() as f64 / 100.0
    }
}

async fn run(connection: &mut PgConnection, statements: &str) {
    sqlx::raw_sql(AssertSqlSafe(statements.to_owned())).execute(connection).await.unwrap();
}

/// The outcome of some phases.
#[derive(Default)]
struct Ran {
    accepts: usize,
    seconds: f64,
    processor: f64,
}

impl Ran {
    fn told(&self) -> String {
        let (accepts, per) = (self.accepts as f64, |sum: f64| sum * 1e6 / self.accepts as f64);
        format!("{:.0}/s, {:.0} µs of the server's processor time each", accepts / self.seconds, per(self.processor))
    }
}

/// Accepts for a phase: as many callers as the store takes commits at once, each with this many apps in a call.
async fn ours(store: &PostgresStore, apps: &[Loaded], batch: usize, keyed: bool) -> (usize, f64) {
    let started = Instant::now();
    let callers = store.limits().commits_at_once;
    let tasks: Vec<_> = (0..callers)
        .map(|caller| {
            let (store, mut apps) = (store.clone(), apps[caller * APPS / callers..][..APPS / callers].to_vec());
            tokio::spawn(async move {
                for app in &mut apps {
                    app.version = client::load(&store, app.state.app.uid).await.version;
                }
                let mut accepted = 0;
                while started.elapsed() < PHASE {
                    for apps in apps.chunks_mut(batch) {
                        accept(&store, apps, keyed, accepted).await;
                        accepted += apps.len();
                    }
                }
                accepted
            })
        })
        .collect();
    let accepted = join_all(tasks).await.into_iter().map(|accepted| accepted.unwrap()).sum();
    (accepted, started.elapsed().as_secs_f64())
}

async fn accept(store: &PostgresStore, apps: &mut [Loaded], keyed: bool, number: usize) {
    let tokens = join_all(apps.iter().map(|app| TokenStore::find(store, &app.state.app.id))).await;
    assert!(tokens.iter().all(|token| token.as_ref().unwrap().is_some()));
    let commits = apps.iter().map(|app| client::put(accepted(app, keyed.then_some(number)), app.version)).collect();
    for (app, answer) in apps.iter_mut().zip(store.commit(commits).await) {
        app.version = answer.unwrap().version;
    }
}

/// The same state each time, so that it does not grow.
fn accepted(app: &Loaded, key: Option<usize>) -> Change {
    let mut change = Change::on(app.state.clone());
    let deploy = samples::deploy("4f2a9c1");
    let admission = match key {
        Some(number) => {
            let key = format!("run-{number}-{}", app.version.0);
            samples::keyed(samples::key(&key, 0x5c), deploy)
        }
        None => samples::admission(deploy),
    };
    samples::admit(&mut change, admission, app.now);
    change.lease(&samples::replica("one", 1), app.now);
    change
}

/// The state's columns of such an accept, as fields of a JSON object without its braces.
fn fields(app: &Loaded) -> String {
    let commit = CommitRows::encode(client::put(accepted(app, None), app.version)).unwrap();
    let rows = commit.put.unwrap();
    let json = serde_json::to_string(&rows.state).unwrap();
    json.strip_prefix('{').and_then(|json| json.strip_suffix('}')).unwrap().to_owned()
}

fn pgbench(bed: &Bed, state: &str, keyed: bool) -> (usize, f64) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/accept.sql");
    let output = Command::new("pgbench")
        .args(["--no-vacuum", "--protocol=simple", "--jobs=1"])
        .arg(format!("--client={CLIENTS}"))
        .arg(format!("--time={}", PHASE.as_secs()))
        .args([format!("--define=apps={APPS}"), format!("--define=clients={CLIENTS}")])
        .args([format!("--define=keyed={}", u8::from(keyed)), format!("--define=state={state}")])
        .arg("--file")
        .args([script.as_path(), Path::new(&bed.url)])
        .output()
        .unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
    let number = |label: &str| {
        let line = told.lines().find_map(|line| line.strip_prefix(label)).unwrap();
        line.split([' ', '/']).next().unwrap().parse::<f64>().unwrap()
    };
    let accepts = number("number of transactions actually processed: ");
    (accepts as usize, accepts / number("tps = "))
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    let bed = Bed::new().await;
    let store = PostgresStore::connect(&bed.url, KeyRing::of_key([7; 32])).await.unwrap();
    let mut apps = Vec::new();
    for number in 10_000..10_000 + APPS {
        let loaded = client::register(&store, samples::app("load", "test", &format!("app-{number}"))).await;
        store.put(loaded.state.app.uid, &samples::token(1)).await.unwrap();
        apps.push(loaded);
    }
    let mut connection = PgConnection::connect(&bed.url).await.unwrap();
    run(&mut connection, "VACUUM ANALYZE").await;
    let state = fields(&apps[0]);
    println!("{APPS} apps, state of {} bytes", state.len());
    for keyed in [false, true] {
        let mut ran: [Ran; 4] = Default::default();
        for _ in 0..PHASES {
            for (batch, ran) in [0, 1, 16, 64].into_iter().zip(&mut ran) {
                run(&mut connection, "TRUNCATE rollhook.keys").await;
                run(&mut connection, "VACUUM rollhook.apps").await;
                ran.processor -= bed.processor();
                let (accepts, seconds) = match batch {
                    0 => pgbench(&bed, &state, keyed),
                    _ => ours(&store, &apps, batch, keyed).await,
                };
                ran.processor += bed.processor();
                ran.accepts += accepts;
                ran.seconds += seconds;
            }
        }
        let [bare, one, some, many] = ran.map(|ran| ran.told());
        println!(
            "keyed: {keyed}\n  pgbench, {CLIENTS} clients: {bare}\n  calls of 1: {one}\n  calls of 16: {some}\n  calls of 64: {many}"
        );
    }
    run(&mut connection, "SELECT").await;
}
