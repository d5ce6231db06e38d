//! Following an image repository: what was decided on last, and hints that there may be something newer.

use std::time::Duration;

use super::{AppState, Change};
use crate::{deploy::Trigger, follow::Followed, image::ImageRef, time::Timestamp};

/// The least time between two polls that hints cause.
pub const HINT_INTERVAL: Duration = Duration::from_secs(10);

impl AppState {
    /// Returns the repository of the app's images: of the current version, or else of the newest deploy that has one. A return to
    /// a version of another repository does not change what is followed.
    pub fn repository(&self) -> Option<ImageRef> {
        let current = self.current.as_ref();
        let is_return = current.is_some_and(|current| current.trigger == Trigger::Rollback);
        let known = self.followed.as_ref().filter(|known| Some(&known.rule) == self.app.policy.follow.as_ref());
        if let Some(known) = known.filter(|_| is_return) {
            return Some(known.repository.clone());
        }
        let image = current.and_then(|deploy| deploy.image.clone());
        image.or_else(|| self.newest().and_then(|deploy| deploy.image.clone())).map(ImageRef::bare)
    }

    /// Returns what following has decided on last, if it is of the app's present rule and repository.
    pub fn followed(&self) -> Option<&Followed> {
        let (followed, repository) = (self.followed.as_deref()?, self.repository()?);
        let is_present = self.app.policy.follow.as_ref() == Some(&followed.rule)
            && followed.repository.canonical_repository() == repository.canonical_repository();
        is_present.then_some(followed)
    }
}

impl Change {
    /// Records what following has decided on without a deploy.
    pub fn note_followed(&mut self, followed: Followed, now: Timestamp) {
        if self.state.followed.as_deref() != Some(&followed) {
            self.touch(now);
            self.state.followed = Some(Box::new(followed));
        }
    }

    /// Has the source of a polled app polled soon. A hint that comes right after another is one with the hints that follow it.
    pub fn hint(&mut self, now: Timestamp) {
        let due = match self.state.hinted_at {
            Some(before) => now.max(before.after(HINT_INTERVAL)),
            None => now,
        };
        let is_pending = self.state.hinted_at.is_some_and(|before| before > now);
        if self.state.is_polled() && !is_pending {
            self.touch(now);
            self.state.hinted_at = Some(due);
        }
    }
}
