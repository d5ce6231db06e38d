//! The next step of a rollout. Each step may be taken again, and by several processes at once.
//!
//! ```text
//!   claim ─▶ image ─▶ container ─▶ networks ─▶ (old ones stop) ─▶ start ─▶ ready ─▶ names ─▶ old ones stop and go
//! ```
//!
//! A second claim goes before the first change of an old container. A deploy that leaves no container running ends the old
//! ones before the names, and starts none.

use std::time::Duration;

use serde_json::Value;

use super::{
    container::{self, Claim, Container, Process, Seen},
    fence, recreation, rest,
};
use crate::settings::{Replace, Rollout};

/// Facts that are not read from the containers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Facts {
    /// Whether the image is on this machine as the deploy wants it.
    pub(crate) has_image: bool,
    /// For how long the deploy's container has been ready without a break; `None` while it is not.
    pub(crate) ready_for: Option<Duration>,
    /// Whether the old container has had the time, since the new one has its name, to end what it serves.
    pub(crate) is_drained: bool,
    /// Whether a start that failed may be tried again.
    pub(crate) may_start: bool,
    /// Whether the deploy's container ended while this process could not see it, as with an engine that was killed: its end
    /// says nothing of its version.
    pub(crate) ended_unseen: bool,
}

impl Facts {
    /// Whether the deploy's container is ready.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready_for.is_some()
    }
}

/// A step of a rollout.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// Nothing is to be done now.
    Wait,
    /// The image is to be pulled.
    Pull,
    /// The container is to be made; `None`: by the template.
    Create(Option<Box<Container>>),
    /// The container is to join a network.
    Connect {
        network: String,
        container: String,
        endpoint: Value,
    },
    /// The claim that the deploy may end other containers is to be added.
    ClaimReplacement,
    Start(String),
    /// The containers are to be told to end.
    Stop(Vec<String>),
    /// The deploy's container is to take the name, once the one that holds it has another. Both follow each other at once:
    /// in between the name leads nowhere.
    TakeName {
        container: String,
        name: String,
        /// The container that has the name, and its next one.
        holder: Option<(String, String)>,
    },
    /// The containers are to be removed, running or not.
    Remove(Vec<String>),
    /// The claims are to be removed.
    Release(Vec<String>),
    /// The deploy's container is the only one.
    Complete,
}

/// Returns the next step.
pub(crate) fn next(seen: &Seen, rollout: &Rollout, facts: Facts) -> Step {
    let step = wanted(seen, rollout, facts);
    let is_own = |container: &&Container| container.deploy() == Some(rollout.id);
    let touched: &[String] = match &step {
        Step::Stop(containers) | Step::Remove(containers) => containers,
        Step::TakeName { holder, .. } => holder.as_ref().map_or(&[], |(holder, _)| std::slice::from_ref(holder)),
        Step::Wait
        | Step::Pull
        | Step::Create(_)
        | Step::Connect { .. }
        | Step::ClaimReplacement
        | Step::Start(_)
        | Step::Release(_)
        | Step::Complete => &[],
    };
    // A container that never started, or that a kept one runs beside, is a failed deploy's.
    let is_of_before = |container: &&Container| !is_own(container) && container.process() != Process::Created;
    let mut before = seen.containers.iter().filter(is_of_before);
    let ends_others = before.any(|container| touched.iter().any(|id| id == container.id()));
    let has_own = seen.containers.iter().any(|container| is_own(&container));
    if ends_others && has_own && !seen.replaces(rollout.id) { Step::ClaimReplacement } else { step }
}

/// The container that says how the deploy's is made; `None` if the settings do.
pub(crate) fn model<'a>(seen: &'a Seen, rollout: &Rollout) -> Option<&'a Container> {
    // What failed may have failed by how it was made, such as before another registration set that right.
    let is_made_anew = seen.is_remains() && rollout.workload.template.is_some();
    seen.model().filter(|_| !is_made_anew)
}

