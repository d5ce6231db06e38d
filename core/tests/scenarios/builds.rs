//! Git apps: the build queue beside the rollouts, each rule as a scenario on the whole engine under simulated time.

use std::time::Duration;

use rollhook_conformance::samples::git_source;
use rollhook_core::{
    app::{HoldPolicy, Policy},
    deploy::{Commit, Newer, Reason, Revision, Sequence, State, Status, Trigger},
    ports::{BuildState, BuildTrigger, DeployId},
    request::{DeployRequest, Field, IdempotencyKey, KeyHeader, PolicyChange, Refusal, SourceChange, TargetChange},
    requirement::{Requirement, RequirementCopy, ScopedRequirement},
    service::{Accepted, Authorized, Outcome},
    source::GitSource,
};
use rollhook_memory::{BuildScript, Script};

use crate::world::{self, BUILD, World, git, image, reason, sha, statuses};

const SECOND: Duration = Duration::from_secs(1);

impl World {
    async fn submit_commit(&self, access: &Authorized, commit: Commit) -> Outcome<Accepted> {
        self.deployer.submit(access, DeployRequest::commit(commit)).await
    }

    fn stamp(&self, access: &Authorized, revision: u64) -> DeployId {
        DeployId { app: access.uid(), revision: Revision::new(revision).unwrap() }
    }
}

#[test]
fn the_first_successful_build_makes_the_workload() {
    let world = World::new(SECOND);
    world.run(async {
        let registered = world.deployer.register(&world.operator, git("api", Policy::default()), None).await.unwrap();
        assert_eq!((registered.deploy, registered.adopted), (None, false));
        let access = world.access(&registered.app.app.id).await;
        assert_eq!(world.view(&access).await.latest, None);
        let queued = world.submit_commit(&access, "abc1234".parse().unwrap()).await.unwrap().deploy;
        assert_eq!((queued.status(), queued.image), (Status::Queued, None));
        world.sleep(5).await;
        assert_eq!(world.entry(&access, 1).await.status(), Status::Building);
        assert_eq!(world.effects(), [0; 0], "nothing touches the cluster before it is built");
        let done = world.ended(&access, 1).await;
        assert_eq!(done.status(), Status::Succeeded);
        let commit = done.commit.unwrap();
        assert!(commit.as_str().len() == 40 && commit.as_str().starts_with("abc1234"), "recorded in full: {commit}");
        assert!(done.image.unwrap().digest().is_some(), "recorded by digest");
        assert_eq!(world.effects(), [1]);
        assert_eq!(world.quiet(&access).await.len(), 1);
    });
}

#[test]
fn nothing_is_built_where_images_must_be_signed_and_what_ran_comes_back() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.built_app(Policy::default()).await;
        world.deploy_commit(&access, "b2").await.unwrap();
        assert_eq!(world.ended(&access, 2).await.status(), Status::Succeeded);
        let signer = "issuer=https://id.example.com,subject=ada@example.com".parse().unwrap();
        let requirement = Requirement::new(vec![signer], None).ok();
        let again = requirement.clone();
        let place = ScopedRequirement::Environment(RequirementCopy { requirement, sequence: 1 });
        world.deployer.copy_requirement(&world.view(&access).await.app, place).await.unwrap();
        let refused = world.deploy_commit(&access, "c3").await.unwrap().deploy.revision;
        let (code, message) = reason(&world.ended(&access, refused.get()).await);
        assert_eq!(code, Reason::IMAGE_NOT_SIGNED, "{message}");
        assert!(message.contains("The environment requires") && message.contains("built here"), "{message}");
        assert_eq!(world.rolled_back(&access).await.status(), Status::Succeeded);
        assert_eq!(world.effects(), [1, 2, 4], "nothing of it was touched, and its build did not begin");

        let none = ScopedRequirement::Environment(RequirementCopy { requirement: None, sequence: 2 });
        world.deployer.copy_requirement(&world.view(&access).await.app, none).await.unwrap();
        let begun = world.deploy_commit(&access, "d5").await.unwrap().deploy.revision;
        world.sleep(5).await;
        assert_eq!(world.entry(&access, begun.get()).await.status(), Status::Building);
        let place = ScopedRequirement::Environment(RequirementCopy { requirement: again, sequence: 3 });
        world.deployer.copy_requirement(&world.view(&access).await.app, place).await.unwrap();
        let (code, message) = reason(&world.ended(&access, begun.get()).await);
        assert_eq!(code, Reason::IMAGE_NOT_SIGNED, "a build that has begun ends: {message}");
        assert_eq!(world.effects(), [1, 2, 4]);
    });
}

