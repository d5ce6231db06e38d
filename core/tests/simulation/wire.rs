//! A replica's way to its store and cluster: what is asked and answered there is noted, and judged.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use rollhook_core::{
    Error, Result,
    app::AppUid,
    deploy::{Deploy, Evidence},
    error::Entity,
    ledger::AppState,
    ports::{
        AppChange, AppCommit, AppPage, AppRef, Applied, Committed, Heartbeat, HistoryStore, Loaded, Observation, Page,
        Phase, RolloutDriver, RolloutFailure, RolloutSpec, StoreLimits, TargetRequest, Validated,
    },
    replica::ReplicaId,
    request::IdempotencyKey,
};

use crate::{
    broken::Backend,
    faults::Faults,
    rules::Seen,
    stage::{Adrift, Stage},
};

/// One life of a replica.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    /// Which one; no other replica has it, nor has the same one after a restart.
    pub(crate) number: u64,
    /// The replica's name.
    pub(crate) name: String,
}

/// What lies between a replica and its backends.
pub(crate) struct Wire {
    pub(crate) stage: Arc<Stage>,
    pub(crate) life: Life,
    pub(crate) faults: Arc<Faults>,
    pub(crate) backend: Backend,
    /// What was answered last, for stale reads.
    pub(crate) views: Mutex<BTreeMap<AppUid, Loaded>>,
}

impl Wire {
    pub(crate) fn tell(&self, line: impl FnOnce() -> String) {
        self.stage.journal.tell(&self.life.name, line);
    }

    pub(crate) fn told<T>(&self, call: &str, answer: &Result<T>) {
        match answer {
            Ok(_) => self.tell(|| call.to_owned()),
            Err(error) => self.tell(|| format!("{call}: {}", error.chain())),
        }
    }
}

#[async_trait]
impl HistoryStore for Wire {
    async fn load(&self, app: AppRef<'_>, key: Option<&IdempotencyKey>) -> Result<Option<Loaded>> {
        let fresh = self.backend.history.load(app, key).await;
        let Ok(Some(loaded)) = &fresh else {
            self.told("load", &fresh);
            return fresh;
        };
        let uid = loaded.state.app.uid;
        let stale = self.faults.stale().then(|| self.views.lock().unwrap().get(&uid).cloned()).flatten();
        self.told(if stale.is_some() { "load, stale" } else { "load" }, &fresh);
        self.views.lock().unwrap().insert(uid, loaded.clone());
        Ok(Some(match stale {
            // A cache may lag behind; the clock does not.
            Some(stale) => Loaded { now: loaded.now, key: loaded.key, ..stale },
            None => loaded.clone(),
        }))
    }

    async fn commit(&self, commits: Vec<AppCommit>) -> Vec<Result<Committed>> {
        let writes = commits.clone();
        let answers = self.backend.history.commit(commits).await;
        for (commit, answer) in writes.iter().zip(&answers) {
            self.committed(commit, answer);
        }
        answers
    }

    async fn page(&self, app: AppUid, page: Page) -> Result<Vec<Deploy>> {
        self.backend.history.page(app, page).await
    }

    async fn list(&self, page: AppPage) -> Result<Vec<AppState>> {
        self.backend.history.list(page).await
    }

    async fn work(&self, alive: &[ReplicaId], limit: usize) -> Result<Vec<AppUid>> {
        self.backend.history.work(alive, limit).await
    }

    async fn heartbeat(&self, replica: &ReplicaId, ttl: Duration) -> Result<Heartbeat> {
        let heartbeat = self.backend.history.heartbeat(replica, ttl).await;
        let mut rules = self.stage.rules.lock().unwrap();
        if ttl.is_zero() {
            self.tell(|| "releases its leases".to_owned());
            rules.owners.leaves(&self.life);
        } else if heartbeat.is_ok() {
            rules.owners.beats(&self.life, self.stage.moment());
        }
        heartbeat
    }

    fn watch(&self) -> BoxStream<'static, AppChange> {
        self.backend.history.watch()
    }

    fn limits(&self) -> StoreLimits {
        self.backend.history.limits()
    }
}

impl Wire {
    /// Notes a commit, and judges what has become of the store.
    fn committed(&self, commit: &AppCommit, answer: &Result<Committed>) {
        let Some(change) = commit.change() else {
            self.told("remove app", answer);
            self.stage.look();
            return;
        };
        let what = match (commit.version(), change.admitted.last(), change.changed().is_empty()) {
            (None, ..) => "register".to_owned(),
            (Some(_), Some(newest), _) => format!("accept revision {newest}"),
            (Some(_), None, true) => "change the app".to_owned(),
            (Some(_), None, false) => "record".to_owned(),
        };
        self.told(&what, answer);
        let outdated = matches!(answer, Err(Error::Conflict(Entity::Version)));
        self.stage.journal.count_if(outdated, "effect: a decision was made anew");
        if answer.is_err() {
            return;
        }
        if !change.changed().is_empty() {
            self.stage.rules.lock().unwrap().writes += 1;
        }
        self.stage.look();
        let mut rules = self.stage.rules.lock().unwrap();
        match &change.state.lease {
            Some(lease) if lease.name == self.life.name => {
                rules.owners.leased(&self.life, commit.app(), self.stage.moment(), &self.stage.journal);
            }
            Some(_) => {}
            None => rules.idles(commit.app()),
        }
    }
}

#[async_trait]
impl RolloutDriver for Wire {
    async fn validate(&self, request: &TargetRequest) -> Result<Validated> {
        self.backend.rollouts.validate(request).await
    }

    async fn apply(&self, order: &RolloutSpec) -> Result<Applied> {
        if let Some(time) = self.faults.adrift() {
            self.tell(|| format!("apply revision {}: no answer, but it is under way", order.id.revision));
            self.stage.set_adrift(Adrift::Rollout(order.clone()), time);
            return Err(Error::unavailable("the cluster", "no answer"));
        }
        let answer = self.backend.rollouts.apply(order).await;
        match &answer {
            Ok(applied) => self.tell(|| format!("apply revision {}: {applied:?}", order.id.revision)),
            Err(_) => self.told("apply", &answer),
        }
        let fenced = matches!(answer, Ok(Applied::Newer(_)));
        self.stage.journal.count_if(fenced, "rule 9: an older order was refused");
        self.stage.look_at_cluster(order);
        answer
    }

    async fn observe(&self, order: &RolloutSpec) -> Result<Observation> {
        let answer = self.backend.rollouts.observe(order).await;
        self.told(&format!("observe revision {}", order.id.revision), &answer);
        let truth = match self.stage.promise {
            Some(_) => self.stage.cluster.observe(order).await.ok(),
            None => answer.as_ref().ok().cloned(),
        };
        if let Some(seen) = truth {
            let moment = self.stage.moment();
            let mut rules = self.stage.rules.lock().unwrap();
            let (complete, digest) = match &seen.phase {
                Phase::Complete { digest, .. } => (true, digest.clone()),
                Phase::Progressing => (false, None),
            };
            let sound = seen.trouble.is_none();
            let seen = Seen {
                by: self.life.number,
                moment,
                complete,
                sound,
                digest,
                restarts: seen.restarts,
                progress: seen.progress.clone(),
            };
            rules.observed(order.id, seen, &self.stage.journal);
        }
        answer
    }

    async fn changed(&self, order: &RolloutSpec) {
        self.backend.rollouts.changed(order).await;
    }

    async fn evidence(&self, order: &RolloutSpec, trouble: Option<&RolloutFailure>) -> Result<Evidence> {
        self.backend.rollouts.evidence(order, trouble).await
    }
}
