//! Stops and starts of apps: each rule as a scenario on the whole engine under simulated time.

use std::time::Duration;

use rollhook_core::{
    action::Action,
    app::{Policy, Target},
    deploy::{Actor, Deploy, Origin, Revision, Scale, State, Status, Trigger},
    request::{PolicyChange, Refusal, RollbackRequest, ScaleRequest, SourceChange, TargetChange},
    service::{Accepted, Authorized, NewLock, Outcome},
};
use rollhook_memory::Script;
use serde_json::json;

use crate::world::{World, api, image, leave, registration, sha, statuses, tag};

const SECOND: Duration = Duration::from_secs(1);

impl World {
    async fn scale(&self, access: &Authorized, scale: Scale) -> Outcome<Accepted> {
        self.deployer.scale(access, ScaleRequest::new(scale)).await
    }

    /// Stops or starts the app, and waits for the end.
    async fn scaled(&self, access: &Authorized, scale: Scale) -> Deploy {
        let revision = self.scale(access, scale).await.unwrap().deploy.revision;
        self.ended(access, revision.get()).await
    }

    /// Registers an app of 3 instances, which run.
    async fn app_of_three(&self, policy: Policy) -> Authorized {
        let access = self.app("api", policy).await;
        self.cluster.scale(access.app(), &self.target(&access).await, 3);
        access
    }

    async fn target(&self, access: &Authorized) -> Target {
        self.view(access).await.app.target.clone()
    }

    async fn pods(&self, access: &Authorized) -> u32 {
        self.cluster.pods(access.app(), &self.target(access).await).unwrap()
    }

    async fn stopped_since(&self, access: &Authorized) -> Option<u64> {
        self.view(access).await.stopped.map(|stopped| stopped.since.get())
    }
}

fn revision(number: u64) -> Revision {
    Revision::new(number).unwrap()
}

fn note(deploy: &Deploy) -> String {
    let State::Succeeded { note } = &deploy.state else { panic!("{deploy:?}") };
    note.clone().unwrap_or_default()
}

#[test]
fn stop_ends_all_instances_and_start_brings_back_as_many() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app_of_three(Policy::default()).await;
        let accepted = world.scale(&access, Scale::Stop).await.unwrap().deploy;
        assert_eq!((accepted.trigger, &accepted.from), (Trigger::Manual, &Some(Origin::Same(revision(1)))));
        let stop = world.ended(&access, 2).await;
        assert_eq!((stop.status(), stop.effective, world.pods(&access).await), (Status::Succeeded, revision(1), 0));
        let stopped = world.view(&access).await.stopped.unwrap();
        assert_eq!((stopped.since, stopped.by, stopped.at), (revision(2), Actor::person("alice"), stop.updated_at));
        let start = world.scaled(&access, Scale::Start).await;
        assert_eq!((start.status(), start.effective, world.pods(&access).await), (Status::Succeeded, revision(1), 3));
        assert_eq!(world.stopped_since(&access).await, None);
        world.quiet(&access).await;
    });
}

#[test]
fn deploys_of_a_stopped_app_change_its_image_and_start_nothing() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app_of_three(Policy::default()).await;
        world.scaled(&access, Scale::Stop).await;
        let accepted = world.deploy(&access, &api("v2")).await.unwrap();
        assert_eq!(accepted.stopped.unwrap().since, revision(2), "the answer says so");
        let done = world.ended(&access, 3).await;
        assert!(note(&done).contains("not started, as the app was stopped by revision 2 of alice"), "{}", note(&done));
        assert_eq!((world.pods(&access).await, world.stopped_since(&access).await), (0, Some(2)));
        let back = world.rollback(&access).await.unwrap();
        assert_eq!((tag(&back.deploy).as_str(), back.stopped.is_some()), ("v1", true));
        assert_eq!(world.ended(&access, 4).await.status(), Status::Succeeded);
        assert_eq!((world.pods(&access).await, world.stopped_since(&access).await), (0, Some(2)));
        let start = world.scaled(&access, Scale::Start).await;
        assert_eq!((tag(&start).as_str(), world.pods(&access).await), ("v1", 3));
        assert_eq!(world.deploy(&access, &api("v3")).await.unwrap().stopped, None);
        world.quiet(&access).await;
    });
}

