//! Recognises callers by what this process last read of their tokens, so that a host can tell a known caller from
//! strangers before it reads the store.
//!
//! Recognition lets nobody in: a recognised caller is authorized by a read of the store like every other. Each read
//! corrects what is remembered, also the read that refuses a caller: an app whose token was ever read here is
//! remembered, whoever caused the read.

use std::{
    collections::{HashMap, HashSet},
    mem,
    pin::pin,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use futures_util::{
    StreamExt,
    future::{BoxFuture, join_all},
};
use zeroize::Zeroizing;

use super::{Deployer, api_tokens::key_of, auth::NO_SECRET};
use crate::{
    app::{AppId, AppUid},
    ports::{RecordKey, Rng, WebhookSecret, listed_id},
    token::{Credentials, Fault, Token, TokenTrace, TraceKey},
};

/// The most apps of each of the table's two generations.
const GENERATION: usize = 10_000;
/// The most API tokens and sessions; once there are more, all are forgotten.
const SECRETS: usize = 10_000;

/// The number of tokens that [`Deployer::read_tokens`] reads in a second.
const READS: usize = 50;
const SECOND: Duration = Duration::from_secs(1);

/// The traces of each app's token, and of the one before.
type Traces = HashMap<AppId, Traced>;

/// The registration that a token is of, its trace, and that of the token before.
type Traced = (AppUid, TokenTrace, Option<TokenTrace>);

/// The memory of tokens that were read.
pub(super) struct Recognition {
    key: TraceKey,
    /// Two generations bound the table: the older one is dropped once the newer is full.
    apps: Mutex<(Traces, Traces)>,
    /// The keys of the records of API tokens and of sessions.
    secrets: Mutex<HashSet<RecordKey>>,
    /// The trace that is compared if there is none, so that the work is the same.
    dummy: Option<TokenTrace>,
}

impl Deployer {
    /// Reads the token of each app once, fifty in a second, so that the callers of every app are recognised after a
    /// restart: until then an app's first caller competes with all names that strangers make up.
    pub async fn read_tokens(&self) {
        let mut pages = pin!(self.all_apps());
        while let Some(apps) = pages.next().await {
            for some in apps.chunks(READS) {
                join_all(some.iter().map(|app| self.read_token(listed_id(app)))).await;
                self.ports.clock.sleep(SECOND).await;
            }
        }
    }

    /// Reads an app's token, as for a caller who is refused.
    fn read_token<'a>(&'a self, app: &'a AppId) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let remembers = |secret: Option<&WebhookSecret>| {
                self.recognition.read(app, secret);
                false
            };
            // A token that cannot be read now is read for its app's first caller.
            if let Err(error) = self.ports.tokens.find_fitting(app, &remembers).await {
                tracing::debug!(%app, error = %error.chain(), "reading a token failed");
            }
            self.remember_trusts(app).await;
        })
    }
}

impl Recognition {
    pub(super) fn new(rng: &dyn Rng) -> Self {
        let mut bytes = Zeroizing::new([0; TraceKey::RANDOM_BYTES]);
        rng.fill(bytes.as_mut_slice());
        let key = TraceKey::from_random(*bytes);
        let dummy = Token::from_random(&NO_SECRET).map(|token| TokenTrace::new(&key, &token));
        Self { key, apps: Mutex::default(), secrets: Mutex::default(), dummy }
    }

    /// Remembers the app's token as it was just read.
    pub(super) fn read(&self, app: &AppId, secret: Option<&WebhookSecret>) {
        let mut generations = self.apps.lock().unwrap_or_else(PoisonError::into_inner);
        let (newer, older) = &mut *generations;
        let Some(secret) = secret else {
            newer.remove(app);
            older.remove(app);
            return;
        };
        let is = |trace: &TokenTrace, token: &Token| trace.matches(&self.key, token.expose().as_bytes());
        let previous = secret.previous.as_ref().map(|previous| &previous.token);
        let is_known = newer.get(app).is_some_and(|(uid, newest, before)| {
            *uid == secret.app
                && is(newest, &secret.token)
                && match (before, previous) {
                    (Some(before), Some(previous)) => is(before, previous),
                    (before, previous) => before.is_none() && previous.is_none(),
                }
        });
        if is_known {
            return;
        }
        if newer.len() >= GENERATION {
            *older = mem::take(newer);
        }
        older.remove(app);
        let trace = |token: &Token| TokenTrace::new(&self.key, token);
        newer.insert(app.clone(), (secret.app, trace(&secret.token), previous.map(trace)));
    }

    /// Returns whether the credentials fit the app's token as it was last read.
    pub(super) fn fits(&self, app: &AppId, credentials: &Credentials, body: &[u8]) -> bool {
        let known = self.known(app);
        let fits = |trace: Option<&TokenTrace>| {
            let compared = trace.or(self.dummy.as_ref());
            compared.is_some_and(|trace| credentials.fit_trace(trace, &self.key, body)) & trace.is_some()
        };
        let (newest, before) = known.map_or((None, None), |(_, newest, before)| (Some(newest), before));
        fits(newest.as_ref()) | fits(before.as_ref())
    }

    /// Returns the app, if its token was read, and why credentials that were refused do not fit it. The work is the same
    /// for every name.
    pub(super) fn fault(&self, app: &AppId, credentials: &Credentials, body: &[u8]) -> (Option<AppUid>, Fault) {
        let known = self.known(app);
        let uid = known.as_ref().map(|(uid, ..)| *uid);
        let (newest, before) = known.map_or((None, None), |(_, newest, before)| (Some(newest), before));
        let compared = |trace: Option<TokenTrace>| trace.or_else(|| self.dummy.clone());
        let has_before = before.is_some();
        let fits_before = compared(before).is_some_and(|trace| credentials.fit_trace(&trace, &self.key, body));
        let fault = compared(newest).map_or(Fault::WrongToken, |trace| credentials.fault(&trace, &self.key, body));
        (uid, if fits_before && has_before { Fault::ReplacedToken } else { fault })
    }

    fn known(&self, app: &AppId) -> Option<Traced> {
        let generations = self.apps.lock().unwrap_or_else(PoisonError::into_inner);
        generations.0.get(app).or_else(|| generations.1.get(app)).cloned()
    }

    /// Remembers whether the API token or session of this record is valid, as it was just read.
    pub(super) fn read_secret(&self, key: &RecordKey, is_valid: bool) {
        let mut known = self.secrets.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_valid {
            known.remove(key);
            return;
        }
        if known.len() >= SECRETS {
            known.clear();
        }
        known.insert(key.clone());
    }

    /// Returns whether this is an API token or session that was valid when it was last read.
    pub(super) fn is_secret(&self, presented: &[u8]) -> bool {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner).contains(&key_of(presented))
    }
}
