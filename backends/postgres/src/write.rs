//! Accepts and records: a batch of them is one call of `rollhook.write`.

use rollhook_core::{
    Error, Result,
    app::{AppUid, HOLDS_MAX, Hold},
    deploy::{Deploy, Revision, Status, Trigger},
    ports::{Admission, Admitted, Record, UNFINISHED_MAX},
};
use serde::Serialize;
use sqlx::{Row, postgres::PgRow};

use crate::{
    error::{Failure, locked},
    job::Job,
    lane::Call,
    literal,
    rows::{Body, Entry, deploy, entry_columns, header_number, number, revision, signed, to_json},
};

/// A call that writes to an app's history.
pub(crate) enum Write {
    Admit(Job<Box<Admission>, Admitted>),
    Record(Job<Record, ()>),
}

/// `rollhook.call`.
#[derive(Default, Serialize)]
struct Item {
    item: usize,
    uid: String,
    admits: bool,
    #[serde(flatten)]
    accept: Option<Accept>,
    #[serde(flatten)]
    change: Option<Change>,
}

#[derive(Serialize)]
struct Accept {
    body: String,
    header: Option<i64>,
    key: Option<String>,
    request: Option<String>,
    key_millis: Option<i64>,
    guard: i64,
    after: Option<i64>,
    supersedes: bool,
    rollback: bool,
    restore: bool,
    hold: Option<Hold>,
}

#[derive(Serialize)]
struct Change {
    claim: Option<i64>,
    changes: Vec<ChangedEntry>,
    lift: Vec<i64>,
    rest: bool,
}

/// `rollhook.change`.
#[derive(Serialize)]
struct ChangedEntry {
    revision: i64,
    step: u32,
    ended: bool,
    succeeded: bool,
    touched: bool,
    body: String,
}

impl Accept {
    fn of(admission: &Admission) -> sqlx::Result<Self> {
        let key = admission.key.as_ref();
        let draft = &admission.draft;
        let rollback = draft.trigger == Trigger::Rollback;
        Ok(Self {
            body: to_json(&Body::of_draft(admission.id, draft))?,
            header: key.map(|key| header_number(key.header)),
            key: key.map(|key| key.key.clone()),
            request: key.map(|key| literal::hex(&key.request)),
            key_millis: key.map(|key| i64::try_from(key.header.kept_for().as_millis()).unwrap_or(i64::MAX)),
            guard: signed(admission.guard),
            after: admission.after.map(number),
            supersedes: admission.supersede,
            rollback,
            restore: rollback && draft.actor.is_auto(),
            hold: admission.hold.clone(),
        })
    }
}

impl Change {
    fn of(record: &Record) -> sqlx::Result<Self> {
        let changed = |deploy: &Deploy| {
            Ok(ChangedEntry {
                revision: number(Some(deploy.revision)),
                step: deploy.step,
                ended: deploy.is_terminal(),
                succeeded: deploy.status() == Status::Succeeded,
                touched: deploy.touched,
                body: to_json(&Body::of(deploy))?,
            })
        };
        Ok(Self {
            claim: record.claim.map(signed),
            changes: record.changes.iter().map(changed).collect::<sqlx::Result<_>>()?,
            lift: record.lift.iter().map(|revision| number(Some(*revision))).collect(),
            rest: record.rest,
        })
    }
}

impl Call for Write {
    const BATCH: usize = 256;

    fn abandoned(&self) -> bool {
        match self {
            Self::Admit(job) => job.abandoned(),
            Self::Record(job) => job.abandoned(),
        }
    }

    fn statement(calls: &[Self], sender: &str) -> sqlx::Result<String> {
        let item = |(item, call): (usize, &Self)| {
            Ok(match call {
                Self::Admit(job) => {
                    let accept = Some(Accept::of(&job.ask)?);
                    Item { item, uid: job.ask.app.to_string(), admits: true, accept, change: None }
                }
                Self::Record(job) => {
                    let change = Some(Change::of(&job.ask)?);
                    Item { item, uid: job.ask.app.to_string(), admits: false, accept: None, change }
                }
            })
        };
        let items: Vec<Item> = calls.iter().enumerate().map(item).collect::<sqlx::Result<_>>()?;
        Ok(format!(
            "SELECT w.item, w.outcome, w.superseded, {} FROM rollhook.write('{sender}', {UNFINISHED_MAX}, {HOLDS_MAX}, {}) w",
            entry_columns("w.entry"),
            literal::json(&items)?,
        ))
    }

    fn repeatable(_: &[Self]) -> bool {
        false
    }

    fn decide(calls: &mut [Self], rows: &[PgRow]) -> sqlx::Result<()> {
        for row in rows {
            let item: i32 = row.try_get(0)?;
            let outcome: &str = row.try_get(1)?;
            match usize::try_from(item).ok().and_then(|item| calls.get_mut(item)) {
                Some(Self::Admit(job)) => {
                    let admitted = admitted(&job.ask, outcome, row)?;
                    job.decide(admitted);
                }
                Some(Self::Record(job)) => job.decide(refusal(outcome).map_or(Ok(()), Err)),
                None => {}
            }
        }
        Ok(())
    }

    fn wakes(&self) -> Option<AppUid> {
        match self {
            Self::Admit(job) => {
                job.outcome().filter(|answer| matches!(answer, Admitted::New { .. })).map(|_| job.ask.app)
            }
            Self::Record(job) => job.outcome().map(|()| job.ask.app),
        }
    }

    fn finish(self, done: &Result<(), Failure>) {
        match self {
            Self::Admit(job) => job.finish(done),
            Self::Record(job) => job.finish(done),
        }
    }
}

fn refusal(outcome: &str) -> Option<Error> {
    Some(match outcome {
        "app" => Error::NotFound("app"),
        "claim" => Error::Conflict("claim"),
        "deploy" => Error::Conflict("deploy"),
        "busy" => locked(),
        _ => return None,
    })
}

fn admitted(admission: &Admission, outcome: &str, row: &PgRow) -> sqlx::Result<Result<Admitted>> {
    if let Some(error) = refusal(outcome) {
        return Ok(Err(error));
    }
    Ok(Ok(match outcome {
        "replay" => match deploy(row, 3)? {
            Ok(deploy) => Admitted::Replay(deploy),
            Err(error) => return Ok(Err(error)),
        },
        "reused" => Admitted::KeyReused,
        "stale" => Admitted::Stale,
        "full" => Admitted::Full,
        _ => {
            let Entry { revision, created_at, .. } = Entry::of(row, 3)?.ok_or(sqlx::Error::RowNotFound)?;
            let deploy = admission.draft.clone().entry(admission.id, revision, created_at);
            Admitted::New { deploy, superseded: revisions(row, 2)? }
        }
    }))
}

/// A column of revisions; none where it is null.
pub(crate) fn revisions(row: &PgRow, column: usize) -> sqlx::Result<Vec<Revision>> {
    let numbers: Option<Vec<i64>> = row.try_get(column)?;
    Ok(numbers.unwrap_or_default().into_iter().filter_map(revision).collect())
}
