//! Replacing the key that configurations are sealed with.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use rollhook_core::{Error, Result, configuration::ConfigurationId, error::Entity};
use rollhook_sealing::{KeyId, configuration};

use super::{ATTEMPTS, Configurations, Index, Registered, beside, object};
use crate::store::api::{self, Written};

/// The time after which a configuration that was noted, and has no Secret, is none: longer than a call.
const ABANDONED: Duration = Duration::from_secs(60);

impl Configurations {
    /// Seals the app's configurations anew that are not sealed with the newest key; returns how many.
    pub(crate) async fn reseal(&self, app: &Registered) -> Result<u64> {
        let primary = self.ring.primary().to_string();
        let mut count = 0;
        for (id, entry) in self.index(app).await?.0.into_iter().filter(|(_, entry)| entry.key != primary) {
            match self.reseal_one(app, id).await? {
                Some((key, is_resealed)) => {
                    count += u64::from(is_resealed);
                    let key = key.to_string();
                    self.change(app, |index| note_key(index, id, &key)).await?;
                }
                None if self.clock.now().since(entry.created_at) > ABANDONED => {
                    self.change(app, |index| index.0.remove(&id).is_some()).await?;
                }
                None => {}
            }
        }
        Ok(count)
    }

    /// Seals a configuration anew; returns its key, and whether it had another. Returns `None` if it has no Secret.
    async fn reseal_one(&self, app: &Registered, id: ConfigurationId) -> Result<Option<(KeyId, bool)>> {
        for _ in 0..ATTEMPTS {
            let Some(mut secret) = self.own(app, &object::name(&app.id, id)).await? else { return Ok(None) };
            let old = object::sealed(secret.clone())?;
            let (ring, uid, sealed) = (self.ring.clone(), app.uid, old.clone());
            let new = beside(move || configuration::reseal(&ring, uid, id, sealed)).await?;
            if new.bytes == old {
                return Ok(Some((new.key, false)));
            }
            object::fill(&mut secret, new.bytes);
            let written: Written<Secret> = api::replace(&self.within(&app.id), &secret).await?;
            if let Written::Done(_) = written {
                return Ok(Some((new.key, true)));
            }
        }
        Err(Error::Conflict(Entity::Object))
    }

    /// The keys that the app's configurations are sealed with, one for each.
    pub(crate) async fn keys(&self, app: &Registered) -> Result<Vec<KeyId>> {
        self.index(app).await?.0.into_values().map(|entry| Ok(entry.key.parse()?)).collect()
    }
}

/// Notes the key of a configuration; returns whether that changes the index.
fn note_key(index: &mut Index, id: ConfigurationId, key: &str) -> bool {
    let Some(entry) = index.0.get_mut(&id).filter(|entry| entry.key != key) else { return false };
    key.clone_into(&mut entry.key);
    true
}
