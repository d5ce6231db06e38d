//! Polling: git apps whose branch is looked at, on the whole engine under simulated time.

use std::{
    cell::Cell,
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{FutureExt, select_biased};
use rollhook_conformance::samples::git_source;
use rollhook_core::{
    app::Policy,
    deploy::{Deploy, Revision, Status, Trigger},
    request::{DeployRequest, Field, PolicyChange, Refusal, SourceChange, TargetChange},
    service::{Authorized, Deployer, PollOutcome},
    source::GitSource,
};

use crate::world::{World, registration, sha};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn polled() -> Policy {
    Policy::default().with(|policy| policy.poll = Some(MINUTE))
}

fn poll(interval: Option<Duration>) -> PolicyChange {
    PolicyChange { poll: Some(interval), ..PolicyChange::default() }
}

/// Trigger and first digits of each entry, oldest first.
fn told(history: &[Deploy]) -> Vec<(Trigger, String)> {
    let digits = |deploy: &Deploy| deploy.commit.as_ref().map(|commit| commit.as_str()[..2].to_owned());
    history.iter().map(|deploy| (deploy.trigger, digits(deploy).unwrap_or_default())).collect()
}

fn entry(trigger: Trigger, digits: &str) -> (Trigger, String) {
    (trigger, digits.to_owned())
}

impl World {
    /// A polled app that runs revision 1, found at `a1`.
    async fn polled_app(&self) -> Authorized {
        self.push("a1");
        let access = self.git_app(polled()).await;
        self.sleep(65).await;
        assert_eq!(self.ended(&access, 1).await.status(), Status::Succeeded);
        access
    }

    fn push(&self, digits: &str) {
        self.builds.set_head(&git_source(), Some(sha(digits)));
    }

    async fn submitted(&self, access: &Authorized, digits: &str) -> u64 {
        self.deploy_commit(access, digits).await.unwrap().deploy.revision.get()
    }

    async fn change(&self, access: &Authorized, change: PolicyChange) {
        self.deployer.change_policy(access, change).await.unwrap();
    }

    fn found(&self, access: &Authorized) -> Option<PollOutcome> {
        self.deployer.polled(access.uid()).map(|polled| polled.found)
    }

    /// The number of reads of the source so far.
    fn looks(&self) -> usize {
        self.builds.looks()
    }
}

/// The engine of another process, until the scenario ends.
async fn beside<T>(other: &Deployer, scenario: impl Future<Output = T>) -> T {
    let mut engine = pin!(other.run(std::future::pending()).fuse());
    let mut scenario = pin!(scenario.fuse());
    select_biased! {
        end = engine => panic!("the engine has stopped: {end:?}"),
        value = scenario => value,
    }
}

#[test]
fn a_push_is_found_built_and_deployed_and_nothing_is_deployed_twice() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.polled_app().await;
        let first = world.entry(&access, 1).await;
        assert_eq!((first.trigger, first.actor.to_string()), (Trigger::Git, "auto".to_owned()));
        world.sleep(3600).await;
        assert_eq!(world.history(&access).await.len(), 1, "the same head is nothing new");
        world.push("b2");
        world.sleep(70).await;
        assert_eq!(world.ended(&access, 2).await.status(), Status::Succeeded);
        world.sleep(3600).await;
        assert_eq!(told(&world.history(&access).await), [entry(Trigger::Git, "a1"), entry(Trigger::Git, "b2")]);
        assert_eq!(world.found(&access), Some(PollOutcome::Head(sha("b2").into())));
    });
}

#[test]
fn source_is_polled_at_the_configured_interval() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.polled_app().await;
        let before = world.looks();
        world.sleep(3600).await;
        let looks = world.looks() - before;
        assert!((50..=70).contains(&looks), "{looks} looks in an hour");
        world.change(&access, poll(Some(MINUTE * 10))).await;
        let before = world.looks();
        world.sleep(36_000).await;
        let looks = world.looks() - before;
        assert!((50..=70).contains(&looks), "{looks} looks in ten hours");
    });
}

#[test]
fn a_push_is_found_while_an_earlier_one_is_still_built() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.polled_app().await;
        world.push("888");
        world.sleep(70).await;
        assert_eq!(world.entry(&access, 2).await.status(), Status::Building, "it never ends by itself");
        world.push("b3");
        world.sleep(70).await;
        let three = world.entry(&access, 3).await;
        assert_eq!((three.trigger, three.status()), (Trigger::Git, Status::Queued), "builds are serialised");
        world.deployer.cancel(&access, Revision::new(2).unwrap()).await.unwrap();
        assert!(world.ended(&access, 3).await.is_terminal());
    });
}

