//! A replica's way to its store and cluster: what is asked and answered there is noted, and judged.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use rollhook_core::{
    Error, Result,
    app::{App, AppId, AppUid},
    deploy::{AdmissionId, Deploy, Evidence},
    ports::{
        Admission, Admitted, AppPage, Applied, Apps, Claim, Claimed, History, Observation, Page, Phase, Record,
        RolloutDriver, RolloutFailure, RolloutSpec, TargetRequest, Validated, View, Wake,
    },
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
    pub(crate) views: Mutex<BTreeMap<AppUid, View>>,
    pub(crate) apps: Mutex<BTreeMap<AppId, App>>,
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
impl History for Wire {
    async fn admit(&self, admission: Admission) -> Result<Admitted> {
        // Who only asks what a key has made decides nothing.
        let decided = admission.id != AdmissionId(0);
        let answer = self.backend.history.admit(admission).await;
        match &answer {
            Ok(Admitted::New { deploy, .. }) => self.tell(|| format!("admit: revision {}", deploy.revision)),
            Ok(Admitted::Replay(deploy)) => self.tell(|| format!("admit: replays revision {}", deploy.revision)),
            Ok(other) => self.tell(|| format!("admit: {other:?}")),
            Err(_) => self.told("admit", &answer),
        }
        let stale = decided && matches!(answer, Ok(Admitted::Stale));
        self.stage.journal.count_if(stale, "effect: a decision was made anew");
        self.stage.look();
        answer
    }

    async fn record(&self, record: Record) -> Result<()> {
        let (app, claim, rest, empty) = (record.app, record.claim, record.rest, record.changes.is_empty());
        let answer = self.backend.history.record(record).await;
        self.told(if empty { "record: nothing is left to do" } else { "record" }, &answer);
        let conflict = matches!(answer, Err(Error::Conflict("claim")));
        self.stage.journal.count_if(conflict, "rule 6: a record of one that is not the owner was refused");
        if answer.is_ok() {
            if !empty {
                self.stage.rules.lock().unwrap().writes += 1;
            }
            if claim.is_some() {
                self.stage.rules.lock().unwrap().owners.records(&self.life, app, &self.stage.journal);
            }
            self.stage.look();
            if rest {
                self.stage.rules.lock().unwrap().rests(app);
            }
        }
        answer
    }

    async fn view(&self, app: AppUid) -> Result<View> {
        let fresh = self.backend.history.view(app).await;
        let stale = self.faults.stale().then(|| self.views.lock().unwrap().get(&app).cloned()).flatten();
        self.told(if stale.is_some() { "view, stale" } else { "view" }, &fresh);
        let Ok(fresh) = fresh else { return fresh };
        self.views.lock().unwrap().insert(app, fresh.clone());
        Ok(match stale {
            // A cache may lag behind; the clock does not.
            Some(stale) => View { now: fresh.now, ..stale },
            None => fresh,
        })
    }

    async fn page(&self, app: AppUid, page: Page) -> Result<Vec<Deploy>> {
        self.backend.history.page(app, page).await
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        let farewell = claim.ttl.is_zero();
        let claimed = self.backend.history.claim(claim).await;
        let mut rules = self.stage.rules.lock().unwrap();
        let moment = self.stage.moment();
        if farewell {
            self.tell(|| "gives up its claims".to_owned());
            rules.owners.leaves(&self.life);
        } else if let Ok(claimed) = &claimed {
            rules.owners.claims(&self.life, &claimed.apps, moment, &self.stage.journal);
        }
        claimed
    }

    fn wakes(&self) -> BoxStream<'static, Wake> {
        self.backend.history.wakes()
    }
}

#[async_trait]
impl RolloutDriver for Wire {
    async fn validate(&self, request: &TargetRequest) -> Result<Validated> {
        self.backend.rollouts.validate(request).await
    }

    async fn apply(&self, order: &RolloutSpec) -> Result<Applied> {
        if let Some(time) = self.faults.adrift() {
            self.tell(|| format!("apply revision {}: no answer, but it is under way", order.stamp.revision));
            self.stage.set_adrift(Adrift::Rollout(order.clone()), time);
            return Err(Error::unavailable("the cluster", "no answer"));
        }
        let answer = self.backend.rollouts.apply(order).await;
        match &answer {
            Ok(applied) => self.tell(|| format!("apply revision {}: {applied:?}", order.stamp.revision)),
            Err(_) => self.told("apply", &answer),
        }
        let fenced = matches!(answer, Ok(Applied::Newer(_)));
        self.stage.journal.count_if(fenced, "rule 9: an older order was refused");
        self.stage.look_at_cluster(order);
        answer
    }

    async fn observe(&self, order: &RolloutSpec) -> Result<Observation> {
        let answer = self.backend.rollouts.observe(order).await;
        self.told(&format!("observe revision {}", order.stamp.revision), &answer);
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
            rules.observed(order.stamp, seen, &self.stage.journal);
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

#[async_trait]
impl Apps for Wire {
    async fn create(&self, app: App) -> Result<App> {
        let answer = self.backend.apps.create(app).await;
        self.told("create app", &answer);
        self.stage.look();
        answer
    }

    async fn find(&self, id: &AppId) -> Result<Option<App>> {
        let fresh = self.backend.apps.find(id).await;
        let stale = self.faults.stale().then(|| self.apps.lock().unwrap().get(id).cloned()).flatten();
        if let Ok(Some(app)) = &fresh {
            self.apps.lock().unwrap().insert(id.clone(), app.clone());
        }
        match (fresh, stale) {
            (Ok(_), Some(stale)) => {
                self.tell(|| format!("find {id}, stale"));
                Ok(Some(stale))
            }
            (fresh, _) => fresh,
        }
    }

    async fn list(&self, page: AppPage) -> Result<Vec<App>> {
        self.backend.apps.list(page).await
    }

    async fn update(&self, app: App) -> Result<App> {
        let answer = self.backend.apps.update(app).await;
        self.told("update app", &answer);
        self.stage.look();
        answer
    }

    async fn remove(&self, uid: AppUid) -> Result<()> {
        let answer = self.backend.apps.remove(uid).await;
        self.told("remove app", &answer);
        self.stage.look();
        answer
    }
}
