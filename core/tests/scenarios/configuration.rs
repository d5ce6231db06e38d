//! Configuration as a part of the release: each rule as a scenario on the whole engine under simulated time.

mod bounds;
mod promotion;
mod staged;
mod way_back;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use rollhook_conformance::samples;
use rollhook_core::{
    app::Policy,
    configuration::{ConfigurationId, Variable, VariablesChange},
    deploy::{Deploy, Origin, Reason, ReleaseMark, Revision, State, Status, Trigger},
    ports::ConfigurationStore,
    request::{
        ConfigureRequest, IdempotencyKey, KeyHeader, PolicyChange, PromoteRequest, RedeployRequest, Refusal,
        RollbackRequest,
    },
    service::{Authorized, Configured, NewLock, Outcome},
};
use rollhook_memory::{Script, SimulatedVerifier};

use crate::world::{self, World, api, leave, sha, tag};

const SECOND: Duration = Duration::from_secs(1);

fn set(variables: &[(&str, &str)]) -> ConfigureRequest {
    let set = variables.iter().map(|(name, value)| (name.parse().unwrap(), Variable::new((*value).to_owned(), false)));
    let change = VariablesChange { set: set.collect(), ..VariablesChange::default() };
    ConfigureRequest::default().with(|request| request.change = change)
}

fn unset(name: &str) -> ConfigureRequest {
    let change = VariablesChange { unset: [name.parse().unwrap()].into(), ..VariablesChange::default() };
    ConfigureRequest::default().with(|request| request.change = change)
}

fn staged(request: ConfigureRequest) -> ConfigureRequest {
    request.with(|request| request.staged = true)
}

fn revision(number: u64) -> Revision {
    Revision::new(number).unwrap()
}

fn with_configuration() -> RollbackRequest {
    RollbackRequest::default().with(|request| request.with_configuration = true)
}

fn reason(deploy: &Deploy) -> String {
    let State::Failed { reason, .. } = &deploy.state else { panic!("{deploy:?}") };
    reason.to_string()
}

impl World {
    async fn configure(&self, access: &Authorized, request: ConfigureRequest) -> Outcome<Configured> {
        self.deployer.configure(access, request).await
    }

    /// Accepts a change of the configuration as a deploy.
    async fn configuring(&self, access: &Authorized, variables: &[(&str, &str)]) -> Deploy {
        let configured = self.configure(access, set(variables)).await.unwrap();
        let Configured::Deploy(accepted) = configured else { panic!("{configured:?}") };
        accepted.deploy
    }

    /// Changes the configuration, and waits for the end of its deploy.
    async fn configured(&self, access: &Authorized, variables: &[(&str, &str)]) -> Deploy {
        let revision = self.configuring(access, variables).await.revision;
        self.ended(access, revision.get()).await
    }

    /// The variables of the pods that run, which all have the same.
    async fn running_variables(&self, access: &Authorized) -> BTreeMap<String, String> {
        let target = self.view(access).await.app.target.clone();
        let of = |pod: &rollhook_memory::Pod| {
            let variables = pod.configuration.iter().flat_map(|configuration| &configuration.variables.entries);
            variables.map(|(name, variable)| (name.to_string(), variable.expose().to_owned())).collect()
        };
        let pods = self.cluster.running(access.app(), &target);
        let all: BTreeSet<BTreeMap<String, String>> = pods.iter().map(of).collect();
        assert_eq!(all.len(), 1, "{all:?}");
        all.into_iter().next().unwrap()
    }

    async fn runs(&self, access: &Authorized, wanted: &[(&str, &str)]) {
        let wanted: BTreeMap<String, String> =
            wanted.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        assert_eq!(self.running_variables(access).await, wanted);
    }

    /// The names of the shown variables of a revision, or of the current one and of those that wait.
    async fn names(&self, access: &Authorized, revision: Option<u64>) -> (Vec<String>, Option<Vec<String>>) {
        let revision = revision.and_then(Revision::new);
        let shown = self.deployer.configuration(access, revision).await.unwrap();
        let names = |variables: Vec<rollhook_core::configuration::ShownVariable>| {
            variables.into_iter().map(|variable| variable.name.to_string()).collect::<Vec<_>>()
        };
        (names(shown.variables), shown.staged.map(names))
    }

    async fn stored(&self, access: &Authorized) -> BTreeSet<ConfigurationId> {
        let stored = ConfigurationStore::list(&*self.store, access.uid()).await.unwrap();
        stored.into_iter().map(|one| one.id).collect()
    }

