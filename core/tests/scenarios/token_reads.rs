//! Reads of tokens for callers, of a store that marks its tokens: how many there are, and who is let in meanwhile.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures_util::{FutureExt, future::join_all, join, pin_mut};
use rollhook_core::{
    Error, Result,
    action::Action,
    app::{AppId, AppUid, Policy},
    ports::{Clock, Sealing, TokenMark, TokenMatcher, TokenStore, WebhookSecret},
    request::Refusal,
    service::{Deployer, Outcome},
    time::Timestamp,
    token::{Credentials, Token},
};
use rollhook_memory::MemoryStore;

use crate::world::{SimClock, World};

const SECOND: Duration = Duration::from_secs(1);
/// How long a read takes.
const READ: Duration = Duration::from_millis(10);
const OVERLAP: Duration = Duration::from_secs(60);

/// The tokens of a store whose reads are counted, with the marks that its watch has seen.
struct Marked {
    store: Arc<MemoryStore>,
    clock: Arc<SimClock>,
    seen: Mutex<HashMap<AppId, TokenMark>>,
    reads: AtomicUsize,
    is_away: AtomicBool,
    is_slow: AtomicBool,
}

#[async_trait]
impl TokenStore for Marked {
    async fn put(&self, app: AppUid, token: &Token) -> Result<WebhookSecret> {
        self.store.put(app, token).await
    }

    async fn rotate(&self, app: AppUid, token: &Token, until: Timestamp) -> Result<WebhookSecret> {
        self.store.rotate(app, token, until).await
    }

    async fn find(&self, app: &AppId) -> Result<Option<WebhookSecret>> {
        TokenStore::find(&*self.store, app).await
    }

    async fn find_fitting(&self, app: &AppId, fits: TokenMatcher<'_>) -> Result<Option<WebhookSecret>> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        let is_slow = self.is_slow.load(Ordering::SeqCst);
        self.clock.sleep(if is_slow { 3 * SECOND } else { READ }).await;
        if self.is_away.load(Ordering::SeqCst) {
            return Err(Error::unavailable("the store", "it is away"));
        }
        self.store.find_fitting(app, fits).await
    }

    async fn mark(&self, app: &AppId) -> Result<TokenMark> {
        Ok(self.seen.lock().unwrap().get(app).cloned().unwrap_or(TokenMark::NoToken))
    }

    async fn remove(&self, app: AppUid) -> Result<()> {
        TokenStore::remove(&*self.store, app).await
    }

    fn sealing(&self) -> Sealing {
        self.store.sealing()
    }
}

/// A replica, and another one by which the webhook is enabled.
struct Replica<'a> {
    world: &'a World,
    tokens: Arc<Marked>,
    deployer: Deployer,
    app: AppId,
    uid: AppUid,
}

impl<'a> Replica<'a> {
    /// Registers an app without a token.
    async fn of(world: &'a World) -> Self {
        let access = world.register("api", Policy::default()).await;
        let (app, uid) = (access.app().clone(), access.uid());
        let tokens = Arc::new(Marked {
            store: world.store.clone(),
            clock: world.clock.clone(),
            seen: Mutex::default(),
            reads: AtomicUsize::default(),
            is_away: AtomicBool::default(),
            is_slow: AtomicBool::default(),
        });
        let deployer = Deployer::new(world.ports(7).with(|ports| ports.tokens = tokens.clone()), "two");
        // It has seen the store's clock.
        deployer.allow(world.operator.clone(), &app, Action::ALL).await.unwrap();
        Self { world, tokens, deployer, app, uid }
    }

    /// Enables the webhook at the other replica; the watch does not show it yet.
    async fn enabled(&self) -> String {
        let secret = self.world.deployer.enable_webhook(&self.world.access(&self.app).await).await.unwrap();
        secret.token.expose().to_owned()
    }

    /// The watch shows what is stored.
    async fn watch(&self) {
        let stored = TokenStore::find(&*self.tokens.store, &self.app).await.unwrap().unwrap();
        self.tokens.seen.lock().unwrap().insert(self.app.clone(), TokenMark::Token(stored.to_text().to_string()));
    }

