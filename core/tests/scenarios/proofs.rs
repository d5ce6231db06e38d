//! Proofs: each call takes a proof of its own action, whoever was judged to have it.

use std::time::Duration;

use rollhook_core::{
    action::Action,
    app::{FullName, Policy, Settings},
    check::{Check, CheckName},
    deploy::{Revision, Ruling},
    lock::PrincipalKey,
    request::{ConfigureRequest, PolicyChange, PromoteRequest, Refusal, RollbackRequest, RunRequest},
    run::RunNumber,
    service::{Authorized, Deployer, NewLock, Outcome},
};

use crate::world::{World, image, registration, request};

/// Does the action by each call that takes it, and returns the refusal of a call that lacks a proof of it.
async fn refused(deployer: &Deployer, access: &Authorized, action: Action) -> Option<Refusal> {
    fn of<T>(outcome: Outcome<T>) -> Option<Refusal> {
        outcome.err().filter(|refusal| matches!(refusal, Refusal::NotAllowed(_)))
    }
    match action {
        Action::Read => of(deployer.webhook_times(access).await),
        Action::Deploy => {
            let looked_up = of(deployer.look_up_image(access, &image("api:v2")).await);
            let deployed = of(deployer.submit(access, request("api:v2")).await);
            assert_eq!(looked_up, deployed);
            deployed
        }
        Action::Rebuild => of(deployer.rebuild(access, None, None).await),
        Action::Promote => {
            let from = FullName {
                project: "shop".parse().unwrap(),
                environment: "prod".parse().unwrap(),
                name: "api".parse().unwrap(),
            };
            of(deployer.promote(access, PromoteRequest::new(from)).await)
        }
        Action::Rollback => of(deployer.rollback(access, RollbackRequest::default()).await),
        Action::Cancel => of(deployer.cancel(access, Revision::FIRST).await),
        Action::Decide => of(deployer.decide(access, Revision::FIRST, Ruling::Pass).await),
        Action::Run => {
            let begun = of(deployer.begin_run(access, RunRequest::new(vec!["true".to_owned()])).await);
            let cancelled = of(deployer.cancel_run(access, RunNumber::FIRST).await);
            assert_eq!(begun, cancelled);
            begun
        }
        Action::ReadConfiguration => of(deployer.configuration(access, None).await),
        Action::Configure => of(deployer.configure(access, ConfigureRequest::default()).await),
        Action::ReleaseHold => of(deployer.release_hold(access).await),
        Action::Lock => {
            let (reason, owner) = ("a freeze".parse().unwrap(), PrincipalKey::of("name", &["alice"]));
            of(deployer.set_lock(access, None, Some(NewLock { reason, owner, ttl: None })).await)
        }
        Action::BreakGlass => of(access.clone().in_spite_of_locks()),
        Action::EnableWebhook => {
            let enabled = of(deployer.enable_webhook(access).await);
            let rotated = of(deployer.rotate_webhook(access, Duration::from_secs(60)).await);
            assert_eq!(enabled, rotated);
            enabled
        }
        Action::ReadToken => of(deployer.webhook(access).await),
        Action::DisableWebhook => of(deployer.disable_webhook(access).await),
        Action::TestCheck => of(deployer.test_check(access, &"front".parse().unwrap()).await),
        Action::Change => {
            let changed = of(deployer.change_policy(access, PolicyChange::default()).await);
            let name: CheckName = "front".parse().unwrap();
            let check = Check::new(name.clone(), "http".parse().unwrap(), Settings::new());
            assert_eq!(changed, of(deployer.set_check(access, check, None).await));
            assert_eq!(changed, of(deployer.remove_check(access, &name).await));
            changed
        }
        Action::Delete => of(deployer.delete(access).await),
    }
}

#[test]
fn each_action_takes_a_proof_of_it_and_of_nothing_else() {
    let world = World::new(Duration::ZERO);
    world.idle(async {
        let access = world.register("api", Policy::default()).await;
        let token = world.deployer.enable_webhook(&access).await.unwrap().token;
        let before = world.deployer.state(&access).await.unwrap();
        for action in Action::ALL.iter().copied() {
            let others: Vec<Action> = Action::ALL.iter().copied().filter(|other| *other != action).collect();
            let proof = world.deployer.allow(world.operator.clone(), access.app(), &others).await.unwrap();
            // Whoever may do anything to an app may read it.
            let expected = (action != Action::Read).then_some(Refusal::NotAllowed(action));
            assert_eq!(refused(&world.deployer, &proof, action).await, expected);
        }
        assert_eq!(world.deployer.state(&access).await.unwrap(), before, "a refused call changes nothing");
        assert_eq!(world.deployer.webhook(&access).await.unwrap().token.expose(), token.expose());
        // Deleting comes last, for nothing is left to act on then.
        let (delete, others): (Vec<_>, Vec<_>) = Action::ALL.iter().partition(|action| **action == Action::Delete);
        for action in others.into_iter().chain(delete).copied() {
            let proof = world.deployer.allow(world.operator.clone(), access.app(), &[action]).await.unwrap();
            assert_eq!(refused(&world.deployer, &proof, action).await, None, "{action}");
        }
    });
}

#[test]
fn holder_of_the_webhooks_token_reads_and_deploys_and_does_nothing_else() {
    let world = World::new(Duration::ZERO);
    world.idle(async {
        let access = world.register("api", Policy::default()).await;
        let ci = world.webhook(&access).await;
        for action in Action::ALL.iter().copied() {
            let is_allowed = matches!(action, Action::Read | Action::Deploy);
            assert_eq!(ci.allows(action), is_allowed, "{action}");
            let expected = (!is_allowed).then_some(Refusal::NotAllowed(action));
            assert_eq!(refused(&world.deployer, &ci, action).await, expected, "{action}");
        }
    });
}

#[test]
fn proof_is_of_one_registration_and_opens_no_later_app_of_that_name() {
    let world = World::new(Duration::ZERO);
    world.idle(async {
        let access = world.register("api", Policy::default()).await;
        world.deployer.delete(&access).await.unwrap();
        let wanted = registration("api", Policy::default()).with(|app| app.take_over = true);
        let again = world.registered(wanted).await;
        assert_ne!(again.uid(), access.uid());
        world.deployer.enable_webhook(&again).await.unwrap();
        assert_eq!(world.deployer.webhook(&access).await.map(drop), Err(Refusal::NoWebhook));
        assert_eq!(world.deployer.webhook_times(&access).await.map(drop), Err(Refusal::NoWebhook));
        let unknown = Refusal::AppNotFound(access.app().clone());
        assert_eq!(world.deploy(&access, "api:v2").await.unwrap_err(), unknown);
        assert_eq!(world.deployer.delete(&access).await.unwrap_err(), unknown);
        let absent = "shop-test/other".parse().unwrap();
        let refused = world.deployer.allow(world.operator.clone(), &absent, Action::ALL).await.unwrap_err();
        assert_eq!(refused, Refusal::AppNotFound(absent));
    });
}
