//! Several workloads of one app: each rule as a scenario on the whole engine under simulated time.

use std::{sync::Arc, time::Duration};

use rollhook_conformance::{Fault, Faulty, Plan, samples::settings};
use rollhook_core::{
    app::{Policy, Target},
    configuration::VariablesChange,
    deploy::{Deploy, Origin, Reason, Revision, State, Status},
    ports::{Clock, DeployId, LogQuery, RolloutDriver, RolloutSpec},
    request::{ConfigureRequest, PolicyChange, RedeployRequest, Refusal, Registration, RollbackRequest, TargetChange},
    service::{Authorized, Configured, Deployer},
};
use rollhook_memory::Script;
use rollhook_workloads::Workloads;
use serde_json::json;

use crate::world::{World, image, leave, reason, registration};

/// How long a rollout takes.
const DELAY: Duration = Duration::from_secs(8);
const V1: &str = "registry.example.com/api:v1";
const V2: &str = "registry.example.com/api:v2";

fn target(kind: &str, name: &str) -> Target {
    Target { settings: settings(json!({ "kind": kind, "name": name })), ..Target::default() }
}

fn web() -> Target {
    target("Deployment", "web")
}

fn worker() -> Target {
    target("Deployment", "worker")
}

fn nightly() -> Target {
    target("CronJob", "nightly")
}

/// The registration of `shop-test/api` with these further workloads.
fn of(also: serde_json::Value, policy: Policy) -> Registration {
    registration("api", policy).target(settings(json!({ "kind": "Deployment", "name": "web", "also": also })))
}

impl World {
    /// Has web, worker and nightly run the first version.
    fn seeded(&self) {
        let id = "shop-test/api".parse().unwrap();
        [web(), worker(), nightly()].iter().for_each(|target| self.cluster.seed(&id, target, &image(V1)));
    }

    /// Registers an app of web, then worker, then nightly, and waits until revision 1 is adopted.
    async fn release(&self, policy: Policy) -> Authorized {
        self.seeded();
        let access = self.registered(of(json!(["Deployment/worker", "CronJob/nightly"]), policy)).await;
        assert_eq!(self.ended(&access, 1).await.status(), Status::Succeeded);
        access
    }

    /// The changes so far, in order: workload and revision.
    fn changes(&self) -> Vec<(String, u64)> {
        self.cluster.effects().into_iter().map(|effect| (effect.workload, effect.stamp.revision.get())).collect()
    }

    /// The images that run in web, worker and nightly, and the revisions that their pods were made by.
    fn running(&self) -> Vec<String> {
        let id = "shop-test/api".parse().unwrap();
        let of = |target: &Target| {
            let pods = self.cluster.running(&id, target);
            let mut all: Vec<String> = pods
                .iter()
                .map(|pod| {
                    let tag = pod.image.tag().unwrap_or_default();
                    let by = pod.deploy.map_or_else(|| "-".to_owned(), |deploy| deploy.revision.to_string());
                    format!("{tag} by {by}")
                })
                .collect();
            all.dedup();
            all.join(", ")
        };
        [web(), worker(), nightly()].iter().map(of).collect()
    }

    /// Lets this version fail on one workload.
    fn breaks(&self, on: &Target, version: &str, script: Script) {
        assert!(self.cluster.script_on(&"shop-test/api".parse().unwrap(), on, version, script));
    }
}

fn named(changes: &[(&str, u64)]) -> Vec<(String, u64)> {
    changes.iter().map(|(workload, revision)| ((*workload).to_owned(), *revision)).collect()
}

fn message(deploy: &Deploy) -> String {
    reason(deploy).1
}

/// The states of the workloads in the evidence of a failed deploy.
fn ends(deploy: &Deploy) -> Vec<String> {
    let State::Failed { evidence: Some(evidence), .. } = &deploy.state else { panic!("{deploy:?}") };
    evidence.workloads.iter().map(|workload| format!("{}: {}", workload.name, workload.state)).collect()
}

#[test]
fn workloads_change_one_after_the_other_under_one_deploy() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.release(Policy::default()).await;
        assert_eq!(world.changes(), [], "what runs is adopted as it is");
        world.deploy(&access, V2).await.unwrap();
        world.sleep(4).await;
        assert_eq!(world.changes(), named(&[("web", 2)]), "the others wait for the first");
        assert_eq!(world.ended(&access, 2).await.status(), Status::Succeeded);
        assert_eq!(world.changes(), named(&[("web", 2), ("worker", 2), ("nightly", 2)]));
        assert_eq!(world.running(), ["v2 by 2", "v2 by 2", "v2 by 2"]);
    });
}

