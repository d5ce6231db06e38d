//! Opens the backends that server and command line can be started with, by their names.
//!
//! ```text
//!   "sqlite:FILE"  ─▶ StoreUrl  ─╮
//!   "kubernetes"   ─▶ DriverUrl ─┼─▶ open ─▶ Ports ─▶ Deployer (the host's)
//!   key directory, data directory ╯
//! ```
//!
//! A host parses its arguments into [`StoreUrl`] and [`DriverUrl`], calls [`open`], may wrap the ports that it gets,
//! and makes a `Deployer` of them. A server then makes sure that there is an admin token: [`admin::ensure`].

pub mod admin;
mod backend_url;
mod builder;
#[cfg(feature = "kubernetes")]
mod cluster_builder;
mod error;
mod events;
mod installation;
pub mod keys;
mod manifests;
mod open;
mod paths;
mod registries;
mod reviewer;
mod settings;
mod sign_in;
mod store;
mod store_lock;

pub use backend_url::{DatabaseUrl, DriverUrl, InvalidBackendUrl, StoreUrl};
pub use builder::BuilderStop;
pub use error::Error;
pub use events::EventsStop;
pub use installation::{Installation, InstalledSecret};
pub use manifests::Manifests;
pub use open::{Opened, Rebound, open, rebind};
pub use registries::{RegistrySettings, image_verifier, registry};
pub use reviewer::ReviewAudience;
pub use rollhook::{StopSignals, SystemRng, TokioClock, machine};
pub use rollhook_command::{Bytes, DiskLimits, disk_space};
pub use rollhook_traces::{EndpointError, Traces};
pub use settings::{BuilderSettings, ClusterSettings, ReceiverSettings, Settings, StoreSettings};
pub use sign_in::{CALLBACK, SignIn};
pub use store::Created;
pub use store_lock::StoreLock;
