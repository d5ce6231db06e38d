//! Ways back: what others have set blocks none, and revoked values come back unasked by none.

use super::*;

#[test]
fn variable_that_others_have_set_since_blocks_no_way_back() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.configured(&access, &[("A", "one")]).await;
        world.configured(&access, &[("A", "two")]).await;
        let target = world.view(&access).await.app.target.clone();
        world.cluster.set_variable(access.app(), &target, "A", "theirs");
        let noted = |deploy: &Deploy| {
            let State::Succeeded { note: Some(note), .. } = &deploy.state else { panic!("{deploy:?}") };
            assert!(note.contains("others set A too"), "{note}");
        };
        noted(&world.deployed(&access, &api("v2")).await);
        world.cluster.script("api:bad", Script::crashes());
        let failed = world.deployed(&access, &api("bad")).await;
        assert_eq!(failed.status(), Status::Failed);
        noted(&world.ended(&access, failed.revision.get() + 1).await);
        noted(&world.rolled_back_by(&access, RollbackRequest::default()).await);
        let back = with_configuration().with(|request| request.revision = Some(revision(2)));
        noted(&world.rolled_back_by(&access, back).await);
        // A change of another variable is none of this one.
        noted(&world.configured(&access, &[("B", "one")]).await);
        assert_eq!(reason(&world.configured(&access, &[("A", "three")]).await), Reason::CONFIGURATION_CONFLICT);
    });
}

fn revoked(name: &str) -> ConfigureRequest {
    unset(name).with(|request| request.revoked = true)
}

#[test]
fn revoked_value_comes_back_only_where_that_is_confirmed() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", leave()).await;
        world.configured(&access, &[("TOKEN", "leaked"), ("A", "one")]).await;
        world.configured(&access, &[("TOKEN", "safe")]).await;
        world.configured(&access, &[("TOKEN", "leaked")]).await;
        let Configured::Deploy(accepted) = world.configure(&access, revoked("TOKEN")).await.unwrap() else { panic!() };
        world.ended(&access, accepted.deploy.revision.get()).await;
        world.runs(&access, &[("A", "one")]).await;
        let to = |number| with_configuration().with(|request| request.revision = Some(revision(number)));
        // By name and value: whoever had another value may have it back.
        world.rolled_back_by(&access, to(3)).await;
        world.runs(&access, &[("A", "one"), ("TOKEN", "safe")]).await;
        let before = world.view(&access).await.latest;
        for target in [2, 4] {
            let refused = world.deployer.rollback(&access, to(target)).await.unwrap_err();
            let Refusal::ConfigurationRevoked { target: named, variables } = &refused else { panic!("{refused:?}") };
            assert_eq!((*named, variables[0].as_str(), variables.len()), (revision(target), "TOKEN", 1));
            assert!(!refused.to_string().contains("leaked"), "{refused}");
        }
        assert_eq!(world.view(&access).await.latest, before, "nothing was recorded");
        // The image alone has no values.
        world.rolled_back_by(&access, RollbackRequest::default().with(|it| it.revision = Some(revision(2)))).await;
        let confirmed = to(2).with(|request| request.with_revoked = true);
        assert_eq!(world.rolled_back_by(&access, confirmed).await.status(), Status::Succeeded);
        world.runs(&access, &[("A", "one"), ("TOKEN", "leaked")]).await;
        assert!(world.deployer.rollback(&access, to(4)).await.is_err(), "it is asked each time");
    });
}

#[test]
fn restore_says_that_a_revoked_value_is_back() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.configured(&access, &[("TOKEN", "leaked")]).await;
        world.cluster.script("api:v1", Script::crashes());
        let Configured::Deploy(accepted) = world.configure(&access, revoked("TOKEN")).await.unwrap() else { panic!() };
        let failed = world.ended(&access, accepted.deploy.revision.get()).await;
        assert_eq!(failed.status(), Status::Failed);
        let note = |entry: &Deploy| {
            let State::Succeeded { note, .. } = &entry.state else { panic!("{entry:?}") };
            note.clone().unwrap_or_default()
        };
        world.cluster.script("api:v1", Script::default());
        let restore = world.ended(&access, failed.revision.get() + 1).await;
        assert!(restore.is_restore() && note(&restore).contains("revoked values of TOKEN"), "{restore:?}");
        // A configuration that is made of it has the value as well.
        world.configured(&access, &[("A", "one")]).await;
        world.cluster.script("api:bad", Script::crashes());
        let failed = world.deployed(&access, &api("bad")).await;
        let restore = world.ended(&access, failed.revision.get() + 1).await;
        assert!(restore.is_restore() && note(&restore).contains("revoked values of TOKEN"), "{restore:?}");
        // Once it was taken away for good, there is nothing to say.
        let Configured::Deploy(accepted) = world.configure(&access, unset("TOKEN")).await.unwrap() else { panic!() };
        world.ended(&access, accepted.deploy.revision.get()).await;
        let failed = world.deployed(&access, &api("bad")).await;
        let restore = world.ended(&access, failed.revision.get() + 1).await;
        assert!(restore.is_restore() && !note(&restore).contains("revoked"), "{restore:?}");
        // A rollback that was confirmed brings it back to restores too.
        let back = with_configuration().with(|request| {
            request.revision = Some(revision(2));
            request.with_revoked = true;
        });
        world.rolled_back_by(&access, back).await;
        let failed = world.deployed(&access, &api("bad")).await;
        let restore = world.ended(&access, failed.revision.get() + 1).await;
        assert!(restore.is_restore() && note(&restore).contains("revoked values of TOKEN"), "{restore:?}");
    });
}

#[test]
fn revoked_value_is_known_again_whatever_else_the_app_keeps() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let fingerprint = async || {
            let shown = world.deployer.configuration(&access, None).await.unwrap();
            shown.variables.first().unwrap().fingerprint.clone()
        };
        world.configured(&access, &[("TOKEN", "leaked")]).await;
        let leaked = fingerprint().await;
        world.configure(&access, revoked("TOKEN")).await.unwrap();
        world.quiet(&access).await;
        let bare = with_configuration().with(|request| request.revision = Some(revision(1)));
        assert_eq!(world.rolled_back_by(&access, bare).await.configuration, None);
        let check = SimulatedVerifier::check_of("errors".parse().unwrap(), 0.01)
            .with(|check| _ = check.settings.insert("secret_for".to_owned(), "https://a.example".into()));
        world.deployer.set_check(&access, check, Some("hunter2-hunter2".parse().unwrap())).await.unwrap();
        let again = world.configured(&access, &[("TOKEN", "leaked")]).await;
        assert_eq!(fingerprint().await, leaked, "the secret of a check brings no other key");
        let view = world.view(&access).await;
        let of_again =
            |known: &rollhook_core::ledger::Revoked| known.configurations.contains(&again.configuration.unwrap());
        assert!(view.revoked.iter().any(of_again), "{:?}", view.revoked);
    });
}
