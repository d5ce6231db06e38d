//! Runs release commands, each in a container of its own.
//!
//! ```text
//! prepare: pull, create NAME.making, join networks ─► NAME
//! start:   NAME ─► NAME.start1, read again, start by that name
//! cancel:  any ─► NAME.cancelled, read again, stop if it runs
//! ```
//!
//! The engine's containers are the only record of runs; [`rules::release`](crate::rules::release) says how their names keep
//! a command from running twice. What is left is a start whose name was looked up by the engine, and that has not begun
//! there when the container is renamed: a moment in the engine itself, which no delay of a caller makes longer.
//!
//! Until there is a container, a run is known to this process alone: its image is pulled, or could not be had.

mod log;

use std::{collections::HashMap, sync::Mutex, time::Duration};

use async_trait::async_trait;
use http::{Method, StatusCode};
use rollhook_core::{
    Error, Result,
    app::{App, AppUid},
    deploy::Reason,
    error::Entity,
    image::is_refused_for_good,
    ports::{Applied, DeployId, ReleaseFailure, ReleaseRun, ReleaseRunner, ReleaseSpec, ReleaseState, RolloutSpec},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    DockerMachine, LOOK,
    advance::Machine,
    bounded,
    document::{self, Document},
    engine::{Called, Engine, filters, in_path, in_query},
    error::Failure,
    lock,
    pulls::{self, Pull},
    rules::{
        container::{Container, Process, Seen},
        fence, origin, plan, recreation,
        release::{self, Mark, RELEASE, Run},
    },
    settings::Rollout,
    target,
};

/// How long making a run ready is repeated where it fails for a cause that may pass.
const HEALS: Duration = Duration::from_secs(60);
/// The time to read the last lines of a log, which are left out if that takes longer.
const COLLECT: Duration = Duration::from_secs(5);

/// A run that this process makes ready.
#[derive(Clone)]
struct Preparation {
    rollout: Rollout,
    command: Vec<String>,
    /// The time of the first failure.
    failing_since: Option<Instant>,
    failure: Option<ReleaseFailure>,
    is_cancelled: bool,
}

/// A failed attempt to make a run ready.
struct Trouble {
    reason: String,
    message: String,
    is_final: bool,
}

impl Trouble {
    fn passing(reason: &str, message: String) -> Self {
        Self { reason: reason.to_owned(), message, is_final: false }
    }

    fn lasting(reason: &str, message: String) -> Self {
        Self { is_final: true, ..Self::passing(reason, message) }
    }

    /// Returns the engine's refusal of a call; the failure itself if the engine gave no answer.
    fn of(failure: Failure, reason: &str, what: &str) -> Called<Self> {
        let Some(words) = failure.refusal() else { return Err(failure) };
        let message = format!("{what}: {words}");
        Ok(Self { is_final: failure.is(StatusCode::BAD_REQUEST), ..Self::passing(reason, message) })
    }
}

/// The next state of a run that is made ready.
enum Made {
    Ready,
    Waits,
    Trouble(Trouble),
}

/// The runs that this process makes ready, the newest of each app.
#[derive(Default)]
pub(crate) struct Releases {
    preparations: Mutex<HashMap<AppUid, Preparation>>,
}

impl Releases {
    fn preparation(&self, id: DeployId) -> Option<Preparation> {
        lock(&self.preparations).get(&id.app).filter(|known| known.rollout.id == id).cloned()
    }

    fn change(&self, id: DeployId, change: impl FnOnce(&mut Preparation)) {
        if let Some(known) = lock(&self.preparations).get_mut(&id.app).filter(|known| known.rollout.id == id) {
            change(known);
        }
    }

    fn is_cancelled(&self, id: DeployId) -> bool {
        self.preparation(id).is_some_and(|known| known.is_cancelled)
    }
}

/// The engine, with this process's work on it.
struct Runner<'a> {
    engine: &'a Engine,
    machine: &'a Machine,
    releases: &'a Releases,
}

