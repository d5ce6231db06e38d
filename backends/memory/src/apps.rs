//! The registrations.

use std::{collections::btree_map::Entry, ops::Bound};

use async_trait::async_trait;
use rollhook_core::{
    Error, Result,
    app::{App, AppId, AppUid},
    ports::{AppPage, Apps},
};

use crate::store::{Ledger, MemoryStore, Space, State};

#[async_trait]
impl Apps for MemoryStore {
    async fn create(&self, app: App) -> Result<App> {
        let now = self.now();
        let mut state = self.lock();
        let created = state.create(App { guard: 0, created_at: now, ..app })?;
        state.queue_if_polled(&created);
        Ok(created)
    }

    async fn find(&self, id: &AppId) -> Result<Option<App>> {
        Ok(self.lock().named(id).map(|ledger| ledger.app.clone()))
    }

    async fn list(&self, page: AppPage) -> Result<Vec<App>> {
        Ok(self.lock().list(&page))
    }

    async fn update(&self, app: App) -> Result<App> {
        let mut state = self.lock();
        let ledger = state.ledger_mut(app.uid)?;
        if ledger.app.guard != app.guard {
            return Err(Error::Conflict("app"));
        }
        ledger.app = App {
            guard: app.guard + 1,
            source: app.source,
            policy: app.policy,
            holds: app.holds,
            ..ledger.app.clone()
        };
        let updated = ledger.app.clone();
        state.queue_if_polled(&updated);
        Ok(updated)
    }

    async fn remove(&self, uid: AppUid) -> Result<()> {
        self.lock().remove(uid);
        self.wakes.send(uid);
        Ok(())
    }
}

impl State {
    fn create(&mut self, app: App) -> Result<App> {
        if self.ledgers.contains_key(&app.uid) {
            return Err(Error::Conflict("app"));
        }
        let AppId { namespace, name } = app.id.clone();
        let space = match self.spaces.entry(namespace) {
            Entry::Occupied(taken) => {
                let space = taken.into_mut();
                if (&space.project, &space.environment) != (&app.project, &app.environment) {
                    return Err(Error::Conflict("namespace"));
                }
                space
            }
            Entry::Vacant(free) => free.insert(Space {
                project: app.project.clone(),
                environment: app.environment.clone(),
                apps: Default::default(),
            }),
        };
        match space.apps.entry(name) {
            Entry::Occupied(_) => return Err(Error::Conflict("app")),
            Entry::Vacant(free) => free.insert(app.uid),
        };
        self.ledgers.insert(app.uid, Ledger::new(app.clone()));
        Ok(app)
    }

    /// An app that is polled has work whatever happens.
    fn queue_if_polled(&mut self, app: &App) {
        if app.is_polled() {
            self.claims.queue(app.uid);
        }
    }

    fn list(&self, page: &AppPage) -> Vec<App> {
        let first = page.namespace.as_ref().max(page.after.as_ref().map(|after| &after.namespace));
        let from = first.map_or(Bound::Unbounded, Bound::Included);
        self.spaces
            .range((from, Bound::Unbounded))
            .take_while(|(namespace, _)| page.namespace.as_ref().is_none_or(|wanted| *namespace <= wanted))
            .filter(|(namespace, _)| page.namespace.as_ref().is_none_or(|wanted| *namespace == wanted))
            .flat_map(|(namespace, space)| {
                let after = page.after.as_ref().filter(|after| after.namespace == *namespace);
                let from = after.map_or(Bound::Unbounded, |after| Bound::Excluded(&after.name));
                space.apps.range((from, Bound::Unbounded))
            })
            .filter_map(|(_, uid)| self.ledgers.get(uid))
            .map(|ledger| ledger.app.clone())
            .take(page.limit)
            .collect()
    }

    fn remove(&mut self, uid: AppUid) {
        let Some(ledger) = self.ledgers.remove(&uid) else { return };
        self.claims.forget(uid);
        let AppId { namespace, name } = ledger.app.id;
        if let Entry::Occupied(mut space) = self.spaces.entry(namespace) {
            space.get_mut().apps.remove(&name);
            if space.get().apps.is_empty() {
                space.remove();
            }
        }
    }
}