    async fn rolled_back_by(&self, access: &Authorized, request: RollbackRequest) -> Deploy {
        let revision = self.deployer.rollback(access, request).await.unwrap().deploy.revision;
        self.ended(access, revision.get()).await
    }
}

#[test]
fn change_is_a_revision_of_the_same_image_and_later_deploys_keep_it() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", leave()).await;
        world.runs(&access, &[]).await;
        let done = world.configured(&access, &[("A", "one"), ("B", "two")]).await;
        assert_eq!((done.status(), done.trigger, tag(&done).as_str()), (Status::Succeeded, Trigger::Config, "v1"));
        assert_eq!(done.effective, done.revision, "a version of its own");
        world.runs(&access, &[("A", "one"), ("B", "two")]).await;
        world.deployed(&access, &api("v2")).await;
        world.runs(&access, &[("A", "one"), ("B", "two")]).await;
        world.configured(&access, &[("A", "three")]).await;
        let Configured::Deploy(accepted) = world.configure(&access, unset("B")).await.unwrap() else { panic!() };
        world.ended(&access, accepted.deploy.revision.get()).await;
        world.runs(&access, &[("A", "three")]).await;
        assert_eq!(world.names(&access, Some(2)).await.0, ["A", "B"]);
        assert_eq!(world.names(&access, None).await, (vec!["A".to_owned()], None));
        world.quiet(&access).await;
    });
}

#[test]
fn bad_value_is_put_right_by_the_release_before_it() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.configured(&access, &[("A", "good")]).await;
        world.cluster.script("api:v1", Script::crashes());
        let failed = world.configured(&access, &[("A", "worse")]).await;
        assert_eq!(failed.status(), Status::Failed);
        world.cluster.script("api:v1", Script::completes());
        let history = world.quiet(&access).await;
        let restore = history.last().unwrap();
        assert!(restore.is_restore());
        let current = world.view(&access).await.current.unwrap();
        assert_eq!((restore.status(), restore.configuration), (Status::Succeeded, current.configuration));
        assert_ne!(world.running_variables(&access).await["A"], "worse");
        let before = world.running_variables(&access).await;
        world.deployed(&access, &api("v2")).await;
        assert_eq!(world.running_variables(&access).await, before, "the value that failed is not the app's");
    });
}

#[test]
fn failed_deploy_of_an_image_is_restored_with_its_configuration() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.configured(&access, &[("A", "one")]).await;
        world.configure(&access, staged(set(&[("A", "two")]))).await.unwrap();
        let failed = world.deployed(&access, &api("crash")).await;
        assert_eq!(failed.status(), Status::Failed);
        world.quiet(&access).await;
        world.runs(&access, &[("A", "one")]).await;
        assert_eq!(world.names(&access, None).await.1, Some(vec!["A".to_owned()]), "it waits for the fix");
        world.deployed(&access, &api("v3")).await;
        world.runs(&access, &[("A", "two")]).await;
        assert_eq!(world.view(&access).await.staged, None);
    });
}

#[test]
fn rollback_keeps_the_configuration_unless_it_is_asked_for() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", leave()).await;
        world.configured(&access, &[("A", "one")]).await;
        world.deployed(&access, &api("v2")).await;
        world.configured(&access, &[("A", "two")]).await;
        let back = world.rolled_back(&access).await;
        assert_eq!((tag(&back).as_str(), back.effective.get()), ("v1", 2));
        world.runs(&access, &[("A", "two")]).await;
        let whole = with_configuration().with(|request| request.revision = Some(revision(3)));
        assert_eq!(tag(&world.rolled_back_by(&access, whole).await), "v2");
        world.runs(&access, &[("A", "one")]).await;
        world.deployed(&access, &api("v5")).await;
        world.runs(&access, &[("A", "one")]).await;
        world.quiet(&access).await;
    });
}

#[test]
fn rollback_with_configuration_goes_back_to_the_release_before() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", leave()).await;
        world.configured(&access, &[("A", "one")]).await;
        world.configured(&access, &[("A", "two")]).await;
        let Err(Refusal::NothingToRollBackTo(_)) = world.rollback(&access).await else { panic!("one image") };
        let back = world.rolled_back_by(&access, with_configuration()).await;
        assert_eq!((tag(&back).as_str(), back.effective.get()), ("v1", 2));
        world.runs(&access, &[("A", "one")]).await;
        let back = world.rolled_back_by(&access, with_configuration()).await;
        assert_eq!(back.effective.get(), 1);
        world.runs(&access, &[]).await;
        world.quiet(&access).await;
    });
}