#[test]
fn what_was_built_before_images_must_be_signed_does_not_begin_after() {
    let world = World::new(SECOND);
    world.run(async {
        let slow = Policy::default().with(|policy| policy.settle = 120 * SECOND);
        let access = world.git_app(slow).await;
        world.deploy_commit(&access, "a1").await.unwrap();
        let built = world.deploy_commit(&access, "b2").await.unwrap().deploy.revision;
        world.sleep(75).await;
        let waiting = world.entry(&access, built.get()).await;
        assert!(waiting.image.is_some() && !waiting.touched, "{waiting:?}");
        let signer = "issuer=https://id.example.com,subject=ada@example.com".parse().unwrap();
        let requirement = Requirement::new(vec![signer], None).ok();
        let place = ScopedRequirement::Project(RequirementCopy { requirement, sequence: 1 });
        world.deployer.copy_requirement(&world.view(&access).await.app, place).await.unwrap();
        let (code, message) = reason(&world.ended(&access, built.get()).await);
        assert_eq!(code, Reason::IMAGE_NOT_SIGNED, "{message}");
        assert!(message.contains("The project requires"), "{message}");
        assert_eq!(world.ended(&access, 1).await.status(), Status::Succeeded);
        assert_eq!(world.effects(), [1]);
    });
}

#[test]
fn repeated_registration_succeeds_before_the_first_build() {
    let world = World::new(SECOND);
    world.run(async {
        use rollhook_core::request::{IdempotencyKey, KeyHeader};
        let key = || IdempotencyKey::new(KeyHeader::IdempotencyKey, "run-1", [1; 32]).ok();
        let register = async |wanted, key| world.deployer.register(&world.operator, wanted, key).await;
        let first = register(git("api", Policy::default()), key()).await.unwrap();
        world.sleep(3600).await;
        let repeated = register(git("api", Policy::default()), key()).await.unwrap();
        assert_eq!(repeated, first, "the same call");
        let exists = Err(Refusal::AppExists(first.app.app.id.clone()));
        assert_eq!(register(git("api", Policy::default()), None).await, exists);
        let other = Policy::default().with(|policy| policy.settle = SECOND);
        assert_eq!(register(git("api", other), key()).await, exists);
    });
}

#[test]
fn a_workload_that_exists_is_adopted_and_the_first_build_replaces_it() {
    let world = World::new(SECOND);
    world.run(async {
        let wanted = git("api", Policy::default());
        let id = "shop-test/api".parse().unwrap();
        world.cluster.seed(&id, &rollhook_core::app::Target::default(), &image("registry.example.com/shop/api:old"));
        let registered = world.deployer.register(&world.operator, wanted, None).await.unwrap();
        assert!(registered.adopted && registered.deploy.is_some());
        let access = world.access(&id).await;
        assert_eq!(world.ended(&access, 1).await.status(), Status::Succeeded);
        world.deploy_commit(&access, "b2").await.unwrap();
        assert_eq!(world.ended(&access, 2).await.status(), Status::Succeeded);
        let back = world.rolled_back(&access).await;
        assert_eq!((back.status(), back.effective.get()), (Status::Succeeded, 1));
        assert_eq!(world.begun(), [2], "a rollback builds nothing");
    });
}

