//! Registering a target.

use rollhook_core::{
    app::AppId,
    ports::{InvalidTarget, TargetRequest, Validated},
};

use super::{Bench, OURS, THEIRS, is_same};
use crate::{
    clusters::{Clusters, Sample},
    report::Can,
};

/// Every handle on one platform has the same identity, which is a line of text.
pub async fn identity_is_stable(cluster: &dyn Clusters) -> Can {
    let identity = cluster.rollouts().identity().await.unwrap();
    assert_eq!(cluster.another().await?.identity().await.unwrap(), identity);
    assert!(!identity.0.is_empty() && !identity.0.contains(char::is_control), "{identity:?}");
    Ok(())
}

/// Validating a target leaves it as it is, whatever is asked and whenever.
pub async fn validate_changes_nothing(cluster: &dyn Clusters) -> Can {
    let bench = Bench::new(cluster, "validate-there").await;
    for revision in [1, 2] {
        let before = bench.fingerprint().await;
        let asked = bench.request();
        for request in [
            TargetRequest { take_over: true, ..asked.clone() },
            TargetRequest { image: None, built: true, ..asked.clone() },
            TargetRequest { image: None, ..asked },
        ] {
            bench.validate(&request).await;
            assert_eq!(bench.fingerprint().await, before, "{request:?}");
        }
        bench.roll_out(&bench.order(OURS, revision, Sample::Another)?).await;
    }
    let absent = Bench::absent(cluster, "validate-absent").await;
    for _ in 0..2 {
        let answer = absent.validate(&absent.request()).await;
        assert!(matches!(answer, Validated::Create { .. }), "asking created it: {answer:?}");
    }
    Ok(())
}

/// The settings of an answer are complete: asked about again, they come back as they are.
pub async fn validate_fills_in_defaults(cluster: &dyn Clusters) -> Can {
    for bench in [Bench::new(cluster, "defaults").await, Bench::absent(cluster, "defaults-absent").await] {
        let settings = bench.target.settings.clone();
        let again = bench.validate(&TargetRequest { settings: settings.clone(), ..bench.request() }).await;
        match again {
            Validated::Adopt { settings: found, .. } | Validated::Create { settings: found, .. } => {
                assert_eq!(found, settings, "the settings were not complete");
            }
            Validated::Invalid(invalid) => panic!("its own settings are not valid: {invalid:?}"),
        }
    }
    Ok(())
}

/// A target that exists is adopted, with the image that it runs.
pub async fn validate_adopts_what_runs(cluster: &dyn Clusters) -> Can {
    let bench = Bench::adopted(cluster, "validate-adopt").await?;
    let given = bench.request();
    for request in [TargetRequest { image: None, ..given.clone() }, given] {
        let answer = bench.validate(&request).await;
        let Validated::Adopt { image, take_over: None, .. } = &answer else { panic!("not adopted: {answer:?}") };
        assert!(is_same(image, &cluster.image(Sample::Good)?), "{image} does not run");
    }
    bench.roll_out(&bench.order(OURS, 1, Sample::Another)?).await;
    assert!(is_same(&bench.stored().await.1, &cluster.image(Sample::Another)?));
    Ok(())
}

/// A target that does not exist is created with the given image, or once one is built.
pub async fn validate_absent_is_created(cluster: &dyn Clusters) -> Can {
    let bench = Bench::absent(cluster, "validate-create").await;
    let given = bench.request();
    let answer = bench.validate(&given).await;
    assert!(matches!(answer, Validated::Create { .. }), "{answer:?}");
    let answer = bench.validate(&TargetRequest { image: None, built: true, ..given.clone() }).await;
    assert!(matches!(answer, Validated::Create { .. }), "its image is yet to be built: {answer:?}");
    let answer = bench.validate(&TargetRequest { image: None, ..given }).await;
    let Validated::Invalid(InvalidTarget::Unusable(why)) = &answer else { panic!("without an image: {answer:?}") };
    assert!(!why.is_empty(), "a person is told why");
    Ok(())
}