#[test]
fn workloads_with_a_plus_change_together() {
    let world = World::new(DELAY);
    world.run(async {
        world.seeded();
        let access = world.registered(of(json!(["+Deployment/worker", "CronJob/nightly"]), Policy::default())).await;
        world.ended(&access, 1).await;
        world.deploy(&access, V2).await.unwrap();
        world.sleep(4).await;
        assert_eq!(world.changes(), named(&[("web", 2), ("worker", 2)]));
        assert_eq!(world.ended(&access, 2).await.status(), Status::Succeeded);
        assert_eq!(world.changes().len(), 3);
    });
}

#[test]
fn workload_that_fails_is_named_and_all_that_were_touched_are_restored() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.release(Policy::default()).await;
        world.breaks(&worker(), "v2", Script::crashes());
        let failed = world.deployed(&access, V2).await;
        assert_eq!(reason(&failed).0, "CrashLoopBackOff");
        let why = message(&failed);
        assert!(why.starts_with("Deployment/worker: "), "{why}");
        assert!(why.contains("Deployment/web is complete, CronJob/nightly was not deployed to"), "{why}");
        assert_eq!(
            ends(&failed),
            ["Deployment/worker: failed", "Deployment/web: complete", "CronJob/nightly: not touched"]
        );
        let restored = world.ended(&access, 3).await;
        assert_eq!(restored.status(), Status::Succeeded);
        // Neither the worker, whose old pods never ended, nor what was not touched is started anew.
        assert_eq!(world.running(), ["v1 by 3", "v1 by -", "v1 by -"]);
        let order: Vec<(String, u64)> = world.changes().into_iter().filter(|(_, revision)| *revision == 3).collect();
        assert_eq!(
            order,
            named(&[("worker", 3), ("web", 3)]),
            "in reverse order, and without the one that no deploy came to"
        );
        assert_eq!(world.deployed(&access, "registry.example.com/api:v3").await.status(), Status::Succeeded);
        assert_eq!(world.running(), ["v3 by 4", "v3 by 4", "v3 by 4"]);
    });
}

#[test]
fn first_workload_that_fails_leaves_the_others_alone() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.release(leave()).await;
        world.breaks(&web(), "v2", Script::missing());
        let failed = world.deployed(&access, V2).await;
        assert_eq!(failed.status(), Status::Failed);
        assert_eq!(world.changes(), named(&[("web", 2)]));
        assert_eq!(world.view(&access).await.unfinished.len(), 0, "nothing is restored");
    });
}

#[test]
fn all_settle_together() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.release(Policy::default()).await;
        // The first workload dies while the last one rolls out.
        world.breaks(&web(), "v2", Script::dies_after(Duration::from_secs(12)));
        let failed = world.deployed(&access, V2).await;
        assert!(message(&failed).contains("in Deployment/web"), "{}", message(&failed));
        assert_eq!(ends(&failed)[0], "Deployment/web: failed");
        assert_eq!(world.ended(&access, 3).await.status(), Status::Succeeded);
        assert!(world.running().iter().all(|running| running.starts_with("v1 by")), "{:?}", world.running());
    });
}

#[test]
fn rollback_takes_all_at_once_and_the_last_one_first() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.release(Policy::default()).await;
        assert_eq!(world.deployed(&access, V2).await.status(), Status::Succeeded);
        let accepted = world.rollback(&access).await.unwrap();
        world.sleep(2).await;
        let after: Vec<(String, u64)> = world.changes().into_iter().skip(3).collect();
        assert_eq!(after, named(&[("nightly", 3), ("worker", 3), ("web", 3)]));
        assert_eq!(world.ended(&access, accepted.deploy.revision.get()).await.status(), Status::Succeeded);
        assert_eq!(world.running(), ["v1 by 3", "v1 by 3", "v1 by 3"]);
    });
}

