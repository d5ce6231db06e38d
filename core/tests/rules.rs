//! The rules of deploying, each as a scenario on the whole engine under simulated time.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on ends")]

mod world;

use std::time::Duration;

use rollhook_core::{
    app::{AppUid, OnFailure, Policy},
    decide::target::rollback,
    deploy::{Actor, AdmissionId, Deploy, Origin, Reason, Revision, State, Status, Trigger},
    ports::{Admission, History, HistoryExt, Record},
    request::{Cause, DeployRequest, IdempotencyKey, KeyHeader, PolicyChange, Refusal, RollbackRequest},
    token::Credentials,
};
use rollhook_memory::Script;
use world::{World, hold_all, image, leave, registration, request, statuses, tag};

const SECOND: Duration = Duration::from_secs(1);

fn api(tag: &str) -> String {
    format!("registry.example.com/api:{tag}")
}

fn reason(deploy: &Deploy) -> (String, String) {
    match &deploy.state {
        State::Failed { reason, message, .. } | State::Cancelled { reason, message } => {
            (reason.to_string(), message.clone())
        }
        State::Queued
        | State::Building { .. }
        | State::RollingOut { .. }
        | State::Succeeded { .. }
        | State::Superseded { .. } => panic!("{:?} has no reason", deploy.state),
    }
}

#[test]
fn a_deploy_succeeds_once_it_was_observed_and_settled() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let begun = world.view(&access).await.now;
        let done = world.deployed(&access, &api("v2")).await;
        assert_eq!(done.status(), Status::Succeeded);
        assert!(done.updated_at.since(begun) >= Duration::from_secs(11), "rollout and settle");
        assert!(done.digest.is_some());
        let view = world.view(&access).await;
        assert_eq!(view.current.as_ref().map(|d| d.revision.get()), Some(2));
        assert_eq!(view.current, view.on_cluster);
        assert_eq!(statuses(&world.quiet(&access).await), [(1, Status::Succeeded), (2, Status::Succeeded)]);
        assert_eq!(world.effects(), [1, 2]);
    });
}

#[test]
fn nothing_before_the_token_and_a_token_opens_one_app() {
    let world = World::new(SECOND);
    world.run(async {
        let api = world.app("api", Policy::default()).await;
        let web = world.app("web", Policy::default()).await;
        let secret = world.deployer.enable_webhook(&world.operator, api.app()).await.unwrap();
        let other = world.deployer.enable_webhook(&world.operator, web.app()).await.unwrap();
        let with = |text: &str| Credentials {
            token: Some(Ok(zeroize::Zeroizing::new(text.as_bytes().to_vec()))),
            signature: None,
        };
        let try_ = async |id: &str, credentials: Credentials| {
            world.deployer.authorize(&id.parse().unwrap(), &credentials, b"{}").await.map(|access| access.uid())
        };
        let denied = Err(Refusal::Unauthorized);
        assert_eq!(try_("shop-test/api", with(secret.token.expose())).await, Ok(api.uid()));
        assert_eq!(try_("shop-test/api", with(other.token.expose())).await, denied);
        assert_eq!(try_("shop-test/api", with("nonsense")).await, denied);
        assert_eq!(try_("shop-test/api", Credentials::default()).await, denied);
        assert_eq!(try_("shop-test/none", with(secret.token.expose())).await, denied);
        assert_eq!(try_("shop-prod/api", with(secret.token.expose())).await, denied);
        // Enable regenerates.
        let renewed = world.deployer.enable_webhook(&world.operator, api.app()).await.unwrap();
        assert_eq!(try_("shop-test/api", with(secret.token.expose())).await, denied);
        assert_eq!(try_("shop-test/api", with(renewed.token.expose())).await, Ok(api.uid()));
        world.deployer.disable_webhook(&world.operator, api.app()).await.unwrap();
        assert_eq!(try_("shop-test/api", with(renewed.token.expose())).await, denied);
    });
}

#[test]
fn an_old_version_that_is_healthy_is_never_the_new_ones_success() {
    let world = World::new(SECOND);
    world.cluster.script("hang", Script::hangs());
    world.run(async {
        let access = world.app("api", leave()).await;
        let failed = world.deployed(&access, &api("hang")).await;
        assert_eq!(failed.status(), Status::Failed);
        let (code, message) = reason(&failed);
        assert_eq!(code, "rollout-deadline-exceeded");
        assert!(message.contains("600 s"), "{message}");
        let view = world.view(&access).await;
        assert_eq!(view.current.unwrap().revision.get(), 1);
        assert_eq!(view.on_cluster.unwrap().revision.get(), 2);
    });
}

