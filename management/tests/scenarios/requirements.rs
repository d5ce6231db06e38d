//! Requirements on the images of projects and environments, on the whole service under simulated time.

use std::{sync::Arc, time::Duration};

use rollhook_core::{
    action::Action as AppAction,
    app::Policy,
    deploy::{Deploy, Reason, Status},
    ports::{Clock, Resolved},
    request::{Field, Refusal as CoreRefusal},
    requirement::{Attestation, Requirement, Signer},
    service::Authorized,
};
use rollhook_management::{
    Management, Ports, Refusal,
    access::{Grant, Principal, Realm, Role},
    ports::RecordKind,
};
use rollhook_memory::{SimulatedImageVerifier, SimulatedRegistry};

use crate::world::{ManagedWorld, actions::realm, api, digest, git, image, reason, registration, request};

/// A world whose images are a registry's: version 1 and 2 are signed by ada, and 3 by nobody.
struct Signed {
    world: ManagedWorld,
    registry: Arc<SimulatedRegistry>,
    verifier: Arc<SimulatedImageVerifier>,
    management: Arc<Management>,
}

fn signer(name: &str) -> Signer {
    format!("issuer=https://id.example.com,subject={name}@example.com").parse().unwrap()
}

fn by(name: &str) -> Requirement {
    Requirement::new(vec![signer(name)], None).unwrap()
}

fn attested(name: &str) -> Option<Attestation> {
    format!("slsa-provenance,{}", signer(name)).parse().ok()
}

fn project(name: &str) -> Realm {
    Realm::Project { project: name.parse().unwrap() }
}

fn admin_of(realm: Realm) -> Principal {
    Principal::new("ada", [Grant { role: Role::Admin, realm }])
}

impl Signed {
    fn new() -> Self {
        let world = ManagedWorld::new(Duration::from_secs(1));
        world.cluster.fetch_images();
        let (registry, _) = world.replica_with_registry("unused");
        let verifier = Arc::new(SimulatedImageVerifier::default());
        for bits in 1..=3_u8 {
            let tag = format!("v{bits}");
            let pushed = Resolved::new(digest(bits), "application/vnd.oci.image.manifest.v1+json");
            registry.push(&image(&api(&tag)), &tag.parse().unwrap(), pushed);
        }
        [1, 2].iter().for_each(|bits| verifier.sign(&digest(*bits), signer("ada")));
        let management = Self::process(&world, &registry, &verifier, "two");
        Self { world, registry, verifier, management }
    }

    fn process(
        world: &ManagedWorld,
        registry: &Arc<SimulatedRegistry>,
        verifier: &Arc<SimulatedImageVerifier>,
        name: &str,
    ) -> Arc<Management> {
        let ports = world.ports(9).with(|ports| {
            ports.registry = Some(registry.clone());
            ports.image_verifier = Some(verifier.clone());
        });
        let deployer = Arc::new(rollhook_core::service::Deployer::new(ports, name));
        world.managed(deployer, Ports::new(world.records()))
    }

    fn run<T>(&self, scenario: impl Future<Output = T>) -> T {
        self.world.run_managed(&self.management, scenario)
    }

    async fn app(&self, environment: &str, name: &str) -> Authorized {
        let app = registration(name, Policy::default()).with(|app| app.environment = environment.parse().unwrap());
        let id = self.management.register(&self.world.operator, app, None).await.unwrap().app.app.id.clone();
        self.management.allow(&self.world.operator, &id, AppAction::Deploy).await.unwrap()
    }

    async fn deployed(&self, access: &Authorized, tag: &str) -> Deploy {
        let accepted = self.management.deployer().submit(access, request(&api(tag))).await.unwrap().deploy;
        self.world.ended(access, accepted.revision.get()).await
    }
}

#[track_caller]
fn refused(deploy: &Deploy) -> String {
    let (code, message) = reason(deploy);
    assert_eq!(code, Reason::IMAGE_NOT_SIGNED, "{message}");
    message
}

