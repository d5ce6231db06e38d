//! Returning to a good version: restores, rollbacks and what they hold; each rule as a scenario on the whole engine
//! under simulated time.

use std::{collections::BTreeSet, time::Duration};

use rollhook_core::{
    app::{App, OnFailure, Policy},
    deploy::{Actor, AdmissionId, Origin, Reason, Revision, State, Status, Trigger},
    ledger::{Admission, KeyLookup, rollback},
    request::{Cause, Hint, PolicyChange, Refusal, RollbackRequest},
};
use rollhook_memory::Script;

use crate::world::{World, api, hold_all, image, leave, reason, registration, request, statuses, tag};

const SECOND: Duration = Duration::from_secs(1);

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
fn failed_rollout_is_restored_if_its_successor_never_touched_the_cluster() {
    let world = World::new(SECOND);
    world.cluster.script("hang", Script::hangs());
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let hung = world.deploy(&access, &api("hang")).await.unwrap().deploy.revision;
        world.sleep(2).await;
        let back = world.rollback(&access).await.unwrap().deploy.revision;
        world.deployer.cancel(&access, back).await.unwrap();
        let history = world.quiet(&access).await;
        assert!(matches!(history[1].state, State::Superseded { .. }), "revision {hung}");
        assert_eq!(history.last().unwrap().status(), Status::Succeeded);
        assert!(history.last().unwrap().is_restore());
    });
}

/// The pods that run, by their ids.
fn pods(world: &World, app: &App) -> BTreeSet<String> {
    world.cluster.running(&app.id, &app.target).into_iter().map(|pod| pod.id).collect()
}

#[test]
fn restores_keep_the_pods_that_still_run_also_of_a_version_that_was_restored_before() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.deployed(&access, &api("v2")).await;
        let app = world.view(&access).await.app;
        let running = pods(&world, &app);
        for (deploy, restore) in [(3, 4), (5, 6)] {
            let failed = world.deployed(&access, &api("missing")).await;
            assert_eq!((failed.revision.get(), failed.status()), (deploy, Status::Failed));
            world.quiet(&access).await;
            assert_eq!(world.entry(&access, restore).await.status(), Status::Succeeded);
            assert_eq!(pods(&world, &app), running);
        }
        // A rollback that was rolled out anew is the version that ran, too.
        let back = world.rolled_back(&access).await;
        assert_eq!((back.status(), tag(&back)), (Status::Succeeded, "v1".to_owned()));
        let running = pods(&world, &app);
        world.deployed(&access, &api("missing")).await;
        world.quiet(&access).await;
        assert_eq!(world.entry(&access, 9).await.status(), Status::Succeeded);
        assert_eq!(pods(&world, &app), running);
    });
}

#[test]
fn rollback_keeps_the_pods_that_a_stuck_deploy_or_a_stopped_restore_left() {
    let world = World::new(SECOND);
    world.cluster.script("hang", Script::hangs());
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.deployed(&access, &api("v2")).await;
        let app = world.view(&access).await.app;
        let running = pods(&world, &app);
        world.deploy(&access, &api("hang")).await.unwrap();
        world.sleep(2).await;
        assert_eq!(world.rolled_back(&access).await.status(), Status::Succeeded);
        assert_eq!(pods(&world, &app), running);

        world.deploy(&access, &api("hang")).await.unwrap();
        world.sleep(2).await;
        // The restore is stopped while its pods settle.
        for _ in 0..2 {
            let latest = world.view(&access).await.latest.unwrap();
            world.deployer.cancel(&access, latest).await.unwrap();
            world.sleep(2).await;
        }
        let restore = world.view(&access).await.ended_on_cluster.unwrap();
        assert_eq!((restore.is_restore(), restore.status()), (true, Status::Cancelled));
        let request = RollbackRequest::default().with(|request| request.revision = Revision::new(2));
        let deploy = world.deployer.rollback(&access, request).await.unwrap().deploy;
        assert_eq!(world.ended(&access, deploy.revision.get()).await.status(), Status::Succeeded);
        assert_eq!(pods(&world, &app), running);
        // To what is current, a person rolls back to have other pods.
        let request = RollbackRequest::default().with(|request| request.revision = Revision::new(2));
        let deploy = world.deployer.rollback(&access, request).await.unwrap().deploy;
        assert_eq!(world.ended(&access, deploy.revision.get()).await.status(), Status::Succeeded);
        assert!(pods(&world, &app).is_disjoint(&running));
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
    let access = world.run(async {
        let access = world.app("api", leave()).await;
        assert_eq!(world.deployed(&access, &api("crash")).await.status(), Status::Failed);
        let change = PolicyChange { on_failure: Some(OnFailure::Restore), ..PolicyChange::default() };
        world.deployer.change_policy(&access, change).await.unwrap();
        access
    });
    world.idle(async {
        // As a slow engine leaves it: the restore has not begun when a deploy comes, and a person cancels that one.
        let view = world.view(&access).await;
        let cause = Cause { trigger: Trigger::Rollback, actor: Actor::Service };
        let restore = rollback::deploy(&view, view.current.as_ref().unwrap(), &cause).unwrap();
        let admission = Admission::plain(AdmissionId(9), restore);
        world.commit(&access, |change, now| drop(change.admit(admission, KeyLookup::Unread, now))).await;
        let next = world.deploy(&access, &api("v4")).await.unwrap().deploy;
        let gave_way = State::Superseded { by: next.revision, rollback: false, newer: None };
        world.record(&access, vec![world.entry(&access, 3).await.moved(gave_way)]).await;
        world.deployer.cancel(&access, next.revision).await.unwrap();
    });
    let history = world.run(world.quiet(&access));
    assert_eq!(statuses(&history[2..]), [(3, Status::Superseded), (4, Status::Cancelled), (5, Status::Succeeded)]);
    assert!(history[4].is_restore());
}

