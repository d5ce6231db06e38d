//! Looks at images at their registries: how often an environment may look is bounded.

use std::time::Duration;

use rollhook_core::{
    action::Action as AppAction,
    app::AppId,
    image::ImageRef,
    service::{Authorized, Following, LookedUpImage},
};

use crate::{
    Management, Outcome, Refusal,
    access::{Action, Principal, Realm},
    rate::Rate,
};

/// Looks of one environment: 1 in 2 seconds, 20 at once. Each is several calls of a foreign server.
const LOOKS: Rate = Rate { every: Duration::from_secs(2), burst: 20 };

impl Management {
    /// Returns what the registry has of an image; without one, of that of the app's newest deploy. Callers that may deploy
    /// may look: the login of the environment is used in their name.
    ///
    /// # Errors
    /// As [`Management::allow`], and
    /// [`Deployer::look_up_image`](rollhook_core::service::Deployer::look_up_image); [`Refusal::TooManyLooks`].
    pub async fn look_up_image(
        &self,
        principal: &Principal,
        id: &AppId,
        image: Option<&ImageRef>,
    ) -> Outcome<LookedUpImage> {
        let access = self.looking(principal, id).await?;
        let image = match image {
            Some(image) => image.clone(),
            None => self.deployer.newest_image(&access).await?,
        };
        Ok(self.deployer.look_up_image(&access, &image).await?)
    }

    /// Returns what following finds in an app's repository now, and what comes of it; a look as well.
    ///
    /// # Errors
    /// As [`Management::allow`], and
    /// [`Deployer::explain_following`](rollhook_core::service::Deployer::explain_following); [`Refusal::TooManyLooks`].
    pub async fn explain_following(&self, principal: &Principal, id: &AppId) -> Outcome<Following> {
        let access = self.looking(principal, id).await?;
        Ok(self.deployer.explain_following(&access).await?)
    }

    /// Returns the access of a caller that may look, and counts its look.
    async fn looking(&self, principal: &Principal, id: &AppId) -> Outcome<Authorized> {
        let app = self.readable_app(principal, id).await?;
        let count = || {
            let realm = Realm::of_app(&app);
            let may = self.image_looks.take(LOOKS, &realm, self.deployer.ports().clock.elapsed());
            if may { Ok(()) } else { Err(Refusal::TooManyLooks(realm)) }
        };
        self.permit_all(principal, &app, &[(Action::Deploy, None)], count).await?;
        Ok(Authorized::allow(&app, principal.cause(), &[AppAction::Deploy]))
    }
}
