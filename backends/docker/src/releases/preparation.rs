//! Makes runs of release commands ready: the image, the container, its networks.

use std::{collections::HashMap, sync::Mutex, time::Duration};

use http::StatusCode;
use rollhook_core::{
    Error, Result,
    app::AppUid,
    deploy::Reason,
    error::Entity,
    image::is_refused_for_good,
    ports::{Applied, CheckRun, ReleaseFailure, ReleaseRun, ReleaseSpec, ReleaseState, RolloutSpec, RunId, RunKind},
    slots::Slots,
};
use serde_json::json;
use tokio::time::Instant;

use super::{END_MAX, Runner, find, remove, rename};
use crate::{
    document::{self, Document},
    engine::{Called, in_path, in_query},
    error::Failure,
    lock,
    pulls::{self, Pull, Pulls},
    rules::{
        container::{Container, Seen},
        fence, plan, recreation,
        release::{self, Mark},
    },
    settings::Rollout,
    target,
};

/// How long making a run ready is repeated where it fails for a cause that may pass.
const HEALS: Duration = Duration::from_secs(60);

/// A run that this process makes ready.
#[derive(Clone)]
pub(super) struct Preparation {
    run: RunId,
    rollout: Rollout,
    command: Vec<String>,
    /// The time of the first failure.
    failing_since: Option<Instant>,
    failure: Option<ReleaseFailure>,
    is_cancelled: bool,
}

impl Preparation {
    /// Ends the preparation: the values of variables are forgotten.
    pub(super) fn cancel(&mut self) {
        self.is_cancelled = true;
        self.rollout.configuration = None;
    }
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

/// The work of this process on runs.
pub(crate) struct Releases {
    /// The runs that this process makes ready: the newest of each app and kind, and of checks each one.
    pub(super) preparations: Mutex<HashMap<Key, Preparation>>,
    /// The images of runs by hand: their pulls and those of deploys do not end each other.
    pub(crate) by_hand: Pulls,
    /// The images of checks' commands, in the same way.
    pub(crate) checks: Pulls,
    /// The reads of logs, each of which makes the engine read a log from its beginning.
    pub(super) log_reads: Slots,
    /// The longest time in which the engine ends a command, before the command is killed.
    pub(super) end_max: Duration,
}

impl Releases {
    /// The work beside that on deploys, whose pulls these are.
    pub(crate) fn new(of_deploys: &Pulls) -> Self {
        let (by_hand, checks) = (of_deploys.beside(), of_deploys.beside());
        Self { preparations: Mutex::default(), by_hand, checks, log_reads: Slots::with_share(2, 1), end_max: END_MAX }
    }

    /// Forgets what is known of an app's runs.
    pub(super) fn forget(&self, app: AppUid) {
        lock(&self.preparations).retain(|(known, _), _| *known != app);
        self.by_hand.forget(app);
        self.checks.forget(app);
    }

    /// Adds a run, unless it is known. Runs of checks that are over make room for it: their end was reported.
    fn add(&self, new: Preparation) {
        let mut preparations = lock(&self.preparations);
        let key = key(new.run);
        if preparations.get(&key).is_some_and(|known| known.run == new.run) {
            return;
        }
        let is_over = |known: &Preparation| known.is_cancelled || known.failure.is_some();
        preparations
            .retain(|(app, kind), known| *app != new.run.app || !matches!(kind, KeyKind::Check(_)) || !is_over(known));
        preparations.insert(key, new);
    }

    fn preparation(&self, id: RunId) -> Option<Preparation> {
        lock(&self.preparations).get(&key(id)).filter(|known| known.run == id).cloned()
    }

    pub(super) fn change(&self, id: RunId, change: impl FnOnce(&mut Preparation)) {
        if let Some(known) = lock(&self.preparations).get_mut(&key(id)).filter(|known| known.run == id) {
            change(known);
        }
    }

    pub(super) fn is_cancelled(&self, id: RunId) -> bool {
        self.preparation(id).is_some_and(|known| known.is_cancelled)
    }
}

/// The app of a run, and what is made ready beside others of it.
type Key = (AppUid, KeyKind);

/// The kind of a run, and of a check which one it is: an app may have several at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum KeyKind {
    Release,
    ByHand,
    Check(CheckRun),
}

pub(super) const fn key(id: RunId) -> Key {
    let kind = match id.kind {
        RunKind::Release(_) => KeyKind::Release,
        RunKind::ByHand(_) => KeyKind::ByHand,
        RunKind::Check(run) => KeyKind::Check(run),
    };
    (id.app, kind)
}

