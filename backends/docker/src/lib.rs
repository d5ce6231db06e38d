//! rollhook on one machine with Docker: rollouts of containers and of services of Compose projects ([`DockerMachine`]),
//! and images of git apps, built by the engine ([`EngineBuilder`]).
//!
//! ```text
//!            apply, observe                         validate, at_rest        changed        evidence
//!                  │                                      │                     │               │
//!   advance: rules::fence ─ rules::plan        rules::{registration, at_rest} watch        log, state
//!                  │                                      │                     │               │
//!                  └───────── engine: HTTP on the socket, every failure classified ─────────────┘
//! ```
//!
//! Decisions about containers are pure functions in `rules`; the files beside it read and write.
//!
//! One deploy: `apply` reads the target's containers, and the fence compares their stamps (the label
//! `dev.rollhook.deploy`, `{app uid}/{revision}`) with that of the rollout. It adds the deploy's claim, a volume that
//! carries the stamp until there is a container, and reads again. Then the image is pulled, and a container is made of
//! what inspecting the one before tells, with another image and our labels. `observe` takes the next step each time it
//! is called: it starts the container beside the old one, watches it, gives it the old one's name, stops and removes
//! the old one; or, where both cannot run at the same time, stops the old one first. A stop, and a deploy of a stopped
//! app, make their container and never start it: `rules::rest`.
//!
//! The variables of a deploy's configuration are in the environment of its container, beside those that others gave to the
//! one before; a label has their names: `rules::variables`.
//!
//! What the configuration says that containers are made with, such as memory and ports, is laid over what others gave; a label
//! keeps what it replaced: `rules::made_with`.
//!
//! A release command runs in a container of its own, which is of no target and is started once: `releases`.
//!
//! Access to the engine's socket is the access of root to the machine.

mod addresses;
mod advance;
mod builds;
mod description;
mod disk;
mod document;
mod engine;
mod error;
mod evidence;
mod exits;
#[cfg(test)]
mod fake_engine;
mod host;
mod images;
mod instances;
mod layers;
mod log_pieces;
mod logins;
mod made_with;
mod pulls;
mod readiness;
mod refusals;
mod releases;
mod rules;
mod settings;
mod target;
mod watch;

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use futures_util::{
    StreamExt,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use rollhook_command::{DiskLimits, Slots};
use rollhook_core::{
    Error, Result,
    app::{App, AppUid, Namespace, Target},
    deploy::Evidence,
    disk::DiskSpace,
    image::ImageRef,
    ports::{
        Applied, AtRest, CheckedSettings, DriverIdentity, InstanceAddresses, InstanceLogs, Observation, ReleaseRunner,
        RolloutDriver, RolloutFailure, RolloutSpec, SettingsRequest, StoredImages, TargetDescription, TargetReader,
        TargetRequest, Validated,
    },
};

pub use builds::{BuildLimits, EngineBuilder};
pub use settings::{Kind, Replace, Template, Workload};

use crate::{
    advance::Machine,
    description::DESCRIPTION,
    engine::Engine,
    host::Environment,
    releases::Releases,
    rules::{at_rest, rest},
    settings::Rollout,
    watch::Watch,
};

/// The deadline of a call to a port, with all its requests.
const CALL: Duration = Duration::from_secs(9);
/// How long a rollout is left unobserved where no event comes, such as while an image is pulled.
const LOOK: Duration = Duration::from_secs(1);

/// How many calls read objects that are larger than usual at once, and how many of them are for one environment.
const LARGE: usize = 4;
const LARGE_OF_ENVIRONMENT: usize = 2;

/// A rollout driver for the containers of one machine.
pub struct DockerMachine {
    engine: Engine,
    machine: Machine,
    releases: Releases,
    watch: Watch,
    /// Slots for calls that read objects which are larger than usual.
    large: Slots,
    /// The versions of each app whose images stay; `None`: all.
    versions: Option<usize>,
}

impl DockerMachine {
    /// Finds the engine's socket: by `DOCKER_HOST`, or where engines put it. Nothing is sent until the first call.
    ///
    /// # Errors
    /// `Invalid` if `DOCKER_HOST` names something other than a socket of this machine.
    pub fn connect() -> Result<Self> {
        Ok(Self::at(Environment::of_process().socket(Path::exists)?))
    }

    /// A driver for the engine with this socket.
    pub fn at(socket: PathBuf) -> Self {
        let machine = Machine::default();
        Self {
            engine: Engine::new(socket),
            releases: Releases::new(&machine.pulls),
            machine,
            watch: Watch::default(),
            large: Slots::with_share(LARGE, LARGE_OF_ENVIRONMENT),
            versions: None,
        }
    }

    /// Lets images of older versions than these be removed, of each app; `None`: none is removed.
    #[must_use]
    pub fn storing(self, versions: Option<usize>) -> Self {
        Self { versions, ..self }
    }

    /// Lets images be pulled as long as the disk has room by these limits.
    #[must_use]
    pub fn with_disk_limits(mut self, limits: DiskLimits) -> Self {
        self.machine.disk = limits;
        self
    }

    /// The engine's socket.
    pub fn socket(&self) -> &Path {
        self.engine.socket()
    }
}

impl DockerMachine {
    /// The outcome of a call to a port, for an app of this environment. A call that reads an object which is larger than usual, as
    /// makers of images choose, is made again in a slot of the environment: it holds all that it reads until its end.
    async fn in_turn<'a, T: Send>(
        &'a self,
        environment: &Namespace,
        call: impl Fn(Engine) -> BoxFuture<'a, Result<T>> + Send + Sync,
    ) -> Result<T> {
        bounded(async {
            match call(self.engine.clone()).await {
                Err(error) if error::is_large(&error) => {
                    let _slot = self.large.acquire(environment).await;
                    call(self.engine.reading_large()).await
                }
                ended => ended,
            }
        })
        .await
    }
}

