//! SQLite alone: the rows that the store writes, by the statements that write them, with its settings, and without it.

use std::path::Path;

use rollhook_core::ports::AppCommit;
use rollhook_sql::{CommitRows, PutRows};
use rusqlite::Connection;

const PUT_STATE: &str = "UPDATE apps SET version = version + 1, document = ?2 WHERE id = ?1";
const PUT_WORK: &str = "UPDATE apps SET version = version + 1, document = ?2, queued_at = ?3, lease = ?4 WHERE id = ?1";
const PUT_KEY: &str = "INSERT OR REPLACE INTO keys (app, header, key, request, revision, expires_at) \
                       VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
const PUT_DEPLOY: &str = "INSERT OR REPLACE INTO deploys (app, revision, succeeded, document) VALUES (?1, ?2, ?3, ?4)";

/// A history of a million deploys, one in a hundred of which succeeded, made from the first.
const FILL: &str = "
INSERT INTO deploys (app, revision, succeeded, document)
SELECT app, n.value, n.value % 100 = 0, json_set(document, '$.revision', n.value)
FROM (WITH RECURSIVE n (value) AS (SELECT 2 UNION ALL SELECT value + 1 FROM n WHERE value < 1000000)
      SELECT value FROM n) n, deploys WHERE revision = 1;";

/// A writing connection.
pub(crate) struct Bare(Connection);

/// An app's rows, with the id that the app has in the file.
pub(crate) struct Rows {
    id: i64,
    works: bool,
    rows: Box<PutRows>,
}

impl Bare {
    pub(crate) fn open(path: &Path) -> Self {
        let connection = Connection::open(path).unwrap();
        let pragmas = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -8192; \
                       PRAGMA wal_autocheckpoint = 4096; PRAGMA journal_size_limit = 33554432;";
        connection.execute_batch(pragmas).unwrap();
        Self(connection)
    }

    pub(crate) fn encode(&self, commits: &[AppCommit]) -> Vec<Rows> {
        let rows = |commit: &AppCommit| {
            let CommitRows { app, put, .. } = CommitRows::encode(commit.clone()).unwrap();
            let rows = put.unwrap();
            let mut find = self.0.prepare_cached("SELECT id, queued_at IS NULL FROM apps WHERE uid = ?1").unwrap();
            let (id, idle): (i64, bool) =
                find.query_row([app.as_bits().to_be_bytes()], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
            Rows { id, works: idle == rows.state.queued_at.is_some(), rows }
        };
        commits.iter().map(rows).collect()
    }

    /// Writes the rows in one transaction.
    pub(crate) fn commit(&mut self, rows: &[Rows]) {
        let connection = &self.0;
        let mut put_state = connection.prepare_cached(PUT_STATE).unwrap();
        let mut put_work = connection.prepare_cached(PUT_WORK).unwrap();
        let mut put_key = connection.prepare_cached(PUT_KEY).unwrap();
        let mut put_deploy = connection.prepare_cached(PUT_DEPLOY).unwrap();
        connection.prepare_cached("BEGIN IMMEDIATE").unwrap().execute([]).unwrap();
        for Rows { id, works, rows } in rows {
            let state = &rows.state;
            if *works {
                put_work.execute((id, &state.document, state.queued_at, &state.lease)).unwrap();
            } else {
                put_state.execute((id, &state.document)).unwrap();
            }
            for key in &rows.keys {
                put_key.execute((id, key.header, &key.key, key.request, key.revision, key.expires_at)).unwrap();
            }
            for deploy in &rows.ended {
                put_deploy.execute((id, deploy.revision, deploy.succeeded, &deploy.document)).unwrap();
            }
        }
        connection.prepare_cached("COMMIT").unwrap().execute([]).unwrap();
    }
}

/// Fills the archive of the only app.
pub(crate) fn fill(path: &Path) {
    Connection::open(path).unwrap().execute_batch(FILL).unwrap();
}
