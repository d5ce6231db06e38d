//! The history as the port has it.

use std::sync::atomic::Ordering;

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
use sqlx::postgres::PgRow;
use tokio::sync::broadcast::error::RecvError;

use crate::{
    ask::{Ask, ask},
    claims, job,
    rows::{deploy, number},
    store::PostgresStore,
    views::ViewCall,
    write::Write,
};

#[async_trait]
impl History for PostgresStore {
    async fn admit(&self, admission: Admission) -> Result<Admitted> {
        job::call(&self.writes, Box::new(admission), Write::Admit).await
    }

    async fn record(&self, record: Record) -> Result<()> {
        job::call(&self.writes, record, Write::Record).await
    }

    async fn view(&self, app: AppUid) -> Result<View> {
        job::call(&self.views, app, ViewCall).await
    }

    async fn page(&self, app: AppUid, page: Page) -> Result<Vec<Deploy>> {
        ask(&self.pages, PageOf { app, page }).await
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        if claim.ttl.is_zero() {
            ask(&self.rare, claims::GiveUp(claim.replica)).await
        } else {
            ask(&self.rare, claims::Take(claim)).await
        }
    }

    fn wakes(&self) -> BoxStream<'static, Wake> {
        if !self.listening.swap(true, Ordering::Relaxed) {
            tokio::spawn(crate::listen::run(self.shared.clone(), self.closing.subscribe()));
        }
        let listener = self.shared.wakes.subscribe();
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

struct PageOf {
    app: AppUid,
    page: Page,
}

impl Ask for PageOf {
    type Answer = Vec<Deploy>;

    fn statement(&self, _: &str) -> sqlx::Result<String> {
        let Page { before, succeeded, limit } = self.page;
        Ok(format!(
            "SELECT d.revision, d.step, d.superseded_by, d.by_rollback, d.created_at, d.updated_at, d.body \
             FROM rollhook.deploys d WHERE d.app = (SELECT a.id FROM rollhook.apps a WHERE a.uid = '{}') \
             AND d.revision < {}{} ORDER BY d.revision DESC LIMIT {}",
            self.app,
            before.map_or(i64::MAX, |before| number(Some(before))),
            if succeeded { " AND d.succeeded" } else { "" },
            i64::try_from(limit).unwrap_or(i64::MAX),
        ))
    }

    fn answer(&self, rows: &[PgRow]) -> sqlx::Result<Result<Vec<Deploy>>> {
        rows.iter().map(|row| deploy(row, 0)).collect()
    }

    fn reads(&self) -> bool {
        true
    }
}