#[test]
fn another_process_goes_on_where_one_has_ended() {
    let world = World::new(DELAY);
    let id = "shop-test/api".parse().unwrap();
    world.run(async {
        world.release(Policy::default()).await;
    });
    let access = world.idle(world.access(&id));
    world.run(async {
        world.deploy(&access, V2).await.unwrap();
        world.sleep(12).await;
        assert_eq!(world.changes(), named(&[("web", 2), ("worker", 2)]));
    });
    let other = world.replica("two", 7);
    world.run_beside(&other, async {
        assert_eq!(world.ended(&access, 2).await.status(), Status::Succeeded);
    });
    assert_eq!(world.changes(), named(&[("web", 2), ("worker", 2), ("nightly", 2)]), "each once");
}

#[test]
fn newer_deploy_takes_over_in_the_middle_and_wins_on_all() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.release(Policy::default()).await;
        world.breaks(&worker(), "v2", Script::hangs());
        world.deploy(&access, V2).await.unwrap();
        world.sleep(12).await;
        assert_eq!(world.changes(), named(&[("web", 2), ("worker", 2)]));
        let done = world.deployed(&access, "registry.example.com/api:v3").await;
        assert_eq!(done.status(), Status::Succeeded);
        assert_eq!(world.entry(&access, 2).await.status(), Status::Superseded);
        assert_eq!(world.running(), ["v3 by 3", "v3 by 3", "v3 by 3"]);
    });
}

#[test]
fn cancel_in_the_middle_restores_all() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.release(Policy::default()).await;
        world.deploy(&access, V2).await.unwrap();
        world.sleep(12).await;
        world.deployer.cancel(&access, Revision::new(2).unwrap()).await.unwrap();
        world.sleep(1).await;
        assert_eq!(world.ended(&access, 3).await.status(), Status::Succeeded);
        assert!(world.running().iter().all(|running| running.starts_with("v1 by")), "{:?}", world.running());
    });
}

#[test]
fn workload_that_refuses_after_another_was_changed_fails_the_deploy_and_is_restored() {
    let world = World::new(DELAY);
    let id = "shop-test/api".parse().unwrap();
    world.run(async {
        let access = world.release(Policy::default()).await;
        world.cluster.set_unsupported(&id, &worker(), Some("it is paused"));
        world.deploy(&access, V2).await.unwrap();
        let failed = world.ended(&access, 2).await;
        assert!(message(&failed).starts_with("Deployment/worker: it is paused"), "{}", message(&failed));
        assert!(failed.touched);
        world.sleep(30).await;
        assert_eq!(world.running()[0], "v1 by 3", "web is brought back although worker refuses");
        assert_eq!(world.ended(&access, 3).await.status(), Status::Succeeded, "no deploy ever came to worker");
        assert_eq!(world.running(), ["v1 by 3", "v1 by -", "v1 by -"]);
    });
}

#[test]
fn different_images_are_adopted_and_brought_together_by_the_next_deploy() {
    let world = World::new(DELAY);
    let id = "shop-test/api".parse().unwrap();
    world.run(async {
        world.seeded();
        world.cluster.seed(&id, &worker(), &image("registry.example.com/api:v0"));
        let wanted = of(json!(["Deployment/worker", "CronJob/nightly"]), Policy::default());
        let registered = world.deployer.register(&world.operator, wanted, None).await.unwrap();
        let note = "Deployment/worker runs registry.example.com/api:v0 where registry.example.com/api:v1 runs";
        assert!(registered.notes[0].starts_with(note), "{:?}", registered.notes);
        let access = world.access(&id).await;
        let first = world.ended(&access, 1).await;
        let rollhook_core::deploy::State::Succeeded { note: Some(note) } = &first.state else { panic!("{first:?}") };
        assert_eq!(note, "another image ran in Deployment/worker: the next deploy brings all to one");
        assert_eq!(world.deployed(&access, V2).await.status(), Status::Succeeded);
        assert_eq!(world.running(), ["v2 by 2", "v2 by 2", "v2 by 2"]);
    });
}

