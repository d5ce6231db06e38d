//! The fence: what a deploy may do to a target, by the stamps that the target carries.
//!
//! Engines have no compare-and-swap, and names that are taken once. So stamps are appended, never replaced: each deploy
//! adds its own claim, reads all again, and goes on only if its own is the newest. Of two that append at once, the
//! later one sees the other, so that the newest wins in any order; and a container is started only after a reading that
//! is younger than the claim. All older ones are removed, so that a process that was stopped in between finds
//! nothing to start.

use jiff::Timestamp;
use rollhook_core::{
    app::AppUid,
    deploy::{Reason, Revision},
    ports::{Applied, DeployId, Purpose},
};

use super::{
    container::{Container, Seen, Stamp},
    variables::SetVariables,
};
use crate::settings::Rollout;

/// The decision about a deploy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The deploy's claim is to be added.
    Append,
    /// The target carries the deploy.
    UpToDate,
    /// The target carries a newer one.
    Newer(Revision),
    /// The target must not be changed.
    Refused { reason: Reason, message: String },
}

impl Decision {
    pub(crate) fn refused(reason: &str, message: String) -> Self {
        Self::Refused { reason: Reason::new(reason), message }
    }

    /// The answer to `apply`; `None` if there is something to append.
    pub(crate) fn answer(self) -> Option<Applied> {
        match self {
            Self::Append => None,
            Self::UpToDate => Some(Applied::Done),
            Self::Newer(revision) => Some(Applied::Newer(revision)),
            Self::Refused { reason, message } => Some(Applied::Refused { reason, message }),
        }
    }
}

/// Decides about a deploy.
pub(crate) fn decide(seen: &Seen, rollout: &Rollout) -> Decision {
    // Which deploy it is of, and so whether this one is older, is unknown.
    if let Some(doubtful) = seen.containers.iter().find(|container| container.is_doubtful) {
        return Decision::refused(Reason::UNSUPPORTED, doubtful.without_image());
    }
    let owners = owners(seen);
    let own = newest_of(seen, rollout.id.app);
    if own.is_some() && !owners.contains(&rollout.id.app) {
        let by = owners.first().map(ToString::to_string).unwrap_or_default();
        return foreign(rollout, &by);
    }
    let allowed = |uid: &AppUid| *uid == rollout.id.app || rollout.take_over == Some(*uid);
    if let Some(other) = owners.iter().find(|uid| !allowed(uid)) {
        let id = newest_of(seen, *other).map_or_else(|| other.to_string(), |revision| format!("{other}/{revision}"));
        return foreign(rollout, &id);
    }
    match own {
        Some(revision) if revision > rollout.id.revision => return Decision::Newer(revision),
        _ if seen.containers.is_empty() && (rollout.adopted || rollout.workload.template.is_none()) => {
            let name = &rollout.workload.name;
            let message = format!("there is no container {name} any more: create it again, then deploy again");
            return Decision::refused(Reason::TARGET_MISSING, message);
        }
        _ if rollout.adopted => return Decision::UpToDate,
        Some(revision) if revision == rollout.id.revision => return Decision::UpToDate,
        Some(_) | None => {}
    }
    match scaled(seen, rollout) {
        Some(message) => Decision::refused(Reason::UNSUPPORTED, message),
        None => Decision::Append,
    }
}

/// Returns why a scaled target, such as a service of Compose, cannot be deployed to: a deploy would end all of its
/// containers but one. `None` if it is not scaled.
pub(crate) fn scaled(seen: &Seen, rollout: &Rollout) -> Option<String> {
    let instances = seen.instances();
    let workload = &rollout.workload;
    (instances > 1).then(|| {
        format!("{workload} is scaled to {instances} containers, and an app is one: scale it to one, then deploy again")
    })
}

