//! The cost of callers without a valid token, counted by a fake API server.

mod world;

use std::time::Duration;

use rollhook_core::{Error, Result, app::AppUid, error::Entity, ports::WebhookSecret};
use serde_json::json;

use super::{Registered, Secrets, object};
pub(crate) use world::{HandClock, registered, ring, token};
use world::{World, another_ring};

const SECRET: &str = "GET shop-test/secrets/api-webhook";
const APP: &str = "GET app shop-test/api";

/// A caller who presents this token.
async fn caller(world: &World, secrets: &Secrets, presented: u8) -> Result<Option<WebhookSecret>> {
    caller_of(world, secrets, "shop-test/api", presented).await
}

async fn caller_of(world: &World, secrets: &Secrets, app: &str, presented: u8) -> Result<Option<WebhookSecret>> {
    let presented = token(presented);
    let fits = |stored: Option<&WebhookSecret>| {
        stored.is_some_and(|stored| stored.token.matches(presented.expose().as_bytes()))
    };
    secrets.find_fitting(world, &app.parse().unwrap(), &fits).await
}

async fn refused(world: &World, secrets: &Secrets, presented: u8, times: usize) {
    for _ in 0..times {
        assert!(caller(world, secrets, presented).await.unwrap().is_none());
    }
}

/// An app with token 1, which its watch has seen.
async fn enabled() -> (World, Secrets) {
    let world = World::default();
    let secrets = world.secrets();
    world.register(registered(1, None));
    secrets.put(&world, AppUid::from_bits(1), &token(1)).await.unwrap();
    world.watch();
    world.calls();
    (world, secrets)
}

#[tokio::test]
async fn callers_without_a_valid_token_cost_one_call_per_second() {
    let (world, secrets) = enabled().await;
    caller(&world, &secrets, 1).await.unwrap().unwrap();
    assert_eq!(world.calls(), [SECRET], "a good token is read");
    for _ in 0..3 {
        world.clock.advance(Duration::from_millis(999));
        refused(&world, &secrets, 9, 200).await;
        assert!(world.calls().is_empty(), "no read within the second");
        world.clock.advance(Duration::from_millis(1));
        refused(&world, &secrets, 9, 200).await;
        assert_eq!(world.calls(), [SECRET], "then one of 200 is");
    }
}

#[tokio::test]
async fn callers_of_unknown_apps_cost_one_call_per_second() {
    let world = World::default();
    let secrets = world.secrets();
    refused(&world, &secrets, 1, 200).await;
    assert_eq!(world.calls(), [APP]);
    world.clock.advance(Duration::from_secs(1));
    refused(&world, &secrets, 1, 200).await;
    assert_eq!(world.calls(), [APP]);
}

#[tokio::test]
async fn a_replica_that_has_just_begun_reads_each_token_once() {
    let (world, _) = enabled().await;
    let replica = world.secrets();
    let callers = (0..50).map(|_| caller(&world, &replica, 9));
    futures_util::future::join_all(callers).await;
    let calls = world.calls();
    assert!(calls.len() <= 3 && calls.iter().all(|call| call == SECRET), "{calls:?}");
    refused(&world, &replica, 9, 50).await;
    assert!(world.calls().is_empty());
    caller(&world, &replica, 1).await.unwrap().unwrap();
    assert_eq!(world.calls(), [SECRET], "a good token is let in whatever the budget");
}

#[tokio::test]
async fn a_replica_that_has_just_begun_reads_a_few_apps_tokens_at_a_time() {
    let world = World::default();
    let names: Vec<String> = (0..40).map(|number| format!("shop-test/app-{number}")).collect();
    for (uid, name) in (1..).zip(&names) {
        world.register(Registered { id: name.parse().unwrap(), ..registered(uid, None) });
        world.secrets().put(&world, AppUid::from_bits(uid), &token(1)).await.unwrap();
    }
    world.watch();
    let replica = world.secrets();
    world.calls();
    let wrong = names.iter().map(|name| caller_of(&world, &replica, name, 9));
    let (wrong, good) =
        futures_util::join!(futures_util::future::join_all(wrong), caller_of(&world, &replica, "shop-test/app-39", 1));
    assert!(wrong.into_iter().all(|outcome| outcome.unwrap().is_none()));
    assert!(good.unwrap().is_some(), "a good one waits for its turn");
    assert_eq!(world.calls().len(), names.len(), "each is read once, for all who wait");
    assert_eq!(world.state.lock().unwrap().flew, super::FIRST_READS);
}

