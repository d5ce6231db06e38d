//! Pushes that git hosts tell of: each way one can end, on the whole engine under simulated time.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use rollhook_conformance::samples::git_source;
use rollhook_core::{
    app::{AppId, Policy},
    delivery::{Before, Delivery, Event, GitHost, Head, Push, RefUpdate, Reference},
    deploy::{Commit, Revision, Status, Trigger},
    ports::{BranchReader, Clock},
    request::{DeployRequest, IdempotencyKey, KeyHeader, Refusal},
    service::{Accepted, Authorized, Deployer, Outcome, Pushed},
    source::{BranchLog, GitSource},
};

use crate::world::{World, hold_all, sha};

const SECOND: Duration = Duration::from_secs(1);

fn key(text: &str) -> Option<IdempotencyKey> {
    IdempotencyKey::new(KeyHeader::Delivery, text, [7; 32]).ok()
}

fn tells(host: GitHost, event: Event) -> Delivery {
    Delivery { host, event }
}

fn moves(reference: Reference, head: Option<Head>) -> Delivery {
    let updates = vec![RefUpdate { reference, before: Before::Unreported, head }];
    tells(GitHost::named("GitHub"), Event::Push(Push { pusher: Some("octocat".to_owned()), updates }))
}

fn main_branch() -> Reference {
    Reference::Branch("main".to_owned())
}

fn brings(digits: &str) -> Delivery {
    moves(main_branch(), Some(Head::new(sha(digits), "Mend it")))
}

/// The branch went from there to here.
fn went(before: Before, digits: &str) -> Delivery {
    let head = Some(Head::new(sha(digits), "Mend it"));
    let updates = vec![RefUpdate { reference: main_branch(), before, head }];
    tells(GitHost::named("GitHub"), Event::Push(Push { pusher: None, updates }))
}

fn by(host: GitHost, delivery: Delivery) -> Delivery {
    Delivery { host, ..delivery }
}

#[track_caller]
fn accepted(pushed: Outcome<Pushed>) -> Accepted {
    match pushed.unwrap() {
        Pushed::Accepted(accepted) => *accepted,
        Pushed::Ignored(why) => panic!("nothing was done: {why}"),
    }
}

#[track_caller]
fn nothing(pushed: Outcome<Pushed>, words: &[&str]) {
    match pushed.unwrap() {
        Pushed::Accepted(accepted) => panic!("{accepted:?}"),
        Pushed::Ignored(why) => assert!(words.iter().all(|word| why.contains(word)), "{why}"),
    }
}

impl World {
    /// The access that the webhook token of a git app gives.
    async fn git_webhook(&self, policy: Policy) -> Authorized {
        self.webhook(&self.git_app(policy).await).await
    }

    /// The branch is moved, and the host tells.
    async fn pushes(&self, access: &Authorized, digits: &str) -> Outcome<Pushed> {
        self.builds.set_head(&git_source(), Some(sha(digits)));
        self.deployer.push(access, &brings(digits), None).await
    }

    async fn revisions(&self, access: &Authorized) -> usize {
        self.history(access).await.len()
    }
}

#[test]
fn a_push_to_the_branch_builds_exactly_its_commit() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.git_webhook(Policy::default()).await;
        let first = accepted(world.pushes(&access, "a1").await);
        assert!(!first.replayed);
        let done = world.ended(&access, 1).await;
        assert_eq!((done.status(), done.trigger, done.commit), (Status::Succeeded, Trigger::Webhook, Some(sha("a1"))));
        assert_eq!(done.actor.to_string(), "GitHub: octocat");
        accepted(world.pushes(&access, "b2").await);
        assert_eq!(world.ended(&access, 2).await.commit, Some(sha("b2")));
        world.quiet(&access).await;
    });
}