#[test]
fn two_triggers_for_one_push_make_two_builds_one_after_the_other() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.git_app(Policy::default()).await;
        world.deploy_commit(&access, "a1").await.unwrap();
        world.deploy_commit(&access, "a1").await.unwrap();
        let history = world.quiet(&access).await;
        assert_eq!(history.len(), 2);
        assert_eq!(history[1].status(), Status::Succeeded);
        let begun = world.builds.begun();
        assert_eq!(world.begun(), [1, 2]);
        assert!(begun[1].at - begun[0].at >= BUILD, "the second waits for the first's end");
    });
}

#[test]
fn a_burst_of_pushes_is_built_in_order_and_the_newest_runs_last() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.git_app(Policy::default()).await;
        for push in 0..20 {
            world.deploy_commit(&access, &format!("a{push:02}b")).await.unwrap();
            world.sleep(1).await;
        }
        for _ in 0..2000 {
            assert!(world.builds.running_now(access.uid()) <= 1, "never two builds at once");
            world.sleep(1).await;
        }
        let history = world.quiet(&access).await;
        assert_eq!(history.len(), 20);
        assert_eq!(history[19].status(), Status::Succeeded);
        assert!(history.iter().all(|entry| matches!(entry.status(), Status::Succeeded | Status::Superseded)));
        assert_eq!(world.begun(), (1..=20).collect::<Vec<_>>(), "every one is built, first in first out");
        let effects = world.effects();
        assert!(effects.is_sorted() && effects.last() == Some(&20), "{effects:?}");
    });
}

#[test]
fn a_build_runs_while_an_older_revisions_rollout_is_watched() {
    let world = World::new(Duration::from_secs(120));
    world.run(async {
        let access = world.built_app(Policy::default()).await;
        world.deploy_commit(&access, "b2").await.unwrap();
        world.sleep(45).await;
        assert_eq!(world.entry(&access, 2).await.status(), Status::RollingOut);
        world.cluster.script("shop/api", Script::hangs());
        world.deploy_commit(&access, "c3").await.unwrap();
        world.sleep(10).await;
        assert_eq!(world.entry(&access, 3).await.status(), Status::Building);
        assert_eq!(world.entry(&access, 2).await.status(), Status::RollingOut, "still watched");
        world.sleep(40).await;
        assert_eq!(world.entry(&access, 2).await.status(), Status::Superseded, "without progress it gave way");
        assert_eq!(world.entry(&access, 3).await.status(), Status::RollingOut);
    });
}

#[test]
fn built_image_waits_for_a_rollout_with_progress() {
    let world = World::new(SECOND);
    world.builds.script("c3", BuildScript::succeeds().after(SECOND));
    world.run(async {
        let policy = Policy::default().with(|policy| policy.settle = Duration::from_secs(60));
        let access = world.built_app(policy).await;
        world.deploy_commit(&access, "b2").await.unwrap();
        world.sleep(40).await;
        world.deploy_commit(&access, "c3").await.unwrap();
        world.sleep(10).await;
        let waiting = world.entry(&access, 3).await;
        assert!(waiting.status() == Status::Building && waiting.image.is_some(), "built, and waits");
        assert_eq!(world.ended(&access, 2).await.status(), Status::Succeeded);
        assert_eq!(world.ended(&access, 3).await.status(), Status::Succeeded);
        world.quiet(&access).await;
    });
}