#[tokio::test]
async fn callers_that_hang_up_cost_one_read() {
    let (world, _) = enabled().await;
    let replica = world.secrets();
    for _ in 0..50 {
        assert!(futures_util::poll!(Box::pin(caller(&world, &replica, 9))).is_pending(), "it hangs up");
    }
    let remembered = || {
        let app = registered(1, Some(&world.state.lock().unwrap().stored.values().next()?.webhook.clone()?));
        Some(matches!(replica.memory.slot(&app.id).recall(&app, Duration::ZERO), super::Recall::Token(Some(_))))
    };
    while remembered() != Some(true) {
        tokio::task::yield_now().await;
    }
    refused(&world, &replica, 9, 50).await;
    assert_eq!(world.calls(), [SECRET]);
}

#[tokio::test]
async fn token_that_could_not_be_read_is_read_again_without_budget() {
    let (world, _) = enabled().await;
    let replica = world.secrets();
    world.away(true);
    assert!(caller(&world, &replica, 1).await.unwrap_err().is_unavailable());
    world.away(false);
    world.clock.advance(Duration::from_secs(1));
    assert!(caller_of(&world, &replica, "shop-test/unknown", 9).await.unwrap().is_none(), "it takes the budget");
    caller(&world, &replica, 1).await.unwrap().unwrap();
}

#[tokio::test]
async fn an_old_token_is_refused_at_once_though_it_is_remembered() {
    let (world, one) = enabled().await;
    let two = world.secrets();
    caller(&world, &two, 1).await.unwrap().unwrap();
    one.put(&world, AppUid::from_bits(1), &token(2)).await.unwrap();
    refused(&world, &two, 1, 1).await;
    one.remove(&world, AppUid::from_bits(1)).await.unwrap();
    refused(&world, &two, 2, 1).await;
    refused(&world, &two, 1, 1).await;
}

#[tokio::test]
async fn token_of_another_replica_is_let_in_once_the_watch_shows_it() {
    let (world, one) = enabled().await;
    let two = world.secrets();
    caller(&world, &two, 1).await.unwrap().unwrap();
    one.put(&world, AppUid::from_bits(1), &token(2)).await.unwrap();
    // The budget is spent by others, so that nothing but the watch can tell.
    refused(&world, &two, 9, 2).await;
    world.watch();
    caller(&world, &two, 2).await.unwrap().unwrap();
}

#[tokio::test]
async fn refusal_from_memory_waits_for_the_watch() {
    let (world, one) = enabled().await;
    let two = world.secrets_by(world.clock.clock().lagging(Duration::from_millis(20)));
    caller(&world, &two, 1).await.unwrap().unwrap();
    refused(&world, &two, 9, 2).await;
    one.put(&world, AppUid::from_bits(1), &token(2)).await.unwrap();
    // Their first look is over, and finds nothing, before the watch tells.
    let (opened, ()) = futures_util::join!(caller(&world, &two, 2), async { world.watch() });
    opened.unwrap().unwrap();
    refused(&world, &two, 9, 1).await;
}

#[tokio::test]
async fn a_token_is_let_in_though_the_watch_lags_behind() {
    let world = World::default();
    let (one, two) = (world.secrets(), world.secrets());
    world.register(registered(1, None));
    one.put(&world, AppUid::from_bits(1), &token(1)).await.unwrap();
    caller(&world, &two, 1).await.unwrap().unwrap();
    world.watch();
    one.put(&world, AppUid::from_bits(1), &token(2)).await.unwrap();
    world.clock.advance(Duration::from_secs(1));
    caller(&world, &two, 2).await.unwrap().unwrap();
}

#[tokio::test]
async fn unavailable_store_is_called_once_per_second_for_unknown_callers() {
    let (world, _) = enabled().await;
    let replica = world.secrets();
    world.away(true);
    for _ in 0..50 {
        assert!(caller(&world, &replica, 9).await.unwrap_err().is_unavailable());
    }
    let calls = world.calls();
    assert!(calls.len() <= 2, "{calls:?}");
    world.away(false);
    world.clock.advance(Duration::from_secs(1));
    caller(&world, &replica, 1).await.unwrap().unwrap();
}