#[test]
fn stops_and_starts_are_no_versions_that_a_rollback_goes_to() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app_of_three(Policy::default()).await;
        world.deployed(&access, &api("v2")).await;
        world.scaled(&access, Scale::Stop).await;
        world.scaled(&access, Scale::Start).await;
        let back = world.rolled_back(&access).await;
        assert_eq!((tag(&back).as_str(), back.effective.get(), world.pods(&access).await), ("v1", 1, 3));
        // By the number of the stop, its version is deployed, and nothing is stopped.
        let request = RollbackRequest::default().with(|request| request.revision = Some(revision(3)));
        let named = world.deployer.rollback(&access, request).await.unwrap().deploy;
        assert_eq!((tag(&named).as_str(), named.from), ("v2", Some(Origin::Revision(revision(2)))));
        world.quiet(&access).await;
        assert_eq!(world.pods(&access).await, 3);
    });
}

#[test]
fn failed_start_is_put_right_by_a_stop() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app_of_three(Policy::default()).await;
        world.scaled(&access, Scale::Stop).await;
        world.cluster.script("api:v1", Script::crashes());
        assert_eq!(world.scaled(&access, Scale::Start).await.status(), Status::Failed);
        let history = world.quiet(&access).await;
        assert!(history[3].is_restore());
        assert_eq!((history[3].status(), history[3].scale), (Status::Succeeded, Scale::Stop));
        assert_eq!(world.pods(&access).await, 0);
        assert_eq!(world.stopped_since(&access).await, Some(4));
        world.cluster.script("api:v1", Script::default());
        world.scaled(&access, Scale::Start).await;
        assert_eq!(world.pods(&access).await, 3, "the number from before both");
        world.quiet(&access).await;
    });
}

#[test]
fn failed_or_cancelled_stop_is_put_right_by_a_start() {
    for cancels in [false, true] {
        let world = World::new(SECOND);
        world.run(async {
            let access = world.app_of_three(Policy::default()).await;
            world.cluster.script("api:v1", Script::default().after(Duration::from_secs(3_600)));
            world.scale(&access, Scale::Stop).await.unwrap();
            world.sleep(5).await;
            assert_eq!(world.pods(&access).await, 0);
            if cancels {
                world.deployer.cancel(&access, revision(2)).await.unwrap();
            }
            world.ended(&access, 2).await;
            world.cluster.script("api:v1", Script::default());
            let history = world.quiet(&access).await;
            let restore = &history[2];
            assert!(restore.is_restore());
            assert_eq!((restore.status(), restore.scale), (Status::Succeeded, Scale::Start));
            assert_eq!((world.pods(&access).await, world.stopped_since(&access).await), (3, None));
        });
    }
}

#[test]
fn second_stop_that_is_cancelled_leaves_the_app_stopped() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app_of_three(Policy::default()).await;
        world.scaled(&access, Scale::Stop).await;
        let target = world.target(&access).await;
        world.cluster.scale(access.app(), &target, 2);
        world.cluster.script("api:v1", Script::default().after(Duration::from_secs(3_600)));
        world.scale(&access, Scale::Stop).await.unwrap();
        world.sleep(5).await;
        world.deployer.cancel(&access, revision(3)).await.unwrap();
        world.cluster.script("api:v1", Script::default());
        let history = world.quiet(&access).await;
        assert_eq!((history[3].is_restore(), history[3].scale), (true, Scale::Keep));
        assert_eq!((world.pods(&access).await, world.stopped_since(&access).await), (0, Some(2)));
    });
}