#[test]
fn other_events_are_ignored_with_a_reason() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.git_webhook(Policy::default()).await;
        world.builds.set_head(&git_source(), Some(sha("a1")));
        let head = || Some(Head::new(sha("a1"), "x"));
        let other_branch = Reference::Branch("feature/\u{1b}[31m".to_owned());
        let skipped = moves(main_branch(), Some(Head::new(sha("a1"), "Docs [skip deploy]")));
        let empty = tells(GitHost::named("Bitbucket"), Event::Push(Push { pusher: None, updates: Vec::new() }));
        for (delivery, words) in [
            (moves(other_branch, head()), &["branch \"feature/\\u{1b}[31m\"", "branch \"main\""][..]),
            (moves(Reference::Tag("main".to_owned()), head()), &["tag \"main\"", "branch \"main\""]),
            (moves(Reference::Other("refs/notes/x".to_owned()), head()), &["\"refs/notes/x\""]),
            (moves(main_branch(), None), &["branch \"main\" was deleted"]),
            (skipped, &["[skip deploy]", sha("a1").as_str()]),
            (empty, &["nothing"]),
            (tells(GitHost::named("GitLab"), Event::Ping), &["The webhook works", "branch \"main\""]),
            (tells(GitHost::named("Gitea"), Event::Other("issues".to_owned())), &["Gitea", "\"issues\"", "\"main\""]),
        ] {
            nothing(world.deployer.push(&access, &delivery, None).await, words);
        }
        assert_eq!(world.revisions(&access).await, 0);
    });
}

#[test]
fn of_several_branches_the_apps_own_counts() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.git_webhook(Policy::default()).await;
        world.builds.set_head(&git_source(), Some(sha("a1")));
        let change = |reference, digits: &str| RefUpdate {
            reference,
            before: Before::Unreported,
            head: Some(Head::new(sha(digits), "")),
        };
        let updates = vec![
            change(Reference::Branch("next".to_owned()), "c3"),
            change(Reference::Tag("main".to_owned()), "d4"),
            change(main_branch(), "a1"),
        ];
        let push = tells(GitHost::named("Bitbucket"), Event::Push(Push { pusher: None, updates }));
        let deploy = accepted(world.deployer.push(&access, &push, None).await).deploy;
        assert_eq!((deploy.commit, deploy.actor.to_string()), (Some(sha("a1")), "Bitbucket".to_owned()));
    });
}

#[test]
fn an_image_app_refuses_a_push_and_says_the_ways_out() {
    let world = World::new(SECOND);
    world.run(async {
        let app = world.app("web", Policy::default()).await;
        let access = world.webhook(&app).await;
        for delivery in [brings("a1"), tells(GitHost::named("GitLab"), Event::Other("Issue Hook".to_owned()))] {
            let Err(Refusal::WrongKind(why)) = world.deployer.push(&access, &delivery, None).await else { panic!() };
            assert!(why.contains("built from git") && why.contains("Let CI post the image"), "{why}");
        }
        nothing(world.deployer.push(&access, &tells(GitHost::named("GitHub"), Event::Ping), None).await, &["refused"]);
    });
}

#[test]
fn a_redelivery_makes_no_second_build() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.git_webhook(Policy::default()).await;
        world.builds.set_head(&git_source(), Some(sha("a1")));
        let push = async |delivery: Delivery, key| accepted(world.deployer.push(&access, &delivery, key).await);
        let first = push(brings("a1"), key("g")).await;
        let known = push(brings("a1"), key("g")).await;
        assert!(known.replayed && known.deploy.revision == first.deploy.revision);
        let other_id = push(brings("a1"), key("h")).await;
        assert!(other_id.replayed && other_id.deploy.revision == first.deploy.revision, "Gitea's redelivery");
        let without = push(brings("a1"), None).await;
        assert!(without.replayed, "Bitbucket's");
        world.ended(&access, 1).await;
        // Longer than any key is kept.
        world.sleep(8 * 24 * 3600).await;
        let late = push(brings("a1"), key("g")).await;
        assert_eq!((late.replayed, late.deploy.status()), (true, Status::Succeeded), "as it is by then");
        assert_eq!(world.revisions(&access).await, 1);
        // Two triggers of one push are two builds: CI's, and another host's.
        world.deploy_commit(&access, "a1").await.unwrap();
        assert!(!push(by(GitHost::named("GitLab"), brings("a1")), None).await.replayed);
        assert!(push(brings("a1"), None).await.replayed);
        assert_eq!(world.revisions(&access).await, 3);
    });
}