#[test]
fn a_container_that_dies_while_it_settles_is_no_success() {
    let world = World::new(SECOND);
    world.cluster.script("dies", Script::dies_after(Duration::from_secs(3)));
    world.run(async {
        let access = world.app("api", leave()).await;
        let failed = world.deployed(&access, &api("dies")).await;
        assert_eq!(failed.status(), Status::Failed);
    });
}

#[test]
fn trouble_is_given_a_grace_and_then_named_with_its_evidence() {
    let world = World::new(SECOND);
    world.cluster.script("flaky", Script::missing().healing_after(Duration::from_secs(5)));
    world.run(async {
        let access = world.app("api", leave()).await;
        assert_eq!(world.deployed(&access, &api("flaky")).await.status(), Status::Succeeded);
        let failed = world.deployed(&access, &api("missing")).await;
        let State::Failed { reason, message, evidence } = failed.state else { panic!("{:?}", failed.state) };
        assert_eq!(reason.as_str(), "ImagePullBackOff");
        assert!(!message.is_empty());
        assert_eq!(evidence.unwrap().container.as_deref(), Some("api"));
    });
}

#[test]
fn a_failed_rollout_is_put_right_once() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.deployed(&access, &api("v2")).await;
        world.deployed(&access, &api("missing")).await;
        let history = world.quiet(&access).await;
        assert_eq!(
            statuses(&history),
            [(1, Status::Succeeded), (2, Status::Succeeded), (3, Status::Failed), (4, Status::Succeeded)]
        );
        let restore = &history[3];
        assert!(restore.is_restore());
        assert_eq!(restore.from, Some(Origin::Revision(Revision::new(2).unwrap())));
        assert_eq!(restore.effective.get(), 2);
        assert_eq!(tag(restore), "v2");
        assert!(world.view(&access).await.app.holds.is_empty(), "a restore holds nothing");
    });
}

#[test]
fn what_was_superseded_by_one_that_never_got_to_the_cluster_is_put_right() {
    let world = World::new(SECOND);
    world.cluster.script("hang", Script::hangs());
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let hung = world.deploy(&access, &api("hang")).await.unwrap().deploy.revision;
        world.sleep(2).await;
        let back = world.rollback(&access).await.unwrap().deploy.revision;
        world.deployer.cancel(&world.operator, access.app(), back).await.unwrap();
        let history = world.quiet(&access).await;
        assert!(matches!(history[1].state, State::Superseded { .. }), "revision {hung}");
        assert_eq!(history.last().unwrap().status(), Status::Succeeded);
        assert!(history.last().unwrap().is_restore());
    });
}

#[test]
fn a_restore_that_fails_is_not_restored_again() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.deploy(&access, &api("missing")).await.unwrap();
        world.sleep(8).await;
        world.cluster.script("api:v1", Script::crashes());
        let history = world.quiet(&access).await;
        assert_eq!(statuses(&history), [(1, Status::Succeeded), (2, Status::Failed), (3, Status::Failed)]);
        world.sleep(3600).await;
        assert_eq!(world.history(&access).await.len(), 3);
    });
}

#[test]
fn a_restore_that_gave_way_to_a_deploy_that_never_ran_is_made_again() {
    let world = World::new(SECOND);
    world.cluster.script("crash", Script::crashes());
    let write = async |changes: Vec<Deploy>, app| {
        world.store.record(Record { app, claim: None, changes, lift: Vec::new(), rest: false }).await.unwrap();
    };
    let access = world.run(async {
        let access = world.app("api", leave()).await;
        assert_eq!(world.deployed(&access, &api("crash")).await.status(), Status::Failed);
        let change = PolicyChange { on_failure: Some(OnFailure::Restore), ..PolicyChange::default() };
        world.deployer.change_policy(&world.operator, access.app(), change).await.unwrap();
        access
    });
    world.idle(async {
        // As a slow engine leaves it: the restore has not begun when a deploy comes, and somebody cancels that one.
        let view = world.view(&access).await;
        let cause = Cause { trigger: Trigger::Rollback, actor: Actor::auto() };
        let draft = rollback(&view.current.unwrap(), &cause).unwrap();
        let (app, id, guard) = (access.uid(), AdmissionId(9), view.app.guard);
        let admission = Admission { app, id, key: None, draft, guard, after: None, supersede: false, hold: None };
        world.store.admit(admission).await.unwrap();
        let next = world.deploy(&access, &api("v4")).await.unwrap().deploy;
        let gave_way = State::Superseded { by: next.revision, rollback: false };
        write(vec![world.entry(&access, 3).await.moved(gave_way)], access.uid()).await;
        world.deployer.cancel(&world.operator, access.app(), next.revision).await.unwrap();
    });
    let history = world.run(world.quiet(&access));
    assert_eq!(statuses(&history[2..]), [(3, Status::Superseded), (4, Status::Cancelled), (5, Status::Succeeded)]);
    assert!(history[4].is_restore());
}

