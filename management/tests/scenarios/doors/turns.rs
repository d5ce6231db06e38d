//! Calls that read many records: one environment's callers hold up no others.

use std::{sync::Arc, time::Duration};

use futures_util::future::{join, join_all};
use rollhook_conformance::{Fault, Faulty, Plan};
use rollhook_core::ports::Clock;
use rollhook_management::{
    Management, Ports, Refusal,
    access::{Grant, NewApiToken, Realm, Role},
    locks::NewLock,
    ports::RecordKind,
};

use super::{ada, begin_earlier, is_unauthorized, let_people_in, world};
use crate::world::{
    ManagedWorld,
    actions::{realm, token},
};

const SECOND: Duration = Duration::from_secs(1);

/// A replica whose calls of the records meet the faults of a plan.
fn planned(world: &ManagedWorld, seed: u64, plan: Plan) -> Arc<Management> {
    let records = Faulty::new(world.records(), Arc::clone(&world.clock) as Arc<dyn Clock>, plan);
    let management = world.managed(world.replica(&format!("replica-{seed}"), seed), Ports::new(Arc::new(records)));
    let_people_in(&management);
    management
}

/// A replica whose store takes a second for each page of records.
fn slow(world: &ManagedWorld) -> Arc<Management> {
    slow_replica(world, 7)
}

fn slow_replica(world: &ManagedWorld, seed: u64) -> Arc<Management> {
    planned(world, seed, Arc::new(|call| if call == "records.list" { Fault::Late(SECOND) } else { Fault::None }))
}

/// Begins a session of a new token of a realm.
async fn session(management: &Management, world: &ManagedWorld, name: &str, realm: Realm) -> String {
    let wanted = NewApiToken { name: name.parse().unwrap(), grant: Grant { role: Role::Viewer, realm }, ttl: None };
    let text = world.management.create_api_token(&world.operator, wanted).await.unwrap().1;
    management.begin_session(text.expose().as_bytes(), None).await.unwrap().0.to_string()
}

#[test]
fn sign_outs_everywhere_of_one_environments_tokens_hold_up_no_other_caller() {
    let world = world();
    let management = slow(&world);
    world.idle(async {
        let mut sessions = Vec::new();
        for number in 0..8 {
            sessions.push(session(&management, &world, &format!("eve-{number}"), realm("shop", "test")).await);
        }
        sessions.push(session(&management, &world, "ada", realm("blog", "test")).await);
        let person = management.begin_person_session(ada()).await.unwrap().to_string();
        sessions.push(person);
        let begun = world.clock.elapsed();
        let seconds = || (world.clock.elapsed() - begun).as_secs();
        let sign_out = async |session: &String| {
            management.end_sessions_like(session).await.unwrap();
            seconds()
        };
        let lists = async {
            management.api_tokens(&world.operator).await.unwrap();
            seconds()
        };
        let (ended, listed) = join(join_all(sessions.iter().map(sign_out)), lists).await;
        assert_eq!(ended, [1, 1, 2, 2, 3, 3, 4, 4, 1, 1], "two at once of the environment");
        assert_eq!(listed, 1, "a list of tokens waits for none of them");
    });
}

#[test]
fn sign_outs_everywhere_of_revoked_tokens_are_those_of_one_caller() {
    let world = world();
    let management = slow(&world);
    world.idle(async {
        let mut sessions = Vec::new();
        for number in 0..6 {
            let name = format!("eve-{number}");
            sessions.push(session(&management, &world, &name, realm("shop", "test")).await);
            world.management.revoke_api_token(&world.operator, &name.parse().unwrap()).await.unwrap();
            assert!(is_unauthorized(management.session(&sessions[number]).await));
        }
        sessions.push(session(&management, &world, "ada", realm("blog", "test")).await);
        let begun = world.clock.elapsed();
        let sign_out = async |session: &String| {
            management.end_sessions_like(session).await.unwrap();
            (world.clock.elapsed() - begun).as_secs()
        };
        assert_eq!(join_all(sessions.iter().map(sign_out)).await, [1, 1, 2, 2, 3, 3, 1]);
    });
}

