//! The observation of a deploy.

use std::time::Duration;

use jiff::Timestamp;
use rollhook_core::{
    deploy::{Reason, Revision, Scale},
    image::{Digest, ImageRef, is_refused_for_good},
    ports::{Instances, Observation, Phase, RolloutFailure, RolloutFailureKind},
};

use super::{
    container::{Container, Process, Seen},
    diagnostics, fence, lives,
    plan::{self, Facts, Step},
    variables::SetVariables,
};
use crate::settings::Rollout;

/// The remark on a deploy without which there would have been no gap.
const STOPPED_FIRST: &str = "the old container stopped before the new one started";

/// The remark on a stop.
const STOPPED: &str = "stopped: no container runs";

/// The work of this process for a deploy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// How far the image was pulled, for people.
    pub(crate) pull: Option<String>,
    /// Why the image cannot be pulled.
    pub(crate) pull_error: Option<String>,
    /// Why the container cannot be made, or cannot join a network.
    pub(crate) create_error: Option<String>,
    /// The container's answer to its readiness path, if that says that it is not ready.
    pub(crate) unready: Option<String>,
    /// The exit code of the container's last end, if it runs again since.
    pub(crate) last_exit: Option<i64>,
    /// The machine's clock.
    pub(crate) now: Timestamp,
}

/// Returns the observation of a deploy whose next step is known.
pub(crate) fn observe(
    seen: &Seen,
    rollout: &Rollout,
    step: &Step,
    facts: Facts,
    work: &Work,
    digest: Option<Digest>,
) -> Observation {
    let (own, is_ready) = (own(seen, rollout), facts.is_ready());
    let carried = fence::carried(seen);
    let complete = if rollout.adopted {
        // The stamp of a registration that is taken over stays until the first deploy.
        let is_newer = carried.is_some_and(|id| id.app == rollout.id.app);
        is_ready && !is_newer && own.is_some_and(|own| runs(own, &rollout.image))
    } else {
        *step == Step::Complete && (is_ready || rollout.rests)
    };
    let is_carried = rollout.adopted || carried == Some(rollout.id);
    let settles = plan::awaits_settling(seen, rollout, facts);
    let note = match own {
        _ if rollout.adopted => None,
        _ if rollout.rests => (rollout.scale == Scale::Stop).then_some(STOPPED),
        Some(own) if seen.keeps(rollout.id, own) => Some("the container from before was never replaced, and runs on"),
        _ if rollout.scale.is_keep() && plan::is_alone(seen, rollout) && rollout.id.revision > Revision::FIRST => {
            Some(STOPPED_FIRST)
        }
        _ => None,
    };
    let of_others = own.filter(|_| !rollout.adopted).and_then(|own| SetVariables::of(own, rollout.id.app).remark());
    let notes = note.map(str::to_owned).into_iter().chain(of_others);
    let note = notes.reduce(|one, other| format!("{one}; {other}"));
    let phase = if complete { Phase::Complete { digest, note } } else { Phase::Progressing };
    let progress = progress(seen, own, facts.ready_for.filter(|_| settles), work);
    let message = match own {
        _ if settles => settling(rollout),
        Some(_) if rollout.rests => resting(complete).to_owned(),
        _ => message(own, step, is_ready, complete, work),
    };
    Observation::new(carried, phase, progress, message).with(|observation| {
        if is_carried {
            observation.instances =
                Some(Instances { ready: u32::from(is_ready && own.is_some()), wanted: u32::from(!rollout.rests) });
        }
        if is_carried && !rollout.rests {
            observation.restarts = own.map_or(0, Container::restarts);
            observation.past_lives = own.and_then(|own| lives::past(own, work.now)).into_iter().collect();
            observation.down_for = own.filter(|_| !is_ready).and_then(|own| down_for(seen, rollout, own, work.now));
        }
        if !complete {
            observation.failure = failure(seen, rollout, step, facts, work);
        }
    })
}

/// For how long no container has served because the old one had to stop first; `None` if it goes on, or nothing had to.
fn down_for(seen: &Seen, rollout: &Rollout, own: &Container, now: Timestamp) -> Option<Duration> {
    let mut others = seen.containers.iter().filter(|other| other.id() != own.id());
    // Before a start, none had to.
    if rollout.scale == Scale::Start || !plan::is_alone(seen, rollout) || others.any(Container::is_up) {
        return None;
    }
    // One that ended long before was not stopped for this deploy, whose container is made once its image is there.
    let stopped = seen.containers.iter().filter(|other| other.id() != own.id()).filter_map(Container::ended_at);
    Some(lives::span(stopped.chain(own.made_at()).max()?, now))
}

