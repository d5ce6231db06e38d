//! Runs commands, each in a container of its own: release commands, those by hand, and those of checks.
//!
//! ```text
//! prepare: pull, create NAME.making, join networks ─► NAME
//! start:   NAME ─► NAME.start-A, read again, start by that name
//! cancel:  any ─► NAME.cancelled, read again, stop if it runs, kill if that takes too long
//! ```
//!
//! The engine's containers are the only record of runs; [`rules::release`](crate::rules::release) says how their names keep
//! a command from running twice. The engine looks a name up before it waits for the container, so that a call may still act
//! on one that was renamed meanwhile: each rename is followed by a moment in which such calls end, and by another reading.
//! What is left is an engine that is killed after it has begun a command, and before it has written that down.
//!
//! Until there is a container, a run is known to this process alone: its image is pulled, or could not be had.

mod log;
mod preparation;

use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use http::{Method, StatusCode};
use rollhook_core::{
    Error, Result,
    app::App,
    error::Entity,
    image::Digest,
    ports::{ReleaseRun, ReleaseRunner, ReleaseSpec, ReleaseState},
};

use self::preparation::Preparation;
pub(crate) use self::preparation::Releases;
use crate::{
    DockerMachine, LOOK,
    advance::Machine,
    engine::{Called, Engine, filters, in_path, in_query},
    error::Failure,
    pulls,
    rules::{
        container::Process,
        listed::ListedContainer,
        origin,
        release::{self, LOG_MAX, Mark, RELEASE, Run},
    },
};

/// The time after which the engine has done what it was asked to do with a container by the name that it had before.
const SETTLES: Duration = Duration::from_millis(200);
/// The time to read the last lines of a log, which are left out if that takes longer.
const COLLECT: Duration = Duration::from_secs(5);
/// The longest time in which the engine ends a command, with the command's grace; and in which it kills one.
const END_MAX: Duration = Duration::from_secs(30);

/// The engine, with this process's work on it.
struct Runner<'a> {
    engine: &'a Engine,
    machine: &'a Machine,
    releases: &'a Releases,
}

