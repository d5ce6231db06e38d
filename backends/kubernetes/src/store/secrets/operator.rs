//! The management token's hash, in a Secret of the server's own namespace.

use std::{
    future::ready,
    sync::{Arc, Mutex, PoisonError},
};

use k8s_openapi::api::core::v1::Secret;
use rollhook_core::{Error, Result, ports::TokenMatcher};

use super::{budget::Budget, object, shared::Shared};
use crate::store::{
    StoreClock,
    calls::{self, Calls, Written},
};

/// The Secret's name.
pub(crate) const NAME: &str = "rollhook-operator";

/// How often the hash is written again because somebody else wrote it in between.
const ATTEMPTS: u32 = 5;

/// The hash as this replica last saw it, and the reads that are under way.
///
/// Nobody tells a replica that another has set the hash. So whoever does not fit what is remembered is refused only
/// after a read, but waits for it until the budget allows one, and all who wait share it. The budget is their own: apps'
/// webhooks have another.
pub(crate) struct Operator {
    budget: Arc<Budget>,
    seen: Arc<Mutex<Option<[u8; 32]>>>,
    confirming: Shared<Option<[u8; 32]>>,
    refusing: Shared<Option<[u8; 32]>>,
}

impl Operator {
    pub(crate) fn new(clock: StoreClock) -> Self {
        Self {
            budget: Arc::new(Budget::new(clock)),
            seen: Arc::default(),
            confirming: Shared::default(),
            refusing: Shared::default(),
        }
    }

    /// The hash as it is stored.
    pub(crate) async fn hash(&self, calls: &Calls) -> Result<Option<[u8; 32]>> {
        self.confirming.read(ready(()), self.read(calls)).await
    }

    /// Whether the hash that is stored fits.
    pub(crate) async fn fitting(&self, calls: &Calls, fits: TokenMatcher<'_, [u8; 32]>) -> Result<bool> {
        let seen = *self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let budget = self.budget.clone();
        let stored = match seen.is_some_and(|seen| fits(Some(&seen))) {
            true => self.hash(calls).await?,
            false => self.refusing.read(async move { budget.take().await }, self.read(calls)).await?,
        };
        Ok(fits(stored.as_ref()))
    }

    /// Makes this the hash.
    pub(crate) async fn set(&self, calls: &Calls, hash: [u8; 32]) -> Result<()> {
        let secrets = calls.secrets(calls.namespace());
        let wanted = object::operator(NAME, &hash);
        for _ in 0..ATTEMPTS {
            let written = match calls::get(&secrets, NAME).await? {
                None => calls::create(&secrets, &wanted).await?,
                Some(present) if !object::is_ours(&present) => {
                    return Err(object::in_the_way(calls.namespace(), NAME));
                }
                Some(mut present) => {
                    present.data = wanted.data.clone();
                    calls::replace(&secrets, &present).await?
                }
            };
            if let Written::Done(_) = written {
                self.remember(Some(hash));
                return Ok(());
            }
        }
        Err(Error::Conflict("the management token is set by others all the time"))
    }

    fn read(&self, calls: &Calls) -> impl Future<Output = Result<Option<[u8; 32]>>> + Send + 'static {
        let (secrets, seen) = (calls.secrets(calls.namespace()), self.seen.clone());
        async move {
            let present: Option<Secret> = calls::get(&secrets, NAME).await?;
            let hash = present.filter(object::is_ours).as_ref().map(object::operator_hash).transpose()?;
            *seen.lock().unwrap_or_else(PoisonError::into_inner) = hash;
            Ok(hash)
        }
    }

    fn remember(&self, hash: Option<[u8; 32]>) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = hash;
    }
}
