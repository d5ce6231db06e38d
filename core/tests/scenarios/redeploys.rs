//! Redeploys of what runs: each rule as a scenario on the whole engine under simulated time.

use std::time::Duration;

use rollhook_core::{
    action::Action,
    app::Policy,
    deploy::{Deploy, Origin, Revision, State, Status, Trigger},
    request::{RedeployRequest, Refusal, RollbackRequest},
    service::{Accepted, Authorized, NewLock, Outcome},
};
use rollhook_memory::Script;

use crate::world::{World, api, image, leave, sha, statuses, tag};

const SECOND: Duration = Duration::from_secs(1);

impl World {
    async fn redeploy(&self, access: &Authorized) -> Outcome<Accepted> {
        self.deployer.redeploy(access, RedeployRequest::default()).await
    }

    /// Redeploys and waits for the end.
    async fn redeployed(&self, access: &Authorized) -> Deploy {
        let revision = self.redeploy(access).await.unwrap().deploy.revision;
        self.ended(access, revision.get()).await
    }
}

fn revision(number: u64) -> Revision {
    Revision::new(number).unwrap()
}

/// Returns the sentence of a refusal as not redeployable.
fn refused(answer: Outcome<Accepted>) -> String {
    match answer {
        Err(refusal @ Refusal::NotRedeployable(_)) => refusal.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn redeploy_rolls_out_the_recorded_digest_as_a_new_revision() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let moving = image(&api("latest"));
        let digest = world.cluster.push(&moving);
        world.deployed(&access, &api("latest")).await;
        world.cluster.push(&moving);
        let accepted = world.redeploy(&access).await.unwrap().deploy;
        assert_eq!((accepted.trigger, &accepted.from), (Trigger::Manual, &Some(Origin::Same(revision(2)))));
        assert_eq!(accepted.image, Some(moving.pinned(digest.clone())));
        let done = world.ended(&access, 3).await;
        assert_eq!((done.status(), done.digest, done.effective), (Status::Succeeded, Some(digest), revision(2)));
        assert_eq!(world.effects(), [1, 2, 3]);
        assert_eq!(world.view(&access).await.app.holds, []);
        let again = world.redeployed(&access).await;
        assert_eq!((&again.from, again.effective), (&Some(Origin::Same(revision(3))), revision(2)));
        world.quiet(&access).await;
    });
}

#[test]
fn rollback_from_a_redeploy_goes_to_the_version_before_the_repeated_one() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.deployed(&access, &api("v2")).await;
        world.deployed(&access, &api("v3")).await;
        world.redeployed(&access).await;
        world.redeployed(&access).await;
        let back = world.rolled_back(&access).await;
        assert_eq!((tag(&back).as_str(), back.effective.get()), ("v2", 2));
        let same = world.redeployed(&access).await;
        assert_eq!((tag(&same).as_str(), same.effective.get()), ("v2", 2));
        let back = world.rolled_back(&access).await;
        assert_eq!((tag(&back).as_str(), back.effective.get()), ("v1", 1));
        // By a redeploy's own number, too, the version is named by the entry that brought it.
        let request = RollbackRequest::default().with(|request| request.revision = Some(revision(5)));
        let named = world.deployer.rollback(&access, request).await.unwrap().deploy;
        assert_eq!((tag(&named).as_str(), named.from), ("v3", Some(Origin::Revision(revision(3)))));
        world.quiet(&access).await;
    });
}

#[test]
fn redeploy_of_a_git_app_builds_nothing() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.built_app(Policy::default()).await;
        let before = world.entry(&access, 1).await;
        let same = world.redeployed(&access).await;
        assert_eq!(
            (same.status(), &same.image, &same.commit),
            (Status::Succeeded, &before.pinned_image(), &before.commit)
        );
        assert_eq!(world.begun(), [1]);
    });
}

