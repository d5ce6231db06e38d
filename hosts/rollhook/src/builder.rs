//! Puts a deployer together, with the clock, the randomness and the replica's name of a process on tokio.

use std::{sync::Arc, time::Duration};

use rollhook_core::{
    ports::{
        ConfigurationStore, DeployObserver, HistoryStore, ImageVerifier, Registry, RolloutDriver, TokenStore, Verifier,
    },
    service::{BuildPorts, Deployer, Ports},
};

use crate::{SystemRng, TokioClock, machine};

/// A deployer to be built from a store and a rollout driver. A process with a clock or randomness of its own passes all
/// ports to [`Deployer::new`].
#[must_use]
pub struct Builder {
    ports: Ports,
    replica: String,
    min_poll: Option<Duration>,
}

impl Builder {
    /// Returns a builder on this store and driver, with tokio's clock, the system's randomness, and the machine's name
    /// as the replica's.
    pub fn new<S: TokenStore + HistoryStore + 'static>(store: Arc<S>, rollouts: Arc<dyn RolloutDriver>) -> Self {
        Self::with_stores(store.clone(), store, rollouts)
    }

    /// Returns a builder with tokens and history behind two handles of one store.
    pub fn with_stores(
        tokens: Arc<dyn TokenStore>,
        history: Arc<dyn HistoryStore>,
        rollouts: Arc<dyn RolloutDriver>,
    ) -> Self {
        let ports = Ports::new(tokens, history, rollouts, Arc::new(TokioClock::start()), Arc::new(SystemRng));
        Self { ports, replica: machine(), min_poll: None }
    }

    /// Builds git apps by these ports; without them there are only image apps.
    pub fn builds(mut self, builder: BuildPorts) -> Self {
        self.ports.builder = Some(builder);
        self
    }

    /// Keeps the values of configurations here, which is of the same store as the history; without it no configuration can be
    /// set.
    pub fn configurations(mut self, store: Arc<dyn ConfigurationStore>) -> Self {
        self.ports.configurations = Some(store);
        self
    }

    /// Measures the checks of apps by this verifier; without one no app can have any.
    pub fn verifier(mut self, verifier: Arc<dyn Verifier>) -> Self {
        self.ports.verifier = Some(verifier);
        self
    }

    /// Looks images up at registries by this reader; without one none is looked up.
    pub fn registry(mut self, registry: Arc<dyn Registry>) -> Self {
        self.ports.registry = Some(registry);
        self
    }

    /// Verifies the signatures of images that apps require by this verifier, beside a [reader of registries](Builder::registry);
    /// without one no app can require any.
    pub fn image_verifier(mut self, verifier: Arc<dyn ImageVerifier>) -> Self {
        self.ports.image_verifier = Some(verifier);
        self
    }

    /// Notifies this observer of the process's commits, such as for metrics. May be called several times.
    pub fn observer(mut self, observer: Arc<dyn DeployObserver>) -> Self {
        self.ports.observers.push(observer);
        self
    }

    /// Gives the replica a name: no other living process on the same store may have it, and this one has it again after
    /// a restart.
    pub fn replica(mut self, name: &str) -> Self {
        name.clone_into(&mut self.replica);
        self
    }

    /// Lets apps be polled no more often than this.
    pub fn min_poll(mut self, interval: Duration) -> Self {
        self.min_poll = Some(interval);
        self
    }

    /// Returns the deployer, which drives deploys while [`Deployer::run`] is polled.
    pub fn build(self) -> Deployer {
        let deployer = Deployer::new(self.ports, &self.replica);
        match self.min_poll {
            Some(interval) => deployer.with_min_poll(interval),
            None => deployer,
        }
    }
}