#[test]
fn workload_that_is_added_is_shown_behind_until_the_next_deploy() {
    let world = World::new(DELAY);
    world.run(async {
        world.seeded();
        let access = world.registered(of(json!(["Deployment/worker"]), Policy::default())).await;
        world.ended(&access, 1).await;
        assert_eq!(world.deployed(&access, V2).await.status(), Status::Succeeded);
        let also = settings(json!({ "also": ["Deployment/worker", "CronJob/nightly"] }));
        let change = TargetChange { settings: also, take_over: false };
        let changed = world.deployer.change(&access, Default::default(), Default::default(), change).await.unwrap();
        let note = "CronJob/nightly runs registry.example.com/api:v1 where registry.example.com/api:v2 runs";
        assert!(changed.notes[0].starts_with(note), "{:?}", changed.notes);
        world.sleep(60).await;
        assert_eq!(world.changes().len(), 2, "adding deploys nothing");
        let state = world.view(&access).await;
        let condition = world.deployer.condition(&state).await;
        assert_eq!(condition.drift, None, "nobody has changed it");
        let states: Vec<(&str, &str)> =
            condition.workloads.iter().map(|state| (state.name.as_str(), state.message.as_str())).collect();
        assert_eq!(states[2], ("CronJob/nightly", "carries no deploy of this app: the next deploy brings it along"));
        // A restore leaves alone what the failed deploy never came to.
        world.breaks(&web(), "v9", Script::missing());
        assert_eq!(world.deployed(&access, "registry.example.com/api:v9").await.status(), Status::Failed);
        assert_eq!(world.ended(&access, 4).await.status(), Status::Succeeded);
        assert_eq!(world.running(), ["v2 by 2", "v2 by 2", "v1 by -"]);
        assert_eq!(world.deployed(&access, "registry.example.com/api:v3").await.status(), Status::Succeeded);
        assert_eq!(world.running(), ["v3 by 5", "v3 by 5", "v3 by 5"]);
    });
}

#[test]
fn redeploy_brings_a_workload_along_that_was_added() {
    let world = World::new(DELAY);
    world.run(async {
        world.seeded();
        let access = world.registered(of(json!(["Deployment/worker"]), Policy::default())).await;
        world.ended(&access, 1).await;
        assert_eq!(world.deployed(&access, V2).await.status(), Status::Succeeded);
        let also = settings(json!({ "also": ["Deployment/worker", "CronJob/nightly"] }));
        let change = TargetChange { settings: also, take_over: false };
        world.deployer.change(&access, Default::default(), Default::default(), change).await.unwrap();
        world.sleep(60).await;
        let states = async || {
            let condition = world.deployer.condition(&world.view(&access).await).await;
            condition
                .workloads
                .into_iter()
                .map(|state| (state.name, state.is_complete, state.message))
                .collect::<Vec<_>>()
        };
        let behind = ("CronJob/nightly".to_owned(), "carries no deploy of this app: the next deploy brings it along");
        let before = states().await;
        assert_eq!((before[2].0.clone(), before[2].2.as_str()), behind);
        assert_eq!(world.running(), ["v2 by 2", "v2 by 2", "v1 by -"]);
        let request = RedeployRequest::default();
        let accepted = world.deployer.redeploy(&access, request).await.unwrap().deploy;
        assert_eq!(accepted.from, Some(Origin::Same(Revision::new(2).unwrap())));
        assert_eq!(world.ended(&access, 3).await.status(), Status::Succeeded);
        assert_eq!(world.running(), ["v2 by 3", "v2 by 3", "v2 by 3"]);
        world.sleep(60).await;
        let after = states().await;
        assert!(
            after.iter().all(|(_, is_complete, message)| *is_complete && !message.contains("next deploy")),
            "{after:?}"
        );
    });
}

#[test]
fn instances_that_checks_ask_are_those_of_the_first_workload() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.release(Policy::default()).await;
        world.deployed(&access, V2).await;
        let app = world.view(&access).await.app;
        let id = DeployId { app: app.uid, revision: Revision::new(2).unwrap() };
        let spec = RolloutSpec::new(app.id.clone(), id, app.target.clone(), image(V2));
        let driver = world.ports(9).rollouts;
        let ready = driver.instance_addresses().unwrap().addresses(&spec, 8080).await.unwrap();
        let names: Vec<_> = ready.instances.iter().map(|found| found.instance.as_str()).collect();
        assert!(names.len() == 2 && names.iter().all(|name| name.starts_with("web-")), "{names:?}");
    });
}

