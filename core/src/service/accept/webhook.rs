//! An app's webhook: its token and the times of it.

use std::time::Duration;

use crate::{
    action::Action,
    error::{Entity, Error},
    ports::{Sealing, WebhookSecret},
    request::Refusal,
    service::{Authorized, Deployer, Outcome, unwritten},
    time::Timestamp,
};

impl Deployer {
    /// Enables the app's webhook with a new token; the old one is refused from then on. The sequences of its deploys are counted
    /// anew: see [`DeployRequest::order`](crate::request::DeployRequest::order).
    ///
    /// # Errors
    /// [`Refusal::AppNotFound`]; [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn enable_webhook(&self, access: &Authorized) -> Outcome<WebhookSecret> {
        access.check(Action::EnableWebhook)?;
        let made =
            self.ports.tokens.put(access.uid, &self.new_token()).await.map_err(|error| unwritten(&access.id, error))?;
        // Afterwards, as a call with the old token would bring its sequence back.
        self.update_app(access, |change, now| {
            change.forget_sequence(now);
            Ok(())
        })
        .await?;
        // The first calls that fail are explained too.
        self.recognized.read(&access.id, Some(&made));
        Ok(made)
    }

    /// Gives the app's webhook a new token; the old one opens it too until the overlap is over.
    ///
    /// # Errors
    /// [`Refusal::AppNotFound`], [`Refusal::NoWebhook`]; [`Refusal::RotatedAlready`] while an earlier overlap lasts;
    /// [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn rotate_webhook(&self, access: &Authorized, overlap: Duration) -> Outcome<WebhookSecret> {
        access.check(Action::EnableWebhook)?;
        let now = self.store_time().await?;
        // A repeated call, whose answer was lost, would end the token that CI has for one that nobody has seen.
        let present = self.secret_of(access).await?;
        if present.previous_at(now).is_some() {
            return Err(Refusal::RotatedAlready);
        }
        let until = now.after(overlap);
        match self.ports.tokens.rotate(access.uid, &self.new_token(), until).await {
            Err(Error::NotFound(Entity::Object)) => Err(Refusal::NoWebhook),
            rotated => rotated.map_err(|error| unwritten(&access.id, error)),
        }
    }

    /// The app's webhook secret.
    ///
    /// # Errors
    /// [`Refusal::AppNotFound`], [`Refusal::NoWebhook`]; [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn webhook(&self, access: &Authorized) -> Outcome<WebhookSecret> {
        access.check(Action::ReadToken)?;
        self.secret_of(access).await
    }

    /// Returns the time at which the app's webhook was enabled, and the end of the previous token's time.
    ///
    /// # Errors
    /// As [`Deployer::webhook`].
    pub async fn webhook_times(&self, access: &Authorized) -> Outcome<(Timestamp, Option<Timestamp>)> {
        access.check(Action::Read)?;
        let secret = self.secret_of(access).await?;
        Ok((secret.created_at, secret.previous_at(self.time()).map(|previous| previous.until)))
    }

    /// Returns the app's secret. Under its name there may be another app's by now.
    async fn secret_of(&self, access: &Authorized) -> Outcome<WebhookSecret> {
        let secret = self.ports.tokens.find(&access.id).await.map_err(Refusal::of_store)?;
        secret.filter(|secret| secret.app == access.uid).ok_or(Refusal::NoWebhook)
    }

    /// Disables the app's webhook: its token is refused from then on.
    ///
    /// # Errors
    /// [`Refusal::AppNotFound`]; [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn disable_webhook(&self, access: &Authorized) -> Outcome<()> {
        access.check(Action::DisableWebhook)?;
        self.ports.tokens.remove(access.uid).await.map_err(|error| unwritten(&access.id, error))
    }

    /// The protection of stored tokens.
    pub fn sealing(&self) -> Sealing {
        self.ports.tokens.sealing()
    }
}