#[test]
fn commit_of_a_webhook_is_not_deployed_again() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.polled_app().await;
        let webhook = world.webhook(&access).await;
        world.push("b2");
        world.submitted(&webhook, "b2").await;
        world.sleep(3600).await;
        assert_eq!(told(&world.history(&access).await), [entry(Trigger::Git, "a1"), entry(Trigger::Webhook, "b2")]);
        let short = DeployRequest::commit("c3c3c3c".parse().unwrap());
        // What the simulated source resolves the short form to.
        world.push("c3c3c3cf6ff785ed94a041318a3a69bec7ea9706");
        world.deployer.submit(&webhook, short).await.unwrap();
        world.sleep(3600).await;
        assert_eq!(world.history(&access).await.len(), 3, "nor what it named by its first digits");
    });
}

#[test]
fn two_triggers_for_one_push_make_two_builds_where_the_webhook_comes_later() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.polled_app().await;
        let app = world.view(&access).await.app;
        assert_eq!(world.deployer.warning(&access, &app).await.unwrap(), None);
        let webhook = world.webhook(&access).await;
        assert_eq!(world.deployer.warning(&access, &app).await.unwrap(), None, "it is there, and not used");
        world.push("b2");
        world.sleep(70).await;
        world.submitted(&webhook, "b2").await;
        world.sleep(3600).await;
        let both = [entry(Trigger::Git, "a1"), entry(Trigger::Git, "b2"), entry(Trigger::Webhook, "b2")];
        assert_eq!(told(&world.history(&access).await), both);
        assert_eq!(world.builds.begun().len(), 3);
        let warning = world.deployer.warning(&access, &app).await.unwrap().unwrap();
        assert!(warning.contains("Choose one") && warning.contains("revision 3"), "{warning}");
        world.deployer.disable_webhook(&access).await.unwrap();
        assert_eq!(world.deployer.warning(&access, &app).await.unwrap(), None, "it was chosen");
    });
}

#[test]
fn held_commit_is_not_deployed_by_polling() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.polled_app().await;
        world.push("b2");
        world.sleep(70).await;
        world.ended(&access, 2).await;
        world.rolled_back(&access).await;
        world.sleep(3600).await;
        assert_eq!(world.history(&access).await.len(), 3, "the head stays where it is");
        world.push("c3");
        world.sleep(70).await;
        assert_eq!(world.ended(&access, 4).await.status(), Status::Succeeded, "what is new is deployed");
        // Taken back to what the rollback went away from.
        world.push("b2");
        world.sleep(3600).await;
        assert_eq!(world.history(&access).await.len(), 4);
        assert_eq!(world.found(&access), Some(PollOutcome::Held(sha("b2").into(), Revision::new(3).unwrap())));
        world.deployer.release_hold(&access).await.unwrap();
        world.sleep(130).await;
        assert_eq!(world.entry(&access, 5).await.commit, Some(sha("b2")), "nobody holds it any more");
    });
}

#[test]
fn a_build_that_failed_is_not_repeated_unless_asked() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.polled_app().await;
        world.push("500");
        world.sleep(70).await;
        assert_eq!(world.ended(&access, 2).await.status(), Status::Failed);
        world.sleep(3600).await;
        assert_eq!(world.history(&access).await.len(), 2);
        let head = Some(sha("500"));
        world.deployer.rebuild(&access, head, None).await.unwrap();
        world.ended(&access, 3).await;
        world.sleep(3600).await;
        assert_eq!(world.history(&access).await.len(), 3);
    });
}

#[test]
fn reset_branch_is_deployed_at_its_new_head() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.polled_app().await;
        world.push("b2");
        world.sleep(70).await;
        world.ended(&access, 2).await;
        world.push("a1");
        world.sleep(120).await;
        assert_eq!(world.ended(&access, 3).await.commit, Some(sha("a1")));
        world.sleep(3600).await;
        let history = told(&world.history(&access).await);
        assert_eq!(history, [entry(Trigger::Git, "a1"), entry(Trigger::Git, "b2"), entry(Trigger::Git, "a1")]);
    });
}

