//! Image apps that follow their repository: what is newest there is deployed, once, and only forward.

use std::{sync::Arc, time::Duration};

use rollhook_core::{
    app::Policy,
    deploy::{Deploy, Status, Trigger},
    engine::following::Standing,
    follow::PushedImage,
    image::ImageLabels,
    lock::PrincipalKey,
    ports::Resolved,
    request::{Field, PolicyChange, Refusal},
    service::{Authorized, Deployer, Hinted, NewLock, Place, PollOutcome},
};
use rollhook_memory::{Answering, Script, SimulatedRegistry};

use crate::world::{self, World, api, digest, image, sha};

/// How long a sound version takes to roll out.
const ROLLOUT: Duration = Duration::from_secs(2);
/// The interval of polls.
const EVERY: Duration = Duration::from_secs(60);
/// Longer than a poll, what it takes to settle, and the rollout.
const POLL: u64 = 130;

/// A world whose images are a registry's, where app `api` runs `api:v1` and follows a rule.
struct Following {
    world: World,
    registry: Arc<SimulatedRegistry>,
    deployer: Deployer,
}

impl Following {
    fn new() -> Self {
        let world = World::new(ROLLOUT);
        world.cluster.fetch_images();
        let (registry, deployer) = world.replica_with_registry("two");
        let following = Self { world, registry, deployer };
        following.push("v1", 1);
        following
    }

    fn push(&self, tag: &str, bits: u8) {
        let pushed = Resolved::new(digest(bits), "application/vnd.oci.image.manifest.v1+json").with(|resolved| {
            resolved.labels =
                ImageLabels::default().with(|labels| labels.revision = Some(sha(&format!("{bits:x}")).to_string()));
        });
        self.registry.push(&image(&api(tag)), &tag.parse().unwrap(), pushed);
    }

    /// Runs a scenario with the app, which follows this rule and whose first version has succeeded.
    fn run<T>(&self, rule: &str, scenario: impl AsyncFnOnce(&Authorized) -> T) -> T {
        let policy = PolicyChange::default();
        let policy = PolicyChange { follow: Some(Some(rule.parse().unwrap())), poll: Some(Some(EVERY)), ..policy };
        self.world.run_beside(&self.deployer, async {
            let wanted = world::registration("api", policy.apply(Policy::default()).unwrap());
            let registered = self.deployer.register(&self.world.operator, wanted, None).await.unwrap();
            let access = self.world.access(&registered.app.app.id).await;
            assert_eq!(self.world.ended(&access, 1).await.status(), Status::Succeeded);
            self.world.sleep(POLL).await;
            scenario(&access).await
        })
    }

    async fn sleep(&self, seconds: u64) {
        self.world.sleep(seconds).await;
    }

    /// Deploys by hand, and waits for the end.
    async fn deployed(&self, access: &Authorized, reference: &str) {
        let accepted = self.deployer.submit(access, world::request(reference)).await.unwrap();
        self.world.ended(access, accepted.deploy.revision.get()).await;
    }

    /// The triggers and images of the history, oldest first.
    async fn history(&self, access: &Authorized) -> Vec<(Trigger, String)> {
        let shown = |deploy: &Deploy| {
            (deploy.trigger, deploy.image.as_ref().and_then(|image| image.tag()).unwrap_or_default().to_owned())
        };
        self.world.history(access).await.iter().map(shown).collect()
    }

    async fn change(&self, access: &Authorized, change: PolicyChange) {
        self.deployer.change_policy(access, change).await.unwrap();
    }

    async fn follow(&self, access: &Authorized, rule: &str) {
        self.change(access, PolicyChange { follow: Some(Some(rule.parse().unwrap())), ..PolicyChange::default() })
            .await;
    }

    fn found(&self, access: &Authorized) -> Option<PollOutcome> {
        self.deployer.polled(access.uid()).map(|polled| polled.found)
    }

    /// The number of readings of the repository so far.
    fn polls(&self) -> usize {
        self.registry.listings()
    }
}

fn entry(trigger: Trigger, tag: &str) -> (Trigger, String) {
    (trigger, tag.to_owned())
}

fn by_registry(tag: &str) -> (Trigger, String) {
    entry(Trigger::Registry, tag)
}

fn first() -> (Trigger, String) {
    entry(Trigger::Manual, "v1")
}

