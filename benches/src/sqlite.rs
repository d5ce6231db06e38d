//! SQLite alone: the rows of the store's commits, in the store's tables, by its statements and with its settings,
//! without the store.

use std::{fs::File, io::Read, path::Path, time::Duration};

use rollhook_core::{
    ledger::{AppState, Change},
    ports::{AppCommit, Version},
};
use tokio::time::Instant;

use self::bare::Bare;
use crate::{
    Failure,
    fixture::Fixture,
    seed::{self, SeededApp},
};

/// The statements lie beside the store whose rows they write.
#[path = "../../backends/sqlite/benches/bare/mod.rs"]
#[allow(clippy::unwrap_used, dead_code, reason = "shared with a bench that ends where it cannot go on")]
mod bare;

/// The way in which the store wrote the rows of deploys.
pub(crate) struct Shape {
    /// The number of commits that a deploy took.
    pub(crate) commits_per_deploy: f64,
    /// The number of commits that shared a transaction.
    pub(crate) commits_per_transaction: f64,
}

impl Shape {
    /// The shape between two counts of deploys, commits and transactions.
    pub(crate) fn of(before: [u64; 3], after: [u64; 3]) -> Self {
        let [deploys, commits, transactions] = [0, 1, 2].map(|at| after[at].saturating_sub(before[at]).max(1) as f64);
        Self { commits_per_deploy: commits / deploys, commits_per_transaction: commits / transactions }
    }
}

/// A database that only this process uses.
pub(crate) struct Alone {
    _fixture: Fixture,
    bare: Bare,
    states: Vec<AppState>,
    deploys: usize,
}

impl Alone {
    /// Makes a database with this many apps.
    pub(crate) async fn new(apps: usize) -> Result<Self, Failure> {
        let fixture = Fixture::sqlite()?;
        let apps = seed::apps(&*fixture.open().await?, "load", 0..apps).await?;
        let bare = Bare::open(&fixture.database());
        let states = apps.into_iter().map(|SeededApp { state, .. }| state).collect();
        Ok(Self { _fixture: fixture, bare, states, deploys: 0 })
    }

    /// Writes the rows of deploys for this long, in this shape, and returns the deploys per second. Only SQLite's time
    /// counts, without the time for making the rows.
    pub(crate) fn write(&mut self, keyed: bool, shape: &Shape, time: Duration) -> Result<f64, Failure> {
        let (mut taken, before) = (Duration::ZERO, self.deploys);
        // Where the store joined two steps of an app in one commit, a deploy has two commits here instead of three.
        let short = (3.0 - shape.commits_per_deploy).clamp(0.0, 1.0);
        let group = (shape.commits_per_transaction * 3.0 / (3.0 - short)).round() as usize;
        let group = group.clamp(1, self.states.len());
        while taken < time {
            // A prime's multiples: the apps of a group lie anywhere in the file.
            let group: Vec<_> = (0..group).map(|at| (self.deploys + at) * 7919 % self.states.len()).collect();
            let deploys = group.iter().enumerate().map(|(at, app)| {
                seed::deploy(self.states[*app].clone(), keyed.then(|| format!("run-{:016x}", self.deploys + at)))
            });
            let deploys: Vec<[Change; 3]> = deploys.collect::<Result<_, _>>()?;
            for step in 0..3 {
                let skipped = |at: usize| step == 1 && (((self.deploys + at) as f64) * short).fract() < short;
                let deploys = deploys.iter().enumerate().filter(|(at, _)| !skipped(*at));
                let commits: Vec<AppCommit> = deploys.map(|(_, changes)| commit(&changes[step])).collect();
                let rows = self.bare.encode(&commits);
                let start = Instant::now();
                self.bare.commit(&rows);
                taken += start.elapsed();
            }
            for (app, [.., ended]) in group.iter().zip(deploys) {
                self.states[*app] = ended.state;
            }
            self.deploys += group.len();
        }
        Ok((self.deploys - before) as f64 / taken.as_secs_f64())
    }
}

fn commit(change: &Change) -> AppCommit {
    // The rows are the same for each version.
    AppCommit::Update(Version(1), Box::new(change.clone()))
}

/// Returns the number of transactions that were written to a file in WAL mode, modulo 2³²: the `iChange` of the header
/// of the shared index beside the file.
pub(crate) fn transactions(file: &Path) -> Result<u64, Failure> {
    let mut header = [0; 12];
    File::open(file.with_extension("db-shm"))?.read_exact(&mut header)?;
    let [.., a, b, c, d] = header;
    Ok(u32::from_ne_bytes([a, b, c, d]).into())
}