impl Runner<'_> {
    async fn prepare(&self, spec: &ReleaseSpec) -> Result<ReleaseState> {
        let (run, id) = (&spec.run, spec.run.id);
        let rollout = RolloutSpec::new(run.app.clone(), id, spec.target.clone(), spec.image.clone());
        let rollout = Rollout::of(&rollout)?;
        if spec.command.is_empty() {
            return Err(Error::invalid("the release command names no program"));
        }
        if let Some(found) = find(self.engine, run).await?.filter(|found| found.mark != Mark::Making) {
            return Ok(self.report(run, found).await?);
        }
        {
            let mut preparations = lock(&self.releases.preparations);
            let is_known = preparations.get(&id.app).is_some_and(|known| known.rollout.id == id);
            if !is_known {
                let command = spec.command.clone();
                let known = Preparation { rollout, command, failing_since: None, failure: None, is_cancelled: false };
                preparations.insert(id.app, known);
            }
        }
        self.advance(run).await
    }

    async fn observe(&self, run: &ReleaseRun) -> Result<ReleaseState> {
        match find(self.engine, run).await? {
            Some(found) if found.mark != Mark::Making => Ok(self.report(run, found).await?),
            Some(_) | None => self.advance(run).await,
        }
    }

    /// Takes the next step of making a run ready, and returns its state.
    async fn advance(&self, run: &ReleaseRun) -> Result<ReleaseState> {
        let Some(known) = self.releases.preparation(run.id) else {
            // Another process makes it ready, or nothing does.
            let found = find(self.engine, run).await?;
            return Ok(found.map_or(ReleaseState::Unknown, |found| found.state(None, Vec::new())));
        };
        if known.is_cancelled {
            return Ok(release::cancelled_before());
        }
        if let Some(failure) = known.failure {
            return Ok(ReleaseState::Failed(failure));
        }
        match self.make(run, &known.rollout, &known.command).await? {
            Made::Waits => Ok(ReleaseState::Preparing),
            Made::Trouble(trouble) => self.failing(run, trouble).await,
            Made::Ready => {
                if self.releases.is_cancelled(run.id) {
                    self.cancel(run).await?;
                } else {
                    lock(&self.releases.preparations).remove(&run.id.app);
                }
                self.remove_outdated(run).await;
                let found = find(self.engine, run).await?.ok_or(Error::Conflict(Entity::Object))?;
                Ok(self.report(run, found).await?)
            }
        }
    }

    /// Notes that a run could not be made ready. Returns its failure once that is final.
    async fn failing(&self, run: &ReleaseRun, trouble: Trouble) -> Result<ReleaseState> {
        let Trouble { reason, message, is_final } = trouble;
        let mut since = Instant::now();
        self.releases.change(run.id, |known| since = *known.failing_since.get_or_insert(since));
        if !is_final && since.elapsed() < HEALS {
            tracing::debug!(app = %run.app, revision = %run.id.revision, error = message, "preparing a release command failed");
            return Ok(ReleaseState::Preparing);
        }
        // A container that is not ready could yet be made so by another process.
        if let Some(found) = find(self.engine, run).await? {
            if found.mark != Mark::Making {
                return Ok(self.report(run, found).await?);
            }
            remove(self.engine, found.container.id()).await?;
        }
        let failure = ReleaseFailure { began: false, reason: Reason::new(&reason), message, log: Vec::new() };
        self.releases.change(run.id, |known| known.failure = Some(failure.clone()));
        Ok(ReleaseState::Failed(failure))
    }

    /// Makes the container of a run as far as it can be made now.
    async fn make(&self, run: &ReleaseRun, rollout: &Rollout, command: &[String]) -> Called<Made> {
        let seen = target::read(self.engine, &rollout.workload).await?;
        let model = plan::model(&seen, rollout);
        let found = match find(self.engine, run).await? {
            Some(found) => found,
            None => {
                let image = match self.image(&seen, rollout).await? {
                    Ok(Some(image)) => image,
                    Ok(None) => return Ok(Made::Waits),
                    Err(trouble) => return Ok(Made::Trouble(trouble)),
                };
                if let Some(trouble) = self.create(run, rollout, model, &image, command).await? {
                    return Ok(Made::Trouble(trouble));
                }
                match find(self.engine, run).await? {
                    Some(found) => found,
                    None => return Ok(Made::Waits),
                }
            }
        };
        if found.mark != Mark::Making {
            return Ok(Made::Ready);
        }
        let missing = model.map(|model| recreation::missing_networks(model, &found.container)).unwrap_or_default();
        for (network, endpoint) in missing {
            let path = format!("/networks/{}/connect", in_path(&network));
            let body = json!({ "Container": found.container.id(), "EndpointConfig": release::endpoint(&endpoint) });
            if let Err(failure) = self.engine.post(&path, Some(&body)).await {
                let what = format!("Docker does not connect the release command's container to the network {network}");
                return Trouble::of(failure, "container-not-connected", &what).map(Made::Trouble);
            }
        }
        if self.releases.is_cancelled(run.id) {
            remove(self.engine, found.container.id()).await?;
            return Ok(Made::Waits);
        }
        // Another process may have done so.
        rename(self.engine, &release::name(run, Mark::Making), &release::name(run, Mark::Ready)).await?;
        Ok(Made::Ready)
    }

    /// Returns the image of a run on this machine; `None` while it is pulled.
    async fn image(&self, seen: &Seen, rollout: &Rollout) -> Called<Result<Option<String>, Trouble>> {
        let refusal = match fence::decide(seen, rollout).answer() {
            Some(Applied::Refused { reason, message }) => Some((reason, message)),
            Some(Applied::Done | Applied::Newer(_)) | None => None,
        };
        // Nothing that cannot be rolled out is prepared for.
        if let Some((reason, message)) = refusal {
            return Ok(Err(Trouble::lasting(reason.as_str(), message)));
        }
        if let Some(message) = target::without_image(self.engine, seen, rollout).await? {
            return Ok(Err(Trouble::lasting(Reason::UNSUPPORTED, message)));
        }
        match self.machine.pulls.look(self.engine, rollout).await? {
            Pull::There(image) => return Ok(Ok(Some(image))),
            Pull::Absent => {
                if let Some(Applied::Refused { reason, message }) = self.machine.full(self.engine, rollout).await {
                    return Ok(Err(Trouble::lasting(reason.as_str(), message)));
                }
            }
            Pull::Running(_) => {}
            Pull::Failed(error, _) => {
                let message = format!("the image {} cannot be pulled: {error}", rollout.image);
                if is_refused_for_good(&error) {
                    return Ok(Err(Trouble::lasting("image-pull-failed", message)));
                }
                self.machine.pulls.begin(self.engine, rollout);
                return Ok(Err(Trouble::passing("image-pull-failed", message)));
            }
        }
        self.machine.pulls.begin(self.engine, rollout);
        Ok(Ok(None))
    }

    async fn create(
        &self,
        run: &ReleaseRun,
        rollout: &Rollout,
        model: Option<&Container>,
        image: &str,
        command: &[String],
    ) -> Called<Option<Trouble>> {
        const NOT_CREATED: &str = "container-not-created";
        let gone = || {
            self.machine.pulls.forget(rollout.id.app);
            let message = format!("the image {} was removed after it was pulled", rollout.image);
            Ok(Some(Trouble::passing(NOT_CREATED, message)))
        };
        let body = match document::document(self.engine, rollout, model, image).await? {
            Document::Body(body) => body,
            Document::Unknown(message) => return Ok(Some(Trouble::lasting(NOT_CREATED, message))),
            Document::WithoutImage => return gone(),
        };
        let Some(found) = pulls::find(self.engine, image).await? else { return gone() };
        let body = release::body(body, run.id, &rollout.image, command, &found["Config"]);
        let path = format!("/containers/create?name={}", in_query(&release::name(run, Mark::Making)));
        match self.engine.post(&path, Some(&body)).await {
            Ok(_) => Ok(None),
            // Another process has made it.
            Err(failure) if failure.is_conflict() => Ok(None),
            Err(failure) => {
                if failure.is_not_found() {
                    self.machine.pulls.forget(rollout.id.app);
                }
                Trouble::of(failure, NOT_CREATED, "Docker refuses the release command's container").map(Some)
            }
        }
    }

    /// Returns the state of a run that has a container, and goes on with a cancel that another process began.
    async fn report(&self, run: &ReleaseRun, found: Run) -> Called<ReleaseState> {
        let found = if found.is_unsealed_failure() {
            rename(self.engine, found.container.id(), &release::name(run, Mark::Failed)).await?;
            match find(self.engine, run).await? {
                Some(found) => found,
                None => return Ok(ReleaseState::Unknown),
            }
        } else {
            found
        };
        let container = &found.container;
        if container.is_up() && found.mark == Mark::Cancelled {
            self.machine.stop(self.engine, container.id());
        }
        if container.process() != Process::Ended {
            return Ok(found.state(None, Vec::new()));
        }
        let digest = self.digest(&found).await?;
        let succeeded = found.state(digest, Vec::new());
        if matches!(succeeded, ReleaseState::Succeeded { .. }) {
            return Ok(succeeded);
        }
        let log = tokio::time::timeout(COLLECT, log::last_lines(self.engine, container.id())).await;
        Ok(found.state(None, log.unwrap_or_default()))
    }

    async fn digest(&self, run: &Run) -> Called<Option<rollhook_core::image::Digest>> {
        let Some(image) = run.image() else { return Ok(None) };
        let found = pulls::find(self.engine, run.container.image_id()).await?;
        Ok(found.and_then(|found| origin::digest(&found, &image)))
    }

    async fn start(&self, run: &ReleaseRun) -> Result<()> {
        let Some(found) = find(self.engine, run).await?.filter(Run::may_start) else { return Ok(()) };
        let Some(mark) = found.mark.next_start() else { return Ok(()) };
        let name = release::name(run, mark);
        if !rename(self.engine, found.container.name(), &name).await? {
            return Ok(());
        }
        // No other attempt that is late starts it from here on; one may have before.
        let again = find(self.engine, run).await?;
        let is_same = |again: &Run| again.container.id() == found.container.id() && again.mark == mark;
        if !again.is_some_and(|again| is_same(&again) && again.may_start()) {
            return Ok(());
        }
        // The deadline of this call does not end the engine's: a start that is answered late is not taken for one that
        // never arrived.
        let engine = self.engine.clone();
        let started = tokio::spawn(async move {
            engine.bytes(Method::POST, &format!("/containers/{}/start", in_path(&name)), None).await
        });
        match started.await {
            Ok(Err(failure)) if failure.refusal().is_none() => Err(failure.into()),
            Ok(Err(failure)) => {
                // The engine keeps the error with the container.
                let error = failure.words();
                tracing::debug!(app = %run.app, revision = %run.id.revision, error, "starting a release command failed");
                Ok(())
            }
            Ok(Ok(_)) => Ok(()),
            Err(error) => Err(Error::unavailable("starting a release command broke off", error)),
        }
    }

    async fn cancel(&self, run: &ReleaseRun) -> Result<()> {
        self.releases.change(run.id, |known| known.is_cancelled = true);
        if self.releases.is_cancelled(run.id) && self.machine.pulls.known(run.id).is_some() {
            self.machine.pulls.forget(run.id.app);
        }
        let Some(found) = find(self.engine, run).await? else { return Ok(()) };
        let container = found.container.id();
        if found.container.process() == Process::Ended || found.mark == Mark::Failed {
            return Ok(());
        }
        if found.mark != Mark::Cancelled
            && !rename(self.engine, container, &release::name(run, Mark::Cancelled)).await?
        {
            return Err(Error::Conflict(Entity::Object));
        }
        // A start that came before the new name has made it run.
        if find(self.engine, run).await?.is_some_and(|found| found.container.is_up()) {
            self.machine.stop(self.engine, container);
        }
        Ok(())
    }

    async fn log(&self, run: &ReleaseRun, from: u64) -> Called<Option<Vec<u8>>> {
        match find(self.engine, run).await?.filter(Run::has_begun) {
            Some(found) => log::part(self.engine, found.container.id(), from).await,
            None => Ok(None),
        }
    }

    async fn remove_outdated(&self, ready: &ReleaseRun) {
        let removed = async {
            for container in release::outdated(&list(self.engine).await?, ready) {
                remove(self.engine, &container).await?;
            }
            Called::Ok(())
        };
        if let Err(failure) = removed.await {
            let error = rollhook_core::error::chain(&failure);
            tracing::debug!(app = %ready.app, error, "removing containers of old release commands failed");
        }
    }
}

