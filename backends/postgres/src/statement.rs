//! The statements of commits.
//!
//! Each locks the rows of its apps in the order of their uids, so that two replicas never wait for each other, and
//! compares the versions that it finds under the locks. It sees keys and archive as they were when it began: for an app
//! that has the expected version they are the present ones, as they change only with the version.

use rollhook_core::ports::Version;
use rollhook_sql::{CommitRows, PutRows};
use serde::Serialize;

use crate::{error::SqlError, literal};

/// The most apps in a statement.
pub(crate) const APPS: usize = 256;

/// The kinds of commits, of which each has a statement of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// The registration of an app.
    Register,
    /// The replacement of an app's state.
    Put,
    /// The removal of an app.
    Remove,
}

impl Kind {
    /// Returns the kind of a commit.
    pub(crate) fn of(rows: &CommitRows) -> Self {
        match (rows.version, &rows.put) {
            (None, _) => Self::Register,
            (Some(_), Some(_)) => Self::Put,
            (Some(_), None) => Self::Remove,
        }
    }

    /// The most commits in a statement. A registration must see the one before.
    pub(crate) const fn at_once(self) -> usize {
        match self {
            Self::Register => 1,
            Self::Put | Self::Remove => APPS,
        }
    }
}

/// A commit in a statement.
#[derive(Debug, Serialize)]
pub(crate) struct Item {
    #[serde(skip)]
    pub(crate) kind: Kind,
    /// The number of its answer.
    pub(crate) number: usize,
    #[serde(flatten)]
    pub(crate) rows: CommitRows,
}

/// Returns the statement that writes these commits, which are of one kind. Its rows are their numbers, new versions,
/// refusals, and the time.
///
/// Numbers of rows are told to the planner as limits: it would take each JSON array for a hundred rows.
pub(crate) fn of(items: &[Item], sender: &str) -> Result<String, SqlError> {
    let sum = |count: fn(&PutRows) -> usize| items.iter().filter_map(|item| item.rows.put.as_deref()).map(count).sum();
    let (keys, ended, forgotten): (usize, usize, usize) =
        (sum(|put| put.keys.len()), sum(|put| put.ended.len()), sum(|put| put.forgotten.len()));
    let kind = items.first().map_or(Kind::Put, |item| item.kind);
    let (before, judged, written) = match kind {
        Kind::Register => (REGISTRATIONS, NEW.to_owned(), INSERT),
        Kind::Put => ("", judged("NO KEY UPDATE"), UPDATE),
        Kind::Remove => ("", judged("UPDATE"), DELETE),
    };
    let key_uses = if keys > 0 { KEY_USES } else { "" };
    let archived = if ended > 0 { ARCHIVED } else { "" };
    let forgotten = if forgotten > 0 { FORGOTTEN } else { "" };
    Ok(format!(
        "{before}WITH item AS MATERIALIZED (
    SELECT i.* FROM json_to_recordset({items}) i (
        number integer, app uuid, version bigint, namespace text, name text, project text, environment text,
        queued_at bigint, lease text, document text, keys json, ended json, forgotten bigint[]
    ) LIMIT {count}
), key AS MATERIALIZED (
    SELECT i.app, k.* FROM item i CROSS JOIN json_to_recordset(i.keys) k (
        header smallint, key text, request text, revision bigint, expires_at bigint, replaces boolean
    ) LIMIT {keys}
), {judged}, {written}{key_uses}{archived}{forgotten}
SELECT i.number, w.version, j.refusal, rollhook.clock(), CASE
    WHEN w.app IS NOT NULL AND pg_notification_queue_usage() < 0.5
    THEN pg_notify('rollhook', concat_ws(' ', '{sender}', w.app, {told}))
END FROM item i JOIN judged j USING (number) LEFT JOIN written w ON w.app = i.app",
        items = literal::json(items)?,
        count = items.len(),
        told = if kind == Kind::Remove { Version::REMOVED.0.to_string() } else { "w.version".to_owned() },
    ))
}

/// One registration at a time, until the end of its transaction: that a namespace is free is told by no row to be
/// locked.
const REGISTRATIONS: &str = "SELECT WHERE pg_advisory_xact_lock('rollhook.apps'::regclass::oid::bigint) IS NULL; ";