#[test]
fn workload_that_a_stopped_app_lost_is_made_anew_without_instances() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app_of_three(Policy::default()).await;
        world.scaled(&access, Scale::Stop).await;
        let target = world.target(&access).await;
        world.cluster.delete(access.app(), &target);
        assert_eq!(world.deployed(&access, &api("v2")).await.status(), Status::Succeeded);
        assert_eq!((world.pods(&access).await, world.stopped_since(&access).await), (0, Some(2)));
        world.scaled(&access, Scale::Start).await;
        assert_eq!(world.pods(&access).await, 2, "as many as it is made with");
    });
}

#[test]
fn workload_that_rested_before_a_stop_rests_after_the_start() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app_of_three(Policy::default()).await;
        let target = world.target(&access).await;
        world.cluster.scale(access.app(), &target, 0);
        world.scaled(&access, Scale::Stop).await;
        world.scaled(&access, Scale::Start).await;
        assert_eq!(world.pods(&access).await, 0);
        world.quiet(&access).await;
    });
}

#[test]
fn stop_that_failed_and_is_left_counts_until_the_app_is_started_or_rolled_back() {
    for rolls_back in [false, true] {
        let world = World::new(SECOND);
        world.run(async {
            let access = world.app_of_three(leave()).await;
            world.cluster.script("api:v1", Script::default().after(Duration::from_secs(3_600)));
            assert_eq!(world.scaled(&access, Scale::Stop).await.status(), Status::Failed);
            assert_eq!((world.pods(&access).await, world.stopped_since(&access).await), (0, Some(2)));
            world.cluster.script("api:v1", Script::default());
            let done = match rolls_back {
                true => world.rolled_back(&access).await,
                false => world.scaled(&access, Scale::Start).await,
            };
            assert_eq!((done.status(), done.scale), (Status::Succeeded, Scale::Start));
            assert_eq!((world.pods(&access).await, world.stopped_since(&access).await), (3, None));
            world.quiet(&access).await;
        });
    }
}

#[test]
fn deploy_that_supersedes_a_stop_stops_the_app_itself() {
    // One that waits for its turn, and one that makes no progress.
    for touched in [false, true] {
        let world = World::new(SECOND);
        let scenario = async |access: Authorized| {
            world.cluster.script("api:v1", Script::default().after(Duration::from_secs(3_600)));
            world.scale(&access, Scale::Stop).await.unwrap();
            if touched {
                world.sleep(5).await;
            }
            world.deploy(&access, &api("v2")).await.unwrap();
            access
        };
        let access = world.run(world.app_of_three(Policy::default()));
        let access = if touched { world.run(scenario(access)) } else { world.idle(scenario(access)) };
        world.run(async {
            let history = world.quiet(&access).await;
            let by_the_next = State::Superseded { by: revision(3), rollback: false, newer: None };
            assert_eq!((&history[1].state, history[1].touched), (&by_the_next, touched));
            assert_eq!((history[2].status(), history[2].scale), (Status::Succeeded, Scale::Stop));
            assert_eq!(world.pods(&access).await, 0);
            assert_eq!(world.stopped_since(&access).await, Some(if touched { 2 } else { 3 }));
            world.scaled(&access, Scale::Start).await;
            assert_eq!(world.pods(&access).await, 3);
        });
    }
}

#[test]
fn rollback_takes_back_a_stop_under_way() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app_of_three(Policy::default()).await;
        world.deployed(&access, &api("v2")).await;
        world.cluster.script("api:v2", Script::default().after(Duration::from_secs(3_600)));
        world.scale(&access, Scale::Stop).await.unwrap();
        world.sleep(5).await;
        world.cluster.script("api:v2", Script::default());
        let back = world.rolled_back(&access).await;
        assert_eq!((tag(&back).as_str(), back.scale, world.pods(&access).await), ("v2", Scale::Start, 3));
        assert_eq!(world.stopped_since(&access).await, None);
        world.quiet(&access).await;
    });
}

