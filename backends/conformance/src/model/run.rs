//! Performing operations through a store's handles.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::poll_fn,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use futures_util::future::join;
use rollhook_core::{
    Error,
    app::{App, AppUid, Policy},
    error::Entity,
    ledger::{Change, KeyUse},
    ports::{AppRef, HistoryStore, Loaded, Version},
    replica::ReplicaId,
    request::IdempotencyKey,
    time::Timestamp,
};

use super::{
    ops::{APPS, Op, REPLICAS, Step, TTL, What},
    reference::Reference,
    steps::{self, Done, Given},
};
use crate::{client, history, report::Can, samples, stores::Stores};

/// Performs the operations on the store and on the model, and compares every answer and what is stored after it.
///
/// # Errors
/// What the store lacks.
///
/// # Panics
/// Where they differ.
pub async fn agree(store: &dyn Stores, ops: &[Op]) -> Can {
    let mut run = Run::start(store).await;
    for op in ops {
        let about = run.perform(op).await;
        for app in about {
            run.compare(usize::from(app)).await;
        }
    }
    run.compare_all().await;
    Ok(())
}

pub(super) struct Run<'a> {
    store: &'a dyn Stores,
    /// Two replicas' handles, used in turn.
    handles: [Arc<dyn HistoryStore>; 2],
    performed: usize,
    pub(super) apps: Vec<Reference>,
    replicas: Vec<ReplicaId>,
    /// By name: the boot of the last heartbeat, and until when it counts.
    alive: BTreeMap<String, (u64, Timestamp)>,
}

/// The steps of one client on one app, with their time and version, and the version that they made, if any.
struct Attempt {
    done: Vec<Done>,
    now: Timestamp,
    on: Version,
    made: Option<Version>,
}

impl<'a> Run<'a> {
    async fn start(store: &'a dyn Stores) -> Self {
        let handles = [store.open().await.history, store.open().await.history];
        let mut apps = Vec::new();
        for number in 0..APPS {
            let app = samples::app("shop", "test", &format!("app-{number}"));
            client::register(&*handles[0], app.clone()).await;
            apps.push(Reference::new(app));
        }
        let replicas = (0..REPLICAS).map(|number| samples::replica(&format!("r{number}"), u64::from(number) * 1000));
        Self { store, handles, performed: 0, apps, replicas: replicas.collect(), alive: BTreeMap::new() }
    }

    pub(super) fn history(&self) -> &Arc<dyn HistoryStore> {
        &self.handles[self.performed % 2]
    }

    /// Performs an operation, and says which apps it was about.
    async fn perform(&mut self, op: &Op) -> BTreeSet<u8> {
        self.performed += 1;
        let of = |steps: &[Step]| steps.iter().map(|step| step.app).collect::<BTreeSet<u8>>();
        match op {
            Op::Change(steps) => {
                let attempts = self.change(&**self.history(), steps).await;
                self.follow(attempts);
                of(steps)
            }
            Op::Race(one, two) => {
                let [first, second] = &self.handles;
                let (mut attempts, others) = join(self.change(&**first, one), self.change(&**second, two)).await;
                attempts.extend(others);
                self.follow(attempts);
                of(one).into_iter().chain(of(two)).collect()
            }
            Op::Claim { replica } => self.claim(usize::from(*replica)).await,
            Op::Release { replica } => {
                self.beat(usize::from(*replica), Duration::ZERO).await;
                BTreeSet::new()
            }
            Op::Restart { replica } => {
                self.replicas[usize::from(*replica)].boot += 1;
                BTreeSet::new()
            }
            Op::Recreate { app, polled } => {
                self.recreate(usize::from(*app), *polled).await;
                BTreeSet::from([*app])
            }
            Op::Page { app, before, succeeded, limit } => {
                self.page(usize::from(*app), *before, *succeeded, usize::from(*limit)).await;
                BTreeSet::new()
            }
            Op::Pass(pass) => {
                // A store whose clock cannot be moved is compared without it.
                let _ = self.store.advance(pass.time()).await;
                BTreeSet::new()
            }
        }
    }

