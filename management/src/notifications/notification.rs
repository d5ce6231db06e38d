//! Notifications: the messages by which parties outside hear of deploys.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use rollhook_core::{
    app::{App, InvalidName},
    deploy::{CheckFail, Deploy, Reason, Revision, State, Trigger},
    image::ImageRef,
    text::words,
    time::Timestamp,
};

use crate::notifications::ReceiverId;

/// An event that receivers are notified of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A deploy was accepted.
    Accepted,
    /// The build of a deploy has begun.
    Building,
    /// The release command of a deploy is about to run.
    Releasing,
    /// The rollout of a deploy has begun.
    RollingOut,
    /// The checks of a deploy have begun to measure it.
    Verifying,
    /// A deploy waits for a person's decision, as checks came to no verdict.
    AwaitingDecision,
    /// A deploy succeeded.
    Succeeded,
    /// A deploy failed.
    Failed,
    /// A deploy ended because of a newer one.
    Superseded,
    /// A deploy was cancelled.
    Cancelled,
    /// The service has put a failed rollout right.
    PutRight,
    /// A person's rollback succeeded.
    RolledBack,
    /// A check failed after its deploy had succeeded: the verification is revoked.
    VerificationRevoked,
    /// Another party changed what an app runs on.
    Drift,
    /// What an app runs crashes again and again, or instances are missing, since its deploy ended.
    Degraded,
}

words! { EventKind:
    Accepted = "accepted",
    Building = "building",
    Releasing = "releasing",
    RollingOut = "rolling_out",
    Verifying = "verifying",
    AwaitingDecision = "awaiting_decision",
    Succeeded = "succeeded",
    Failed = "failed",
    Superseded = "superseded",
    Cancelled = "cancelled",
    PutRight = "put_right",
    RolledBack = "rolled_back",
    VerificationRevoked = "verification_revoked",
    Drift = "drift",
    Degraded = "degraded",
}

impl EventKind {
    /// Every event.
    pub const ALL: [Self; 15] = [
        Self::Accepted,
        Self::Building,
        Self::Releasing,
        Self::RollingOut,
        Self::Verifying,
        Self::AwaitingDecision,
        Self::Succeeded,
        Self::Failed,
        Self::Superseded,
        Self::Cancelled,
        Self::PutRight,
        Self::RolledBack,
        Self::VerificationRevoked,
        Self::Drift,
        Self::Degraded,
    ];

    /// Returns the event that brought a deploy into its state.
    pub fn of(deploy: &Deploy) -> Self {
        match deploy.state {
            State::Queued => Self::Accepted,
            State::Building { .. } => Self::Building,
            State::Releasing { .. } => Self::Releasing,
            // A person who has decided was asked before: the end follows.
            State::RollingOut { .. } if deploy.verification.as_ref().is_some_and(|all| all.awaited_since.is_some()) => {
                Self::AwaitingDecision
            }
            State::RollingOut { .. } if deploy.verification.is_some() => Self::Verifying,
            State::RollingOut { .. } => Self::RollingOut,
            State::Succeeded { .. } if deploy.is_restore() => Self::PutRight,
            State::Succeeded { .. } if deploy.trigger == Trigger::Rollback => Self::RolledBack,
            State::Succeeded { .. } => Self::Succeeded,
            State::Failed { .. } => Self::Failed,
            State::Superseded { .. } => Self::Superseded,
            State::Cancelled { .. } => Self::Cancelled,
        }
    }
}

impl FromStr for EventKind {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let known = text.replace('-', "_");
        let found = Self::ALL.into_iter().find(|event| event.as_str() == known);
        found.ok_or_else(|| {
            InvalidName::new(
                "event",
                text,
                "must be accepted, building, releasing, rolling_out, verifying, awaiting_decision, succeeded, failed, superseded, cancelled, put_right, \
                 rolled_back, verification_revoked, drift or degraded",
            )
        })
    }
}

/// The id of a notification: the same for every attempt to deliver it, so that a receiver can drop repetitions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NotificationId(String);

impl NotificationId {
    /// Returns the id of what these texts name.
    fn of(receiver: &ReceiverId, what: &str) -> Self {
        let hash = Sha256::digest(format!("{receiver}/{what}"));
        Self(format!("msg_{}", rollhook_core::text::hex(&hash[..16])))
    }