fn wanted(seen: &Seen, rollout: &Rollout, facts: Facts) -> Step {
    if rollout.adopted || fence::carried(seen) != Some(rollout.id) {
        return Step::Wait;
    }
    // The observation fails the deploy; going on would remove containers that another party asked for.
    if fence::scaled(seen, rollout).is_some() {
        return Step::Wait;
    }
    let Some(own) = seen.of(rollout.id) else {
        return match (facts.has_image, model(seen, rollout)) {
            (false, _) => Step::Pull,
            (true, Some(model)) => Step::Create(Some(Box::new(model.clone()))),
            (true, None) if rollout.workload.template.is_some() => Step::Create(None),
            (true, None) => Step::Wait,
        };
    };
    let others: Vec<&Container> = seen.containers.iter().filter(|other| other.id() != own.id()).collect();
    // A deploy's container that never started is nothing to go back to, and a stopped process might start it; that of a
    // stopped app says how the next one is made, and nobody starts it.
    let is_left = |other: &&&Container| other.stamp().is_some_and(|stamp| !stamp.rests);
    let leftover = others.iter().filter(|other| other.process() == Process::Created).filter(is_left);
    let leftover = ids(leftover);
    if !leftover.is_empty() {
        return Step::Remove(leftover);
    }
    if rollout.rests {
        return rest::next(seen, rollout, own, &others);
    }
    if own.process() == Process::Created {
        return begin(own, rollout, &others, is_alone(seen, rollout), facts);
    }
    let running = ids(others.iter().filter(|other| other.is_up()));
    if facts.ended_unseen {
        return begin(own, rollout, &others, is_alone(seen, rollout), facts);
    }
    if !facts.is_ready() {
        let alone = is_alone(seen, rollout);
        return if alone && !running.is_empty() { Step::Stop(running) } else { Step::Wait };
    }
    if awaits_settling(seen, rollout, facts) {
        return Step::Wait;
    }
    replace(seen, rollout, own, &others, running, facts.is_drained)
}

/// Whether the old container stops before the new one starts. A container that another party made anew since the
/// registration may have a port of the machine that the one before it had not.
pub(crate) fn is_alone(seen: &Seen, rollout: &Rollout) -> bool {
    let is_of_now = |container: &&Container| container.is_up() || container.deploy() == Some(rollout.id);
    let mut now = seen.containers.iter().filter(is_of_now);
    let writes = || seen.of(rollout.id).is_some_and(|own| own.writes_to().is_some());
    rollout.made_with.replace(&rollout.workload, writes) == Replace::StopFirst
        || now.any(|container| container.sole().is_some())
}

/// Whether the old container serves on until the new one, which is ready, has stayed so for the app's settling time: a
/// version that ends soon after it was ready takes no other's place. Where no old one serves, there is none to protect.
pub(crate) fn awaits_settling(seen: &Seen, rollout: &Rollout, facts: Facts) -> bool {
    let Some(own) = seen.of(rollout.id) else { return false };
    let serves = |other: &Container| other.id() != own.id() && other.name() == own.final_name() && other.serves();
    !is_alone(seen, rollout)
        && facts.ready_for.is_some_and(|ready| ready < rollout.settle)
        && seen.containers.iter().any(serves)
}

/// The step by which the container joins the next network of the one that it is made of.
pub(crate) fn connect(own: &Container, rollout: &Rollout, others: &[&Container]) -> Option<Step> {
    let model = container::model(others.iter().copied())?;
    let (network, endpoint) = recreation::missing_networks(model, rollout, own).into_iter().next()?;
    Some(Step::Connect { network, container: own.id().to_owned(), endpoint })
}

fn begin(own: &Container, rollout: &Rollout, others: &[&Container], alone: bool, facts: Facts) -> Step {
    if let Some(connect) = connect(own, rollout, others) {
        return connect;
    }
    let running = ids(others.iter().filter(|other| other.is_up()));
    if alone && !running.is_empty() {
        return Step::Stop(running);
    }
    if own.ports_in_turn().next().is_some() {
        let in_the_way = in_the_way(own, others);
        if !in_the_way.is_empty() {
            return Step::Stop(in_the_way);
        }
    }
    match own.start_error() {
        _ if !facts.may_start => Step::Wait,
        // The cause of the failed start may be in the container: it is made anew.
        Some(_) => Step::Remove(vec![own.id().to_owned()]),
        None => Step::Start(own.id().to_owned()),
    }
}