#[test]
fn failed_deploy_of_a_stopped_app_leaves_it_stopped() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app_of_three(Policy::default()).await;
        world.scaled(&access, Scale::Stop).await;
        let target = world.target(&access).await;
        world.cluster.set_unsupported(access.app(), &target, Some("paused"));
        assert_eq!(world.deployed(&access, &api("v2")).await.status(), Status::Failed);
        world.cluster.set_unsupported(access.app(), &target, None);
        world.quiet(&access).await;
        assert_eq!((world.pods(&access).await, world.stopped_since(&access).await), (0, Some(2)));
    });
}

#[test]
fn build_under_way_goes_on_and_its_app_stays_stopped() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.built_app(Policy::default()).await;
        world.deploy_commit(&access, "b2").await.unwrap();
        world.sleep(2).await;
        assert_eq!(world.scaled(&access, Scale::Stop).await.status(), Status::Succeeded);
        let history = world.quiet(&access).await;
        let anew = &history[3];
        assert_eq!((anew.status(), &anew.commit, anew.scale), (Status::Succeeded, &Some(sha("b2")), Scale::Keep));
        assert_eq!((world.pods(&access).await, world.stopped_since(&access).await), (0, Some(3)));
    });
}

#[test]
fn number_that_another_sets_while_the_app_is_stopped_stays() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app_of_three(Policy::default()).await;
        world.scaled(&access, Scale::Stop).await;
        let target = world.target(&access).await;
        world.cluster.scale(access.app(), &target, 5);
        world.sleep(300).await;
        let condition = world.deployer.condition(&world.view(&access).await).await;
        assert_eq!((condition.drift, condition.degraded), (None, None));
        world.scaled(&access, Scale::Start).await;
        assert_eq!(world.pods(&access).await, 5);
        world.quiet(&access).await;
    });
}

#[test]
fn stopped_app_may_be_stopped_again_and_a_running_one_is_not_started() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app_of_three(Policy::default()).await;
        assert_eq!(world.scale(&access, Scale::Start).await, Err(Refusal::NotStopped));
        world.scaled(&access, Scale::Stop).await;
        // Another party may have started it.
        world.scaled(&access, Scale::Stop).await;
        let state = world.view(&access).await;
        assert_eq!(state.stopped.as_ref().unwrap().since.get(), 2, "since the first one");
        world.cluster.script("hang", Script::hangs());
        let bare = world.register("bare", leave()).await;
        let sentence = world.scale(&bare, Scale::Stop).await.unwrap_err().to_string();
        assert!(sentence.contains("before you stop the app"), "{sentence}");
        assert_eq!(world.quiet(&access).await.len(), 3, "what is refused is not recorded");
    });
}

#[test]
fn target_that_cannot_be_scaled_is_refused_before_anything_is_recorded() {
    let world = World::new(SECOND);
    world.run(async {
        let settings = |value: serde_json::Value| value.as_object().unwrap().clone();
        let web = settings(json!({"kind": "Deployment", "name": "web"}));
        let agent = settings(json!({"kind": "DaemonSet", "name": "agent"}));
        for settings in [&web, &agent] {
            let target = Target { settings: settings.clone(), ..Target::default() };
            world.cluster.seed(&"shop-test/web".parse().unwrap(), &target, &image(&api("v1")));
        }
        let both = settings(json!({"kind": "Deployment", "name": "web", "also": ["DaemonSet/agent"]}));
        let access = world.registered(registration("web", Policy::default()).target(both)).await;
        world.ended(&access, 1).await;
        let refused = world.scale(&access, Scale::Stop).await;
        assert!(
            matches!(&refused, Err(Refusal::CannotBeStopped(why)) if why.starts_with("DaemonSet/agent: ")),
            "{refused:?}"
        );
        assert_eq!(statuses(&world.quiet(&access).await).len(), 1);
        assert!(world.effects().is_empty());
    });
}

