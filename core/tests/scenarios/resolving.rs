//! The step in which a tag becomes a digest, before anything of its deploy begins.

use std::{sync::Arc, time::Duration};

use rollhook_core::{
    app::{CommitRule, Policy, Resolve},
    deploy::{Deploy, Reason, Resolution, Status, Trigger},
    image::{ImageLabels, ImageRef},
    ports::{Clock, Resolved},
    request::{Field, PolicyChange, Refusal, RollbackRequest},
    service::{Authorized, Deployer},
};
use rollhook_memory::{Answering, Script, SimulatedRegistry};

use crate::world::{self, World, api, digest, image, leave, reason, request};

/// How long a sound version takes to roll out.
const ROLLOUT: Duration = Duration::from_secs(2);

/// A world whose images are a registry's, where app `api` runs version 1.
struct Images {
    world: World,
    registry: Arc<SimulatedRegistry>,
    deployer: Deployer,
}

impl Images {
    fn new() -> Self {
        let world = World::new(ROLLOUT);
        world.cluster.fetch_images();
        let (registry, deployer) = world.replica_with_registry("two");
        let images = Self { world, registry, deployer };
        images.push("v1", 1);
        images.push("v2", 2);
        images
    }

    fn push(&self, tag: &str, bits: u8) {
        let pushed = Resolved::new(digest(bits), "application/vnd.oci.image.manifest.v1+json").with(|resolved| {
            resolved.labels = ImageLabels::default().with(|labels| labels.version = Some(format!("1.{bits}")));
        });
        self.registry.push(&image(&api(tag)), &tag.parse().unwrap(), pushed);
    }

    /// Runs a scenario with the app of this policy, whose first version has succeeded.
    fn run<T>(&self, policy: Policy, scenario: impl AsyncFnOnce(&Authorized) -> T) -> T {
        self.world.run_beside(&self.deployer, async {
            let access = self.deployer.register(&self.world.operator, world::registration("api", policy), None).await;
            let access = self.world.access(&access.unwrap().app.app.id).await;
            assert_eq!(self.world.ended(&access, 1).await.status(), Status::Succeeded);
            scenario(&access).await
        })
    }

    async fn accepted(&self, access: &Authorized, reference: &str) -> Deploy {
        self.deployer.submit(access, request(reference)).await.unwrap().deploy
    }

    async fn deployed(&self, access: &Authorized, reference: &str) -> Deploy {
        let accepted = self.accepted(access, reference).await;
        self.world.ended(access, accepted.revision.get()).await
    }

    async fn rolled_back(&self, access: &Authorized) -> Deploy {
        let accepted = self.deployer.rollback(access, RollbackRequest::default()).await.unwrap().deploy;
        self.world.ended(access, accepted.revision.get()).await
    }

    /// The image that the workload is set to.
    fn runs(&self) -> ImageRef {
        self.world.cluster.effects().last().unwrap().image.clone()
    }
}

fn with(resolve: Resolve) -> Policy {
    Policy::default().with(|policy| policy.resolve = resolve)
}

/// How long a deploy took from its accept to its end.
fn took(deploy: &Deploy) -> Duration {
    deploy.updated_at.since(deploy.created_at)
}

fn gap(deploy: &Deploy) -> &str {
    deploy.resolution.as_deref().and_then(Resolution::gap).unwrap_or_else(|| panic!("{:?}", deploy.resolution))
}

#[test]
fn tag_becomes_the_digest_that_is_rolled_out_recorded_and_rolled_back_to() {
    let images = Images::new();
    images.run(Policy::default(), async |access| {
        let deployed = images.deployed(access, &api("v2")).await;
        assert_eq!(deployed.status(), Status::Succeeded, "{deployed:?}");
        assert_eq!((&deployed.digest, deployed.image.unwrap().to_string()), (&Some(digest(2)), api("v2")));
        let Some(Resolution::Resolved { labels, .. }) = deployed.resolution.as_deref() else { panic!("resolved") };
        assert_eq!(labels.version.as_deref(), Some("1.2"));
        assert_eq!(images.runs(), image(&api("v2")).pinned(digest(2)));
        let asked = images.registry.asked().len();
        let back = images.rolled_back(access).await;
        assert_eq!((back.status(), back.resolution), (Status::Succeeded, None));
        assert_eq!(images.runs(), image(&api("v1")).pinned(digest(1)));
        assert_eq!(images.registry.asked().len(), asked, "a rollback asks no registry");
    });
}