#[test]
fn requirement_on_an_environment_is_on_all_of_its_apps_and_on_no_others() {
    let signed = Signed::new();
    signed.run(async {
        let (management, operator) = (&signed.management, &signed.world.operator);
        let (here, elsewhere) = (signed.app("test", "api").await, signed.app("prod", "api").await);
        let set = management.set_requirement(operator, &realm("shop", "test"), by("ada")).await.unwrap();
        assert_eq!((set.requirement, set.notes), (by("ada"), Vec::<String>::new()));
        let message = refused(&signed.deployed(&here, "v3").await);
        assert!(message.starts_with("The environment requires"), "{message}");
        assert_eq!(signed.deployed(&here, "v2").await.status(), Status::Succeeded);
        assert_eq!(signed.deployed(&elsewhere, "v3").await.status(), Status::Succeeded);
        let late = signed.app("test", "late").await;
        refused(&signed.deployed(&late, "v3").await);

        management.end_requirement(operator, &realm("shop", "test")).await.unwrap();
        for access in [&here, &late] {
            assert_eq!(signed.deployed(access, "v3").await.status(), Status::Succeeded);
        }
        assert!(management.requirements(operator).await.unwrap().is_empty());
    });
}

#[test]
fn requirement_on_a_project_is_on_all_of_its_environments_beside_theirs() {
    let signed = Signed::new();
    signed.run(async {
        let (management, operator) = (&signed.management, &signed.world.operator);
        let (test, prod) = (signed.app("test", "api").await, signed.app("prod", "api").await);
        let other = registration("api", Policy::default()).with(|app| app.project = "shop-test".parse().unwrap());
        let other = other.with(|app| app.environment = "eu".parse().unwrap());
        let other = management.register(operator, other, None).await.unwrap().app.app.id.clone();
        let other = management.allow(operator, &other, AppAction::Deploy).await.unwrap();
        management.set_requirement(operator, &project("shop"), by("ada")).await.unwrap();
        signed.world.sleep(1).await;
        management.set_requirement(operator, &realm("shop", "prod"), by("eve")).await.unwrap();
        let shown = management.requirements(operator).await.unwrap();
        assert_eq!(shown.iter().map(|set| &set.realm).collect::<Vec<_>>(), [&realm("shop", "prod"), &project("shop")]);
        assert!(refused(&signed.deployed(&test, "v3").await).starts_with("The project requires"));
        assert_eq!(signed.deployed(&test, "v2").await.status(), Status::Succeeded);
        assert!(refused(&signed.deployed(&prod, "v2").await).starts_with("The environment requires"));
        signed.verifier.sign(&digest(2), signer("eve"));
        assert_eq!(signed.deployed(&prod, "v2").await.status(), Status::Succeeded);
        assert_eq!(signed.deployed(&other, "v3").await.status(), Status::Succeeded, "its names only begin alike");
        let born = signed.app("stage", "api").await;
        refused(&signed.deployed(&born, "v3").await);
    });
}

#[test]
fn only_who_administers_the_whole_place_sets_its_requirement() {
    let signed = Signed::new();
    signed.run(async {
        let management = &signed.management;
        let access = signed.app("test", "api").await;
        let (of_environment, of_project) = (admin_of(realm("shop", "test")), admin_of(project("shop")));
        let deployer = Principal::new("bob", [Grant { role: Role::Deployer, realm: Realm::Everything }]);
        management.set_requirement(&of_project, &project("shop"), by("ada")).await.unwrap();
        for (who, place) in [
            (&of_environment, project("shop")),
            (&of_environment, realm("shop", "prod")),
            (&of_project, project("blog")),
            (&deployer, realm("shop", "test")),
        ] {
            let ended = management.end_requirement(who, &place).await;
            assert!(matches!(ended, Err(Refusal::Forbidden(..))), "{place}: {ended:?}");
        }
        // Whoever may set none is not told what this server verifies.
        let unverifiable = Requirement::new(vec![signer("ada"); 8], attested("eve")).unwrap();
        let set = management.set_requirement(&deployer, &realm("shop", "test"), unverifiable.clone()).await;
        assert!(matches!(set, Err(Refusal::Forbidden(..))), "{set:?}");
        let set = management.set_requirement(&of_environment, &realm("shop", "test"), unverifiable).await;
        let is_named =
            |refusal: &_| matches!(refusal, Refusal::Core(CoreRefusal::InvalidField(Field::RequireSignature, _)));
        assert!(set.as_ref().is_err_and(is_named), "{set:?}");
        management.set_requirement(&of_environment, &realm("shop", "test"), by("eve")).await.unwrap();
        assert_eq!(management.requirements(&of_environment).await.unwrap().len(), 1, "the project's is not theirs");
        assert!(management.requirements(&deployer).await.is_err());
        let everything = management.set_requirement(&signed.world.operator, &Realm::Everything, by("ada")).await;
        let is_named = |refusal: &_| matches!(refusal, Refusal::Core(CoreRefusal::InvalidField(Field::Project, _)));
        assert!(everything.as_ref().is_err_and(is_named), "{everything:?}");
        let audited = management.audited(&signed.world.operator, None, 10).await.unwrap().0;
        assert!(audited.iter().any(|entry| format!("{entry:?}").contains("subject=ada@example.com")), "{audited:?}");
        refused(&signed.deployed(&access, "v3").await);
    });
}

