//! Apps whose images must be signed before they are deployed.

use std::{sync::Arc, time::Duration};

use rollhook_core::{
    app::{Policy, Resolve, Source},
    configuration::{Variable, VariablesChange},
    deploy::{Deploy, Reason, Resolution, Revision, Scale, State, Status, Trigger},
    error::Error,
    image::{ImageLabels, ImageRef},
    ledger::{Change, Record, Refused},
    ports::{Clock, Resolved},
    request::{ConfigureRequest, Field, PolicyChange, PromoteRequest, Refusal, RollbackRequest, ScaleRequest},
    requirement::{Required, Requirement, RequirementCopies, RequirementCopy, ScopedRequirement, Signer},
    service::{Authorized, Deployer},
};
use rollhook_memory::{Answering, Script, SimulatedImageVerifier, SimulatedRegistry};

use crate::world::{self, World, api, digest, image, reason, registration, request};

/// A world whose images are a registry's, where app `api` runs version 1, which is signed by ada. Versions 2 and 3 are too, 4 by
/// another signer, and 5 by nobody.
struct Signed {
    world: World,
    registry: Arc<SimulatedRegistry>,
    verifier: Arc<SimulatedImageVerifier>,
    deployer: Deployer,
}

fn signer(name: &str) -> Signer {
    format!("issuer=https://id.example.com,subject={name}@example.com").parse().unwrap()
}

fn required() -> Policy {
    let requirement = Requirement::new(vec![signer("ada")], None).unwrap();
    Policy::default().with(|policy| policy.signed = Some(requirement))
}

fn set() -> PolicyChange {
    PolicyChange { signers: Some(vec![signer("ada")]), ..PolicyChange::default() }
}

fn away() -> Option<Error> {
    Some(Error::Unavailable { what: "the registry is away".to_owned(), cause: None })
}

impl Signed {
    fn new() -> Self {
        let world = World::new(Duration::from_secs(2));
        world.cluster.fetch_images();
        let (registry, _) = world.replica_with_registry("unused");
        let verifier = Arc::new(SimulatedImageVerifier::default());
        let deployer = Self::process(&world, &registry, Some(&verifier), "two");
        for bits in 1..=5_u8 {
            let tag = format!("v{bits}");
            let pushed = Resolved::new(digest(bits), "application/vnd.oci.image.manifest.v1+json");
            registry.push(&image(&api(&tag)), &tag.parse().unwrap(), pushed);
            let signers: &[&str] = if bits < 4 { &["ada"] } else { &["eve"] };
            signers.iter().filter(|_| bits < 5).for_each(|name| verifier.sign(&digest(bits), signer(name)));
        }
        Self { world, registry, verifier, deployer }
    }

    fn process(
        world: &World,
        registry: &Arc<SimulatedRegistry>,
        verifier: Option<&Arc<SimulatedImageVerifier>>,
        name: &str,
    ) -> Deployer {
        let ports = world.ports(9).with(|ports| {
            ports.registry = Some(registry.clone());
            ports.image_verifier = verifier.map(|verifier| verifier.clone() as _);
        });
        Deployer::new(ports, name)
    }

    /// Runs a scenario with the app of this policy, whose first version has succeeded.
    fn run<T>(&self, policy: Policy, scenario: impl AsyncFnOnce(&Authorized) -> T) -> T {
        self.world.run_beside(&self.deployer, async {
            let access = self.registered("api", policy).await;
            assert_eq!(self.world.ended(&access, 1).await.status(), Status::Succeeded);
            scenario(&access).await
        })
    }

    async fn registered(&self, name: &str, policy: Policy) -> Authorized {
        let registered = self.deployer.register(&self.world.operator, registration(name, policy), None).await;
        self.world.access(&registered.unwrap().app.app.id).await
    }

    async fn deployed(&self, access: &Authorized, reference: &str) -> Deploy {
        let accepted = self.deployer.submit(access, request(reference)).await.unwrap().deploy;
        self.world.ended(access, accepted.revision.get()).await
    }

    async fn rolled_back(&self, access: &Authorized, revision: Option<u64>) -> Deploy {
        let revision = revision.and_then(Revision::new);
        let request = RollbackRequest::default().with(|request| request.revision = revision);
        let accepted = self.deployer.rollback(access, request).await.unwrap().deploy;
        self.world.ended(access, accepted.revision.get()).await
    }