#[test]
fn a_branch_that_goes_back_and_forth_is_followed() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.git_webhook(Policy::default()).await;
        for (revision, digits) in (1..).zip(["a1", "b2", "a1", "b2"]) {
            let deploy = accepted(world.pushes(&access, digits).await).deploy;
            assert_eq!((deploy.revision.get(), deploy.commit), (revision, Some(sha(digits))));
            world.ended(&access, revision).await;
        }
    });
}

#[test]
fn late_delivery_deploys_no_older_commit() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.git_webhook(Policy::default()).await;
        accepted(world.pushes(&access, "a1").await);
        accepted(world.pushes(&access, "b2").await);
        let late = async |digits: &str, key| world.deployer.push(&access, &brings(digits), key).await;
        nothing(late("a1", None).await, &[sha("a1").as_str(), sha("b2").as_str(), "by now"]);
        nothing(late("a1", key("first")).await, &["by now"]);
        nothing(late("c3", None).await, &[sha("c3").as_str()]);
        world.builds.set_head(&git_source(), None);
        nothing(late("b2", None).await, &["no branch \"main\""]);
        assert_eq!(world.revisions(&access).await, 2);
    });
}

#[test]
fn known_key_is_answered_with_its_deploy_wherever_the_branch_is() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.git_webhook(Policy::default()).await;
        world.builds.set_head(&git_source(), Some(sha("a1")));
        accepted(world.deployer.push(&access, &brings("a1"), key("first")).await);
        world.ended(&access, 1).await;
        accepted(world.pushes(&access, "b2").await);
        world.ended(&access, 2).await;
        let again = async || world.deployer.push(&access, &brings("a1"), key("first")).await;
        let known = accepted(again().await);
        assert_eq!((known.replayed, known.deploy.revision.get()), (true, 1), "the branch has moved on");
        assert_eq!(known.deploy.status(), Status::Succeeded, "as it is by now");
        world.builds.set_head(&git_source(), None);
        assert!(accepted(again().await).replayed, "the branch is gone");
        world.pushes(&access, "b2").await.unwrap();
        world.rolled_back(&access).await;
        assert!(accepted(again().await).replayed, "it was rolled back to");
        let other = IdempotencyKey::new(KeyHeader::Delivery, "first", [8; 32]).ok();
        assert_eq!(world.deployer.push(&access, &brings("c3"), other).await, Err(Refusal::KeyReused));
        assert_eq!(world.revisions(&access).await, 3);
    });
}

#[test]
fn lagging_source_is_asked_again() {
    let world = World::new(SECOND);
    let then = |asked| (Duration::ZERO, if asked < 3 { sha("a1") } else { sha("b2") });
    let (slow, deployer) = with_heads(&world, then);
    world.idle(async {
        let access = world.git_webhook(Policy::default()).await;
        world.deploy_commit(&access, "a1").await.unwrap();
        // Whatever the host says of where the branch was.
        let deploy = accepted(deployer.push(&access, &brings("b2"), None).await).deploy;
        assert_eq!((deploy.commit, slow.asked.load(Ordering::SeqCst)), (Some(sha("b2")), 4));
    });
}

