//! rollhook as a library: deploys, their history and rollbacks, for a platform that brings its own process.
//!
//! ```text
//!   your platform            HTTP, console, scheduler, whatever it has
//!        │ authorize → submit, rollback, history, wait
//!        ▼
//!   Deployer                 every rule: numbering, idempotency, serialised builds, restores, holds, leases
//!        │ only through
//!        ▼
//!   TokenStore · HistoryStore · ConfigurationStore · RolloutDriver · BuildTrigger · BranchReader · Clock · Rng
//!        ▲
//!   memory · sqlite · postgres · kubernetes · docker · git · command · checks · registry · signatures, or your own
//! ```
//!
//! A deploy is accepted once it is stored, and then ends, with a status that says what the cluster was seen to run.
//! After a failed one the service restores the version before; a person returns to any revision with one call; and all
//! of it is in the history. [`Deployer::run`](service::Deployer::run) is one future that drives any number of apps: the
//! platform polls it on any runtime.
//!
//! | feature | brings |
//! |---|---|
//! | `tokio` (default) | [`Builder`]: clock, randomness and a replica's name, so that a store and a driver are enough |
//! | `memory` (default) | stores in memory, and a simulated cluster to try things out on |
//! | `sqlite`, `postgres`, `kubernetes` | durable stores; `kubernetes` the rollout driver and builder as well |
//! | `docker` | the rollout driver for the containers of one machine |
//! | `sealing` | tokens and configurations sealed at rest, for stores of one's own; the durable stores bring it along |
//! | `management` | roles, API tokens, sign-in, trusted pipelines, locks of environments, notifications |
//! | `workloads` | apps with several workloads, deployed as one by any rollout driver |
//! | `checks` | checks of versions in use, by requests and by queries of Prometheus |
//! | `registry` | the digests that tags mean, with platforms and labels, and lists of tags, read at registries |
//! | `signatures` | who signed an image, and how it was built, verified at its registry |
//! | `git` | branches read by git, builds by a program on this machine |
//!
//! A deploy from CI, one that fails and is put right, and a rollback:
//!
//! ```
//! # #[cfg(all(feature = "tokio", feature = "memory"))]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::{sync::Arc, time::Duration};
//!
//! use rollhook::{
//!     Builder, TokioClock,
//!     action::Action,
//!     app::Policy,
//!     deploy::{Actor, Revision, Status},
//!     memory::{MemoryStore, Script, SimulatedCluster},
//!     ports::RolloutFailureKind,
//!     request::{DeployRequest, Registration, RollbackRequest},
//!     token::Credentials,
//! };
//!
//! let cluster = SimulatedCluster::new(Arc::new(TokioClock::start()), Duration::from_millis(10));
//! cluster.script(":bad", Script::fails(RolloutFailureKind::Final, "CrashLoopBackOff", "It exits at once."));
//! let store = Arc::new(MemoryStore::on_system_time());
//! let deployer = Arc::new(Builder::new(store, Arc::new(cluster)).build());
//! let engine = tokio::spawn({
//!     let deployer = deployer.clone();
//!     async move { deployer.run(std::future::pending()).await }
//! });
//!
//! // The platform has authenticated this person itself.
//! let alice = Actor::person("alice");
//! let policy = Policy::default().with(|policy| policy.settle = Duration::ZERO);
//! let wanted = Registration::new("shop".parse()?, "test".parse()?, "api".parse()?)
//!     .image("registry.example.com/api:v1".parse()?)
//!     .policy(policy);
//! let registered = deployer.register(&alice, wanted, None).await?;
//! let app = registered.id();
//! let access = deployer.allow(alice, app, Action::ALL).await?;
//! let wait = Duration::from_secs(30);
//! deployer.wait(&access, Revision::FIRST, wait).await?;
//! let token = deployer.enable_webhook(&access).await?.token;
//!
//! // The work of an HTTP handler on a call of CI.
//! for (tag, status) in [("v2", Status::Succeeded), ("bad", Status::Failed)] {
//!     let body = format!(r#"{{"image": "registry.example.com/api:{tag}"}}"#);
//!     let presented = Credentials::token(token.expose().as_bytes());
//!     let ci = deployer.authorize(app, &presented, body.as_bytes()).await?;
//!     let image = format!("registry.example.com/api:{tag}").parse()?;
//!     let request = DeployRequest::image(image);
//!     let accepted = deployer.submit(&ci, request).await?.deploy;
//!     let waited = deployer.wait(&ci, accepted.revision, wait).await?;
//!     assert_eq!(waited.deploy.status(), status);
//!     // The failed one is put right as revision 4, which rolls v2 out again.
//!     if let Some(restore) = waited.restore() {
//!         assert_eq!((restore.revision.get(), restore.effective.get()), (4, 2));
//!         assert_eq!(deployer.wait(&ci, restore.revision, wait).await?.deploy.status(), Status::Succeeded);
//!     }
//! }
//!
//! // Back to the last good version before that: v1.
//! let back = deployer.rollback(&access, RollbackRequest::default()).await?.deploy;
//! let ended = deployer.wait(&access, back.revision, wait).await?.deploy;
//! assert_eq!((ended.status(), ended.effective), (Status::Succeeded, Revision::FIRST));
//! engine.abort();
//! # Ok(())
//! # }
//! # #[cfg(not(all(feature = "tokio", feature = "memory")))]
//! # fn main() {}
//! ```
//!
//! A store or driver of your own implements a port; each port's documentation is its contract, and the crate
//! `rollhook-conformance` has a case for every promise.

/// The trait macro and the stream type of the ports' signatures.
pub use async_trait::async_trait;
pub use futures_util::stream::BoxStream;
pub use rollhook_core::{
    Error, Result, action, app, check, configuration, delivery, deploy, disk, error, image, instance, ledger, lock,
    network, ports, replica, request, service, source, text, time, token, trace,
};
#[cfg(feature = "management")]
pub use rollhook_management as management;

#[cfg(feature = "checks")]
pub use rollhook_checks as checks;
#[cfg(feature = "git")]
pub use rollhook_command as command;
#[cfg(feature = "docker")]
pub use rollhook_docker as docker;
#[cfg(feature = "git")]
pub use rollhook_git as git;
#[cfg(feature = "webhook")]
pub use rollhook_git_hosts as webhook;
#[cfg(feature = "kubernetes")]
pub use rollhook_kubernetes as kubernetes;
#[cfg(feature = "memory")]
pub use rollhook_memory as memory;
#[cfg(feature = "postgres")]
pub use rollhook_postgres as postgres;
#[cfg(feature = "registry")]
pub use rollhook_registry as registry;
#[cfg(feature = "sealing")]
pub use rollhook_sealing as sealing;
#[cfg(feature = "signatures")]
pub use rollhook_signatures as signatures;
#[cfg(feature = "sqlite")]
pub use rollhook_sqlite as sqlite;
#[cfg(feature = "workloads")]
pub use rollhook_workloads as workloads;

#[cfg(feature = "tokio")]
mod builder;
#[cfg(feature = "tokio")]
mod system;

#[cfg(feature = "tokio")]
pub use builder::Builder;
#[cfg(feature = "tokio")]
pub use system::{StopSignals, SystemRng, TokioClock, machine, wall_clock};
