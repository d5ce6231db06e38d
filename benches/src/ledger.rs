//! What a store holds, counted by the store's own means rather than by what is measured.

use std::net::SocketAddr;

use kube::{Api, api::ListParams};
use rollhook_kubernetes::crd::DeployObject;
use rusqlite::Connection;
use sqlx::{Connection as _, PgConnection};

use crate::{Failure, bed::Cluster, client};

/// How many objects one answer lists.
const PAGE: u32 = 2000;

/// A store that is looked into.
pub(crate) enum Ledger {
    Sqlite(Connection),
    Postgres(PgConnection),
    Kubernetes(Box<Api<DeployObject>>),
}

impl Ledger {
    /// Looks into a database of PostgreSQL.
    pub(crate) async fn postgres(url: &str) -> Result<Self, Failure> {
        Ok(Self::Postgres(PgConnection::connect(url).await?))
    }

    /// Looks into a bench's namespace.
    pub(crate) fn kubernetes(cluster: &Cluster) -> Self {
        Self::Kubernetes(Box::new(Api::namespaced(cluster.client.clone(), &cluster.namespace())))
    }

    /// How many deploys have not ended, as cheaply as it can be told; where that is not cheap, the only server on the
    /// store is asked what it has not ended of what it accepted.
    pub(crate) async fn unfinished(&mut self, server: SocketAddr) -> Result<u64, Failure> {
        let count: i64 = match self {
            Self::Sqlite(connection) => {
                let count = "SELECT coalesce(sum(json_array_length(document, '$.unfinished')), 0) FROM apps \
                             WHERE queued_at IS NOT NULL";
                connection.query_row(count, [], |row| row.get(0))?
            }
            Self::Postgres(connection) => {
                let count = "SELECT coalesce(sum(json_array_length(document::json -> 'unfinished')), 0)::bigint \
                             FROM rollhook.apps WHERE queued_at IS NOT NULL";
                sqlx::query_scalar(count).fetch_one(connection).await?
            }
            Self::Kubernetes(_) => return unfinished_by_metrics(server).await,
        };
        Ok(count.unsigned_abs())
    }

    /// The number of deploys, and of those that have not ended, from the deploys themselves.
    pub(crate) async fn entries(&mut self, server: SocketAddr) -> Result<(u64, u64), Failure> {
        if let Self::Kubernetes(deploys) = self {
            return listed(deploys).await;
        }
        // Databases have the deploys that ended in a table, and the others in the states.
        let open = self.unfinished(server).await?;
        let ended: i64 = match self {
            Self::Sqlite(connection) => connection.query_row("SELECT count(*) FROM deploys", [], |row| row.get(0))?,
            Self::Postgres(connection) => {
                sqlx::query_scalar("SELECT count(*) FROM rollhook.deploys").fetch_one(connection).await?
            }
            Self::Kubernetes(_) => 0,
        };
        Ok((ended.unsigned_abs() + open, open))
    }
}

async fn unfinished_by_metrics(server: SocketAddr) -> Result<u64, Failure> {
    let mut connection = client::Connection::open(server).await?;
    connection.call(&client::request("GET", "/metrics", &[], "")).await?;
    let metrics = std::str::from_utf8(connection.body())?;
    let sum = |name: &str| {
        let values = metrics.lines().filter(|line| line.starts_with(name)).filter_map(|line| line.rsplit(' ').next());
        values.filter_map(|value| value.parse::<u64>().ok()).sum::<u64>()
    };
    Ok(sum("rollhook_deploys_accepted_total").saturating_sub(sum("rollhook_deploys_ended_total")))
}

async fn listed(deploys: &Api<DeployObject>) -> Result<(u64, u64), Failure> {
    let (mut entries, mut open) = (0, 0);
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let list = deploys.list(&page).await?;
        for object in list.items.iter().filter(|object| object.spec.app.starts_with("app-")) {
            entries += 1;
            let status = object.status.as_ref().map(|status| status.status.as_str());
            let ended = matches!(status, Some("succeeded" | "failed" | "superseded" | "cancelled"));
            open += u64::from(!ended);
        }
        match list.metadata.continue_.filter(|more| !more.is_empty()) {
            Some(more) => page = page.continue_token(&more),
            None => return Ok((entries, open)),
        }
    }
}