    /// Returns the id of an event of a deploy.
    pub fn of_deploy(receiver: &ReceiverId, app: &App, revision: Revision, event: EventKind) -> Self {
        Self::of(receiver, &format!("{}/{revision}/{event}", app.uid))
    }

    /// Returns the id of the question that a person was asked at this time of a deploy: one that was withdrawn may be asked anew.
    pub fn of_question(receiver: &ReceiverId, app: &App, revision: Revision, asked_at: Timestamp) -> Self {
        let event = EventKind::AwaitingDecision;
        Self::of(receiver, &format!("{}/{revision}/{event}/{}", app.uid, asked_at.as_millis()))
    }

    /// Returns the id of the revocation of a deploy's verification.
    pub fn of_revocation(receiver: &ReceiverId, app: &App, revision: Revision) -> Self {
        Self::of(receiver, &format!("{}/{revision}/{}", app.uid, EventKind::VerificationRevoked))
    }

    /// Returns the id of an app's drift; `number` counts the drifts that the receiver was notified of.
    pub fn of_drift(receiver: &ReceiverId, app: &App, number: u32) -> Self {
        Self::of(receiver, &format!("{}/drift/{number}", app.uid))
    }

    /// Returns the id of an app's trouble; `number` counts the troubles that the receiver was notified of.
    pub fn of_trouble(receiver: &ReceiverId, app: &App, number: u32) -> Self {
        Self::of(receiver, &format!("{}/degraded/{number}", app.uid))
    }

    /// Returns the id of a test.
    pub fn of_test(receiver: &ReceiverId, bits: u128) -> Self {
        Self::of(receiver, &format!("test/{bits:032x}"))
    }

    /// The id's text: letters, digits and an underscore.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NotificationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A difference between an app's current deploy and its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriftNews {
    /// The image that the target is set to instead, if it is another one.
    pub image: Option<ImageRef>,
    /// The change, in a sentence that a person can act on.
    pub message: String,
}

/// A trouble of what an app runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DegradedNews {
    /// The trouble, as a code.
    pub reason: Reason,
    /// The trouble, in a sentence that a person can act on.
    pub message: String,
}

/// The subject of a notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// An event of a deploy.
    Deploy {
        /// The app.
        app: Arc<App>,
        /// The entry as it is now.
        deploy: Arc<Deploy>,
        /// The event.
        event: EventKind,
    },
    /// The revocation of a deploy's verification, by a check that failed after the deploy had succeeded.
    Revoked {
        /// The app.
        app: Arc<App>,
        /// The entry.
        deploy: Arc<Deploy>,
        /// The fail.
        fail: CheckFail,
    },
    /// A change of an app's target by another party.
    Drift {
        /// The app.
        app: Arc<App>,
        /// The difference.
        drift: DriftNews,
    },
    /// A trouble of what an app runs, since its deploy ended.
    Degraded {
        /// The app.
        app: Arc<App>,
        /// The trouble.
        degraded: DegradedNews,
    },
    /// A test, which a person asked for.
    Test,
}

/// A message to a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// The id, which every attempt of delivery has.
    pub id: NotificationId,
    /// The subject.
    pub content: Content,
    /// The time of the event; of a test, that of the call.
    pub at: Timestamp,
    /// The time of this attempt.
    pub sent_at: Timestamp,
    /// The URL at which the service is reached, without a slash at its end; empty if it is unknown.
    pub base_url: Arc<str>,
}

impl Notification {
    /// The event; `None` for a test.
    pub const fn event(&self) -> Option<EventKind> {
        match &self.content {
            Content::Deploy { event, .. } => Some(*event),
            Content::Revoked { .. } => Some(EventKind::VerificationRevoked),
            Content::Drift { .. } => Some(EventKind::Drift),
            Content::Degraded { .. } => Some(EventKind::Degraded),
            Content::Test => None,
        }
    }

    /// The app; `None` for a test.
    pub const fn app(&self) -> Option<&Arc<App>> {
        match &self.content {
            Content::Deploy { app, .. }
            | Content::Revoked { app, .. }
            | Content::Drift { app, .. }
            | Content::Degraded { app, .. } => Some(app),
            Content::Test => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_as_they_are_written() {
        for event in EventKind::ALL {
            assert_eq!(event.to_string().parse(), Ok(event));
            assert_eq!(serde_json::to_string(&event).unwrap(), format!("\"{event}\""));
        }
        assert_eq!("put-right".parse(), Ok(EventKind::PutRight));
        assert!("deployed".parse::<EventKind>().is_err());
    }
}
