//! Bounds: which configurations stay, of an app and of an environment.

use std::sync::Arc;

use futures_util::{future::join_all, poll};
use rollhook_conformance::{Fault, Faulty, Plan};
use rollhook_core::{
    configuration::ENVIRONMENT_BYTES_MAX,
    ports::{Clock, RolloutDriver},
    service::Deployer,
};

use super::*;

#[test]
fn unneeded_configurations_go_and_needed_ones_stay() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default().with(|policy| policy.settle = Duration::ZERO)).await;
        for number in 0..110 {
            world.configured(&access, &[("A", &number.to_string())]).await;
        }
        let stored = world.stored(&access).await;
        assert!((100..=103).contains(&stored.len()), "{}", stored.len());
        assert!(stored.contains(&world.view(&access).await.current.unwrap().configuration.unwrap()));
        let refused = world.deployer.configuration(&access, Some(revision(2))).await;
        assert_eq!(refused, Err(Refusal::ConfigurationForgotten(revision(2))));
        world.deployer.delete(&access).await.unwrap();
        assert!(world.stored(&access).await.is_empty());
    });
}

#[test]
fn full_environment_takes_what_is_smaller_and_keeps_less_for_the_history() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default().with(|policy| policy.settle = Duration::ZERO)).await;
        let large = "x".repeat(100_000);
        for number in 0..6 {
            world.configured(&access, &[("A", &format!("{number}{large}")), ("B", "b")]).await;
        }
        // What the other apps of the environment have.
        let other = world.app("other", leave()).await;
        let nine = ["A", "B", "C", "D", "E", "F", "G", "H", "I"].map(|name| (name, &*large));
        let full = samples::configuration(1, &nine).variables;
        for number in 1..=75 {
            ConfigurationStore::put(&*world.store, other.uid(), ConfigurationId(number), &full).await.unwrap();
        }
        let refused = world.configure(&access, set(&[("C", "more")])).await;
        assert_eq!(refused, Err(Refusal::ConfigurationsFull));
        assert_eq!(world.stored(&access).await.len(), 6, "what is refused removes nothing");
        let smaller = world.configure(&access, unset("B")).await;
        assert!(matches!(smaller, Ok(Configured::Deploy(_))), "{smaller:?}");
        assert!(world.stored(&access).await.len() <= 4, "older ones have made room, the others' do not");
    });
}

#[test]
fn changes_at_the_same_time_do_not_all_take_the_same_room() {
    let world = World::new(SECOND);
    let plan: Plan = Arc::new(|call| match call {
        "configurations.bytes_of" | "configurations.put" => Fault::Late(Duration::from_millis(10)),
        _ => Fault::None,
    });
    let store: Arc<dyn ConfigurationStore> = world.store.clone();
    let slow = Arc::new(Faulty::new(Arc::clone(&store), Arc::clone(&world.clock) as Arc<dyn Clock>, plan));
    let deployer = Arc::new(Deployer::new(world.ports(9).with(|ports| ports.configurations = Some(slow)), "one"));
    let world = World { deployer, ..world };
    world.run(async {
        let large = "x".repeat(100_000);
        let nine = ["A", "B", "C", "D", "E", "F", "G", "H", "I"].map(|name| (name, &*large));
        let full = samples::configuration(1, &nine).variables;
        let other = world.app("other", leave()).await;
        let put = async |id: u128| store.put(other.uid(), ConfigurationId(id), &full).await.unwrap();
        let all = async || store.bytes_of(&other.app().namespace).await.unwrap();
        for number in 1..=74 {
            put(number).await;
        }
        let left = ENVIRONMENT_BYTES_MAX - all().await;
        assert!((300_000..600_000).contains(&left), "{left}");
        let mut apps = Vec::new();
        for number in 0..10 {
            apps.push(world.app(&format!("app-{number}"), leave()).await);
        }
        let changes = join_all(apps.iter().map(|app| world.configure(app, set(&[("A", &large)])))).await;
        let taken = changes.iter().filter(|change| change.is_ok()).count() as u64;
        assert_eq!(taken, left / 100_100, "{changes:?}");
        assert!(all().await <= ENVIRONMENT_BYTES_MAX);

        // Changes that take nothing more are taken until there is as much again.
        let fitted = changes.iter().position(|change| change.is_ok()).unwrap();
        world.ended(&apps[fitted], 2).await;
        for number in 101..=174 {
            put(number).await;
        }
        assert!(matches!(world.configure(&apps[fitted], unset("A")).await, Ok(Configured::Deploy(_))));
        world.ended(&apps[fitted], 3).await;
        for number in 175..=200 {
            put(number).await;
        }
        assert_eq!(world.configure(&apps[fitted], set(&[("A", "b")])).await, Err(Refusal::ConfigurationsFull));
    });
}

#[test]
fn changes_and_rollbacks_wait_for_no_list_and_for_no_slow_platform() {
    let world = World::new(SECOND);
    let plan: Plan = Arc::new(|call| match call {
        "rollouts.check_settings" => Fault::Late(Duration::from_secs(3600)),
        _ => Fault::None,
    });
    let cluster: Arc<dyn RolloutDriver> = world.cluster.clone();
    let slow = Arc::new(Faulty::new(cluster, Arc::clone(&world.clock) as Arc<dyn Clock>, plan));
    let deployer = Arc::new(Deployer::new(world.ports(9).with(|ports| ports.rollouts = slow), "one"));
    let world = World { deployer, ..world };
    world.run(async {
        let access = world.app("api", leave()).await;
        world.configured(&access, &[("A", "1")]).await;
        world.configured(&access, &[("A", "2")]).await;
        world.configured(&access, &[("B", "3")]).await;
        let revoked = unset("B").with(|request| request.revoked = true);
        assert!(matches!(world.configure(&access, revoked).await, Ok(Configured::Deploy(_))));
        world.ended(&access, 5).await;

        let _list = world.deployer.history_turn(&access, usize::MAX).await;
        let others = [world.app("web", leave()).await, world.app("worker", leave()).await];
        let mut slow: Vec<_> = others
            .iter()
            .map(|app| {
                let change = VariablesChange {
                    settings: [("memory".to_owned(), "1g".into())].into_iter().collect(),
                    ..VariablesChange::default()
                };
                Box::pin(world.configure(app, ConfigureRequest::default().with(|request| request.change = change)))
            })
            .collect();
        for change in &mut slow {
            assert!(poll!(change).is_pending());
        }
        let back = with_configuration().with(|request| request.revision = Some(revision(2)));
        world.deployer.rollback(&access, back).await.unwrap();
        assert_eq!(world.ended(&access, 6).await.status(), Status::Succeeded);
        world.configured(&access, &[("A", "3")]).await;
        for change in &mut slow {
            assert!(poll!(change).is_pending());
        }
    });
}
