//! Recognises callers of webhooks by what this process last read of their tokens, so that a host can tell a known caller from
//! strangers before it reads the store.
//!
//! Recognition lets nobody in: a recognised caller is authorized by a read of the store like every other. Each read
//! corrects what is remembered, also the read that refuses a caller: an app whose token was ever read here is
//! remembered, whoever caused the read.

use std::{
    collections::HashMap,
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

use crate::{
    app::{AppId, AppUid},
    ports::{Rng, WebhookSecret, listed_id},
    service::{Deployer, accept::authorize::NO_SECRET},
    time::Timestamp,
    token::{Credentials, Fault, Token, TokenTrace, TraceKey},
};

/// The most apps of each of the table's two generations.
const GENERATION: usize = 10_000;
/// The number of tokens that [`Deployer::read_tokens`] reads in a second.
const READS: usize = 50;
const SECOND: Duration = Duration::from_secs(1);

/// The traces of each app's token, and of the one before.
type Traces = HashMap<AppId, Traced>;

/// The registration that a token is of, its trace, and that of the token before with the time until which it fits.
type Traced = (AppUid, TokenTrace, Option<Box<(TokenTrace, Timestamp)>>);

/// The memory of tokens that were read.
pub(crate) struct RecognizedWebhooks {
    key: TraceKey,
    /// Two generations bound the table: the older one is dropped once the newer is full.
    apps: Mutex<(Traces, Traces)>,
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
                self.recognized.read(app, secret);
                false
            };
            // A token that cannot be read now is read for its app's first caller.
            if let Err(error) = self.find_fitting(app, &|| true, &remembers).await {
                tracing::debug!(%app, error = %error.chain(), "reading a token failed");
            }
        })
    }

    /// Returns the app, if its token was read here, and why credentials that were refused do not fit it, as far as this
    /// process knows. The work is the same for every name.
    pub fn fault(&self, app: &AppId, credentials: &Credentials, body: &[u8]) -> (Option<AppUid>, Fault) {
        self.recognized.fault(app, credentials, body)
    }
}

impl RecognizedWebhooks {
    pub(crate) fn new(rng: &dyn Rng) -> Self {
        let mut bytes = Zeroizing::new([0; TraceKey::RANDOM_BYTES]);
        rng.fill(bytes.as_mut_slice());
        let key = TraceKey::from_random(*bytes);
        let dummy = Token::from_random(&NO_SECRET).map(|token| TokenTrace::new(&key, &token));
        Self { key, apps: Mutex::default(), dummy }
    }

    /// Remembers the app's token as it was just read.
    pub(crate) fn read(&self, app: &AppId, secret: Option<&WebhookSecret>) {
        let mut generations = self.apps.lock().unwrap_or_else(PoisonError::into_inner);
        let (newer, older) = &mut *generations;
        let Some(secret) = secret else {
            newer.remove(app);
            older.remove(app);
            return;
        };
        let is = |trace: &TokenTrace, token: &Token| trace.matches(&self.key, token.expose().as_bytes());
        let previous = secret.previous.as_ref();
        let is_known = newer.get(app).is_some_and(|(uid, newest, before)| {
            *uid == secret.app
                && is(newest, &secret.token)
                && match (before.as_deref(), previous) {
                    (Some((before, until)), Some(previous)) => is(before, &previous.token) && *until == previous.until,
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
        let before = previous.map(|previous| Box::new((trace(&previous.token), previous.until)));
        newer.insert(app.clone(), (secret.app, trace(&secret.token), before));
    }

    /// Returns whether the credentials fit the app's token as it was last read, or the one before while that lasts, by
    /// the store's clock.
    pub(crate) fn fits(&self, app: &AppId, credentials: &Credentials, body: &[u8], now: Option<Timestamp>) -> bool {
        let known = self.known(app);
        let fits = |trace: Option<&TokenTrace>| {
            let compared = trace.or(self.dummy.as_ref());
            compared.is_some_and(|trace| credentials.fit_trace(trace, &self.key, body)) & trace.is_some()
        };
        let (newest, before) = known.map_or((None, None), |(_, newest, before)| (Some(newest), before));
        let before = before.filter(|before| now.is_none_or(|now| now < before.1)).map(|before| before.0);
        fits(newest.as_ref()) | fits(before.as_ref())
    }

    /// Returns the app, if its token was read, and why credentials that were refused do not fit it. The work is the same
    /// for every name.
    pub(crate) fn fault(&self, app: &AppId, credentials: &Credentials, body: &[u8]) -> (Option<AppUid>, Fault) {
        let known = self.known(app);
        let uid = known.as_ref().map(|(uid, ..)| *uid);
        let (newest, before) = known.map_or((None, None), |(_, newest, before)| (Some(newest), before));
        let before = before.map(|before| before.0);
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
}
