//! Apps and tokens by name: what every request begins with, so that all that wait share a statement.

use rollhook_core::{
    Result,
    app::{App, AppId, AppUid},
    time::Timestamp,
};
use serde::Serialize;
use sqlx::{Row, postgres::PgRow};

use crate::{
    error::Failure,
    job::Job,
    lane::Call,
    literal,
    rows::{app, uid},
};

/// A token as it is stored.
#[derive(Debug)]
pub(crate) struct SealedSecret {
    pub(crate) app: AppUid,
    pub(crate) sealed: Vec<u8>,
    pub(crate) created_at: Timestamp,
}

/// A call that looks up by name.
pub(crate) enum Lookup {
    App(Job<AppId, Option<App>>),
    Secret(Job<AppId, Option<SealedSecret>>),
}

#[derive(Serialize)]
struct Wanted<'a> {
    item: usize,
    namespace: &'a str,
    name: &'a str,
}

impl Lookup {
    fn id(&self) -> &AppId {
        match self {
            Self::App(job) => &job.ask,
            Self::Secret(job) => &job.ask,
        }
    }
}

impl Call for Lookup {
    const BATCH: usize = 256;

    fn abandoned(&self) -> bool {
        match self {
            Self::App(job) => job.abandoned(),
            Self::Secret(job) => job.abandoned(),
        }
    }

    fn statement(calls: &[Self], _: &str) -> sqlx::Result<String> {
        let wanted = |(item, call)| -> Wanted<'_> {
            let AppId { namespace, name } = Self::id(call);
            Wanted { item, namespace: namespace.as_str(), name: name.as_str() }
        };
        let names: Vec<Wanted<'_>> = calls.iter().enumerate().map(wanted).collect();
        Ok(format!(
            "SELECT l.item, l.uid, l.sealed, l.token_created_at, l.created_at, l.body, l.policy, l.holds, l.guard \
             FROM rollhook.look_up({}) l",
            literal::json(&names)?
        ))
    }

    fn repeatable(_: &[Self]) -> bool {
        true
    }

    fn decide(calls: &mut [Self], rows: &[PgRow]) -> sqlx::Result<()> {
        for call in &mut *calls {
            match call {
                Self::App(job) => job.decide(Ok(None)),
                Self::Secret(job) => job.decide(Ok(None)),
            }
        }
        for row in rows {
            let item: i32 = row.try_get(0)?;
            match usize::try_from(item).ok().and_then(|item| calls.get_mut(item)) {
                Some(Self::App(job)) => job.decide(app(row, 4)?.map(Some)),
                Some(Self::Secret(job)) => job.decide(Ok(secret(row)?)),
                None => {}
            }
        }
        Ok(())
    }

    fn finish(self, done: &Result<(), Failure>) {
        match self {
            Self::App(job) => job.finish(done),
            Self::Secret(job) => job.finish(done),
        }
    }
}

fn secret(row: &PgRow) -> sqlx::Result<Option<SealedSecret>> {
    let Some(sealed) = row.try_get::<Option<&str>, _>(2)? else { return Ok(None) };
    let sealed = literal::unhex(sealed).ok_or(sqlx::Error::RowNotFound)?;
    let created_at = Timestamp::from_millis(row.try_get(3)?);
    Ok(Some(SealedSecret { app: uid(row.try_get(1)?)?, sealed, created_at }))
}
