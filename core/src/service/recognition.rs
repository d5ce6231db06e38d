//! Recognises callers by what this process last read of their tokens, so that a host can tell a known caller from
//! strangers before it reads the store.
//!
//! Recognition lets nobody in: a recognised caller is authorized by a read of the store like every other. Each read
//! corrects what is remembered, also the read that refuses a caller: an app whose token was ever read here is
//! remembered, whoever caused the read.

use std::{
    collections::HashMap,
    mem,
    sync::{Mutex, PoisonError},
};

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::auth::NO_SECRET;
use crate::{
    app::AppId,
    ports::Rng,
    token::{Credentials, Token, TokenTrace, TraceKey},
};

/// The most apps of each of the table's two generations.
const GENERATION: usize = 10_000;

type Traces = HashMap<AppId, TokenTrace>;

/// The memory of tokens that were read.
pub(super) struct Recognition {
    key: TraceKey,
    /// Two generations bound the table: the older one is dropped once the newer is full.
    apps: Mutex<(Traces, Traces)>,
    /// The stored hash of the management token.
    operator: Mutex<Option<[u8; 32]>>,
    /// The trace that is compared if there is none, so that the work is the same.
    dummy: Option<TokenTrace>,
}

impl Recognition {
    pub(super) fn new(rng: &dyn Rng) -> Self {
        let mut bytes = Zeroizing::new([0; TraceKey::RANDOM_BYTES]);
        rng.fill(bytes.as_mut_slice());
        let key = TraceKey::from_random(*bytes);
        let dummy = Token::from_random(&NO_SECRET).map(|token| TokenTrace::new(&key, &token));
        Self { key, apps: Mutex::default(), operator: Mutex::default(), dummy }
    }

    /// Remembers the app's token as it was just read.
    pub(super) fn read(&self, app: &AppId, token: Option<&Token>) {
        let mut generations = self.apps.lock().unwrap_or_else(PoisonError::into_inner);
        let (newer, older) = &mut *generations;
        let Some(token) = token else {
            newer.remove(app);
            older.remove(app);
            return;
        };
        if newer.get(app).is_some_and(|known| known.matches(&self.key, token.expose().as_bytes())) {
            return;
        }
        if newer.len() >= GENERATION {
            *older = mem::take(newer);
        }
        older.remove(app);
        newer.insert(app.clone(), TokenTrace::new(&self.key, token));
    }

    /// Returns whether the credentials fit the app's token as it was last read.
    pub(super) fn fits(&self, app: &AppId, credentials: &Credentials, body: &[u8]) -> bool {
        let known = {
            let generations = self.apps.lock().unwrap_or_else(PoisonError::into_inner);
            generations.0.get(app).or_else(|| generations.1.get(app)).cloned()
        };
        let trace = known.as_ref().or(self.dummy.as_ref());
        trace.is_some_and(|trace| credentials.fit_trace(trace, &self.key, body)) & known.is_some()
    }

    /// Remembers the management token's hash as it was just read.
    pub(super) fn read_operator(&self, hash: Option<[u8; 32]>) {
        *self.operator.lock().unwrap_or_else(PoisonError::into_inner) = hash;
    }

    /// Returns whether this is the management token as its hash was last read.
    pub(super) fn is_operator(&self, presented: &[u8]) -> bool {
        self.is_operator_hash(&Sha256::digest(presented).into())
    }

    /// Returns whether this is the management token's hash as it was last read.
    pub(super) fn is_operator_hash(&self, hash: &[u8; 32]) -> bool {
        let known = *self.operator.lock().unwrap_or_else(PoisonError::into_inner);
        known.is_some_and(|known| known.ct_eq(hash).into())
    }
}