#[test]
fn target_that_cannot_be_scaled_any_more_is_refused_before_any_workload_is_touched() {
    let world = World::new(SECOND);
    let access = world.run(async {
        let settings = json!({"kind": "DaemonSet", "name": "agent"}).as_object().unwrap().clone();
        let agent = Target { settings, ..Target::default() };
        world.cluster.seed(&"shop-test/api".parse().unwrap(), &agent, &image(&api("v1")));
        world.app_of_three(Policy::default()).await
    });
    world.idle(async {
        world.scale(&access, Scale::Stop).await.unwrap();
        let settings = json!({"also": ["DaemonSet/agent"]}).as_object().unwrap().clone();
        let change = TargetChange { settings, take_over: false };
        world.deployer.change(&access, PolicyChange::default(), SourceChange::default(), change).await.unwrap();
    });
    world.run(async {
        let stop = world.ended(&access, 2).await;
        assert!(
            matches!(&stop.state, State::Failed { reason, .. } if reason.as_str() == "workload-unsupported"),
            "{stop:?}"
        );
        assert_eq!((stop.touched, world.pods(&access).await), (false, 3));
        assert_eq!(world.effects(), [1]);
    });
}

#[test]
fn stop_takes_the_role_and_heeds_locks_and_what_the_caller_believes_to_be_current() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let reader = world.deployer.allow(world.operator.clone(), access.app(), &[Action::Rollback]).await.unwrap();
        assert!(matches!(world.scale(&reader, Scale::Stop).await, Err(Refusal::NotAllowed(Action::Deploy))));
        let request = ScaleRequest::new(Scale::Stop).with(|request| request.if_current = Some(revision(7)));
        let answer = world.deployer.scale(&access, request).await;
        assert_eq!(answer, Err(Refusal::CurrentChanged { expected: revision(7), current: Some(revision(1)) }));
        let lock = NewLock {
            reason: "a freeze".parse().unwrap(),
            owner: rollhook_core::lock::PrincipalKey::of("name", &["ops"]),
            ttl: None,
        };
        world.deployer.set_lock(&access, None, Some(lock)).await.unwrap();
        assert!(matches!(world.scale(&access, Scale::Stop).await, Err(Refusal::Locked(_))));
        assert_eq!(world.quiet(&access).await.len(), 1);
    });
}

#[test]
fn restore_after_a_deploy_that_took_the_place_of_another_restore_leaves_the_app_running() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app_of_three(Policy::default()).await;
        world.cluster.script("api:v1", Script::default().after(Duration::from_secs(3_600)));
        world.cluster.script("api:crash", Script::crashes());
        world.scale(&access, Scale::Stop).await.unwrap();
        world.sleep(1).await;
        world.deployer.cancel(&access, revision(2)).await.unwrap();
        world.sleep(5).await;
        // It takes the place of the restore, which was to start the app.
        world.deploy(&access, &api("crash")).await.unwrap();
        world.sleep(15).await;
        world.cluster.script("api:v1", Script::default());
        let history = world.quiet(&access).await;
        let scales: Vec<_> = history.iter().map(|entry| (entry.is_restore(), entry.scale)).collect();
        let expected = [
            (false, Scale::Keep),
            (false, Scale::Stop),
            (true, Scale::Start),
            (false, Scale::Start),
            (true, Scale::Start),
        ];
        assert_eq!(scales, expected, "{history:?}");
        assert_eq!((world.pods(&access).await, world.stopped_since(&access).await), (3, None));
    });
}

#[test]
fn start_finds_no_instance_from_before_the_stop() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app_of_three(Policy::default()).await;
        let target = world.target(&access).await;
        world.scaled(&access, Scale::Stop).await;
        world.cluster.script("api:v1", Script::default().after(Duration::from_secs(60)));
        world.scale(&access, Scale::Start).await.unwrap();
        world.sleep(5).await;
        assert_eq!(world.cluster.running(access.app(), &target), []);
        world.quiet(&access).await;
        assert_eq!(world.cluster.running(access.app(), &target).len(), 3);
    });
}
