//! The ports, on the file.

use std::{path::Path, sync::Arc};

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt};
use rollhook_core::{
    Error, Result,
    app::{App, AppId, AppUid},
    deploy::Deploy,
    ports::{
        Admission, Admitted, AppPage, Apps, Claim, Claimed, History, Page, Record, Sealing, TokenStore, View, Wake,
        WebhookSecret,
    },
    time::Timestamp,
    token::Token,
};
use tokio::sync::broadcast::{self, error::RecvError};

use crate::{
    file::JsonFile,
    seal::Key,
    state::{Ledger, State},
};

/// Where a store's time comes from.
pub(crate) type Now = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Registrations, secrets and history in one JSON file, which several processes of one machine may share.
pub(crate) struct JsonStore {
    file: JsonFile,
    key: Key,
    now: Now,
    wakes: broadcast::Sender<AppUid>,
}

impl JsonStore {
    /// The store in this file, which need not exist yet; `key` seals the tokens.
    pub(crate) fn open(path: &Path, key: &[u8; 32], now: Now) -> Self {
        Self { file: JsonFile::new(path), key: Key::new(key), now, wakes: broadcast::channel(64).0 }
    }

    fn change<T>(&self, change: impl FnOnce(&mut State, Timestamp) -> Result<T>) -> Result<T> {
        // Time is read under the lock, so that it is not older than what another process has written.
        self.file.change(|state| change(state, (self.now)()))
    }

    fn wake(&self, app: AppUid) {
        // Nobody may be listening.
        let _ = self.wakes.send(app);
    }
}

#[async_trait]
impl Apps for JsonStore {
    async fn create(&self, app: App) -> Result<App> {
        self.change(|state, now| {
            let app = App { guard: 0, created_at: now, ..app };
            for Ledger { app: other, .. } in state.ledgers.values().filter(|it| it.app.id.namespace == app.id.namespace)
            {
                if (&other.project, &other.environment) != (&app.project, &app.environment) {
                    return Err(Error::Conflict("namespace"));
                }
                if other.id == app.id || other.uid == app.uid {
                    return Err(Error::Conflict("app"));
                }
            }
            state.ledgers.insert(app.uid, Ledger::new(app.clone()));
            if app.is_polled() {
                state.queue(app.uid);
            }
            Ok(app)
        })
    }

    async fn find(&self, id: &AppId) -> Result<Option<App>> {
        let state = self.file.read()?;
        Ok(state.ledgers.into_values().map(|ledger| ledger.app).find(|app| app.id == *id))
    }

    async fn list(&self, page: AppPage) -> Result<Vec<App>> {
        let wanted = |app: &App| {
            page.namespace.as_ref().is_none_or(|namespace| app.id.namespace == *namespace)
                && page.after.as_ref().is_none_or(|after| app.id > *after)
        };
        let apps = self.file.read()?.ledgers.into_values().map(|ledger| ledger.app);
        let mut apps: Vec<App> = apps.filter(wanted).collect();
        apps.sort_by(|one, other| one.id.cmp(&other.id));
        apps.truncate(page.limit);
        Ok(apps)
    }

    async fn update(&self, app: App) -> Result<App> {
        self.change(|state, _| {
            let stored = &mut state.ledger_mut(app.uid)?.app;
            if stored.guard != app.guard {
                return Err(Error::Conflict("app"));
            }
            *stored = App {
                guard: app.guard + 1,
                source: app.source,
                policy: app.policy,
                holds: app.holds,
                ..stored.clone()
            };
            let updated = stored.clone();
            if updated.is_polled() {
                state.queue(updated.uid);
            }
            Ok(updated)
        })
    }

    async fn remove(&self, uid: AppUid) -> Result<()> {
        self.change(|state, _| {
            state.ledgers.remove(&uid);
            state.work.retain(|(app, _)| *app != uid);
            Ok(())
        })?;
        self.wake(uid);
        Ok(())
    }
}

#[async_trait]
impl TokenStore for JsonStore {
    async fn put(&self, app: AppUid, token: &Token) -> Result<WebhookSecret> {
        let sealed = self.key.seal(app, token)?;
        let created_at = self.change(|state, now| {
            let ledger = state.ledger_mut(app)?;
            let now = ledger.stamp(now);
            ledger.token = Some((sealed, now));
            Ok(now)
        })?;
        Ok(WebhookSecret { app, token: token.clone(), created_at })
    }

    async fn find(&self, id: &AppId) -> Result<Option<WebhookSecret>> {
        let state = self.file.read()?;
        let Some(ledger) = state.ledgers.into_values().find(|ledger| ledger.app.id == *id) else { return Ok(None) };
        let app = ledger.app.uid;
        let Some((sealed, created_at)) = ledger.token else { return Ok(None) };
        Ok(Some(WebhookSecret { app, token: self.key.open(app, &sealed)?, created_at }))
    }

    async fn remove(&self, app: AppUid) -> Result<()> {
        self.change(|state, _| {
            if let Ok(ledger) = state.ledger_mut(app) {
                ledger.token = None;
            }
            Ok(())
        })
    }

    async fn operator_hash(&self) -> Result<Option<[u8; 32]>> {
        Ok(self.file.read()?.operator_hash)
    }

    async fn set_operator_hash(&self, hash: [u8; 32]) -> Result<()> {
        self.change(|state, _| {
            state.operator_hash = Some(hash);
            Ok(())
        })
    }

    fn sealing(&self) -> Sealing {
        Sealing::Sealed
    }
}

#[async_trait]
impl History for JsonStore {
    async fn admit(&self, admission: Admission) -> Result<Admitted> {
        let app = admission.app;
        let admitted = self.change(|state, now| state.admit(admission, now))?;
        self.wake(app);
        Ok(admitted)
    }

    async fn record(&self, record: Record) -> Result<()> {
        let app = record.app;
        self.change(|state, now| state.record(record, now))?;
        self.wake(app);
        Ok(())
    }

    async fn view(&self, app: AppUid) -> Result<View> {
        self.file.read()?.ledger(app).map(|ledger| ledger.view((self.now)()))
    }

    async fn page(&self, app: AppUid, page: Page) -> Result<Vec<Deploy>> {
        Ok(self.file.read()?.ledger(app).map(|ledger| ledger.page(page)).unwrap_or_default())
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        self.change(|state, now| Ok(Claimed { now, apps: state.claim(claim, now) }))
    }

    /// Hints of this handle's own writes; what other processes write is found by polling.
    fn wakes(&self) -> BoxStream<'static, Wake> {
        let receiver = self.wakes.subscribe();
        stream::unfold(receiver, |mut receiver| async move {
            match receiver.recv().await {
                Ok(app) => Some((Wake::App(app), receiver)),
                Err(RecvError::Lagged(_)) => Some((Wake::Any, receiver)),
                Err(RecvError::Closed) => None,
            }
        })
        .boxed()
    }
}