#[test]
fn without_a_version_to_return_to_the_entry_says_so() {
    let world = World::new(SECOND);
    world.run(async {
        let mut wanted = registration("api", Policy::default());
        wanted.image = Some(image(&api("missing")));
        let app = world.deployer.register(&world.operator, wanted, None).await.unwrap().app;
        let access = world.deployer.open(&world.operator, &app.id).await.unwrap();
        let failed = world.ended(&access, 1).await;
        assert!(reason(&failed).1.contains("nothing to restore"), "{:?}", reason(&failed));
        assert_eq!(world.quiet(&access).await.len(), 1);
        let refused = world.rollback(&access).await.unwrap_err();
        assert!(matches!(refused, Refusal::NothingToRollBackTo(_)));
        assert_eq!(world.quiet(&access).await.len(), 1, "nothing is recorded");
    });
}

#[test]
fn only_the_highest_rolls_out_and_every_other_ends() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let deploys = (0..50).map(|n| world.deployer.submit(&access, request(&api(&format!("n{n}")))));
        let accepted = futures_util::future::join_all(deploys).await;
        let mut revisions: Vec<u64> = accepted.iter().map(|a| a.as_ref().unwrap().deploy.revision.get()).collect();
        revisions.sort_unstable();
        assert_eq!(revisions, (2..=51).collect::<Vec<_>>());
        let history = world.quiet(&access).await;
        assert_eq!(history.len(), 51);
        assert_eq!(history[50].status(), Status::Succeeded);
        assert!(history[1..50].iter().all(|d| matches!(d.status(), Status::Superseded | Status::Succeeded)));
        let effects = world.effects();
        assert!(effects.is_sorted(), "{effects:?}");
        assert_eq!(effects.last(), Some(&51));
    });
}

#[test]
fn a_rollout_without_progress_gives_way_and_one_with_progress_does_not() {
    let world = World::new(SECOND);
    world.cluster.script("hang", Script::hangs());
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let hung = world.deploy(&access, &api("hang")).await.unwrap().deploy.revision.get();
        world.sleep(2).await;
        let begun = world.view(&access).await.now;
        let next = world.deployed(&access, &api("v3")).await;
        assert_eq!(next.status(), Status::Succeeded);
        let gave_way = world.entry(&access, hung).await;
        assert_eq!(gave_way.state, State::Superseded { by: next.revision, rollback: false });
        let waited = gave_way.updated_at.since(begun);
        assert!(waited >= Duration::from_secs(5) && waited <= Duration::from_secs(12), "{waited:?}");
    });
}

#[test]
fn a_rollout_that_settles_is_not_without_progress() {
    for settle in [10, 60] {
        let world = World::new(SECOND);
        world.run(async {
            let policy = Policy { settle: Duration::from_secs(settle), ..Policy::default() };
            let access = world.app("api", policy).await;
            let good = world.deploy(&access, &api("v2")).await.unwrap().deploy.revision.get();
            world.sleep(3).await;
            let next = world.deploy(&access, &api("v3")).await.unwrap().deploy.revision.get();
            assert_eq!(world.ended(&access, good).await.status(), Status::Succeeded, "settle {settle} s");
            assert_eq!(world.ended(&access, next).await.status(), Status::Succeeded, "settle {settle} s");
        });
    }
}

#[test]
fn a_rollback_never_waits_and_supersedes_what_is_unfinished() {
    let world = World::new(SECOND);
    world.cluster.script("hang", Script::hangs());
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.deploy(&access, &api("hang")).await.unwrap();
        world.sleep(2).await;
        world.deploy(&access, &api("v3")).await.unwrap();
        let begun = world.view(&access).await.now;
        let accepted = world.rollback(&access).await.unwrap();
        let listed: Vec<u64> = accepted.superseded.iter().map(|r| r.get()).collect();
        assert_eq!(listed, [2, 3]);
        assert_eq!(accepted.deploy.from, Some(Origin::Revision(Revision::FIRST)));
        let done = world.ended(&access, 4).await;
        assert_eq!(done.status(), Status::Succeeded);
        assert!(done.updated_at.since(begun) < Duration::from_secs(13));
        assert_eq!(world.entry(&access, 3).await.state, State::Superseded { by: done.revision, rollback: true });
        let waited = world.deployer.wait(&access, Revision::new(3).unwrap(), SECOND).await.unwrap();
        assert_eq!(waited.superseded_by, None, "a rollback is not followed");
    });
}

