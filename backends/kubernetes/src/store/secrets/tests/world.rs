//! A cluster that counts, for tests of what callers cost.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use rollhook_core::{
    Error, Result,
    app::{AppId, AppUid},
    error::Entity,
    time::Timestamp,
    token::Token,
};
use rollhook_sealing::{KEY_BYTES, KeyRing};
use serde_json::{Value, json};
use tower::service_fn;
use zeroize::Zeroizing;

use super::super::{ApiServer, Registered, Registrations, Secrets, StoreClock};

/// A clock that passes when it is told to.
#[derive(Clone, Default)]
pub(crate) struct HandClock(Arc<AtomicU64>);

impl HandClock {
    pub(crate) fn clock(&self) -> StoreClock {
        let millis = self.0.clone();
        let elapsed = move || Duration::from_millis(millis.load(Ordering::SeqCst));
        StoreClock::new(|| Timestamp::from_millis(1_795_250_000_000), elapsed)
    }

    pub(crate) fn advance(&self, time: Duration) {
        self.0.fetch_add(u64::try_from(time.as_millis()).unwrap(), Ordering::SeqCst);
    }
}

pub(crate) fn ring() -> KeyRing {
    KeyRing::from_keys([("k0001".parse().unwrap(), Zeroizing::new([7; KEY_BYTES]))]).unwrap()
}

/// A ring that lacks the key of the other one.
pub(crate) fn another_ring() -> KeyRing {
    KeyRing::from_keys([("k0002".parse().unwrap(), Zeroizing::new([8; KEY_BYTES]))]).unwrap()
}

pub(crate) fn token(seed: u8) -> Token {
    Token::from_random(&[seed; Token::RANDOM_BYTES]).unwrap()
}

pub(crate) fn registered(uid: u128, webhook: Option<&str>) -> Registered {
    Registered {
        id: "shop-test/api".parse().unwrap(),
        uid: AppUid::from_bits(uid),
        object: format!("object-{uid}"),
        webhook: webhook.map(str::to_owned),
        created_at: Timestamp::from_millis(0),
    }
}

/// A cluster of Secrets and apps: what is stored, what the watch has seen of it, and every call that was made.
#[derive(Clone, Default)]
pub(crate) struct World {
    pub(crate) clock: HandClock,
    pub(crate) state: Arc<Mutex<State>>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) secrets: BTreeMap<String, Value>,
    pub(crate) stored: BTreeMap<AppId, Registered>,
    pub(crate) watched: BTreeMap<AppId, Registered>,
    pub(crate) calls: Vec<String>,
    pub(crate) away: bool,
    /// How many calls are under way, and were at most.
    pub(crate) flying: usize,
    pub(crate) flew: usize,
}

impl World {
    pub(crate) fn secrets(&self) -> Secrets {
        self.secrets_by(self.clock.clock())
    }

    pub(crate) fn secrets_by(&self, clock: StoreClock) -> Secrets {
        self.secrets_with(clock, ring())
    }

    pub(crate) fn secrets_with(&self, clock: StoreClock, ring: KeyRing) -> Secrets {
        let world = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let world = world.clone();
            async move { world.answer(request).await }
        });
        let api = ApiServer::new(kube::Client::new(service, "rollhook"), "rollhook");
        Secrets::new(api, Arc::new(ring), clock, Arc::default())
    }

    pub(crate) async fn answer(&self, request: Request<Body>) -> Result<Response<Body>, std::convert::Infallible> {
        let (head, body) = request.into_parts();
        let body: Value = serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap_or_default();
        let path = head.uri.path().trim_start_matches("/api/v1/namespaces/").to_owned();
        self.fly().await;
        let mut state = self.state.lock().unwrap();
        state.calls.push(format!("{} {path}", head.method));
        let version = state.calls.len();
        let (status, answer) = match head.method {
            _ if state.away => (503, failure(503, "ServiceUnavailable")),
            Method::GET => match state.secrets.get(&path) {
                Some(secret) => (200, secret.clone()),
                None => (404, failure(404, "NotFound")),
            },
            Method::POST | Method::PUT => {
                let name = body["metadata"]["name"].as_str().unwrap();
                let path = if head.method == Method::POST { format!("{path}/{name}") } else { path };
                let mut stored = body.clone();
                stored["metadata"]["resourceVersion"] = json!(version.to_string());
                stored["metadata"]["uid"] = json!("secret");
                state.secrets.insert(path, stored.clone());
                (200, stored)
            }
            Method::DELETE => {
                state.secrets.remove(&path);
                (200, json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
            }
            _ => (405, failure(405, "MethodNotAllowed")),
        };
        let body = Body::from(answer.to_string().into_bytes());
        Ok(Response::builder().status(StatusCode::from_u16(status).unwrap()).body(body).unwrap())
    }

    /// Lets others go on while a call is under way.
    pub(crate) async fn fly(&self) {
        {
            let mut state = self.state.lock().unwrap();
            state.flying += 1;
            state.flew = state.flew.max(state.flying);
        }
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        self.state.lock().unwrap().flying -= 1;
    }

    /// The calls that were made since this was asked last.
    pub(crate) fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().calls)
    }

    pub(crate) fn register(&self, app: Registered) {
        self.state.lock().unwrap().stored.insert(app.id.clone(), app);
    }

    /// The watch catches up.
    pub(crate) fn watch(&self) {
        let mut state = self.state.lock().unwrap();
        state.watched = state.stored.clone();
    }

    pub(crate) fn away(&self, away: bool) {
        self.state.lock().unwrap().away = away;
    }
}

fn failure(code: u16, reason: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": reason, "reason": reason, "code": code,
        "details": {"name": "x", "kind": "secrets"}
    })
}

#[async_trait]
impl Registrations for World {
    async fn known(&self, id: &AppId) -> Result<Option<Registered>> {
        Ok(self.state.lock().unwrap().watched.get(id).cloned())
    }

    async fn look_up(&self, id: &AppId) -> Result<Option<Registered>> {
        let mut state = self.state.lock().unwrap();
        state.calls.push(format!("GET app {id}"));
        if state.away {
            return Err(Error::unavailable("the API server", "it is away"));
        }
        Ok(state.stored.get(id).cloned())
    }

    async fn read(&self, uid: AppUid) -> Result<Option<Registered>> {
        Ok(self.state.lock().unwrap().stored.values().find(|app| app.uid == uid).cloned())
    }

    async fn announce(&self, app: &Registered, webhook: Option<&str>) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        let stored = state.stored.get_mut(&app.id).filter(|stored| stored.object == app.object);
        stored.ok_or(Error::NotFound(Entity::App))?.webhook = webhook.map(str::to_owned);
        Ok(())
    }
}