#[test]
fn logs_are_of_one_workload_where_one_is_named() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.release(Policy::default()).await;
        let of = async |workload| {
            let found = world.deployer.instances(&access, workload).await;
            found.map(|all| all.into_iter().map(|instance| instance.name.to_string()).collect::<Vec<_>>())
        };
        let all = world.deployer.instances(&access, None).await.unwrap();
        let mut named: Vec<&str> = all.iter().filter_map(|instance| instance.workload.as_deref()).collect();
        named.dedup();
        assert_eq!(named, ["Deployment/web", "Deployment/worker", "CronJob/nightly"]);
        let worker = of(Some("Deployment/worker")).await.unwrap();
        assert_eq!((of(Some("worker")).await.unwrap(), worker.len()), (worker.clone(), all.len() / 3));
        assert!(worker[0].starts_with("worker-"), "{worker:?}");
        let refused = of(Some("jobs")).await.unwrap_err();
        let text =
            "shop-test/api has no workload \"jobs\"; it has: Deployment/web, Deployment/worker, CronJob/nightly.";
        assert_eq!(refused.to_string(), text);
        let hostile = "x\u{1b}".repeat(200);
        let refused = of(Some(&hostile)).await.unwrap_err().to_string();
        assert!(refused.len() < 600 && !refused.contains('\u{1b}'), "{refused}");
    });
}

#[test]
fn further_workload_with_a_command_is_made_with_the_first_one() {
    let world = World::new(DELAY);
    world.run(async {
        let also = json!([{ "kind": "Deployment", "name": "worker", "command": ["bin/jobs"] }]);
        let access = world.registered(of(also, Policy::default())).await;
        assert_eq!(world.ended(&access, 1).await.status(), Status::Succeeded);
        assert_eq!(world.running()[..2], ["v1 by 1", "v1 by 1"]);
        assert_eq!(world.view(&access).await.app.target.settings["also"][0]["command"], json!(["bin/jobs"]));
        world.breaks(&worker(), "v2", Script::missing());
        assert_eq!(world.deployed(&access, V2).await.status(), Status::Failed);
        assert_eq!(world.ended(&access, 3).await.status(), Status::Succeeded);
        assert_eq!(world.running()[..2], ["v1 by 3", "v1 by 1"], "put right by a restore");
        // Beside a first one that exists, nothing says how it is made.
        world.cluster.seed(&"shop-test/api".parse().unwrap(), &nightly(), &image(V1));
        let also = json!([{ "kind": "Deployment", "name": "other", "command": ["bin/jobs"] }]);
        let target = json!({ "kind": "CronJob", "name": "nightly", "also": also });
        let other = registration("other", Policy::default()).target(settings(target));
        let refused = world.deployer.register(&world.operator, other, None).await.unwrap_err();
        let way = "--command NAME=… it is made only beside a first workload that is made: make it yourself, or remove";
        assert!(refused.to_string().contains(way), "{refused}");
    });
}

#[test]
fn first_version_that_failed_by_a_command_is_put_right_by_another_one() {
    let world = World::new(DELAY);
    world.cluster.take_settings();
    world.run(async {
        world.cluster.script("v1", Script::crashes());
        let also = json!([{ "kind": "Deployment", "name": "worker", "together": true, "command": ["bin/wrong"] }]);
        let access = world.registered(of(also, Policy::default())).await;
        assert_eq!(world.ended(&access, 1).await.status(), Status::Failed);
        world.cluster.script("v1", Script::completes());
        let commands = |commands: serde_json::Value| {
            let settings = settings(json!({ "commands": commands }));
            let change = VariablesChange { settings, ..VariablesChange::default() };
            world.deployer.configure(&access, ConfigureRequest::default().with(|request| request.change = change))
        };
        for (name, why) in [("jobs", "\"jobs\" is none of them; there are web, worker."), ("web", "")] {
            let refused = commands(json!({ name: ["bin/jobs"] })).await;
            match refused {
                Err(Refusal::InvalidSetting(field, rule)) => {
                    assert!(field == "settings.commands" && rule.contains(why) && !why.is_empty(), "{name}: {rule}");
                }
                Ok(Configured::Deploy(_)) => assert_eq!(name, "web", "the first one is made as well"),
                other => panic!("{name}: {other:?}"),
            }
        }
        assert_eq!(world.ended(&access, 2).await.status(), Status::Succeeded);
        let Ok(Configured::Deploy(accepted)) = commands(json!({ "worker": ["bin/jobs"] })).await else { panic!() };
        let deploy = &accepted.deploy;
        assert_eq!((deploy.revision.get(), &deploy.from), (3, &Some(Origin::Same(Revision::new(2).unwrap()))));
        assert_eq!(world.ended(&access, 3).await.status(), Status::Succeeded);
        let made_with = |target: &Target| {
            let pods = world.cluster.running(access.app(), target);
            serde_json::Value::Object(pods[0].configuration.clone().unwrap().variables.settings)
        };
        assert_eq!(made_with(&worker()), json!({ "commands": { "worker": ["bin/jobs"] } }));
        assert_eq!(made_with(&web()), json!({}), "the command of another one");
        assert_eq!(world.deployed(&access, V2).await.status(), Status::Succeeded);
        assert_eq!(made_with(&worker()), json!({ "commands": { "worker": ["bin/jobs"] } }), "later deploys keep it");
    });
}