#[test]
fn tag_that_moves_after_it_was_resolved_changes_nothing_of_the_rollout() {
    let images = Images::new();
    images.run(Policy::default(), async |access| {
        images.accepted(access, &api("v2")).await;
        while images.world.entry(access, 2).await.status() != Status::RollingOut {
            images.world.clock.sleep(Duration::from_millis(100)).await;
        }
        images.push("v2", 7);
        let ended = images.world.ended(access, 2).await;
        assert_eq!((ended.status(), ended.digest), (Status::Succeeded, Some(digest(2))));
        assert_eq!(images.runs(), image(&api("v2")).pinned(digest(2)));
    });
}

#[test]
fn missing_image_fails_with_the_nearest_tags_and_touches_nothing() {
    let images = Images::new();
    images.run(Policy::default(), async |access| {
        let effects = images.world.effects();
        let failed = images.deployed(access, &api("v22")).await;
        let (code, message) = reason(&failed);
        assert_eq!((code.as_str(), failed.touched), (Reason::IMAGE_NOT_FOUND, false));
        assert!(message.contains("has no registry.example.com/api:v22; nearest: v2, v1"), "{message}");
        assert!(took(&failed) < Duration::from_secs(3), "{failed:?}");
        assert_eq!(images.world.effects(), effects);
        images.world.sleep(60).await;
        assert_eq!(images.world.history(access).await.len(), 2, "nothing is restored");
    });
}

#[test]
fn registry_that_gives_no_answer_leaves_the_tag_to_the_platform_and_the_entry_says_why() {
    for (answering, why) in [
        (Answering::Denied, "registry.example.com does not let"),
        (Answering::Failing, "registry.example.com cannot be asked"),
        (Answering::Silent, "registry.example.com cannot be asked"),
        (Answering::Corrupt, "registry.example.com cannot be asked"),
        (Answering::Busy(Some(Duration::from_secs(600))), "registry.example.com cannot be asked"),
    ] {
        let images = Images::new();
        images.run(Policy::default(), async |access| {
            images.registry.answers(answering);
            let deployed = images.deployed(access, &api("v2")).await;
            assert_eq!(deployed.status(), Status::Succeeded, "{answering:?}");
            assert!(gap(&deployed).starts_with(why), "{answering:?}: {}", gap(&deployed));
            assert_eq!(images.runs(), image(&api("v2")), "{answering:?}");
            assert!(took(&deployed) < Duration::from_secs(40), "{answering:?}: {deployed:?}");
        });
    }
}

#[test]
fn app_that_requires_the_answer_fails_without_it_and_touches_nothing() {
    for (answering, most) in [(Answering::Denied, 3), (Answering::Failing, 60), (Answering::Silent, 90)] {
        let images = Images::new();
        images.run(with(Resolve::Require), async |access| {
            images.registry.answers(answering);
            let effects = images.world.effects();
            let failed = images.deployed(access, &api("v2")).await;
            let (code, message) = reason(&failed);
            assert_eq!((code.as_str(), failed.touched), (Reason::IMAGE_NOT_RESOLVED, false), "{answering:?}");
            assert!(message.contains("registry.example.com"), "{message}");
            assert!(took(&failed) < Duration::from_secs(most), "{answering:?}: {failed:?}");
            assert_eq!(images.world.effects(), effects);
            // A posted digest is the image, whether or not the registry shows it.
            let pinned = image(&api("v2")).pinned(digest(2));
            let deployed = images.deployed(access, &pinned.to_string()).await;
            assert_eq!((deployed.status(), images.runs()), (Status::Succeeded, pinned), "{answering:?}");
        });
    }
}

#[test]
fn app_that_requires_the_answer_waits_for_a_registry_that_comes_back() {
    let images = Images::new();
    images.run(with(Resolve::Require), async |access| {
        images.registry.answers(Answering::Failing);
        images.accepted(access, &api("v2")).await;
        images.world.sleep(5).await;
        assert_eq!(images.world.entry(access, 2).await.status(), Status::Queued);
        images.registry.answers(Answering::Usual);
        let ended = images.world.ended(access, 2).await;
        assert_eq!((ended.status(), ended.digest), (Status::Succeeded, Some(digest(2))));
    });
}

#[test]
fn registry_that_is_away_keeps_no_rollback_waiting_and_ends_what_it_supersedes() {
    let images = Images::new();
    images.run(Policy::default(), async |access| {
        images.deployed(access, &api("v2")).await;
        images.registry.answers(Answering::Silent);
        images.accepted(access, &api("v1")).await;
        images.world.sleep(1).await;
        let back = images.rolled_back(access).await;
        assert_eq!(back.status(), Status::Succeeded);
        // The app's own settling time comes after the rollout.
        assert!(took(&back) < ROLLOUT + Duration::from_secs(12), "{back:?}");
        assert_eq!(images.world.entry(access, 3).await.status(), Status::Superseded);
        assert_eq!(images.runs(), image(&api("v1")).pinned(digest(1)));
    });
}