/// The containers that end before another one starts where the ports of this machine are for two: all but the one that
/// serves, such as that of a superseded deploy, or one whose successor has taken its name.
fn in_the_way(own: &Container, others: &[&Container]) -> Vec<String> {
    let up = || others.iter().copied().filter(|other| other.is_up());
    let named = up().find(|other| other.name() == own.final_name());
    let serving = named.or_else(|| up().find(|other| other.is_set_aside())).or_else(|| up().next());
    up().filter(|other| serving.is_none_or(|serving| serving.id() != other.id()))
        .map(|other| other.id().to_owned())
        .collect()
}

/// The steps that follow once the container is ready: its name leads to it first, and then the old one ends.
pub(crate) fn replace(
    seen: &Seen,
    rollout: &Rollout,
    own: &Container,
    others: &[&Container],
    running: Vec<String>,
    is_drained: bool,
) -> Step {
    let name = own.final_name();
    if own.name() != name {
        let holder = others.iter().find(|other| other.name() == name);
        let holder = holder.map(|holder| (holder.id().to_owned(), holder.name_aside(name)));
        return Step::TakeName { container: own.id().to_owned(), name: name.to_owned(), holder };
    }
    if !running.is_empty() {
        return if is_drained { Step::Stop(running) } else { Step::Wait };
    }
    // A service of Compose may have other containers that ended, such as those of a scale before.
    let replaced = others.iter().filter(|other| other.deploy().is_some() || other.is_set_aside());
    let ended = ids(replaced);
    if !ended.is_empty() {
        return Step::Remove(ended);
    }
    // The claim that keeps a container from before stays for as long as the container does, which has no stamp of this
    // deploy.
    let is_over = |claim: &&Claim| claim.stamp.id != rollout.id || own.deploy() == Some(rollout.id);
    let over: Vec<String> = seen.claims.iter().filter(is_over).map(|claim| claim.name.clone()).collect();
    if !over.is_empty() {
        return Step::Release(over);
    }
    Step::Complete
}

