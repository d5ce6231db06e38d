//! The specification of a rollout: what an entry asks of the rollout driver.

use std::{sync::Arc, time::Duration};

use crate::{
    configuration::Configuration,
    deploy::{Deploy, Origin, Scale, State, Trigger},
    ledger::{
        AppState,
        restore::{self, Owed},
    },
    ports::{DeployId, Purpose, RolloutSpec},
};

/// Returns the specification of the deploy that is on the target of an app at rest: the current one, or one that ended
/// without success and that nothing follows. Returns `None` while a deploy is or is about to be rolled out.
pub fn at_rest(app_state: &AppState) -> Option<RolloutSpec> {
    let deploy = app_state.on_cluster().filter(|deploy| deploy.is_terminal())?;
    // While a release command runs, the version before it runs on.
    let is_waiting = app_state.releasing().is_none() && app_state.unfinished.iter().any(|deploy| deploy.is_ready());
    let is_owed = matches!(restore::owed(app_state), Owed::Restore(_));
    let spec = spec(app_state, deploy).filter(|_| !is_waiting && !is_owed)?;
    // The number of instances is anybody's to change since then.
    Some(RolloutSpec { scale: Scale::Keep, ..spec })
}

/// Returns whether a change by another party since this deploy's end is drift. After a deploy that ended without success
/// what runs may be the version before; one that ended because of such a change has shown it.
pub fn may_drift(deploy: &Deploy) -> bool {
    match &deploy.state {
        State::Succeeded { .. } => true,
        State::Failed { .. } => deploy.was_changed_by_another(),
        State::Queued
        | State::Building { .. }
        | State::Releasing { .. }
        | State::RollingOut { .. }
        | State::Superseded { .. }
        | State::Cancelled { .. } => false,
    }
}

/// Returns the specification of a deploy's rollout; `None` as long as it has no image.
pub(super) fn spec(app_state: &AppState, deploy: &Deploy) -> Option<RolloutSpec> {
    let image = deploy.wanted_image()?;
    let what = match &deploy.from {
        Some(Origin::Revision(revision)) => format!("rollback to revision {revision}"),
        Some(Origin::Same(revision)) if deploy.trigger == Trigger::Config => {
            format!("configuration of the image of revision {revision}")
        }
        Some(Origin::Same(revision)) if !deploy.scale.is_keep() => format!("{} of revision {revision}", deploy.scale),
        Some(Origin::Same(revision)) => format!("{} deploy, same as revision {revision},", deploy.trigger),
        Some(Origin::Built(revision)) => format!("{} deploy, built as revision {revision},", deploy.trigger),
        Some(Origin::Promoted { app, revision }) => format!("promotion of {app} revision {revision}"),
        None => format!("{} deploy", deploy.trigger),
    };
    let commit = deploy.commit.as_ref().map(|commit| format!(", commit {commit}")).unwrap_or_default();
    Some(RolloutSpec {
        app: app_state.app.id.clone(),
        id: DeployId { app: app_state.app.uid, revision: deploy.revision },
        target: app_state.app.target.clone(),
        image,
        adopted: deploy.adopted,
        // Whoever goes back wants to be rid of what runs now, at once.
        settle: match deploy.trigger {
            Trigger::Rollback => Duration::ZERO,
            Trigger::Webhook
            | Trigger::Manual
            | Trigger::Promotion
            | Trigger::Git
            | Trigger::Registry
            | Trigger::Config => app_state.app.policy.settle_aside(),
        },
        purpose: purpose(app_state, deploy),
        scale: deploy.scale,
        configuration: configuration(app_state, deploy),
        stopped: app_state.stopped.is_some(),
        cause: format!("rollhook revision {}: {what} by {}{commit}", deploy.revision, deploy.actor),
    })
}

/// Returns the configuration that a deploy runs with. It is new where it is not that of the current version, unless the deploy
/// goes back.
pub(super) fn configuration(app_state: &AppState, deploy: &Deploy) -> Option<Configuration> {
    let of_current = app_state.current.as_ref().and_then(|current| current.configuration);
    let is_new = deploy.trigger != Trigger::Rollback && deploy.configuration != of_current;
    let of = deploy.configuration.map(Configuration::of);
    of.map(|of| {
        of.with(|of| {
            of.is_new = is_new;
            of.before = of_current.filter(|_| is_new);
        })
    })
}

/// Returns the purpose of a deploy. A person's rollback after a restore that did not succeed is another attempt at that
/// restore, if it returns to the same version.
fn purpose(app_state: &AppState, deploy: &Deploy) -> Purpose {
    let (Trigger::Rollback, Some(Origin::Revision(origin))) = (deploy.trigger, &deploy.from) else {
        return Purpose::Deploy;
    };
    let is_same = |other: &&Arc<Deploy>| other.same_version(deploy);
    // Its instances carry the id that the current deploy ran as, where that was a rollback itself, or a redeploy.
    let running = app_state.last_good().or(app_state.current.as_ref());
    let to = running.filter(is_same).map_or(*origin, |current| current.revision);
    let is_repeated = app_state.ended_on_cluster.as_ref().filter(is_same).is_some_and(|before| before.is_restore());
    if deploy.is_restore() || is_repeated { Purpose::Restore { to } } else { Purpose::Rollback { to } }
}
