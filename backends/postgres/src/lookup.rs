//! Lookups that every request begins with: all that wait share a statement, so that many of them cost the server one.

#[cfg(feature = "management")]
use rollhook_core::time::Timestamp;
use rollhook_core::{Error, Result, app::AppId};
#[cfg(feature = "management")]
use rollhook_management::ports::RecordKey;
#[cfg(feature = "management")]
use rollhook_sql::RecordRow;
use serde::Serialize;
use sqlx::postgres::PgRow;
use tokio::sync::{mpsc, oneshot};

use crate::{
    connections::Connections,
    error::SqlError,
    literal::{self, column},
};

/// The most calls that are queued; more of them wait to be queued.
const QUEUED: usize = 4096;
/// The most calls that share a statement.
const AT_ONCE: usize = 1024;

/// The key of a lookup.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Lookup {
    /// The token of the app of this name.
    Token(AppId),
    /// The record of this kind and key.
    #[cfg(feature = "management")]
    Record { kind: &'static str, key: RecordKey },
}

/// A stored token, as columns.
pub(crate) struct StoredToken {
    /// The app's uid.
    pub(crate) app: String,
    /// The sealed token, in hexadecimal digits.
    pub(crate) sealed: String,
    pub(crate) created_at: i64,
}

/// The row that a lookup finds.
enum Found {
    Token(StoredToken),
    /// A record, and the time at which it was read.
    #[cfg(feature = "management")]
    Record(RecordRow, Timestamp),
}

type Answer = Option<Found>;
type Call = (Lookup, oneshot::Sender<Result<Answer>>);

/// Looks tokens and records up; clones share statements.
#[derive(Clone)]
pub(crate) struct Lookups(mpsc::Sender<Call>);

impl Lookups {
    /// Starts the task that runs the statements, which ends with the last clone.
    pub(crate) fn start(connections: Connections) -> Self {
        let (calls, queued) = mpsc::channel(QUEUED);
        tokio::spawn(serve(connections, queued));
        Self(calls)
    }

    /// Returns the token that a statement finds which begins after this call.
    pub(crate) async fn token(&self, lookup: Lookup) -> Result<Option<StoredToken>> {
        match self.find(lookup).await? {
            Some(Found::Token(token)) => Ok(Some(token)),
            #[cfg(feature = "management")]
            Some(Found::Record(..)) => Ok(None),
            None => Ok(None),
        }
    }

    /// Returns the record that a statement finds which begins after this call, and the time of that.
    #[cfg(feature = "management")]
    pub(crate) async fn record(&self, lookup: Lookup) -> Result<Option<(RecordRow, Timestamp)>> {
        match self.find(lookup).await? {
            Some(Found::Record(row, now)) => Ok(Some((row, now))),
            Some(Found::Token(_)) | None => Ok(None),
        }
    }

    async fn find(&self, lookup: Lookup) -> Result<Answer> {
        let stopped = || Error::Unavailable { what: "the process is shutting down".to_owned(), cause: None };
        let (answering, answer) = oneshot::channel();
        self.0.send((lookup, answering)).await.map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }
}

async fn serve(connections: Connections, mut queued: mpsc::Receiver<Call>) {
    let mut calls = Vec::new();
    while queued.recv_many(&mut calls, AT_ONCE).await > 0 {
        let unanswered = calls.drain(..).filter(|(_, answering)| !answering.is_closed());
        let (lookups, answering): (Vec<_>, Vec<_>) = unanswered.unzip();
        // A caller that has gone away misses its answer.
        match find(&connections, &lookups).await {
            Ok(answers) => answering.into_iter().zip(answers).for_each(|(to, answer)| drop(to.send(Ok(answer)))),
            Err(failure) => answering.into_iter().for_each(|to| drop(to.send(Err(failure.to_error())))),
        }
    }
}

/// Returns the answers in the order of the lookups.
async fn find(connections: &Connections, lookups: &[Lookup]) -> Result<Vec<Answer>, SqlError> {
    let mut answers: Vec<Answer> = lookups.iter().map(|_| None).collect();
    if lookups.is_empty() {
        return Ok(answers);
    }
    let rows = connections.read(format!(
        "WITH i AS MATERIALIZED (
            SELECT i.* FROM rows from (json_to_recordset({}) AS (namespace text, name text, kind text, key text))
            WITH ORDINALITY i (namespace, name, kind, key, number)
        ), c AS MATERIALIZED (SELECT rollhook.clock() AS now)
        SELECT i.number, t.app::text, encode(t.sealed, 'hex'), t.created_at, NULL::bigint, NULL::bigint, NULL::bigint FROM i
        JOIN rollhook.apps a ON a.namespace = i.namespace AND a.name = i.name JOIN rollhook.tokens t ON t.app = a.uid
        UNION ALL
        SELECT i.number, r.key, r.document, r.created_at, r.version, r.expires_at, c.now FROM i
        JOIN rollhook.records r ON r.kind = i.kind AND r.key = i.key CROSS JOIN c
        WHERE r.expires_at IS NULL OR r.expires_at > c.now",
        literal::json(lookups)?,
    ));
    for row in &rows.await? {
        // `ORDINALITY` counts from 1.
        let index = usize::try_from(column::<i64>(row, 0)? - 1).ok();
        if let Some(answer) = index.and_then(|index| answers.get_mut(index)) {
            *answer = Some(found(row)?);
        }
    }
    Ok(answers)
}

fn found(row: &PgRow) -> Result<Found, SqlError> {
    #[cfg(feature = "management")]
    if let Some(version) = column(row, 4)? {
        let (key, document, created_at) = (column(row, 1)?, column(row, 2)?, column(row, 3)?);
        let row_of = RecordRow { version, key, document, created_at, expires_at: column(row, 5)? };
        return Ok(Found::Record(row_of, Timestamp::from_millis(column(row, 6)?)));
    }
    Ok(Found::Token(StoredToken { app: column(row, 1)?, sealed: column(row, 2)?, created_at: column(row, 3)? }))
}
