//! The notifier: one call of a receiver for each notification.

use async_trait::async_trait;
use http::{Request, Response};
use rollhook_core::{
    notification::{Destination, Notification, ReceiverSecret},
    ports::{Delivered, DeliveryFailure, Notifier},
};
use rollhook_https::Fetch;

use crate::{
    answer::{failure, judge, unanswered},
    cloud_event,
    hosts::AllowedReceivers,
};

/// The flag by which the operator allows local receivers.
const FLAG: &str = "--allow-local-receivers";

/// Tells receivers over https.
pub struct HttpNotifier {
    fetch: Fetch,
    allowed: AllowedReceivers,
}

impl HttpNotifier {
    /// Returns a notifier that calls the receivers that the operator allows.
    pub fn new(allowed: AllowedReceivers) -> Self {
        Self { fetch: Fetch::new(allowed.local, FLAG), allowed }
    }

    fn check_url(&self, url: &str) -> Result<(), String> {
        self.fetch.check(url).map_err(|error| error.to_string())?;
        if !self.allowed.names(url) {
            return Err("is on none of the hosts that the operator allows (--receiver-host)".to_owned());
        }
        Ok(())
    }

    /// Makes a call that the operator allows, now as when the receiver was added.
    async fn call(&self, request: Request<Vec<u8>>) -> Result<(String, Response<Vec<u8>>), DeliveryFailure> {
        let url = request.uri().to_string();
        let host = request.uri().host().unwrap_or_default().to_owned();
        self.check_url(&url).map_err(|why| failure(format!("{host} is not called: its address {why}")))?;
        match self.fetch.send(request).await {
            Ok(answer) => Ok((host, answer)),
            Err(error) => Err(unanswered(&host, &error)),
        }
    }
}

#[async_trait]
impl Notifier for HttpNotifier {
    fn check(&self, destination: &Destination) -> Result<(), String> {
        match destination {
            Destination::Webhook { url } => self.check_url(url.as_str()),
            other => Err(format!("is of the kind {}, which this notifier does not know", other.kind())),
        }
    }

    async fn send(
        &self,
        destination: &Destination,
        secret: &ReceiverSecret,
        notification: &Notification,
        _reference: Option<&str>,
    ) -> Result<Delivered, DeliveryFailure> {
        match destination {
            Destination::Webhook { url } => {
                let (host, answer) = self.call(cloud_event::request(url.as_str(), secret, notification)?).await?;
                Ok(Delivered { reference: None, answer: judge(&host, &answer)? })
            }
            other => Err(failure(format!("this notifier does not know the kind {}", other.kind()))),
        }
    }
}
