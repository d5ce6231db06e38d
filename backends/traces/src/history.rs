//! The decorator of a history store that sees deploys go on.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use opentelemetry_sdk::trace::{SpanData, SpanProcessor};
use rollhook_core::{
    Result,
    app::{App, AppUid},
    deploy::{Deploy, Revision},
    ports::{
        AppChange, AppCommit, AppPage, AppRef, Binding, Committed, DriverIdentity, Heartbeat, HistoryStore, ListedApp,
        Loaded, Page, StoreLimits, Version,
    },
    replica::ReplicaId,
    request::IdempotencyKey,
    trace::TraceParent,
};
use tokio::time::Instant;

use crate::{phases::Phase, spans};

/// A history store whose confirmed commits become spans.
pub(crate) struct TracedHistoryStore<P> {
    inner: Arc<dyn HistoryStore>,
    spans: Arc<P>,
    known: Mutex<HashMap<AppUid, Known>>,
}

/// The unfinished deploys of an app, as this process has seen them last.
struct Known {
    version: Version,
    unfinished: Vec<Arc<Deploy>>,
}

/// The part of a commit that spans are made of.
struct Written {
    app: Arc<App>,
    admitted: Vec<Revision>,
    unfinished: Vec<Arc<Deploy>>,
    ended: Vec<Arc<Deploy>>,
}

impl Written {
    fn of(commit: &AppCommit) -> Option<Self> {
        let change = commit.change()?;
        Some(Self {
            app: Arc::clone(&change.state.app),
            admitted: change.admitted.clone(),
            unfinished: change.state.unfinished.clone(),
            ended: change.ended.clone(),
        })
    }

    /// Returns the spans that end with this commit, which took so long.
    fn spans(&self, before: &[Arc<Deploy>], took: Duration) -> Vec<SpanData> {
        let mut spans = Vec::new();
        for deploy in self.unfinished.iter().chain(&self.ended).filter(|deploy| is_traced(deploy)) {
            if self.admitted.contains(&deploy.revision) {
                let end = deploy.created_at.after(took);
                spans.push(spans::of_phase(&self.app, deploy, Phase::Accept, deploy.created_at, end));
            }
            let before = before.iter().find(|before| before.revision == deploy.revision);
            if let Some((phase, begin, end)) = before.and_then(|before| Phase::ended(before, deploy)) {
                spans.push(spans::of_phase(&self.app, deploy, phase, begin, end));
            }
        }
        let ended = self.ended.iter().filter(|deploy| is_traced(deploy));
        spans.extend(ended.map(|deploy| spans::of_deploy(&self.app, deploy)));
        spans
    }
}

/// Returns whether a deploy has a trace. The image that ran when the app was registered is no deploy; and a trace that
/// its caller does not keep is not told in parts.
fn is_traced(deploy: &Deploy) -> bool {
    !deploy.adopted && deploy.trace.as_ref().is_none_or(TraceParent::is_sampled)
}

impl<P: SpanProcessor> TracedHistoryStore<P> {
    pub(crate) fn new(inner: Arc<dyn HistoryStore>, spans: Arc<P>) -> Self {
        Self { inner, spans, known: Mutex::default() }
    }

    /// Takes note of an app's unfinished deploys. Returns those that were known before.
    fn seen(&self, app: AppUid, version: Version, unfinished: Vec<Arc<Deploy>>) -> Vec<Arc<Deploy>> {
        let mut known = self.lock();
        if known.get(&app).is_some_and(|known| known.version > version) {
            return Vec::new();
        }
        let before = match unfinished.is_empty() {
            true => known.remove(&app),
            false => known.insert(app, Known { version, unfinished }),
        };
        before.map(|known| known.unfinished).unwrap_or_default()
    }

    fn written(&self, app: AppUid, written: Option<Written>, version: Version, took: Duration) {
        let Some(written) = written else {
            self.lock().remove(&app);
            return;
        };
        let before = self.seen(app, version, written.unfinished.clone());
        written.spans(&before, took).into_iter().for_each(|span| self.spans.on_end(span));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<AppUid, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl<P: SpanProcessor> HistoryStore for TracedHistoryStore<P> {
    async fn load(&self, app: AppRef<'_>, key: Option<&IdempotencyKey>) -> Result<Option<Loaded>> {
        let loaded = self.inner.load(app, key).await;
        if let Ok(Some(loaded)) = &loaded {
            self.seen(loaded.state.app.uid, loaded.version, loaded.state.unfinished.clone());
        }
        loaded
    }

    async fn commit(&self, commits: Vec<AppCommit>) -> Vec<Result<Committed>> {
        let written: Vec<_> = commits.iter().map(|commit| (commit.app(), Written::of(commit))).collect();
        let start = Instant::now();
        let answers = self.inner.commit(commits).await;
        let took = start.elapsed();
        for ((app, written), answer) in written.into_iter().zip(&answers) {
            if let Ok(committed) = answer {
                self.written(app, written, committed.version, took);
            }
        }
        answers
    }

    async fn page(&self, app: AppUid, page: Page) -> Result<Vec<Deploy>> {
        self.inner.page(app, page).await
    }

    async fn list(&self, page: AppPage) -> Result<Vec<ListedApp>> {
        self.inner.list(page).await
    }

    async fn work(&self, alive: &[ReplicaId], limit: usize) -> Result<Vec<AppUid>> {
        self.inner.work(alive, limit).await
    }

    async fn heartbeat(&self, replica: &ReplicaId, ttl: Duration) -> Result<Heartbeat> {
        self.inner.heartbeat(replica, ttl).await
    }

    async fn bind_driver(&self, driver: &DriverIdentity, binding: Binding) -> Result<DriverIdentity> {
        self.inner.bind_driver(driver, binding).await
    }

    fn watch(&self) -> BoxStream<'static, AppChange> {
        self.inner.watch()
    }

    fn limits(&self) -> StoreLimits {
        self.inner.limits()
    }
}

#[cfg(test)]
mod tests;
