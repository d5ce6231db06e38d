//! Tokens.

use async_trait::async_trait;
use rollhook_core::{
    Error, Result,
    app::{AppId, AppUid},
    error::Entity,
    ports::{AppRef, Sealing, TokenStore, WebhookSecret},
    time::Timestamp,
    token::Token,
};

use crate::store::MemoryStore;

#[async_trait]
impl TokenStore for MemoryStore {
    async fn put(&self, app: AppUid, token: &Token) -> Result<WebhookSecret> {
        let now = self.now();
        let mut tables = self.lock();
        let stored = tables.apps.get_mut(&app).ok_or(Error::NotFound(Entity::App))?;
        let secret = WebhookSecret::new(app, token.clone(), stored.state.time(now));
        stored.secret = Some(secret.clone());
        Ok(secret)
    }

    async fn rotate(&self, app: AppUid, token: &Token, until: Timestamp) -> Result<WebhookSecret> {
        let now = self.now();
        let mut tables = self.lock();
        let stored = tables.apps.get_mut(&app).ok_or(Error::NotFound(Entity::App))?;
        let present = stored.secret.take().ok_or(Error::NotFound(Entity::Object))?;
        let secret = present.rotated(token.clone(), until, stored.state.time(now));
        stored.secret = Some(secret.clone());
        Ok(secret)
    }

    async fn find(&self, app: &AppId) -> Result<Option<WebhookSecret>> {
        Ok(self.lock().app(AppRef::Name(app)).and_then(|stored| stored.secret.clone()))
    }

    async fn remove(&self, app: AppUid) -> Result<()> {
        if let Some(stored) = self.lock().apps.get_mut(&app) {
            stored.secret = None;
        }
        Ok(())
    }

    fn sealing(&self) -> Sealing {
        Sealing::Memory
    }
}