#[test]
fn from_a_bad_deploy_back_to_the_version_before_and_twice_goes_two_back() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", leave()).await;
        world.deployed(&access, &api("v2")).await;
        world.deployed(&access, &api("v3")).await;
        assert_eq!(world.deployed(&access, &api("missing")).await.status(), Status::Failed);
        let first = world.rolled_back(&access).await;
        assert_eq!((tag(&first).as_str(), first.effective.get()), ("v3", 3));
        let second = world.rolled_back(&access).await;
        assert_eq!((tag(&second).as_str(), second.effective.get()), ("v2", 2));
        let third = world.rolled_back(&access).await;
        assert_eq!((tag(&third).as_str(), third.effective.get()), ("v1", 1));
        assert!(matches!(world.rollback(&access).await, Err(Refusal::NothingToRollBackTo(_))));
        assert_eq!(world.quiet(&access).await.len(), 7);
    });
}

#[test]
fn a_rollback_on_its_way_is_asked_for_again_and_a_failed_one_goes_further_back() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", leave()).await;
        world.deployed(&access, &api("v2")).await;
        world.deployed(&access, &api("v3")).await;
        world.rollback(&access).await.unwrap();
        world.sleep(3).await;
        let again = world.rollback(&access).await.unwrap();
        assert_eq!((tag(&again.deploy).as_str(), again.deploy.effective.get()), ("v2", 2));
        assert_eq!(world.ended(&access, 5).await.status(), Status::Succeeded);
        world.deployed(&access, &api("v4")).await;
        world.cluster.script("api:v2", Script::crashes());
        let failed = world.rolled_back(&access).await;
        assert_eq!((failed.status(), failed.effective.get()), (Status::Failed, 2));
        let further = world.rolled_back(&access).await;
        assert_eq!((tag(&further).as_str(), further.status()), ("v1", Status::Succeeded));
    });
}

#[test]
fn two_people_on_call_do_not_go_two_versions_back() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.deployed(&access, &api("v2")).await;
        world.deployed(&access, &api("v3")).await;
        let wish = RollbackRequest { if_current: Revision::new(3), ..RollbackRequest::default() };
        let first = world.deployer.rollback(&world.operator, access.app(), wish.clone()).await.unwrap();
        world.ended(&access, first.deploy.revision.get()).await;
        let second = world.deployer.rollback(&world.operator, access.app(), wish).await.unwrap_err();
        assert_eq!(second, Refusal::CurrentChanged { expected: Revision::new(3).unwrap(), current: Revision::new(4) });
    });
}

#[test]
fn rollback_to_a_revision_takes_any_that_has_an_image() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", leave()).await;
        world.deployed(&access, &api("v2")).await;
        let to = |n| RollbackRequest { revision: Revision::new(n), ..RollbackRequest::default() };
        let done = world.deployer.rollback(&world.operator, access.app(), to(1)).await.unwrap();
        assert_eq!(tag(&world.ended(&access, done.deploy.revision.get()).await), "v1");
        let none = world.deployer.rollback(&world.operator, access.app(), to(99)).await.unwrap_err();
        assert_eq!(none, Refusal::RevisionNotFound(Revision::new(99).unwrap()));
    });
}

#[test]
fn rollback_sticks_where_the_policy_says_all_and_ci_decides_by_default() {
    let world = World::new(SECOND);
    world.run(async {
        let held = world.app("held", hold_all()).await;
        let open = world.app("open", Policy::default()).await;
        for access in [&held, &open] {
            world.deployed(access, &api("v2")).await;
            world.rolled_back(access).await;
        }
        let ci = world.webhook(held.app()).await;
        let refused = world.deployer.submit(&ci, request(&api("v2"))).await.unwrap_err();
        let Refusal::ImageHeld { by, .. } = &refused else { panic!("{refused:?}") };
        assert_eq!(by.get(), 3);
        assert!(refused.to_string().contains("release-hold"));
        assert_eq!(world.quiet(&held).await.len(), 3, "nothing is recorded");
        world.deployer.release_hold(&world.operator, held.app()).await.unwrap();
        assert!(world.deployer.submit(&ci, request(&api("v2"))).await.is_ok());

        let ci = world.webhook(open.app()).await;
        let accepted = world.deployer.submit(&ci, request(&api("v2"))).await.unwrap();
        assert_eq!(world.ended(&open, accepted.deploy.revision.get()).await.status(), Status::Succeeded);
        assert_eq!(world.view(&open).await.app.holds.len(), 1, "only a person lifts it");
        world.deployed(&open, &api("v2")).await;
        assert!(world.view(&open).await.app.holds.is_empty());
    });
}

