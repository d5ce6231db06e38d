//! The progress of builds, release commands and rollouts, for callers. What was observed is known to the process that drives the app; a restart may
//! lose it, and nothing of it is stored.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use sha2::{Digest, Sha256};

use crate::{
    app::{AppUid, Policy},
    check::CheckName,
    deploy::{Deploy, Outage, Paused, Revision, State, Verification},
    engine::deadline,
    ledger::{AppState, ReleaseTurn, release_turns::ReleaseAhead},
    ports::{Instances, Observation, Phase, WorkloadState},
    service::{Authorized, Deployer},
    text::hex,
    time::Timestamp,
};

/// The greatest age of the state by which a deadline is told.
const RECENT: Duration = Duration::from_secs(2);

/// The progress of a deploy's step: its build, its release command, or its rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The begin of the step.
    pub since: Timestamp,
    /// The deploy's instances; `None` unless it rolls out, if another process drives the app, or its rollout driver does not count them.
    pub instances: Option<Instances>,
    /// The condition that the step waits for, as a clause; `None` if none is known, as where another process drives the app.
    pub message: Option<String>,
    /// The time at which the step fails unless it is over; `None` while the platform cannot be reached or the build waits
    /// for a slot, for which time it moves on.
    pub deadline: Option<Timestamp>,
    /// The state of each of several workloads; empty where the app has one, and as `message` is `None`.
    pub workloads: Vec<WorkloadState>,
}

impl Progress {
    /// Returns whether this process has observed anything of the step.
    pub(crate) fn is_observed(&self) -> bool {
        self.instances.is_some() || self.message.is_some()
    }

    /// Returns a short text that stands for what was observed: a caller that names it learns of what was observed between two
    /// calls.
    pub fn mark(&self) -> String {
        let mut observed = format!("{:?} {:?}", self.instances, self.message);
        for workload in &self.workloads {
            observed.push_str(&format!("\n{} {}", workload.name, workload.message));
        }
        hex(&Sha256::digest(observed)[..4])
    }
}

/// The last observation of a rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Observed {
    revision: Revision,
    instances: Option<Instances>,
    message: String,
    is_complete: bool,
    settles_for: Duration,
    workloads: Vec<WorkloadState>,
}

/// The last observations of the rollouts that this process drives.
#[derive(Default)]
pub(crate) struct Observations(Mutex<BTreeMap<AppUid, Observed>>);

impl Observations {
    /// Stores an observation of a deploy that has to stay complete for this long, and returns whether it tells callers
    /// anything new.
    pub(crate) fn note(&self, app: AppUid, revision: Revision, seen: &Observation, settles_for: Duration) -> bool {
        let message = match &seen.failure {
            Some(failure) if failure.message.contains(&seen.message) => failure.message.clone(),
            // The failure of one of several workloads says how the others are, as the message does.
            Some(failure) if !seen.workloads.is_empty() => failure.message.clone(),
            Some(failure) => format!("{}; {}", seen.message, failure.message),
            None => seen.message.clone(),
        };
        let has_new = matches!(seen.phase, Phase::Complete { .. });
        let message = match seen.leaving.as_ref().filter(|_| has_new) {
            Some(leaving) => format!("{message}; {leaving}"),
            None => message,
        };
        let is_complete = has_new && seen.leaving.is_none();
        let (instances, workloads) = (seen.instances, seen.workloads.clone());
        let observed = Observed { revision, instances, message, is_complete, settles_for, workloads };
        self.with(|rollouts| rollouts.insert(app, observed.clone()) != Some(observed))
    }

    /// Removes the app's last observation.
    pub(crate) fn forget(&self, app: AppUid) {
        self.with(|rollouts| rollouts.remove(&app));
    }

    fn of(&self, app: AppUid, revision: Revision) -> Option<Observed> {
        self.with(|rollouts| rollouts.get(&app).filter(|observed| observed.revision == revision).cloned())
    }