#[test]
fn a_failed_build_says_why_and_the_next_one_is_built() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.built_app(Policy::default()).await;
        for (digits, code) in [("500", "build-failed"), ("404", "commit-not-found"), ("300", "commit-ambiguous")] {
            world.deploy_commit(&access, digits).await.unwrap();
            let revision = world.view(&access).await.latest.unwrap().get();
            let failed = world.ended(&access, revision).await;
            assert_eq!(reason(&failed).0, code);
            assert!(!failed.touched && failed.image.is_none());
            let State::Failed { evidence, .. } = failed.state else { panic!("{:?}", failed.state) };
            assert!(!evidence.unwrap().log.is_empty(), "the log's end is kept");
        }
        world.deploy_commit(&access, "b5").await.unwrap();
        assert_eq!(world.ended(&access, 5).await.status(), Status::Succeeded);
        assert_eq!(world.effects(), [1, 5], "a failed build touches nothing, and nothing is restored");
        assert_eq!(world.quiet(&access).await.len(), 5);
    });
}

#[test]
fn a_cancelled_build_ends_at_once_and_its_late_result_is_dropped() {
    let world = World::new(SECOND);
    world.builds.script("b2", BuildScript::hangs().dying_for(Duration::from_secs(15)));
    world.run(async {
        let access = world.built_app(Policy::default()).await;
        let revision = world.deploy_commit(&access, "b2").await.unwrap().deploy.revision;
        world.sleep(5).await;
        let cancelled = world.deployer.cancel(&access, revision).await.unwrap();
        assert_eq!(cancelled.status(), Status::Cancelled);
        world.sleep(60).await;
        let history = world.quiet(&access).await;
        assert_eq!(history[1], cancelled, "nothing follows a terminal status");
        assert_eq!(world.builds.running_now(access.uid()), 0);
        assert_eq!(world.effects(), [1]);
    });
}

#[test]
fn a_build_that_ended_before_its_entry_was_cancelled_rolls_nothing_out() {
    let world = World::new(SECOND);
    let access = world.run(async {
        let access = world.built_app(Policy::default()).await;
        world.deploy_commit(&access, "b2").await.unwrap();
        world.sleep(5).await;
        access
    });
    // No replica drives while the build ends and a person cancels.
    world.idle(async {
        world.sleep(60).await;
        let revision = Revision::new(2).unwrap();
        world.deployer.cancel(&access, revision).await.unwrap();
        assert!(matches!(world.builds.observe(world.stamp(&access, 2)).await, Ok(BuildState::Built { .. })));
    });
    let history = world.run(world.quiet(&access));
    assert_eq!(statuses(&history), [(1, Status::Succeeded), (2, Status::Cancelled)]);
    assert_eq!(world.effects(), [1]);
}

#[test]
fn a_build_has_a_deadline_of_its_own_that_does_not_run_while_queued() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.built_app(Policy::default()).await;
        world.deploy_commit(&access, "8882").await.unwrap();
        world.deploy_commit(&access, "8883").await.unwrap();
        let begun = world.now();
        for (revision, minutes) in [(2, 30), (3, 60)] {
            let late = world.ended(&access, revision).await;
            assert_eq!(reason(&late).0, "build-deadline-exceeded");
            let took = late.updated_at.since(begun).as_secs();
            assert!((minutes * 60..minutes * 60 + 30).contains(&took), "revision {revision}: {took} s");
        }
        assert_eq!(world.quiet(&access).await.len(), 3);
        assert_eq!(world.builds.running_now(access.uid()), 0);
    });
}

#[test]
fn a_crash_at_any_moment_of_a_build_loses_nothing_and_doubles_nothing() {
    for moment in 0..80 {
        let world = World::new(SECOND);
        let access = world.run(async {
            let access = world.built_app(Policy::default()).await;
            world.deploy_commit(&access, "b2").await.unwrap();
            world.deploy_commit(&access, "c3").await.unwrap();
            world.sleep(moment).await;
            access
        });
        // The driver is gone in the middle of whatever it did; another replica takes over after a while.
        let other = world.replica("two", 7 + moment);
        let history = world::block_on(&world.clock, async {
            let mut engine = std::pin::pin!(other.run(std::future::pending()));
            let mut quiet = std::pin::pin!(world.quiet(&access));
            match futures_util::future::select(&mut engine, &mut quiet).await {
                futures_util::future::Either::Left(_) => unreachable!("nothing shuts the engine down"),
                futures_util::future::Either::Right((history, _)) => history,
            }
        });
        assert_eq!(history.len(), 3, "moment {moment}");
        assert_eq!(history[2].status(), Status::Succeeded, "moment {moment}");
        assert!(matches!(history[1].status(), Status::Succeeded | Status::Superseded), "moment {moment}");
        assert_eq!(world.begun(), [1, 2, 3], "moment {moment}: each is built once");
        assert!(world.effects().is_sorted(), "moment {moment}");
    }
}