#[test]
fn newer_version_is_deployed_by_its_digest_and_nothing_is_deployed_twice() {
    let following = Following::new();
    following.run("semver:^1", async |access| {
        following.push("1.9.0", 9);
        following.push("1.10.0", 10);
        following.push("2.0.0", 20);
        following.sleep(POLL).await;
        let entry = following.world.entry(access, 2).await;
        assert_eq!((entry.trigger, entry.actor.to_string()), (Trigger::Registry, "auto".to_owned()));
        assert_eq!(entry.image, Some(image(&api("1.10.0")).pinned(digest(10))));
        assert_eq!((entry.status(), &entry.commit), (Status::Succeeded, &None));
        assert_eq!(entry.shown_commit(), Some(sha("a")), "that of the image's label");
        following.sleep(3600).await;
        assert_eq!(following.history(access).await, [first(), by_registry("1.10.0")]);
        assert!(matches!(following.found(access), Some(PollOutcome::Head(_))));
    });
}

#[test]
fn rule_that_was_just_set_deploys_nothing_of_what_is_there() {
    let following = Following::new();
    following.push("1.4.5", 5);
    following.push("main", 6);
    following.run("semver:^1.4", async |access| {
        following.sleep(3600).await;
        assert_eq!(following.history(access).await, [first()]);
        let explained = following.deployer.explain_following(access).await.unwrap();
        assert_eq!(explained.standing, Standing::Followed);
        following.follow(access, "tag:main").await;
        following.sleep(3600).await;
        assert_eq!(following.history(access).await, [first()]);
        following.push("main", 7);
        following.sleep(POLL).await;
        assert_eq!(following.history(access).await, [first(), by_registry("main")]);
    });
}

#[test]
fn first_tag_that_a_rule_follows_is_deployed() {
    let following = Following::new();
    following.run("semver:^2", async |access| {
        let why = "registry.example.com/api has no tag that semver:^2 follows";
        assert_eq!(following.found(access), Some(PollOutcome::Unreadable(why.to_owned())));
        following.push("2.0.0", 20);
        following.sleep(POLL).await;
        assert_eq!(following.history(access).await, [first(), by_registry("2.0.0")]);
    });
}

#[test]
fn three_tags_make_one_deploy() {
    let following = Following::new();
    following.run("semver:^1", async |access| {
        for (tag, bits) in [("1.1.0", 11), ("1.2.0", 12), ("1.3.0", 13)] {
            following.push(tag, bits);
            following.sleep(20).await;
        }
        following.sleep(2 * POLL).await;
        assert_eq!(following.history(access).await, [first(), by_registry("1.3.0")]);
        // Two tags of one image.
        following.push("1.4.0", 14);
        following.push("v1.4.0", 14);
        following.push("1.4.1", 14);
        following.sleep(3600).await;
        assert_eq!(following.history(access).await, [first(), by_registry("1.3.0"), by_registry("1.4.1")]);
    });
}

#[test]
fn tag_that_moves_all_the_time_is_deployed_all_the_same() {
    let following = Following::new();
    following.run("tag:main", async |access| {
        for bits in 20..60 {
            following.push("main", bits);
            following.sleep(20).await;
        }
        let deployed = following.history(access).await.len() - 1;
        assert!((1..=3).contains(&deployed), "{deployed} in 13 minutes");
    });
}

#[test]
fn nothing_goes_backwards() {
    let following = Following::new();
    following.run("semver:^1", async |access| {
        following.push("1.1.0", 11);
        following.push("1.2.0", 12);
        following.sleep(POLL).await;
        // A newest tag that is missing from an answer.
        following.registry.remove(&image(&api("v1")), &"1.2.0".parse().unwrap());
        following.sleep(3600).await;
        following.push("1.2.0", 12);
        following.sleep(POLL).await;
        let expected = [first(), by_registry("1.2.0")];
        assert_eq!(following.history(access).await, expected);
        // A version that was pushed again.
        following.push("1.2.0", 22);
        following.sleep(3600).await;
        assert_eq!(following.history(access).await, expected);
        // A higher one by hand.
        following.push("2.0.0", 20);
        following.deployed(access, &api("2.0.0")).await;
        following.deployed(access, &api("1.9.0")).await;
        following.push("1.5.0", 15);
        following.sleep(3600).await;
        let by_hand = [entry(Trigger::Manual, "2.0.0"), entry(Trigger::Manual, "1.9.0")];
        assert_eq!(following.history(access).await, [expected.to_vec(), by_hand.to_vec()].concat());
        following.push("1.10.0", 10);
        following.sleep(POLL).await;
        assert_eq!(following.history(access).await.last(), Some(&by_registry("1.10.0")));
    });
}

