//! Who drives which app.

use rollhook_core::{
    Result,
    ports::{Claim, Claimed, Replica},
    time::Timestamp,
};
use sqlx::{Row, postgres::PgRow};

use crate::{
    ask::Ask,
    literal,
    rows::{signed, uid},
};

/// A sign of life, and a wish for work.
pub(crate) struct Take(pub(crate) Claim);

impl Ask for Take {
    type Answer = Claimed;

    fn statement(&self, _: &str) -> sqlx::Result<String> {
        let Claim { replica, ttl, limit } = &self.0;
        Ok(format!(
            "SELECT c.now, c.uid FROM rollhook.claim({}::json ->> 0, {}, {}, {}) c",
            literal::json(&[&replica.name])?,
            signed(replica.incarnation),
            i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX / 2),
            i64::try_from(*limit).unwrap_or(i64::MAX),
        ))
    }

    fn answer(&self, rows: &[PgRow]) -> sqlx::Result<Result<Claimed>> {
        let mut claimed = Claimed { now: Timestamp::default(), apps: Vec::with_capacity(rows.len()) };
        for row in rows {
            match row.try_get::<Option<&str>, _>(1)? {
                Some(app) => claimed.apps.push(uid(app)?),
                None => claimed.now = Timestamp::from_millis(row.try_get(0)?),
            }
        }
        Ok(Ok(claimed))
    }
}

/// The end of all that a replica has.
pub(crate) struct GiveUp(pub(crate) Replica);

impl Ask for GiveUp {
    type Answer = Claimed;

    fn statement(&self, _: &str) -> sqlx::Result<String> {
        let name = literal::json(&[&self.0.name])?;
        Ok(format!("SELECT rollhook.give_up({name}::json ->> 0, {})", signed(self.0.incarnation)))
    }

    fn answer(&self, rows: &[PgRow]) -> sqlx::Result<Result<Claimed>> {
        let now = rows.first().ok_or(sqlx::Error::RowNotFound)?.try_get(0)?;
        Ok(Ok(Claimed { now: Timestamp::from_millis(now), apps: Vec::new() }))
    }
}