#[test]
fn unavailable_builder_is_retried_and_lost_builds_fail() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.built_app(Policy::default()).await;
        world.builds.set_reachable(false);
        world.deploy_commit(&access, "b2").await.unwrap();
        world.sleep(300).await;
        world.builds.set_reachable(true);
        assert_eq!(world.ended(&access, 2).await.status(), Status::Succeeded);

        world.deploy_commit(&access, "c3").await.unwrap();
        world.sleep(5).await;
        world.builds.set_reachable(false);
        world.sleep(100).await;
        world.builds.set_reachable(true);
        assert_eq!(world.ended(&access, 3).await.status(), Status::Succeeded, "it ended unseen");

        world.deploy_commit(&access, "d4").await.unwrap();
        world.sleep(5).await;
        world.builds.lose();
        assert_eq!(reason(&world.ended(&access, 4).await).0, Reason::BUILD_LOST);
        world.quiet(&access).await;
    });
}

#[test]
fn deleting_an_app_ends_its_build() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.built_app(Policy::default()).await;
        world.deploy_commit(&access, "8882").await.unwrap();
        world.sleep(5).await;
        assert_eq!(world.builds.running_now(access.uid()), 1);
        let build = world.stamp(&access, 1);
        assert!(world.builds.log(build, 0).await.unwrap().is_some());
        world.deployer.delete(&access).await.unwrap();
        world.sleep(1).await;
        assert_eq!(world.builds.running_now(access.uid()), 0);
        assert_eq!(world.builds.log(build, 0).await.unwrap(), None, "its logs are forgotten");
    });
}

#[test]
fn a_rebuild_deploys_the_head_of_the_branch_unless_a_commit_is_named() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.git_app(Policy::default()).await;
        let rebuild = async |commit: Option<Commit>| world.deployer.rebuild(&access, commit, None).await;
        assert!(matches!(rebuild(None).await, Err(Refusal::SourceUnavailable { .. })), "it does not answer");
        world.builds.set_head(&git_source(), None);
        let missing = rebuild(None).await;
        assert!(
            matches!(&missing, Err(Refusal::InvalidField(Field::Commit, why)) if why.contains("main")),
            "{missing:?}"
        );
        world.builds.close_source(&git_source());
        assert!(matches!(rebuild(None).await, Err(Refusal::InvalidField(Field::Commit, _))), "it refuses");
        assert!(world.history(&access).await.is_empty(), "nothing was recorded");

        world.builds.set_head(&git_source(), Some(sha("a1")));
        let first = rebuild(None).await.unwrap().deploy;
        assert_eq!((first.commit.clone(), first.trigger), (Some(sha("a1")), Trigger::Manual));
        assert_eq!(world.ended(&access, 1).await.status(), Status::Succeeded);
        world.builds.set_head(&git_source(), Some(sha("b2")));
        assert_eq!(rebuild(None).await.unwrap().deploy.commit, Some(sha("b2")), "it has moved");
        assert_eq!(rebuild(Some(sha("c3"))).await.unwrap().deploy.commit, Some(sha("c3")));
        world.quiet(&access).await;
        let plain = world.register("web", Policy::default()).await;
        let refused = world.deployer.rebuild(&plain, None, None).await;
        assert!(matches!(refused, Err(Refusal::WrongKind(_))));
    });
}