#[test]
fn change_before_the_first_deploy_waits_for_it() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.git_app(leave()).await;
        assert_eq!(world.configure(&access, set(&[("A", "one")])).await, Ok(Configured::Staged { replayed: false }));
        assert_eq!(world.configure(&access, set(&[("A", "one")])).await, Ok(Configured::Unchanged));
        assert_eq!(world.configure(&access, set(&[("B", "two")])).await, Ok(Configured::Staged { replayed: false }));
        assert_eq!(world.names(&access, None).await, (vec![], Some(vec!["A".to_owned(), "B".to_owned()])));
        world.deploy_commit(&access, "a1").await.unwrap();
        assert_eq!(world.ended(&access, 1).await.status(), Status::Succeeded);
        world.runs(&access, &[("A", "one"), ("B", "two")]).await;
        assert_eq!(world.view(&access).await.staged, None);
    });
}

#[test]
fn change_after_a_first_version_failed_deploys_that_version_once_more() {
    let world = World::new(SECOND);
    world.run(async {
        world.cluster.script("v1", Script::crashes());
        let access = world.app("api", leave()).await;
        let Configured::Staged { .. } = world.configure(&access, staged(set(&[("A", "one")]))).await.unwrap() else {
            panic!("it waits where the caller says so")
        };
        let failed = world.configured(&access, &[("B", "two")]).await;
        assert_eq!((failed.status(), tag(&failed).as_str()), (Status::Failed, "v1"));
        assert_eq!(
            (failed.trigger, failed.from, failed.effective),
            (Trigger::Config, Some(Origin::Same(revision(1))), revision(2))
        );
        // Nothing is there to go back to, so that the next change begins from what failed.
        let both = vec!["A".to_owned(), "B".to_owned()];
        assert_eq!(world.names(&access, None).await, (both.clone(), None));
        world.cluster.script("v1", Script::completes());
        let done = world.configured(&access, &[("C", "three")]).await;
        assert_eq!((done.status(), done.from), (Status::Succeeded, Some(Origin::Same(revision(2)))));
        world.runs(&access, &[("A", "one"), ("B", "two"), ("C", "three")]).await;
        // From here on a change that fails is taken back.
        world.cluster.script("v1", Script::crashes());
        assert_eq!(world.configured(&access, &[("D", "four")]).await.status(), Status::Failed);
        world.cluster.script("v2", Script::completes());
        world.deployed(&access, &api("v2")).await;
        world.runs(&access, &[("A", "one"), ("B", "two"), ("C", "three")]).await;
        world.quiet(&access).await;
    });
}

#[test]
fn image_after_a_first_version_that_failed_runs_with_what_was_set() {
    let world = World::new(SECOND);
    world.run(async {
        world.cluster.script("v1", Script::crashes());
        let access = world.app("api", leave()).await;
        assert_eq!(world.configured(&access, &[("A", "one")]).await.status(), Status::Failed);
        let done = world.deployed(&access, &api("v2")).await;
        assert_eq!(done.status(), Status::Succeeded);
        world.runs(&access, &[("A", "one")]).await;
        world.quiet(&access).await;
    });
}

#[test]
fn first_version_that_a_newer_one_replaced_passes_on_what_was_set() {
    let world = World::new(SECOND);
    world.run(async {
        world.cluster.script("v1", Script::crashes());
        world.cluster.script("v2", Script::hangs());
        let access = world.app("api", leave()).await;
        assert_eq!(world.configured(&access, &[("A", "one")]).await.status(), Status::Failed);
        let replaced = world.deploy(&access, &api("v2")).await.unwrap().deploy.revision;
        world.sleep(3).await;
        assert_eq!(world.deployed(&access, &api("v3")).await.status(), Status::Succeeded);
        assert_eq!(world.entry(&access, replaced.get()).await.status(), Status::Superseded);
        world.runs(&access, &[("A", "one")]).await;
        world.quiet(&access).await;
    });
}

#[test]
fn staged_change_is_part_of_the_next_one_and_of_no_rollback() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", leave()).await;
        world.deployed(&access, &api("v2")).await;
        assert_eq!(
            world.configure(&access, staged(set(&[("A", "one")]))).await,
            Ok(Configured::Staged { replayed: false })
        );
        world.rolled_back(&access).await;
        world.runs(&access, &[]).await;
        world.configured(&access, &[("B", "two")]).await;
        world.runs(&access, &[("A", "one"), ("B", "two")]).await;
        assert_eq!(world.view(&access).await.staged, None);
    });
}