#[test]
fn deploy_that_rolls_out_is_not_given_up_for_one_whose_image_is_missing() {
    let images = Images::new();
    images.world.cluster.script("v2", Script::completes().after(Duration::from_secs(60)));
    images.run(Policy::default(), async |access| {
        images.accepted(access, &api("v2")).await;
        images.world.sleep(15).await;
        // It makes no progress, so that a version which may begin would take its place.
        let failed = images.deployed(access, &api("typo")).await;
        assert_eq!(reason(&failed).0, Reason::IMAGE_NOT_FOUND);
        assert_eq!(images.world.ended(access, 2).await.status(), Status::Succeeded);
    });
}

#[test]
fn deploy_begins_while_the_registry_is_asked_for_a_newer_one() {
    let images = Images::new();
    images.run(Policy::default(), async |access| {
        images.accepted(access, &api("v2")).await;
        images.world.sleep(1).await;
        images.registry.answers(Answering::Silent);
        images.accepted(access, &api("v1")).await;
        assert_eq!(images.world.ended(access, 2).await.status(), Status::Succeeded);
        let newer = images.world.ended(access, 3).await;
        assert_eq!((newer.status(), newer.resolution.is_some()), (Status::Succeeded, true));
    });
}

#[test]
fn restore_waits_for_the_answer_that_may_bring_the_fix() {
    let images = Images::new();
    images.push("crash", 3);
    images.world.cluster.script(digest(3).as_str(), Script::crashes());
    images.run(Policy::default(), async |access| {
        images.accepted(access, &api("crash")).await;
        images.world.sleep(1).await;
        images.accepted(access, &api("v2")).await;
        let fix = images.world.ended(access, 3).await;
        assert_eq!((fix.status(), fix.trigger), (Status::Succeeded, Trigger::Manual));
        assert_eq!(images.world.quiet(access).await.len(), 3, "nothing is restored: the fix runs");
    });
}

#[test]
fn failed_version_is_restored_once_a_newer_image_turns_out_to_be_missing() {
    let images = Images::new();
    images.push("crash", 3);
    images.world.cluster.script(digest(3).as_str(), Script::crashes());
    images.run(Policy::default(), async |access| {
        let failed = images.deployed(access, &api("crash")).await;
        assert_eq!(failed.status(), Status::Failed);
        let missing = images.deployed(access, &api("typo")).await;
        assert_eq!(reason(&missing).0, Reason::IMAGE_NOT_FOUND);
        let history = images.world.quiet(access).await;
        assert!(history.iter().any(Deploy::is_restore), "{history:?}");
        assert_eq!(images.runs(), image(&api("v1")).pinned(digest(1)));
    });
}

/// Returns the end of a deploy that was accepted by a process that reads registries, and is driven by one that reads none.
fn driven_without_a_registry(images: &Images) -> Deploy {
    let access = images.world.idle(async {
        let access = images.world.access(&"shop-test/api".parse().unwrap()).await;
        images.world.clock.sleep(Duration::from_secs(60)).await;
        images.accepted(&access, &api("v2")).await;
        access
    });
    images.world.run(images.world.ended(&access, 2))
}

#[test]
fn process_that_reads_no_registries_deploys_by_the_tag_and_says_so() {
    let images = Images::new();
    images.run(Policy::default(), async |_| ());
    let deployed = driven_without_a_registry(&images);
    assert_eq!((deployed.status(), gap(&deployed)), (Status::Succeeded, "this process reads no registries"));
}

#[test]
fn answer_is_required_only_where_a_registry_is_read() {
    let images = Images::new();
    images.run(with(Resolve::Require), async |_| ());
    let failed = driven_without_a_registry(&images);
    assert_eq!((reason(&failed).0.as_str(), failed.touched), (Reason::IMAGE_NOT_RESOLVED, false));
    images.world.idle(async {
        let asked = world::registration("web", with(Resolve::Require));
        let refused = images.world.deployer.register(&images.world.operator, asked, None).await.unwrap_err();
        let said = "require needs the answer of a registry, and this server reads no registries: set it to auto.";
        assert_eq!(refused, Refusal::InvalidField(Field::PolicyResolve, said.to_owned()));
    });
}

#[test]
fn outage_ends_all_that_require_the_answer_and_the_version_before_is_restored() {
    let images = Images::new();
    images.push("crash", 3);
    images.world.cluster.script(digest(3).as_str(), Script::crashes());
    images.run(with(Resolve::Require), async |access| {
        images.accepted(access, &api("crash")).await;
        images.world.sleep(1).await;
        images.registry.answers(Answering::Silent);
        for _ in 0..20 {
            images.accepted(access, &api("v2")).await;
            images.world.sleep(4).await;
        }
        let history = images.world.quiet(access).await;
        let restore = history.iter().find(|entry| entry.is_restore()).unwrap_or_else(|| panic!("{history:?}"));
        let failed = history.iter().find(|entry| entry.touched && entry.status() == Status::Failed).unwrap();
        assert!(restore.created_at.since(failed.updated_at) < Duration::from_secs(120), "{history:?}");
        assert_eq!(images.runs(), image(&api("v1")).pinned(digest(1)));
    });
}

