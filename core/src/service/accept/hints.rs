//! Hints of registries: an image was pushed. They decide nothing, and have the app's source polled soon.

use crate::{
    action::Action,
    app::AppId,
    follow::PushedImage,
    service::{Authorized, Deployer, Outcome},
};

/// The outcome of a registry's hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hinted {
    /// The repository is read soon.
    Noted,
    /// The app follows no repository.
    NotFollowing,
    /// The app follows none of these images.
    Other,
}

impl Deployer {
    /// Has the app's repository read soon, if one of these images may be the next that the app follows. Any number of hints
    /// within some seconds cause one reading.
    ///
    /// # Errors
    /// [`Refusal::AppNotFound`](crate::request::Refusal::AppNotFound);
    /// [`Refusal::StoreUnavailable`](crate::request::Refusal::StoreUnavailable) while the store is away.
    pub async fn hint(&self, access: &Authorized, pushed: &[PushedImage]) -> Outcome<Hinted> {
        access.check(Action::Deploy)?;
        let state = self.state(access).await?;
        let (Some(rule), Some(repository)) = (&state.app.policy.follow, state.repository()) else {
            return Ok(Hinted::NotFollowing);
        };
        if !pushed.iter().any(|image| image.may_be(rule, &repository)) {
            return Ok(Hinted::Other);
        }
        self.update_app(access, |change, now| {
            change.hint(now);
            Ok(())
        })
        .await?;
        self.changed_here(access.uid);
        Ok(Hinted::Noted)
    }

    /// Has the app's source polled soon, if this process polls it: for hints that nobody vouches for, of which one a minute has an
    /// effect. Nothing is read or written, and callers do not learn whether there is such an app.
    pub fn hint_unproven(&self, app: &AppId) {
        if let Some(app) = self.poll_results.hint(app, self.time()) {
            self.drivers.notify(app);
        }
    }
}