#[test]
fn what_runs_after_a_rollback_that_failed_is_not_held() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", hold_all()).await;
        world.deployed(&access, &api("v2")).await;
        world.cluster.script("api:v1", Script::crashes());
        assert_eq!(world.rolled_back(&access).await.status(), Status::Failed);
        let history = world.quiet(&access).await;
        assert_eq!(tag(history.last().unwrap()), "v2");
        assert!(world.view(&access).await.app.holds.is_empty());
        let ci = world.webhook(access.app()).await;
        assert!(world.deployer.submit(&ci, request(&api("v2"))).await.is_ok());
    });
}

#[test]
fn the_same_image_is_the_same_bits() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let latest = image(&api("latest"));
        let good = world.cluster.push(&latest);
        world.deployed(&access, &api("latest")).await;
        let bad = world.cluster.push(&latest);
        assert_ne!(good, bad);
        let second = world.deployed(&access, &api("latest")).await;
        assert_eq!(second.digest.as_ref(), Some(&bad));
        let back = world.rolled_back(&access).await;
        assert_eq!(back.effective.get(), 2);
        assert_eq!(back.image.unwrap().digest(), Some(&good));
        assert_eq!(back.digest, Some(good));
    });
}

#[test]
fn posting_the_same_image_again_is_a_rollout_of_its_own() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.deployed(&access, &api("v2")).await;
        world.deployed(&access, &api("v2")).await;
        assert_eq!(world.effects(), [1, 2, 3]);
    });
}

#[test]
fn a_cancelled_rollout_ends_at_once_and_is_put_right() {
    let world = World::new(SECOND);
    world.cluster.script("hang", Script::hangs());
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let revision = world.deploy(&access, &api("hang")).await.unwrap().deploy.revision;
        world.sleep(2).await;
        let ended = world.deployer.cancel(&world.operator, access.app(), revision).await.unwrap();
        assert_eq!(ended.status(), Status::Cancelled);
        assert!(reason(&ended).1.contains("alice"));
        let history = world.quiet(&access).await;
        assert!(history[2].is_restore());
        assert_eq!(history[2].status(), Status::Succeeded);
        let again = world.deployer.cancel(&world.operator, access.app(), revision).await.unwrap();
        assert_eq!(again, ended);
        let first = world.deployer.cancel(&world.operator, access.app(), Revision::FIRST).await.unwrap_err();
        assert_eq!(first, Refusal::AlreadyEnded(Revision::FIRST));
    });
}

#[test]
fn time_in_which_the_cluster_is_away_does_not_count() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.cluster.set_reachable(false);
        let revision = world.deploy(&access, &api("v2")).await.unwrap().deploy.revision.get();
        world.sleep(30 * 60).await;
        assert_eq!(world.entry(&access, revision).await.status(), Status::RollingOut);
        world.cluster.set_reachable(true);
        assert_eq!(world.ended(&access, revision).await.status(), Status::Succeeded);
        world.cluster.set_reachable(false);
        let lost = world.deployed(&access, &api("v3")).await;
        assert_eq!(reason(&lost).0, "cluster-unreachable");
        world.cluster.set_reachable(true);
        world.quiet(&access).await;
    });
}

#[test]
fn a_deadline_survives_a_restart_and_a_take_over() {
    let world = World::new(SECOND);
    world.cluster.script("hang", Script::hangs());
    let access = world.run(async {
        let access = world.app("api", leave()).await;
        world.deploy(&access, &api("hang")).await.unwrap();
        world.sleep(5 * 60).await;
        access
    });
    // The first process is gone without a word; another one takes over.
    let other = world.replica("two", 2);
    let begun = world.idle(world.view(&access)).now;
    let failed = world::block_on(&world.clock, async {
        use futures_util::{FutureExt, select_biased};
        let mut engine = std::pin::pin!(other.run(std::future::pending()).fuse());
        let mut scenario = std::pin::pin!(world.ended(&access, 2).fuse());
        select_biased! { () = engine => unreachable!(), value = scenario => value }
    });
    assert_eq!(reason(&failed).0, "rollout-deadline-exceeded");
    let waited = failed.updated_at.since(begun);
    assert!(waited < Duration::from_secs(5 * 60 + 10), "{waited:?}");
}

