//! The secrets.

use async_trait::async_trait;
use rollhook_core::{
    Result,
    app::{AppId, AppUid},
    ports::{Sealing, TokenStore, WebhookSecret},
    token::Token,
};

use crate::store::MemoryStore;

#[async_trait]
impl TokenStore for MemoryStore {
    async fn put(&self, app: AppUid, token: &Token) -> Result<WebhookSecret> {
        let now = self.now();
        let mut state = self.lock();
        let ledger = state.ledger_mut(app)?;
        let secret = WebhookSecret { app, token: token.clone(), created_at: ledger.stamp(now) };
        ledger.secret = Some(secret.clone());
        Ok(secret)
    }

    async fn find(&self, app: &AppId) -> Result<Option<WebhookSecret>> {
        Ok(self.lock().named(app).and_then(|ledger| ledger.secret.clone()))
    }

    async fn remove(&self, app: AppUid) -> Result<()> {
        if let Ok(ledger) = self.lock().ledger_mut(app) {
            ledger.secret = None;
        }
        Ok(())
    }

    async fn operator_hash(&self) -> Result<Option<[u8; 32]>> {
        Ok(self.lock().operator_hash)
    }

    async fn set_operator_hash(&self, hash: [u8; 32]) -> Result<()> {
        self.lock().operator_hash = Some(hash);
        Ok(())
    }

    fn sealing(&self) -> Sealing {
        Sealing::Memory
    }
}
