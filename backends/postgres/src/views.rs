//! Apps as decisions need them; those that wait share a statement.

use std::collections::{BTreeSet, HashMap};

use rollhook_core::{
    Error, Result,
    app::{App, AppUid},
    deploy::{Deploy, Revision},
    ports::View,
    time::Timestamp,
};
use sqlx::{Row, postgres::PgRow};

use crate::{
    error::Failure,
    job::Job,
    lane::Call,
    literal,
    rows::{Entry, app, entry_columns, revision, uid},
    write::revisions,
};

/// A call for a view.
pub(crate) struct ViewCall(pub(crate) Job<AppUid, View>);

/// Rows of one app.
#[derive(Default)]
struct Found<'a> {
    head: Option<&'a PgRow>,
    entries: HashMap<Revision, &'a PgRow>,
}

/// Where an entry's columns begin.
const ENTRY: usize = 12;

impl Call for ViewCall {
    const BATCH: usize = 256;

    fn abandoned(&self) -> bool {
        self.0.abandoned()
    }

    fn statement(calls: &[Self], _: &str) -> sqlx::Result<String> {
        let uids: BTreeSet<AppUid> = calls.iter().map(|call| call.0.ask).collect();
        Ok(format!(
            "SELECT v.uid, v.now, v.created_at, v.body, v.policy, v.holds, v.guard, v.last_revision, \
             v.current_revision, v.on_cluster, v.last_restore, v.unfinished, {} FROM rollhook.views({}) v",
            entry_columns("v.entry"),
            literal::json(&uids)?
        ))
    }

    fn repeatable(_: &[Self]) -> bool {
        true
    }

    fn decide(calls: &mut [Self], rows: &[PgRow]) -> sqlx::Result<()> {
        let mut apps: HashMap<AppUid, Found<'_>> = HashMap::new();
        for row in rows {
            let found = apps.entry(uid(row.try_get(0)?)?).or_default();
            match row.try_get::<Option<i64>, _>(ENTRY)?.and_then(revision) {
                None => found.head = Some(row),
                Some(revision) => drop(found.entries.insert(revision, row)),
            }
        }
        for ViewCall(job) in calls {
            let view = match apps.get(&job.ask) {
                Some(Found { head: Some(head), entries }) => assemble(head, entries)?,
                Some(Found { head: None, .. }) | None => Err(Error::NotFound("app")),
            };
            job.decide(view);
        }
        Ok(())
    }

    fn finish(self, done: &Result<(), Failure>) {
        self.0.finish(done);
    }
}

fn assemble(head: &PgRow, entries: &HashMap<Revision, &PgRow>) -> sqlx::Result<Result<View>> {
    let number = |column| Ok::<_, sqlx::Error>(revision(head.try_get(column)?));
    let (now, last) = (Timestamp::from_millis(head.try_get(1)?), number(7)?);
    let (current, on_cluster, last_restore) = (number(8)?, number(9)?, number(10)?);
    let unfinished = revisions(head, 11)?;
    let whole = |app: App| -> Result<View> {
        let unfinished = unfinished.iter().map(|revision| deploy(entries, *revision)).collect::<Result<_>>()?;
        let one = |revision: Option<Revision>| revision.map(|revision| deploy(entries, revision)).transpose();
        Ok(View { now, app, last, unfinished, current: one(current)?, on_cluster: one(on_cluster)?, last_restore })
    };
    Ok(app(head, 2)?.and_then(whole))
}

fn deploy(entries: &HashMap<Revision, &PgRow>, revision: Revision) -> Result<Deploy> {
    let unreadable = |error| Error::corrupt(format!("entry {revision} of an app's history cannot be read"), error);
    let missing = || Error::Corrupt { what: format!("entry {revision} of an app's history is missing"), cause: None };
    let row = entries.get(&revision).ok_or_else(missing)?;
    let entry = Entry::of(row, ENTRY).map_err(unreadable)?;
    let body = Entry::body(row, ENTRY).map_err(unreadable)?;
    entry.zip(body).ok_or_else(missing).and_then(|(entry, body)| entry.deploy(body))
}