#[test]
fn unchanged_configuration_deploys_nothing() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", leave()).await;
        world.configured(&access, &[("A", "one")]).await;
        assert_eq!(world.configure(&access, set(&[("A", "one")])).await, Ok(Configured::Unchanged));
        assert_eq!(world.quiet(&access).await.len(), 2);
        assert_eq!(world.stored(&access).await.len(), 1);
    });
}

#[test]
fn repeated_call_is_answered_by_its_first_deploy() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", leave()).await;
        let key = IdempotencyKey::new(KeyHeader::IdempotencyKey, "k", [7; 32]).unwrap();
        let request = set(&[("A", "one")]).with(|request| request.key = Some(key));
        let Configured::Deploy(first) = world.configure(&access, request.clone()).await.unwrap() else { panic!() };
        world.ended(&access, 2).await;
        let Configured::Deploy(again) = world.configure(&access, request).await.unwrap() else { panic!() };
        assert_eq!((again.deploy.revision, again.replayed), (first.deploy.revision, true));
        assert_eq!(world.quiet(&access).await.len(), 2);
    });
}

#[test]
fn two_people_at_once_do_not_undo_each_other() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", leave()).await;
        world.configured(&access, &[("A", "one")]).await;
        let late = set(&[("A", "two")]).with(|request| request.if_current = Some(revision(1)));
        let refused = world.configure(&access, late).await;
        assert!(matches!(refused, Err(Refusal::CurrentChanged { .. })), "{refused:?}");
        let (one, two) = futures_util::join!(
            world.configure(&access, staged(set(&[("B", "x")]))),
            world.configure(&access, staged(set(&[("C", "y")]))),
        );
        assert_eq!(
            (one, two),
            (Ok(Configured::Staged { replayed: false }), Ok(Configured::Staged { replayed: false }))
        );
        assert_eq!(world.names(&access, None).await.1.unwrap(), ["A", "B", "C"]);
    });
}

#[test]
fn change_during_a_rollout_is_refused_and_one_during_a_build_goes_first() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.built_app(leave()).await;
        world.deploy_commit(&access, "a2").await.unwrap();
        let done = world.configured(&access, &[("A", "one")]).await;
        assert_eq!((done.status(), done.revision.get()), (Status::Succeeded, 3));
        world.runs(&access, &[("A", "one")]).await;
        let history = world.quiet(&access).await;
        let built = history.last().unwrap();
        assert_eq!((built.commit.clone(), built.status()), (Some(sha("a2")), Status::Succeeded));
        world.runs(&access, &[("A", "one")]).await;

        let image = world.app("web", leave()).await;
        world.deploy(&image, &api("v2")).await.unwrap();
        let refused = world.configure(&image, set(&[("A", "one")])).await;
        assert!(matches!(refused, Err(Refusal::NotRedeployable(_))), "{refused:?}");
        assert_eq!(world.stored(&image).await.len(), 0, "what was not accepted is not kept");
    });
}

#[test]
fn superseded_change_is_brought_by_what_superseded_it() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", leave()).await;
        world.cluster.script("api:v1", Script::hangs());
        let change = world.configuring(&access, &[("A", "one")]).await.revision;
        world.deploy(&access, &api("v2")).await.unwrap();
        assert_eq!(world.ended(&access, 3).await.status(), Status::Succeeded);
        assert!(matches!(world.entry(&access, change.get()).await.state, State::Superseded { .. }));
        world.runs(&access, &[("A", "one")]).await;
        world.quiet(&access).await;
    });
}

#[test]
fn rollback_takes_a_change_back_that_it_supersedes() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", leave()).await;
        world.deployed(&access, &api("v2")).await;
        world.cluster.script("api:v2", Script::hangs());
        world.configuring(&access, &[("A", "bad")]).await;
        world.sleep(2).await;
        world.cluster.script("api:v2", Script::default());
        let back = world.rolled_back(&access).await;
        assert_eq!((tag(&back).as_str(), back.configuration), ("v2", None));
        world.runs(&access, &[]).await;
        world.quiet(&access).await;
    });
}

#[test]
fn change_runs_the_release_command_with_its_variables() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", leave()).await;
        let command = PolicyChange { release_command: Some(vec!["migrate".to_owned()]), ..PolicyChange::default() };
        world.deployer.change_policy(&access, command).await.unwrap();
        world.configured(&access, &[("A", "one")]).await;
        let begun = world.cluster.releases();
        assert_eq!(begun.len(), 1);
        let configuration = world.cluster.configuration_of(&begun[0].run).unwrap();
        assert_eq!(configuration.variables.entries.len(), 1);
        world.runs(&access, &[("A", "one")]).await;
    });
}

