//! One process: a deployer on ports that fail, with a clock of its own.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use event_listener::Event;
use rollhook_conformance::Faulty;
use rollhook_core::{
    ports::{Clock, Rng},
    service::{BuildPorts, Deployer, Ports},
};

use crate::{
    broken::{Backend, workloads},
    clock::OwnClock,
    environment::Environment,
    faults::Faults,
    polling::RecordedReads,
    recording_ports::{Life, RecordingPorts},
};

/// How often sources are looked at.
pub(crate) const POLL: Duration = Duration::from_secs(10);

/// A process that lives.
pub(crate) struct Replica {
    pub(crate) life: Life,
    pub(crate) deployer: Arc<Deployer>,
    pub(crate) clock: Arc<OwnClock>,
    pub(crate) faults: Arc<Faults>,
    pub(crate) paused: bool,
    /// Since when nothing has kept it from giving signs of life.
    pub(crate) able: Duration,
    /// The task that drives its apps.
    pub(crate) engine: u64,
    leaves: Arc<(AtomicBool, Event)>,
}

impl Replica {
    /// A process that begins now.
    pub(crate) fn new(environment: &Arc<Environment>, life: Life) -> Self {
        let clock = environment.time.clock();
        let faults = Arc::new(Faults::default());
        let plan = faults.plan(Arc::clone(environment), life.name.clone());
        let own: Arc<dyn Clock> = clock.clone();
        let recording_ports = Arc::new(RecordingPorts {
            environment: Arc::clone(environment),
            life: life.clone(),
            faults: Arc::clone(&faults),
            backend: Backend::new(environment, Arc::clone(&own), environment.promise),
            views: Default::default(),
            replica: Default::default(),
        });
        let tokens = Arc::clone(&recording_ports.backend.tokens);
        let faulty = Arc::new(Faulty::new(Arc::clone(&recording_ports), Arc::clone(&own), Arc::clone(&plan)));
        let tokens = Arc::new(Faulty::new(tokens, Arc::clone(&own), Arc::clone(&plan)));
        let configurations = Arc::clone(&recording_ports.backend.configurations);
        let configurations = Arc::new(Faulty::new(configurations, Arc::clone(&own), plan));
        let rng = Arc::new(SeededRng(AtomicU64::new(life.number.wrapping_mul(0x1234_5678_9abc_def1))));
        let rollouts = workloads::over(faulty.clone(), environment.promise);
        let ports = Ports::new(tokens, faulty.clone(), rollouts, own, rng);
        let reads = Arc::new(RecordedReads { inner: faulty.clone(), recording_ports, is_missing: false.into() });
        let ports = ports.with(|ports| {
            ports.configurations = Some(configurations);
            ports.verifier = Some(faulty.clone());
            ports.registry = Some(reads.clone());
            ports.image_verifier = Some(faulty.clone());
            ports.builder = Some(BuildPorts::new(faulty, reads));
        });
        let deployer = Arc::new(Deployer::new(ports, &life.name).with_min_poll(POLL));
        let able = environment.time.now();
        Self { life, deployer, clock, faults, paused: false, able, engine: 0, leaves: Arc::default() }
    }

    /// Drives the replica's apps until it leaves.
    pub(crate) fn run(&self) -> impl Future<Output = ()> + Send + 'static {
        let (deployer, leaves) = (Arc::clone(&self.deployer), Arc::clone(&self.leaves));
        async move {
            let left = async {
                let listener = leaves.1.listen();
                if !leaves.0.load(Ordering::Relaxed) {
                    listener.await;
                }
            };
            deployer.run(left).await.unwrap();
        }
    }

    /// Has it leave in good order.
    pub(crate) fn leave(&self) {
        self.leaves.0.store(true, Ordering::Relaxed);
        self.leaves.1.notify(usize::MAX);
    }
}

/// Randomness that is the same in every run, and another in every life.
struct SeededRng(AtomicU64);

impl Rng for SeededRng {
    fn fill(&self, bytes: &mut [u8]) {
        for byte in bytes {
            // SplitMix64.
            let seed = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
            let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            *byte = (mixed >> 56) as u8;
        }
    }
}
