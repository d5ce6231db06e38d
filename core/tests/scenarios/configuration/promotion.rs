//! Promotions to an app that lacks variables.

use super::*;

#[test]
fn promotion_to_an_app_that_lacks_variables_asks_first() {
    let world = World::new(SECOND);
    world.run(async {
        let test = world.app("api", leave()).await;
        let mut wanted = world::registration("api", leave());
        wanted.environment = "prod".parse().unwrap();
        let prod = world.registered(wanted).await;
        world.configured(&test, &[("URL", "x"), ("A", "1"), ("B", "2")]).await;
        world.configured(&prod, &[("A", "other")]).await;
        let from = world.view(&test).await.app.full_name();
        let promote = || PromoteRequest::new(from.clone());
        let refused = world.deployer.promote(&prod, promote()).await.unwrap_err();
        let names = ["B", "URL"].map(|name| name.parse().unwrap()).to_vec();
        assert_eq!(refused, Refusal::VariablesMissing { from: test.app().clone(), variables: names });
        assert!(refused.to_string().contains("variables that this app lacks: B, URL."), "{refused}");

        // What waits for the next deploy is there for it.
        world.configure(&prod, staged(set(&[("B", "2")]))).await.unwrap();
        let key = IdempotencyKey::new(KeyHeader::IdempotencyKey, "k", [0; 32]).unwrap();
        let confirmed = || {
            promote().with(|request| {
                request.without_variables = true;
                request.key = Some(key.clone());
            })
        };
        let Err(Refusal::VariablesMissing { variables, .. }) = world.deployer.promote(&prod, promote()).await else {
            panic!("it lacks URL")
        };
        assert_eq!(variables, ["URL".parse().unwrap()]);
        let accepted = world.deployer.promote(&prod, confirmed()).await.unwrap().deploy;
        world.ended(&prod, accepted.revision.get()).await;
        world.runs(&prod, &[("A", "other"), ("B", "2")]).await;
        let repeated = world.deployer.promote(&prod, confirmed().with(|request| request.without_variables = false));
        assert!(repeated.await.unwrap().replayed, "a call that was accepted is not asked again");

        world.configured(&prod, &[("URL", "y")]).await;
        world.configure(&test, staged(set(&[("NEXT", "1")]))).await.unwrap();
        let accepted = world.deployer.promote(&prod, promote()).await.unwrap().deploy;
        assert_eq!(world.ended(&prod, accepted.revision.get()).await.status(), Status::Succeeded);
    });
}