/// The outcome of a call to a port. Returns `Unavailable` after the deadline.
fn bounded<'a, T: 'a>(call: impl Future<Output = Result<T>> + Send + 'a) -> BoxFuture<'a, Result<T>> {
    Box::pin(async {
        tokio::time::timeout(CALL, call).await.unwrap_or_else(|_| {
            let what = format!("Docker did not answer within {} s", CALL.as_secs());
            Err(Error::Unavailable { what, cause: None })
        })
    })
}

/// Locks a mutex, poisoned or not: no change leaves a state half made before it could panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn identity(engine: &Engine) -> Result<DriverIdentity> {
    let version = engine.get("/version").await?;
    let parts = version["Components"].as_array().into_iter().flatten();
    if parts.filter_map(|part| part["Name"].as_str()).any(|name| name.contains("Podman")) {
        return Err(Error::invalid(format!(
            "{} is Podman's, which rollhook does not deploy to: name Docker's socket with DOCKER_HOST=unix:///PATH",
            engine.socket().display()
        )));
    }
    let info = engine.get("/info").await?;
    match info["ID"].as_str().filter(|id| !id.is_empty() && !id.contains(char::is_control)) {
        Some(id) => Ok(DriverIdentity(format!("docker {id}"))),
        None => Err(Error::Corrupt { what: "the engine has no id".to_owned(), cause: None }),
    }
}

#[async_trait]
impl RolloutDriver for DockerMachine {
    async fn identity(&self) -> Result<DriverIdentity> {
        bounded(identity(&self.engine)).await
    }

    fn describe(&self) -> TargetDescription {
        DESCRIPTION
    }

    fn unstoppable(&self, _target: &Target) -> Option<String> {
        None
    }

    fn unconfigurable(&self, _target: &Target) -> Option<String> {
        None
    }

    async fn check_settings(&self, request: &SettingsRequest) -> Result<CheckedSettings> {
        let check = |engine| -> BoxFuture<'_, _> { Box::pin(async move { made_with::check(&engine, request).await }) };
        self.in_turn(&request.app.namespace, check).await
    }

    fn observes_with_variables(&self, _target: &Target) -> bool {
        true
    }

