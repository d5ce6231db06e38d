//! The harness of the verifier suite.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use rollhook_core::{app::Settings, check::CheckKind, ports::Verifier, time::Timestamp};

use crate::report::Can;

/// What the provider that a check measures answers from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provided {
    /// What meets the check's condition.
    Met,
    /// What does not meet it.
    Unmet,
    /// Well formed, and without a value.
    Nothing,
    /// What cannot be read.
    Unreadable,
    /// Far more than any answer has.
    Flood,
    /// Nothing, as long as one waits.
    Silence,
    /// The provider is gone, so that nobody can connect to it.
    Gone,
}

/// A verifier, and a provider of the test's that it measures.
#[async_trait]
pub trait Verifiers: Send + Sync {
    /// The verifier.
    fn verifier(&self) -> Arc<dyn Verifier>;

    /// A check of each kind, with the settings that a person would give to measure the provider.
    fn checks(&self) -> Vec<(CheckKind, Settings)>;

    /// Has the provider answer checks of this kind so.
    ///
    /// # Errors
    /// If that means nothing for the kind, as an answer without a value for one that reads none.
    async fn provide(&self, kind: &CheckKind, answer: Provided) -> Can;

    /// The time, by the clock that the verifier measures with.
    fn now(&self) -> Timestamp;

    /// Waits for this long, by the same clock.
    async fn sleep(&self, time: Duration);
}