impl Runner<'_> {
    /// The pulls of the run's kind.
    pub(super) fn pulls(&self, id: RunId) -> &Pulls {
        match id.kind {
            RunKind::Release(_) => &self.machine.pulls,
            RunKind::ByHand(_) => &self.releases.by_hand,
            RunKind::Check(_) => &self.releases.checks,
        }
    }

    pub(super) async fn prepare(&self, spec: &ReleaseSpec) -> Result<ReleaseState> {
        let (run, id) = (&spec.run, spec.run.id);
        let rollout = RolloutSpec::new(run.app.clone(), run.deploy_id(), spec.target.clone(), spec.image.clone());
        let rollout = Rollout::of(&rollout.with(|rollout| rollout.configuration.clone_from(&spec.configuration)))?;
        if spec.command.is_empty() {
            return Err(Error::invalid("the release command names no program"));
        }
        if let Some(found) = find(self.engine, run).await?.filter(|found| found.mark != Mark::Making) {
            return Ok(self.report(run, found).await?);
        }
        let command = spec.command.clone();
        let (failing_since, failure) = (None, None);
        self.releases.add(Preparation { run: id, rollout, command, failing_since, failure, is_cancelled: false });
        self.advance(run).await
    }

    /// Takes the next step of making a run ready, and returns its state.
    pub(super) async fn advance(&self, run: &ReleaseRun) -> Result<ReleaseState> {
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
                    lock(&self.releases.preparations).remove(&key(run.id));
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
            tracing::debug!(app = %run.app, run = %run.id.kind, error = message, "preparing a release command failed");
            return Ok(ReleaseState::Preparing);
        }
        // A container that is not ready could yet be made so by another process.
        if let Some(found) = find(self.engine, run).await? {
            if found.mark != Mark::Making {
                return Ok(self.report(run, found).await?);
            }
            remove(self.engine, found.container.id()).await?;
        }
        let failure =
            ReleaseFailure { began: false, reason: Reason::new(&reason), message, exit_code: None, log: Vec::new() };
        self.releases.change(run.id, |known| {
            known.failure = Some(failure.clone());
            known.rollout.configuration = None;
        });
        Ok(ReleaseState::Failed(failure))
    }

    /// Makes the container of a run as far as it can be made now.
    async fn make(&self, run: &ReleaseRun, rollout: &Rollout, command: &[String]) -> Called<Made> {
        let seen = target::read(self.engine, &rollout.workload).await?;
        let model = plan::model(&seen, rollout);
        let found = match find(self.engine, run).await? {
            Some(found) => found,
            None => {
                let image = match self.image(run.id, &seen, rollout).await? {
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
        let missing =
            model.map(|model| recreation::missing_networks(model, rollout, &found.container)).unwrap_or_default();
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
    async fn image(&self, run: RunId, seen: &Seen, rollout: &Rollout) -> Called<Result<Option<String>, Trouble>> {
        let pulls = self.pulls(run);
        let refusal = match fence::decide(seen, rollout).answer() {
            Some(Applied::Refused { reason, message }) => Some((reason, message)),
            Some(Applied::Done | Applied::Newer(_)) | None => None,
        };
        // Nothing that cannot be rolled out is prepared for.
        if let Some((reason, message)) = refusal {
            return Ok(Err(Trouble::lasting(reason.as_str(), message)));
        }
        if let Some((reason, message)) = target::unmakeable(self.engine, seen, rollout).await? {
            return Ok(Err(Trouble::lasting(reason.as_str(), message)));
        }
        match pulls.look(self.engine, rollout).await? {
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
                pulls.begin(self.engine, rollout);
                return Ok(Err(Trouble::passing("image-pull-failed", message)));
            }
        }
        pulls.begin(self.engine, rollout);
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
            self.pulls(run.id).forget(rollout.id.app);
            let message = format!("the image {} was removed after it was pulled", rollout.image);
            Ok(Some(Trouble::passing(NOT_CREATED, message)))
        };
        let body = match document::document(self.engine, rollout, model, image).await? {
            Document::Body(body) => body,
            Document::Unknown(message) => return Ok(Some(Trouble::lasting(NOT_CREATED, message))),
            Document::WithoutImage => return gone(),
        };
        let Some(brought) = pulls::configuration(self.engine, image).await? else { return gone() };
        let body = release::body(body, run.id, &rollout.image, command, &brought);
        let path = format!("/containers/create?name={}", in_query(&release::name(run, Mark::Making)));
        match self.engine.post(&path, Some(&body)).await {
            Ok(_) => Ok(None),
            // Another process has made it.
            Err(failure) if failure.is_conflict() => Ok(None),
            Err(failure) => {
                if failure.is_not_found() {
                    self.pulls(run.id).forget(rollout.id.app);
                }
                Trouble::of(failure, NOT_CREATED, "Docker refuses the release command's container").map(Some)
            }
        }
    }
}
