//! Configurations.

use async_trait::async_trait;
use rollhook_core::{
    Error, Result,
    app::{AppUid, Namespace},
    configuration::{ConfigurationId, Variables},
    error::Entity,
    ports::{ConfigurationStore, StoredConfiguration},
};

use crate::store::MemoryStore;

#[async_trait]
impl ConfigurationStore for MemoryStore {
    async fn put(&self, app: AppUid, id: ConfigurationId, variables: &Variables) -> Result<()> {
        let now = self.now();
        let mut tables = self.lock();
        let stored = tables.apps.get_mut(&app).ok_or(Error::NotFound(Entity::App))?;
        let now = stored.state.time(now);
        let bytes = u64::try_from(variables.to_text().len()).unwrap_or(u64::MAX);
        let listed = StoredConfiguration { id, bytes, created_at: now };
        stored.configurations.entry(id).or_insert_with(|| (variables.clone(), listed));
        Ok(())
    }

    async fn get(&self, app: AppUid, id: ConfigurationId) -> Result<Option<Variables>> {
        let tables = self.lock();
        Ok(tables
            .apps
            .get(&app)
            .and_then(|stored| stored.configurations.get(&id))
            .map(|(variables, _)| variables.clone()))
    }

    async fn list(&self, app: AppUid) -> Result<Vec<StoredConfiguration>> {
        let tables = self.lock();
        let stored = tables.apps.get(&app).into_iter().flat_map(|stored| &stored.configurations);
        Ok(stored.map(|(_, (_, listed))| *listed).collect())
    }

    async fn bytes_of(&self, namespace: &Namespace) -> Result<u64> {
        let tables = self.lock();
        let apps = tables.apps.values().filter(|stored| stored.state.app.id.namespace == *namespace);
        Ok(apps.flat_map(|stored| stored.configurations.values()).map(|(_, listed)| listed.bytes).sum())
    }

    async fn remove(&self, app: AppUid, ids: &[ConfigurationId]) -> Result<()> {
        if let Some(stored) = self.lock().apps.get_mut(&app) {
            stored.configurations.retain(|id, _| !ids.contains(id));
        }
        Ok(())
    }
}
