//! Images: which one a deploy means, and pulling it beside the calls of the port, which must answer at once.

use std::{
    collections::HashMap,
    pin::pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::future::{Either, select};
use http::Method;
use http_body_util::BodyExt;
use rollhook_command::Slots;
use rollhook_core::{
    app::AppUid,
    image::ImageRef,
    ports::{DeployId, Purpose},
};
use serde_json::Value;
use tokio::{task::AbortHandle, time::Instant};

use crate::{
    engine::{Called, Engine, in_path, in_query},
    layers::Layers,
    lock, logins,
    rules::{
        images::StoredImage,
        origin::{self, Origin},
    },
    settings::Rollout,
};

/// How many images are pulled at once, in turns of the environments.
const AT_ONCE: usize = 3;
/// How many of them are one environment's: those of another one wait for no pull that a slow registry draws out.
const OF_ENVIRONMENT: usize = 2;
/// How long a registry may send nothing.
const SILENCE: Duration = Duration::from_secs(60);
/// How long a pull may last. As a rule, the app's deadline ends the deploy before that, but not its pull.
const WHOLE: Duration = Duration::from_secs(30 * 60);
/// How long a pull goes on without being asked about. A deploy that rolls out is observed every few seconds; the pull of
/// one that is over would keep others waiting.
const UNASKED: Duration = Duration::from_secs(30);
/// The pause before an image that could not be pulled is tried again.
const AGAIN: Duration = Duration::from_secs(5);
/// The longest line of progress that is read.
const LINE_MAX: usize = 1024 * 1024;

/// The state of an image that a deploy needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pull {
    /// The image is on this machine, under this name or id.
    There(String),
    /// The image is being pulled; the text says how far, for people.
    Running(String),
    /// The pull failed, for this reason, in the registry's words.
    Failed(String, Instant),
    /// Nothing is known, and no pull was begun.
    Absent,
}

struct Entry {
    id: DeployId,
    state: Arc<Mutex<Pull>>,
    /// The time at which the deploy asked for the image last.
    asked: Arc<Mutex<Instant>>,
    task: Option<AbortHandle>,
}

/// The images that deploys of this process need.
pub(crate) struct Pulls {
    entries: Mutex<HashMap<AppUid, Entry>>,
    slots: Slots,
}

impl Default for Pulls {
    fn default() -> Self {
        Self::sharing(Slots::with_share(AT_ONCE, OF_ENVIRONMENT))
    }
}

impl Pulls {
    fn sharing(slots: Slots) -> Self {
        Self { entries: Mutex::default(), slots }
    }

    /// Returns other pulls, which take turns with these.
    pub(crate) fn beside(&self) -> Self {
        Self::sharing(self.slots.clone())
    }

    /// Returns the state of a deploy's image.
    pub(crate) async fn look(&self, engine: &Engine, rollout: &Rollout) -> Called<Pull> {
        if let Some(known) = self.known(rollout.id) {
            return Ok(known);
        }
        let there = local(engine, rollout).await?;
        Ok(there.map_or(Pull::Absent, Pull::There))
    }

    /// Returns what this process knows of a deploy's image.
    pub(crate) fn known(&self, id: DeployId) -> Option<Pull> {
        let entries = lock(&self.entries);
        entries.get(&id.app).filter(|entry| entry.id == id).map(|entry| lock(&entry.state).clone())
    }

    /// Begins to pull a deploy's image, unless that is under way or has just failed. The pull of another deploy of the
    /// app is given up.
    pub(crate) fn begin(&self, engine: &Engine, rollout: &Rollout) {
        let mut entries = lock(&self.entries);
        if let Some(entry) = entries.get(&rollout.id.app).filter(|entry| entry.id == rollout.id) {
            *lock(&entry.asked) = Instant::now();
            if entry.task.as_ref().is_some_and(|task| !task.is_finished()) {
                return;
            }
            match &*lock(&entry.state) {
                Pull::There(_) => return,
                Pull::Failed(_, at) if at.elapsed() < AGAIN => return,
                Pull::Failed(..) | Pull::Running(_) | Pull::Absent => {}
            }
        }
        let before = entries.remove(&rollout.id.app);
        // An image that failed stays failed until the next attempt is decided.
        let state = match &before {
            Some(entry) if entry.id == rollout.id => entry.state.clone(),
            _ => Arc::new(Mutex::new(Pull::Running("waiting for its turn".to_owned()))),
        };
        if let Some(task) = before.and_then(|entry| entry.task) {
            task.abort();
        }
        let (image, purpose) = (rollout.image.clone(), rollout.purpose);
        let environment = rollout.app.namespace.clone();
        let (engine, slots, told) = (engine.clone(), self.slots.clone(), state.clone());
        let again = matches!(*lock(&state), Pull::Failed(..));
        let asked = Arc::new(Mutex::new(Instant::now()));
        let last_asked = asked.clone();
        let whole = async move {
            let _slot = slots.acquire(&environment).await;
            let ended = pull(&engine, &image, purpose, |progress| {
                if !again {
                    *lock(&told) = Pull::Running(progress);
                }
            });
            let ended = tokio::time::timeout(WHOLE, ended).await.unwrap_or_else(|_| Err(too_long()));
            if let Err(error) = &ended {
                tracing::debug!(%image, error, "pulling an image failed");
            }
            *lock(&told) = match ended {
                Ok(name) => Pull::There(name),
                Err(message) => Pull::Failed(message, Instant::now()),
            };
        };
        let app = rollout.app.clone();
        let task = tokio::spawn(async move {
            if let Either::Right(_) = select(pin!(whole), pin!(unasked(&last_asked))).await {
                tracing::debug!(%app, "gave up a pull that no deploy waits for");
            }
        });
        entries.insert(rollout.id.app, Entry { id: rollout.id, state, asked, task: Some(task.abort_handle()) });
    }

