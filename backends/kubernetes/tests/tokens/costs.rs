//! The calls that callers cost, counted on the client.

use std::time::Duration;

use futures_util::future::join_all;
use rollhook_core::ports::TokenStore;

use crate::{
    bed,
    place::{Place, Replica},
};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn callers_without_a_valid_token_cost_one_call_per_second() {
    bed::test("callers_without_a_valid_token_cost_one_call_per_second", async |bed| {
        let place = Place::of(bed).await;
        place.enable(1).await;
        let replica = Replica::of(bed).await;
        replica.let_in(&place.app.id, 1).await;
        let unknown = format!("{}/web", bed.namespace).parse().unwrap();
        let elsewhere = "somebody-elses/api".parse().unwrap();
        for _ in 0..3 {
            replica.pass(SECOND);
            replica.calls.take();
            for _ in 0..100 {
                for app in [&place.app.id, &unknown, &elsewhere] {
                    assert!(replica.caller(app, 9).await.is_none());
                }
            }
            let many = join_all((0..100).map(|_| replica.caller(&place.app.id, 9))).await;
            assert!(many.iter().all(Option::is_none));
            let calls = replica.calls.take();
            assert_eq!(calls.len(), 1, "{calls:?}");
        }
    });
}

#[test]
fn concurrent_callers_with_valid_tokens_share_reads() {
    bed::test("concurrent_callers_with_valid_tokens_share_reads", async |bed| {
        let place = Place::of(bed).await;
        place.enable(1).await;
        let replica = Replica::of(bed).await;
        replica.let_in(&place.app.id, 1).await;
        replica.calls.take();
        let many = join_all((0..64).map(|_| replica.caller(&place.app.id, 1))).await;
        assert!(many.iter().all(Option::is_some));
        let calls = replica.calls.take();
        // A caller who comes during a read waits for the next one. How many come during one is the machine's affair.
        assert!((1..=16).contains(&calls.len()), "{calls:?}");
        replica.caller(&place.app.id, 1).await.unwrap();
        assert_eq!(replica.calls.take().len(), 1, "who comes later has a read of their own");
    });
}

#[test]
fn enable_reaches_every_replica_by_the_watch() {
    bed::test("enable_reaches_every_replica_by_the_watch", async |bed| {
        let place = Place::of(bed).await;
        place.enable(1).await;
        let replica = Replica::of(bed).await;
        replica.let_in(&place.app.id, 1).await;
        for seed in 2..6 {
            place.enable(seed).await;
            assert!(replica.caller(&place.app.id, seed - 1).await.is_none(), "the old one is refused at once");
            // No time passes for the replica, so that only the watch can tell it.
            replica.let_in(&place.app.id, seed).await;
        }
        place.store.remove(place.app.uid).await.unwrap();
        assert!(replica.caller(&place.app.id, 5).await.is_none());
    });
}
