//! The lines of the audit in the log are bounded.
//!
//! A program of its own: what one thread listens to is remembered for all of them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on ends")]

#[path = "scenarios/world/mod.rs"]
mod world;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use rollhook_core::action::Action;
use tracing::{
    Event, Metadata, Subscriber,
    span::{Attributes, Id, Record as Values},
};
use world::{
    ManagedWorld,
    actions::{allow, deployer, register},
};

/// Counts the lines of the audit in the log.
#[derive(Clone, Default)]
struct AuditLines(Arc<AtomicUsize>);

impl Subscriber for AuditLines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "rollhook::audit"
    }

    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Values<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn lines_of_acts_that_have_no_entry_of_their_own_are_bounded() {
    let lines = AuditLines::default();
    let written = lines.0.clone();
    let world = ManagedWorld::new(Duration::ZERO);
    tracing::subscriber::with_default(lines, || {
        world.run(async {
            let id = register(&world, "shop", "test").await;
            let (eve, ada) = (deployer("eve"), deployer("ada"));
            let before = written.load(Ordering::Relaxed);
            for _ in 0..3_000 {
                allow(&world, &eve, &id, Action::ReleaseHold).await;
            }
            let of_eve = written.load(Ordering::Relaxed) - before;
            assert!((2_000..2_100).contains(&of_eve), "1,000 of their own, and as many at once beyond: {of_eve}");
            allow(&world, &ada, &id, Action::ReleaseHold).await;
            assert_eq!(written.load(Ordering::Relaxed) - before, of_eve + 1, "others' acts have their lines");
        });
    });
}
