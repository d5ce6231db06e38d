//! One read of a Secret for all callers that wait for it.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Mutex},
};

use k8s_openapi::api::core::v1::Secret;
use rollhook_core::{Error, Result, app::AppId};
use tokio::sync::{Semaphore, oneshot};

use super::object;
use crate::{
    lock,
    store::{
        api::{self, ApiServer},
        error::again,
    },
};

/// The most Secrets that are read at the same time; further callers wait in turn.
const AT_ONCE: usize = 8;

type Found = Result<Option<Secret>, Arc<Error>>;
type Waiting = HashMap<AppId, Vec<oneshot::Sender<Found>>>;

/// Shared reads. A caller is answered by a read that began after its call, so that it is as good as its own; callers
/// that wait for the same Secret share it, so that a burst of calls costs two reads.
#[derive(Clone)]
pub(crate) struct Reads {
    api: ApiServer,
    turns: Arc<Semaphore>,
    /// The callers of each app whose Secret is being read that wait for the next read.
    waiting: Arc<Mutex<Waiting>>,
}

impl Reads {
    pub(crate) fn new(api: ApiServer) -> Self {
        Self { api, turns: Arc::new(Semaphore::new(AT_ONCE)), waiting: Arc::default() }
    }

    /// Reads the app's Secret.
    pub(crate) async fn read(&self, app: &AppId) -> Result<Option<Secret>> {
        let (answering, answer) = oneshot::channel();
        match lock(&self.waiting).entry(app.clone()) {
            Entry::Occupied(mut waiting) => waiting.get_mut().push(answering),
            Entry::Vacant(nothing) => {
                nothing.insert(vec![answering]);
                tokio::spawn(self.clone().run(app.clone()));
            }
        }
        let ended = |error| Error::unavailable("a read ended before its time", error);
        answer.await.map_err(ended)?.map_err(|failure| again(&failure))
    }

    /// Reads the app's Secret for as long as callers wait for it.
    async fn run(self, app: AppId) {
        loop {
            let turn = self.turns.acquire().await;
            let Some(answering) = self.next(&app) else { return };
            let (api, name) = (self.api.within::<Secret>(app.namespace.as_str()), object::name(&app));
            // A task of its own: if it panics, the callers after these are answered all the same.
            let read = tokio::spawn(async move { api::get(&api, &name).await });
            let found = read.await.unwrap_or_else(|error| Err(Error::unavailable("a read has panicked", error)));
            drop(turn);
            let found = found.map_err(Arc::new);
            answering.into_iter().for_each(|to| drop(to.send(found.clone())));
        }
    }

    /// Takes the callers that wait by now, and have not hung up; forgets the app if there are none.
    fn next(&self, app: &AppId) -> Option<Vec<oneshot::Sender<Found>>> {
        let mut waiting = lock(&self.waiting);
        let mut callers = waiting.get_mut(app).map(std::mem::take).unwrap_or_default();
        callers.retain(|caller| !caller.is_closed());
        if callers.is_empty() {
            waiting.remove(app);
            return None;
        }
        Some(callers)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use futures_util::{
        FutureExt,
        future::{join, join_all},
    };
    use http::{Request, Response, StatusCode};
    use kube::client::Body;
    use serde_json::json;
    use tower::service_fn;

    use super::*;

    /// An API server that has every Secret.
    #[derive(Default)]
    struct Server {
        calls: AtomicUsize,
        /// The calls that are under way, and the most that were.
        under_way: AtomicUsize,
        at_once: AtomicUsize,
        is_away: AtomicBool,
    }

    impl Server {
        fn reads(self: &Arc<Self>) -> Reads {
            let server = self.clone();
            let service = service_fn(move |_: Request<Body>| server.clone().answer());
            Reads::new(ApiServer::new(kube::Client::new(service, "rollhook"), "rollhook"))
        }

        async fn answer(self: Arc<Self>) -> Result<Response<Body>, std::convert::Infallible> {
            self.calls.fetch_add(1, Ordering::SeqCst);
            self.at_once.fetch_max(self.under_way.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            self.under_way.fetch_sub(1, Ordering::SeqCst);
            let (status, body) = match self.is_away.load(Ordering::SeqCst) {
                true => (503, json!({"kind": "Status", "status": "Failure", "code": 503, "reason": "away"})),
                false => (200, json!({"metadata": {"name": "api-webhook"}})),
            };
            let body = Body::from(body.to_string().into_bytes());
            Ok(Response::builder().status(StatusCode::from_u16(status).unwrap()).body(body).unwrap())
        }

        fn calls(&self) -> usize {
            self.calls.swap(0, Ordering::SeqCst)
        }
    }

    fn app(name: &str) -> AppId {
        format!("shop-test/{name}").parse().unwrap()
    }

    #[tokio::test]
    async fn callers_that_wait_share_a_read_that_began_after_their_calls() {
        let server = Arc::<Server>::default();
        let (reads, app) = (server.reads(), app("api"));
        let later = async {
            while server.under_way.load(Ordering::SeqCst) == 0 {
                tokio::task::yield_now().await;
            }
            join_all((0..50).map(|_| reads.read(&app))).await
        };
        let (first, later) = join(reads.read(&app), later).await;
        assert!(first.unwrap().is_some() && later.into_iter().all(|found| found.unwrap().is_some()));
        assert_eq!(server.calls(), 2, "one was under way");
        reads.read(&app).await.unwrap().unwrap();
        assert_eq!(server.calls(), 1, "a caller afterwards reads anew");
        assert!(lock(&reads.waiting).is_empty());
    }

    #[tokio::test]
    async fn callers_that_hang_up_cost_no_reads_of_their_own() {
        let server = Arc::<Server>::default();
        let (reads, app) = (server.reads(), app("api"));
        for _ in 0..50 {
            assert!(reads.read(&app).now_or_never().is_none());
        }
        reads.read(&app).await.unwrap().unwrap();
        assert_eq!(server.calls(), 1);
    }

    #[tokio::test]
    async fn few_secrets_are_read_at_the_same_time() {
        let server = Arc::<Server>::default();
        let (reads, apps) = (server.reads(), (0..40).map(|number| app(&format!("app-{number}"))).collect::<Vec<_>>());
        let found = join_all(apps.iter().map(|app| reads.read(app))).await;
        assert!(found.into_iter().all(|found| found.unwrap().is_some()));
        assert_eq!((server.calls(), server.at_once.load(Ordering::SeqCst)), (apps.len(), AT_ONCE));
    }

    #[tokio::test]
    async fn failed_read_fails_for_all_who_wait_and_is_repeated() {
        let server = Arc::<Server>::default();
        let (reads, app) = (server.reads(), app("api"));
        server.is_away.store(true, Ordering::SeqCst);
        let failed = join_all((0..50).map(|_| reads.read(&app))).await;
        assert!(failed.into_iter().all(|found| found.is_err_and(|error| error.is_unavailable())));
        assert_eq!(server.calls(), 1);
        server.is_away.store(false, Ordering::SeqCst);
        reads.read(&app).await.unwrap().unwrap();
    }
}
