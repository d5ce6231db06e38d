//! The history, and who drives it: where the port's calls go.

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt};
use rollhook_core::{
    Result,
    app::AppUid,
    deploy::Deploy,
    ports::{Admission, Admitted, Claim, Claimed, History, Page, Record, View, Wake},
};
use tokio::sync::broadcast::error::RecvError;

use super::KubernetesStore;

#[async_trait]
impl History for KubernetesStore {
    async fn admit(&self, admission: Admission) -> Result<Admitted> {
        Box::pin(self.accept(admission)).await
    }

    async fn record(&self, record: Record) -> Result<()> {
        Box::pin(self.write(&record)).await
    }

    async fn view(&self, app: AppUid) -> Result<View> {
        Box::pin(self.read_view(app)).await
    }

    async fn page(&self, app: AppUid, page: Page) -> Result<Vec<Deploy>> {
        Box::pin(self.read_page(app, page)).await
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        Box::pin(self.sign_and_take(&claim)).await
    }

    fn wakes(&self) -> BoxStream<'static, Wake> {
        let next = |mut wakes: tokio::sync::broadcast::Receiver<Wake>| async move {
            match wakes.recv().await {
                Ok(wake) => Some((wake, wakes)),
                Err(RecvError::Lagged(_)) => Some((Wake::Any, wakes)),
                Err(RecvError::Closed) => None,
            }
        };
        stream::unfold(self.wakes.subscribe(), next).boxed()
    }
}
