//! Checks that ask each instance: each rule as a scenario on the whole engine under simulated time.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use rollhook_conformance::{Fault, Faulty, Plan};
use rollhook_core::{
    Result,
    app::Policy,
    check::{Check, CheckName},
    deploy::{Deploy, Evidence, State, Status},
    ports::{
        Applied, DriverIdentity, MeasureSpec, Observation, ReadyInstances, RolloutDriver, RolloutFailure, RolloutSpec,
        TargetRequest, Validated,
    },
    request::{Field, PolicyChange, Refusal},
    service::{Authorized, Deployer},
};
use rollhook_memory::{Reading, SimulatedVerifier};
use rollhook_workloads::Workloads;

use crate::world::{World, api, image, reason, registration};

const SECOND: Duration = Duration::from_secs(1);
const PORT: u16 = 8080;

fn name() -> CheckName {
    "front".parse().unwrap()
}

/// A check that asks each instance, and passes while its readings are 0.
fn check() -> Check {
    let of_all = SimulatedVerifier::check_of(name(), 0.0);
    of_all.with(|check| drop(check.settings.insert("each_instance".to_owned(), PORT.into())))
}

fn checked() -> Policy {
    Policy::default().with(|policy| policy.checks = vec![check()])
}

fn names(ready: &ReadyInstances) -> BTreeSet<String> {
    ready.instances.iter().map(|found| found.instance.to_string()).collect()
}

fn note(deploy: &Deploy) -> String {
    let State::Succeeded { note } = &deploy.state else { panic!("{deploy:?}") };
    note.clone().unwrap_or_default()
}

impl World {
    /// A world whose pods have addresses: that of the last number of their names.
    fn with_addresses() -> Self {
        let world = Self::new(SECOND);
        world.cluster.address_pods(|pod, port| {
            let number = pod.as_str().rsplit_once('-')?.1.parse().ok()?;
            Some(SocketAddr::from(([10, 0, 0, number], port)))
        });
        world
    }

    /// Makes an app whose first version was not verified: the check was set after it.
    async fn checked_app(&self) -> Authorized {
        let access = self.app("api", Policy::default()).await;
        self.deployer.set_check(&access, check(), None).await.unwrap();
        access
    }

    /// Keeps the specifications of measurements, which read this.
    fn specs(&self, reading: impl Fn(&MeasureSpec) -> Reading + Send + Sync + 'static) -> Arc<Mutex<Vec<MeasureSpec>>> {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let specs = Arc::clone(&kept);
        self.verifier.reads(move |spec| {
            // What is read of the time before the rollout is no measurement.
            if spec.now <= spec.rollout_began {
                return Reading::NoData;
            }
            specs.lock().unwrap().push(spec.clone());
            reading(spec)
        });
        kept
    }

    /// The names of the pods that run.
    async fn pod_names(&self, access: &Authorized) -> BTreeSet<String> {
        let target = self.view(access).await.app.target.clone();
        let pods = self.cluster.running(access.app(), &target).into_iter();
        pods.map(|pod| format!("{}-{}", access.app().name, pod.id)).collect()
    }

    /// Another process, whose driver meets these faults.
    fn faulty(&self, plan: Plan) -> Deployer {
        let driver = Faulty::new(self.cluster.clone(), self.clock.clone(), plan);
        self.driven_by(Arc::new(driver))
    }

    /// Another process with this driver.
    fn driven_by(&self, driver: Arc<dyn RolloutDriver>) -> Deployer {
        Deployer::new(self.ports(9).with(|ports| ports.rollouts = Arc::new(Workloads::over(driver))), "two")
    }
}

/// Returns a plan by which the n-th call for addresses, from 0 on, meets a fault.
fn plan(fault: impl Fn(usize) -> Fault + Send + Sync + 'static) -> Plan {
    let calls = Mutex::new(0);
    Arc::new(move |call| {
        if call != "instances.addresses" {
            return Fault::None;
        }
        let mut calls = calls.lock().unwrap();
        *calls += 1;
        fault(*calls - 1)
    })
}

