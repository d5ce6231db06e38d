//! A small model of apps and their history, and random sequences of changes that compare the ledger on a store with it.
//!
//! ```text
//!   Vec<Op>  ──┬──►  load → ledger → commit, by two clients  ──►  answers, state, archive ─┐
//!   (proptest) └──►  Reference: a list of all deploys        ──►  answers, state, archive ─┴─►  equal
//! ```
//!
//! The model keeps every deploy in one list and computes all else from it, so that it is independent of what the ledger
//! carries along in a state. Changes that race are given to the model in the order of the versions that they made.

mod compare;
mod ops;
mod reference;
mod run;
mod steps;

use proptest::test_runner::{Config, TestCaseError, TestRunner};

use crate::report::Can;

pub use ops::{Op, sequences};
pub use run::agree;

/// Runs this many random sequences of changes, each by `run` on a fresh store, and shrinks the first that fails. If the
/// environment variable `ROLLHOOK_LONG` is set, it runs ten times as many.
///
/// # Errors
/// What the store lacks, where `run` said so.
///
/// # Panics
/// Where a sequence fails, with the shortest that was found to.
pub fn check(cases: u32, run: impl Fn(&[Op]) -> Can) -> Can {
    let cases = if std::env::var_os("ROLLHOOK_LONG").is_some() { cases * 10 } else { cases };
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let lack = std::cell::Cell::new(None);
    let outcome = TestRunner::new(config).run(&sequences(), |ops| {
        run(&ops).map_err(|why| {
            lack.set(Some(why));
            TestCaseError::reject("the store lacks something")
        })
    });
    match (lack.get(), outcome) {
        (Some(why), _) => Err(why),
        (None, Ok(())) => Ok(()),
        (None, Err(failure)) => panic!("{failure}"),
    }
}