    fn with<T>(&self, change: impl FnOnce(&mut BTreeMap<AppUid, Observed>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Deployer {
    /// Returns the progress of an entry's step, by the app's state of the same time; `None` while it waits for its turn, and
    /// once it has ended.
    pub fn progress(&self, state: &AppState, entry: &Deploy) -> Option<Progress> {
        let (policy, platform) = (&state.app.policy, self.targets().platform);
        match &entry.state {
            State::Building { since, paused, .. } if entry.image.is_none() => Some(building(policy, *since, *paused)),
            State::Releasing { since, outage, .. } => {
                let turn = state.awaited_turn(entry.revision);
                Some(turn.map_or_else(|| releasing(policy, *since, (*outage, platform)), |turn| waiting(turn, *since)))
            }
            State::RollingOut { since, outage } => {
                if let Some(verification) = entry.verification.as_deref().filter(|_| outage.since.is_none()) {
                    let waits = |check: &CheckName| self.waiting_commands.has(state.app.uid, check);
                    return Some(verifying(verification, waits));
                }
                let observed = self.observations.of(state.app.uid, entry.revision);
                Some(progress(observed, policy, *since, (*outage, platform)))
            }
            State::Building { .. }
            | State::Queued
            | State::Succeeded { .. }
            | State::Failed { .. }
            | State::Superseded { .. }
            | State::Cancelled { .. } => None,
        }
    }

    /// Returns the progress of an entry's step as [`Deployer::progress`] does, and `None` while the store is away.
    pub async fn progress_of(&self, access: &Authorized, entry: &Deploy) -> Option<Progress> {
        if entry.is_terminal() {
            return None;
        }
        let recent = self.journal.recent(access.uid, RECENT).await.ok().flatten()?;
        self.progress(&recent.state, entry)
    }

    /// Returns the progress of the app's rollout; `None` if nothing rolls out.
    pub(crate) fn present_progress(&self, state: &AppState) -> Option<Progress> {
        self.progress(state, state.rolling_out()?)
    }
}

fn building(policy: &Policy, since: Timestamp, paused: Paused) -> Progress {
    let message = match (paused.away.since, paused.waiting.since) {
        (Some(_), _) => Some("the builder cannot be reached: the time until it answers does not count"),
        (None, Some(_)) => Some("the build waits for a build slot: that time does not count"),
        (None, None) => None,
    };
    let deadline = message.is_none().then(|| deadline::of_build(policy, since, paused));
    Progress { since, instances: None, message: message.map(str::to_owned), deadline, workloads: Vec::new() }
}

fn releasing(policy: &Policy, since: Timestamp, (outage, platform): (Outage, &str)) -> Progress {
    let message = outage.since.map(|_| unreachable(platform));
    let deadline = message.is_none().then(|| deadline::of_release(policy, since, outage.past));
    Progress { since, instances: None, message, deadline, workloads: Vec::new() }
}

/// Returns the progress of a verification, which has no deadline: the time of silence makes no verdict. `waits`: whether the
/// command of a check waits for a slot.
fn verifying(verification: &Verification, waits: impl Fn(&CheckName) -> bool) -> Progress {
    let open = verification.checks.iter().filter(|result| result.verdict.is_none()).map(|result| {
        let last = result.last();
        let last = last.map(|last| format!("{}: {}", last.verdict, last.message.trim_end_matches('.')));
        let waits = waits(&result.name).then(|| "waits for a slot".to_owned());
        match last.into_iter().chain(waits).reduce(|one, other| format!("{one}; {other}")) {
            Some(known) => format!("{} ({known})", result.name),
            None => result.name.to_string(),
        }
    });
    let open = open.collect::<Vec<_>>().join(", ");
    let asks = verification.awaited_since.filter(|_| verification.decision.is_none()).and_then(|_| verification.gap());
    let message = match (asks, &verification.decision) {
        (Some(gap), _) => Some(format!("waits for a person's decision, as checks came to no verdict: {gap}")),
        (None, Some(decision)) => Some(decision.to_string()),
        (None, None) if open.is_empty() => None,
        (None, None) => Some(format!("waits for the verdicts of the checks {open}")),
    };
    Progress { since: verification.since, instances: None, message, deadline: None, workloads: Vec::new() }
}

/// Returns the progress of a release command that waits for its turn in its group.
fn waiting(turn: &ReleaseTurn, since: Timestamp) -> Progress {
    let message = turn.waits_for.as_ref().map(|ReleaseAhead { app, revision }| {
        format!("waits for the release command of {app}, revision {revision}: that time does not count")
    });
    Progress { since, instances: None, message, deadline: None, workloads: Vec::new() }
}

/// Returns what a step waits for during an outage.
fn unreachable(platform: &str) -> String {
    format!("the {platform} cannot be reached, or refuses: the time until it answers does not count")
}

fn progress(
    observed: Option<Observed>,
    policy: &Policy,
    since: Timestamp,
    (outage, platform): (Outage, &str),
) -> Progress {
    if outage.since.is_some() {
        let message = Some(unreachable(platform));
        return Progress { since, instances: None, message, deadline: None, workloads: Vec::new() };
    }
    let instances = observed.as_ref().and_then(|observed| observed.instances);
    let workloads = observed.as_ref().map(|observed| observed.workloads.clone()).unwrap_or_default();
    let message = observed.map(|observed| match observed.is_complete && !observed.settles_for.is_zero() {
        true => format!("{}, and must stay so for {} s", observed.message, observed.settles_for.as_secs_f64()),
        false => observed.message,
    });
    let deadline = Some(deadline::of_rollout(policy, since, outage.past));
    Progress { since, instances, message, deadline, workloads }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        deploy::Reason,
        ports::{RolloutFailure, RolloutFailureKind},
    };

    const APP: AppUid = AppUid::from_bits(7);
    const SETTLE: Duration = Duration::from_secs(10);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn seen(ready: u32, phase: Phase) -> Observation {
        Observation {
            deploy: None,
            phase,
            progress: String::new(),
            message: format!("{ready} of 2 new pods are ready"),
            instances: Some(Instances { ready, wanted: 2 }),
            restarts: 0,
            past_lives: Vec::new(),
            down_for: None,
            leaving: None,
            workloads: Vec::new(),
            failure: None,
        }
    }

    fn shown(observations: &Observations, outage: Outage) -> Progress {
        progress(observations.of(APP, Revision::FIRST), &Policy::default(), at(0), (outage, "machine"))
    }

    #[test]
    fn a_process_that_does_not_drive_the_rollout_knows_its_deadline_alone() {
        let known = shown(&Observations::default(), Outage::default());
        let (instances, message, workloads) = Default::default();
        assert_eq!(known, Progress { since: at(0), instances, message, deadline: Some(at(600)), workloads });
    }

    #[test]
    fn an_observation_is_new_once_and_of_its_revision_alone() {
        let observations = Observations::default();
        assert!(observations.note(APP, Revision::FIRST, &seen(1, Phase::Progressing), SETTLE));
        assert!(!observations.note(APP, Revision::FIRST, &seen(1, Phase::Progressing), SETTLE));
        assert!(observations.note(APP, Revision::FIRST, &seen(2, Phase::Progressing), SETTLE));
        assert_eq!(observations.of(APP, Revision::following(Some(Revision::FIRST))), None);
        let known = shown(&observations, Outage::default());
        assert_eq!(known.instances, Some(Instances { ready: 2, wanted: 2 }));
        assert_eq!(known.message.as_deref(), Some("2 of 2 new pods are ready"));
        observations.forget(APP);
        assert_eq!(shown(&observations, Outage::default()).message, None);
    }

    #[test]
    fn what_is_complete_waits_for_the_settling_time_and_a_failure_is_told_before_it_ends_the_rollout() {
        let observations = Observations::default();
        observations.note(APP, Revision::FIRST, &seen(2, Phase::Complete { digest: None, note: None }), SETTLE);
        let message = shown(&observations, Outage::default()).message.unwrap();
        assert_eq!(message, "2 of 2 new pods are ready, and must stay so for 10 s");
        let (reason, message) = (Reason::new("ImagePullBackOff"), "the image cannot be pulled".to_owned());
        let failure = RolloutFailure { kind: RolloutFailureKind::Image, reason, container: None, message };
        let failing = Observation { failure: Some(failure), ..seen(0, Phase::Progressing) };
        observations.note(APP, Revision::FIRST, &failing, SETTLE);
        let message = shown(&observations, Outage::default()).message.unwrap();
        assert_eq!(message, "0 of 2 new pods are ready; the image cannot be pulled");
        let failing = Observation { message: "image cannot be pulled".to_owned(), ..failing };
        observations.note(APP, Revision::FIRST, &failing, SETTLE);
        let message = shown(&observations, Outage::default()).message.unwrap();
        assert_eq!(message, "the image cannot be pulled", "once is enough");
    }

    #[test]
    fn failure_of_one_of_several_workloads_says_alone_how_they_are() {
        let observations = Observations::default();
        let failed = "container/worker: the container worker exited with code 1 (container/web is complete)";
        let (kind, reason) = (RolloutFailureKind::Crash, Reason::new("container-exited"));
        let failure = RolloutFailure { kind, reason, container: None, message: failed.to_owned() };
        let (name, message) = ("container/worker".to_owned(), "container worker exited with code 1".to_owned());
        let worker = WorkloadState { name, deploy: None, is_complete: false, message, restarts: 0, is_failing: true };
        let message = "container/worker: container worker exited with code 1 (container/web is complete)".to_owned();
        let (failure, workloads) = (Some(failure), vec![worker]);
        let failing = Observation { message, failure, workloads, ..seen(1, Phase::Progressing) };
        observations.note(APP, Revision::FIRST, &failing, SETTLE);
        assert_eq!(shown(&observations, Outage::default()).message.as_deref(), Some(failed));
    }

    #[test]
    fn deploy_that_waits_for_old_instances_says_so_and_not_that_it_settles() {
        let observations = Observations::default();
        let complete = seen(2, Phase::Complete { digest: None, note: None });
        let leaving = Some("1 pod of the version before still terminates".to_owned());
        assert!(observations.note(APP, Revision::FIRST, &complete, SETTLE));
        assert!(observations.note(APP, Revision::FIRST, &Observation { leaving, ..complete }, SETTLE), "it is news");
        let message = shown(&observations, Outage::default()).message.unwrap();
        assert_eq!(message, "2 of 2 new pods are ready; 1 pod of the version before still terminates");
    }

    #[test]
    fn each_of_several_workloads_is_shown_and_its_change_is_news() {
        let observations = Observations::default();
        let with = |message: &str| {
            let (name, message) = ("Deployment/worker".to_owned(), message.to_owned());
            let worker =
                WorkloadState { name, deploy: None, is_complete: false, message, restarts: 0, is_failing: false };
            Observation { workloads: vec![worker], ..seen(2, Phase::Progressing) }
        };
        observations.note(APP, Revision::FIRST, &with("0 of 1 new pods are ready"), SETTLE);
        let before = shown(&observations, Outage::default());
        assert_eq!(before.workloads[0].message, "0 of 1 new pods are ready");
        observations.note(APP, Revision::FIRST, &with("1 of 1 new pods are ready"), SETTLE);
        assert_ne!(shown(&observations, Outage::default()).mark(), before.mark());
    }

    #[test]
    fn an_outage_hides_what_was_seen_before_and_moves_the_deadline_once_it_is_over() {
        let observations = Observations::default();
        observations.note(APP, Revision::FIRST, &seen(1, Phase::Progressing), SETTLE);
        let known = shown(&observations, Outage { since: Some(at(30)), past: Duration::ZERO });
        assert_eq!((known.instances, known.deadline), (None, None));
        assert!(known.message.unwrap().starts_with("the machine cannot be reached"));
        let known = shown(&observations, Outage { since: None, past: Duration::from_secs(5) });
        assert_eq!(known.deadline, Some(at(605)));
    }

    #[test]
    fn step_before_the_rollout_has_a_deadline_that_its_interruptions_move_on() {
        let policy = Policy::default();
        let lasting = Outage { since: Some(at(30)), past: Duration::ZERO };
        let over = Outage { since: None, past: Duration::from_secs(5) };
        let release_ends = at(0).after(policy.release_deadline + Duration::from_secs(5));
        assert_eq!(releasing(&policy, at(0), (over, "machine")).deadline, Some(release_ends));
        let away = releasing(&policy, at(0), (lasting, "machine"));
        assert!(away.deadline.is_none() && away.message.unwrap().starts_with("the machine cannot be reached"));
        let paused = |away, waiting| building(&policy, at(0), Paused { away, waiting });
        let build_ends = at(0).after(policy.build_deadline + Duration::from_secs(10));
        assert_eq!((paused(over, over).since, paused(over, over).deadline), (at(0), Some(build_ends)));
        assert!(paused(lasting, over).message.unwrap().starts_with("the builder cannot be reached"));
        assert!(paused(over, lasting).message.unwrap().starts_with("the build waits for a build slot"));
    }
}