#[test]
fn command_of_a_workload_that_existed_is_refused() {
    let world = World::new(DELAY);
    world.cluster.take_settings();
    world.run(async {
        let access = world.release(Policy::default()).await;
        let settings = settings(json!({ "commands": { "worker": ["bin/jobs"] } }));
        let change = VariablesChange { settings, ..VariablesChange::default() };
        let request = ConfigureRequest::default().with(|request| request.change = change);
        let refused = world.deployer.configure(&access, request).await.unwrap_err();
        let Refusal::InvalidSetting(field, rule) = refused else { panic!("{refused:?}") };
        assert!(field == "settings.commands" && rule.contains("Deployment/worker existed before"), "{rule}");
    });
}

#[test]
fn workloads_are_not_changed_while_a_deploy_rolls_out() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.release(Policy::default()).await;
        world.deploy(&access, V2).await.unwrap();
        world.sleep(1).await;
        let change = async |also| {
            let change = TargetChange { settings: settings(json!({ "also": also })), take_over: false };
            world.deployer.change(&access, Default::default(), Default::default(), change).await
        };
        let refused = change(json!(["Deployment/worker"])).await.unwrap_err();
        assert_eq!(refused, Refusal::DeployUnfinished(Revision::new(2).unwrap()));
        change(json!(["Deployment/worker", "CronJob/nightly"])).await.unwrap();
        let policy = PolicyChange { keep: Some(50), ..PolicyChange::default() };
        world.deployer.change_policy(&access, policy).await.unwrap();
        assert_eq!(world.view(&access).await.unfinished[0].status(), Status::RollingOut);
        assert_eq!(world.ended(&access, 2).await.status(), Status::Succeeded);
        change(json!(["Deployment/worker"])).await.unwrap();
    });
}

#[test]
fn restore_of_many_brings_back_all_but_one_that_refuses() {
    let world = World::new(DELAY);
    let id = "shop-test/api".parse().unwrap();
    let names: Vec<String> = (0..12).map(|number| format!("w{number}")).collect();
    world.run(async {
        world.cluster.seed(&id, &web(), &image(V1));
        names.iter().for_each(|name| world.cluster.seed(&id, &target("Deployment", name), &image(V1)));
        let also: Vec<String> = names.iter().map(|name| format!("+Deployment/{name}")).collect();
        let access = world.registered(of(json!(also), Policy::default())).await;
        world.ended(&access, 1).await;
        assert_eq!(world.deployed(&access, V2).await.status(), Status::Succeeded);
        world.breaks(&target("Deployment", "w3"), "v3", Script::crashes());
        world.deploy(&access, "registry.example.com/api:v3").await.unwrap();
        world.sleep(2).await;
        world.cluster.set_unsupported(&id, &target("Deployment", "w11"), Some("it is paused"));
        assert_eq!(world.ended(&access, 3).await.status(), Status::Failed);
        let restore = world.ended(&access, 4).await;
        assert!(message(&restore).starts_with("Deployment/w11: it is paused"), "{}", message(&restore));
        let brought: Vec<(String, u64)> = world.changes().into_iter().filter(|(_, revision)| *revision == 4).collect();
        assert_eq!(brought.len(), 12, "{brought:?}");
    });
}

#[test]
fn each_workload_has_its_own_patience() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.release(Policy::default()).await;
        world.breaks(&web(), "v2", Script::crashes().healing_after(Duration::from_secs(40)));
        world.breaks(&worker(), "v2", Script::crashes().healing_after(Duration::from_secs(40)));
        assert_eq!(world.deployed(&access, V2).await.status(), Status::Succeeded, "a minute each");
    });
}

