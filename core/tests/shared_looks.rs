//! Many calls that wait for one deploy, and the reads of the store that they cost.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on ends")]

mod world;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use rollhook_conformance::{Fault, Faulty, Plan};
use rollhook_core::{
    app::Policy,
    deploy::Revision,
    ports::{Clock, HistoryStore},
    service::Deployer,
};
use world::World;

#[test]
fn callers_that_wait_for_one_deploy_share_their_looks_at_the_store() {
    let world = World::new(Duration::ZERO);
    let reads = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&reads);
    let plan: Plan = Arc::new(move |call| match call {
        "history.load" | "history.page" => {
            counted.fetch_add(1, Ordering::Relaxed);
            Fault::Late(Duration::from_millis(10))
        }
        _ => Fault::None,
    });
    world.idle(async {
        let access = world.register("api", Policy::default()).await;
        let store: Arc<dyn HistoryStore> = world.store.clone();
        let history = Arc::new(Faulty::new(store, Arc::clone(&world.clock) as Arc<dyn Clock>, plan));
        let deployer = Deployer::new(
            world.ports(9).with(|ports| {
                ports.history = history;
                ports.builder = None;
            }),
            "two",
        );
        let waits = (0..100).map(|_| deployer.changed(&access, Revision::FIRST, u32::MAX, Duration::from_secs(10)));
        let entries = join_all(waits).await;
        assert!(entries.iter().all(|entry| entry.as_ref().is_ok_and(|(_, entry)| !entry.is_terminal())));
    });
    let reads = reads.load(Ordering::Relaxed);
    assert!(reads <= 20, "100 waiting callers made {reads} reads in 10 s");
}