#[test]
fn a_repeated_rebuild_is_the_first_one_wherever_the_branch_is_by_now() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.git_app(Policy::default()).await;
        let key = IdempotencyKey::new(KeyHeader::IdempotencyKey, "once", [7; 32]).unwrap();
        let rebuild = async || world.deployer.rebuild(&access, None, Some(key.clone())).await;
        world.builds.set_head(&git_source(), Some(sha("a1")));
        rebuild().await.unwrap();
        world.builds.set_head(&git_source(), Some(sha("b2")));
        let again = rebuild().await.unwrap();
        assert!(again.replayed && again.deploy.commit == Some(sha("a1")), "{again:?}");
        world.builds.silence_source(&git_source());
        assert!(rebuild().await.unwrap().replayed, "the source need not answer");
        assert_eq!(world.history(&access).await.len(), 1);
    });
}

#[test]
fn a_held_commit_is_held_in_full_and_in_short_until_a_person_builds_it_again() {
    let world = World::new(SECOND);
    world.run(async {
        let policy = Policy::default().with(|policy| policy.hold = HoldPolicy::All);
        let access = world.built_app(policy).await;
        world.deploy_commit(&access, "b2b2b2b2").await.unwrap();
        world.ended(&access, 2).await;
        world.rolled_back(&access).await;
        let ci = world.webhook(&access).await;
        for commit in [sha("b2b2b2b2"), "b2b2b2b".parse().unwrap(), "B2B2B2B2".parse().unwrap()] {
            let refused = world.submit_commit(&ci, commit).await;
            assert!(matches!(refused, Err(Refusal::ImageHeld { .. })), "{refused:?}");
        }
        assert!(world.deploy_commit(&access, "b2b2b2b2").await.is_ok(), "a person's call deploys");
        world.ended(&access, 4).await;
        assert!(world.view(&access).await.app.holds.is_empty());
        assert!(world.submit_commit(&ci, sha("b2b2b2b2")).await.is_ok());
        world.quiet(&access).await;
    });
}

#[test]
fn a_builds_log_is_followed_to_its_end() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.built_app(Policy::default()).await;
        world.deploy_commit(&access, "b2").await.unwrap();
        world.ended(&access, 2).await;
        let revision = world.deploy_commit(&access, "500").await.unwrap().deploy.revision;
        let mut text = Vec::new();
        loop {
            let part = world.deployer.build_log(&access, revision, text.len() as u64, true).await.unwrap();
            text.extend(part.bytes);
            if part.last {
                break;
            }
        }
        let text = String::from_utf8(text).unwrap();
        assert!(text.starts_with("building 500") && text.ends_with("Error 1\n"), "{text}");
        let none = world.deployer.build_log(&access, Revision::new(9).unwrap(), 0, true).await;
        assert!(matches!(none, Err(Refusal::RevisionNotFound(_))));
        let back = world.rolled_back(&access).await;
        let none = world.deployer.build_log(&access, back.revision, 0, true).await;
        assert_eq!(none, Err(Refusal::NoBuildLog(back.revision)));
    });
}

#[test]
fn a_builds_deadline_waits_for_room_and_for_the_builder() {
    let world = World::new(SECOND);
    world.run(async {
        let policy = Policy::default().with(|policy| policy.build_deadline = 10 * SECOND);
        let access = world.git_app(policy).await;
        world.builds.script("b1", BuildScript::succeeds().waiting_for(60 * SECOND).after(5 * SECOND));
        world.deploy_commit(&access, "b1").await.unwrap();
        assert_eq!(world.ended(&access, 1).await.status(), Status::Succeeded, "a minute without room");

        world.builds.script("b2", BuildScript::succeeds().after(5 * SECOND));
        world.deploy_commit(&access, "b2").await.unwrap();
        world.sleep(2).await;
        world.builds.set_reachable(false);
        world.sleep(60).await;
        world.builds.set_reachable(true);
        assert_eq!(world.ended(&access, 2).await.status(), Status::Succeeded, "a minute without a builder");

        world.builds.script("b3", BuildScript::hangs().waiting_for(60 * SECOND));
        world.deploy_commit(&access, "b3").await.unwrap();
        let ended = world.ended(&access, 3).await;
        assert_eq!(reason(&ended).0, Reason::BUILD_DEADLINE);
        let State::Failed { message, .. } = &ended.state else { panic!("{:?}", ended.state) };
        assert!(message.contains("not counting"), "{message}");
    });
}

