//! The world of the core's tests, and the management plane above its deployer.

#![allow(dead_code, unreachable_pub, unused_imports, reason = "the core and the management plane use their parts")]

pub mod actions;
#[path = "../../../../core/tests/scenarios/world/mod.rs"]
mod core_world;

use std::{ops::Deref, pin::pin, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::{FutureExt, select_biased};
use rollhook_core::{Result, service::Deployer};
use rollhook_management::{
    Management, Outcome, Ports, Refusal,
    access::Principal,
    keyless::{IdToken, Issuer},
    ports::{IdentityVerifier, RecordStore},
};

pub use core_world::*;

/// A verifier to which every token is signed by the issuer that is asked for.
pub struct Signed;

#[async_trait]
impl IdentityVerifier for Signed {
    fn check(&self, _: &Issuer) -> Result<(), String> {
        Ok(())
    }

    async fn verify(&self, _: &Issuer, _: &IdToken) -> Result<bool> {
        Ok(true)
    }

    fn recognizes(&self, _: &Issuer, _: &IdToken) -> bool {
        true
    }
}

/// Returns whether an outcome is the refusal of credentials.
pub fn is_unauthorized<T>(outcome: Outcome<T>) -> bool {
    outcome.err() == Some(Refusal::UNAUTHORIZED)
}

/// The world of the core, and the management plane of its first replica.
pub struct ManagedWorld {
    world: World,
    pub management: Arc<Management>,
    /// The principal of the world's operator.
    pub operator: Principal,
}

impl Deref for ManagedWorld {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl ManagedWorld {
    /// One replica on an empty store, and a cluster where a rollout takes this long.
    pub fn new(delay: Duration) -> Self {
        let world = World::new(delay);
        let operator = Principal::trusted(&world.operator.to_string());
        let records = Arc::clone(&world.store) as Arc<dyn RecordStore>;
        let management = Arc::new(Management::new(Arc::clone(&world.deployer), Ports::new(records)));
        Self { world, management, operator }
    }

    /// The records of the store.
    pub fn records(&self) -> Arc<dyn RecordStore> {
        Arc::clone(&self.store) as _
    }

    /// The management plane of another process on the same store and cluster.
    pub fn managed_replica(&self, name: &str, seed: u64) -> Arc<Management> {
        self.managed(self.replica(name, seed), Ports::new(self.records()))
    }

    /// The management plane of a deployer.
    pub fn managed(&self, deployer: Arc<Deployer>, ports: Ports) -> Arc<Management> {
        Arc::new(Management::new(deployer, ports))
    }

    /// Runs a scenario while the first replica runs beside it.
    pub fn run<T>(&self, scenario: impl Future<Output = T>) -> T {
        self.run_managed(&self.management, scenario)
    }

    /// Runs a scenario while this replica runs beside it.
    pub fn run_managed<T>(&self, management: &Management, scenario: impl Future<Output = T>) -> T {
        block_on(&self.clock, async {
            let mut running = pin!(management.run(std::future::pending()).fuse());
            let mut scenario = pin!(scenario.fuse());
            select_biased! {
                end = running => panic!("the replica has stopped: {end:?}"),
                value = scenario => value,
            }
        })
    }
}