    /// Gives up the pull of an older deploy of the app, whose image is of no use once this deploy was applied.
    pub(crate) fn supersede(&self, by: DeployId) {
        let mut entries = lock(&self.entries);
        if entries.get(&by.app).is_some_and(|entry| entry.id.revision < by.revision)
            && let Some(task) = entries.remove(&by.app).and_then(|entry| entry.task)
        {
            task.abort();
        }
    }

    /// Forgets the state of an app's image, such as one that was removed after it was pulled.
    pub(crate) fn forget(&self, app: AppUid) {
        if let Some(task) = lock(&self.entries).remove(&app).and_then(|entry| entry.task) {
            task.abort();
        }
    }
}

/// Returns once the deploy has not asked for its image for a while.
async fn unasked(asked: &Mutex<Instant>) {
    loop {
        let until = *lock(asked) + UNASKED;
        if until <= Instant::now() {
            return;
        }
        tokio::time::sleep_until(until).await;
    }
}

/// Returns the name or id of a deploy's image where it is on this machine and needs no pull: one with a digest, or one that
/// was made here, and neither pulled from nor pushed to its repository. A tag of a registry may have moved.
pub(crate) async fn local(engine: &Engine, rollout: &Rollout) -> Called<Option<String>> {
    let image = &rollout.image;
    let meant = async |name: &str| {
        let found = find(engine, name).await?;
        Called::Ok(found.filter(|found| origin::is_meant(found, image, rollout.purpose)))
    };
    let Some(digest) = image.digest() else {
        let Some(found) = meant(&image.to_string()).await? else { return Ok(None) };
        let is_here = origin::origin(&found, image, &engine.get("/version").await?) == Origin::Here;
        return Ok(is_here.then(|| image.to_string()));
    };
    let name = format!("{}@{digest}", image.repository());
    if meant(&name).await?.is_some() {
        // Lists of containers show the tag, and the engine takes the digest.
        return Ok(Some(image.to_string()));
    }
    let id = digest.to_string();
    if meant(&id).await?.is_none() {
        return Ok(None);
    }
    // People read the tag in lists of containers; it serves as long as it means these bits.
    let tagged = image.tag().map(|tag| format!("{}:{tag}", image.repository()));
    let Some(tagged) = tagged else { return Ok(Some(id)) };
    let is_same = find(engine, &tagged).await?.is_some_and(|found| found.id == id);
    Ok(Some(if is_same { tagged } else { id }))
}

/// Returns whether an image needs no registry: one that is here by its digest, or that was made here.
pub(crate) async fn is_stored(engine: &Engine, image: &ImageRef) -> Called<bool> {
    let Some(digest) = image.digest() else {
        let Some(found) = find(engine, &image.to_string()).await? else { return Ok(false) };
        return Ok(match origin::origin(&found, image, &engine.get("/version").await?) {
            Origin::Here => true,
            // A pull of it is refused: it may be of this machine, and another one of that name elsewhere.
            Origin::Unknown => origin::is_bare(image),
            Origin::Repository => false,
        });
    };
    let by_digest = find(engine, &format!("{}@{digest}", image.repository())).await?;
    Ok(by_digest.is_some() || find(engine, digest.as_str()).await?.is_some())
}

/// Returns an image of the machine by its name or id, without its configuration; `None` if it is not there.
pub(crate) async fn find(engine: &Engine, image: &str) -> Called<Option<StoredImage>> {
    engine.find_typed(&path(image)).await
}

/// Returns the configuration of an image, as it brings it to containers; `None` if the image is not there.
pub(crate) async fn configuration(engine: &Engine, image: &str) -> Called<Option<Value>> {
    let found = engine.find(&path(image)).await?;
    Ok(found.map(|mut image| image["Config"].take()))
}

fn path(image: &str) -> String {
    format!("/images/{}/json", in_path(image))
}

