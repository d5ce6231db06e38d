//! Deploys that leave no container running: stops, and all deploys of a stopped app.

use rollhook_core::ports::DeployId;

use super::{
    container::{Container, Seen},
    fence,
    plan::{self, Step},
};
use crate::settings::Rollout;

/// Returns the rollout with whether it leaves no container running, as the target says. A deploy that neither stops nor starts
/// the app leaves it as the newest deploy before did, whose claim says so as long as it has no container; where another
/// party has started that container, the next one is started as well.
pub(crate) fn resting(seen: &Seen, rollout: &Rollout) -> Rollout {
    let carried = fence::carried(seen);
    let rests = |id: DeployId| seen.stamps().any(|stamp| stamp.id == id && stamp.rests);
    let is_up = |of: Option<DeployId>| seen.containers.iter().any(|found| found.deploy() == of && found.is_up());
    let rests = match carried {
        _ if rollout.adopted => false,
        Some(id) if id == rollout.id => rests(id),
        _ if !rollout.scale.is_keep() => rollout.rests,
        Some(id) => rests(id) && !is_up(Some(id)),
        None => rollout.rests && !is_up(None),
    };
    Rollout { rests, ..rollout.clone() }
}

/// The steps of a deploy that leaves nothing running: all that runs ends, and its container, which is never started, takes
/// their place. The next start makes its container of that one; and since no engine starts at its own start what it never
/// started before, the restart policy can stay as it is.
pub(crate) fn next(seen: &Seen, rollout: &Rollout, own: &Container, others: &[&Container]) -> Step {
    if let Some(connect) = plan::connect(own, rollout, others) {
        return connect;
    }
    // Another party may have started its own.
    let up = seen.containers.iter().filter(|container| container.is_up());
    let running: Vec<String> = up.map(|container| container.id().to_owned()).collect();
    if !running.is_empty() {
        return Step::Stop(running);
    }
    plan::replace(seen, rollout, own, others, running, true)
}

#[cfg(test)]
mod tests {
    use rollhook_core::{
        deploy::{Revision, Scale},
        ports::Purpose,
    };
    use serde_json::json;

    use super::*;
    use crate::rules::{
        container::{Claim, RESTS},
        plan::Facts,
        samples::{OURS, claim, container, rollout, seen, stamped, with},
    };

    fn stop(revision: u64) -> Rollout {
        Rollout { scale: Scale::Stop, rests: true, ..rollout(revision) }
    }

    fn start(revision: u64) -> Rollout {
        Rollout { scale: Scale::Start, ..rollout(revision) }
    }

    fn stopping(revision: u64) -> Claim {
        let mut claim = claim(OURS, revision);
        claim.stamp.rests = true;
        claim
    }

    fn resting_of(revision: u64, status: &str) -> Container {
        let mut container = stamped(OURS, revision, status);
        container.object["Config"]["Labels"][RESTS] = "true".into();
        container
    }

    fn named(container: Container) -> Container {
        with(container, "/Name", json!("/web"))
    }

    fn rests(seen: &Seen, rollout: &Rollout) -> bool {
        resting(seen, rollout).rests
    }

    fn step(seen: &Seen, rollout: &Rollout) -> Step {
        plan::next(seen, &resting(seen, rollout), Facts { has_image: true, may_start: true, ..Facts::default() })
    }

    #[test]
    fn stop_ends_what_runs_and_starts_nothing() {
        let networks = json!({"shop": {}, "proxy": {"Aliases": ["web"]}});
        let old = with(container("web", "running"), "/NetworkSettings/Networks", networks.clone());
        let mut there = Seen { claims: vec![stopping(2)], ..seen(vec![old.clone()]) };
        assert_eq!(step(&there, &stop(2)), Step::Create(Some(Box::new(old.clone()))));
        let made = resting_of(2, "created");
        there.containers.push(made.clone());
        assert!(matches!(step(&there, &stop(2)), Step::Connect { network, .. } if network == "proxy"));
        let made = with(made, "/NetworkSettings/Networks", networks);
        there.containers[1] = made.clone();
        assert_eq!(step(&there, &stop(2)), Step::ClaimReplacement);
        there.claims.push(Claim { replaces: true, ..stopping(2) });
        assert_eq!(step(&there, &stop(2)), Step::Stop(vec![old.id().to_owned()]), "it ends before the names");
        let aside = old.name_aside("web");
        there.containers[0] = with(old.clone(), "/State/Status", json!("exited"));
        let taken = |holder| Step::TakeName { container: made.id().to_owned(), name: "web".to_owned(), holder };
        assert_eq!(step(&there, &stop(2)), taken(Some((old.id().to_owned(), aside.clone()))));
        there.containers[0] = with(there.containers[0].clone(), "/Name", json!(format!("/{aside}")));
        assert_eq!(step(&there, &stop(2)), taken(None));
        there.containers[1] = named(made.clone());
        assert_eq!(step(&there, &stop(2)), Step::Remove(vec![old.id().to_owned()]));
        there.containers.remove(0);
        assert!(matches!(step(&there, &stop(2)), Step::Release(claims) if claims.len() == 2));
        there.claims.clear();
        assert_eq!(step(&there, &stop(2)), Step::Complete);
        // Another party starts it before the stop has ended.
        there.containers[0] = named(resting_of(2, "running"));
        assert_eq!(step(&there, &stop(2)), Step::Stop(vec![made.id().to_owned()]));
    }

