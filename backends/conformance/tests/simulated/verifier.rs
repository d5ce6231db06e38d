//! The simulated verifier, as its suite wants it.

use std::{future::poll_fn, sync::Arc, task::Poll, time::Duration};

use async_trait::async_trait;
use rollhook_conformance::{Can, ManualClock, Provided, Verifiers};
use rollhook_core::{
    app::Settings,
    check::CheckKind,
    ports::{Clock, Verifier},
    time::Timestamp,
};
use rollhook_memory::{Reading, SimulatedVerifier};

/// How far the clock goes on at a time.
const STEP: Duration = Duration::from_millis(100);

/// A simulated verifier, whose readings are its provider.
pub(crate) struct SimulatedProvider {
    clock: Arc<ManualClock>,
    pub(crate) verifier: Arc<SimulatedVerifier>,
}

impl SimulatedProvider {
    pub(crate) fn fresh() -> Can<Self> {
        let clock = Arc::new(ManualClock::default());
        Ok(Self { verifier: Arc::new(SimulatedVerifier::new(clock.clone())), clock })
    }
}

#[async_trait]
impl Verifiers for SimulatedProvider {
    fn verifier(&self) -> Arc<dyn Verifier> {
        self.verifier.clone()
    }

    fn checks(&self) -> Vec<(CheckKind, Settings)> {
        let mut settings = Settings::new();
        settings.insert("at_most".to_owned(), 0.5.into());
        vec![("simulated".parse().unwrap(), settings)]
    }

    async fn provide(&self, _: &CheckKind, answer: Provided) -> Can {
        self.verifier.reads(move |_| match answer {
            Provided::Met => Reading::Value(0.1),
            Provided::Unmet => Reading::Value(0.9),
            Provided::Nothing => Reading::NoData,
            Provided::Unreadable => Reading::Unreadable("<html>".to_owned()),
            Provided::Flood => Reading::Unreadable("x".repeat(1 << 20)),
            Provided::Silence | Provided::Gone => Reading::Away,
        });
        Ok(())
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000).after(self.clock.elapsed())
    }

    async fn sleep(&self, time: Duration) {
        let end = self.clock.elapsed() + time;
        while self.clock.elapsed() < end {
            self.clock.advance(STEP);
            // Others go on before the clock does.
            let mut is_first = true;
            poll_fn(|context| {
                context.waker().wake_by_ref();
                if std::mem::take(&mut is_first) { Poll::Pending } else { Poll::Ready(()) }
            })
            .await;
        }
    }
}