    async fn change(&self, access: &Authorized, change: PolicyChange) {
        self.deployer.change_policy(access, change).await.unwrap();
    }

    /// The image that the workload is set to.
    fn runs(&self) -> ImageRef {
        self.world.cluster.effects().last().unwrap().image.clone()
    }

    /// Expects that a deploy failed as its image is not signed, and touched nothing. Returns the message.
    fn refused(deploy: &Deploy) -> String {
        let (code, message) = reason(deploy);
        assert_eq!((code.as_str(), deploy.touched), (Reason::IMAGE_NOT_SIGNED, false), "{message}");
        message
    }
}

#[test]
fn signed_image_is_deployed_by_the_digest_that_was_verified_and_the_entry_says_who_signed() {
    let signed = Signed::new();
    signed.run(required(), async |access| {
        let deployed = signed.deployed(access, &api("v2")).await;
        assert_eq!((deployed.status(), deployed.signed_by()), (Status::Succeeded, &[signer("ada").to_string()][..]));
        let pinned = image(&api("v2")).pinned(digest(2));
        assert_eq!((signed.runs(), signed.verifier.asked().last()), (pinned.clone(), Some(&pinned)));
    });
}

#[test]
fn unsigned_image_touches_nothing_and_restores_nothing() {
    let signed = Signed::new();
    signed.run(required(), async |access| {
        let effects = signed.world.effects();
        let message = Signed::refused(&signed.deployed(access, &api("v5")).await);
        assert!(message.contains("subject=ada@example.com") && message.contains("no signatures"), "{message}");
        let message = Signed::refused(&signed.deployed(access, &api("v4")).await);
        assert!(message.contains("a signature by") && message.contains("eve@example.com"), "{message}");
        assert_eq!(signed.world.quiet(access).await.len(), 3, "nothing is restored");
        assert_eq!(signed.world.effects(), effects);
    });
}

#[test]
fn first_version_needs_a_signature_and_one_that_runs_already_does_not() {
    let signed = Signed::new();
    signed.run(Policy::default(), async |access| {
        assert_eq!(signed.deployed(access, &api("v5")).await.status(), Status::Succeeded);
        let effects = signed.world.effects();
        signed.change(access, set()).await;
        signed.world.sleep(60).await;
        assert_eq!((signed.world.effects(), signed.world.history(access).await.len()), (effects, 2));
        let first = registration("web", required());
        let first = first.with(|first| first.image = Some(image(&api("v5"))));
        let first = signed.deployer.register(&signed.world.operator, first, None).await.unwrap();
        let first = signed.world.access(first.id()).await;
        Signed::refused(&signed.world.ended(&first, 1).await);
    });
}

#[test]
fn verifier_that_is_away_is_waited_for_and_then_ends_the_deploy_untouched() {
    let signed = Signed::new();
    signed.run(required(), async |access| {
        signed.verifier.fails(away());
        let effects = signed.world.effects();
        for reference in [api("v2"), image(&api("v2")).pinned(digest(2)).to_string()] {
            let failed = signed.deployed(access, &reference).await;
            let (code, message) = reason(&failed);
            assert_eq!((code.as_str(), failed.touched), (Reason::IMAGE_NOT_RESOLVED, false));
            assert!(message.contains("the registry is away"), "{message}");
            let took = failed.updated_at.since(failed.created_at);
            assert!(took > Duration::from_secs(25) && took < Duration::from_secs(60), "{took:?}");
        }
        assert_eq!(signed.world.effects(), effects);
        let waiting = signed.deployer.submit(access, request(&api("v2"))).await.unwrap().deploy;
        signed.world.sleep(5).await;
        assert_eq!(signed.world.entry(access, waiting.revision.get()).await.status(), Status::Queued);
        signed.verifier.fails(None);
        assert_eq!(signed.world.ended(access, waiting.revision.get()).await.status(), Status::Succeeded);
    });
}

#[test]
fn verifier_that_refuses_is_a_verdict() {
    let signed = Signed::new();
    signed.run(required(), async |access| {
        for failure in
            [Error::invalid("too many signatures"), Error::Denied { what: "no login".to_owned(), cause: None }]
        {
            signed.verifier.fails(Some(failure.clone()));
            let message = Signed::refused(&signed.deployed(access, &api("v2")).await);
            assert!(message.contains("too many signatures") || message.contains("no login"), "{message}");
        }
    });
}

