//! Puts rollhook's backends together for its hosts; the only crate that names backends.
//!
//! ```text
//!   "sqlite:FILE"  ─▶ StoreSpec  ─╮
//!   "kubernetes"   ─▶ DriverSpec ─┼─▶ open ─▶ Ports ─▶ Deployer (the host's)
//!   key directory, data directory ╯
//! ```
//!
//! A host parses its arguments into [`StoreSpec`] and [`DriverSpec`], calls [`open`], may wrap the ports that it gets,
//! and makes a `Deployer` of them. A server then makes sure that there is a management token: [`admin::ensure`].

pub mod admin;
mod builder;
#[cfg(feature = "kubernetes")]
mod cluster_builder;
mod error;
pub mod keys;
pub mod manifests;
mod open;
pub mod paths;
mod settings;
mod spec;
mod store;

pub use rollhook::{SystemRng, TokioClock, hostname};

pub use builder::BuilderStop;
pub use error::Error;
pub use open::{Opened, open};
pub use settings::{BuilderSettings, ClusterSettings, Settings, StoreSettings};
pub use spec::{DatabaseUrl, DriverSpec, InvalidSpec, StoreSpec};
pub use store::Made;
