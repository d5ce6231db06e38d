//! Asking registries for the digests of images that are to be deployed, and sources for the order of commits that are to be built.

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{
    FutureExt,
    future::{BoxFuture, MaybeDone, maybe_done},
};

use crate::{
    app::{App, AppId, Resolve},
    deploy::Revision,
    engine::resolving::{Answer, FoundImage, NotResolved, Question, ResolveSpec},
    image::{Digest, ImageRef},
    ledger::{AppState, NewDeploy, admission},
    ports::{Resolved, Verified},
    request::Refusal,
    requirement::Required,
    service::{Deployer, drive::polling::sentence, in_time::in_time},
    slots::Rank,
};

/// The most images that this process asks for at once, and the most of them of one environment.
pub(crate) const RESOLVING: (usize, usize) = (16, 4);
/// The longest time in which a registry names an image: a deploy waits for it.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// The longest time in which the signatures of an image are verified, with the wait for a slot: a registry is asked for each.
const VERIFIED_WITHIN: Duration = Duration::from_secs(35);

/// A deploy about which a registry or a source is being asked.
pub(crate) struct Resolving<'a> {
    /// The revision of its deploy.
    pub(crate) revision: Revision,
    answer: MaybeDone<BoxFuture<'a, Answer>>,
}

impl Resolving<'_> {
    /// Waits for the answer, and takes it.
    pub(crate) async fn answered(&mut self) -> (Revision, Answer) {
        let revision = self.revision;
        let answer = poll_fn(|context| {
            self.poll(context);
            Pin::new(&mut self.answer).take_output().map_or(Poll::Pending, Poll::Ready)
        });
        (revision, answer.await)
    }

    /// Returns whether the answer was taken.
    pub(crate) fn is_taken(&self) -> bool {
        matches!(self.answer, MaybeDone::Gone)
    }

    /// Has the answer come closer.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) {
        if !self.is_taken() {
            let _is_answered = self.answer.poll_unpin(context);
        }
    }
}

impl Deployer {
    /// Returns whether this process asks registries for what it deploys.
    pub(crate) fn resolves(&self) -> bool {
        self.reads_none().is_none()
    }