#[test]
fn a_restart_does_not_wait_out_its_own_claim_and_a_stranger_waits_half_a_minute_at_most() {
    for (name, most) in [("one", 14), ("two", 30 + 14)] {
        let world = World::new(SECOND);
        let access = world.run(async {
            let access = world.app("api", Policy::default()).await;
            world.deploy(&access, &api("v2")).await.unwrap();
            world.sleep(3).await;
            access
        });
        let begun = world.idle(world.view(&access)).now;
        let next = world.replica(name, 7);
        let done = world::block_on(&world.clock, async {
            use futures_util::{FutureExt, select_biased};
            let mut engine = std::pin::pin!(next.run(std::future::pending()).fuse());
            let mut scenario = std::pin::pin!(world.ended(&access, 2).fuse());
            select_biased! { () = engine => unreachable!(), value = scenario => value }
        });
        assert_eq!(done.status(), Status::Succeeded);
        let waited = done.updated_at.since(begun);
        assert!(waited <= Duration::from_secs(most), "{name}: {waited:?}");
    }
}

#[test]
fn deleting_an_app_ends_its_deploys_and_leaves_the_workload() {
    let world = World::new(SECOND);
    world.cluster.script("hang", Script::hangs());
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let ci = world.webhook(access.app()).await;
        world.deploy(&access, &api("hang")).await.unwrap();
        world.sleep(2).await;
        let before = world.effects();
        world.deployer.delete(&world.operator, access.app()).await.unwrap();
        world.sleep(60).await;
        assert_eq!(world.effects(), before);
        let late = world.deployer.submit(&ci, request(&api("v9"))).await.unwrap_err();
        assert!(matches!(late, Refusal::AppNotFound(_)));
        // A new registration of the name starts clean, and must say that it takes the workload over.
        let refused = world.deployer.register(&world.operator, registration("api", Policy::default()), None).await;
        assert!(matches!(refused, Err(Refusal::WorkloadTaken(_))), "{refused:?}");
        let wanted = rollhook_core::request::Registration { take_over: true, ..registration("api", Policy::default()) };
        let again = world.deployer.register(&world.operator, wanted, None).await.unwrap();
        assert_ne!(again.app.uid, access.uid());
        assert_eq!(again.deploy.revision, Revision::FIRST);
        assert!(again.adopted);
        let late = world.deployer.submit(&ci, request(&api("v9"))).await.unwrap_err();
        assert!(matches!(late, Refusal::AppNotFound(_)), "the old registration's token opens nothing");
        let access = world.deployer.open(&world.operator, &again.app.id).await.unwrap();
        assert_eq!(world.deployed(&access, &api("v5")).await.status(), Status::Succeeded);
    });
}

#[test]
fn what_a_deletion_has_ended_is_not_put_right() {
    let world = World::new(SECOND);
    world.cluster.script("hang", Script::hangs());
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.deploy(&access, &api("hang")).await.unwrap();
        world.sleep(2).await;
        let before = world.effects();
        // A deletion that gets no further than this, or not yet.
        let rolling = world.entry(&access, 2).await;
        let message = "alice deleted the app.".to_owned();
        let state = State::Cancelled { reason: Reason::new(Reason::APP_DELETED), message };
        let changes = vec![rolling.moved(state)];
        let record = Record { app: access.uid(), claim: None, changes, lift: Vec::new(), rest: false };
        world.store.record(record).await.unwrap();
        assert_eq!(world.quiet(&access).await.len(), 2, "nothing is restored");
        assert_eq!(world.effects(), before);
    });
}

#[test]
fn what_is_taken_over_is_current_whatever_revision_it_carries() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.deployed(&access, &api("v2")).await;
        world.deployer.delete(&world.operator, access.app()).await.unwrap();
        let wanted = rollhook_core::request::Registration { take_over: true, ..registration("api", Policy::default()) };
        let again = world.deployer.register(&world.operator, wanted, None).await.unwrap();
        let access = world.deployer.open(&world.operator, &again.app.id).await.unwrap();
        let first = world.ended(&access, 1).await;
        assert_eq!((first.status(), tag(&first).as_str()), (Status::Succeeded, "v2"), "{first:?}");
        world.deployed(&access, &api("v3")).await;
        assert_eq!(world.rolled_back(&access).await.effective.get(), 1);
    });
}

#[test]
fn at_most_a_hundred_are_unfinished() {
    let world = World::new(SECOND);
    world.idle(async {
        let access = world.register("api", Policy::default()).await;
        for n in 0..99 {
            world.deploy(&access, &api(&format!("n{n}"))).await.unwrap();
        }
        assert_eq!(world.deploy(&access, &api("more")).await, Err(Refusal::TooManyUnfinished));
        assert_eq!(world.history(&access).await.len(), 100);
    });
}