#[test]
fn rollback_and_restore_of_what_ran_ask_nobody() {
    let signed = Signed::new();
    signed.world.cluster.script(digest(3).as_str(), Script::crashes());
    signed.run(required(), async |access| {
        signed.deployed(access, &api("v2")).await;
        let accepted = signed.deployer.submit(access, request(&api("v3"))).await.unwrap().deploy;
        while !signed.world.entry(access, accepted.revision.get()).await.touched {
            signed.world.clock.sleep(Duration::from_millis(100)).await;
        }
        let asked = (signed.verifier.asked().len(), signed.registry.asked().len());
        signed.verifier.fails(away());
        signed.registry.answers(Answering::Failing);
        assert_eq!(signed.world.ended(access, 3).await.status(), Status::Failed);
        let history = signed.world.quiet(access).await;
        assert!(history.last().unwrap().is_restore(), "{history:?}");
        assert_eq!((history.last().unwrap().status(), signed.runs().digest()), (Status::Succeeded, Some(&digest(2))));
        let back = signed.rolled_back(access, None).await;
        assert_eq!((back.status(), back.resolution), (Status::Succeeded, None));
        // Its signature is known, though it never succeeded.
        let failed = signed.rolled_back(access, Some(3)).await;
        assert_eq!((failed.touched, &failed.resolution), (true, &None));
        signed.world.quiet(access).await;
        assert_eq!((signed.verifier.asked().len(), signed.registry.asked().len()), asked);
    });
}

#[test]
fn rollback_to_what_was_refused_is_verified() {
    let signed = Signed::new();
    signed.run(required(), async |access| {
        Signed::refused(&signed.deployed(access, &api("v5")).await);
        let effects = signed.world.effects();
        let back = signed.rolled_back(access, Some(2)).await;
        assert_eq!(back.trigger, Trigger::Rollback);
        Signed::refused(&back);
        // By the detour of the rollback as well.
        Signed::refused(&signed.rolled_back(access, Some(3)).await);
        assert_eq!(signed.world.effects(), effects);
        signed.verifier.sign(&digest(5), signer("ada"));
        let back = signed.rolled_back(access, Some(2)).await;
        assert_eq!(
            (back.status(), back.signed_by().len(), signed.runs().digest().cloned()),
            (Status::Succeeded, 1, Some(digest(5)))
        );
        signed.world.history(access).await;
    });
}

#[test]
fn changed_configuration_of_a_version_that_never_ran_is_verified() {
    let signed = Signed::new();
    signed.world.cluster.script(digest(5).as_str(), Script::crashes());
    signed.world.run_beside(&signed.deployer, async {
        let first = registration("api", Policy::default()).with(|first| first.image = Some(image(&api("v5"))));
        let first = signed.deployer.register(&signed.world.operator, first, None).await.unwrap();
        let access = signed.world.access(first.id()).await;
        assert_eq!(signed.world.ended(&access, 1).await.status(), Status::Failed);
        signed.change(&access, set()).await;
        let effects = signed.world.effects();
        let variables = [("LEVEL".parse().unwrap(), Variable::new("debug".to_owned(), false))].into();
        let change = VariablesChange { set: variables, ..VariablesChange::default() };
        let request = ConfigureRequest::default().with(|request| request.change = change);
        signed.deployer.configure(&access, request).await.unwrap();
        Signed::refused(&signed.world.ended(&access, 2).await);
        assert_eq!(signed.world.effects(), effects);
        signed.world.history(&access).await;
    });
}

#[test]
fn posted_digest_is_verified_too() {
    let signed = Signed::new();
    signed.run(required(), async |access| {
        let unsigned = image(&api("v5")).pinned(digest(5)).to_string();
        Signed::refused(&signed.deployed(access, &unsigned).await);
        let pinned = image(&api("v3")).pinned(digest(3));
        let deployed = signed.deployed(access, &pinned.to_string()).await;
        assert_eq!((deployed.status(), signed.runs()), (Status::Succeeded, pinned));
    });
}

