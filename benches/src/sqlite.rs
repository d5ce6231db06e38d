//! SQLite alone: the rows that deploys leave behind, in tables of the bench's own, with as many deploys per transaction as
//! there are connections. A server that has a deploy of each connection at hand can join no more.

use std::{path::Path, time::Duration};

use rollhook_core::ledger::Change;
use rusqlite::Connection;
use tokio::time::Instant;

use crate::{
    Failure,
    load::CONNECTIONS,
    seed::{self, Target},
};

const TABLES: &str = "
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
CREATE TABLE states (app INTEGER PRIMARY KEY, version INTEGER NOT NULL, state TEXT NOT NULL);
CREATE TABLE archive (id INTEGER PRIMARY KEY, app INTEGER NOT NULL, revision INTEGER NOT NULL, deploy TEXT NOT NULL);
CREATE UNIQUE INDEX archive_by_revision ON archive (app, revision);
CREATE TABLE keys (app INTEGER, key TEXT, revision INTEGER NOT NULL, PRIMARY KEY (app, key)) WITHOUT ROWID;";

/// Deploys per transaction.
const GROUP: i64 = CONNECTIONS as i64;

/// A database that only this process uses.
pub(crate) struct Alone {
    connection: Connection,
    apps: i64,
    /// The documents of a deploy's commits: the state after each, and the ended deploy.
    commits: Vec<(String, Option<String>)>,
    made: i64,
}

impl Alone {
    /// Makes the tables, with a state for each app.
    pub(crate) fn new(file: &Path, targets: &[Target]) -> Result<Self, Failure> {
        let connection = Connection::open(file)?;
        connection.execute_batch(TABLES)?;
        let first = targets.first().ok_or("there are no apps")?;
        let document = |change: &Change| -> Result<(String, Option<String>), Failure> {
            let ended = change.ended.first().map(serde_json::to_string).transpose()?;
            Ok((serde_json::to_string(&change.state)?, ended))
        };
        let commits: Vec<_> = seed::deploy(first.state.clone())?.iter().map(document).collect::<Result<_, _>>()?;
        connection.execute_batch("BEGIN")?;
        let (apps, state) = (i64::try_from(targets.len())?, commits.last().map(|(state, _)| state));
        for app in 0..apps {
            connection.execute("INSERT INTO states (app, version, state) VALUES (?1, 0, ?2)", (app, state))?;
        }
        connection.execute_batch("COMMIT")?;
        Ok(Self { connection, apps, commits, made: 0 })
    }

    /// Writes deploys for this long, group after group, and returns how many there were per second.
    pub(crate) fn write(&mut self, keyed: bool, time: Duration) -> Result<f64, Failure> {
        let (start, before) = (Instant::now(), self.made);
        while start.elapsed() < time {
            for commit in 0..self.commits.len() {
                self.group(commit, keyed && commit == 0)?;
            }
            self.made += GROUP;
        }
        Ok((self.made - before) as f64 / start.elapsed().as_secs_f64())
    }

    /// One commit of each deploy of a group, as one transaction.
    fn group(&self, commit: usize, keyed: bool) -> Result<(), Failure> {
        let prepare = |text| self.connection.prepare_cached(text);
        let mut put_state = prepare("UPDATE states SET version = version + 1, state = ?2 WHERE app = ?1")?;
        let mut put_deploy = prepare("INSERT INTO archive (app, revision, deploy) VALUES (?1, ?2, ?3)")?;
        let mut put_key = prepare("INSERT INTO keys (app, key, revision) VALUES (?1, ?2, ?3)")?;
        let (state, ended) = self.commits.get(commit).ok_or("no such commit")?;
        prepare("BEGIN IMMEDIATE")?.execute([])?;
        for revision in self.made..self.made + GROUP {
            // A prime's multiples: the apps of a group lie anywhere in the file.
            let app = revision * 7919 % self.apps;
            put_state.execute((app, state))?;
            if let Some(ended) = ended {
                put_deploy.execute((app, revision, ended))?;
            }
            if keyed {
                put_key.execute((app, format!("run-{revision:016x}"), revision))?;
            }
        }
        prepare("COMMIT")?.execute([])?;
        Ok(())
    }
}
