//! Asking registries for the digests of images that are to be deployed.

use std::time::Duration;

use futures_util::{FutureExt, future::BoxFuture, select_biased};

use crate::{
    app::AppId,
    deploy::Revision,
    engine::resolving::{NotResolved, ResolveSpec},
    image::ImageRef,
    ports::Resolved,
    request::Refusal,
    service::Deployer,
    slots::Rank,
};

/// The most images that this process asks for at once, and the most of them of one environment.
pub(crate) const RESOLVING: (usize, usize) = (32, 16);
/// The longest time in which a registry names an image: a deploy waits for it.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// An image whose registry is being asked.
pub(crate) struct Resolving<'a> {
    /// The revision of its deploy.
    pub(crate) revision: Revision,
    answer: BoxFuture<'a, Result<Resolved, NotResolved>>,
}

impl Resolving<'_> {
    /// Waits for the answer.
    pub(crate) async fn answered(&mut self) -> (Revision, Result<Resolved, NotResolved>) {
        (self.revision, (&mut self.answer).await)
    }
}

impl Deployer {
    /// Returns whether this process asks registries for what it deploys.
    pub(crate) fn resolves(&self) -> bool {
        self.ports.registry.is_some() && self.ports.rollouts.fetches_images()
    }

    /// Begins to ask for an image of an app.
    pub(crate) fn resolve(&self, app: AppId, spec: ResolveSpec) -> Resolving<'_> {
        let ResolveSpec { revision, image } = spec;
        let answer = async move {
            let late = || Err(NotResolved::Unavailable(format!("{} has not answered in time.", image.registry())));
            let answer = async {
                let _slot = self.resolving.acquire_ranked(&app.namespace, Rank::Awaited).await;
                self.resolved(&app, &image).await
            };
            // A time that counts the wait for a slot as well: a deploy waits for all of it.
            select_biased! {
                answer = answer.boxed().fuse() => answer,
                () = self.ports.clock.sleep(2 * ANSWER_WITHIN).fuse() => late(),
            }
        };
        Resolving { revision, answer: answer.boxed() }
    }

    async fn resolved(&self, app: &AppId, image: &ImageRef) -> Result<Resolved, NotResolved> {
        let refusal = match self.read_image(app, image, ANSWER_WITHIN).await {
            Ok(resolved) => return Ok(resolved),
            Err(refusal) => refusal,
        };
        match refusal {
            Refusal::ImageNotFound { .. } if self.has_stored(image).await => Err(NotResolved::Stored),
            Refusal::ImageNotFound { .. } => Err(NotResolved::Missing(refusal.to_string())),
            Refusal::RegistryUnavailable { .. } => Err(NotResolved::Unavailable(refusal.to_string())),
            other => Err(NotResolved::Refused(other.to_string())),
        }
    }

    /// Returns whether the platform has stored an image; one that cannot say so has none.
    async fn has_stored(&self, image: &ImageRef) -> bool {
        let Some(stored) = self.ports.rollouts.stored_images() else { return false };
        stored.has(image).await.unwrap_or_else(|error| {
            tracing::warn!(%image, error = %error.chain(), "looking for a stored image failed");
            false
        })
    }
}