    #[test]
    fn start_makes_its_container_of_the_one_that_was_never_started() {
        let resting = named(resting_of(2, "created"));
        let mut there = Seen { claims: vec![claim(OURS, 3)], ..seen(vec![resting.clone()]) };
        assert_eq!(step(&there, &start(3)), Step::Create(Some(Box::new(resting.clone()))));
        let made = stamped(OURS, 3, "created");
        there.containers.push(made.clone());
        assert_eq!(step(&there, &start(3)), Step::Start(made.id().to_owned()), "the model stays until it is ready");
        there.containers[1] = stamped(OURS, 3, "running");
        let ready = Facts { ready_for: Some(std::time::Duration::ZERO), is_drained: true, ..Facts::default() };
        let holder = Some((resting.id().to_owned(), resting.name_aside("web")));
        let wanted = Step::TakeName { container: made.id().to_owned(), name: "web".to_owned(), holder };
        assert_eq!(plan::next(&there, &start(3), ready), wanted);
        // The restore of a start that failed.
        let restore = Rollout { purpose: Purpose::Restore { to: Revision::new(2).unwrap() }, ..stop(4) };
        there.claims.push(stopping(4));
        there.containers.push(resting_of(4, "created"));
        there.claims.push(Claim { replaces: true, ..stopping(4) });
        assert_eq!(step(&there, &restore), Step::Stop(vec![made.id().to_owned()]));
    }

    #[test]
    fn deploy_leaves_the_app_as_the_newest_one_did() {
        let stopped = seen(vec![named(resting_of(2, "created"))]);
        assert!(rests(&stopped, &rollout(3)));
        assert!(!rests(&stopped, &start(3)));
        let started = seen(vec![named(resting_of(2, "running"))]);
        assert!(!rests(&started, &rollout(3)), "another party started it");
        assert!(rests(&started, &rollout(2)), "that of the stop itself");
        let running = seen(vec![named(stamped(OURS, 2, "running"))]);
        assert!(!rests(&running, &rollout(3)) && rests(&running, &stop(3)));
        // A stop and a start that were superseded before they had a container.
        let both = |claim, of: &Seen| Seen { claims: vec![claim], ..of.clone() };
        assert!(rests(&both(stopping(3), &running), &rollout(4)));
        assert!(!rests(&both(claim(OURS, 3), &stopped), &rollout(4)));
        // The deploy's own claim decides, whatever becomes of the others.
        assert!(rests(&both(stopping(3), &started), &rollout(3)));
    }

    #[test]
    fn container_that_a_stopped_app_lost_is_made_anew_and_not_started() {
        let lost = Rollout { rests: true, ..rollout(3) };
        assert!(rests(&Seen::default(), &lost) && !rests(&Seen::default(), &rollout(3)));
        assert!(rests(&seen(vec![container("web", "created")]), &lost));
        assert!(!rests(&seen(vec![container("web", "running")]), &lost), "another party made it");
        assert!(!rests(&seen(vec![named(resting_of(2, "created"))]), &Rollout { adopted: true, ..rollout(3) }));
    }

    #[test]
    fn restore_that_stops_the_app_keeps_nothing() {
        let restore = Rollout { purpose: Purpose::Restore { to: Revision::FIRST }, ..stop(3) };
        let there = seen(vec![named(stamped(OURS, 1, "running"))]);
        assert_eq!(fence::keepable(&there, &restore), None);
        assert!(fence::keepable(&there, &Rollout { rests: false, ..restore }).is_some());
    }
}