/// A git app whose webhook has brought `b2`, on a branch that `a1`, `b2`, `c3` and `d4` came to; with the webhook's proof.
async fn app_with_a_branch(world: &World) -> (Authorized, Authorized) {
    for digits in ["a1", "b2", "c3", "d4"] {
        world.builds.set_head(&git_source(), Some(sha(digits)));
    }
    let access = world.git_app(Policy::default()).await;
    let webhook = world.webhook(&access).await;
    let first = world.deploy_commit(&webhook, "b2").await.unwrap().deploy.revision;
    assert_eq!(world.ended(&access, first.get()).await.status(), Status::Succeeded);
    (access, webhook)
}

#[test]
fn posted_commit_that_is_older_than_what_came_before_changes_nothing() {
    let world = World::new(SECOND);
    world.run(async {
        let (access, webhook) = app_with_a_branch(&world).await;
        let late = world.deploy_commit(&webhook, "a1").await.unwrap().deploy;
        assert_eq!((late.revision.get(), late.status()), (2, Status::Queued), "the accept asks no source");
        let waited = world.deployer.wait(&webhook, late.revision, Duration::from_secs(60)).await.unwrap();
        assert_eq!(waited.last().revision.get(), 1, "its caller is answered by the end of the newer one");
        let newer = Some(Newer::Commit(sha("b2")));
        let state = State::Superseded { by: Revision::FIRST, rollback: false, newer };
        assert_eq!(world.entry(&access, 2).await.state, state);
        assert_eq!((world.effects(), world.builds.begun().len()), (vec![1], 1), "nothing was built");

        // Of two that come together, the second is judged once the first was.
        let (newer, older) = (world.deploy_commit(&webhook, "c3").await, world.deploy_commit(&webhook, "a1").await);
        let (newer, older) = (newer.unwrap().deploy.revision, older.unwrap().deploy.revision);
        let is_older = State::Superseded { by: newer, rollback: false, newer: Some(Newer::Commit(sha("c3"))) };
        assert_eq!(world.ended(&access, older.get()).await.state, is_older);
        assert_eq!(world.ended(&access, newer.get()).await.status(), Status::Succeeded);
        assert_eq!(world.quiet(&access).await.len(), 4);
        assert_eq!(world.effects(), [1, 3]);
    });
}

#[test]
fn commit_that_is_not_known_to_be_older_is_built() {
    let world = World::new(SECOND);
    world.run(async {
        let (access, webhook) = app_with_a_branch(&world).await;
        let is_built = async |by: &Authorized, digits: &str, why: &str| {
            let revision = world.deploy_commit(by, digits).await.unwrap().deploy.revision;
            assert_eq!(world.ended(&access, revision.get()).await.status(), Status::Succeeded, "{why}");
        };
        is_built(&webhook, "d4", "the head").await;
        is_built(&webhook, "e5", "no commit of the branch").await;
        is_built(&access, "a1", "a person's").await;
        let sequence = DeployRequest::commit(sha("c3")).with(|request| request.order = Sequence::new(7).into());
        let counted = world.deployer.submit(&webhook, sequence).await.unwrap().deploy.revision;
        assert_eq!(world.ended(&access, counted.get()).await.status(), Status::Succeeded, "its number says so");
        world.builds.silence_source(&git_source());
        is_built(&webhook, "b2", "its source does not answer").await;
        let entries = world.quiet(&access).await;
        let why = entries.last().and_then(|entry| entry.resolution.as_deref()?.gap());
        assert!(why.is_some_and(|why| why.contains("older than what came before is not known")), "{why:?}");
        world.builds.set_head(&git_source(), Some(sha("a1")));
        is_built(&webhook, "a1", "the branch was taken back to it").await;
    });
}

