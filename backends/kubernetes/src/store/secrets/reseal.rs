//! Replacing the key that tokens and configurations are sealed with.

use k8s_openapi::api::core::v1::Secret;
use rollhook_core::{Error, Result, error::Entity};
use rollhook_sealing::{KeyId, KeyRing, usage};

use super::{ATTEMPTS, KubernetesStore, Maker, Secrets, object, registrations::Registered};
use crate::store::{
    api::{self, Written},
    app_record::{AppRecord, is_copy},
    crd::AppObject,
    hand_made::why_no_app,
};

impl KubernetesStore {
    /// Seals every token and configuration anew with the newest key, so that older keys can be deleted; says how many were not
    /// sealed with it before. May be interrupted, and repeated; a webhook that is enabled meanwhile has the token of that.
    ///
    /// # Errors
    /// `Denied` where one was sealed with a key that the ring lacks, `Corrupt` where one was damaged; those before
    /// it are sealed anew then.
    pub async fn reseal(&self) -> Result<u64> {
        let mut count = 0;
        for app in self.all().await? {
            count += u64::from(self.secrets.reseal(&app).await?) + self.configurations.reseal(&app).await?;
        }
        Ok(count)
    }

    /// The keys that it seals and opens with.
    pub fn ring(&self) -> &KeyRing {
        self.secrets.ring()
    }

    /// The keys that tokens and configurations are sealed with, and how many with each.
    ///
    /// # Errors
    /// `Unavailable` while the API server is away; `Corrupt` where a token or configuration names no key.
    pub async fn keys_in_use(&self) -> Result<Vec<(KeyId, u64)>> {
        let mut keys = Vec::new();
        for app in self.all().await? {
            if let Some(secret) = self.secrets.own(&app).await? {
                keys.push(KeyRing::key_of(object::bytes(&secret)?)?);
            }
            keys.extend(self.configurations.keys(&app).await?);
        }
        Ok(usage::sum(keys.into_iter().map(|key| (key, 1))))
    }

    /// All apps, read now.
    async fn all(&self) -> Result<Vec<Registered>> {
        let found: Vec<AppObject> = api::list(&self.api.all(), None).await?;
        let is_app = |object: &AppObject| !is_copy(object) && why_no_app(object).is_none();
        let originals = found.into_iter().filter(is_app);
        originals.map(|object| Ok(Registered::of(&AppRecord::read(object)?))).collect()
    }
}

impl Secrets {
    /// Whether the app's token had to be sealed anew.
    async fn reseal(&self, app: &Registered) -> Result<bool> {
        for _ in 0..ATTEMPTS {
            let Some(mut secret) = self.own(app).await? else { return Ok(false) };
            let Some(token) = object::open(&self.ring, &secret)? else { return Ok(false) };
            if KeyRing::key_of(object::bytes(&secret)?)? == self.ring.primary() {
                return Ok(false);
            }
            object::fill(&self.ring, &mut secret, &token)?;
            match api::replace(&self.within(&app.id), &secret).await? {
                Written::Done(_) => return Ok(true),
                Written::Conflict | Written::Gone => {}
            }
        }
        Err(Error::Conflict(Entity::Object))
    }

    /// The Secret of just this registration.
    async fn own(&self, app: &Registered) -> Result<Option<Secret>> {
        Ok(self.object(&app.id).await?.filter(|secret| object::maker(secret) == Maker::Rollhook(app.uid)))
    }
}
