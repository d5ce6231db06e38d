//! The simulated registry.

use rollhook_conformance::block_on;

use super::simulated_registry::SimulatedImages;

rollhook_conformance::registries!(block_on, SimulatedImages::fresh());