/// The container whose readiness matters for a deploy.
pub(crate) fn own<'a>(seen: &'a Seen, rollout: &Rollout) -> Option<&'a Container> {
    if rollout.adopted { seen.model() } else { seen.of(rollout.id) }
}

fn runs(container: &Container, image: &ImageRef) -> bool {
    container.image().is_some_and(|found| found.same_bits(None, image, None))
}

fn failure(seen: &Seen, rollout: &Rollout, step: &Step, facts: Facts, work: &Work) -> Option<RolloutFailure> {
    let told = |kind, reason: &str, message: String| {
        Some(RolloutFailure { kind, reason: Reason::new(reason), container: None, message })
    };
    let (name, carried) = (&rollout.workload, fence::carried(seen));
    if carried.is_some_and(|id| id.app == rollout.id.app && id.revision > rollout.id.revision) {
        return None;
    }
    let may_be_made = rollout.workload.template.is_some() && carried == Some(rollout.id);
    if seen.containers.is_empty() && !may_be_made {
        let message = format!("{name} is gone: create it again, then deploy again");
        return told(RolloutFailureKind::Final, Reason::TARGET_MISSING, message);
    }
    if !rollout.adopted && carried != Some(rollout.id) {
        return match carried {
            Some(id) if id.app != rollout.id.app => {
                let message = format!("{name} carries the stamp of another registration ({id})");
                told(RolloutFailureKind::Final, Reason::FOREIGN_TARGET, message)
            }
            _ => {
                let message = format!("another party replaced {name}: deploy again to bring the version back");
                told(RolloutFailureKind::Final, Reason::REVERTED, message)
            }
        };
    }
    if let Some(why) = fence::scaled(seen, rollout) {
        let message = format!("changed while it rolled out: {why}");
        return told(RolloutFailureKind::Final, Reason::UNSUPPORTED, message);
    }
    if let Some(own) = own(seen, rollout) {
        let refused = work.create_error.as_ref().filter(|_| matches!(step, Step::Connect { .. }));
        let connected = refused.map(|error| format!("Docker does not connect the container {}: {error}", own.name()));
        return match connected {
            Some(message) => told(RolloutFailureKind::Config, "container-not-connected", message),
            None if facts.ended_unseen || rollout.rests => None,
            None => diagnostics::failure(own, facts.is_ready(), work.last_exit),
        };
    }
    if let Some(error) = &work.pull_error {
        let message = format!("the image {} cannot be pulled: {error}", rollout.image);
        let is_final = is_refused_for_good(error);
        let kind = if is_final { RolloutFailureKind::Final } else { RolloutFailureKind::Image };
        return told(kind, "image-pull-failed", message);
    }
    let error = work.create_error.as_ref()?;
    told(RolloutFailureKind::Config, "container-not-created", format!("Docker refuses the container: {error}"))
}

/// A text that differs whenever the rollout has moved. A container that settles moves it: a newer deploy waits for that.
fn progress(seen: &Seen, own: Option<&Container>, settles_for: Option<Duration>, work: &Work) -> String {
    let state = own.map(|own| format!("{:?} {:?}", own.process() == Process::Running, own.health()));
    let others = seen.containers.iter().filter(|other| other.is_up()).count();
    let settles_for = settles_for.map(|settles| settles.as_secs());
    format!("{} {others} {state:?} {settles_for:?} {:?}", seen.containers.len(), work.pull)
}

fn resting(complete: bool) -> &'static str {
    if complete { "no container runs" } else { "the containers that run are stopping" }
}

fn settling(rollout: &Rollout) -> String {
    let settle = rollout.settle.as_secs_f64();
    format!("the new container is ready; it takes the old one's place once it has stayed so for {settle} s")
}