/// The container that a restore may keep, if its image is the one that is to run: the only one of the target beside those
/// of failed deploys, which serves under its own name, as no failed deploy has begun to replace it. It is not a failed
/// deploy's own, which may have the image as well.
///
/// A process that still drives a failed deploy and is about to stop this one has claimed that it may. So no such claim may
/// be there, neither now nor in a reading that is younger than the claim which keeps this one.
pub(crate) fn keepable<'a>(seen: &'a Seen, rollout: &Rollout) -> Option<&'a Container> {
    let Purpose::Restore { to } = rollout.purpose else { return None };
    if rollout.rests {
        return None;
    }
    let is_failed = |id: DeployId| id.app == rollout.id.app && id.revision > to;
    let is_left = |container: &&Container| match container.deploy() {
        Some(id) => !is_failed(id),
        None => container.is_up() || container.is_set_aside(),
    };
    let mut left = seen.containers.iter().filter(is_left);
    let (Some(only), None) = (left.next(), left.next()) else { return None };
    let is_ours = only.deploy().is_none_or(|id| id.app == rollout.id.app || rollout.take_over == Some(id.app));
    let set = SetVariables::of(only, rollout.id.app).configuration;
    let has_variables = set == rollout.configuration.as_ref().map(|configuration| configuration.id);
    (is_ours && has_variables && only.serves() && !only.is_set_aside() && !seen.may_be_ended(rollout.id))
        .then_some(only)
}

fn foreign(rollout: &Rollout, id: &str) -> Decision {
    let message = format!(
        "{} carries the stamp of another registration ({id}): if that one is gone, let this app's deploys replace it, by \
         app set --take-over; else give each a container of its own",
        rollout.workload
    );
    Decision::refused(Reason::FOREIGN_TARGET, message)
}

/// The deploy id that the target carries. `None`: it carries none, or those of two registrations that began at once.
pub(crate) fn carried(seen: &Seen) -> Option<DeployId> {
    let owners = owners(seen);
    let [app] = owners[..] else { return None };
    newest_of(seen, app).map(|revision| DeployId { app, revision })
}

/// The registrations whose stamps are there, without those that another one took over. Of two that took over each other,
/// as where one was set right by hand, it is the one whose stamp came last.
fn owners(seen: &Seen) -> Vec<AppUid> {
    let marks = marks(seen);
    let takes = |by: AppUid, from: AppUid| {
        by != from && marks.iter().any(|(stamp, _)| stamp.id.app == by && stamp.took_over == Some(from))
    };
    let last = |uid: AppUid| marks.iter().filter(|(stamp, _)| stamp.id.app == uid).filter_map(|(_, at)| *at).max();
    let mut owners: Vec<AppUid> = marks.iter().map(|(stamp, _)| stamp.id.app).collect();
    owners.sort_by_key(ToString::to_string);
    owners.dedup();
    let all = owners.clone();
    let loses = |uid: AppUid, by: AppUid| takes(by, uid) && !(takes(uid, by) && last(uid) > last(by));
    owners.retain(|uid| !all.iter().any(|by| loses(*uid, *by)));
    owners
}

/// The stamps with the times at which they were made.
fn marks(seen: &Seen) -> Vec<(Stamp, Option<Timestamp>)> {
    let claims = seen.live_claims().map(|claim| (claim.stamp.clone(), claim.created_at.parse().ok()));
    let stamped = |container: &Container| Some((container.stamp()?, container.created_at().parse().ok()));
    claims.chain(seen.containers.iter().filter_map(stamped)).collect()
}

