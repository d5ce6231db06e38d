//! The promises of every backend, as cases: one suite per port, one case per promise, each named like its promise.
//!
//! A test file of a store implements [`Stores`], which opens handles and disturbs the store, and names a fresh one. The
//! facade `rollhook` re-exports the types of `rollhook_core`, so that its names do as well:
//!
//! ```
//! use std::{sync::{Arc, Mutex}, time::Duration};
//!
//! use async_trait::async_trait;
//! use rollhook_conformance::{Can, Handles, Lack, Stores, block_on};
//! use rollhook_core::{app::AppUid, deploy::Revision, time::Timestamp};
//! use rollhook_memory::MemoryStore; // the store under test
//!
//! struct Fresh {
//!     now: Arc<Mutex<Timestamp>>,
//!     store: Arc<MemoryStore>,
//! }
//!
//! impl Fresh {
//!     fn store() -> Can<Self> {
//!         let now = Arc::new(Mutex::new(Timestamp::from_millis(1_700_000_000_000)));
//!         let clock = now.clone();
//!         let store = Arc::new(MemoryStore::new(Arc::new(move || *clock.lock().unwrap())));
//!         Ok(Self { now, store })
//!     }
//! }
//!
//! #[async_trait]
//! impl Stores for Fresh {
//!     async fn open(&self) -> Handles {
//!         // A store in a file or a database is opened anew here, as another replica opens it.
//!         let configurations = Some(self.store.clone() as _);
//!         let records = Some(self.store.clone() as _);
//!         Handles { history: self.store.clone(), tokens: self.store.clone(), configurations, records }
//!     }
//!
//!     async fn reopen(&self) -> Can<Handles> {
//!         // A store in a file copies it as it is, and opens the copy; a server is killed and started again.
//!         Err(Lack::NotApplicable("nothing outlives the process"))
//!     }
//!
//!     async fn pause(&self, time: Duration) {
//!         self.advance(time).await.unwrap();
//!     }
//!
//!     async fn advance(&self, time: Duration) -> Can {
//!         let mut now = self.now.lock().unwrap();
//!         *now = now.after(time);
//!         Ok(())
//!     }
//!
//!     async fn set_back(&self, time: Duration) -> Can {
//!         let mut now = self.now.lock().unwrap();
//!         *now = Timestamp::from_millis(now.as_millis() - time.as_millis() as i64);
//!         Ok(())
//!     }
//!
//!     async fn corrupt_state(&self, _: AppUid) -> Can {
//!         // UPDATE apps SET document = '{' WHERE uid = …
//!         Err(Lack::NotApplicable("nothing is serialized"))
//!     }
//!
//!     async fn corrupt_entry(&self, _: AppUid, _: Revision) -> Can {
//!         Err(Lack::NotApplicable("nothing is serialized"))
//!     }
//!
//!     async fn raw_bytes(&self) -> Can<Vec<u8>> {
//!         // The files, or a dump of the tables.
//!         Err(Lack::NotApplicable("nothing is stored outside of the process"))
//!     }
//!
//!     async fn move_secret(&self, _: AppUid, _: AppUid) -> Can {
//!         Err(Lack::NotApplicable("nothing is stored outside of the process"))
//!     }
//! }
//!
//! rollhook_conformance::stores!(block_on, Fresh::store());
//! rollhook_conformance::model!(block_on, Fresh::store(), 500);
//! ```
//!
//! The first argument drives a future to its end on the runtime that the store needs; [`block_on`] is one for stores
//! that need none. The second may await. Every case becomes a `#[test]` of its own, such as
//! `history::commit_keeps_keys`, on a store of its own; two more race the writes of several threads ([`threads`]). A
//! store without records hands out `None`.
//!
//! Drivers of clusters run [`rollouts!`] in the same way, with a [`Clusters`], [`releases!`] if they run release
//! commands, with [`Releases`], [`instances!`] if they read the logs of instances, and [`addresses!`] if they name the addresses of these; builders run [`builds!`] with a
//! [`Builders`]; readers of branches run [`branches!`] with a [`Branches`], verifiers [`verifiers!`] with a [`Verifiers`], and readers
//! of registries [`registries!`] with a [`Registries`]; who verifies signatures runs [`signatures!`] with [`Signings`].
//!
//! Time passes by the harness's `pause`: a quarter of a second of the cluster's time, real or simulated. A driver whose
//! clock is simulated, or is tokio's and paused, is looked at for a minute in no time, and one whose call does not answer
//! within [`ANSWER_WITHIN`](rollhook_core::ports::ANSWER_WITHIN) of that time fails its case.
//!
//! A harness that cannot do something, such as setting back the store's clock, returns a [`Lack`]: the case that needs
//! it is reported as skipped, and never passes silently.
//!
//! Beside the cases: [`samples`] of apps and deploys; a [`ManualClock`]; [`Faulty`], which makes any port fail where a
//! test wants it to; a [`client`] of one store, for a backend's own tests; and [`mod@model`], which compares the ledger
//! on a store with a small model of both, over random sequences of changes.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a case fails as tests do, by panicking")]

pub mod addresses;
pub mod branch_reader;
pub mod builds;
pub mod client;
pub mod configurations;
pub mod history;
pub mod instances;
pub mod model;
pub mod records;
pub mod registry;
pub mod releases;
pub mod rollouts;
pub mod samples;
pub mod signatures;
pub mod threads;
pub mod tokens;
pub mod verifier;

mod branches;
mod builders;
mod clock;
mod clusters;
mod executor;
mod faulty;
mod macros;
mod registries;
mod report;
mod signings;
mod stores;
mod verifiers;

pub use branches::Branches;
pub use builders::{Builders, Made};
pub use clock::ManualClock;
pub use clusters::{Clusters, Environment, Instance, Sample};
pub use executor::block_on;
pub use faulty::{Fault, Faulty, Plan};
pub use registries::{ImageSample, Registries, RegistryAnswer};
pub use releases::{Does, Releases};
pub use report::{Can, Lack, report};
pub use signings::{SignedSample, Signings};
pub use stores::{Handles, Stores};
pub use verifiers::{Provided, Verifiers};