#[test]
fn requirement_that_changes_while_the_registry_is_asked_is_the_one_that_counts() {
    let signed = Signed::new();
    signed.run(Policy::default(), async |access| {
        signed.registry.answers(Answering::Silent);
        let accepted = signed.deployer.submit(access, request(&api("v5"))).await.unwrap().deploy;
        signed.world.sleep(2).await;
        signed.change(access, set()).await;
        signed.registry.answers(Answering::Usual);
        Signed::refused(&signed.world.ended(access, accepted.revision.get()).await);
    });
}

#[test]
fn process_that_verifies_nothing_ends_what_needs_it() {
    let signed = Signed::new();
    signed.run(required(), async |_| ());
    let blind = Signed::process(&signed.world, &signed.registry, None, "three");
    let access = signed.world.idle(signed.world.access(&"shop-test/api".parse().unwrap()));
    signed.world.idle(signed.world.clock.sleep(Duration::from_secs(60)));
    signed.world.run_beside(&blind, async {
        let accepted = blind.submit(&access, request(&api("v2"))).await.unwrap().deploy;
        let message = Signed::refused(&signed.world.ended(&access, accepted.revision.get()).await);
        assert!(message.contains("this process verifies no signatures"), "{message}");
        let changed = blind.change_policy(&access, PolicyChange { signers: Some(Vec::new()), ..set() }).await;
        assert!(changed.is_ok(), "ending it needs no verifier");
        let changed = blind.change_policy(&access, set()).await;
        assert!(matches!(changed, Err(Refusal::InvalidField(Field::PolicyRequireSignature, _))), "{changed:?}");
    });
}

#[test]
fn requirement_is_refused_where_it_cannot_be_kept() {
    let signed = Signed::new();
    signed.run(Policy::default(), async |access| {
        let refused = async |change: PolicyChange| match signed.deployer.change_policy(access, change).await {
            Err(Refusal::InvalidField(field, why)) => (field, why),
            other => panic!("{other:?}"),
        };
        let off = PolicyChange { resolve: Some(Resolve::Off), ..set() };
        assert!(refused(off).await.1.contains("resolve off"));
        let attested = "slsa-provenance,issuer=https://id.example.com,subject=ada@example.com".parse().unwrap();
        let attested = PolicyChange { attestation: Some(Some(attested)), ..PolicyChange::default() };
        assert_eq!(refused(attested).await.0, Field::PolicyRequireAttestation);
        let unsigned = "slsa-provenance".parse().unwrap();
        let unsigned = PolicyChange { attestation: Some(Some(unsigned)), ..PolicyChange::default() };
        assert!(refused(unsigned).await.1.contains("needs a signer"));
        signed.change(access, set()).await;
        let off = PolicyChange { resolve: Some(Resolve::Off), ..PolicyChange::default() };
        assert!(refused(off).await.1.contains("resolve off"));
        let git = signed.deployer.register(&signed.world.operator, world::git("built", required()), None).await;
        assert!(matches!(git, Err(Refusal::InvalidField(Field::PolicyRequireSignature, _))), "{git:?}");
    });
}

#[test]
fn promoted_image_needs_the_signatures_of_the_app_that_it_comes_to() {
    let signed = Signed::new();
    signed.run(Policy::default(), async |access| {
        assert_eq!(signed.deployed(access, &api("v5")).await.status(), Status::Succeeded);
        let to = signed.registered("web", required()).await;
        signed.world.ended(&to, 1).await;
        let from = signed.world.view(access).await.app.full_name();
        let promoted = signed.deployer.promote(&to, PromoteRequest::new(from)).await.unwrap().deploy;
        Signed::refused(&signed.world.ended(&to, promoted.revision.get()).await);
    });
}

#[test]
fn followed_image_that_is_unsigned_fails_once() {
    let signed = Signed::new();
    let followed = required().with(|policy| {
        policy.follow = Some("semver:^1".parse().unwrap());
        policy.poll = Some(Duration::from_secs(60));
    });
    let push = |tag: &str, bits| {
        let pushed = Resolved::new(digest(bits), "application/vnd.oci.image.manifest.v1+json");
        signed.registry.push(&image(&api("v1")), &tag.parse().unwrap(), pushed);
    };
    push("1.0.0", 1);
    signed.run(followed, async |access| {
        signed.world.sleep(120).await;
        push("1.2.0", 9);
        signed.world.sleep(600).await;
        let history = signed.world.history(access).await;
        assert_eq!(history.len(), 2, "{history:?}");
        assert_eq!(history[1].trigger, Trigger::Registry);
        Signed::refused(&history[1]);
    });
}

