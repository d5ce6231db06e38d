//! The next notification of an app for a receiver: the app's own entries are the outbox, and a cursor marks the receiver's
//! place in them.
//!
//! A cursor is stored after each delivery. A process that ends between the two delivers once more, under the same id.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use rollhook_core::{
    app::AppUid,
    deploy::{Deploy, Revision},
    ledger::AppState,
    time::Timestamp,
};

use crate::notifications::{EventKind, Events, ReceiverId};

/// A receiver's place in the history of an app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cursor {
    /// The receiver.
    pub receiver: ReceiverId,
    /// The app.
    pub app: AppUid,
    /// The newest revision that the receiver was notified of; the notifications of those up to here that are not in `open` have come to their
    /// ends.
    pub seen: Option<Revision>,
    /// The revisions up to `seen` of whose ends the receiver is not notified yet.
    pub open: BTreeMap<Revision, Notified>,
    /// The newest revision of whose revoked verification the receiver was notified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<Revision>,
    /// The drift of the last notification, while it lasts, as a hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<String>,
    /// The number of drifts that the receiver was notified of.
    #[serde(default)]
    pub drifts: u32,
    /// The trouble of the last notification, while it lasts, as a hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// The number of troubles that the receiver was notified of.
    #[serde(default)]
    pub troubles: u32,
}

/// The last notification of a deploy of whose end the receiver is not notified yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Notified {
    /// The last event.
    pub event: EventKind,
    /// Of [`EventKind::AwaitingDecision`], when the person was asked of whom the receiver was notified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_at: Option<Timestamp>,
    /// The receiver's name for what it made of the deploy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

/// What is next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// There is no notification now.
    Nothing,
    /// The decision needs the archived entry of this revision.
    Read(Revision),
    /// The receiver is to be notified of this event.
    Notify(Arc<Deploy>, EventKind),
    /// The entry was forgotten before the receiver was notified of its end: the cursor is past it.
    Lost(Revision),
}

/// The entries that were read from the archive; `None`: there is none of this revision.
pub(crate) type Archived = BTreeMap<Revision, Option<Arc<Deploy>>>;

impl Cursor {
    /// Returns the cursor of a receiver that is notified of the deploys after this revision.
    pub(crate) fn after(receiver: ReceiverId, app: AppUid, seen: Option<Revision>) -> Self {
        let (open, revoked, drift, drifts, trouble, troubles) = Default::default();
        Self { receiver, app, seen, open, revoked, drift, drifts, trouble, troubles }
    }

    /// Returns the next step, the lowest revision first. Events that the receiver did not ask for move the cursor on.
    pub(crate) fn next(&mut self, state: &AppState, archived: &Archived, events: &Events) -> Next {
        for revision in self.open.keys().copied().collect::<Vec<_>>() {
            match self.next_of(revision, state, archived, events) {
                Next::Nothing => {}
                next @ (Next::Read(_) | Next::Notify(..) | Next::Lost(_)) => return next,
            }
        }
        while self.seen < state.latest {
            let revision = Revision::following(self.seen);
            match self.next_of(revision, state, archived, events) {
                Next::Nothing => {}
                next @ (Next::Read(_) | Next::Notify(..) | Next::Lost(_)) => return next,
            }
        }
        Next::Nothing
    }