    /// Performs each app's steps as one change, again where another client was faster.
    async fn change(&self, history: &dyn HistoryStore, steps: &[Step]) -> Vec<(u8, Attempt)> {
        let mut pending: BTreeMap<u8, bool> = steps.iter().map(|step| (step.app, false)).collect();
        let mut attempts = Vec::new();
        while !pending.is_empty() {
            let mut commits = Vec::new();
            let mut made = Vec::new();
            for (app, reads_keys) in pending.clone() {
                let steps: Vec<&What> = steps.iter().filter(|step| step.app == app).map(|step| &step.what).collect();
                let (change, attempt) = self.attempt(history, app, &steps, reads_keys).await;
                if !reads_keys && attempt.done.iter().any(Done::depends_on_its_key) {
                    pending.insert(app, true);
                } else if change.is_empty() {
                    attempts.push((app, attempt));
                    pending.remove(&app);
                } else {
                    commits.push(client::put(change, attempt.on));
                    made.push((app, attempt));
                }
            }
            breathe().await;
            for ((app, attempt), answer) in made.into_iter().zip(history::commit_all(history, commits).await) {
                match answer {
                    Ok(committed) => {
                        assert!(committed.version > attempt.on, "each commit makes a higher version");
                        attempts.push((app, Attempt { made: Some(committed.version), ..attempt }));
                        pending.remove(&app);
                    }
                    Err(Error::Conflict(Entity::Version)) => {}
                    Err(Error::Conflict(Entity::IdempotencyKey)) => {
                        let read = pending.insert(app, true);
                        assert_eq!(read, Some(false), "a key that was read is no surprise");
                    }
                    Err(error) => panic!("{}", error.chain()),
                }
            }
        }
        attempts
    }

    /// Makes the change of one app's steps, on what is stored.
    async fn attempt(
        &self,
        history: &dyn HistoryStore,
        app: u8,
        steps: &[&What],
        reads_keys: bool,
    ) -> (Change, Attempt) {
        let uid = self.apps[usize::from(app)].app.uid;
        let wanted = steps.iter().filter_map(|step| match step {
            What::Admit(accept) if reads_keys || accept.key.is_some_and(|(.., read)| read) => steps::key(accept),
            What::Admit(_)
            | What::Record(_)
            | What::Built { .. }
            | What::Configure { .. }
            | What::ReleaseHolds
            | What::Lock { .. }
            | What::ForgetSequence
            | What::Require { .. }
            | What::Forget { .. } => None,
        });
        let (loaded, keys) = load_with_keys(history, uid, wanted.collect()).await;
        let needs_archive = steps.iter().any(|step| matches!(step, What::Forget { .. }));
        let archived = if needs_archive { client::archive(history, uid).await } else { Vec::new() };
        let given = Given { now: loaded.now, replicas: &self.replicas, keys: &keys, archived: &archived };
        let mut change = Change::on(loaded.state);
        let done = steps.iter().flat_map(|step| steps::perform(&mut change, step, &given)).collect();
        (change, Attempt { done, now: loaded.now, on: loaded.version, made: None })
    }

    /// Tells the model what was done, in the order of versions; what changed nothing comes after what it was decided
    /// on.
    fn follow(&mut self, mut attempts: Vec<(u8, Attempt)>) {
        attempts.sort_by_key(|(_, attempt)| (attempt.made.unwrap_or(attempt.on), attempt.made.is_none()));
        for (app, attempt) in attempts {
            self.apps[usize::from(app)].follow(&attempt.done, attempt.now);
        }
    }