fn copy(signers: &[&str], sequence: u64) -> RequirementCopy {
    let signers: Vec<Signer> = signers.iter().map(|name| signer(name)).collect();
    let requirement = (!signers.is_empty()).then(|| Requirement::new(signers, None).unwrap());
    RequirementCopy { requirement, sequence }
}

impl Signed {
    async fn place(&self, access: &Authorized, place: ScopedRequirement) {
        let app = self.world.view(access).await.app;
        self.deployer.copy_requirement(&app, place).await.unwrap();
    }
}

#[test]
fn requirements_of_project_environment_and_app_are_all_met() {
    let signed = Signed::new();
    let own = Policy::default().with(|policy| policy.signed = Requirement::new(vec![signer("eve")], None).ok());
    signed.verifier.sign(&digest(1), signer("eve"));
    signed.run(own, async |access| {
        signed.place(access, ScopedRequirement::Environment(copy(&["ada"], 1))).await;
        let message = Signed::refused(&signed.deployed(access, &api("v4")).await);
        assert!(message.starts_with("The environment requires") && message.contains("ada@"), "{message}");
        let message = Signed::refused(&signed.deployed(access, &api("v2")).await);
        assert!(message.starts_with("The app requires") && message.contains("eve@"), "{message}");
        signed.verifier.sign(&digest(2), signer("eve"));
        let deployed = signed.deployed(access, &api("v2")).await;
        let by = [signer("ada"), signer("eve")].map(|signer| signer.to_string());
        assert_eq!((deployed.status(), deployed.signed_by()), (Status::Succeeded, &by[..]));

        signed.place(access, ScopedRequirement::Project(copy(&["bob"], 1))).await;
        signed.verifier.sign(&digest(3), signer("eve"));
        let message = Signed::refused(&signed.deployed(access, &api("v3")).await);
        assert!(message.starts_with("The project requires") && message.contains("bob@"), "{message}");
        signed.place(access, ScopedRequirement::Project(copy(&[], 2))).await;
        assert_eq!(signed.deployed(access, &api("v3")).await.status(), Status::Succeeded);
    });
}

#[test]
fn same_requirement_of_app_and_environment_is_verified_once() {
    let signed = Signed::new();
    signed.run(required(), async |access| {
        signed.place(access, ScopedRequirement::Environment(copy(&["ada"], 1))).await;
        let asked = signed.verifier.asked().len();
        assert_eq!(signed.deployed(access, &api("v2")).await.signed_by(), [signer("ada").to_string()]);
        assert_eq!(signed.verifier.asked().len(), asked + 1);
    });
}

#[test]
fn app_loosens_no_requirement_of_its_environment() {
    let signed = Signed::new();
    signed.run(Policy::default(), async |access| {
        signed.place(access, ScopedRequirement::Environment(copy(&["ada"], 7))).await;
        let off = PolicyChange { resolve: Some(Resolve::Off), signers: Some(Vec::new()), ..PolicyChange::default() };
        signed.change(access, off).await;
        Signed::refused(&signed.deployed(access, &api("v5")).await);
        // The digest is looked up all the same, as it is what is signed.
        let deployed = signed.deployed(access, &api("v2")).await;
        assert_eq!((deployed.status(), signed.runs()), (Status::Succeeded, image(&api("v2")).pinned(digest(2))));
        signed.place(access, ScopedRequirement::Environment(copy(&[], 6))).await;
        Signed::refused(&signed.deployed(access, &api("v5")).await);
        signed.place(access, ScopedRequirement::Environment(copy(&[], 8))).await;
        assert_eq!(signed.deployed(access, &api("v5")).await.status(), Status::Succeeded);
    });
}

#[test]
fn rollback_to_what_ran_is_not_asked_for_the_environment_s_requirement() {
    let signed = Signed::new();
    signed.run(Policy::default(), async |access| {
        assert_eq!(signed.deployed(access, &api("v5")).await.status(), Status::Succeeded);
        assert_eq!(signed.deployed(access, &api("v2")).await.status(), Status::Succeeded);
        signed.place(access, ScopedRequirement::Environment(copy(&["ada"], 1))).await;
        let asked = signed.verifier.asked().len();
        let back = signed.rolled_back(access, None).await;
        assert_eq!((back.status(), signed.runs()), (Status::Succeeded, image(&api("v5")).pinned(digest(5))));
        assert_eq!(signed.verifier.asked().len(), asked);
        // What has failed for its signature is no way around it.
        let failed = signed.deployed(access, &api("v4")).await;
        Signed::refused(&failed);
        Signed::refused(&signed.rolled_back(access, Some(failed.revision.get())).await);
    });
}

