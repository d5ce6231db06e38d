//! A plain record of what the cluster answered, which what the driver writes is compared with.

use std::collections::{BTreeMap, BTreeSet};

use rollhook_core::{
    app::Policy,
    deploy::{Deploy, Reason, Revision, State, Status},
    engine::rollout::{STALL_TIMEOUT, UNREACHABLE_MAX},
    ports::{Observation, Phase, RolloutSpec},
    time::Timestamp,
};

#[derive(Default)]
pub(crate) struct Witness {
    /// The revision that was ordered last.
    ordered: Option<Revision>,
    /// The cluster said that it did it.
    done: BTreeSet<Revision>,
    /// A call for it was answered otherwise than by a refusal, or not at all.
    maybe_changed: BTreeSet<Revision>,
    /// A newer one was on the cluster when it was ordered.
    newer: BTreeSet<Revision>,
    seen: BTreeMap<Revision, Seen>,
    /// The last sign of progress.
    moved: BTreeMap<Revision, (String, Timestamp)>,
}

struct Seen {
    last: Observation,
    /// Since when it was whole, without a restart in between.
    whole_since: Option<Timestamp>,
}

impl Witness {
    /// Rule 9: never backwards. What is ordered begins to move.
    pub(crate) fn orders(&mut self, order: &RolloutSpec, now: Timestamp) {
        self.moved.entry(order.id.revision).or_insert((String::new(), now));
        assert!(self.ordered <= Some(order.id.revision), "{:?} after {:?}", order.id, self.ordered);
        self.ordered = Some(order.id.revision);
    }

    pub(crate) fn did(&mut self, revision: Revision) {
        self.done.insert(revision);
        self.may_have_changed(revision);
    }

    pub(crate) fn is_newer_than(&mut self, revision: Revision) {
        self.newer.insert(revision);
    }

    pub(crate) fn may_have_changed(&mut self, revision: Revision) {
        self.maybe_changed.insert(revision);
    }

    pub(crate) fn saw(&mut self, revision: Revision, seen: Observation, now: Timestamp) {
        if self.moved.get(&revision).is_none_or(|(progress, _)| *progress != seen.progress) {
            self.moved.insert(revision, (seen.progress.clone(), now));
        }
        let before = self.seen.remove(&revision);
        let undisturbed = before.filter(|before| before.last.restarts == seen.restarts);
        let whole_since = match seen.phase {
            Phase::Complete { .. } => Some(undisturbed.and_then(|before| before.whole_since).unwrap_or(now)),
            Phase::Progressing => None,
        };
        self.seen.insert(revision, Seen { last: seen, whole_since });
    }

    /// Whether the driver may write this of an entry.
    pub(crate) fn vouches(&self, stored: &Deploy, change: &Deploy, policy: &Policy, now: Timestamp) {
        let seen = self.seen.get(&change.revision);
        if stored.touched && !change.touched {
            assert!(!self.maybe_changed.contains(&change.revision), "called untouched: {change:?}");
        }
        match &change.state {
            State::Succeeded { note } => {
                let seen = seen.expect("nobody looked at what is called a success");
                assert!(self.done.contains(&change.revision), "the order was never carried out");
                let since = seen.whole_since.expect("it was not whole when it was seen last");
                assert!(now.since(since) >= policy.settle, "it did not stay whole for long enough");
                assert_eq!(
                    (&seen.last.failure, seen.last.deploy.map(|stamp| stamp.revision)),
                    (&None, Some(change.revision))
                );
                assert_eq!(seen.last.phase, Phase::Complete { digest: change.digest.clone(), note: note.clone() });
            }
            State::Failed { reason, message, .. } => {
                assert!(!message.is_empty());
                failed(stored, reason, seen, policy, now);
            }
            State::Queued | State::Building { .. } | State::Releasing { .. } | State::RollingOut { .. } => {
                assert!(!stored.is_terminal())
            }
            State::Superseded { by, rollback: false, .. } if stored.status() == Status::RollingOut => {
                let newer = seen.is_some_and(|seen| seen.last.deploy.is_some_and(|stamp| stamp.revision == *by));
                let moved = self.moved.get(&change.revision);
                let stalled = moved.is_none_or(|(_, moved)| now.since(*moved) >= STALL_TIMEOUT);
                assert!(stalled || newer || self.newer.contains(&change.revision), "it gave way while it moved");
            }
            State::Superseded { .. } | State::Cancelled { .. } => {}
        }
        let kept = |deploy: &Deploy| Deploy {
            state: State::Queued,
            step: 0,
            touched: false,
            digest: None,
            updated_at: stored.updated_at,
            ..deploy.clone()
        };
        assert_eq!(kept(stored), kept(change), "what was accepted does not change");
    }
}

/// Rule 6: not before its time, and not without a cause.
fn failed(stored: &Deploy, reason: &Reason, seen: Option<&Seen>, policy: &Policy, now: Timestamp) {
    let State::RollingOut { since, outage } = stored.state else { panic!("{stored:?} failed before it began") };
    match reason.as_str() {
        Reason::DEADLINE => assert!(now.since(since) >= policy.rollout_deadline + outage.total(now), "too early"),
        Reason::UNREACHABLE => assert!(outage.since.is_some() && outage.total(now) >= UNREACHABLE_MAX),
        Reason::RESTARTING => {
            let is_late = now.since(since) >= policy.rollout_deadline + outage.total(now);
            assert!(is_late || seen.is_some_and(|seen| seen.last.restarts >= 3));
        }
        Reason::NOT_READY => assert!(seen.is_some_and(|seen| seen.last.down_for.is_some())),
        Reason::REFUSED | "not-possible" => {}
        reason => {
            let failure = seen.and_then(|seen| seen.last.failure.as_ref());
            assert_eq!(failure.map(|failure| failure.reason.as_str()), Some(reason), "nothing says so");
        }
    }
}