    /// Returns what is next of one revision: nothing once the cursor is past what there is now.
    fn next_of(&mut self, revision: Revision, state: &AppState, archived: &Archived, events: &Events) -> Next {
        let entry = match state.unfinished(revision) {
            Some(entry) => Arc::clone(entry),
            None => match archived.get(&revision) {
                Some(Some(entry)) => Arc::clone(entry),
                None => return Next::Read(revision),
                Some(None) => {
                    self.pass(revision, (EventKind::Cancelled, None), None);
                    return Next::Lost(revision);
                }
            },
        };
        // What ran when the app was registered is no deploy.
        let accepted = EventKind::Accepted;
        let wanted = |event| events.contains(event) && !entry.adopted;
        if self.notified(revision).is_none() {
            if wanted(accepted) {
                return Next::Notify(entry, accepted);
            }
            self.pass(revision, (accepted, None), None);
        }
        let event = EventKind::of(&entry);
        let asked_at = asked_at(&entry, event);
        // A question that was withdrawn and is asked anew is another one.
        let is_known = |notified: &Notified| (notified.event, notified.asked_at) == (event, asked_at);
        if self.notified(revision).is_none_or(is_known) {
            return Next::Nothing;
        }
        // A question that is withdrawn, as the checks were changed, takes no deploy back to the step before.
        let was_asked = self.notified(revision).is_some_and(|notified| notified.event == EventKind::AwaitingDecision);
        if was_asked && event == EventKind::Verifying {
            return Next::Nothing;
        }
        if wanted(event) {
            return Next::Notify(entry, event);
        }
        self.pass(revision, (event, asked_at), None);
        Next::Nothing
    }

    /// Returns whether events of this deploy may still come.
    pub(crate) fn is_before(&self, revision: Revision) -> bool {
        self.seen < Some(revision) || self.open.contains_key(&revision)
    }

    fn notified(&self, revision: Revision) -> Option<&Notified> {
        self.open.get(&revision)
    }

    /// The receiver's name for what it made of a deploy.
    pub(crate) fn reference(&self, revision: Revision) -> Option<&str> {
        self.notified(revision)?.reference.as_deref()
    }

    /// Moves the cursor past an event of a deploy, with [when a person was asked](asked_at); a new reference replaces the one
    /// before.
    pub(crate) fn pass(
        &mut self,
        revision: Revision,
        (event, asked_at): (EventKind, Option<Timestamp>),
        reference: Option<String>,
    ) {
        self.seen = self.seen.max(Some(revision));
        if is_end(event) {
            self.open.remove(&revision);
            return;
        }
        let reference = reference.or_else(|| self.reference(revision).map(str::to_owned));
        self.open.insert(revision, Notified { event, asked_at, reference });
    }

    /// Returns whether a state has deploys that the cursor is not past: without a read, and perhaps in vain.
    pub(crate) fn is_behind(&self, state: &AppState) -> bool {
        self.seen < state.latest || !self.open.is_empty() || self.revoked < state.revocations().last()
    }
}

/// Returns when the person was asked whose decision a deploy waits for; `None` of other events.
pub(crate) fn asked_at(deploy: &Deploy, event: EventKind) -> Option<Timestamp> {
    deploy.verification.as_ref()?.awaited_since.filter(|_| event == EventKind::AwaitingDecision)
}

/// Returns whether an event is the end of a deploy.
const fn is_end(event: EventKind) -> bool {
    match event {
        EventKind::Accepted
        | EventKind::Building
        | EventKind::Releasing
        | EventKind::RollingOut
        | EventKind::Verifying
        | EventKind::AwaitingDecision
        | EventKind::VerificationRevoked
        | EventKind::Drift
        | EventKind::Degraded => false,
        EventKind::Succeeded
        | EventKind::Failed
        | EventKind::Superseded
        | EventKind::Cancelled
        | EventKind::PutRight
        | EventKind::RolledBack => true,
    }
}

/// The longest pause after failures, unless the receiver asks for a longer one.
const PAUSE_MAX: Duration = Duration::from_secs(600);
/// The longest pause that a receiver may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);

/// Returns the pause of a receiver after this many failures in succession: a second, doubled with each, of which up to
/// half is left out by chance (`random`), so that receivers behind one host do not come at the same time.
pub(crate) fn pause(failures: u32, retry_after: Option<Duration>, random: u128) -> Duration {
    let whole = Duration::from_secs(1).saturating_mul(1 << failures.saturating_sub(1).min(16)).min(PAUSE_MAX);
    let share = u32::try_from(random % 512).unwrap_or(0);
    let pause = whole - whole * share / 1024;
    pause.max(retry_after.unwrap_or_default().min(RETRY_AFTER_MAX))
}

#[cfg(test)]
mod tests;