#[test]
fn sign_out_everywhere_that_failed_can_be_repeated() {
    let world = world();
    let management =
        planned(&world, 7, Arc::new(|call| if call == "records.list" { Fault::Before } else { Fault::None }));
    world.idle(async {
        begin_earlier(&world, "earlier").await;
        let new = world.management.begin_person_session(ada()).await.unwrap();
        assert!(management.end_sessions_like(&new).await.is_err());
        assert!(world.management.session(&new).await.is_ok(), "the caller is signed in, and can call again");
        world.management.end_sessions_like(&new).await.unwrap();
        for secret in ["earlier", &new] {
            assert!(is_unauthorized(world.management.session(secret).await));
        }
    });
}

#[test]
fn locks_of_environments_are_listed_in_turns() {
    let world = world();
    let management = slow(&world);
    world.idle(async {
        let wanted = NewLock { reason: "no deploys".parse().unwrap(), ttl: None };
        let (project, environment) = ("shop".parse().unwrap(), "test".parse().unwrap());
        world.management.lock_environment(&world.operator, &project, &environment, wanted).await.unwrap();
        let text = world.management.create_api_token(&world.operator, token("eve", Role::Viewer)).await.unwrap().1;
        let eve = management.authenticate(text.expose().as_bytes(), None).await.unwrap();
        let begun = world.clock.elapsed();
        let listed = async |who| {
            assert_eq!(management.environment_locks(who).await.unwrap().len(), 1);
            (world.clock.elapsed() - begun).as_secs()
        };
        let callers = [&eve; 6].into_iter().chain([&world.operator]);
        assert_eq!(join_all(callers.map(listed)).await, [1, 1, 2, 2, 3, 3, 1]);
    });
}

#[test]
fn calls_that_make_tokens_take_turns_of_the_environments() {
    let world = world();
    let management = slow(&world);
    world.idle(async {
        let mut admins = Vec::new();
        for (name, environment) in [("eve", "test"), ("ada", "prod")] {
            let grant = Grant { role: Role::Admin, realm: realm("shop", environment) };
            let wanted = NewApiToken { name: name.parse().unwrap(), grant, ttl: None };
            let text = world.management.create_api_token(&world.operator, wanted).await.unwrap().1;
            admins.push((management.authenticate(text.expose().as_bytes(), None).await.unwrap(), environment));
        }
        let begun = world.clock.elapsed();
        let make = async |number: usize| {
            let (who, environment) = &admins[number / 10];
            let grant = Grant { role: Role::Viewer, realm: realm("shop", environment) };
            let wanted = NewApiToken { name: format!("of-{number}").parse().unwrap(), grant, ttl: None };
            management.create_api_token(who, wanted).await.unwrap();
            (world.clock.elapsed() - begun).as_secs()
        };
        let made = join_all((0..11).map(make)).await;
        assert!(made[10] <= 4 && made[9] >= 10, "{made:?}");
    });
}

#[test]
fn of_tokens_that_two_replicas_make_under_one_name_the_older_one_stays() {
    let world = world();
    let management = slow(&world);
    let other = slow_replica(&world, 8);
    world.idle(async {
        for number in 0..250 {
            let name = format!("token-{number}");
            let grant = Grant { role: Role::Viewer, realm: realm(&format!("shop-{}", number % 5), "test") };
            let wanted = NewApiToken { name: name.parse().unwrap(), grant, ttl: None };
            world.management.create_api_token(&world.operator, wanted).await.unwrap();
            world.clock.sleep(SECOND).await;
        }
        let wanted = "token-of-both";
        let make = |management: Arc<Management>| {
            let operator = world.operator.clone();
            async move { management.create_api_token(&operator, token(wanted, Role::Viewer)).await.map(drop) }
        };
        let (one, two) = join(make(management), make(other)).await;
        assert!(one.is_ok() != two.is_ok(), "{one:?} {two:?}");
        let refused = one.and(two).unwrap_err();
        assert_eq!(refused, Refusal::TokenExists(wanted.parse().unwrap()));
        let kept = world.records().list(RecordKind::ApiToken, None, 1_000).await.unwrap();
        assert_eq!(kept.len(), 251);
    });
}
