//! Whether calls for callers fail at present: then all who are not let in are told so, of whichever app.

use std::{sync::Mutex, time::Duration};

use rollhook_core::{Error, Result};

use super::budget::INTERVAL;
use crate::lock;

/// How long a failure counts: until the next call of the budget, and a while longer.
const COUNTS: Duration = Duration::from_secs(2 * INTERVAL.as_secs());

/// The last call's failure, and its time.
#[derive(Default)]
pub(crate) struct Outage(Mutex<Option<(Error, Duration)>>);

impl Outage {
    /// Notes the outcome of a call, and returns it.
    pub(crate) fn noted<T>(&self, outcome: Result<T>, now: Duration) -> Result<T> {
        // Without its custom resources the cluster calls every read invalid.
        let passes = |failure: &&Error| {
            matches!(failure, Error::Unavailable { .. } | Error::Denied { .. } | Error::Invalid { .. })
        };
        *lock(&self.0) = outcome.as_ref().err().filter(passes).map(|failure| (failure.clone(), now));
        outcome
    }

    /// Fails as the last call did, if that was just now.
    pub(crate) fn check(&self, now: Duration) -> Result<()> {
        match &*lock(&self.0) {
            Some((failure, at)) if now < *at + COUNTS => Err(failure.clone()),
            Some(_) | None => Ok(()),
        }
    }
}
