//! The history, and who drives it.

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use rollhook_core::{
    Error, Result,
    app::{AppUid, HOLDS_MAX, Hold},
    deploy::{Deploy, Revision, State as DeployState, Trigger},
    ports::{Admission, Admitted, Claim, Claimed, History, Page, Record, UNFINISHED_MAX, View, Wake},
    time::Timestamp,
};

use crate::{
    keys::Used,
    store::{Ledger, MemoryStore, State},
};

#[async_trait]
impl History for MemoryStore {
    async fn admit(&self, admission: Admission) -> Result<Admitted> {
        let (uid, now) = (admission.app, self.now());
        let admitted = self.lock().admit(admission, now)?;
        if matches!(admitted, Admitted::New { .. }) {
            self.wakes.send(uid);
        }
        Ok(admitted)
    }

    async fn record(&self, record: Record) -> Result<()> {
        let (uid, now) = (record.app, self.now());
        self.lock().record(record, now)?;
        self.wakes.send(uid);
        Ok(())
    }

    async fn view(&self, app: AppUid) -> Result<View> {
        let now = self.now();
        let state = self.lock();
        let ledger = state.ledger(app)?;
        Ok(View {
            now: ledger.time(now),
            app: ledger.app.clone(),
            last: ledger.entries.last(),
            unfinished: ledger.entries.unfinished(),
            current: ledger.entries.current(),
            on_cluster: ledger.entries.on_cluster(),
            last_restore: ledger.entries.last_restore(),
        })
    }

    async fn page(&self, app: AppUid, page: Page) -> Result<Vec<Deploy>> {
        Ok(self.lock().ledger(app).map(|ledger| ledger.entries.page(page)).unwrap_or_default())
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        let now = self.now();
        Ok(Claimed { now, apps: self.lock().claims.claim(&claim, now) })
    }

    fn wakes(&self) -> BoxStream<'static, Wake> {
        self.wakes.stream()
    }
}

impl State {
    fn admit(&mut self, admission: Admission, now: Timestamp) -> Result<Admitted> {
        let uid = admission.app;
        let admitted = self.ledger_mut(uid)?.admit(admission, now);
        if matches!(admitted, Admitted::New { .. }) {
            self.claims.queue(uid);
        }
        Ok(admitted)
    }

    fn record(&mut self, record: Record, now: Timestamp) -> Result<()> {
        let Record { app, claim, changes, lift, rest } = record;
        let ledger = self.ledgers.get_mut(&app).ok_or(Error::NotFound("app"))?;
        if claim.is_some_and(|incarnation| !self.claims.owns(incarnation, app)) {
            return Err(Error::Conflict("claim"));
        }
        ledger.check(&changes)?;
        ledger.change(changes, now);
        ledger.lift(&lift);
        if rest && ledger.entries.unfinished_count() == 0 && !ledger.app.is_polled() {
            self.claims.forget(app);
        } else {
            self.claims.queue(app);
        }
        Ok(())
    }
}

impl Ledger {
    fn admit(&mut self, admission: Admission, now: Timestamp) -> Admitted {
        let time = self.time(now);
        match admission.key.as_ref().and_then(|key| self.keys.used(key, time)) {
            Some(Used::Other) => return Admitted::KeyReused,
            Some(Used::Same(revision)) => {
                if let Some(deploy) = self.entries.at(revision) {
                    return Admitted::Replay(deploy.clone());
                }
            }
            None => {}
        }
        let last = self.entries.last();
        if admission.guard != self.app.guard || admission.after.is_some_and(|after| after != last) {
            return Admitted::Stale;
        }
        if !admission.supersede && self.entries.unfinished_count() >= UNFINISHED_MAX {
            return Admitted::Full;
        }
        self.add(admission, Revision::following(last), now)
    }

    fn add(&mut self, admission: Admission, revision: Revision, now: Timestamp) -> Admitted {
        let now = self.stamp(now);
        let mut superseded = Vec::new();
        if admission.supersede {
            let rollback = admission.draft.trigger == Trigger::Rollback;
            for deploy in self.entries.unfinished() {
                superseded.push(deploy.revision);
                let ended = deploy.moved(DeployState::Superseded { by: revision, rollback });
                self.entries.put(Deploy { updated_at: now, ..ended });
            }
        }
        if let Some(hold) = admission.hold {
            self.app.holds.push(Hold { by: revision, ..hold });
            let surplus = self.app.holds.len().saturating_sub(HOLDS_MAX);
            self.app.holds.drain(..surplus);
            self.app.guard += 1;
        }
        if let Some(key) = &admission.key {
            self.keys.keep(key, revision, now);
        }
        let deploy = admission.draft.entry(admission.id, revision, now);
        self.entries.put(deploy.clone());
        Admitted::New { deploy, superseded }
    }

    /// Whether every change follows what is stored, each entry changed once.
    fn check(&self, changes: &[Deploy]) -> Result<()> {
        let follows = |(index, change): (usize, &Deploy)| {
            self.entries.at(change.revision).is_some_and(|stored| {
                !stored.is_terminal()
                    && change.step == stored.step + 1
                    && changes[..index].iter().all(|earlier| earlier.revision != change.revision)
            })
        };
        if changes.iter().enumerate().all(follows) { Ok(()) } else { Err(Error::Conflict("deploy")) }
    }

    fn change(&mut self, changes: Vec<Deploy>, now: Timestamp) {
        if changes.is_empty() {
            return;
        }
        let now = self.stamp(now);
        for change in changes {
            self.entries.put(Deploy { updated_at: now, ..change });
        }
    }

    fn lift(&mut self, lift: &[Revision]) {
        if !lift.is_empty() {
            self.app.holds.retain(|hold| !lift.contains(&hold.by));
            self.app.guard += 1;
        }
    }
}
