//! A small model of a store, and random calls that compare a store with it.
//!
//! ```text
//!   Vec<Op>  ──┬──►  the store, through its ports  ──►  answers, view, page ─┐
//!   (proptest) └──►  Reference, pure               ──►  answers, view, page ─┴─►  equal, times aside
//! ```
//!
//! Where a port's contract leaves something open, such as whether a claim that ran out still covers a write while nobody
//! else has taken the app, the model takes either answer and goes on from it.

mod compare;
mod ops;
mod reference;

use proptest::test_runner::{Config, TestCaseError, TestRunner};

use crate::report::Can;

pub use compare::agree;
pub use ops::{Op, sequences};

/// Runs this many random sequences of calls, each by `run` on a fresh store, and shrinks the first that fails.
///
/// # Errors
/// What the store lacks, where `run` said so.
///
/// # Panics
/// Where a sequence fails, with the shortest that was found to.
pub fn check(cases: u32, run: impl Fn(&[Op]) -> Can) -> Can {
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