fn message(own: Option<&Container>, step: &Step, is_ready: bool, complete: bool, work: &Work) -> String {
    let Some(own) = own else {
        return match &work.pull {
            Some(pull) => format!("pulling the image: {pull}"),
            None => "the new container is not there yet".to_owned(),
        };
    };
    let text = match (own.process(), step) {
        (Process::Running, _) if complete => "the container is ready",
        (Process::Running, _) if is_ready => "the new container is ready; the old one is stopping",
        (Process::Running, _) if own.health().is_some_and(|health| health != "healthy") => {
            "the new container runs; its health check has not passed yet"
        }
        (Process::Running, _) => match &work.unready {
            Some(answer) => return format!("the new container runs; it is not ready yet: {answer}"),
            None => "the new container runs; it is not ready yet",
        },
        (Process::Created, Step::Stop(_)) => "the old container is stopping",
        (Process::Created, _) => "the new container is starting",
        (Process::Restarting | Process::Ended, _) => return diagnostics::state(own),
    };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rules::samples::{OURS, THEIRS, claim, container, rollout, seen, stamped, taking, with};

    fn look(seen: &Seen, step: &Step, is_ready: bool) -> Observation {
        observe(seen, &rollout(2), step, ready(is_ready), &Work::default(), None)
    }

    fn ready(is_ready: bool) -> Facts {
        Facts { ready_for: is_ready.then_some(Duration::from_secs(1)), ..Facts::default() }
    }

    #[test]
    fn container_that_settles_beside_the_old_one_makes_progress() {
        let both = seen(vec![container("web", "running"), stamped(OURS, 2, "running")]);
        let settling = Rollout { settle: Duration::from_secs(10), ..rollout(2) };
        let look = |seconds| {
            let facts = Facts { ready_for: Some(Duration::from_secs(seconds)), ..Facts::default() };
            observe(&both, &settling, &Step::Wait, facts, &Work::default(), None)
        };
        let (first, second) = (look(1), look(2));
        assert_ne!(first.progress, second.progress);
        assert_eq!((&second.phase, &second.failure), (&Phase::Progressing, &None));
        assert!(second.message.contains("stayed so for 10 s"), "{}", second.message);
    }

    #[test]
    fn stop_is_complete_once_nothing_runs() {
        let stop = Rollout { scale: Scale::Stop, rests: true, ..rollout(2) };
        let look = |seen: &Seen, step: &Step| observe(seen, &stop, step, ready(false), &Work::default(), None);
        let mut both = seen(vec![container("web", "running"), stamped(OURS, 2, "created")]);
        let stopping = look(&both, &Step::Stop(Vec::new()));
        assert_eq!((&stopping.phase, &stopping.failure, stopping.down_for), (&Phase::Progressing, &None, None));
        assert!(stopping.message.contains("stopping"), "{}", stopping.message);
        both.containers.remove(0);
        let stopped = look(&both, &Step::Complete);
        assert_eq!(stopped.phase, Phase::Complete { digest: None, note: Some(STOPPED.to_owned()) });
        assert_eq!(stopped.instances, Some(Instances { ready: 0, wanted: 0 }));
        // A deploy of a stopped app: the history says so for itself.
        let deploy = Rollout { scale: Scale::Keep, ..stop.clone() };
        let stopped = observe(&both, &deploy, &Step::Complete, ready(false), &Work::default(), None);
        assert_eq!(stopped.phase, Phase::Complete { digest: None, note: None });
    }

    #[test]
    fn complete_is_the_end_of_all_steps() {
        let there = seen(vec![stamped(OURS, 2, "running")]);
        assert!(matches!(look(&there, &Step::Complete, true).phase, Phase::Complete { .. }));
        assert_eq!(look(&there, &Step::Complete, false).phase, Phase::Progressing);
        let both = seen(vec![container("web", "running"), stamped(OURS, 2, "running")]);
        assert_eq!(look(&both, &Step::Stop(Vec::new()), true).phase, Phase::Progressing);
    }

    #[test]
    fn adopted_version_is_complete_over_the_stamp_that_is_taken_over() {
        let adopted = |revision| {
            let image = "registry.example.com/web:v5".parse().unwrap();
            Rollout { adopted: true, image, ..taking(revision, THEIRS) }
        };
        let look = |seen: &Seen| observe(seen, &adopted(1), &Step::Wait, ready(true), &Work::default(), None).phase;
        assert!(matches!(look(&seen(vec![stamped(THEIRS, 5, "running")])), Phase::Complete { .. }));
        let deployed = Seen { claims: vec![claim(OURS, 2)], ..seen(vec![stamped(OURS, 5, "running")]) };
        assert_eq!(look(&deployed), Phase::Progressing, "a newer deploy of the app has begun");
    }

    #[test]
    fn machine_is_down_for_a_deploy_from_the_old_ones_end_on() {
        let stop_first = || {
            let mut rollout = rollout(2);
            rollout.workload.replace = crate::settings::Replace::StopFirst;
            rollout
        };
        let ended = |at: &str| with(container("web", "exited"), "/State/FinishedAt", json!(at));
        // It was made at 00:02:00.
        let made = stamped(OURS, 2, "running");
        let work = Work { now: "2026-01-01T00:03:00Z".parse().unwrap(), ..Work::default() };
        let down_for = |rollout: &Rollout, old: Container, is_ready| {
            let there = seen(vec![old, made.clone()]);
            observe(&there, rollout, &Step::Wait, ready(is_ready), &work, None).down_for.map(|down| down.as_secs())
        };
        assert_eq!(down_for(&stop_first(), ended("2026-01-01T00:02:10Z"), false), Some(50));
        assert_eq!(down_for(&stop_first(), ended("2026-01-01T00:00:10Z"), false), Some(60), "it had ended before");
        assert_eq!(down_for(&stop_first(), ended("2026-01-01T00:02:10Z"), true), None);
        assert_eq!(down_for(&stop_first(), container("web", "running"), false), None, "it has not stopped yet");
        assert_eq!(down_for(&rollout(2), ended("2026-01-01T00:02:10Z"), false), None);
    }

    #[test]
    fn end_that_nobody_saw_is_no_failure() {
        let there = seen(vec![with(stamped(OURS, 2, "running"), "/State/Status", json!("exited"))]);
        let look = |ended_unseen| {
            let facts = Facts { ended_unseen, ..ready(false) };
            observe(&there, &rollout(2), &Step::Wait, facts, &Work::default(), None).failure.map(|failure| failure.kind)
        };
        assert_eq!((look(true), look(false)), (None, Some(RolloutFailureKind::Crash)));
    }

    #[test]
    fn scaling_in_a_deploy_ends_it() {
        let scaled =
            seen(vec![with(stamped(OURS, 2, "running"), "/Name", json!("/web")), container("web-2", "running")]);
        let failure = look(&scaled, &Step::Wait, true).failure.unwrap();
        assert_eq!((failure.kind, failure.reason.as_str()), (RolloutFailureKind::Final, Reason::UNSUPPORTED));
    }

    #[test]
    fn image_that_cannot_be_pulled_is_told_with_the_engines_words() {
        let waiting = Seen { claims: vec![claim(OURS, 2)], ..seen(vec![container("web", "running")]) };
        let pulled = |error: &str| {
            let work = Work { pull_error: Some(error.to_owned()), ..Work::default() };
            observe(&waiting, &rollout(2), &Step::Pull, ready(false), &work, None).failure.unwrap()
        };
        assert_eq!(pulled("connection refused").kind, RolloutFailureKind::Image, "it may pass");
        let failure = pulled("manifest unknown");
        assert_eq!(failure.kind, RolloutFailureKind::Final);
        assert!(failure.message.contains("web:v2") && failure.message.contains("manifest unknown"), "{failure:?}");
    }

    #[test]
    fn network_that_cannot_be_joined_is_told_with_the_engines_words() {
        let made = seen(vec![container("web", "running"), stamped(OURS, 2, "created")]);
        let work = Work { create_error: Some("network proxy not found".to_owned()), ..Work::default() };
        let look = |step: &Step| observe(&made, &rollout(2), step, ready(false), &work, None).failure;
        let (network, container) = ("proxy".to_owned(), made.containers[1].id().to_owned());
        let failure = look(&Step::Connect { network, container, endpoint: json!({}) }).unwrap();
        assert_eq!(failure.kind, RolloutFailureKind::Config);
        assert!(failure.message.contains("network proxy not found"), "{failure:?}");
        assert_eq!(look(&Step::Stop(Vec::new())), None, "another process has connected it");
    }

    #[test]
    fn container_that_another_party_put_there_ends_the_deploy() {
        let replaced = seen(vec![container("web", "running")]);
        let failure = look(&replaced, &Step::Wait, false).failure.unwrap();
        assert_eq!((failure.kind, failure.reason.as_str()), (RolloutFailureKind::Final, Reason::REVERTED));
        let failure = look(&Seen::default(), &Step::Wait, false).failure.unwrap();
        assert_eq!(failure.reason.as_str(), Reason::TARGET_MISSING);
        let newer = seen(vec![stamped(OURS, 3, "running")]);
        assert_eq!(look(&newer, &Step::Wait, false).failure, None, "a newer deploy is no failure of this one");
    }

    #[test]
    fn adopted_deploy_is_complete_while_its_image_runs() {
        let adopted = Rollout { adopted: true, image: "registry.example.com/web:v1".parse().unwrap(), ..rollout(1) };
        let look =
            |seen: &Seen, is_ready| observe(seen, &adopted, &Step::Wait, ready(is_ready), &Work::default(), None);
        let there = seen(vec![container("web", "running")]);
        assert!(matches!(look(&there, true).phase, Phase::Complete { .. }));
        assert_eq!(look(&there, false).phase, Phase::Progressing);
        assert_eq!(look(&seen(vec![stamped(OURS, 2, "running")]), true).phase, Phase::Progressing);
    }
}