#[test]
fn measurement_has_the_ready_instances_of_its_own_deploy_and_no_older_one() {
    let world = World::with_addresses();
    world.run(async {
        let access = world.checked_app().await;
        let specs = world.specs(|_| Reading::Value(0.0));
        let mut before = world.pod_names(&access).await;
        for revision in [2, 3] {
            // The same image: its old instances differ by the deploy alone.
            let done = world.deployed(&access, &api("v1")).await;
            assert_eq!((done.status(), note(&done)), (Status::Succeeded, String::new()));
            let [spec] = &std::mem::take(&mut *specs.lock().unwrap())[..] else { panic!("measured once") };
            let ready = spec.instances.as_ref().unwrap();
            let now = world.pod_names(&access).await;
            assert_eq!((spec.deploy.revision.get(), names(ready)), (revision, now.clone()));
            assert!(now.len() == 2 && now.is_disjoint(&before) && !ready.is_part, "{now:?} {before:?}");
            let at: Vec<_> = ready.instances.iter().map(|found| found.address.unwrap().to_string()).collect();
            assert_eq!(at, ["10.0.0.0:8080", "10.0.0.1:8080"]);
            before = now;
        }
    });
}

#[test]
fn instance_that_fails_fails_the_deploy_which_is_restored() {
    let world = World::with_addresses();
    world.run(async {
        let access = world.checked_app().await;
        let good = world.pod_names(&access).await;
        let specs = world.specs(|spec| {
            let ready = spec.instances.as_ref().unwrap();
            let is_bad = spec.image.tag() == Some("v2") && names(ready).len() == 2;
            Reading::Value(f64::from(u8::from(is_bad)))
        });
        let failed = world.deployed(&access, &api("v2")).await;
        assert_eq!(reason(&failed).0, "check-failed");
        assert_eq!(specs.lock().unwrap().len(), 3, "three in a row");
        world.quiet(&access).await;
        // What the restore has made or kept is asked by whoever tries the check out, and nothing of the failed deploy.
        world.deployer.test_check(&access, &name()).await.unwrap();
        let asked = names(specs.lock().unwrap().last().unwrap().instances.as_ref().unwrap());
        assert_eq!(asked, world.pod_names(&access).await);
        assert!(asked.is_disjoint(&good), "the failed deploy had replaced them");
    });
}

#[test]
fn instances_are_named_anew_at_each_measurement() {
    let world = World::with_addresses();
    world.run(async {
        let access = world.checked_app().await;
        let change = PolicyChange { verify_for: Some(SECOND * 40), ..PolicyChange::default() };
        world.deployer.change_policy(&access, change).await.unwrap();
        let target = world.view(&access).await.app.target.clone();
        let (cluster, id) = (Arc::clone(&world.cluster), access.app().clone());
        let specs = world.specs(move |_| {
            let pods = cluster.pods(&id, &target).unwrap();
            cluster.scale(&id, &target, pods + 1);
            Reading::Value(0.0)
        });
        world.deployed(&access, &api("v2")).await;
        let counts =
            specs.lock().unwrap().iter().map(|spec| spec.instances.as_ref().unwrap().instances.len()).collect();
        let counts: Vec<usize> = counts;
        assert!(counts.len() > 2 && counts.windows(2).all(|pair| pair[1] == pair[0] + 1), "{counts:?}");
    });
}

#[test]
fn adopted_version_is_asked_at_the_instances_that_were_there() {
    let world = World::with_addresses();
    world.run(async {
        let id = "shop-test/api".parse().unwrap();
        world.cluster.seed(&id, &rollhook_conformance::samples::target("api"), &image(&api("v1")));
        let access = world.registered(registration("api", checked())).await;
        world.ended(&access, 1).await;
        let specs = world.specs(|_| Reading::Value(0.0));
        world.deployer.test_check(&access, &name()).await.unwrap();
        let spec = specs.lock().unwrap().pop().unwrap();
        assert!(spec.adopted);
        assert_eq!(names(spec.instances.as_ref().unwrap()), world.pod_names(&access).await);
    });
}

