//! The history as the port has it; the work is done in the writer and the readers.

use async_trait::async_trait;
use futures_util::{
    StreamExt,
    stream::{self, BoxStream},
};
use rollhook_core::{
    Result,
    app::AppUid,
    deploy::Deploy,
    ports::{Admission, Admitted, Claim, Claimed, History, Page, Record, View, Wake},
};
use tokio::sync::broadcast::error::RecvError;

use crate::{job::call, reader::Read, store::SqliteStore, writer::Op};

#[async_trait]
impl History for SqliteStore {
    async fn admit(&self, admission: Admission) -> Result<Admitted> {
        call(&self.writer, Box::new(admission), Op::Admit).await
    }

    async fn record(&self, record: Record) -> Result<()> {
        call(&self.writer, record, Op::Record).await
    }

    async fn view(&self, app: AppUid) -> Result<View> {
        call(&self.views, app, Read::View).await
    }

    async fn page(&self, app: AppUid, page: Page) -> Result<Vec<Deploy>> {
        call(&self.pages, (app, page), Read::Page).await
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        call(&self.writer, claim, Op::Claim).await
    }

    fn wakes(&self) -> BoxStream<'static, Wake> {
        let listener = self.wakes.subscribe();
        stream::unfold(listener, |mut listener| async {
            let wake = match listener.recv().await {
                Ok(wake) => wake,
                Err(RecvError::Lagged(_)) => Wake::Any,
                Err(RecvError::Closed) => return None,
            };
            Some((wake, listener))
        })
        .boxed()
    }
}