/// A setting that is not valid is named.
pub async fn validate_names_an_invalid_setting(cluster: &dyn Clusters) -> Can {
    let bench = Bench::absent(cluster, "validate-invalid").await;
    let (settings, expected) = cluster.invalid_settings()?;
    let answer = bench.validate(&TargetRequest { settings, ..bench.request() }).await;
    let Validated::Invalid(InvalidTarget::Setting { name, rule }) = &answer else {
        panic!("not an invalid setting: {answer:?}")
    };
    assert_eq!(name, expected);
    assert!(!rule.is_empty(), "a person is told the rule");
    Ok(())
}

/// A target that carries the deploy id of another registration is taken over only where that is asked for.
pub async fn validate_foreign_is_taken(cluster: &dyn Clusters) -> Can {
    let bench = Bench::new(cluster, "validate-foreign").await;
    bench.roll_out(&bench.order(THEIRS, 5, Sample::Another)?).await;
    let answer = bench.validate(&bench.request()).await;
    let Validated::Invalid(InvalidTarget::Taken(why)) = &answer else { panic!("not taken: {answer:?}") };
    assert!(why.contains(&THEIRS.to_string()), "a person is told whose it is: {why}");
    assert_eq!(bench.stored().await.0, Some(THEIRS));
    Ok(())
}

/// Of a target that exists, the settings that only say how a missing one is created are named.
pub async fn validate_names_settings_of_creation(cluster: &dyn Clusters) -> Can {
    let bench = Bench::adopted(cluster, "validate-unused").await?;
    let asked = bench.request();
    let answer = bench.validate(&asked).await;
    let Validated::Adopt { mut unused, .. } = answer else { panic!("not adopted: {answer:?}") };
    unused.sort();
    let mut given = asked.of_creation();
    given.sort();
    assert_eq!(unused, given, "what is not used is named");
    let settings = bench.target.settings.clone();
    let answer = bench.validate(&TargetRequest { settings, ..asked }).await;
    assert!(matches!(&answer, Validated::Adopt { unused, .. } if unused.is_empty()), "nothing was given: {answer:?}");
    Ok(())
}

/// The deploy id of the registration itself is not taken over, and what says how its target is created comes back.
pub async fn validate_knows_its_own(cluster: &dyn Clusters) -> Can {
    for bench in [Bench::new(cluster, "validate-own").await, Bench::absent(cluster, "validate-own-absent").await] {
        let settings = bench.target.settings.clone();
        let again = TargetRequest { settings, image: None, built: true, registered: Some(OURS), ..bench.request() };
        bench.roll_out(&bench.order(OURS, 1, Sample::Another)?).await;
        for take_over in [false, true] {
            let answer = bench.validate(&TargetRequest { take_over, ..again.clone() }).await;
            let Validated::Adopt { settings, take_over: None, .. } = &answer else { panic!("not its own: {answer:?}") };
            assert_eq!(*settings, bench.target.settings, "what says how it is created comes back");
        }
        let other = TargetRequest { registered: Some(THEIRS), ..again };
        let answer = bench.validate(&other).await;
        assert!(matches!(answer, Validated::Invalid(InvalidTarget::Taken(_))), "not taken: {answer:?}");
        let answer = bench.validate(&TargetRequest { take_over: true, ..other }).await;
        assert!(matches!(answer, Validated::Adopt { take_over: Some(OURS), .. }), "not taken over: {answer:?}");
    }
    Ok(())
}

/// A target that another app names is taken over only where that is asked for, whether it exists or not.
pub async fn validate_of_another_app_is_taken(cluster: &dyn Clusters) -> Can {
    let other: AppId = "shop-test/another".parse().unwrap();
    for bench in [Bench::new(cluster, "validate-other").await, Bench::absent(cluster, "validate-other-absent").await] {
        let others = vec![(other.clone(), bench.target.settings.clone())];
        let asked = TargetRequest { others, ..bench.request() };
        let answer = bench.validate(&asked).await;
        let Validated::Invalid(InvalidTarget::Taken(why)) = &answer else { panic!("not taken: {answer:?}") };
        assert!(why.contains(&other.to_string()), "a person is told whose it is: {why}");
        let answer = bench.validate(&TargetRequest { take_over: true, ..asked }).await;
        assert!(matches!(answer, Validated::Adopt { .. } | Validated::Create { .. }), "taken over: {answer:?}");
    }
    Ok(())
}
