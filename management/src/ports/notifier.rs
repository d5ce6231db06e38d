//! The port that tells receivers outside, and the one that seals their secrets.

use std::time::Duration;

use async_trait::async_trait;
use zeroize::Zeroizing;

use rollhook_core::error::Result;

use crate::notifications::{Destination, Notification, ReceiverSecret};

/// A notification that a receiver has taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delivered {
    /// The receiver's name for what it made of the deploy, such as a message's: later notifications of the same deploy
    /// carry it. At most 200 characters; `None`: as before.
    pub reference: Option<String>,
    /// The answer, in a line for people.
    pub answer: String,
}

/// The reason why a receiver has not taken a notification.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DeliveryFailure {
    /// The failure, in a sentence for people, without secrets.
    pub message: String,
    /// The time that the receiver asks to be left alone for.
    pub retry_after: Option<Duration>,
    /// Whether the receiver refuses this notification, and may take others: after some attempts it is given up.
    pub is_final: bool,
}

/// Tells receivers of deploys.
///
/// Security: a receiver's URL is a person's input. An implementation calls none on this machine, at link-local
/// addresses or at a cloud's metadata service, and none without encryption, unless the operator allows it; it follows
/// no redirect; it connects to the addresses that it has checked; and it repeats no secret in an error.
///
/// The service may drop a call at any await, and repeats what was not answered: the receiver may be told twice, with
/// the same [`Notification::id`].
#[async_trait]
pub trait Notifier: Send + Sync {
    /// Returns whether the destination can be called at all, as far as its text says.
    ///
    /// # Errors
    /// The reason why it cannot, as the end of a sentence that begins with the destination.
    fn check(&self, destination: &Destination) -> Result<(), String>;

    /// Tells a receiver, by one attempt. `reference` is what it answered to an earlier notification of the same deploy.
    ///
    /// # Errors
    /// If the receiver has not taken it.
    async fn send(
        &self,
        destination: &Destination,
        secret: &ReceiverSecret,
        notification: &Notification,
        reference: Option<&str>,
    ) -> Result<Delivered, DeliveryFailure>;
}

/// Seals texts that the service keeps as records, which stores do not seal.
///
/// Security: without the key, which no store has, a sealed text tells nothing; it opens for the purpose alone that it
/// was sealed for.
pub trait Sealer: Send + Sync {
    /// Returns the sealed text, in printable characters.
    ///
    /// # Errors
    /// `Unavailable` if there is no randomness now.
    fn seal(&self, text: &str, purpose: &str) -> Result<String>;

    /// Returns the text of a sealed one.
    ///
    /// # Errors
    /// `Denied` if the key is missing; `Corrupt` if the text was changed, or sealed for another purpose.
    fn open(&self, sealed: &str, purpose: &str) -> Result<Zeroizing<String>>;
}
