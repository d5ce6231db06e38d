//! The bound of used id_tokens, each of which the store remembers until it expires: admins of an environment may trust an
//! issuer of their own, and have as many tokens as they like.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rollhook_core::lock::PrincipalKey;

use crate::{Rate, Refusal, access::KnownCaller, recent::Recent};

/// The id_tokens that the pipelines of one environment may use in a day, at once or one after the other.
pub const ENVIRONMENT_TOKENS_MAX: u32 = 5_000;
/// The same of those of one project.
pub const PROJECT_TOKENS_MAX: u32 = 10_000;
const DAY: Duration = Duration::from_secs(24 * 3600);
/// The most environments and projects whose id_tokens are counted.
const COUNTED: usize = 10_000;

/// The times at which the used id_tokens of environments and projects are paid off.
pub(crate) struct UsedTokens(Mutex<Recent<PrincipalKey, Duration>>);

impl Default for UsedTokens {
    fn default() -> Self {
        Self(Mutex::new(Recent::new(COUNTED)))
    }
}

impl UsedTokens {
    /// Returns `Ok` if the pipelines of this caller's environment and project may use one more at `now`.
    ///
    /// # Errors
    /// [`Refusal::TooManyIdTokens`].
    pub(crate) fn check(&self, caller: &KnownCaller, now: Duration) -> Result<(), Refusal> {
        let counted = self.lock();
        for (key, of, most) in bounds(caller) {
            let paid = key.and_then(|key| counted.get(key)).copied().unwrap_or_default();
            if !rate(most).wait(paid, now).is_zero() {
                return Err(Refusal::TooManyIdTokens(most, of));
            }
        }
        Ok(())
    }

    /// Counts one that was used at `now`.
    pub(crate) fn used(&self, caller: &KnownCaller, now: Duration) {
        let mut counted = self.lock();
        for (key, _, most) in bounds(caller) {
            if let Some(key) = key {
                counted.used(key, || now, |paid| *paid = rate(most).spend(*paid, now));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Recent<PrincipalKey, Duration>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn bounds(caller: &KnownCaller) -> [(Option<&PrincipalKey>, &'static str, u32); 2] {
    let environment = (caller.environment.as_ref(), "environment", ENVIRONMENT_TOKENS_MAX);
    [environment, (caller.project.as_ref(), "project", PROJECT_TOKENS_MAX)]
}

fn rate(most: u32) -> Rate {
    Rate { every: DAY / most, burst: most }
}
