//! Calls on several threads that join one commit are all answered.

use std::{
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use futures_util::future::join_all;
use rollhook_conformance::block_on;
use rollhook_core::{
    app::Policy,
    request::{IdempotencyKey, KeyHeader},
    service::Authorized,
};

use crate::world::{World, api, request};

/// How often many calls are made at once.
const ROUNDS: usize = 300;
/// How long a round may take: far longer than the slowest one.
const PATIENCE: Duration = Duration::from_secs(60);

/// Makes calls under one key on two threads, each of which polls its calls in turn, as the workers of a runtime do.
fn call_at_once(world: &World, access: &Arc<Authorized>) {
    let (answered, answers) = mpsc::channel();
    for _ in 0..2 {
        let (deployer, access, answered) = (Arc::clone(&world.deployer), Arc::clone(access), answered.clone());
        thread::spawn(move || {
            let key = IdempotencyKey::new(KeyHeader::IdempotencyKey, "run-1", [1; 32]).ok();
            let call = || deployer.submit(&access, request(&api("v2")).with(|request| request.key = key.clone()));
            let accepted = block_on(join_all((0..25).map(|_| call())));
            answered.send(accepted.into_iter().filter(|accepted| accepted.is_ok()).count()).unwrap();
        });
    }
    for _ in 0..2 {
        assert_eq!(answers.recv_timeout(PATIENCE), Ok(25), "every call is answered");
    }
}

#[test]
fn calls_that_join_a_commit_are_all_answered() {
    for _ in 0..ROUNDS {
        let world = World::new(Duration::ZERO);
        let access = Arc::new(world.idle(world.register("api", Policy::default())));
        call_at_once(&world, &access);
        assert_eq!(world.idle(world.history(&access)).len(), 2, "one key makes one deploy");
    }
}