fn newest_of(seen: &Seen, app: AppUid) -> Option<Revision> {
    seen.stamps().filter(|stamp| stamp.id.app == app).map(|stamp| stamp.id.revision).max()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rules::container::{Claim, Stamp};
    use crate::rules::samples::{OURS, THEIRS, claim, configured, container, rollout, seen, stamped, taking, with};

    #[test]
    fn first_deploy_is_appended_to_what_exists() {
        let decision = decide(&seen(vec![container("web", "running")]), &rollout(1));
        assert_eq!(decision, Decision::Append);
    }

    #[test]
    fn newest_claim_decides_whether_it_has_a_container_or_not() {
        let mut seen = seen(vec![stamped(OURS, 3, "running")]);
        assert_eq!(decide(&seen, &rollout(2)).answer(), Some(Applied::Newer(Revision::new(3).unwrap())));
        assert_eq!(decide(&seen, &rollout(3)), Decision::UpToDate);
        assert_eq!(decide(&seen, &rollout(4)), Decision::Append);
        seen.claims.push(claim(OURS, 5));
        assert_eq!(decide(&seen, &rollout(4)).answer(), Some(Applied::Newer(Revision::new(5).unwrap())));
        assert_eq!(carried(&seen).unwrap().revision.get(), 5);
    }

    #[test]
    fn stamp_of_another_registration_is_refused_by_its_name() {
        let seen = seen(vec![stamped(THEIRS, 5, "running")]);
        let Decision::Refused { reason, message } = decide(&seen, &rollout(9)) else { panic!() };
        assert_eq!(reason.as_str(), Reason::FOREIGN_TARGET);
        assert!(message.contains(&format!("{THEIRS}/5")), "{message}");
        assert_eq!(decide(&seen, &taking(1, THEIRS)), Decision::Append);
        assert!(matches!(decide(&seen, &taking(1, OURS)), Decision::Refused { .. }));
    }

    #[test]
    fn target_with_a_container_whose_image_is_gone_is_refused() {
        let found = Container::inspected(stamped(OURS, 3, "exited").object, None);
        let seen = seen(vec![container("web", "running"), found]);
        for revision in [2, 3, 4] {
            let Decision::Refused { reason, message } = decide(&seen, &rollout(revision)) else { panic!("{revision}") };
            assert_eq!(reason.as_str(), Reason::UNSUPPORTED);
            assert!(message.contains("web.3") && message.contains("web:v1"), "{message}");
        }
        assert_eq!(carried(&seen), None);
    }

    #[test]
    fn registration_that_was_taken_over_is_refused() {
        let mut taken = claim(OURS, 1);
        taken.stamp.took_over = Some(THEIRS);
        let seen = Seen { claims: vec![taken], ..seen(vec![stamped(THEIRS, 5, "running")]) };
        let mut theirs = rollout(6);
        theirs.id.app = THEIRS;
        assert!(matches!(decide(&seen, &theirs), Decision::Refused { .. }));
        assert_eq!(carried(&seen).unwrap().app, OURS);
        assert_eq!(decide(&seen, &taking(1, THEIRS)), Decision::UpToDate);
    }

    #[test]
    fn of_two_that_took_each_other_over_the_last_one_owns() {
        let mut container = with(stamped(THEIRS, 2, "running"), "/Name", json!("/web"));
        container.object["Config"]["Labels"][crate::rules::container::TOOK_OVER] = OURS.to_string().into();
        let there = seen(vec![container.clone()]);
        assert_eq!(decide(&there, &taking(7, THEIRS)), Decision::Append);
        assert!(matches!(decide(&there, &rollout(7)), Decision::Refused { .. }), "it was not set right yet");
        let mut claimed = claim(OURS, 7);
        claimed.stamp.took_over = Some(THEIRS);
        // The time zone of the machine, 8 o'clock in UTC.
        claimed.created_at = "2026-01-01T09:00:00+01:00".to_owned();
        let there = Seen { claims: vec![claimed], ..there };
        assert_eq!(decide(&there, &taking(7, THEIRS)), Decision::UpToDate);
        assert_eq!(carried(&there).unwrap().app, OURS);
        let mut theirs = taking(3, OURS);
        theirs.id.app = THEIRS;
        assert_eq!(decide(&there, &theirs).answer().map(|answer| answer == Applied::Done), Some(false));
    }

    #[test]
    fn two_that_begin_at_once_are_both_refused() {
        let seen = Seen { claims: vec![claim(OURS, 1), claim(THEIRS, 1)], ..seen(vec![container("web", "running")]) };
        assert!(matches!(decide(&seen, &rollout(1)), Decision::Refused { .. }));
        assert_eq!(carried(&seen), None);
    }

    #[test]
    fn scaled_service_is_refused() {
        let refused = |containers| {
            let decision = decide(&seen(containers), &rollout(2));
            let Decision::Refused { reason, message } = decision else { panic!("{decision:?}") };
            (reason.as_str().to_owned(), message)
        };
        let other = container("web-2", "running");
        let (reason, message) = refused(vec![container("web-1", "running"), other.clone()]);
        assert_eq!(reason, Reason::UNSUPPORTED);
        assert!(message.contains("scaled to 2 containers"), "{message}");
        // One of them may be the container of the deploy before.
        let deployed = with(stamped(OURS, 1, "running"), "/Name", json!("/web"));
        refused(vec![deployed.clone(), other]);
        let ended = container("web-2", "exited");
        assert_eq!(decide(&seen(vec![deployed, ended]), &rollout(2)), Decision::Append);
    }

    #[test]
    fn claim_of_a_container_that_a_person_has_removed_counts_no_longer() {
        let old = with(stamped(THEIRS, 1, "running"), "/Name", json!("/web"));
        let keeping = Claim { keeps: Some(old.id().to_owned()), ..claim(THEIRS, 3) };
        let there = Seen { claims: vec![keeping], ..seen(vec![old]) };
        assert!(matches!(decide(&there, &rollout(1)), Decision::Refused { .. }));
        for containers in [Vec::new(), vec![container("web", "running")]] {
            let removed = Seen { containers, ..there.clone() };
            assert_eq!((carried(&removed), removed.live_claims().count()), (None, 0));
        }
    }

    #[test]
    fn restore_keeps_the_only_container_which_serves_under_its_own_name() {
        let purpose = Purpose::Restore { to: Revision::FIRST };
        let restore = Rollout { purpose, ..rollout(3) };
        let old = with(stamped(OURS, 1, "running"), "/Name", json!("/web"));
        let waits = |containers| Seen { claims: vec![claim(OURS, 2)], ..seen(containers) };
        assert_eq!(keepable(&waits(vec![old.clone()]), &restore), Some(&old));
        let with_variables = |id| Rollout { purpose, ..configured(3, id, &[("A", "b")]) };
        let label = SetVariables::default().next(&[], &with_variables(7)).label();
        let set = with(old.clone(), "/Config/Labels/dev.rollhook.variables", label.into());
        assert_eq!(keepable(&waits(vec![set.clone()]), &with_variables(7)), Some(&set));
        for (found, restore) in [(&set, &restore), (&set, &with_variables(8)), (&old, &with_variables(7))] {
            assert_eq!(keepable(&waits(vec![found.clone()]), restore), None, "it has other variables");
        }
        assert_eq!(keepable(&waits(vec![old.clone()]), &rollout(3)), None, "a deploy that a person asked for");
        let theirs = container("web", "running");
        assert_eq!(keepable(&waits(vec![theirs.clone()]), &restore), Some(&theirs), "adopted, and never deployed");
        let foreign = with(stamped(THEIRS, 1, "running"), "/Name", json!("/web"));
        let aside = with(old.clone(), "/Name", json!(format!("/{}", old.name_aside("web"))));
        let ended = with(old.clone(), "/State/Status", json!("exited"));
        let taking_over = Rollout { purpose, ..taking(3, THEIRS) };
        let taken = Claim { stamp: Stamp { took_over: Some(THEIRS), ..claim(OURS, 2).stamp }, ..claim(OURS, 2) };
        let waits_for_theirs = Seen { claims: vec![taken], ..seen(vec![foreign.clone()]) };
        assert_eq!(keepable(&waits_for_theirs, &taking_over), Some(&foreign), "the app has taken it over");
        for other in [foreign, aside, ended] {
            assert_eq!(keepable(&waits(vec![other.clone()]), &restore), None, "{other:?}");
        }
        for beside in ["created", "running", "restarting", "exited"] {
            let mut made = waits(vec![old.clone(), stamped(OURS, 2, beside)]);
            assert_eq!(keepable(&made, &restore), Some(&old), "the failed deploy's container is {beside} beside it");
            made.claims.push(Claim { replaces: true, ..claim(OURS, 2) });
            assert_eq!(keepable(&made, &restore), None, "the failed deploy may be about to stop it");
        }
        let failed = with(stamped(OURS, 2, "running"), "/Name", json!("/web"));
        assert_eq!(keepable(&seen(vec![failed]), &restore), None, "the failed deploy's own, with the same image");
        let both = waits(vec![old, container("web-2", "running")]);
        assert_eq!(keepable(&both, &restore), None, "which one is to stay is not known");
    }

    #[test]
    fn missing_container_is_made_only_by_a_template() {
        let Decision::Refused { reason, .. } = decide(&Seen::default(), &rollout(2)) else { panic!() };
        assert_eq!(reason.as_str(), Reason::TARGET_MISSING);
        let mut created = rollout(2);
        created.workload.template = Some(Default::default());
        assert_eq!(decide(&Seen::default(), &created), Decision::Append);
        created.adopted = true;
        assert!(matches!(decide(&Seen::default(), &created), Decision::Refused { .. }));
    }
}
