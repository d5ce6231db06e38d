//! Takes the steps of a rollout: read, decide, one change; and again, until there is something to wait for.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
};

use http::{Method, StatusCode};
use rollhook_command::DiskLimits;
use rollhook_core::{
    Error, Result,
    app::AppUid,
    deploy::Reason,
    error::Entity,
    ports::{Applied, Observation, Purpose},
};
use serde_json::{Value, json};

use crate::{
    disk,
    document::{self, Document},
    engine::{Called, Engine, in_path, in_query},
    exits, lock,
    pulls::{self, Pull, Pulls},
    readiness::Readiness,
    refusals::Refusals,
    rules::{
        container::{Container, KEEPS, Process, REPLACES, Seen},
        fence, observation,
        observation::Work,
        origin, plan,
        plan::{Facts, Step},
        recreation, rest,
    },
    settings::Rollout,
    target,
};

/// The number of steps of one call; the next call takes the others.
const STEPS: u32 = 16;
/// The number of containers that are remembered as watched; one that is forgotten is started once more.
const WATCHED: usize = 1000;

/// The work of this process on the machine. Nothing of it is stored: the next process finds all it needs on the engine.
#[derive(Default)]
pub(crate) struct Machine {
    pub(crate) pulls: Pulls,
    readiness: Readiness,
    /// Containers that were told to end, and have not yet.
    stopping: Arc<Mutex<HashSet<String>>>,
    /// Containers that this process has started, or seen running: the count of the engine's outages at that time.
    watched: Mutex<HashMap<String, u64>>,
    /// Starts of containers that failed.
    starts: Refusals,
    /// The engine's refusals to make a deploy's container, or to connect it.
    refusals: Refusals,
    pub(crate) disk: DiskLimits,
}

impl Machine {
    /// Forgets what is known of an app.
    pub(crate) fn forget(&self, app: AppUid) {
        self.pulls.forget(app);
        self.forget_targets(app);
    }

    /// Forgets what is known of an app's targets.
    pub(crate) fn forget_targets(&self, app: AppUid) {
        self.refusals.forget(app);
        self.starts.forget(app);
    }

    /// Applies a rollout.
    pub(crate) async fn apply(&self, engine: &Engine, rollout: &Rollout) -> Result<Applied> {
        let seen = target::read(engine, &rollout.workload).await?;
        let rollout = &rest::resting(&seen, rollout);
        let answer = match fence::decide(&seen, rollout).answer() {
            Some(answer) => answer,
            None => match self.refused(engine, &seen, rollout).await? {
                Some(refused) => refused,
                None => match self.claim(engine, &seen, rollout).await? {
                    Some(answer) => answer,
                    None => return Err(Error::Conflict(Entity::Object)),
                },
            },
        };
        if answer == Applied::Done {
            self.pulls.supersede(rollout.id);
        }
        if answer == Applied::Done && !rollout.adopted {
            // The claim stands: what fails now is for an observation to report.
            if let Err(failure) = self.advance(engine, rollout).await {
                let error = rollhook_core::error::chain(&failure);
                tracing::debug!(app = %rollout.app, error, "beginning a rollout failed");
            }
        }
        Ok(answer)
    }

    /// Returns the refusal of a deploy of which nothing would come, before the target is touched.
    async fn refused(&self, engine: &Engine, seen: &Seen, rollout: &Rollout) -> Called<Option<Applied>> {
        match target::unmakeable(engine, seen, rollout).await? {
            Some((reason, message)) => Ok(Some(Applied::Refused { reason, message })),
            None => Ok(self.full(engine, rollout).await),
        }
    }

    /// Returns the refusal of a deploy whose image would have to be pulled onto a disk that is nearly full. Who goes back
    /// is never refused, and a disk whose space is unknown counts as one that has room.
    pub(crate) async fn full(&self, engine: &Engine, rollout: &Rollout) -> Option<Applied> {
        if rollout.purpose != Purpose::Deploy || !matches!(pulls::local(engine, rollout).await, Ok(None)) {
            return None;
        }
        let message = disk::refusal(engine, self.disk).await?;
        let message = format!("the image {} was not pulled: {message}", rollout.image);
        Some(Applied::Refused { reason: Reason::new(Reason::DISK_FULL), message })
    }

    /// Adds the deploy's claim, and returns what the target carries then; `None` if the claim is gone again.
    async fn claim(&self, engine: &Engine, seen: &Seen, rollout: &Rollout) -> Result<Option<Applied>> {
        let name = recreation::claim_name(rollout);
        let mut labels = recreation::stamp(rollout).labels(&rollout.workload.key());
        labels.extend(target::kept(engine, seen, rollout).await?.map(|container| (KEEPS, container.id().to_owned())));
        engine.post("/volumes/create", Some(&json!({ "Name": name, "Labels": labels }))).await?;
        let answer = fence::decide(&target::read(engine, &rollout.workload).await?, rollout).answer();
        if answer.as_ref().is_some_and(|answer| *answer != Applied::Done) {
            engine.delete(&format!("/volumes/{}", in_path(&name))).await?;
        }
        Ok(answer)
    }