#[test]
fn redeploy_runs_no_release_command() {
    let world = World::new(SECOND);
    world.run(async {
        let command = vec!["bin/release".to_owned(), "migrate".to_owned()];
        let access = world.app("api", Policy::default().with(|policy| policy.release_command = command)).await;
        assert_eq!(world.cluster.releases().len(), 1);
        let same = world.redeployed(&access).await;
        assert_eq!((same.status(), same.release), (Status::Succeeded, None));
        assert_eq!(world.cluster.releases().len(), 1);
    });
}

#[test]
fn build_under_way_goes_on_and_is_entered_behind_the_redeploy() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.built_app(Policy::default()).await;
        world.deploy_commit(&access, "b2").await.unwrap();
        world.sleep(2).await;
        let same = world.redeployed(&access).await;
        assert_eq!((same.revision.get(), same.status()), (3, Status::Succeeded));
        let history = world.quiet(&access).await;
        assert_eq!(history[1].state, State::Superseded { by: revision(4), rollback: false, newer: None });
        let anew = &history[3];
        assert_eq!(
            (anew.status(), &anew.from, &anew.commit),
            (Status::Succeeded, &Some(Origin::Built(revision(2))), &Some(sha("b2")))
        );
    });
}

#[test]
fn redeploy_is_refused_where_nothing_has_succeeded_or_another_version_is_on_its_way_or_on_the_cluster() {
    let world = World::new(SECOND);
    world.cluster.script("hang", Script::hangs());
    world.run(async {
        let bare = world.git_app(Policy::default()).await;
        let sentence = refused(world.redeploy(&bare).await);
        assert!(sentence.contains("No deploy of shop-test/api has succeeded yet"), "{sentence}");
        let access = world.app("web", leave()).await;
        world.deploy(&access, &api("hang")).await.unwrap();
        world.sleep(2).await;
        let sentence = refused(world.redeploy(&access).await);
        assert!(sentence.contains("Revision 2 (") && sentence.contains("is rolling out"), "{sentence}");
        world.deployer.cancel(&access, revision(2)).await.unwrap();
        let sentence = refused(world.redeploy(&access).await);
        let why = "which was cancelled, is on the cluster, and not the current revision 1";
        assert!(sentence.contains(why), "{sentence}");
        assert_eq!(world.quiet(&access).await.len(), 2, "nothing is recorded");
    });
}

#[test]
fn failed_redeploy_is_restored_and_can_be_repeated() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.cluster.script("api:v1", Script::crashes());
        assert_eq!(world.redeployed(&access).await.status(), Status::Failed);
        let history = world.quiet(&access).await;
        assert!(history[2].is_restore());
        assert_eq!(history[2].from, Some(Origin::Revision(revision(1))));
        world.cluster.script("api:v1", Script::default());
        assert_eq!(world.redeployed(&access).await.status(), Status::Succeeded);
        let listed = statuses(&world.quiet(&access).await);
        assert_eq!(listed.last(), Some(&(4, Status::Succeeded)));
    });
}

#[test]
fn redeploy_takes_the_role_and_heeds_locks_and_what_the_caller_believes_to_be_current() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let reader = world.deployer.allow(world.operator.clone(), access.app(), &[Action::Rollback]).await.unwrap();
        assert!(matches!(world.redeploy(&reader).await, Err(Refusal::NotAllowed(Action::Deploy))));
        let request = RedeployRequest::default().with(|request| request.if_current = Some(revision(7)));
        let answer = world.deployer.redeploy(&access, request).await;
        assert_eq!(answer, Err(Refusal::CurrentChanged { expected: revision(7), current: Some(revision(1)) }));
        let lock = NewLock {
            reason: "a freeze".parse().unwrap(),
            owner: rollhook_core::lock::PrincipalKey::of("name", &["ops"]),
            ttl: None,
        };
        world.deployer.set_lock(&access, None, Some(lock)).await.unwrap();
        assert!(matches!(world.redeploy(&access).await, Err(Refusal::Locked(_))));
        assert_eq!(world.quiet(&access).await.len(), 1);
    });
}