#[test]
fn lagging_source_does_not_make_a_push_late() {
    for (head, before) in [(Some(sha("a1")), Before::At(sha("a1"))), (None, Before::Absent)] {
        let world = World::new(SECOND);
        world.run(async {
            let access = world.git_webhook(Policy::default()).await;
            world.deploy_commit(&access, "a1").await.unwrap();
            world.ended(&access, 1).await;
            world.builds.set_head(&git_source(), head.clone());
            let push = async |before, digits| world.deployer.push(&access, &went(before, digits), None).await;
            let start = world.clock.elapsed();
            assert!(!accepted(push(before.clone(), "b2").await).replayed);
            assert!(world.clock.elapsed() - start < Duration::from_secs(5), "before the host gives up");
            assert_eq!(world.ended(&access, 2).await.commit, Some(sha("b2")));
            assert!(accepted(push(before.clone(), "b2").await).replayed, "told again");
            world.deploy_commit(&access, "c3").await.unwrap();
            world.ended(&access, 3).await;
            let words = ["revision 2", "revision 3", sha("c3").as_str(), "before"].map(str::to_owned);
            nothing(push(before, "b2").await, &words.each_ref().map(String::as_str));
            // A third commit is no host's lag.
            for before in [Before::Unreported, Before::At(sha("d4"))] {
                nothing(push(before, "e5").await, &["Nothing was done"]);
            }
            assert_eq!(world.revisions(&access).await, 3);
        });
    }
}

#[test]
fn history_decides_lateness_while_the_source_is_unavailable() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.git_webhook(Policy::default()).await;
        let push = async |digits: &str| world.deployer.push(&access, &brings(digits), None).await;
        // Nothing was said of the branch, so that it cannot be read.
        accepted(push("a1").await);
        accepted(push("b2").await);
        nothing(
            push("a1").await,
            &["revision 1", "revision 2", sha("b2").as_str(), "which is queued", "cannot be read"],
        );
        assert!(accepted(push("b2").await).replayed);
        accepted(push("c3").await);
        assert_eq!(world.revisions(&access).await, 3);
    });
}

#[test]
fn push_does_not_deploy_a_held_commit_but_ci_does() {
    for policy in [Policy::default(), hold_all()] {
        let world = World::new(SECOND);
        let ci_is_held = policy == hold_all();
        world.run(async {
            let access = world.git_webhook(policy).await;
            accepted(world.pushes(&access, "a1").await);
            world.ended(&access, 1).await;
            accepted(world.pushes(&access, "b2").await);
            world.ended(&access, 2).await;
            assert_eq!(world.rolled_back(&access).await.status(), Status::Succeeded);
            nothing(
                world.pushes(&access, "b2").await,
                &["held since rollback 3", sha("b2").as_str(), "release the hold"],
            );
            nothing(world.deployer.push(&access, &brings("b2"), key("new")).await, &["rollback 3"]);
            assert_eq!(world.revisions(&access).await, 3);
            let held = Err(Refusal::ImageHeld { by: Revision::new(3).unwrap(), what: sha("b2").to_string() });
            match world.deploy_commit(&access, "b2").await {
                Ok(accepted) => assert!(!ci_is_held && accepted.deploy.revision.get() == 4),
                refused => assert!(ci_is_held && refused == held),
            }
            world.deployer.release_hold(&world.access(access.app()).await).await.unwrap();
            accepted(world.pushes(&access, "c3").await);
        });
    }
}

#[test]
fn repeated_push_does_not_retry_a_failed_build() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.git_webhook(Policy::default()).await;
        accepted(world.pushes(&access, "500").await);
        assert_eq!(world.ended(&access, 1).await.status(), Status::Failed);
        let again = accepted(world.deployer.push(&access, &brings("500"), None).await);
        assert_eq!((again.replayed, again.deploy.status()), (true, Status::Failed));
    });
}

#[test]
fn a_deleted_app_and_a_full_one_are_refused() {
    let world = World::new(SECOND);
    world.idle(async {
        let access = world.git_webhook(Policy::default()).await;
        for number in 0..100 {
            accepted(world.pushes(&access, &format!("a{number:03}")).await);
        }
        assert_eq!(world.pushes(&access, "b2").await, Err(Refusal::TooManyUnfinished));
        world.deployer.delete(&world.access(access.app()).await).await.unwrap();
        assert_eq!(world.pushes(&access, "b2").await, Err(Refusal::AppNotFound(access.app().clone())));
    });
}

