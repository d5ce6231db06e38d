//! Making the calls, and comparing.

use std::{collections::BTreeMap, time::Duration};

use rollhook_core::{
    Error,
    app::{App, AppUid},
    deploy::{Deploy, Outage, Reason, Revision, State},
    ports::{Admission, Admitted, Claim, Page, Record},
    time::Timestamp,
};

use super::{
    ops::{APPS, Accept, After, Change, Kind, Next, Op, REPLICAS, TTL},
    reference::{Ledger, Must, Replicas},
};
use crate::{
    report::Can,
    samples,
    stores::{Handles, Stores},
};

/// Makes the calls of the store and of the model, and compares every answer and what is stored after it.
///
/// # Errors
/// What the store lacks.
///
/// # Panics
/// Where they differ.
pub async fn agree(store: &dyn Stores, ops: &[Op]) -> Can {
    let mut run = Run::start(store).await;
    for op in ops {
        run.step(op).await;
    }
    Ok(())
}

struct Run<'a> {
    store: &'a dyn Stores,
    /// Two replicas' handles, used in turn.
    handles: [Handles; 2],
    made: usize,
    ledgers: Vec<Ledger>,
    replicas: Replicas,
    incarnations: [u64; REPLICAS as usize],
    /// Time that was let pass.
    now: Duration,
    /// The entries as they were stored after the last call, with their times.
    stored: BTreeMap<AppUid, Vec<Deploy>>,
}

impl<'a> Run<'a> {
    async fn start(store: &'a dyn Stores) -> Self {
        let handles = [store.open().await, store.open().await];
        let mut ledgers = Vec::new();
        for number in 0..APPS {
            let app = samples::app("shop", "test", &format!("app-{number}"));
            ledgers.push(Ledger::new(handles[0].apps.create(app).await.unwrap()));
        }
        let incarnations = std::array::from_fn(|replica| 1000 * (1 + replica as u64));
        let (replicas, stored) = Default::default();
        Self { store, handles, made: 0, ledgers, replicas, incarnations, now: Duration::ZERO, stored }
    }

    async fn step(&mut self, op: &Op) {
        self.made += 1;
        match op {
            Op::Admit(accept) => self.admit(accept).await,
            Op::Record(change) => self.record(change).await,
            Op::Claim { replica, zero } => self.claim(*replica, *zero).await,
            Op::Restart { replica } => self.incarnations[usize::from(*replica)] += 1,
            Op::Update { app, fresh } => self.update(*app, *fresh).await,
            Op::Recreate { app } => self.recreate(*app).await,
            Op::Page { app, before, succeeded, limit } => {
                let before = before.and_then(|before| Revision::new(before.into()));
                let page = Page { before, succeeded: *succeeded, limit: (*limit).into() };
                let ledger = &self.ledgers[usize::from(*app)];
                let found = self.handles().history.page(ledger.app.uid, page).await.unwrap();
                assert_eq!(found.into_iter().map(timeless).collect::<Vec<_>>(), ledger.page(page));
            }
            Op::Pass(pass) => {
                if self.store.advance(pass.time()).await.is_ok() {
                    self.now += pass.time();
                }
            }
        }
        for app in 0..usize::from(APPS) {
            self.compare(app).await;
        }
    }

    fn handles(&self) -> &Handles {
        &self.handles[self.made % 2]
    }

    async fn admit(&mut self, accept: &Accept) {
        let history = self.handles().history.clone();
        let ledger = &mut self.ledgers[usize::from(accept.app)];
        let admission = admission(ledger, accept, self.made);
        let answer = history.admit(admission.clone()).await.unwrap();
        let answer = match answer {
            Admitted::New { deploy, superseded } => Admitted::New { deploy: timeless(deploy), superseded },
            Admitted::Replay(deploy) => Admitted::Replay(timeless(deploy)),
            Admitted::KeyReused | Admitted::Stale | Admitted::Full => answer,
        };
        assert_eq!(answer, ledger.admit(&admission, self.now));
    }

    async fn record(&mut self, change: &Change) {
        let history = self.handles().history.clone();
        let claim = change.claim.map(|replica| self.incarnations[usize::from(replica)]);
        let ledger = &mut self.ledgers[usize::from(change.app)];
        let record = Record { claim, ..record(ledger, change) };
        let covered = ledger.covered(&record, &self.replicas, self.now);
        match history.record(record.clone()).await {
            Ok(()) => {
                assert!(ledger.follows(&record), "it was written, though an entry has gone on");
                assert_ne!(covered, Must::NotBe, "it was written under a claim that does not cover the app");
                ledger.record(record);
            }
            Err(Error::Conflict("claim")) => assert_ne!(covered, Must::Be, "the claim covers the app"),
            Err(Error::Conflict("deploy")) => assert!(!ledger.follows(&record), "every entry follows"),
            Err(error) => panic!("{}", error.chain()),
        }
    }

    async fn claim(&mut self, replica: u8, zero: bool) {
        let incarnation = self.incarnations[usize::from(replica)];
        let ttl = if zero { Duration::ZERO } else { TTL };
        let claim = Claim { replica: samples::replica(&format!("r{replica}"), incarnation), ttl, limit: 100 };
        self.replicas.note(&claim, self.now);
        let named = self.handles().history.claim(claim.clone()).await.unwrap().apps;
        for ledger in &mut self.ledgers {
            let is_named = named.contains(&ledger.app.uid);
            let must = ledger.named(&claim, &self.replicas, self.now);
            let wrong = if is_named { Must::NotBe } else { Must::Be };
            assert_ne!(must, wrong, "{} in {named:?} of {claim:?}", ledger.app.uid);
            ledger.claimed(&claim, is_named, &self.replicas);
        }
        let known = |app: &AppUid| self.ledgers.iter().any(|ledger| ledger.app.uid == *app);
        assert!(named.iter().all(known), "apps that are gone: {named:?}");
    }