const NEW: &str = "judged AS MATERIALIZED (
    SELECT i.number, CASE
        WHEN EXISTS (SELECT FROM rollhook.apps a WHERE a.uid = i.app)
            OR EXISTS (SELECT FROM rollhook.apps a WHERE a.namespace = i.namespace AND a.name = i.name) THEN 'taken'
        WHEN (SELECT (a.project, a.environment) <> (i.project, i.environment)
              FROM rollhook.apps a WHERE a.namespace = i.namespace LIMIT 1) THEN 'namespace'
    END AS refusal FROM item i
)";

fn judged(strength: &str) -> String {
    format!(
        "locked AS MATERIALIZED (
    SELECT a.uid, a.version FROM item i JOIN rollhook.apps a ON a.uid = i.app ORDER BY a.uid FOR {strength} OF a
), used AS MATERIALIZED (
    SELECT k.app FROM key k JOIN rollhook.keys u ON u.app = k.app AND u.header = k.header AND u.key = k.key
    WHERE NOT k.replaces
), judged AS MATERIALIZED (
    SELECT i.number, CASE
        WHEN l.uid IS NULL THEN 'absent'
        WHEN l.version IS DISTINCT FROM i.version THEN 'version'
        WHEN i.app IN (SELECT u.app FROM used u) THEN 'key'
    END AS refusal FROM item i LEFT JOIN locked l ON l.uid = i.app
)"
    )
}

const INSERT: &str = "written AS (
    INSERT INTO rollhook.apps AS a (uid, namespace, name, project, environment, version, queued_at, lease, document)
    SELECT i.app, i.namespace, i.name, i.project, i.environment, 1, i.queued_at, coalesce(i.lease, ''), i.document
    FROM item i JOIN judged j USING (number) WHERE j.refusal IS NULL
    RETURNING a.uid AS app, a.version
)";

const UPDATE: &str = "written AS (
    UPDATE rollhook.apps a
    SET version = a.version + 1, queued_at = i.queued_at, lease = coalesce(i.lease, ''), document = i.document
    FROM item i JOIN judged j USING (number) WHERE a.uid = i.app AND j.refusal IS NULL
    RETURNING a.uid AS app, a.version
)";

const DELETE: &str = "written AS (
    DELETE FROM rollhook.apps a USING item i JOIN judged j USING (number) WHERE a.uid = i.app AND j.refusal IS NULL
    RETURNING a.uid AS app, a.version + 1 AS version
), emptied AS (
    DELETE FROM rollhook.deploys d USING written w WHERE d.app = w.app
), freed AS (
    DELETE FROM rollhook.keys k USING written w WHERE k.app = w.app
)";

const KEY_USES: &str = ", noted AS (
    INSERT INTO rollhook.keys (app, header, key, request, revision, expires_at)
    SELECT k.app, k.header, k.key, decode(k.request, 'hex'), k.revision, k.expires_at FROM key k JOIN written w USING (app)
    ON CONFLICT (app, header, key) DO UPDATE
    SET request = excluded.request, revision = excluded.revision, expires_at = excluded.expires_at
)";

const ARCHIVED: &str = ", archived AS (
    INSERT INTO rollhook.deploys (app, revision, succeeded, document, evidence)
    SELECT w.app, d.revision, d.succeeded, d.document, d.evidence FROM item i JOIN written w USING (app)
    CROSS JOIN json_to_recordset(i.ended) d (revision bigint, succeeded boolean, document text, evidence text)
)";

const FORGOTTEN: &str = ", forgotten AS (
    DELETE FROM rollhook.deploys d USING item i JOIN written w USING (app)
    WHERE d.app = i.app AND d.revision = ANY (i.forgotten)
), freed AS (
    DELETE FROM rollhook.keys u USING item i JOIN written w USING (app)
    WHERE u.app = i.app AND u.revision = ANY (i.forgotten) AND NOT EXISTS (
        SELECT FROM key k WHERE k.app = u.app AND k.header = u.header AND k.key = u.key
    )
)";