#[test]
fn change_leaves_the_release_command_out_where_the_policy_says_so() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", leave()).await;
        let command = PolicyChange {
            release_command: Some(vec!["migrate".to_owned()]),
            release_on_config: Some(false),
            ..PolicyChange::default()
        };
        world.deployer.change_policy(&access, command).await.unwrap();
        let done = world.configured(&access, &[("A", "one")]).await;
        assert_eq!((done.status(), done.release), (Status::Succeeded, None));
        assert_eq!(world.cluster.releases().len(), 0);
        let deployed = world.deployed(&access, &api("v2")).await;
        assert_eq!(deployed.release, Some(ReleaseMark::Done), "every other deploy runs it");
        let back = RollbackRequest::default().with(|request| request.revision = Some(revision(2)));
        let refused = world.deployer.rollback(&access, back).await;
        assert!(
            matches!(&refused, Err(Refusal::ReleaseBetween { released, .. }) if released.len() == 1),
            "{refused:?}"
        );
    });
}

#[test]
fn command_of_a_change_ran_with_the_image_that_a_restore_returns_to() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", leave()).await;
        let release_command = Some(vec!["migrate".to_owned()]);
        let command = PolicyChange { release_command, ..PolicyChange::default() };
        world.deployer.change_policy(&access, command).await.unwrap();
        for value in ["one", "two"] {
            let done = world.configured(&access, &[("A", value)]).await;
            assert_eq!((done.status(), done.release), (Status::Succeeded, Some(ReleaseMark::Done)));
        }
        world.deployed(&access, &api("v2")).await;
        let state = world.view(&access).await;
        let numbers = |released: Vec<rollhook_core::ledger::Released>| -> Vec<u64> {
            released.iter().map(|released| released.revision.get()).collect()
        };
        assert_eq!(numbers(state.released_since(revision(1))), [2, 3, 4]);
        assert_eq!(numbers(state.released_otherwise_since(revision(1))), [4], "the others ran with its image");
    });
}

#[test]
fn lock_refuses_a_change() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", leave()).await;
        let lock = NewLock {
            reason: "a freeze".parse().unwrap(),
            owner: rollhook_core::lock::PrincipalKey::of("name", &["alice"]),
            ttl: None,
        };
        world.deployer.set_lock(&access, None, Some(lock)).await.unwrap();
        let refused = world.configure(&access, set(&[("A", "one")])).await;
        assert!(matches!(refused, Err(Refusal::Locked(_))), "{refused:?}");
        assert_eq!(world.stored(&access).await.len(), 0);
    });
}

#[test]
fn variable_that_others_have_set_fails_the_change_before_anything_is_touched() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", leave()).await;
        let target = world.view(&access).await.app.target.clone();
        world.cluster.set_variable(access.app(), &target, "A", "theirs");
        let failed = world.configured(&access, &[("A", "ours")]).await;
        assert_eq!(reason(&failed), Reason::CONFIGURATION_CONFLICT);
        assert!(!failed.touched);
        world.quiet(&access).await;
        world.runs(&access, &[]).await;
        let Configured::Staged { .. } = world.configure(&access, staged(set(&[("A", "ours")]))).await.unwrap() else {
            panic!()
        };
        let failed = world.deployed(&access, &api("v2")).await;
        assert_eq!(reason(&failed), Reason::CONFIGURATION_CONFLICT, "it would bring what waited");
    });
}

#[test]
fn configuration_whose_values_are_gone_is_no_success() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", leave()).await;
        world.configured(&access, &[("A", "one")]).await;
        let ids: Vec<_> = world.stored(&access).await.into_iter().collect();
        ConfigurationStore::remove(&*world.store, access.uid(), &ids).await.unwrap();
        let failed = world.deployed(&access, &api("v2")).await;
        assert_eq!(reason(&failed), Reason::CONFIGURATION_MISSING);
        let refused = world.deployer.configuration(&access, Some(revision(2))).await;
        assert_eq!(refused, Err(Refusal::ConfigurationForgotten(revision(2))));
        let done = world.configured(&access, &[("B", "anew")]).await;
        assert_eq!(done.status(), Status::Succeeded);
        world.runs(&access, &[("B", "anew")]).await;
    });
}

