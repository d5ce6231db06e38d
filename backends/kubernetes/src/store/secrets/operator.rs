//! The admin token's hash, in a Secret of the server's own namespace.

use std::{
    future::ready,
    sync::{Arc, Mutex},
};

use k8s_openapi::api::core::v1::Secret;
use rollhook_core::{Error, Result, error::Entity, ports::TokenMatcher};

use super::{budget::Budget, object, shared::Shared};
use crate::{
    lock,
    store::{
        StoreClock,
        api::{self, ApiServer, Written},
    },
};

/// The Secret's name.
pub(crate) const NAME: &str = "rollhook-operator";

/// The number of attempts to write the hash while others write it at the same time.
const ATTEMPTS: u32 = 5;

/// The hash as this replica last saw it, and the reads that are under way.
///
/// A replica is not told that another one has set the hash. So a caller that does not match the remembered hash is
/// refused only after a read; it waits until the budget allows one, and all waiting callers share it. Apps' webhooks
/// have a budget of their own.
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
    pub(crate) async fn hash(&self, server: &ApiServer) -> Result<Option<[u8; 32]>> {
        self.confirming.read(ready(()), self.read(server)).await
    }

    /// Whether the hash that is stored fits.
    pub(crate) async fn fitting(&self, server: &ApiServer, fits: TokenMatcher<'_, [u8; 32]>) -> Result<bool> {
        let seen = *lock(&self.seen);
        let budget = self.budget.clone();
        let stored = match seen.is_some_and(|seen| fits(Some(&seen))) {
            true => self.hash(server).await?,
            false => self.refusing.read(async move { budget.take().await }, self.read(server)).await?,
        };
        Ok(fits(stored.as_ref()))
    }

    /// Makes this the hash.
    pub(crate) async fn set(&self, server: &ApiServer, hash: [u8; 32]) -> Result<()> {
        let secrets = server.own::<Secret>();
        let wanted = object::operator(NAME, &hash);
        for _ in 0..ATTEMPTS {
            let written = match api::get(&secrets, NAME).await? {
                None => api::create(&secrets, &wanted).await?,
                Some(present) if !object::is_ours(&present) => {
                    return Err(object::in_the_way(server.namespace(), NAME));
                }
                Some(mut present) => {
                    present.data = wanted.data.clone();
                    api::replace(&secrets, &present).await?
                }
            };
            if let Written::Done(_) = written {
                *lock(&self.seen) = Some(hash);
                return Ok(());
            }
        }
        Err(Error::Conflict(Entity::Object))
    }

    fn read(&self, server: &ApiServer) -> impl Future<Output = Result<Option<[u8; 32]>>> + Send + 'static {
        let (secrets, seen) = (server.own::<Secret>(), self.seen.clone());
        async move {
            let present: Option<Secret> = api::get(&secrets, NAME).await?;
            let hash = present.filter(object::is_ours).as_ref().map(object::operator_hash).transpose()?;
            *lock(&seen) = hash;
            Ok(hash)
        }
    }
}