/// Answers as it is told to, and counts how often it was asked.
struct Slow {
    clock: Arc<dyn Clock>,
    asked: AtomicUsize,
    /// The answer to each read: after how long, and which head.
    then: Box<dyn Fn(usize) -> (Duration, Commit) + Send + Sync>,
    /// The effect that precedes an answer.
    meanwhile: Mutex<Option<(Arc<Deployer>, Authorized, Commit)>>,
}

#[async_trait]
impl BranchReader for Slow {
    async fn head(&self, _app: &AppId, _source: &GitSource) -> rollhook_core::Result<Option<Commit>> {
        let (delay, head) = (self.then)(self.asked.fetch_add(1, Ordering::SeqCst));
        let meanwhile = self.meanwhile.lock().unwrap().take();
        if let Some((deployer, access, commit)) = meanwhile {
            let request = DeployRequest::commit(commit);
            deployer.submit(&access, request).await.unwrap();
        }
        self.clock.sleep(delay).await;
        Ok(Some(head))
    }

    async fn log(&self, _app: &AppId, _source: &GitSource) -> rollhook_core::Result<BranchLog> {
        Ok(BranchLog::default())
    }
}

fn with_heads(
    world: &World,
    then: impl Fn(usize) -> (Duration, Commit) + Send + Sync + 'static,
) -> (Arc<Slow>, Deployer) {
    let slow = Arc::new(Slow {
        clock: Arc::clone(&world.clock) as Arc<dyn Clock>,
        asked: AtomicUsize::new(0),
        then: Box::new(then),
        meanwhile: Mutex::new(None),
    });
    let deployer = world.replica_with_branches("slow", Arc::clone(&slow) as _);
    (slow, deployer)
}

#[test]
fn hanging_source_is_given_up_before_the_git_host_gives_up() {
    let world = World::new(SECOND);
    let (slow, deployer) = with_heads(&world, |_| (Duration::from_secs(3600), sha("a1")));
    world.idle(async {
        let access = world.git_webhook(Policy::default()).await;
        let start = world.clock.elapsed();
        accepted(deployer.push(&access, &brings("a1"), None).await);
        assert_eq!(world.clock.elapsed() - start, Duration::from_secs(5));
        assert_eq!(slow.asked.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn push_is_decided_again_if_the_history_has_changed() {
    let world = World::new(SECOND);
    let (slow, deployer) = with_heads(&world, |asked| (Duration::ZERO, if asked == 0 { sha("a1") } else { sha("b2") }));
    world.idle(async {
        let access = world.git_webhook(Policy::default()).await;
        // While the source says that the branch is at a1, it is moved to b2, and that is accepted first.
        *slow.meanwhile.lock().unwrap() = Some((Arc::clone(&world.deployer), access.clone(), sha("b2")));
        nothing(deployer.push(&access, &brings("a1"), None).await, &[sha("b2").as_str(), "by now"]);
        assert_eq!(
            (slow.asked.load(Ordering::SeqCst), world.revisions(&access).await),
            (6, 1),
            "until the 5 s were over"
        );
    });
}

#[test]
fn push_reported_twice_at_once_is_built_once() {
    let world = World::new(SECOND);
    let (slow, deployer) = with_heads(&world, |asked| (SECOND * u32::from(asked == 0), sha("a1")));
    world.idle(async {
        let access = world.git_webhook(Policy::default()).await;
        let push = brings("a1");
        let (one, two) =
            futures_util::join!(deployer.push(&access, &push, None), deployer.push(&access, &push, key("other")));
        let (one, two) = (accepted(one), accepted(two));
        assert_eq!(one.deploy.revision, two.deploy.revision);
        assert!(one.replayed != two.replayed, "one of them made it");
        assert_eq!((slow.asked.load(Ordering::SeqCst), world.revisions(&access).await), (3, 1));
    });
}