/// Removes the ended runs of an app, and ends those that go on.
pub(crate) async fn forget(engine: &Engine, releases: &Releases, app: &App) -> Called<()> {
    lock(&releases.preparations).remove(&app.uid);
    let (running, others) = release::of_app(&list(engine).await?, &app.id, app.uid);
    for container in others {
        remove(engine, &container).await?;
    }
    for container in running {
        let engine = engine.clone();
        tokio::spawn(async move {
            let path = format!("/containers/{}/stop", in_path(&container));
            let stopped = engine.bytes(Method::POST, &path, None).await.map(drop);
            let removed = match stopped {
                Ok(()) => remove(&engine, &container).await,
                Err(failure) if failure.is_not_found() => Ok(()),
                Err(failure) => Err(failure),
            };
            if let Err(failure) = removed {
                let error = rollhook_core::error::chain(&failure);
                tracing::warn!(container, error, "ending the release command of a deleted app failed");
            }
        });
    }
    Ok(())
}

/// Returns the run's container; `None` if it has none.
async fn find(engine: &Engine, run: &ReleaseRun) -> Called<Option<Run>> {
    let label = [format!("{RELEASE}={}", run.id)];
    let listed = engine.get(&format!("/containers/json?all=true&{}", filters(&[("label", &label)]))).await?;
    let mut runs = Vec::new();
    for listed in listed.as_array().into_iter().flatten().filter_map(|listed| listed["Id"].as_str()) {
        let found = engine.find(&format!("/containers/{}/json", in_path(listed))).await?;
        runs.extend(found.and_then(|object| Run::of(run, object)));
    }
    Ok(release::deciding(runs))
}