#[test]
fn tag_that_flips_does_not_flip_the_app() {
    let following = Following::new();
    following.push("main", 1);
    following.run("tag:main", async |access| {
        following.push("main", 2);
        following.sleep(POLL).await;
        for bits in [1, 2, 1, 2] {
            following.push("main", bits);
            following.sleep(600).await;
        }
        assert_eq!(following.history(access).await, [first(), by_registry("main")]);
        following.push("main", 3);
        following.sleep(POLL).await;
        assert_eq!(following.history(access).await.len(), 3);
    });
}

#[test]
fn version_that_a_person_rolled_away_from_is_not_brought_back() {
    let following = Following::new();
    following.run("semver:^1", async |access| {
        following.push("1.1.0", 11);
        following.sleep(POLL).await;
        following.world.rolled_back(access).await;
        following.sleep(3600).await;
        // By another tag as well.
        following.push("1.1.1", 11);
        following.sleep(3600).await;
        assert_eq!(following.history(access).await.len(), 3);
        // One that following has not decided on.
        following.push("1.2.0", 12);
        following.deployed(access, &api("1.2.0")).await;
        following.world.rolled_back(access).await;
        following.sleep(3600).await;
        assert_eq!(following.history(access).await.len(), 5);
        assert!(matches!(following.found(access), Some(PollOutcome::Held(_, by)) if by.get() == 5));
        let explained = following.deployer.explain_following(access).await.unwrap();
        assert!(matches!(explained.standing, Standing::Held(by) if by.get() == 5), "{explained:?}");
        following.deployer.release_hold(access).await.unwrap();
        following.sleep(3600).await;
        assert_eq!(
            following.history(access).await.len(),
            5,
            "the history has it: {:?}",
            following.history(access).await
        );
        following.push("1.3.0", 13);
        following.sleep(POLL).await;
        assert_eq!(following.history(access).await.last(), Some(&by_registry("1.3.0")));
    });
}

#[test]
fn version_that_was_restored_from_is_not_tried_again_until_something_newer() {
    let following = Following::new();
    following.run("semver:^1", async |access| {
        following.push("1.1.0", 11);
        following.world.cluster.script(digest(11).as_str(), Script::crashes());
        following.sleep(600).await;
        let history = following.world.quiet(access).await;
        assert_eq!((history[1].status(), history.len()), (Status::Failed, 3), "{history:?}");
        following.sleep(3600).await;
        assert_eq!(following.history(access).await.len(), 3);
        following.push("1.1.1", 12);
        following.sleep(POLL).await;
        assert_eq!(following.history(access).await.last(), Some(&by_registry("1.1.1")));
    });
}

#[test]
fn return_to_a_version_of_another_repository_is_no_change_of_what_is_followed() {
    let following = Following::new();
    following.registry.push(
        &image("registry.example.com/next:1.0.0"),
        &"1.0.0".parse().unwrap(),
        Resolved::new(digest(7), "application/vnd.oci.image.manifest.v1+json"),
    );
    following.run("semver:^1", async |access| {
        following.deployed(access, "registry.example.com/next:1.0.0").await;
        following.sleep(POLL).await;
        following.world.rolled_back(access).await;
        following.sleep(POLL).await;
        let explained = following.deployer.explain_following(access).await.unwrap();
        assert_eq!(explained.repository.to_string(), "registry.example.com/next");
    });
}

#[test]
fn image_that_ci_deploys_is_deployed_once() {
    let following = Following::new();
    following.run("semver:^1", async |access| {
        following.push("1.1.0", 11);
        let webhook = following.world.webhook(access).await;
        following.deployer.submit(&webhook, world::request(&api("1.1.0"))).await.unwrap();
        following.sleep(3600).await;
        assert_eq!(following.history(access).await, [first(), entry(Trigger::Webhook, "1.1.0")]);
    });
}

