//! The times by which deploys end, for the engine and for callers alike.

use std::time::Duration;

use crate::{
    app::Policy,
    check::{Check, CheckMode, WithoutVerdict},
    deploy::{Deploy, Paused, State, Trigger},
    ledger::{AppState, releases},
    time::Timestamp,
};

/// Returns the time at which a rollout that began at `since` fails unless it is over; `outage` does not count.
pub fn of_rollout(policy: &Policy, since: Timestamp, outage: Duration) -> Timestamp {
    since.after(policy.rollout_deadline + outage)
}

/// Returns the time at which a release command that began at `since` fails unless it is over; `outage` does not count.
pub fn of_release(policy: &Policy, since: Timestamp, outage: Duration) -> Timestamp {
    since.after(policy.release_deadline + outage)
}

/// Returns how long a deploy is verified at most, unless a check waits for its verdict. Between two measurements that fail
/// there may be one less without a verdict than would end the check, and the slowest check of a round has its time.
pub fn of_verification(policy: &Policy) -> Duration {
    let slowest = policy.checks.iter().map(Check::longest_measurement).max().unwrap_or_default();
    let longest =
        |check: &Check| check.every.max(slowest).saturating_mul(check.failures.saturating_mul(check.failures));
    policy.verify_for + policy.checks.iter().map(longest).max().unwrap_or_default() + slowest
}

/// Returns whether a check of the app may keep a deploy for as long as it has no verdict: time alone makes none, and decides
/// nothing in a person's place.
fn waits_for_verdict(policy: &Policy) -> bool {
    let waits = |check: &Check| check.without_verdict != WithoutVerdict::Accept && check.mode == CheckMode::Enforce;
    policy.checks.iter().any(waits)
}

/// Returns the time at which a build that began at `since` fails unless it is over; interruptions that are over do not
/// count.
pub fn of_build(policy: &Policy, since: Timestamp, paused: Paused) -> Timestamp {
    since.after(policy.build_deadline + paused.away.past + paused.waiting.past)
}

/// Returns the time by which a deploy of the app ends, as of its present state; `None` if it has ended, or may wait for a
/// verdict without end.
///
/// Behind another rollout, such as a restore, it begins once that one has ended, and behind builds once those have. An
/// outage that lasts now, and the time in which a build waits for a slot now, move it on.
pub fn of_deploy(app_state: &AppState, deploy: &Deploy) -> Option<Timestamp> {
    let policy = &app_state.app.policy;
    if deploy.is_terminal() {
        return None;
    }
    if deploy.trigger != Trigger::Rollback && waits_for_verdict(policy) {
        return None;
    }
    let verified = |other: &Deploy| match other.trigger {
        Trigger::Rollback => Duration::ZERO,
        Trigger::Webhook
        | Trigger::Manual
        | Trigger::Promotion
        | Trigger::Git
        | Trigger::Registry
        | Trigger::Config => of_verification(policy),
    };
    let rolled_out = |other: &Deploy| match other.state {
        State::RollingOut { since, outage } => Some(match &other.verification {
            Some(verification) => verification.since.after(of_verification(policy) + outage.past),
            None => of_rollout(policy, since, outage.past).after(verified(other)),
        }),
        State::Releasing { since, outage, .. } => {
            Some(of_rollout(policy, of_release(policy, since, outage.past), Duration::ZERO).after(verified(other)))
        }
        State::Queued
        | State::Building { .. }
        | State::Succeeded { .. }
        | State::Failed { .. }
        | State::Superseded { .. }
        | State::Cancelled { .. } => None,
    };
    if let Some(end) = rolled_out(deploy) {
        return Some(end);
    }
    let ready_at = if deploy.is_to_be_built() { built_at(app_state, deploy) } else { deploy.updated_at };
    let free_at = app_state.rolling_out().or_else(|| app_state.releasing()).and_then(|other| rolled_out(other));
    let released = match releases::command(&app_state.app, deploy) {
        Some(_) => policy.release_deadline,
        None => Duration::ZERO,
    };
    let begins = ready_at.max(free_at.unwrap_or(ready_at)).after(released);
    Some(of_rollout(policy, begins, Duration::ZERO).after(verified(deploy)))
}