/// Returns the containers of all runs, as the engine lists them.
async fn list(engine: &Engine) -> Called<Vec<Value>> {
    let label = [RELEASE.to_owned()];
    let listed = engine.get(&format!("/containers/json?all=true&{}", filters(&[("label", &label)]))).await?;
    Ok(listed.as_array().cloned().unwrap_or_default())
}

/// Renames a container, by its id or name. Returns `false` if there is none, or the new name is taken.
async fn rename(engine: &Engine, container: &str, name: &str) -> Called<bool> {
    let path = format!("/containers/{}/rename?name={}", in_path(container), in_query(name));
    match engine.post(&path, None).await {
        Ok(_) => Ok(true),
        Err(failure) if failure.is_not_found() || failure.is_conflict() => Ok(false),
        Err(failure) => Err(failure),
    }
}

/// Removes a container that does not run, with the volumes that only it has; one that runs by now stays.
pub(crate) async fn remove(engine: &Engine, container: &str) -> Called<()> {
    match engine.delete(&format!("/containers/{}?v=true", in_path(container))).await {
        Err(failure) if failure.is_conflict() => Ok(()),
        removed => removed,
    }
}

impl DockerMachine {
    fn runner(&self) -> Runner<'_> {
        Runner { engine: &self.engine, machine: &self.machine, releases: &self.releases }
    }
}

#[async_trait]
impl ReleaseRunner for DockerMachine {
    async fn prepare(&self, spec: &ReleaseSpec) -> Result<ReleaseState> {
        bounded(self.runner().prepare(spec)).await
    }

    async fn start(&self, run: &ReleaseRun) -> Result<()> {
        bounded(self.runner().start(run)).await
    }

    async fn observe(&self, run: &ReleaseRun) -> Result<ReleaseState> {
        bounded(self.runner().observe(run)).await
    }

    async fn cancel(&self, run: &ReleaseRun) -> Result<()> {
        bounded(self.runner().cancel(run)).await
    }

    async fn changed(&self, _run: &ReleaseRun) {
        drop(tokio::time::timeout(LOOK, self.watch.changed(&self.engine)).await);
    }

    async fn log(&self, run: &ReleaseRun, from: u64) -> Result<Option<Vec<u8>>> {
        bounded(async { Ok(self.runner().log(run, from).await?) }).await
    }
}