#[test]
fn failed_entry_says_if_no_version_can_be_restored() {
    let world = World::new(SECOND);
    world.run(async {
        let mut wanted = registration("api", Policy::default());
        wanted.image = Some(image(&api("missing")));
        let app = world.deployer.register(&world.operator, wanted, None).await.unwrap().app;
        let access = world.access(&app.app.id).await;
        let failed = world.ended(&access, 1).await;
        assert!(reason(&failed).1.contains("nothing to restore"), "{:?}", reason(&failed));
        assert_eq!(world.quiet(&access).await.len(), 1);
        let refused = world.rollback(&access).await.unwrap_err();
        assert!(matches!(refused, Refusal::NothingToRollBackTo(_)));
        assert_eq!(world.quiet(&access).await.len(), 1, "nothing is recorded");

        assert!(!reason(&failed).1.contains("names revision"), "there is no earlier one: {:?}", reason(&failed));
        world.deploy(&access, &api("missing-too")).await.unwrap();
        let failed = world.ended(&access, 2).await;
        assert!(reason(&failed).1.contains("names revision 1 "), "{:?}", reason(&failed));
    });
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
        let begun = world.now();
        let accepted = world.rollback(&access).await.unwrap();
        let listed: Vec<u64> = accepted.superseded.iter().map(|r| r.get()).collect();
        assert_eq!(listed, [2, 3]);
        assert_eq!(accepted.deploy.from, Some(Origin::Revision(Revision::FIRST)));
        let done = world.ended(&access, 4).await;
        assert_eq!(done.status(), Status::Succeeded);
        assert!(done.updated_at.since(begun) < Duration::from_secs(13));
        assert_eq!(
            world.entry(&access, 3).await.state,
            State::Superseded { by: done.revision, rollback: true, newer: None }
        );
        let waited = world.deployer.wait(&access, Revision::new(3).unwrap(), SECOND).await.unwrap();
        assert_eq!(waited.superseded_by, None, "a rollback is not followed");
    });
}

#[test]
fn rollback_without_other_bits_names_the_revision_that_has_the_same_under_another_name() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let digest = world.cluster.digest(&image(&api("v1")));
        let renamed = world.deployed(&access, &image(&api("v2")).pinned(digest.clone()).to_string()).await;
        assert_eq!((renamed.status(), renamed.digest.as_ref()), (Status::Succeeded, Some(&digest)));
        let refused = world.rollback(&access).await.unwrap_err().to_string();
        let same = format!("Revision 1 ({}) has the same bits under another name, {digest}.", api("v1"));
        assert!(refused.contains(&same), "{refused}");
    });
}