#[test]
fn app_that_is_registered_under_a_requirement_has_it_from_the_start() {
    let signed = Signed::new();
    signed.world.run_beside(&signed.deployer, async {
        let requirements = RequirementCopies { environment: copy(&["ada"], 3), ..RequirementCopies::default() };
        let app = registration("web", Policy::default()).with(|app| {
            app.image = Some(image(&api("v5")));
            app.requirements = requirements.clone();
        });
        let registered = signed.deployer.register(&signed.world.operator, app, None).await.unwrap().app.app;
        assert_eq!(registered.requirements, requirements);
        let access = signed.world.access(&registered.id).await;
        Signed::refused(&signed.world.ended(&access, 1).await);

        let git = world::git("built", Policy::default()).with(|app| app.requirements = requirements.clone());
        let git = signed.deployer.register(&signed.world.operator, git, None).await;
        assert!(matches!(&git, Err(Refusal::WrongKind(why)) if why.contains("carries no signature")), "{git:?}");
    });
}

#[test]
fn version_that_was_signed_by_another_is_asked_about_again() {
    let signed = Signed::new();
    let own = Policy::default().with(|policy| policy.signed = Requirement::new(vec![signer("eve")], None).ok());
    signed.verifier.sign(&digest(1), signer("eve"));
    signed.run(own, async |access| {
        signed.world.cluster.script(digest(4).as_str(), Script::crashes());
        let failed = signed.deployed(access, &api("v4")).await;
        assert_eq!((failed.status(), failed.touched), (Status::Failed, true));
        let asked = signed.verifier.asked().len();
        signed.rolled_back(access, Some(failed.revision.get())).await;
        assert_eq!(signed.verifier.asked().len(), asked, "it was found to meet just this before");
        signed.place(access, ScopedRequirement::Environment(copy(&["ada"], 1))).await;
        Signed::refused(&signed.rolled_back(access, Some(failed.revision.get())).await);
    });
}

#[test]
fn version_whose_digest_is_unknown_is_asked_about_as_it_is_deployed_again() {
    let signed = Signed::new();
    let off = Policy::default().with(|policy| policy.resolve = Resolve::Off);
    signed.run(off, async |access| {
        signed.deployer.scale(access, ScaleRequest::new(Scale::Stop)).await.unwrap();
        signed.world.quiet(access).await;
        // Nothing of it runs, so that nobody sees its bits.
        let unseen = signed.deployed(access, &api("v5")).await;
        assert_eq!((unseen.status(), unseen.pinned_image()), (Status::Succeeded, Some(image(&api("v5")))));
        signed.place(access, ScopedRequirement::Environment(copy(&["ada"], 1))).await;
        let started = signed.deployer.scale(access, ScaleRequest::new(Scale::Start)).await.unwrap().deploy;
        Signed::refused(&signed.world.ended(access, started.revision.get()).await);
    });
}

#[test]
fn answer_that_was_judged_by_the_requirements_of_before_is_not_recorded() {
    let signed = Signed::new();
    signed.run(Policy::default(), async |access| {
        let deploy = signed.deployer.submit(access, request(&api("v2"))).await.unwrap().deploy;
        let state = signed.world.view(access).await;
        let stored = state.unfinished(deploy.revision).unwrap().clone();
        assert!(stored.is_to_be_resolved());
        let answered = |met: &[Required]| {
            let resolution = Resolution::resolved(ImageLabels::default(), &[], &[], met);
            Deploy {
                digest: Some(digest(2)),
                resolution: Some(Box::new(resolution)),
                ..stored.moved(stored.state.clone())
            }
        };
        let mut change = Change::on(state);
        change.copy_requirement(ScopedRequirement::Environment(copy(&["ada"], 1)), stored.updated_at);
        let required = change.state.app.required();
        let mut record =
            |deploy: Deploy| change.record(Record { changes: vec![deploy], ..Record::default() }, stored.updated_at);
        assert_eq!(record(answered(&[])), Err(Refused::Outdated));
        assert_eq!(record(answered(&required)), Ok(()));
    });
}

