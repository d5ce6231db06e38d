//! Bounds: which configurations stay, of an app and of an environment.

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