    async fn update(&mut self, app: u8, fresh: bool) {
        let apps = self.handles().apps.clone();
        let settle = Duration::from_secs(self.made as u64);
        let ledger = &mut self.ledgers[usize::from(app)];
        let mut changed = ledger.app.clone();
        changed.policy.settle = settle;
        if !fresh {
            changed.guard += 1;
        }
        match apps.update(changed).await {
            Ok(updated) => {
                assert!(fresh, "it was decided on an older guard");
                ledger.app.policy.settle = settle;
                ledger.app.guard += 1;
                assert_eq!(updated, ledger.app);
            }
            Err(error) => assert!(!fresh && error.is_conflict(), "{}", error.chain()),
        }
    }

    async fn recreate(&mut self, app: u8) {
        let handles = self.handles().clone();
        let ledger = &mut self.ledgers[usize::from(app)];
        let old = ledger.app.clone();
        handles.apps.remove(old.uid).await.unwrap();
        let gone = handles.history.view(old.uid).await;
        assert!(matches!(gone, Err(Error::NotFound("app"))), "{gone:?}");
        let fresh = samples::app("shop", "test", &format!("app-{app}"));
        let fresh = App { uid: AppUid::from_bits(old.uid.as_bits().wrapping_add(1)), ..fresh };
        *ledger = Ledger::new(handles.apps.create(fresh).await.unwrap());
    }

    /// What is stored of an app is what the model says, and its times follow those before.
    async fn compare(&mut self, app: usize) {
        let history = self.handles().history.clone();
        let ledger = &self.ledgers[app];
        let uid = ledger.app.uid;
        let view = history.view(uid).await.unwrap();
        assert_eq!(view.app, ledger.app);
        assert_eq!(view.last, ledger.last());
        assert_eq!(view.unfinished.into_iter().map(timeless).collect::<Vec<_>>(), ledger.unfinished());
        assert_eq!(view.current.map(timeless), ledger.newest(|deploy| deploy.state == succeeded()));
        assert_eq!(view.on_cluster.map(timeless), ledger.newest(|deploy| deploy.touched));
        assert_eq!(view.last_restore, ledger.newest(Deploy::is_restore).map(|deploy| deploy.revision));

        let page = Page { before: None, succeeded: false, limit: 1000 };
        let stored = history.page(uid, page).await.unwrap();
        assert_eq!(stored.iter().cloned().map(timeless).collect::<Vec<_>>(), ledger.page(page));
        let before = self.stored.insert(uid, stored.clone()).unwrap_or_default();
        let latest = before.iter().map(|deploy| deploy.updated_at).max();
        for deploy in stored.iter().filter(|deploy| !before.contains(deploy)) {
            assert!(deploy.updated_at >= deploy.created_at && Some(deploy.updated_at) >= latest, "{deploy:?}");
        }
    }
}

fn admission(ledger: &Ledger, accept: &Accept, number: usize) -> Admission {
    let target = ledger.last().unwrap_or(Revision::FIRST);
    let tag = format!("v{number}");
    let draft = match accept.kind {
        Kind::Deploy => samples::draft(&tag),
        Kind::Rollback => samples::rollback(&tag, target),
        Kind::Restore => samples::restore(&tag, target),
    };
    Admission {
        key: accept.key.map(|(key, request)| samples::key(&format!("run-{key}"), request)),
        guard: if accept.fresh { ledger.app.guard } else { ledger.app.guard + 1 },
        after: match accept.after {
            After::Unsaid => None,
            After::Right => Some(ledger.last()),
            After::Wrong => Some(ledger.last().map_or(Some(Revision::FIRST), |_| None)),
        },
        supersede: accept.supersede,
        hold: accept.hold.then(|| samples::hold(&tag)),
        ..samples::admission(&ledger.app, draft)
    }
}

/// The record, whose entries are different ones.
fn record(ledger: &Ledger, change: &Change) -> Record {
    let mut changes: Vec<Deploy> = Vec::new();
    for (index, step, next) in &change.entries {
        let Some(stored) = ledger.entries.get(usize::from(*index) % ledger.entries.len().max(1)) else { continue };
        if changes.iter().all(|earlier| earlier.revision != stored.revision) {
            let touched = match next {
                Next::RollingOut => true,
                Next::Refused => false,
                Next::Succeeded | Next::Failed | Next::Cancelled => stored.touched,
            };
            changes.push(Deploy { step: stored.step + u32::from(*step), touched, ..stored.moved(state(*next)) });
        }
    }
    let lift = ledger.app.holds.first().filter(|_| change.lift).map(|hold| hold.by);
    Record { app: ledger.app.uid, claim: None, changes, lift: lift.into_iter().collect(), rest: change.rest }
}

fn state(next: Next) -> State {
    let (reason, message) = (Reason::new(Reason::CANCELLED), "by the model".to_owned());
    match next {
        Next::RollingOut => State::RollingOut { since: Timestamp::default(), outage: Outage::default() },
        Next::Succeeded => succeeded(),
        Next::Failed | Next::Refused => State::Failed { reason, message, evidence: None },
        Next::Cancelled => State::Cancelled { reason, message },
    }
}

fn succeeded() -> State {
    State::Succeeded { note: None }
}

fn timeless(deploy: Deploy) -> Deploy {
    Deploy { created_at: Timestamp::default(), updated_at: Timestamp::default(), ..deploy }
}