    /// Takes the next steps, and returns the observation after them.
    pub(crate) async fn observe(&self, engine: &Engine, rollout: &Rollout) -> Result<Observation> {
        let (seen, step, facts, unready) = self.advance(engine, rollout).await?;
        let rollout = &rest::resting(&seen, rollout);
        let own = observation::own(&seen, rollout);
        let complete = step == Step::Complete || rollout.adopted;
        let digest = match own.filter(|_| complete) {
            Some(own) => self.digest(engine, own, rollout).await?,
            None => None,
        };
        let last_exit = match own.filter(|_| !complete && facts.ready_for.is_none()) {
            Some(own) => exits::last(engine, own).await,
            None => None,
        };
        let work = Work { unready, last_exit, now: jiff::Timestamp::now(), ..self.work(rollout) };
        Ok(observation::observe(&seen, rollout, &step, facts, &work, digest))
    }

    async fn digest(
        &self,
        engine: &Engine,
        container: &Container,
        rollout: &Rollout,
    ) -> Called<Option<rollhook_core::image::Digest>> {
        let image = pulls::find(engine, container.image_id()).await?;
        Ok(image.and_then(|image| origin::digest(&image, &rollout.image)))
    }

    fn work(&self, rollout: &Rollout) -> Work {
        let create_error = self.refusals.message(rollout);
        match self.pulls.known(rollout.id) {
            Some(Pull::Running(progress)) => Work { pull: Some(progress), create_error, ..Work::default() },
            Some(Pull::Failed(error, _)) => Work { pull_error: Some(error), create_error, ..Work::default() },
            Some(Pull::There(_) | Pull::Absent) | None => Work { create_error, ..Work::default() },
        }
    }

    /// Takes steps until there is something to wait for. Returns also what the container answered if it is not ready.
    async fn advance(&self, engine: &Engine, rollout: &Rollout) -> Called<(Seen, Step, Facts, Option<String>)> {
        let mut taken = 0;
        loop {
            let seen = target::read(engine, &rollout.workload).await?;
            let rollout = &rest::resting(&seen, rollout);
            let (facts, unready) = self.facts(engine, &seen, rollout).await?;
            let step = plan::next(&seen, rollout, facts);
            taken += 1;
            if taken > STEPS || !self.take(engine, rollout, &step).await? {
                return Ok((seen, step, facts, unready));
            }
        }
    }

    async fn facts(&self, engine: &Engine, seen: &Seen, rollout: &Rollout) -> Called<(Facts, Option<String>)> {
        let Some(own) = observation::own(seen, rollout) else {
            let is_ours = fence::carried(seen) == Some(rollout.id);
            let pull = if is_ours { self.pulls.look(engine, rollout).await? } else { Pull::Absent };
            return Ok((Facts { has_image: matches!(pull, Pull::There(_)), ..Facts::default() }, None));
        };
        if rollout.rests {
            return Ok((Facts { has_image: true, ..Facts::default() }, None));
        }
        let may_start = self.starts.may_call(rollout, own.id());
        let ready_for = self.readiness.look(own, rollout).await;
        let is_drained = ready_for.is_ok() && self.readiness.is_drained(own);
        let ended_unseen = self.ended_unseen(engine, own);
        let facts =
            Facts { has_image: true, ready_for: ready_for.as_ref().ok().copied(), is_drained, may_start, ended_unseen };
        Ok((facts, ready_for.err().flatten()))
    }

    /// Whether the container ended while this process did not watch it: before it was started, or while the engine was
    /// away, which may have been what ended it.
    fn ended_unseen(&self, engine: &Engine, own: &Container) -> bool {
        match own.process() {
            Process::Running | Process::Restarting => self.watches(engine, own.id()),
            Process::Created => {}
            Process::Ended => return lock(&self.watched).get(own.id()) != Some(&engine.outages()),
        }
        false
    }

    fn watches(&self, engine: &Engine, container: &str) {
        let mut watched = lock(&self.watched);
        if watched.len() >= WATCHED {
            watched.clear();
        }
        watched.insert(container.to_owned(), engine.outages());
    }