    /// Returns why this process asks no registry for what it deploys, a clause; `None` if it does.
    pub(crate) fn reads_none(&self) -> Option<&'static str> {
        match (&self.ports.registry, self.ports.rollouts.fetches_images()) {
            (_, false) => Some("what this server deploys is fetched from no registry, as on the simulated cluster"),
            (None, true) => Some("this server reads no registries"),
            (Some(_), true) => None,
        }
    }

    /// Returns whether a deploy that is accepted here is resolved; where a digest or a signature is required, also by another process.
    pub(crate) fn is_to_be_resolved(&self) -> impl Fn(&App, &NewDeploy) -> bool + Send + 'static {
        let (reads, fetches) = (self.resolves(), self.ports.rollouts.fetches_images());
        let builds = self.ports.builder.is_some();
        move |app, deploy| {
            if builds && admission::is_to_be_ordered(app, deploy) {
                return true;
            }
            // A process that can do neither ends a deploy that needs signatures.
            let is_asked = reads || fetches && app.resolve() == Resolve::Require || app.requires_signatures();
            is_asked && admission::is_to_be_resolved(app, deploy)
        }
    }

    /// Begins to resolve a deploy of an app.
    pub(crate) fn resolve(&self, app_state: &AppState, spec: ResolveSpec) -> Resolving<'_> {
        let ResolveSpec { revision, question } = spec;
        let answer = match question {
            Question::Image { image, required } => {
                self.found_image(app_state.app.id.clone(), image, required).map(Answer::Image).boxed()
            }
            Question::Order { source, commit } => self.read_order(app_state.clone(), revision, source, commit).boxed(),
        };
        Resolving { revision, answer: maybe_done(answer) }
    }

    /// Asks for an image of an app, and for its signatures if some are required.
    async fn found_image(
        &self,
        app: AppId,
        image: ImageRef,
        required: Vec<Required>,
    ) -> Result<Box<FoundImage>, NotResolved> {
        let resolved = async {
            let _slot = self.resolving.acquire_ranked(&app.namespace, Rank::Awaited).await;
            self.resolved(&app, &image).await
        };
        let resolved = self.answered_within(2 * ANSWER_WITHIN, &image, resolved).await?;
        let image = image.pinned(resolved.digest.clone());
        let mut signed_by: Vec<String> = Vec::new();
        for required in &required {
            let verified = async {
                let _slot = self.verifying.acquire_ranked(&app.namespace, Rank::Awaited).await;
                self.signers(&app, (&image, &resolved.digest), required).await
            };
            let signers = self.answered_within(VERIFIED_WITHIN, &image, verified).await?;
            signed_by.extend(signers.into_iter().filter(|signer| !signed_by.contains(signer)).collect::<Vec<_>>());
        }
        Ok(Box::new(FoundImage { resolved, met: required, signed_by }))
    }

    /// Returns an answer about an image, if it comes in time. The time counts the wait for a slot as well: a deploy waits for all
    /// of it.
    async fn answered_within<T: Send>(
        &self,
        time: Duration,
        image: &ImageRef,
        answer: impl Future<Output = Result<T, NotResolved>> + Send,
    ) -> Result<T, NotResolved> {
        let late = || Err(NotResolved::Unavailable(format!("{} has not answered in time.", image.registry())));
        in_time(&*self.ports.clock, time, answer.boxed()).await.unwrap_or_else(late)
    }

    /// Returns the signers of an image of this digest, if it meets a requirement.
    async fn signers(
        &self,
        app: &AppId,
        (image, digest): (&ImageRef, &Digest),
        required: &Required,
    ) -> Result<Vec<String>, NotResolved> {
        let unsigned =
            |found| NotResolved::Unsigned { required: Box::new(required.clone()), digest: digest.clone(), found };
        let Some(verifier) = &self.ports.image_verifier else {
            return Err(unsigned(vec!["this process verifies no signatures".to_owned()]));
        };
        match verifier.verify(&app.namespace, image, &required.requirement).await {
            Ok(Verified::Signed { by }) => Ok(by),
            Ok(Verified::NotSigned { found }) => {
                tracing::info!(%app, %image, "an image lacks the required signatures");
                Err(unsigned(found))
            }
            Err(error) => {
                tracing::warn!(%app, %image, error = %error.chain(), "verifying the signatures of an image failed");
                let why = sentence(&error);
                if error.is_unavailable() || error.is_conflict() {
                    return Err(NotResolved::Unavailable(format!("its signatures could not be read: {why}")));
                }
                Err(unsigned(vec![why]))
            }
        }
    }

    async fn resolved(&self, app: &AppId, image: &ImageRef) -> Result<Resolved, NotResolved> {
        let is_tag = image.digest().is_none();
        // A registry may have another image of the name.
        if is_tag && self.has_stored(image).await? {
            return Err(NotResolved::Stored);
        }
        let refusal = match self.read_image(app, image, ANSWER_WITHIN).await {
            Ok(resolved) => return Ok(resolved),
            Err(refusal) => refusal,
        };
        let is_missing = matches!(refusal, Refusal::ImageNotFound { .. });
        if is_missing && !is_tag && self.has_stored(image).await? {
            return Err(NotResolved::Stored);
        }
        // It is asked again by itself, is not needed, or ends a deploy whose message says what to do.
        let why = if let Refusal::RegistryUnavailable { host, why, .. } = &refusal {
            format!("{host} cannot be asked about the image now: {why}.")
        } else {
            refusal.to_string()
        };
        Err(match (is_missing, refusal.is_retryable()) {
            (true, _) => NotResolved::Missing(why),
            (false, true) => NotResolved::Unavailable(why),
            (false, false) => NotResolved::Refused(why),
        })
    }

    /// Returns whether the platform runs an image as it has stored it.
    async fn has_stored(&self, image: &ImageRef) -> Result<bool, NotResolved> {
        let Some(stored) = self.ports.rollouts.stored_images() else { return Ok(false) };
        stored.has(image).await.map_err(|error| {
            tracing::warn!(%image, error = %error.chain(), "looking for a stored image failed");
            NotResolved::Unavailable("Whether the platform has stored the image could not be found out.".to_owned())
        })
    }
}