fn ids<'a>(containers: impl Iterator<Item = &'a &'a Container>) -> Vec<String> {
    containers.map(|container| container.id().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use rollhook_core::{deploy::Revision, ports::Purpose};
    use serde_json::json;

    // Most tests are about the steps themselves, of deploys that have claimed what they may.
    use super::{wanted as next, *};
    use crate::{
        rules::samples::{OURS, THEIRS, claim, container, rollout, seen, stamped, taking, with},
        settings::Template,
    };

    fn took_over(mut claim: Claim) -> Claim {
        claim.stamp.took_over = Some(THEIRS);
        claim
    }

    const READY: Facts = Facts {
        has_image: true,
        ready_for: Some(Duration::from_secs(4)),
        is_drained: true,
        may_start: true,
        ended_unseen: false,
    };
    const STARTED: Facts = Facts { ready_for: None, ..READY };

    fn stop_first(revision: u64) -> Rollout {
        let mut rollout = rollout(revision);
        rollout.workload.replace = Replace::StopFirst;
        rollout
    }

    #[test]
    fn new_container_is_made_beside_the_old_one() {
        let old = container("web", "running");
        let mut seen = Seen { claims: vec![claim(OURS, 2)], ..seen(vec![old.clone()]) };
        assert_eq!(next(&seen, &rollout(2), Facts::default()), Step::Pull);
        assert_eq!(next(&seen, &rollout(2), STARTED), Step::Create(Some(Box::new(old.clone()))));
        let made = stamped(OURS, 2, "created");
        seen.containers.push(made.clone());
        assert_eq!(next(&seen, &rollout(2), STARTED), Step::Start(made.id().to_owned()));
        seen.containers[1] = with(made.clone(), "/State/Error", json!("no such file"));
        assert_eq!(next(&seen, &rollout(2), Facts { may_start: false, ..STARTED }), Step::Wait);
        assert_eq!(next(&seen, &rollout(2), STARTED), Step::Remove(vec![made.id().to_owned()]));
        seen.containers[1] = stamped(OURS, 2, "running");
        assert_eq!(next(&seen, &rollout(2), STARTED), Step::Wait, "the old one runs until the new one is ready");
    }

    #[test]
    fn old_one_ends_once_the_name_leads_to_the_new_one() {
        let old = container("web", "running");
        let made = stamped(OURS, 2, "running");
        let mut seen = Seen { claims: vec![claim(OURS, 2)], ..seen(vec![old.clone(), made.clone()]) };
        let aside = old.name_aside("web");
        let step = |seen: &Seen| next(seen, &rollout(2), READY);
        let taken = |holder| Step::TakeName { container: made.id().to_owned(), name: "web".to_owned(), holder };
        assert_eq!(step(&seen), taken(Some((old.id().to_owned(), aside.clone()))), "nothing is read in between");
        // A process that was stopped there.
        seen.containers[0] = with(old.clone(), "/Name", json!(format!("/{aside}")));
        assert!(seen.containers[0].is_named("web"), "it still belongs to the target");
        assert_eq!(step(&seen), taken(None));
        seen.containers[1] = with(made, "/Name", json!("/web"));
        assert_eq!(next(&seen, &rollout(2), Facts { is_drained: false, ..READY }), Step::Wait);
        assert_eq!(step(&seen), Step::Stop(vec![old.id().to_owned()]));
        seen.containers[0] = with(seen.containers[0].clone(), "/State/Status", json!("exited"));
        assert_eq!(step(&seen), Step::Remove(vec![old.id().to_owned()]));
        seen.containers.remove(0);
        assert_eq!(step(&seen), Step::Release(vec![claim(OURS, 2).name]));
        seen.claims.clear();
        assert_eq!(step(&seen), Step::Complete);
        assert_eq!(next(&seen, &rollout(2), STARTED), Step::Wait);
    }

    #[test]
    fn old_one_serves_until_the_new_one_has_settled() {
        let settling = |settle| Rollout { settle: Duration::from_secs(settle), ..rollout(2) };
        let old = container("web", "running");
        let made = stamped(OURS, 2, "running");
        let both = seen(vec![old.clone(), made.clone()]);
        assert_eq!(next(&both, &settling(5), READY), Step::Wait);
        assert!(matches!(next(&both, &settling(4), READY), Step::TakeName { .. }));
        let alone = |rollout| {
            let mut rollout: Rollout = rollout;
            rollout.workload.replace = Replace::StopFirst;
            rollout
        };
        assert!(matches!(next(&both, &alone(settling(5)), READY), Step::TakeName { .. }), "the name leads nowhere");
        // Another process has given the old one's name away, or the old one has ended: the name is taken at once.
        let aside = with(old.clone(), "/Name", json!(format!("/{}", old.name_aside("web"))));
        let ended = with(old, "/State/Status", json!("exited"));
        for old in [aside, ended] {
            let there = seen(vec![old, made.clone()]);
            assert!(matches!(next(&there, &settling(5), READY), Step::TakeName { .. }), "{there:?}");
        }
    }

    #[test]
    fn old_container_is_changed_only_after_that_was_claimed() {
        use super::next;

        let (old, made) = (container("web", "running"), stamped(OURS, 2, "running"));
        let mut both = Seen { claims: vec![claim(OURS, 2)], ..seen(vec![old.clone(), made.clone()]) };
        assert_eq!(next(&both, &rollout(2), READY), Step::ClaimReplacement);
        both.claims.push(Claim { replaces: true, ..claim(OURS, 1) });
        assert_eq!(next(&both, &rollout(2), READY), Step::ClaimReplacement, "each deploy claims for itself");
        both.claims.push(Claim { replaces: true, ..claim(OURS, 2) });
        assert!(matches!(next(&both, &rollout(2), READY), Step::TakeName { .. }));
        let waiting = seen(vec![old, stamped(OURS, 2, "created")]);
        assert_eq!(next(&waiting, &stop_first(2), STARTED), Step::ClaimReplacement, "it stops first");
        let left = seen(vec![stamped(OURS, 1, "created"), made]);
        assert!(matches!(next(&left, &rollout(2), READY), Step::Remove(_)), "it never ran");
    }

    #[test]
    fn container_that_is_kept_is_not_touched_and_its_claim_stays() {
        let old = with(stamped(OURS, 1, "running"), "/Name", json!("/web"));
        let keeping = Claim { keeps: Some(old.id().to_owned()), ..claim(OURS, 3) };
        let restore = |seen: &Seen| {
            next(seen, &Rollout { purpose: Purpose::Restore { to: Revision::FIRST }, ..stop_first(3) }, READY)
        };
        let mut seen = Seen { claims: vec![claim(OURS, 2), keeping.clone()], ..seen(vec![old.clone()]) };
        assert_eq!(restore(&seen), Step::Release(vec![claim(OURS, 2).name]));
        seen.claims = vec![keeping];
        assert_eq!(restore(&seen), Step::Complete);
        assert_eq!(next(&seen, &stop_first(2), READY), Step::Wait, "the failed deploy is over");
        // It ended, or is not healthy any more: the restore makes its own.
        for state in [
            with(old.clone(), "/State/Status", json!("exited")),
            with(old.clone(), "/State/Health", json!({ "Status": "unhealthy" })),
        ] {
            let ended = Seen { containers: vec![state], ..seen.clone() };
            assert!(matches!(restore(&ended), Step::Create(Some(_))), "{ended:?}");
        }
        // The failed one's container came up beside it, and goes.
        let failed = stamped(OURS, 2, "restarting");
        seen.containers.push(failed.clone());
        assert_eq!(restore(&seen), Step::Stop(vec![failed.id().to_owned()]));
        seen.containers[1] = stamped(OURS, 2, "exited");
        assert_eq!(restore(&seen), Step::Remove(vec![failed.id().to_owned()]));
        // A process that drives the failed deploy may be about to stop the old one.
        seen.claims.push(Claim { replaces: true, ..claim(OURS, 2) });
        assert!(matches!(restore(&seen), Step::Create(Some(_))));
        seen.claims.pop();
        seen.containers.remove(1);
        // The next deploy replaces it, and releases all.
        seen.claims.push(claim(OURS, 4));
        assert_eq!(next(&seen, &stop_first(4), STARTED), Step::Create(Some(Box::new(old))));
        seen.containers = vec![with(stamped(OURS, 4, "running"), "/Name", json!("/web"))];
        assert_eq!(next(&seen, &stop_first(4), READY), Step::Release(vec![claim(OURS, 3).name, claim(OURS, 4).name]));
    }

    #[test]
    fn container_that_never_took_the_name_is_no_model_where_settings_say_how_one_is_made() {
        let failed = stamped(THEIRS, 1, "running");
        let there = Seen { claims: vec![claim(THEIRS, 1), claim(OURS, 1)], ..seen(vec![failed.clone()]) };
        let taking = |template| {
            let mut rollout = taking(1, THEIRS);
            rollout.workload.template = template;
            rollout
        };
        let there = Seen { claims: vec![there.claims[0].clone(), took_over(there.claims[1].clone())], ..there };
        assert_eq!(next(&there, &taking(Some(Template::default())), STARTED), Step::Create(None));
        assert_eq!(next(&there, &taking(None), STARTED), Step::Create(Some(Box::new(failed.clone()))));
        let served = with(failed, "/Name", json!("/web"));
        let there = Seen { containers: vec![served.clone()], ..there };
        assert_eq!(
            next(&there, &taking(Some(Template::default())), STARTED),
            Step::Create(Some(Box::new(served))),
            "it has the name"
        );
    }

    #[test]
    fn container_that_was_set_aside_is_no_model_and_gives_no_name() {
        let old = container("web", "running");
        let aside = with(old.clone(), "/Name", json!(format!("/{}", old.name_aside("web"))));
        assert_eq!(aside.final_name(), "web");
        let before = stamped(OURS, 1, "running");
        let seen = Seen { claims: vec![claim(OURS, 2)], ..seen(vec![before.clone(), aside]) };
        assert_eq!(next(&seen, &rollout(2), STARTED), Step::Create(Some(Box::new(before))));
    }

    #[test]
    fn other_containers_of_a_service_are_left_alone() {
        let made = with(stamped(OURS, 2, "running"), "/Name", json!("/web"));
        let ended = with(container("web-2", "exited"), "/Created", json!("2026-02-01T00:00:00Z"));
        let there = seen(vec![made.clone(), ended.clone()]);
        assert_eq!(next(&there, &rollout(2), READY), Step::Complete);
        assert_eq!(there.model(), Some(&made), "one that ended is no model");
        let scaled = seen(vec![made, container("web-2", "running")]);
        assert_eq!(next(&scaled, &rollout(2), READY), Step::Wait);
    }

    #[test]
    fn old_one_stops_first_where_both_cannot_run() {
        let old = container("web", "running");
        let seen = seen(vec![old.clone(), stamped(OURS, 2, "created")]);
        assert_eq!(next(&seen, &stop_first(2), STARTED), Step::Stop(vec![old.id().to_owned()]));
    }

    #[test]
    fn old_one_stops_first_where_a_port_of_the_machine_leads_to_it_by_now() {
        let bound = json!({"80/tcp": [{"HostIp": "", "HostPort": "8080"}]});
        let old = with(container("web", "running"), "/HostConfig/PortBindings", bound);
        let ended = with(old.clone(), "/State/Status", json!("exited"));
        let made = stamped(OURS, 2, "created");
        let step = |old: &Container| next(&seen(vec![old.clone(), made.clone()]), &rollout(2), STARTED);
        assert_eq!(step(&old), Step::Stop(vec![old.id().to_owned()]));
        assert_eq!(step(&ended), Step::Start(made.id().to_owned()));
    }

    #[test]
    fn container_that_ended_with_the_engine_is_started_again() {
        let ended = |name: Container| with(name, "/State/Status", json!("exited"));
        let made = ended(stamped(OURS, 2, "running"));
        let both = seen(vec![ended(container("web", "running")), made.clone()]);
        let unseen = Facts { ended_unseen: true, ..STARTED };
        for rollout in [rollout(2), stop_first(2)] {
            assert_eq!(next(&both, &rollout, unseen), Step::Start(made.id().to_owned()));
            assert_eq!(next(&both, &rollout, STARTED), Step::Wait, "its own end is for the observation to report");
        }
    }

    #[test]
    fn ports_that_versions_take_in_turn_are_for_two() {
        let bound = json!({"80/tcp": [{"HostIp": "127.0.0.1", "HostPort": "8081-8082"}]});
        let ranged = |container| with(container, "/HostConfig/PortBindings", bound.clone());
        let old = ranged(container("web", "running"));
        let made = ranged(stamped(OURS, 3, "created"));
        let step = |containers: Vec<Container>| next(&seen(containers), &rollout(3), STARTED);
        assert_eq!(step(vec![old.clone(), made.clone()]), Step::Start(made.id().to_owned()), "beside the old one");
        // A superseded deploy holds the other port.
        let superseded = ranged(stamped(OURS, 2, "running"));
        let there = vec![old.clone(), superseded.clone(), made.clone()];
        assert_eq!(step(there), Step::Stop(vec![superseded.id().to_owned()]));
        // The one that the superseded deploy replaced has not ended yet.
        let aside = with(old.clone(), "/Name", json!(format!("/{}", old.name_aside("web"))));
        let serving = with(superseded, "/Name", json!("/web"));
        assert_eq!(step(vec![aside.clone(), serving, made.clone()]), Step::Stop(vec![aside.id().to_owned()]));
        let one = json!({"80/tcp": [{"HostIp": "", "HostPort": "8081-8081"}]});
        let fixed = with(old, "/HostConfig/PortBindings", one);
        assert_eq!(step(vec![fixed.clone(), made]), Step::Stop(vec![fixed.id().to_owned()]));
    }

    #[test]
    fn superseded_container_that_never_started_is_removed_at_once() {
        let left = stamped(OURS, 2, "created");
        let seen = seen(vec![container("web", "running"), left.clone(), stamped(OURS, 3, "running")]);
        assert_eq!(next(&seen, &rollout(3), STARTED), Step::Remove(vec![left.id().to_owned()]));
        assert_eq!(next(&seen, &rollout(2), STARTED), Step::Wait, "a superseded deploy does nothing");
    }

    #[test]
    fn networks_are_joined_before_the_start() {
        let networks = json!({"shop": {}, "proxy": {"Aliases": ["web"]}});
        let old = with(container("web", "running"), "/NetworkSettings/Networks", networks);
        let made = stamped(OURS, 2, "created");
        let step = next(&seen(vec![old, made.clone()]), &rollout(2), STARTED);
        let endpoint = json!({"Aliases": ["web"]});
        assert_eq!(step, Step::Connect { network: "proxy".to_owned(), container: made.id().to_owned(), endpoint });
    }
}