#[test]
fn slow_registry_is_heard_although_newer_deploys_keep_coming() {
    let images = Images::new();
    images.run(Policy::default(), async |access| {
        images.registry.answers(Answering::Silent);
        for _ in 0..10 {
            images.accepted(access, &api("v2")).await;
            images.world.sleep(4).await;
        }
        let history = images.world.history(access).await;
        assert!(history.iter().any(|entry| entry.revision.get() > 1 && entry.touched), "{history:?}");
    });
}

#[test]
fn held_bits_do_not_come_back_by_another_tag() {
    let images = Images::new();
    images.push("stable", 2);
    images.run(world::hold_all(), async |access| {
        images.deployed(access, &api("v2")).await;
        images.rolled_back(access).await;
        let ci = images.world.webhook(access).await;
        let posted = images.deployer.submit(&ci, request(&api("stable"))).await.unwrap().deploy;
        let failed = images.world.ended(access, posted.revision.get()).await;
        let (code, message) = reason(&failed);
        assert_eq!((code.as_str(), failed.touched), (Reason::IMAGE_HELD, false));
        assert!(message.contains("rollback 3"), "{message}");
        // A person's deploy is a decision.
        assert_eq!(images.deployed(access, &api("stable")).await.status(), Status::Succeeded);
    });
}

#[test]
fn policy_that_is_off_asks_no_registry() {
    let images = Images::new();
    images.run(with(Resolve::Off), async |access| {
        let deployed = images.deployed(access, &api("v2")).await;
        assert_eq!((deployed.status(), deployed.resolution), (Status::Succeeded, None));
        assert!(images.registry.asked().is_empty());
    });
}

#[test]
fn policy_that_is_set_off_ends_the_wait_for_a_registry() {
    let images = Images::new();
    images.run(with(Resolve::Require), async |access| {
        images.registry.answers(Answering::Failing);
        images.accepted(access, &api("v2")).await;
        images.world.sleep(2).await;
        let off = PolicyChange { resolve: Some(Resolve::Off), ..PolicyChange::default() };
        images.deployer.change_policy(access, off).await.unwrap();
        assert_eq!(images.world.ended(access, 2).await.status(), Status::Succeeded);
    });
}

#[test]
fn release_command_runs_the_image_that_the_registry_named() {
    let images = Images::new();
    let migrates = leave().with(|policy| policy.release_command = vec!["migrate".to_owned()]);
    images.run(migrates, async |access| {
        images.accepted(access, &api("v2")).await;
        while images.world.entry(access, 2).await.status() == Status::Queued {
            images.world.clock.sleep(Duration::from_millis(50)).await;
        }
        images.push("v2", 7);
        assert_eq!(images.world.ended(access, 2).await.status(), Status::Succeeded);
        let ran = images.world.cluster.releases().last().unwrap().image.clone();
        assert_eq!(ran, image(&api("v2")).pinned(digest(2)));
    });
}

#[test]
fn commit_that_is_not_the_labels_fails_only_where_they_have_to_match() {
    let images = Images::new();
    let labelled = |revision: &str| {
        let labels = ImageLabels::default().with(|labels| labels.revision = Some(revision.to_owned()));
        Resolved::new(digest(8), "application/vnd.oci.image.index.v1+json").with(|resolved| resolved.labels = labels)
    };
    let push = |tag: &str, revision: &str| {
        images.registry.push(&image(&api(tag)), &tag.parse().unwrap(), labelled(revision));
    };
    images.run(Policy::default(), async |access| {
        push("other", "4f1a77b0");
        // It is posted with commit abc123f.
        assert_eq!(images.deployed(access, &api("other")).await.status(), Status::Succeeded);
        let must_match = PolicyChange { commit: Some(CommitRule::MustMatch), ..PolicyChange::default() };
        images.deployer.change_policy(access, must_match).await.unwrap();
        let failed = images.deployed(access, &api("other")).await;
        let (code, message) = reason(&failed);
        assert_eq!((code.as_str(), failed.touched), (Reason::COMMIT_MISMATCH, false));
        assert!(message.contains("4f1a77b0") && message.contains("abc123f"), "{message}");
        push("same", "abc123f000000000000000000000000000000000");
        push("no-commit", " ");
        for tag in ["same", "no-commit", "v2"] {
            assert_eq!(images.deployed(access, &api(tag)).await.status(), Status::Succeeded, "{tag}");
        }
    });
}