impl Runner<'_> {
    async fn observe(&self, run: &ReleaseRun) -> Result<ReleaseState> {
        match find(self.engine, run).await? {
            Some(found) if found.mark != Mark::Making => Ok(self.report(run, found).await?),
            Some(_) | None => self.advance(run).await,
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
            self.end(container.id());
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

    async fn digest(&self, run: &Run) -> Called<Option<Digest>> {
        let Some(image) = run.image() else { return Ok(None) };
        let found = pulls::find(self.engine, run.container.image_id()).await?;
        Ok(found.and_then(|found| origin::digest(&found, &image)))
    }

    async fn start(&self, run: &ReleaseRun) -> Result<()> {
        let Some(found) = find(self.engine, run).await?.filter(Run::may_start) else { return Ok(()) };
        let mark = Mark::new_start();
        let name = release::name(run, mark);
        if !rename(self.engine, found.container.name(), &name).await? {
            return Ok(());
        }
        // No other attempt that is late starts it from here on; one may have before.
        tokio::time::sleep(SETTLES).await;
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
                tracing::debug!(app = %run.app, run = %run.id.kind, error, "starting a release command failed");
                Ok(())
            }
            Ok(Ok(_)) => Ok(()),
            Err(error) => Err(Error::unavailable("starting a release command broke off", error)),
        }
    }

    async fn cancel(&self, run: &ReleaseRun) -> Result<()> {
        self.releases.change(run.id, Preparation::cancel);
        if self.releases.is_cancelled(run.id) && self.pulls(run.id).known(run.deploy_id()).is_some() {
            self.pulls(run.id).forget(run.id.app);
        }
        let Some(found) = find(self.engine, run).await? else { return Ok(()) };
        let container = found.container.id();
        if found.container.process() == Process::Ended || (found.mark == Mark::Failed && !found.has_begun()) {
            return Ok(());
        }
        if found.mark != Mark::Cancelled {
            // Another process may have done so.
            rename(self.engine, container, &release::name(run, Mark::Cancelled)).await?;
            tokio::time::sleep(SETTLES).await;
        }
        match find(self.engine, run).await? {
            // A start that came before the new name has made it run.
            Some(found) if found.mark == Mark::Cancelled && found.container.is_up() => {
                self.end(found.container.id());
                Ok(())
            }
            Some(found) if found.mark == Mark::Cancelled || found.container.process() == Process::Ended => Ok(()),
            // A start that came before has renamed it after.
            Some(_) => Err(Error::Conflict(Entity::Object)),
            None => Ok(()),
        }
    }

    /// Ends a command in the background, unless that is under way. An observation repeats what has come to nothing.
    fn end(&self, container: &str) {
        let (engine, id, longest) = (self.engine.clone(), container.to_owned(), self.releases.end_max);
        self.machine.end(container, async move { end(&engine, &id, longest).await });
    }

    async fn log(&self, run: &ReleaseRun, from: u64) -> Called<Option<Vec<u8>>> {
        match find(self.engine, run).await?.filter(Run::has_begun) {
            Some(found) => log::part(self.engine, found.container.id(), from).await,
            None => Ok(None),
        }
    }

    async fn remove_outdated(&self, ready: &ReleaseRun) {
        let removed = async {
            let listed = list(self.engine).await?;
            let now = jiff::Timestamp::now();
            release::abandoned(&listed, ready, now).iter().for_each(|container| self.end(container));
            for container in release::outdated(&listed, ready) {
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
    releases.forget(app.uid);
    let (running, others) = release::of_app(&list(engine).await?, &app.id, app.uid);
    for container in others {
        remove(engine, &container).await?;
    }
    for container in running {
        let (engine, longest) = (engine.clone(), releases.end_max);
        tokio::spawn(async move {
            let removed = match end(&engine, &container, longest).await {
                Ok(()) => remove(&engine, &container).await,
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

/// Ends a container, which may have ended or be gone; kills it if the engine does not end it within this time.
async fn end(engine: &Engine, container: &str, longest: Duration) -> Called<()> {
    let call = async |method: &str| {
        let path = format!("/containers/{}/{method}", in_path(container));
        let answer = tokio::time::timeout(longest, engine.bytes(Method::POST, &path, None)).await;
        answer.unwrap_or_else(|late| Err(Failure::Broken(late.into()))).map(drop)
    };
    match call("stop").await {
        Ok(()) => return Ok(()),
        Err(failure) if failure.is_not_found() => return Ok(()),
        Err(failure) => {
            let error = rollhook_core::error::chain(&failure);
            tracing::debug!(container, error, "stopping a release command failed");
        }
    }
    match call("kill").await {
        // It has ended meanwhile.
        Err(failure) if failure.is_not_found() || failure.is_conflict() => Ok(()),
        killed => killed,
    }
}

/// Returns the run's container; `None` if it has none.
async fn find(engine: &Engine, run: &ReleaseRun) -> Called<Option<Run>> {
    let listed = listed(engine, format!("{RELEASE}={}", run.id)).await?;
    let mut runs = Vec::new();
    // An image may bring the label along, but no name.
    for listed in listed.iter().filter(|listed| release::is_of(run, listed)) {
        let found = engine.find(&format!("/containers/{}/json", in_path(&listed.id))).await?;
        runs.extend(found.and_then(|object| Run::of(run, object)));
    }
    Ok(release::deciding(runs))
}

/// Returns the containers of all runs, as the engine lists them.
pub(crate) async fn list(engine: &Engine) -> Called<Vec<ListedContainer>> {
    listed(engine, RELEASE.to_owned()).await
}

async fn listed(engine: &Engine, label: String) -> Called<Vec<ListedContainer>> {
    engine.typed(&format!("/containers/json?all=true&{}", filters(&[("label", &[label])]))).await
}

/// Renames a container, by its id or name. Returns `false` if there is none, the new name is taken, or it has that name.
async fn rename(engine: &Engine, container: &str, name: &str) -> Called<bool> {
    let path = format!("/containers/{}/rename?name={}", in_path(container), in_query(name));
    match engine.post(&path, None).await {
        Ok(_) => Ok(true),
        Err(failure) if failure.is_not_found() || failure.is_conflict() => Ok(false),
        Err(failure) if failure.is(StatusCode::BAD_REQUEST) => Ok(false),
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
    fn runner<'a>(&'a self, engine: &'a Engine) -> Runner<'a> {
        Runner { engine, machine: &self.machine, releases: &self.releases }
    }
}

#[async_trait]
impl ReleaseRunner for DockerMachine {
    async fn prepare(&self, spec: &ReleaseSpec) -> Result<ReleaseState> {
        let call = |engine| -> BoxFuture<'_, _> { Box::pin(async move { self.runner(&engine).prepare(spec).await }) };
        self.in_turn(&spec.run.app.namespace, call).await
    }

    async fn start(&self, run: &ReleaseRun) -> Result<()> {
        let call = |engine| -> BoxFuture<'_, _> { Box::pin(async move { self.runner(&engine).start(run).await }) };
        self.in_turn(&run.app.namespace, call).await
    }

    async fn observe(&self, run: &ReleaseRun) -> Result<ReleaseState> {
        let call = |engine| -> BoxFuture<'_, _> { Box::pin(async move { self.runner(&engine).observe(run).await }) };
        self.in_turn(&run.app.namespace, call).await
    }

    async fn cancel(&self, run: &ReleaseRun) -> Result<()> {
        let call = |engine| -> BoxFuture<'_, _> { Box::pin(async move { self.runner(&engine).cancel(run).await }) };
        self.in_turn(&run.app.namespace, call).await
    }

    async fn changed(&self, _run: &ReleaseRun) {
        drop(tokio::time::timeout(LOOK, self.watch.changed(&self.engine)).await);
    }

    async fn log(&self, run: &ReleaseRun, from: u64) -> Result<Option<Vec<u8>>> {
        if from >= LOG_MAX {
            return Ok(Some(Vec::new()));
        }
        // The deadline is the engine's, and not that of others who read before.
        let _slot = self.releases.log_reads.acquire(&run.app.namespace).await;
        let call =
            |engine| -> BoxFuture<'_, _> { Box::pin(async move { Ok(self.runner(&engine).log(run, from).await?) }) };
        self.in_turn(&run.app.namespace, call).await
    }
}

#[cfg(test)]
mod tests;