    /// Takes a step. Returns whether the next one may follow at once.
    async fn take(&self, engine: &Engine, rollout: &Rollout, step: &Step) -> Called<bool> {
        match step {
            Step::Wait | Step::Complete => Ok(false),
            Step::Pull => {
                self.pulls.begin(engine, rollout);
                Ok(false)
            }
            Step::Create(model) => self.create(engine, rollout, model.as_deref()).await,
            Step::Connect { network, container, endpoint } => {
                let path = format!("/networks/{}/connect", in_path(network));
                let body = json!({ "Container": container, "EndpointConfig": endpoint });
                self.may_be_refused(rollout, engine.post(&path, Some(&body)).await)
            }
            Step::ClaimReplacement => {
                let mut labels = recreation::stamp(rollout).labels(&rollout.workload.key());
                labels.insert(REPLACES, "true".to_owned());
                let claim = json!({ "Name": recreation::replacing_claim_name(rollout), "Labels": labels });
                engine.post("/volumes/create", Some(&claim)).await?;
                Ok(true)
            }
            Step::Start(container) => self.start(engine, rollout, container).await,
            Step::Stop(containers) => {
                containers.iter().for_each(|container| self.stop(engine, container));
                Ok(false)
            }
            Step::TakeName { container, name, holder } => {
                if let Some((holder, aside)) = holder
                    && !rename(engine, holder, aside).await?
                {
                    return Ok(false);
                }
                rename(engine, container, name).await
            }
            Step::Remove(containers) => {
                for container in containers {
                    let path = format!("/containers/{}?force=true", in_path(container));
                    if !passing(engine.delete(&path).await.map(|()| Value::Null))? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Step::Release(claims) => {
                for claim in claims {
                    engine.delete(&format!("/volumes/{}", in_path(claim))).await?;
                }
                Ok(true)
            }
        }
    }

    async fn create(&self, engine: &Engine, rollout: &Rollout, model: Option<&Container>) -> Called<bool> {
        let Pull::There(image) = self.pulls.look(engine, rollout).await? else { return Ok(false) };
        if !self.refusals.may_call(rollout, "") {
            return Ok(false);
        }
        let body = match document::document(engine, rollout, model, &image).await? {
            Document::Body(body) => body,
            Document::Unknown(message) => {
                self.refusals.note(rollout, "", &message);
                return Ok(false);
            }
            Document::WithoutImage => {
                self.pulls.forget(rollout.id.app);
                return Ok(false);
            }
        };
        let last = model.map_or(rollout.workload.name.as_str(), Container::final_name);
        let name = recreation::name(last, rollout.id);
        let made = engine.post(&format!("/containers/create?name={}", in_query(&name)), Some(&body)).await;
        match made {
            Err(failure) if failure.is_not_found() => {
                // The image went after it was pulled, or another part is missing, such as a network.
                self.pulls.forget(rollout.id.app);
                self.may_be_refused(rollout, Err(failure))
            }
            // Another process has made it.
            Err(failure) if failure.is_conflict() => Ok(true),
            made => self.may_be_refused(rollout, made),
        }
    }

    /// Keeps the engine's refusal of a deploy's container, for observations.
    fn may_be_refused(&self, rollout: &Rollout, called: Called) -> Called<bool> {
        match called {
            Ok(_) => {
                self.refusals.clear(rollout);
                Ok(true)
            }
            Err(failure) => {
                let Some(message) = failure.refusal() else { return Err(failure) };
                self.refusals.note(rollout, "", message);
                Ok(false)
            }
        }
    }

    async fn start(&self, engine: &Engine, rollout: &Rollout, container: &str) -> Called<bool> {
        match engine.post(&format!("/containers/{}/start", in_path(container)), None).await {
            Ok(_) => {
                self.starts.clear(rollout);
                self.watches(engine, container);
                Ok(true)
            }
            // A newer deploy has removed it.
            Err(failure) if failure.is(StatusCode::NOT_FOUND) && failure.refusal().is_some_and(is_gone) => Ok(true),
            Err(failure) => {
                let Some(message) = failure.refusal() else { return Err(failure) };
                tracing::debug!(app = %rollout.app, error = message, "starting a container failed");
                // The engine keeps the error with the container.
                self.starts.note(rollout, container, message);
                Ok(false)
            }
        }
    }

    /// Tells a container to end, with the time that it asks for, which may be longer than a call.
    pub(crate) fn stop(&self, engine: &Engine, container: &str) {
        let engine = engine.clone();
        let path = format!("/containers/{}/stop", in_path(container));
        self.end(container, async move { engine.bytes(Method::POST, &path, None).await.map(drop) });
    }

    /// Ends a container by this call, unless another one that ends it is under way.
    pub(crate) fn end(&self, container: &str, call: impl Future<Output = Called<()>> + Send + 'static) {
        if !lock(&self.stopping).insert(container.to_owned()) {
            return;
        }
        let (stopping, container) = (self.stopping.clone(), container.to_owned());
        tokio::spawn(async move {
            if let Err(failure) = call.await
                && !failure.is_not_found()
            {
                let error = rollhook_core::error::chain(&failure);
                tracing::debug!(container, error, "stopping a container failed");
            }
            lock(&stopping).remove(&container);
        });
    }
}

async fn rename(engine: &Engine, container: &str, name: &str) -> Called<bool> {
    passing(engine.post(&format!("/containers/{}/rename?name={}", in_path(container), in_query(name)), None).await)
}

fn is_gone(message: &str) -> bool {
    message.contains("No such container")
}

/// A change that another process makes at the same time is no failure: all is read again.
fn passing(called: Called) -> Called<bool> {
    match called {
        Ok(_) => Ok(true),
        Err(failure) if failure.is_not_found() || failure.is_conflict() => Ok(false),
        Err(failure) => Err(failure),
    }
}