#[test]
fn git_apps_are_named_and_registered_no_more() {
    let signed = Signed::new();
    signed.run(async {
        let (management, operator) = (&signed.management, &signed.world.operator);
        let place = realm("shop", "test");
        let set = management.set_requirement(operator, &place, by("ada")).await.unwrap();
        assert!(set.notes[0].contains("There is no app"), "{:?}", set.notes);
        let built = management.register(operator, git("built", Policy::default()), None).await;
        let is_refused = |refusal: &_| matches!(refusal, Refusal::Core(CoreRefusal::WrongKind(_)));
        assert!(built.as_ref().is_err_and(is_refused), "{built:?}");
        management.end_requirement(operator, &place).await.unwrap();
        management.register(operator, git("built", Policy::default()), None).await.unwrap();
        let set = management.set_requirement(operator, &place, by("ada")).await.unwrap();
        assert!(set.notes[0].contains("Builds of shop-test/built fail"), "{:?}", set.notes);
        let long = |number: usize| format!("issuer=https://id.test/{number}{},subject=ada@id.test", "x".repeat(1_000));
        let many = Requirement::new((0..8).map(|number| long(number).parse().unwrap()).collect(), None).unwrap();
        let refused = management.set_requirement(operator, &place, many).await;
        assert!(
            refused.as_ref().is_err_and(|refusal| refusal.to_string().contains("at most 8192 bytes")),
            "{refused:?}"
        );
    });
}

#[test]
fn requirement_reaches_an_app_that_a_stopped_replica_left_out() {
    let signed = Signed::new();
    let access = signed.run(async {
        let access = signed.app("test", "api").await;
        let place = realm("shop", "test");
        signed.management.set_requirement(&signed.world.operator, &place, by("ada")).await.unwrap();
        access
    });
    // As it is where the replica was stopped before it wrote the app.
    signed.world.idle(signed.world.commit(&access, |change, _| {
        Arc::make_mut(&mut change.state.app).requirements = rollhook_core::requirement::RequirementCopies::default();
    }));
    let next = Signed::process(&signed.world, &signed.registry, &signed.verifier, "three");
    signed.world.run_managed(&next, async {
        signed.world.clock.sleep(Duration::from_secs(60)).await;
        let access = next.allow(&signed.world.operator, access.app(), AppAction::Deploy).await.unwrap();
        let accepted = next.deployer().submit(&access, request(&api("v3"))).await.unwrap().deploy;
        refused(&signed.world.ended(&access, accepted.revision.get()).await);
    });
}

#[test]
fn made_up_names_fill_no_store_and_a_flood_is_bounded() {
    let signed = Signed::new();
    signed.run(async {
        let (management, ada) = (&signed.management, admin_of(project("shop")));
        let stored = async || signed.world.records().list(RecordKind::Requirement, None, 1_000).await.unwrap().len();
        let mut refused = 0;
        for number in 0..110 {
            let place = realm("shop", &format!("made-up-{number}"));
            match management.set_requirement(&ada, &place, by("ada")).await {
                Ok(_) => {}
                Err(Refusal::TooManyRequirements(100, Realm::Project { .. })) => refused += 1,
                Err(other) => panic!("{other}"),
            }
        }
        assert_eq!((stored().await, refused), (100, 10));
        let place = realm("shop", "made-up-0");
        let mut flood = Vec::new();
        for _ in 0..30 {
            flood.push(management.set_requirement(&ada, &place, by("ada")).await);
        }
        assert!(flood.iter().any(|set| matches!(set, Err(Refusal::TooManyRequirementChanges(_)))));
    });
}