#[test]
fn behind_a_lock_the_newest_alone_is_deployed() {
    let following = Following::new();
    following.run("semver:^1", async |access| {
        let lock = NewLock {
            reason: "freeze".parse().unwrap(),
            owner: PrincipalKey::of("name", &["alice"]),
            ttl: Some(Duration::from_secs(7200)),
        };
        following.deployer.set_lock(access, None, Some(lock)).await.unwrap();
        following.push("1.1.0", 11);
        following.sleep(600).await;
        following.push("1.2.0", 12);
        following.sleep(600).await;
        assert_eq!(following.history(access).await, [first()]);
        following.sleep(7200).await;
        assert_eq!(following.history(access).await, [first(), by_registry("1.2.0")]);
    });
}

#[test]
fn registry_that_is_away_makes_no_verdict() {
    let following = Following::new();
    following.run("semver:^1", async |access| {
        for answering in [
            Answering::Failing,
            Answering::Denied,
            Answering::Corrupt,
            Answering::Silent,
            Answering::Busy(Some(Duration::from_secs(30))),
        ] {
            following.registry.answers(answering);
            following.sleep(600).await;
            assert!(matches!(following.found(access), Some(PollOutcome::Unreadable(_))), "{answering:?}");
        }
        assert_eq!(following.history(access).await, [first()]);
        following.push("1.1.0", 11);
        following.registry.answers(Answering::Usual);
        following.sleep(3600).await;
        assert_eq!(following.history(access).await, [first(), by_registry("1.1.0")]);
    });
}

#[test]
fn process_that_takes_over_knows_what_was_decided() {
    let following = Following::new();
    following.push("1.4.5", 5);
    following.run("semver:^1", async |_| {});
    let ports = following.world.ports(7);
    let ports = ports.with(|ports| ports.registry = Some(following.registry.clone()));
    let next = Deployer::new(ports, "three");
    following.world.run_beside(&next, async {
        let access = following.world.access(&"shop-test/api".parse().unwrap()).await;
        following.sleep(600).await;
        assert_eq!(following.history(&access).await, [first()]);
        following.push("1.4.6", 6);
        following.sleep(POLL).await;
        assert_eq!(following.history(&access).await, [first(), by_registry("1.4.6")]);
    });
}

#[test]
fn poll_takes_one_page_of_tags_and_one_look() {
    let following = Following::new();
    for number in 2..1_000 {
        following.push(&format!("release-{number}"), 3);
    }
    following.run(r"regex:release-(?<n>\d+)", async |access| {
        let (listings, asked) = (following.polls(), following.registry.asked().len());
        following.sleep(3600).await;
        let polls = following.polls() - listings;
        assert!((50..=70).contains(&polls), "{polls} polls in an hour");
        assert!(following.registry.asked().len() - asked <= polls);
        following.push("release-1000", 4);
        following.sleep(POLL).await;
        assert_eq!(following.history(access).await, [first(), by_registry("release-1000")]);
    });
}

#[test]
fn flood_of_hints_makes_one_poll() {
    let following = Following::new();
    following.run("semver:^1", async |access| {
        let pushed = |repository: &str, tag: &str| {
            vec![PushedImage { repository: repository.to_owned(), tag: Some(tag.parse().unwrap()) }]
        };
        let change = PolicyChange { poll: Some(Some(Duration::from_secs(3600))), ..PolicyChange::default() };
        following.change(access, change).await;
        following.sleep(600).await;
        let before = following.polls();
        for _ in 0..100 {
            assert_eq!(following.deployer.hint(access, &pushed("api", "1.1.0")).await, Ok(Hinted::Noted));
        }
        following.sleep(5).await;
        assert_eq!(following.polls() - before, 1);
        following.sleep(60).await;
        assert_eq!(following.polls() - before, 2, "one more for those that came after the first");
        for other in
            [pushed("web", "1.1.0"), pushed("pi", "1.1.0"), pushed("api", "2.1.0"), pushed("", "1.1.0"), vec![]]
        {
            assert_eq!(following.deployer.hint(access, &other).await, Ok(Hinted::Other), "{other:?}");
        }
        following.sleep(60).await;
        assert_eq!(following.polls() - before, 2);
        following.push("1.1.0", 11);
        for _ in 0..100 {
            following.deployer.hint_unproven(access.app());
            following.deployer.hint_unproven(&"shop-test/web".parse().unwrap());
        }
        following.sleep(5).await;
        assert_eq!(following.polls() - before, 3);
        following.sleep(POLL).await;
        assert_eq!(following.history(access).await, [first(), by_registry("1.1.0")], "it settles at the same pace");
        let polls = following.polls();
        for _ in 0..60 {
            following.deployer.hint_unproven(access.app());
            following.sleep(5).await;
        }
        let polls = following.polls() - polls;
        assert!((3..=6).contains(&polls), "{polls} in five minutes");
    });
}