#[test]
fn branch_reset_to_a_commit_that_came_too_late_is_deployed() {
    let world = World::new(SECOND);
    world.run(async {
        world.push("a0");
        let access = world.polled_app().await;
        world.push("b2");
        world.sleep(70).await;
        world.ended(&access, 2).await;
        let webhook = world.webhook(&access).await;
        let late = world.submitted(&webhook, "a0").await;
        assert_eq!(world.ended(&access, late).await.status(), Status::Superseded);
        world.push("a0");
        world.sleep(120).await;
        assert_eq!(world.ended(&access, 4).await.commit, Some(sha("a0")));
        assert_eq!(
            told(&world.history(&access).await)[2..],
            [entry(Trigger::Webhook, "a0"), entry(Trigger::Git, "a0")]
        );
    });
}

#[test]
fn branch_reset_to_a_commit_deployed_since_is_ignored() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.polled_app().await;
        world.push("b2");
        world.sleep(70).await;
        world.ended(&access, 2).await;
        world.submitted(&access, "a1").await;
        world.ended(&access, 3).await;
        world.push("a1");
        world.sleep(3600).await;
        assert_eq!(world.history(&access).await.len(), 3);
    });
}

#[test]
fn unavailable_source_is_polled_with_growing_pauses() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.polled_app().await;
        world.builds.silence_source(&git_source());
        world.sleep(70).await;
        assert!(matches!(world.found(&access), Some(PollOutcome::Unreadable(_))));
        world.sleep(3600).await;
        let before = world.looks();
        world.sleep(6 * 3600).await;
        let looks = world.looks() - before;
        assert!((10..=14).contains(&looks), "{looks} looks in six hours");
        assert_eq!(world.history(&access).await.len(), 1, "nothing is made up meanwhile");
        let polled = world.deployer.polled(access.uid()).unwrap();
        assert!(polled.at.since(polled.since) > Duration::from_secs(6 * 3600), "told since when");
        world.push("b2");
        world.sleep(2400).await;
        assert_eq!(world.ended(&access, 2).await.trigger, Trigger::Git);
        let before = world.looks();
        world.sleep(3600).await;
        assert!(world.looks() - before >= 50, "as often as before");
        world.builds.set_head(&git_source(), None);
        world.sleep(70).await;
        assert!(matches!(world.found(&access), Some(PollOutcome::Unreadable(why)) if why.contains("no branch main")));
        world.builds.close_source(&git_source());
        world.sleep(300).await;
        assert!(matches!(world.found(&access), Some(PollOutcome::Unreadable(why)) if why.contains("closed")));
    });
}

#[test]
fn polling_begins_and_ends_with_the_policy() {
    let world = World::new(SECOND);
    world.run(async {
        world.push("a1");
        let access = world.git_app(Policy::default()).await;
        world.sleep(3600).await;
        assert_eq!((world.looks(), world.history(&access).await.len()), (0, 0), "it is off unless somebody wants it");
        world.change(&access, poll(Some(MINUTE))).await;
        world.sleep(70).await;
        assert_eq!(world.ended(&access, 1).await.trigger, Trigger::Git, "an app at rest begins to be polled");
        world.change(&access, poll(None)).await;
        world.sleep(5).await;
        let before = world.looks();
        world.push("b2");
        world.sleep(3600).await;
        assert_eq!((world.looks(), world.history(&access).await.len()), (before, 1));
        assert_eq!(world.deployer.polled(access.uid()), None);
        world.change(&access, poll(Some(MINUTE))).await;
        world.sleep(70).await;
        assert_eq!(world.ended(&access, 2).await.commit, Some(sha("b2")));
    });
}

#[test]
fn unpollable_source_is_refused_with_a_reason() {
    let world = World::new(SECOND);
    world.run(async {
        let image = world.register("web", Policy::default()).await;
        let access = world.git_app(Policy::default()).await;
        let ask =
            async |access: &Authorized, interval| world.deployer.change_policy(access, poll(Some(interval))).await;
        let day = Duration::from_secs(24 * 3600);
        for (access, interval) in
            [(&image, MINUTE), (&access, SECOND), (&access, day + SECOND), (&access, Duration::ZERO)]
        {
            let refused = ask(access, interval).await;
            assert!(matches!(refused, Err(Refusal::InvalidField(Field::PolicyPoll, _))), "{refused:?}");
        }
        assert!(ask(&access, Duration::from_secs(30)).await.is_ok() && ask(&access, day).await.is_ok());
        let registered = world.deployer.register(&world.operator, registration("new", polled()), None).await;
        assert!(matches!(registered, Err(Refusal::InvalidField(Field::PolicyPoll, _))), "{registered:?}");
    });
}