#[test]
fn deploy_that_was_accepted_before_the_requirement_and_has_not_begun_fails() {
    let signed = Signed::new();
    signed.run(Policy::default(), async |access| {
        let rolling = signed.deployer.submit(access, request(&api("v2"))).await.unwrap().deploy.revision;
        signed.world.sleep(3).await;
        assert_eq!(signed.world.entry(access, rolling.get()).await.status(), Status::RollingOut);
        let waiting = signed.deployer.submit(access, request(&api("v5"))).await.unwrap().deploy.revision;
        signed.world.sleep(1).await;
        assert!(signed.world.entry(access, waiting.get()).await.may_begin(), "it was resolved, and waits for its turn");
        signed.place(access, ScopedRequirement::Environment(copy(&["ada"], 1))).await;
        let message = Signed::refused(&signed.world.ended(access, waiting.get()).await);
        assert!(message.contains("accepted before it was required"), "{message}");
        assert_eq!(
            signed.world.ended(access, rolling.get()).await.status(),
            Status::Succeeded,
            "what has begun goes on"
        );
        assert_eq!(signed.runs(), image(&api("v2")).pinned(digest(2)));
    });
}

#[test]
fn deploy_that_meets_more_than_is_required_by_now_goes_on() {
    let signed = Signed::new();
    signed.run(required(), async |access| {
        signed.place(access, ScopedRequirement::Environment(copy(&["ada", "eve"], 1))).await;
        let rolling = signed.deployer.submit(access, request(&api("v2"))).await.unwrap().deploy.revision;
        signed.world.sleep(3).await;
        assert_eq!(signed.world.entry(access, rolling.get()).await.status(), Status::RollingOut);
        let waiting = signed.deployer.submit(access, request(&api("v3"))).await.unwrap().deploy.revision;
        signed.world.sleep(1).await;
        assert!(signed.world.entry(access, waiting.get()).await.may_begin(), "it was resolved, and waits for its turn");
        signed.place(access, ScopedRequirement::Environment(copy(&[], 2))).await;
        assert_eq!(signed.world.ended(access, waiting.get()).await.status(), Status::Succeeded);
    });
}

#[test]
fn deploy_does_not_end_for_want_of_a_signature_that_is_not_required_any_more() {
    let signed = Signed::new();
    signed.run(required(), async |access| {
        let deploy = signed.deployer.submit(access, request(&api("v5"))).await.unwrap().deploy;
        let state = signed.world.view(access).await;
        let stored = state.unfinished(deploy.revision).unwrap().clone();
        let mut change = Change::on(state);
        change.configure(Source::Image, required().with(|policy| policy.signed = None), stored.updated_at);
        let reason = Reason::new(Reason::IMAGE_NOT_SIGNED);
        let failed = State::Failed { reason, message: "It lacks one.".to_owned(), evidence: None };
        let ended = Record { changes: vec![stored.moved(failed)], ..Record::default() };
        assert_eq!(change.record(ended, stored.updated_at), Err(Refused::Outdated));
    });
}

#[test]
fn return_of_a_git_app_ends_though_its_registry_is_silent_and_commits_keep_coming() {
    let signed = Signed::new();
    signed.world.run_beside(&signed.deployer, async {
        let access = signed.world.git_app(Policy::default()).await;
        signed.world.cluster.script(":b1", Script::crashes());
        let failed = signed.world.deploy_commit(&access, "b1").await.unwrap().deploy.revision;
        assert!(signed.world.ended(&access, failed.get()).await.touched);
        signed.place(&access, ScopedRequirement::Environment(copy(&["ada"], 1))).await;
        signed.registry.answers(Answering::Silent);
        let webhook = signed.world.webhook(&access).await;
        let request = RollbackRequest::default().with(|request| request.revision = Some(failed));
        let back = signed.deployer.rollback(&access, request).await.unwrap().deploy.revision;
        for number in 0..20 {
            signed.world.deploy_commit(&webhook, &format!("c{number:02}")).await.unwrap();
            signed.world.sleep(4).await;
        }
        let (code, message) = reason(&signed.world.entry(&access, back.get()).await);
        assert_eq!(code, Reason::IMAGE_NOT_RESOLVED, "{message}");
        assert!(message.contains("Deploy it again once the registry answers."), "{message}");
    });
}