    /// Gives a heartbeat, and compares who lives.
    async fn beat(&mut self, replica: usize, ttl: Duration) -> Vec<ReplicaId> {
        let replica = self.replicas[replica].clone();
        let heartbeat = self.history().heartbeat(&replica, ttl).await.unwrap();
        if !ttl.is_zero() {
            self.alive.insert(replica.name, (replica.boot, heartbeat.now.after(ttl)));
        } else if self.alive.get(&replica.name).is_some_and(|(boot, _)| *boot == replica.boot) {
            self.alive.remove(&replica.name);
        }
        self.alive.retain(|_, (_, until)| *until >= heartbeat.now);
        let expected = self.alive.iter().map(|(name, (boot, _))| samples::replica(name, *boot));
        let mut alive = heartbeat.alive.clone();
        alive.sort();
        assert_eq!(alive, expected.collect::<Vec<_>>(), "the replicas that are alive");
        heartbeat.alive
    }

    /// Gives a heartbeat, compares the work, and takes it all.
    async fn claim(&mut self, replica: usize) -> BTreeSet<u8> {
        let alive = self.beat(replica, TTL).await;
        let work = self.history().work(&alive, 100).await.unwrap();
        let is_free = |app: &&Reference| app.lease.as_ref().is_none_or(|lease| !alive.contains(lease));
        let free = self.apps.iter().filter(is_free).filter_map(|app| Some((app.queued_at?, app.app.uid)));
        let mut expected: Vec<(Timestamp, AppUid)> = free.collect();
        // Apps that have waited as long may be named in any order.
        expected.sort_by_key(|(queued_at, app)| (*queued_at, work.iter().position(|named| named == app)));
        assert_eq!(work, expected.into_iter().map(|(_, app)| app).collect::<Vec<_>>(), "work for {alive:?}");
        let replica = self.replicas[replica].clone();
        let mut about = BTreeSet::new();
        for (app, reference) in (0..APPS).zip(&mut self.apps).filter(|(_, app)| work.contains(&app.app.uid)) {
            let lease = |change: &mut Change, now| {
                change.lease(&replica, now);
                now
            };
            let (now, _) = client::change(&*self.handles[self.performed % 2], reference.app.uid, lease).await;
            reference.follow(&[Done::Lease(replica.clone())], now);
            about.insert(app);
        }
        about
    }

    async fn recreate(&mut self, app: usize, polled: bool) {
        let old = self.apps[app].app.clone();
        let history = self.history().clone();
        client::remove(&*history, old.uid).await;
        for of in [AppRef::Uid(old.uid), AppRef::Name(&old.id)] {
            assert!(self.handles[0].load(of, None).await.unwrap().is_none(), "the app was removed");
        }
        assert_eq!(client::archive(&*self.handles[1], old.uid).await, []);
        let uid = AppUid::from_bits(old.uid.as_bits().wrapping_add(1));
        let policy = Policy::default().with(|policy| policy.poll = polled.then(|| Duration::from_secs(60)));
        let fresh = App { uid, policy, ..samples::app("shop", "test", old.id.name.as_str()) };
        client::register(&*history, fresh.clone()).await;
        self.apps[app] = Reference::new(fresh);
    }
}

/// Loads an app, and the uses of keys at the same version.
async fn load_with_keys(
    history: &dyn HistoryStore,
    app: AppUid,
    keys: Vec<IdempotencyKey>,
) -> (Loaded, Vec<(IdempotencyKey, Option<KeyUse>)>) {
    loop {
        let loaded = client::load(history, app).await;
        let mut uses = Vec::new();
        for key in &keys {
            let with_key = history.load(AppRef::Uid(app), Some(key)).await.unwrap().expect("the app is registered");
            if with_key.version == loaded.version {
                uses.push((key.clone(), with_key.key));
            }
        }
        if uses.len() == keys.len() {
            return (loaded, uses);
        }
    }
}

/// Lets other clients go on between a load and its commit.
async fn breathe() {
    let mut waited = false;
    poll_fn(|context| {
        if std::mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