/// Pulls an image, and returns its name; or the reason why it cannot be had, in the registry's words.
async fn pull(engine: &Engine, image: &ImageRef, purpose: Purpose, told: impl Fn(String)) -> Result<String, String> {
    if let Some(digest) = image.digest() {
        let other = find(engine, &digest.to_string()).await.map_err(|failure| failure.words())?;
        let other = other.filter(|other| !origin::is_meant(other, image, purpose));
        let downloaded = download(engine, image, told).await;
        let Some(_) = other else { return downloaded };
        let repository = image.repository();
        return downloaded.map_err(|error| {
            format!(
                "{error} (the image on this machine with this id has no name in {repository}; docker tag gives it one)"
            )
        });
    }
    let there = find(engine, &image.to_string()).await.map_err(|failure| failure.words())?;
    let there = there.filter(|there| origin::is_meant(there, image, purpose));
    let Some(there) = there else { return download(engine, image, told).await };
    let by_digest = origin::digest(&there, image).map(|digest| format!("{}@{digest}", image.repository()));
    let by_digest = by_digest.unwrap_or_default();
    let version = engine.get("/version").await.map_err(|failure| failure.words())?;
    if origin::is_bare(image) && origin::origin(&there, image, &version) == Origin::Unknown {
        // Docker Hub may have an image of this name that is another party's.
        return Err(format!(
            "Docker does not tell whether the one on this machine was built here or pulled; deploy that one as \
             {by_digest}, or Docker Hub's as docker.io/{image}"
        ));
    }
    let downloaded = download(engine, image, told).await;
    downloaded.map_err(|error| format!("{error} (the one of this name on this machine is {by_digest})"))
}

/// Pulls an image with the login of its registry, and returns its name; or the failure in the registry's words.
pub(crate) async fn download(engine: &Engine, image: &ImageRef, told: impl Fn(String)) -> Result<String, String> {
    let login = logins::for_pull(image).await;
    download_as(engine, image, login.header.as_deref(), told).await.map_err(|failure| login.explain(failure))
}

async fn download_as(
    engine: &Engine,
    image: &ImageRef,
    login: Option<&str>,
    told: impl Fn(String),
) -> Result<String, String> {
    let tag = image.digest().map(ToString::to_string).or_else(|| image.tag().map(str::to_owned));
    let tag = tag.unwrap_or_else(|| "latest".to_owned());
    let path = format!("/images/create?fromImage={}&tag={}", in_query(image.repository()), in_query(&tag));
    told("asking the registry".to_owned());
    let call = engine.open(Method::POST, &path, None, login);
    let answer = tokio::time::timeout(SILENCE, call).await.map_err(|_| silent())?.map_err(|failure| failure.words())?;
    let mut body = answer.into_body();
    let (mut line, mut layers) = (Vec::new(), Layers::default());
    loop {
        let frame = tokio::time::timeout(SILENCE, body.frame()).await.map_err(|_| silent())?;
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|error| format!("Docker's answer broke off: {error}"))?;
        for byte in frame.data_ref().into_iter().flatten() {
            if *byte != b'\n' {
                line.push(*byte);
                if line.len() > LINE_MAX {
                    return Err("Docker's answer cannot be read".to_owned());
                }
            } else if let Ok(event) = serde_json::from_slice(&std::mem::take(&mut line)) {
                layers.take(&event)?;
            }
        }
        told(layers.to_string());
    }
    Ok(image.to_string())
}

fn silent() -> String {
    format!("the registry sent nothing for {} s", SILENCE.as_secs())
}

fn too_long() -> String {
    format!("the pull did not end within {} minutes", WHOLE.as_secs() / 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DockerMachine;
    use futures_util::FutureExt;
    use rollhook_core::deploy::Revision;

    #[tokio::test]
    async fn pull_is_given_up_once_a_newer_deploy_of_the_app_is_applied() {
        let id = |revision| DeployId { app: AppUid::from_bits(7), revision: Revision::new(revision).unwrap() };
        let pulls = Pulls::default();
        let task = tokio::spawn(std::future::pending::<()>());
        let state = Arc::new(Mutex::new(Pull::Running("1 of 2 layers".to_owned())));
        let asked = Arc::new(Mutex::new(Instant::now()));
        let entry = Entry { id: id(2), state, asked, task: Some(task.abort_handle()) };
        lock(&pulls.entries).insert(id(2).app, entry);
        for same_or_older in [2, 1] {
            pulls.supersede(id(same_or_older));
            assert!(pulls.known(id(2)).is_some(), "revision {same_or_older}");
        }
        pulls.supersede(id(3));
        assert_eq!(pulls.known(id(2)), None);
        assert!(task.await.unwrap_err().is_cancelled());
    }

    #[tokio::test]
    async fn images_of_deploys_and_of_runs_by_hand_are_pulled_in_the_same_slots() {
        let driver = DockerMachine::at("/nonexistent/socket".into());
        let (environment, other) = ("shop-test".parse().unwrap(), "shop-live".parse().unwrap());
        let (of_deploys, by_hand) = (&driver.machine.pulls.slots, &driver.releases.by_hand.slots);
        let mut held = Vec::new();
        for _ in 0..OF_ENVIRONMENT {
            held.push(of_deploys.acquire(&environment).await);
        }
        assert!(by_hand.acquire(&environment).now_or_never().is_none(), "one slot stays free for other environments");
        assert!(by_hand.acquire(&other).now_or_never().is_some());
        held.pop();
        assert!(by_hand.acquire(&environment).now_or_never().is_some());
    }
}