#[tokio::test]
async fn token_of_an_earlier_app_is_refused_and_replaced() {
    let (world, secrets) = enabled().await;
    world.register(registered(2, None));
    world.watch();
    world.clock.advance(Duration::from_secs(1));
    refused(&world, &secrets, 1, 1).await;
    assert!(secrets.find(&world, &"shop-test/api".parse().unwrap()).await.unwrap().is_none());
    let late = secrets.put(&world, AppUid::from_bits(1), &token(3)).await;
    assert!(matches!(late, Err(Error::NotFound(Entity::App))), "{late:?}");
    secrets.put(&world, AppUid::from_bits(2), &token(2)).await.unwrap();
    world.watch();
    let opened = caller(&world, &secrets, 2).await.unwrap().unwrap();
    assert_eq!(opened.app, AppUid::from_bits(2));
}

#[tokio::test]
async fn secret_of_another_maker_stays() {
    let world = World::default();
    let secrets = world.secrets();
    world.register(registered(1, None));
    world.watch();
    let theirs = json!({"metadata": {"name": "api-webhook", "namespace": "shop-test"}, "data": {}});
    let path = "shop-test/secrets/api-webhook";
    world.state.lock().unwrap().secrets.insert(path.to_owned(), theirs.clone());
    let told = secrets.put(&world, AppUid::from_bits(1), &token(1)).await.unwrap_err().to_string();
    assert!(told.contains("kubectl delete secret api-webhook "), "{told}");
    secrets.remove(&world, AppUid::from_bits(1)).await.unwrap();
    assert_eq!(world.state.lock().unwrap().secrets[path], theirs);
    assert_eq!(object::name(&registered(1, None).id), "api-webhook");
}

#[tokio::test]
async fn token_that_cannot_be_opened_is_refused_as_an_unknown_app_is() {
    let (world, _) = enabled().await;
    let replica = world.secrets_with(world.clock.clock(), another_ring());
    for _ in 0..3 {
        refused(&world, &replica, 1, 2).await;
        assert!(caller_of(&world, &replica, "shop-test/unknown", 1).await.unwrap().is_none());
        world.clock.advance(Duration::from_secs(1));
    }
    let told = replica.find(&world, &"shop-test/api".parse().unwrap()).await;
    assert!(matches!(told, Err(Error::Denied { .. })), "who manages it is told why: {told:?}");
}

#[tokio::test]
async fn outage_is_told_to_callers_of_known_and_unknown_apps_alike() {
    let (world, secrets) = enabled().await;
    let fresh = world.secrets();
    caller(&world, &secrets, 1).await.unwrap().unwrap();
    world.clock.advance(Duration::from_secs(1));
    world.away(true);
    for replica in [&secrets, &fresh] {
        for _ in 0..20 {
            for app in ["shop-test/api", "shop-test/unknown"] {
                let told = caller_of(&world, replica, app, 9).await;
                assert!(told.is_err_and(|error| error.is_unavailable()), "{app}");
            }
            world.clock.advance(Duration::from_millis(150));
        }
    }
    world.away(false);
    world.clock.advance(Duration::from_secs(1));
    for app in ["shop-test/unknown", "shop-test/api"] {
        assert!(caller_of(&world, &secrets, app, 9).await.unwrap().is_none(), "{app}");
    }
}

#[tokio::test]
async fn first_caller_of_an_app_is_refused_no_sooner_than_one_of_an_unknown_name() {
    let (world, _) = enabled().await;
    let replica = world.secrets_by(world.clock.clock().lagging(Duration::from_secs(3600)));
    assert!(caller_of(&world, &replica, "shop-test/takes-the-budget", 9).await.unwrap().is_none());
    for app in ["shop-test/unknown", "shop-test/api", "shop-test/api"] {
        let mut call = Box::pin(caller_of(&world, &replica, app, 9));
        for _ in 0..500 {
            assert!(futures_util::poll!(call.as_mut()).is_pending(), "{app}");
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(world.calls(), ["GET app shop-test/takes-the-budget", SECRET], "all that they waited for was done");
}
