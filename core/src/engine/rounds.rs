//! The next measurements of a version, which is verified before its deploy succeeds, or watched after that.

use std::sync::Arc;

use super::{
    State,
    spec::configuration,
    verifying::{Round, RoundOf},
};
use crate::{
    app::Target,
    check::Check,
    deploy::Deploy,
    ports::{CheckRun, DeployId, MeasureSpec, TimesBefore},
    time::Timestamp,
};

/// The first measurements of a check, beside which the values of before are asked for: a provider that is away for a moment is
/// asked again, and one that knows nothing is left alone.
const BEFORE_TRIES: usize = 3;

/// A version that is measured.
pub(super) struct Version<'a> {
    pub(super) of: RoundOf,
    pub(super) deploy: &'a Deploy,
    /// When its rollout began.
    pub(super) rollout_began: Timestamp,
    /// The time since which its instances have served; before that, they had to stay ready.
    pub(super) since: Timestamp,
}

/// The next measurements.
pub(super) enum NextRound {
    /// They are due.
    Due(Box<Round>),
    /// They are due at this time.
    At(Timestamp),
    /// Nothing is due before those under way have ended.
    UnderWay,
    /// Each check was measured to its end.
    Over,
}

/// Returns the next measurements of a version. `due_at` is when a check is measured next, if it is, and `run` the run of its
/// command then.
pub(super) fn next(
    state: &State,
    version: &Version<'_>,
    due_at: impl Fn(&Check) -> Option<Timestamp>,
    run: impl Fn((usize, &Check)) -> CheckRun,
    now: Timestamp,
) -> NextRound {
    let (mut next, mut due, mut is_under_way) = (None::<Timestamp>, Vec::new(), false);
    for (place, check) in state.app_state.app.policy.checks.iter().enumerate() {
        if state.verify.has_to_wait(check) {
            is_under_way = true;
            continue;
        }
        let Some(at) = due_at(check) else { continue };
        if at <= now {
            due.push((place, check));
        } else {
            next = Some(next.map_or(at, |next| next.min(at)));
        }
    }
    if !due.is_empty() {
        // The settings are many, and measurements may wait: those of a round share them.
        let target = Arc::new(Target { requested: None, ..state.app_state.app.target.clone() });
        let spec = |(place, check)| spec(state, version, &target, (check, run((place, check))), now);
        let specs: Vec<_> = of_one_round(due).into_iter().filter_map(spec).collect();
        if !specs.is_empty() {
            return NextRound::Due(Box::new(Round { of: version.of, specs }));
        }
    }
    match next {
        Some(at) => NextRound::At(at),
        None if is_under_way => NextRound::UnderWay,
        None => NextRound::Over,
    }
}

/// Returns those of the checks that are due which are measured together: a command may take long, and is a round of its own.
fn of_one_round(due: Vec<(usize, &Check)>) -> Vec<(usize, &Check)> {
    let (commands, requests): (Vec<_>, Vec<_>) = due.into_iter().partition(|(_, check)| check.kind.is_command());
    if requests.is_empty() { commands.into_iter().take(1).collect() } else { requests }
}

fn spec(
    state: &State,
    version: &Version<'_>,
    target: &Arc<Target>,
    (check, run): (&Check, CheckRun),
    now: Timestamp,
) -> Option<MeasureSpec> {
    let (app_state, deploy) = (&state.app_state, version.deploy);
    let app = &app_state.app;
    Some(MeasureSpec {
        app: app.id.clone(),
        deploy: DeployId { app: app.uid, revision: version.of.revision },
        adopted: deploy.adopted,
        target: Arc::clone(target),
        image: deploy.pinned_image()?,
        commit: deploy.commit.clone(),
        check: check.clone(),
        secret: None,
        run,
        instances: None,
        configuration: configuration(app_state, deploy).filter(|_| check.kind.is_command()),
        since: version.since,
        rollout_began: version.rollout_began,
        window: check.window(now.since(version.since) + app.policy.settle),
        now,
        before: times_before(version, check),
    })
}

/// Returns the times before the rollout whose values are wanted beside a check's next measurement: with its first ones, until they
/// are known.
fn times_before(version: &Version<'_>, check: &Check) -> Option<TimesBefore> {
    let so_far = version.deploy.verification.as_deref().and_then(|verification| verification.of(check));
    let is_wanted = so_far.is_none_or(|result| result.before.is_empty() && result.measurements.len() < BEFORE_TRIES);
    (is_wanted && !version.of.is_watch && !check.kind.is_command())
        .then(|| TimesBefore::new(check, version.rollout_began))
}