#[test]
fn platform_that_is_away_for_a_while_is_asked_again() {
    let world = World::with_addresses();
    let engine = world.faulty(plan(|call| if call < 2 { Fault::Before } else { Fault::None }));
    world.run_beside(&engine, async {
        let access = world.checked_app().await;
        let specs = world.specs(|_| Reading::Value(0.0));
        let done = world.deployed(&access, &api("v2")).await;
        assert_eq!((done.status(), note(&done)), (Status::Succeeded, String::new()));
        assert_eq!(specs.lock().unwrap().len(), 1, "the verifier is not asked without them");
    });
}

#[test]
fn instances_that_cannot_be_named_are_no_verdict() {
    let world = World::with_addresses();
    let engine = world.faulty(plan(|_| Fault::Corrupt));
    world.run_beside(&engine, async {
        let access = world.checked_app().await;
        let specs = world.specs(|_| Reading::Value(1.0));
        let done = world.deployed(&access, &api("v2")).await;
        assert_eq!(done.status(), Status::Succeeded);
        assert!(note(&done).starts_with("not verified"), "{}", note(&done));
        let last = done.verification.as_deref().unwrap().checks[0].last().unwrap().message.clone();
        assert!(last.starts_with("Nothing was measured: the addresses of the instances cannot be named"), "{last}");
        assert_eq!(specs.lock().unwrap().len(), 0);
    });
}

#[test]
fn naming_instances_takes_of_the_checks_own_time() {
    let world = World::with_addresses();
    let late = |call| if call == 0 { Fault::Late(SECOND * 20) } else { Fault::Late(SECOND * 4) };
    let engine = world.faulty(plan(late));
    world.run_beside(&engine, async {
        let access = world.checked_app().await;
        let specs = world.specs(|_| Reading::Value(0.0));
        let done = world.deployed(&access, &api("v2")).await;
        let check = &done.verification.as_deref().unwrap().checks[0];
        let messages: Vec<_> = check.measurements.iter().map(|measured| measured.message.clone()).collect();
        assert_eq!(messages, ["No answer within 10 s.", "The reading is 0."]);
        let [spec] = &specs.lock().unwrap()[..] else { panic!("the first one was given up") };
        assert_eq!(spec.check.timeout, SECOND * 6);
    });
}

/// A driver whose platform names no addresses.
struct Unaddressed(Arc<dyn RolloutDriver>);

#[async_trait]
impl RolloutDriver for Unaddressed {
    async fn identity(&self) -> Result<DriverIdentity> {
        self.0.identity().await
    }

    async fn validate(&self, request: &TargetRequest) -> Result<Validated> {
        self.0.validate(request).await
    }

    async fn apply(&self, spec: &RolloutSpec) -> Result<Applied> {
        self.0.apply(spec).await
    }

    async fn observe(&self, spec: &RolloutSpec) -> Result<Observation> {
        self.0.observe(spec).await
    }

    async fn changed(&self, spec: &RolloutSpec) {
        self.0.changed(spec).await;
    }

    async fn evidence(&self, spec: &RolloutSpec, failure: Option<&RolloutFailure>) -> Result<Evidence> {
        self.0.evidence(spec, failure).await
    }
}

#[test]
fn check_of_instances_is_refused_where_the_platform_names_no_addresses() {
    let world = World::with_addresses();
    let engine = world.driven_by(Arc::new(Unaddressed(world.cluster.clone())));
    world.run_beside(&engine, async {
        let access = world.app("api", Policy::default()).await;
        let refused = engine.set_check(&access, check(), None).await;
        let Err(Refusal::InvalidField(Field::PolicyChecks, rule)) = refused else { panic!("{refused:?}") };
        assert_eq!(rule, "front: the platform of this service names no addresses of instances.");
        // Another process has set it.
        world.deployer.set_check(&access, check(), None).await.unwrap();
        let specs = world.specs(|_| Reading::NoData);
        let done = world.deployed(&access, &api("v2")).await;
        assert!(note(&done).starts_with("not verified"), "{}", note(&done));
        assert!(specs.lock().unwrap().iter().all(|spec| spec.instances.is_none()));
    });
}