#[test]
fn a_key_makes_one_deploy_and_shows_its_present_state() {
    let world = World::new(SECOND);
    let keyed = |image_tag: &str, key: &str, body: u8| DeployRequest {
        key: Some(IdempotencyKey::new(KeyHeader::IdempotencyKey, key, [body; 32]).unwrap()),
        ..request(&api(image_tag))
    };
    world.run(async {
        let access = world.app("api", hold_all()).await;
        let calls = (0..50).map(|_| world.deployer.submit(&access, keyed("v2", "run-1", 1)));
        let answers = futures_util::future::join_all(calls).await;
        assert!(answers.iter().all(|a| a.as_ref().unwrap().deploy.revision.get() == 2));
        assert_eq!(answers.iter().filter(|a| !a.as_ref().unwrap().replayed).count(), 1);
        world.ended(&access, 2).await;
        let replay = world.deployer.submit(&access, keyed("v2", "run-1", 1)).await.unwrap();
        assert!(replay.replayed);
        assert_eq!(replay.deploy.status(), Status::Succeeded);
        let reused = world.deployer.submit(&access, keyed("v3", "run-1", 2)).await;
        assert_eq!(reused, Err(Refusal::KeyReused));
        // A repeated call is the same call, even where a new one would be refused by now.
        world.rolled_back(&access).await;
        let ci = world.webhook(access.app()).await;
        assert!(matches!(world.deployer.submit(&ci, keyed("v2", "run-2", 3)).await, Err(Refusal::ImageHeld { .. })));
        let again = world.deployer.submit(&ci, keyed("v2", "run-1", 1)).await.unwrap();
        assert_eq!((again.deploy.revision.get(), again.replayed), (2, true));
        world.sleep(25 * 3600).await;
        let fresh = world.deployer.submit(&access, keyed("v4", "run-1", 4)).await.unwrap();
        assert!(!fresh.replayed);
    });
}

#[test]
fn a_wait_follows_the_deploy_that_took_its_place() {
    let world = World::new(Duration::from_secs(30));
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.deploy(&access, &api("v2")).await.unwrap();
        world.sleep(1).await;
        let middle = world.deploy(&access, &api("v3")).await.unwrap().deploy.revision;
        let last = world.deploy(&access, &api("v4")).await.unwrap().deploy.revision;
        let short = world.deployer.wait(&access, middle, Duration::from_secs(5)).await.unwrap();
        assert!(!short.last().is_terminal());
        let long = world.deployer.wait(&access, middle, Duration::from_secs(300)).await.unwrap();
        assert_eq!(long.deploy.status(), Status::Superseded);
        assert_eq!(long.last().revision, last);
        assert_eq!(long.last().status(), Status::Succeeded);
    });
}

#[test]
fn what_was_adopted_is_recorded_and_left_alone() {
    let world = World::new(SECOND);
    let workload = rollhook_core::app::Workload {
        kind: rollhook_core::app::WorkloadKind::Deployment,
        name: "api".to_owned(),
        containers: vec!["api".to_owned()],
        create: None,
        take_over: None,
    };
    world.cluster.seed(&"shop-test/api".parse().unwrap(), &workload, &image("registry.example.com/api"));
    world.run(async {
        let wanted = rollhook_core::request::Registration { image: None, ..registration("api", Policy::default()) };
        let registered = world.deployer.register(&world.operator, wanted, None).await.unwrap();
        assert!(registered.adopted);
        let access = world.deployer.open(&world.operator, &registered.app.id).await.unwrap();
        let first = world.ended(&access, 1).await;
        assert_eq!((first.status(), first.trigger), (Status::Succeeded, Trigger::Manual));
        assert_eq!(tag(&first), "latest");
        assert_eq!(world.effects(), Vec::<u64>::new());
        world.deployed(&access, &api("v2")).await;
        assert_eq!(world.rolled_back(&access).await.effective.get(), 1);
    });
}

#[test]
fn an_order_that_is_refused_leaves_no_trace_on_the_cluster() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let app = world.view(&access).await.app;
        // Somebody else's registration has the workload by now.
        world.cluster.delete(&app.id, &app.workload);
        let foreign = rollhook_core::app::App { uid: AppUid::from_bits(77), ..app.clone() };
        let order = rollhook_core::ports::Order {
            app: app.id.clone(),
            stamp: rollhook_core::ports::Stamp { app: foreign.uid, revision: Revision::FIRST },
            workload: app.workload.clone(),
            image: image(&api("theirs")),
            adopted: false,
            cause: "theirs".to_owned(),
        };
        rollhook_core::ports::Rollouts::apply(&*world.cluster, &order).await.unwrap();
        let refused = world.deployed(&access, &api("v2")).await;
        assert_eq!(reason(&refused).0, "foreign-stamp");
        assert!(!refused.touched);
        let history = world.quiet(&access).await;
        assert_eq!(history.len(), 2, "nothing is owed");
        assert_eq!(world.view(&access).await.on_cluster.unwrap().revision.get(), 1);
    });
}

