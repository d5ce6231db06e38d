//! The bounds of used id_tokens, each of which the store remembers until it expires: admins of an environment may trust an
//! issuer of their own, and have as many tokens as they like. An app has a share, so that its pipeline leaves some to others.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rollhook_core::lock::PrincipalKey;

use crate::{Rate, Refusal, access::KnownCaller, recent::Recent};

/// The id_tokens that the pipelines of one app may use in any 24 hours, half of them at once.
pub const APP_TOKENS_MAX: u32 = 2_500;
/// The same of those of one environment.
pub const ENVIRONMENT_TOKENS_MAX: u32 = 5_000;
/// The same of those of one project.
pub const PROJECT_TOKENS_MAX: u32 = 10_000;
const DAY: Duration = Duration::from_secs(24 * 3600);
/// The most apps, environments and projects whose id_tokens are counted. A use counts for all three, so that an environment is
/// forgotten after its apps.
const COUNTED: usize = 20_000;

/// The times at which the used id_tokens of apps, environments and projects are paid off.
pub(crate) struct UsedTokens(Mutex<Recent<PrincipalKey, Duration>>);

impl Default for UsedTokens {
    fn default() -> Self {
        Self(Mutex::new(Recent::new(COUNTED)))
    }
}

impl UsedTokens {
    /// Returns `Ok` if the pipelines of this app, its environment and its project may use one more at `now`.
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

/// Returns the bounds of an app's webhook, its environment and its project.
fn bounds(caller: &KnownCaller) -> [(Option<&PrincipalKey>, &'static str, u32); 3] {
    let app = (Some(&caller.party), "app", APP_TOKENS_MAX);
    let environment = (caller.environment.as_ref(), "app's environment", ENVIRONMENT_TOKENS_MAX);
    [app, environment, (caller.project.as_ref(), "app's project", PROJECT_TOKENS_MAX)]
}

/// Returns the rate that allows no more in any 24 hours: half of them at once, and the other half meanwhile.
fn rate(most: u32) -> Rate {
    Rate { every: DAY / (most / 2), burst: most / 2 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn of_app(name: &str) -> KnownCaller {
        let environment = Some(PrincipalKey::of("environment", &["shop", "test"]));
        let project = Some(PrincipalKey::of("project", &["shop"]));
        KnownCaller { party: PrincipalKey::of("webhook", &["shop-test", name]), environment, project }
    }

    /// Uses as many as the caller may at `now`; returns their number.
    fn use_all(tokens: &UsedTokens, caller: &KnownCaller, now: Duration) -> u32 {
        let one = || tokens.check(caller, now).inspect(|()| tokens.used(caller, now)).is_ok();
        u32::try_from((0..).take_while(|_| one()).count()).unwrap()
    }

    #[test]
    fn bound_of_a_day_holds_in_any_24_hours() {
        let tokens = UsedTokens::default();
        let by_hour: Vec<u32> = (0..72_u32).map(|hour| use_all(&tokens, &of_app("api"), HOUR * hour)).collect();
        let days: Vec<u32> = by_hour.windows(24).map(|day| day.iter().sum()).collect();
        assert!(days.iter().all(|day| (1_200..=APP_TOKENS_MAX).contains(day)), "{days:?}");
    }

    #[test]
    fn app_that_has_used_its_share_leaves_some_to_others_of_its_environment() {
        let tokens = UsedTokens::default();
        let of_one: u32 = (0..24_u32).map(|hour| use_all(&tokens, &of_app("api"), HOUR * hour)).sum();
        let of_other: u32 = (0..24_u32).map(|hour| use_all(&tokens, &of_app("web"), HOUR * hour)).sum();
        assert!(of_one <= APP_TOKENS_MAX && of_other >= 1_000, "{of_one}, {of_other}");
        let refused = tokens.check(&of_app("api"), Duration::ZERO);
        assert_eq!(refused, Err(Refusal::TooManyIdTokens(APP_TOKENS_MAX, "app")));
    }
}