    async fn validate(&self, request: &TargetRequest) -> Result<Validated> {
        let validate = |engine: Engine| -> BoxFuture<'_, _> {
            Box::pin(async move {
                // Which engine it is has been asked at the start; it may have been away then.
                identity(&engine).await?;
                target::validate(&engine, request).await
            })
        };
        self.in_turn(&request.app.namespace, validate).await
    }

    async fn apply(&self, spec: &RolloutSpec) -> Result<Applied> {
        let rollout = &Rollout::of(spec)?;
        self.in_turn(&spec.app.namespace, |engine| Box::pin(async move { self.machine.apply(&engine, rollout).await }))
            .await
    }

    async fn observe(&self, spec: &RolloutSpec) -> Result<Observation> {
        let rollout = &Rollout::of(spec)?;
        self.in_turn(&spec.app.namespace, |engine| {
            Box::pin(async move { self.machine.observe(&engine, rollout).await })
        })
        .await
    }

    async fn changed(&self, _spec: &RolloutSpec) {
        drop(tokio::time::timeout(LOOK, self.watch.changed(&self.engine)).await);
    }

    fn target_reader(&self) -> Option<&dyn TargetReader> {
        Some(self)
    }

    fn stored_images(&self) -> Option<&dyn StoredImages> {
        Some(self)
    }

    fn release_runner(&self) -> Option<&dyn ReleaseRunner> {
        Some(self)
    }

    fn instance_logs(&self) -> Option<&dyn InstanceLogs> {
        Some(self)
    }

    fn instance_addresses(&self) -> Option<&dyn InstanceAddresses> {
        Some(self)
    }

    async fn forget(&self, app: &App) -> Result<()> {
        self.watch.forget(app.uid);
        self.machine.forget(app.uid);
        bounded(async { Ok(releases::forget(&self.engine, &self.releases, app).await?) }).await
    }

    async fn evidence(&self, spec: &RolloutSpec, failure: Option<&RolloutFailure>) -> Result<Evidence> {
        let rollout = &Rollout::of(spec)?;
        self.in_turn(&spec.app.namespace, |engine| {
            Box::pin(async move { evidence::evidence(&engine, rollout, failure).await })
        })
        .await
    }
}

#[async_trait]
impl TargetReader for DockerMachine {
    async fn at_rest(&self, spec: &RolloutSpec) -> Result<AtRest> {
        let rollout = Rollout::of(spec)?;
        self.watch.know(rollout.id.app, &rollout.workload);
        let rollout = &rollout;
        self.in_turn(&spec.app.namespace, |engine| {
            Box::pin(async move {
                let seen = target::read(&engine, &rollout.workload).await?;
                let rollout = rest::resting(&seen, rollout);
                let found = at_rest::of(&seen, &rollout);
                let Some(own) = at_rest::asked(&seen, &rollout, &found.seen) else { return Ok(found) };
                // By its path, a container may be no more ready than it was in the deploy.
                Ok(match readiness::answer(own, &rollout).await {
                    Ok(()) => found,
                    Err(answer) => at_rest::unready(found, &answer),
                })
            })
        })
        .await
    }

    fn target_changes(&self) -> BoxStream<'static, AppUid> {
        let Some(mut hints) = self.watch.take_hints(&self.engine) else { return stream::empty().boxed() };
        stream::poll_fn(move |context| hints.poll_recv(context)).boxed()
    }

    fn forget_targets(&self, app: AppUid) {
        self.watch.forget(app);
        self.machine.forget_targets(app);
    }
}

#[async_trait]
impl StoredImages for DockerMachine {
    fn stored_versions(&self) -> Option<usize> {
        self.versions
    }

    async fn has(&self, image: &ImageRef) -> Result<bool> {
        bounded(async { Ok(pulls::is_stored(&self.engine, image).await?) }).await
    }

    async fn discard(&self, app: &App, images: &[ImageRef]) -> Result<()> {
        bounded(async { Ok(images::discard(&self.engine, app, images).await?) }).await
    }

    async fn disk_space(&self) -> Result<Option<DiskSpace>> {
        bounded(async { disk::space(&self.engine).await.map(Some) }).await
    }
}