#[test]
fn change_is_refused_while_another_one_is_under_way() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", leave()).await;
        world.configured(&access, &[("A", "1")]).await;
        world.cluster.script("api:v1", Script::hangs());
        world.configuring(&access, &[("A", "2")]).await;
        for request in [set(&[("A", "1")]), staged(set(&[("B", "1")]))] {
            let refused = world.configure(&access, request).await;
            assert!(matches!(refused, Err(Refusal::NotRedeployable(_))), "{refused:?}");
        }
    });
}

#[test]
fn staged_change_outlives_a_change_that_fails_and_is_part_of_one_that_succeeds() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.configure(&access, staged(set(&[("A", "waits")]))).await.unwrap();
        world.cluster.script("api:v1", Script::crashes());
        assert_eq!(world.configured(&access, &[("B", "bad")]).await.status(), Status::Failed);
        world.cluster.script("api:v1", Script::default());
        world.quiet(&access).await;
        world.runs(&access, &[]).await;
        assert_eq!(world.names(&access, None).await.1, Some(vec!["A".to_owned()]));
        world.configured(&access, &[("B", "good")]).await;
        world.runs(&access, &[("A", "waits"), ("B", "good")]).await;
        assert_eq!(world.view(&access).await.staged, None);
    });
}

#[test]
fn redeploy_leaves_a_staged_change_waiting() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", leave()).await;
        world.configure(&access, staged(set(&[("A", "waits")]))).await.unwrap();
        let again = world.deployer.redeploy(&access, RedeployRequest::default()).await.unwrap().deploy.revision;
        world.ended(&access, again.get()).await;
        world.runs(&access, &[]).await;
        assert!(world.view(&access).await.staged.is_some());
    });
}

#[test]
fn rollback_with_configuration_drops_what_waits_and_finds_the_release_of_the_same_image() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", leave()).await;
        world.configured(&access, &[("A", "one")]).await;
        world.configure(&access, staged(set(&[("A", "two")]))).await.unwrap();
        world.deployed(&access, &api("v2")).await;
        let back = world.rolled_back(&access).await;
        assert_eq!((tag(&back).as_str(), back.effective.get()), ("v1", 2));
        world.runs(&access, &[("A", "two")]).await;
        world.configure(&access, staged(set(&[("A", "three")]))).await.unwrap();
        let whole = world.rolled_back_by(&access, with_configuration()).await;
        assert_eq!((tag(&whole).as_str(), whole.from), ("v1", Some(Origin::Revision(revision(2)))));
        world.runs(&access, &[("A", "one")]).await;
        world.deployed(&access, &api("v3")).await;
        world.runs(&access, &[("A", "one")]).await;
    });
}

#[test]
fn entry_that_never_began_has_no_configuration_to_bring_back() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", leave()).await;
        world.configured(&access, &[("A", "one")]).await;
        world.cluster.script(":slow", Script::completes().after(Duration::from_secs(30)));
        world.deploy(&access, &api("slow")).await.unwrap();
        world.deploy(&access, &api("v3")).await.unwrap();
        world.deployer.cancel(&access, revision(4)).await.unwrap();
        world.quiet(&access).await;
        let whole = with_configuration().with(|request| request.revision = Some(revision(4)));
        let refused = world.deployer.rollback(&access, whole).await;
        assert!(
            matches!(&refused, Err(Refusal::NothingToRollBackTo(why)) if why.contains("never began")),
            "{refused:?}"
        );
    });
}

#[test]
fn replaced_staged_change_is_not_kept() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", leave()).await;
        for value in ["one", "two", "three"] {
            world.configure(&access, staged(set(&[("A", value)]))).await.unwrap();
        }
        assert_eq!(world.stored(&access).await.len(), 1);
    });
}

#[test]
fn fingerprints_stay_those_of_the_app() {
    let world = World::new(SECOND);
    world.run(async {
        let access = world.app("api", leave()).await;
        let fingerprint = async || {
            let shown = world.deployer.configuration(&access, None).await.unwrap();
            shown.variables.first().map(|variable| variable.fingerprint.clone())
        };
        world.configured(&access, &[("A", "one")]).await;
        let first = fingerprint().await;
        // To the version from before the first change, which has no configuration.
        let back = with_configuration().with(|request| request.revision = Some(revision(1)));
        assert_eq!(world.rolled_back_by(&access, back).await.configuration, None);
        assert_eq!(fingerprint().await, None);
        world.configured(&access, &[("A", "one")]).await;
        assert_eq!(fingerprint().await, first);
    });
}
