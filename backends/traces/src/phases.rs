//! The phases of a deploy, and which of them a change of its entry ends.

use rollhook_core::{
    deploy::{Deploy, State},
    time::Timestamp,
};

/// A part of a deploy's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The accept was written.
    Accept,
    /// The deploy waited for its turn.
    Queue,
    /// The commit was built.
    Build,
    /// The built image waited for its turn.
    Ready,
    /// The release command ran.
    Release,
    /// The cluster was brought to the revision.
    Rollout,
    /// The app's checks measured the revision.
    Verify,
}

impl Phase {
    /// The name of the phase's span.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Queue => "queue",
            Self::Build => "build",
            Self::Ready => "ready",
            Self::Release => "release",
            Self::Rollout => "rollout",
            Self::Verify => "verify",
        }
    }

    /// Returns the phase that a deploy is in, and its begin; `None` for one that has ended.
    pub(crate) fn of(deploy: &Deploy) -> Option<(Self, Timestamp)> {
        match &deploy.state {
            State::Queued => Some((Self::Queue, deploy.created_at)),
            State::Building { since, .. } if deploy.image.is_none() => Some((Self::Build, *since)),
            State::Building { .. } => Some((Self::Ready, deploy.updated_at)),
            State::Releasing { since, .. } => Some((Self::Release, *since)),
            State::RollingOut { since, .. } => Some(match &deploy.verification {
                Some(verification) => (Self::Verify, verification.since),
                None => (Self::Rollout, *since),
            }),
            State::Succeeded { .. } | State::Failed { .. } | State::Superseded { .. } | State::Cancelled { .. } => None,
        }
    }

    /// Returns the phase that a change of an entry has ended, with its begin and end.
    pub(crate) fn ended(before: &Deploy, after: &Deploy) -> Option<(Self, Timestamp, Timestamp)> {
        let (phase, begin) = Self::of(before)?;
        let next = Self::of(after);
        if next.is_some_and(|(next, _)| next == phase) {
            return None;
        }
        // The entry is written soon after the next phase has begun.
        let end = next.map_or(after.updated_at, |(_, begin)| begin);
        Some((phase, begin, end.max(begin)))
    }
}