#[test]
fn newer_commit_that_failed_or_was_cancelled_takes_no_place() {
    let world = World::new(SECOND);
    world.run(async {
        let (access, webhook) = app_with_a_branch(&world).await;
        world.builds.script("d4", BuildScript::fails());
        let failed = world.deploy_commit(&webhook, "d4").await.unwrap().deploy.revision;
        assert_eq!(world.ended(&access, failed.get()).await.status(), Status::Failed);
        let fix = world.deploy_commit(&webhook, "c3").await.unwrap().deploy.revision;
        assert_eq!(world.ended(&access, fix.get()).await.status(), Status::Succeeded, "it may be the fix");

        world.builds.silence_source(&git_source());
        let waits = world.deploy_commit(&webhook, "b2").await.unwrap().deploy;
        assert!(waits.is_to_be_ordered() && world.view(&access).await.latest_in_order() == Some(fix));
        let cancelled = world.deployer.cancel(&access, waits.revision).await.unwrap();
        assert_eq!(cancelled.status(), Status::Cancelled, "while its source is asked");
        let view = world.view(&access).await;
        assert_eq!(
            (view.latest_in_order(), view.newest().map(|newest| newest.revision)),
            (Some(waits.revision), Some(waits.revision))
        );
    });
}

#[test]
fn commit_is_not_judged_by_a_source_that_the_app_has_left() {
    let world = World::new(SECOND);
    world.run(async {
        let (access, webhook) = app_with_a_branch(&world).await;
        let next = GitSource { branch: "next".parse().unwrap(), ..git_source() };
        world.builds.set_head(&next, Some(sha("a1")));
        let posted = world.deploy_commit(&webhook, "a1").await.unwrap().deploy.revision;
        // The verdict of the first source is confirmed after 5 s.
        world.sleep(2).await;
        let to_next = SourceChange { branch: "next".parse().ok(), ..SourceChange::default() };
        let (policy, target) = (PolicyChange::default(), TargetChange::default());
        world.deployer.change(&access, policy, to_next, target).await.unwrap();
        assert_eq!(
            world.ended(&access, posted.get()).await.status(),
            Status::Succeeded,
            "the head of the other branch"
        );
    });
}

#[test]
fn lagging_source_is_asked_again_before_a_commit_counts_as_older() {
    let world = World::new(SECOND);
    world.run(async {
        let (access, webhook) = app_with_a_branch(&world).await;
        let posted = world.deploy_commit(&webhook, "a1").await.unwrap().deploy.revision;
        world.sleep(2).await;
        world.builds.set_head(&git_source(), Some(sha("a1")));
        assert_eq!(
            world.ended(&access, posted.get()).await.status(),
            Status::Succeeded,
            "the branch was taken back to it"
        );
    });
}

#[test]
fn returns_are_not_judged_by_their_commits() {
    let world = World::new(SECOND);
    world.run(async {
        let (access, webhook) = app_with_a_branch(&world).await;
        let newer = world.deploy_commit(&webhook, "d4").await.unwrap().deploy.revision;
        assert_eq!(world.ended(&access, newer.get()).await.status(), Status::Succeeded);
        assert_eq!(world.rolled_back(&access).await.status(), Status::Succeeded);
        let late = world.deploy_commit(&webhook, "c3").await.unwrap().deploy.revision;
        let is_older = State::Superseded { by: newer, rollback: false, newer: Some(Newer::Commit(sha("d4"))) };
        assert_eq!(
            world.ended(&access, late.get()).await.state,
            is_older,
            "the slow pipeline does not undo a rollback"
        );
    });
}