#[test]
fn release_command_runs_before_all_of_them() {
    let world = World::new(DELAY);
    world.run(async {
        let command = vec!["bin/migrate".to_owned()];
        let access = world.release(Policy::default().with(|policy| policy.release_command = command)).await;
        world.deploy(&access, V2).await.unwrap();
        world.sleep(4).await;
        assert_eq!(world.changes(), []);
        assert_eq!(world.ended(&access, 2).await.status(), Status::Succeeded);
        assert_eq!(world.cluster.releases().len(), 1);
        assert_eq!(world.changes().len(), 3);
    });
}

#[test]
fn change_by_another_of_one_fails_the_deploy_without_a_fight() {
    let world = World::new(DELAY);
    let id = "shop-test/api".parse().unwrap();
    world.run(async {
        let access = world.release(Policy::default()).await;
        world.deploy(&access, V2).await.unwrap();
        world.sleep(12).await;
        world.cluster.meddle(&id, &worker(), &image("registry.example.com/api:other"));
        let failed = world.ended(&access, 2).await;
        assert_eq!(reason(&failed).0, Reason::REVERTED);
        assert!(message(&failed).starts_with("Deployment/worker: "), "{}", message(&failed));
        let on_worker = world.changes().into_iter().filter(|(workload, _)| workload == "worker").count();
        assert_eq!(on_worker, 1, "it is not set again");
    });
}

#[test]
fn workloads_that_cannot_be_registered_are_refused_by_name() {
    let world = World::new(DELAY);
    world.run(async {
        world.seeded();
        for (also, expected) in [
            (json!(["Deployment/missing"]), "Deployment/missing does not exist"),
            (json!(["Deployment/web"]), "lists Deployment/web, which the app has already"),
            (json!(["worker"]), "must be a list of workloads"),
            (json!(["Pod/worker"]), "Pod"),
            (json!((0..20).map(|n| format!("Deployment/w{n}")).collect::<Vec<_>>()), "does not exist"),
        ] {
            let refused = world.deployer.register(&world.operator, of(also.clone(), Policy::default()), None).await;
            let text = format!("{:?}", refused.unwrap_err());
            assert!(text.contains(expected), "{also}: {text}");
        }
        world.registered(of(json!(["Deployment/worker"]), Policy::default())).await;
        let other = registration("other", Policy::default())
            .target(settings(json!({ "kind": "Deployment", "name": "worker" })));
        let taken = world.deployer.register(&world.operator, other, None).await.unwrap_err();
        assert!(format!("{taken:?}").contains("shop-test/api"), "{taken:?}");
    });
}

#[test]
fn rollback_to_a_named_revision_goes_on_with_all() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.release(Policy::default()).await;
        world.deployed(&access, V2).await;
        world.deployed(&access, "registry.example.com/api:v3").await;
        let request = RollbackRequest::default().with(|request| request.revision = Revision::new(1));
        let accepted = world.deployer.rollback(&access, request).await.unwrap();
        assert_eq!(world.ended(&access, accepted.deploy.revision.get()).await.status(), Status::Succeeded);
        assert_eq!(world.running(), ["v1 by 4", "v1 by 4", "v1 by 4"]);
    });
}

#[test]
fn reads_of_the_instances_of_many_workloads_have_one_deadline() {
    let world = World::new(Duration::ZERO);
    let plan: Plan = Arc::new(|call| match call {
        "instances.instances" | "instances.read" => Fault::Late(Duration::from_secs(8)),
        _ => Fault::None,
    });
    let cluster: Arc<dyn RolloutDriver> = world.cluster.clone();
    let slow = Arc::new(Faulty::new(cluster, Arc::clone(&world.clock) as Arc<dyn Clock>, plan));
    let rollouts = Arc::new(Workloads::over(slow));
    let deployer = Deployer::new(world.ports(9).with(|ports| ports.rollouts = rollouts), "one");
    world.run_beside(&deployer, async {
        let access = world.release(Policy::default()).await;
        let deadline = (Err(Refusal::ClusterUnavailable), Duration::from_secs(15));
        let begin = world.clock.elapsed();
        let (instance, query) = ("no-such-instance".parse().unwrap(), LogQuery::newest(9));
        let read = deployer.instance_log(&access, &instance, &query).await.map(drop);
        assert_eq!((read, world.clock.elapsed().saturating_sub(begin)), deadline);
        let begin = world.clock.elapsed();
        // Of three workloads, two at a time.
        let listed = deployer.instances(&access, None).await.map(drop);
        assert_eq!((listed, world.clock.elapsed().saturating_sub(begin)), deadline);
    });
}
