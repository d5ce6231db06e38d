//! The management token's hash. Who shows any token, a wrong one too, has it read: so one read serves all that wait.

use rollhook_core::{Error, Result};
use sqlx::{Row, postgres::PgRow};

use crate::{ask::Ask, error::Failure, job::Job, lane::Call, literal};

/// A call for the hash.
pub(crate) struct HashCall(pub(crate) Job<(), Option<[u8; 32]>>);

impl Call for HashCall {
    const BATCH: usize = 256;

    fn abandoned(&self) -> bool {
        self.0.abandoned()
    }

    fn statement(_: &[Self], _: &str) -> sqlx::Result<String> {
        Ok("SELECT s.value FROM rollhook.settings s WHERE s.name = 'operator-hash'".to_owned())
    }

    fn repeatable(_: &[Self]) -> bool {
        true
    }

    fn decide(calls: &mut [Self], rows: &[PgRow]) -> sqlx::Result<()> {
        let stored: Option<&str> = rows.first().map(|row| row.try_get(0)).transpose()?;
        for Self(job) in calls {
            job.decide(stored.map(hash).transpose());
        }
        Ok(())
    }

    fn finish(self, done: &Result<(), Failure>) {
        self.0.finish(done);
    }
}

fn hash(stored: &str) -> Result<[u8; 32]> {
    let broken = || Error::Corrupt { what: "the management token's hash is not 32 bytes".to_owned(), cause: None };
    literal::unhex(stored).and_then(|bytes| bytes.try_into().ok()).ok_or_else(broken)
}

/// Replaces the hash.
pub(crate) struct SetHash(pub(crate) [u8; 32]);

impl Ask for SetHash {
    type Answer = ();

    fn statement(&self, _: &str) -> sqlx::Result<String> {
        Ok(format!("SELECT rollhook.set('operator-hash', '{}')", literal::hex(&self.0)))
    }

    fn answer(&self, _: &[PgRow]) -> sqlx::Result<Result<()>> {
        Ok(Ok(()))
    }
}