#[test]
fn rollback_looks_for_another_image_among_a_bounded_number_of_deploys() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", leave().with(|policy| policy.keep = 2_000)).await;
        for _ in 0..60 {
            world.deployed(&access, &api("v2")).await;
        }
        assert_eq!(tag(&world.rolled_back(&access).await), "v1", "beyond the first page");
        for _ in 0..1_001 {
            world.deployed(&access, &api("v3")).await;
        }
        let refused = world.rollback(&access).await.unwrap_err();
        assert!(matches!(refused, Refusal::NothingToRollBackTo(_)), "{refused:?}");
        assert!(
            refused.to_string().contains("The last 1000 deploys of shop-test/api before revision 1063"),
            "{refused}"
        );
        assert!(refused.to_string().contains("Name the revision to return to"), "{refused}");
        let named = RollbackRequest::default().with(|request| request.revision = Revision::new(1));
        assert_eq!(tag(&world.deployer.rollback(&access, named).await.unwrap().deploy), "v1");
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
        let wish = RollbackRequest::default().with(|request| request.if_current = Revision::new(3));
        let first = world.deployer.rollback(&access, wish.clone()).await.unwrap();
        world.ended(&access, first.deploy.revision.get()).await;
        let second = world.deployer.rollback(&access, wish).await.unwrap_err();
        assert_eq!(second, Refusal::CurrentChanged { expected: Revision::new(3).unwrap(), current: Revision::new(4) });
    });
}

#[test]
fn rollback_to_a_revision_takes_any_that_has_an_image() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", leave()).await;
        world.deployed(&access, &api("v2")).await;
        let to = |n| RollbackRequest::default().with(|request| request.revision = Revision::new(n));
        let done = world.deployer.rollback(&access, to(1)).await.unwrap();
        assert_eq!(tag(&world.ended(&access, done.deploy.revision.get()).await), "v1");
        let none = world.deployer.rollback(&access, to(99)).await.unwrap_err();
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
        let ci = world.webhook(&held).await;
        let refused = world.deployer.submit(&ci, request(&api("v2"))).await.unwrap_err();
        let Refusal::ImageHeld { by, .. } = &refused else { panic!("{refused:?}") };
        assert_eq!(by.get(), 3);
        assert_eq!(refused.hint(), Some(Hint::ReleaseHold));
        assert_eq!(world.quiet(&held).await.len(), 3, "nothing is recorded");
        world.deployer.release_hold(&held).await.unwrap();
        assert!(world.deployer.submit(&ci, request(&api("v2"))).await.is_ok());

        let ci = world.webhook(&open).await;
        let accepted = world.deployer.submit(&ci, request(&api("v2"))).await.unwrap();
        assert_eq!(world.ended(&open, accepted.deploy.revision.get()).await.status(), Status::Succeeded);
        assert_eq!(world.view(&open).await.app.holds.len(), 1, "only a person lifts it");
        world.deployed(&open, &api("v2")).await;
        assert!(world.view(&open).await.app.holds.is_empty());
    });
}

#[test]
fn version_running_after_a_failed_rollback_is_not_held() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", hold_all()).await;
        world.deployed(&access, &api("v2")).await;
        world.cluster.script("api:v1", Script::crashes());
        assert_eq!(world.rolled_back(&access).await.status(), Status::Failed);
        let history = world.quiet(&access).await;
        assert_eq!(tag(history.last().unwrap()), "v2");
        assert!(world.view(&access).await.app.holds.is_empty());
        let ci = world.webhook(&access).await;
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
fn a_cancelled_rollout_ends_at_once_and_is_put_right() {
    let world = World::new(SECOND);
    world.cluster.script("hang", Script::hangs());
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let revision = world.deploy(&access, &api("hang")).await.unwrap().deploy.revision;
        world.sleep(2).await;
        let ended = world.deployer.cancel(&access, revision).await.unwrap();
        assert_eq!(ended.status(), Status::Cancelled);
        assert!(reason(&ended).1.contains("alice"));
        let history = world.quiet(&access).await;
        assert!(history[2].is_restore());
        assert_eq!(history[2].status(), Status::Succeeded);
        let again = world.deployer.cancel(&access, revision).await.unwrap();
        assert_eq!(again, ended);
        let first = world.deployer.cancel(&access, Revision::FIRST).await.unwrap_err();
        assert_eq!(first, Refusal::AlreadyEnded(Revision::FIRST));
    });
}

#[test]
fn deploys_ended_by_deletion_are_not_restored() {
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
        world.record(&access, vec![rolling.moved(state)]).await;
        assert_eq!(world.quiet(&access).await.len(), 2, "nothing is restored");
        assert_eq!(world.effects(), before);
    });
}