#[test]
fn changed_source_is_polled_at_once() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.polled_app().await;
        let branch: rollhook_core::source::Branch = "next".parse().unwrap();
        world.builds.set_head(&GitSource { branch: branch.clone(), ..git_source() }, Some(sha("d4")));
        let change = SourceChange { branch: Some(branch), ..SourceChange::default() };
        world.deployer.change(&access, PolicyChange::default(), change, TargetChange::default()).await.unwrap();
        world.sleep(5).await;
        assert_eq!(world.entry(&access, 2).await.commit, Some(sha("d4")));
        world.push("a9");
        world.sleep(3600).await;
        assert_eq!(world.history(&access).await.len(), 2, "the other branch is nothing to it");
    });
}

#[test]
fn another_replica_goes_on_polling_where_one_has_died() {
    let world = World::new(SECOND);
    let access = world.run(world.polled_app());
    // The first one's engine runs no longer, and gave nothing up.
    let other = world.replica("two", 2);
    world.idle(beside(&other, async {
        world.push("b2");
        world.sleep(120).await;
        assert_eq!(world.ended(&access, 2).await.trigger, Trigger::Git);
        world.push("a1");
        world.sleep(3600).await;
        assert_eq!(world.history(&access).await.len(), 3, "one that was taken back as well");
    }));
    assert_eq!(other.polled(access.uid()).map(|polled| polled.found), Some(PollOutcome::Head(sha("a1").into())));
}

#[test]
fn branch_reset_between_polls_is_found() {
    let world = World::new(SECOND);
    let access = world.run(async {
        let access = world.polled_app().await;
        world.push("b2");
        world.sleep(70).await;
        world.ended(&access, 2).await;
        access
    });
    world.push("a1");
    let other = world.replica("two", 2);
    world.idle(beside(&other, async {
        world.sleep(180).await;
        assert_eq!(world.ended(&access, 3).await.commit, Some(sha("a1")));
    }));
}

#[test]
fn only_one_replica_polls_a_source() {
    let world = World::new(SECOND);
    let others = [world.replica("two", 2), world.replica("three", 3)];
    world.run(beside(
        &others[0],
        beside(&others[1], async {
            let access = world.polled_app().await;
            let before = world.looks();
            world.sleep(3600).await;
            let looks = world.looks() - before;
            assert!((50..=70).contains(&looks), "{looks} looks in an hour");
            for digits in ["b2", "c3", "d4"] {
                world.push(digits);
                world.sleep(130).await;
            }
            world.sleep(600).await;
            assert_eq!(told(&world.history(&access).await).len(), 4, "each push is deployed once");
        }),
    ));
}

#[test]
fn paused_replica_stops_polling_apps_it_lost() {
    let world = World::new(SECOND);
    let other = world.replica("two", 2);
    let open = Cell::new(true);
    let first = Gated { engine: Box::pin(world.deployer.run(std::future::pending())), open: &open };
    world.idle(async {
        let mut first = pin!(first.fuse());
        let scenario = async {
            let access = world.polled_app().await;
            open.set(false);
            beside(&other, async {
                world.sleep(600).await;
                assert!(other.polled(access.uid()).is_some(), "it was taken over");
                open.set(true);
                world.sleep(600).await;
                let before = world.looks();
                world.sleep(3600).await;
                let looks = world.looks() - before;
                assert!((50..=70).contains(&looks), "{looks} looks in an hour");
                assert_eq!(world.deployer.polled(access.uid()), None, "what it knew is old");
                world.push("b2");
                world.sleep(130).await;
                world.sleep(600).await;
                assert_eq!(world.history(&access).await.len(), 2);
            })
            .await;
        };
        select_biased! {
            end = first => panic!("the engine has stopped: {end:?}"),
            () = scenario.boxed_local().fuse() => {}
        }
    });
}

/// An engine that can be paused.
struct Gated<'a, F> {
    engine: Pin<Box<F>>,
    open: &'a Cell<bool>,
}

impl<F: Future> Future for Gated<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        if self.open.get() { self.engine.as_mut().poll(context) } else { Poll::Pending }
    }
}

#[test]
fn deleted_app_is_not_polled() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.polled_app().await;
        world.deployer.delete(&access).await.unwrap();
        world.sleep(5).await;
        let before = world.looks();
        world.push("b2");
        world.sleep(3600).await;
        assert_eq!(world.looks(), before);
    });
}