#[test]
fn promotion_brings_what_the_other_environment_runs() {
    let world = World::new(SECOND);
    world.run(async {
        let test = world.app("api", Policy::default()).await;
        world.deployed(&test, &api("v2")).await;
        let mut wanted = registration("api", Policy::default());
        wanted.environment = "prod".parse().unwrap();
        let prod = world.deployer.register(&world.operator, wanted, None).await.unwrap().app;
        let accepted = world.deployer.promote(&world.operator, &prod.id, test.app(), None).await.unwrap();
        assert_eq!(accepted.deploy.trigger, Trigger::Promotion);
        let access = world.deployer.open(&world.operator, &prod.id).await.unwrap();
        let done = world.ended(&access, 2).await;
        assert_eq!(done.status(), Status::Succeeded);
        assert_eq!(done.digest, world.view(&test).await.current.unwrap().digest);
        assert!(done.image.unwrap().digest().is_some());
    });
}

#[test]
fn registering_again_with_the_same_key_answers_what_it_made() {
    let world = World::new(SECOND);
    world.idle(async {
        let key = |text: &str, body| Some(IdempotencyKey::new(KeyHeader::IdempotencyKey, text, [body; 32]).unwrap());
        let register =
            async |key| world.deployer.register(&world.operator, registration("api", Policy::default()), key).await;
        let made = register(key("one", 1)).await.unwrap();
        assert_eq!(register(key("one", 1)).await.unwrap(), made);
        assert_eq!(register(key("one", 2)).await, Err(Refusal::KeyReused));
        assert!(matches!(register(key("two", 1)).await, Err(Refusal::AppExists(_))));
        assert!(matches!(register(None).await, Err(Refusal::AppExists(_))));
    });
}

#[test]
fn what_can_never_work_is_not_registered() {
    let world = World::new(SECOND);
    world.run(async {
        let field = |refused: Refusal| {
            let Refusal::InvalidField(field, _) = refused else { panic!("{refused:?}") };
            field
        };
        for (settle, deadline) in [(10, 10), (20, 10), (0, 0)] {
            let (settle, rollout_deadline) = (Duration::from_secs(settle), Duration::from_secs(deadline));
            let wanted = registration("api", Policy { settle, rollout_deadline, ..Policy::default() });
            let refused = world.deployer.register(&world.operator, wanted, None).await.unwrap_err();
            assert_eq!(field(refused), "policy.rollout_deadline");
        }
        for name in ["", "../x", "a/scale", "API", "a..b", "-a", "a?b=c", &"a".repeat(254)] {
            let wanted = registration("api", Policy::default());
            let wanted = rollhook_core::request::Registration { workload: Some(name.to_owned()), ..wanted };
            let refused = world.deployer.register(&world.operator, wanted, None).await.unwrap_err();
            assert_eq!(field(refused), "workload.name", "{name}");
        }
        let access = world.app("api", Policy::default()).await;
        let change = PolicyChange { settle: Some(Duration::from_secs(3600)), ..PolicyChange::default() };
        let refused = world.deployer.change_policy(&world.operator, access.app(), change).await.unwrap_err();
        assert_eq!(field(refused), "policy.rollout_deadline");
    });
}

#[test]
fn names_that_spell_a_taken_namespace_are_refused() {
    let world = World::new(SECOND);
    world.idle(async {
        let mut wanted = registration("api", Policy::default());
        wanted.project = "a-b".parse().unwrap();
        wanted.environment = "c".parse().unwrap();
        world.deployer.register(&world.operator, wanted, None).await.unwrap();
        let mut other = registration("web", Policy::default());
        other.project = "a".parse().unwrap();
        other.environment = "b-c".parse().unwrap();
        let refused = world.deployer.register(&world.operator, other, None).await.unwrap_err();
        assert!(matches!(refused, Refusal::NamespaceTaken { .. }), "{refused:?}");
    });
}

#[test]
fn once_quiet_stepping_again_does_nothing() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.deployed(&access, &api("missing")).await;
        let before = (world.quiet(&access).await, world.effects());
        world.sleep(24 * 3600).await;
        assert_eq!((world.history(&access).await, world.effects()), before);
        let claim = rollhook_core::ports::Claim {
            replica: rollhook_core::ports::Replica { name: "another".to_owned(), incarnation: 5 },
            ttl: SECOND,
            limit: 10,
        };
        world.sleep(60).await;
        assert_eq!(world.store.claim(claim).await.unwrap().apps, Vec::<AppUid>::new(), "no work is left");
        assert!(world.store.entry(access.uid(), Revision::FIRST).await.unwrap().is_some());
    });
}