    async fn call(&self, app: &AppId, token: &str) -> Outcome<()> {
        self.deployer.authorize(app, &Credentials::token(token.as_bytes()), b"{}").await.map(drop)
    }

    async fn is_let_in(&self, token: &str) -> bool {
        match self.call(&self.app, token).await {
            Ok(()) => true,
            Err(refusal) => {
                assert_eq!(refusal, Refusal::Unauthorized);
                false
            }
        }
    }

    /// Calls of many strangers at once, of this app and of one that there is not.
    async fn flood(&self) {
        let unknown = unknown();
        let calls = (0..100).flat_map(|_| [&self.app, &unknown]).map(|app| self.call(app, "rh_wrong"));
        assert!(join_all(calls).await.iter().all(|answer| *answer == Err(Refusal::Unauthorized)));
    }

    /// The reads since this was asked last.
    fn reads(&self) -> usize {
        self.tokens.reads.swap(0, Ordering::SeqCst)
    }
}

fn unknown() -> AppId {
    "shop-test/unknown".parse().unwrap()
}

/// Runs a scenario on a replica with an app.
fn on_a_replica(scenario: impl AsyncFnOnce(&Replica<'_>)) {
    let world = World::new(SECOND);
    world.idle(async { scenario(&Replica::of(&world).await).await });
}

#[test]
fn callers_without_a_valid_token_cost_one_read_per_second() {
    on_a_replica(async |replica| {
        let good = replica.enabled().await;
        replica.watch().await;
        replica.flood().await;
        assert!((1..=3).contains(&replica.reads()), "the token's first read, and those of two seconds");
        let start = replica.world.clock.elapsed();
        for _ in 0..20 {
            replica.flood().await;
            assert!(replica.is_let_in(&good).await);
        }
        let seconds = (replica.world.clock.elapsed() - start).as_secs();
        let strangers = replica.reads() - 20;
        assert!((10..=seconds + 1).contains(&(strangers as u64)), "{strangers} reads in {seconds} s");
    });
}

#[test]
fn token_that_was_replaced_costs_no_reads_once_its_time_is_over() {
    on_a_replica(async |replica| {
        let old = replica.enabled().await;
        replica.watch().await;
        replica.world.deployer.rotate_webhook(&replica.world.access(&replica.app).await, OVERLAP).await.unwrap();
        replica.watch().await;
        assert!(replica.is_let_in(&old).await && replica.is_let_in(&old).await, "both open it");
        replica.world.clock.sleep(OVERLAP).await;
        replica.deployer.allow(replica.world.operator.clone(), &replica.app, Action::ALL).await.unwrap();
        replica.reads();
        let many = join_all((0..100).map(|_| replica.is_let_in(&old))).await;
        assert!(many.iter().all(|is_let_in| !is_let_in) && replica.reads() <= 2);
    });
}

#[test]
fn old_token_is_refused_at_once_though_it_is_remembered() {
    on_a_replica(async |replica| {
        let old = replica.enabled().await;
        replica.watch().await;
        assert!(replica.is_let_in(&old).await);
        let new = replica.enabled().await;
        assert!(!replica.is_let_in(&old).await);
        assert!(replica.is_let_in(&new).await, "that read has told of the new one");
        TokenStore::remove(&*replica.tokens, replica.uid).await.unwrap();
        assert!(!replica.is_let_in(&new).await);
    });
}

#[test]
fn token_of_another_replica_is_let_in_once_its_mark_is_seen() {
    on_a_replica(async |replica| {
        let old = replica.enabled().await;
        replica.watch().await;
        assert!(replica.is_let_in(&old).await);
        let new = replica.enabled().await;
        // Others take the second's read, and the mark is seen while the caller waits.
        assert!(replica.call(&unknown(), "rh_wrong").await.is_err());
        let late = async {
            replica.world.clock.sleep(SECOND / 2).await;
            replica.watch().await;
        };
        let (is_let_in, ()) = join!(replica.is_let_in(&new), late);
        assert!(is_let_in);
        // At the same time as others', whose reads have told of it.
        let newest = replica.enabled().await;
        replica.watch().await;
        assert!(join_all((0..50).map(|_| replica.is_let_in(&newest))).await.iter().all(|is_let_in| *is_let_in));
    });
}

#[test]
fn token_is_let_in_though_its_mark_is_not_seen() {
    on_a_replica(async |replica| {
        let first = replica.enabled().await;
        assert!(replica.is_let_in(&first).await, "not even the app was seen");
        replica.watch().await;
        let second = replica.enabled().await;
        replica.world.clock.sleep(SECOND).await;
        assert!(replica.is_let_in(&second).await);
    });
}

#[test]
fn callers_with_a_valid_token_wait_for_a_slow_read_and_are_let_in() {
    on_a_replica(async |replica| {
        let good = replica.enabled().await;
        replica.watch().await;
        replica.tokens.is_slow.store(true, Ordering::SeqCst);
        let at_once = join_all((0..5).map(|_| replica.is_let_in(&good))).await;
        assert_eq!(at_once, [true; 5]);
    });
}

#[test]
fn callers_that_hang_up_cost_one_read_and_lock_nobody_out() {
    on_a_replica(async |replica| {
        let good = replica.enabled().await;
        replica.watch().await;
        assert!(replica.call(&unknown(), "rh_wrong").await.is_err(), "it takes the second's read");
        replica.reads();
        for _ in 0..50 {
            let call = replica.is_let_in("rh_wrong");
            pin_mut!(call);
            assert!(call.now_or_never().is_none(), "it hangs up");
        }
        assert!(replica.reads() <= 2);
        assert!(replica.is_let_in(&good).await);
    });
}

#[test]
fn outage_is_told_to_callers_of_known_and_unknown_apps_alike_and_read_for_once_per_second() {
    on_a_replica(async |replica| {
        let good = replica.enabled().await;
        replica.watch().await;
        assert!(replica.is_let_in(&good).await);
        let fresh = Deployer::new(replica.world.ports(8).with(|ports| ports.tokens = replica.tokens.clone()), "three");
        let fresh = Replica { deployer: fresh, tokens: replica.tokens.clone(), app: replica.app.clone(), ..*replica };
        replica.world.clock.sleep(SECOND).await;
        replica.tokens.is_away.store(true, Ordering::SeqCst);
        for replica in [replica, &fresh] {
            replica.reads();
            for _ in 0..20 {
                for app in [&replica.app, &unknown()] {
                    let answer = replica.call(app, "rh_wrong").await;
                    assert_eq!(answer, Err(Refusal::StoreUnavailable { maybe_recorded: false }), "{app}");
                }
                replica.world.clock.sleep(SECOND / 10).await;
            }
            assert!((2..=8).contains(&replica.reads()), "in some 2 s");
        }
        replica.tokens.is_away.store(false, Ordering::SeqCst);
        replica.world.clock.sleep(SECOND).await;
        assert!(fresh.call(&unknown(), "rh_wrong").await == Err(Refusal::Unauthorized), "it takes the second's read");
        assert!(fresh.is_let_in(&good).await, "the token is read all the same");
    });
}

#[test]
fn first_caller_of_an_app_is_refused_no_sooner_than_one_of_an_unknown_name() {
    on_a_replica(async |replica| {
        replica.enabled().await;
        replica.watch().await;
        let unknown = unknown();
        assert!(replica.call(&unknown, "rh_wrong").await.is_err(), "it takes the second's read");
        let mut waits = Vec::new();
        for app in [&unknown, &replica.app, &replica.app] {
            let begun = replica.world.clock.elapsed();
            // While the reads of this second are taken by others.
            let others = join_all((0..2).map(|_| replica.call(&unknown, "rh_wrong")));
            let (answer, _) = join!(replica.call(app, "rh_wrong"), others);
            assert_eq!(answer, Err(Refusal::Unauthorized));
            waits.push(replica.world.clock.elapsed() - begun);
        }
        assert!(waits.iter().all(|wait| *wait >= SECOND), "{waits:?}");
    });
}