#[test]
fn app_that_follows_nothing_takes_no_hint() {
    let world = World::new(ROLLOUT);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let pushed = PushedImage { repository: "api".to_owned(), tag: None };
        assert_eq!(world.deployer.hint(&access, &[pushed]).await, Ok(Hinted::NotFollowing));
        world.deployer.hint_unproven(access.app());
    });
}

#[test]
fn settings_that_cannot_be_followed_are_refused() {
    let following = Following::new();
    following.run("semver:^1", async |access| {
        let refused = async |change: PolicyChange| match following.deployer.change_policy(access, change).await {
            Err(Refusal::InvalidField(field, _)) => Some(field),
            _ => None,
        };
        let change = PolicyChange::default;
        assert_eq!(refused(PolicyChange { poll: Some(None), ..change() }).await, Some(Field::PolicyPoll));
        let long = Some(Duration::from_secs(601));
        assert_eq!(refused(PolicyChange { follow_settle: long, ..change() }).await, Some(Field::PolicyFollowSettle));
        following.change(access, PolicyChange { follow: Some(None), ..change() }).await;
        assert_eq!(following.world.view(access).await.app.policy.poll, None);
        following.push("1.1.0", 11);
        following.sleep(600).await;
        assert_eq!(following.history(access).await, [first()]);
        let unset = following.deployer.explain_following(access).await;
        assert!(matches!(unset, Err(Refusal::InvalidField(Field::PolicyFollow, _))));
        following.follow(access, "semver:^1").await;
        assert_eq!(following.world.view(access).await.app.policy.poll, Some(Duration::from_secs(300)));
    });
    let without = World::new(ROLLOUT);
    without.run(async {
        let access = without.app("api", Policy::default()).await;
        let rule = Some(Some("tag:main".parse().unwrap()));
        let change = PolicyChange { follow: rule, ..PolicyChange::default() };
        let refused = without.deployer.change_policy(&access, change).await;
        assert!(matches!(refused, Err(Refusal::InvalidField(Field::PolicyFollow, _))));
    });
    let git = World::new(ROLLOUT);
    git.run(async {
        let access = git.git_app(Policy::default()).await;
        let rule = Some(Some("tag:main".parse().unwrap()));
        let change = PolicyChange { follow: rule, ..PolicyChange::default() };
        let refused = git.deployer.change_policy(&access, change).await;
        assert!(matches!(refused, Err(Refusal::InvalidField(Field::PolicyFollow, _))));
    });
}

#[test]
fn explanation_lists_each_tag_with_its_place_and_what_comes_of_it() {
    let following = Following::new();
    following.push("1.4.5", 5);
    following.run("semver:^1.4", async |access| {
        following.push("1.10.0", 10);
        following.push("1.9.0", 9);
        let explained = following.deployer.explain_following(access).await.unwrap();
        assert_eq!((explained.standing, explained.every), (Standing::Newer, EVERY));
        assert_eq!(explained.newest, Some(image(&api("1.10.0")).pinned(digest(10))));
        assert_eq!(explained.decided, Some(image(&api("1.4.5")).pinned(digest(5))));
        let tags: Vec<_> = explained.tags.iter().map(|listed| (listed.tag.as_str(), listed.place)).collect();
        assert_eq!(tags[..3], [("1.10.0", Place::Newest), ("1.9.0", Place::Older), ("1.4.5", Place::Older)]);
        assert!(matches!(tags[3], ("v1", Place::Unfollowed(_))), "{tags:?}");
        following.sleep(POLL).await;
        let explained = following.deployer.explain_following(access).await.unwrap();
        assert!(matches!(explained.standing, Standing::Deployed(by) if by.get() == 2), "{explained:?}");
        following.world.rolled_back(access).await;
        let explained = following.deployer.explain_following(access).await.unwrap();
        assert!(matches!(explained.standing, Standing::Held(by) if by.get() == 3), "{explained:?}");
        following.registry.answers(Answering::Failing);
        let away = following.deployer.explain_following(access).await;
        assert!(matches!(away, Err(Refusal::RegistryUnavailable { .. })));
    });
}