/// Returns the time by which a deploy is built, and those have rolled out that are built before it.
fn built_at(app_state: &AppState, deploy: &Deploy) -> Timestamp {
    let policy = &app_state.app.policy;
    let is_ahead = |other: &&Deploy| other.is_to_be_built() && other.revision < deploy.revision;
    let ahead: Vec<&Deploy> = app_state.unfinished.iter().map(|other| &**other).filter(is_ahead).collect();
    let builds = ahead.iter().copied().chain([deploy]);
    let under_way = builds.clone().find_map(|build| build_end(policy, build));
    let waiting = builds.filter(|build| build_end(policy, build).is_none()).count();
    let waiting = policy.build_deadline.saturating_mul(u32::try_from(waiting).unwrap_or(u32::MAX));
    let rollout = if ahead.is_empty() { Duration::ZERO } else { policy.rollout_deadline };
    under_way.unwrap_or(deploy.created_at).after(waiting + rollout)
}

/// Returns the time at which a build that has begun fails unless it is over.
fn build_end(policy: &Policy, deploy: &Deploy) -> Option<Timestamp> {
    let State::Building { since, paused, .. } = &deploy.state else { return None };
    Some(of_build(policy, *since, *paused))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        app::{App, Source},
        deploy::{Actor, Outage},
        image::ImageRef,
        source::Fingerprint,
        tests::{NOW, git_app, git_state, queued, revision},
    };

    const MINUTE: Duration = Duration::from_secs(60);

    fn at(minutes: u32) -> Timestamp {
        NOW.after(MINUTE * minutes)
    }

    fn with_image(deploy: Deploy) -> Deploy {
        let image: ImageRef = "registry.example.com/api:v2".parse().unwrap();
        Deploy { image: Some(image), ..deploy }
    }

    fn rolling(deploy: Deploy, minutes: u32, past: Duration) -> Deploy {
        let outage = Outage { since: None, past };
        with_image(deploy).moved(State::RollingOut { since: at(minutes), outage })
    }

    fn deploy(number: u64) -> Deploy {
        with_image(queued(number, Trigger::Webhook, Actor::Ci, None))
    }

    fn image_app(unfinished: Vec<Deploy>) -> AppState {
        let app = App { source: Source::Image, ..git_app(1, Policy::default()) };
        AppState { unfinished: unfinished.into_iter().map(Arc::new).collect(), ..AppState::new(app) }
    }

    #[test]
    fn rollout_ends_at_its_deadline_without_the_outages() {
        let rolling = rolling(deploy(2), 1, MINUTE);
        assert_eq!(of_deploy(&image_app(vec![rolling.clone()]), &rolling), Some(at(1 + 10 + 1)));
    }

    #[test]
    fn deploy_behind_a_restore_begins_after_it() {
        let restore = rolling(queued(3, Trigger::Rollback, Actor::Service, None), 2, Duration::ZERO);
        let waiting = deploy(4);
        let state = image_app(vec![restore, waiting.clone()]);
        assert_eq!(of_deploy(&state, &waiting), Some(at(2 + 10 + 10)));
        assert_eq!(of_deploy(&image_app(vec![waiting.clone()]), &waiting), Some(at(10)));
        assert_eq!(of_deploy(&state, &waiting.moved(State::Succeeded { note: None })), None);
    }

    #[test]
    fn deploy_behind_a_build_begins_after_it() {
        let mut state = git_state(&[2, 3]);
        let of = |state: &AppState, number: u64| of_deploy(state, state.unfinished(revision(number)).unwrap());
        assert_eq!(of(&state, 2), Some(at(30 + 10)));
        assert_eq!(of(&state, 3), Some(at(30 + 30 + 10 + 10)), "what was built before rolls out before");
        let (source, paused) = (Fingerprint::default(), crate::deploy::Paused::default());
        let building = state.unfinished[0].moved(State::Building { since: at(5), source, paused });
        state.unfinished[0] = Arc::new(building);
        assert_eq!(of(&state, 2), Some(at(5 + 30 + 10)));
        assert_eq!(of(&state, 3), Some(at(5 + 30 + 30 + 10 + 10)));
    }
}
