//! What servers cost that have nothing to do, with few apps and with many in the same namespaces.

use std::{path::Path, time::Duration};

use sqlx::{Connection, PgConnection};
use tokio::time::{Instant, sleep};

use crate::{
    Failure,
    bed::{Cluster, Postgres},
    deploy,
    place::{ANY, Place},
    seed,
    table::Row,
    tally::Tally,
};

/// A multiple of what few apps cost.
const TARGET: f64 = 1.2;
const FEW: usize = 10;

struct Size {
    many: usize,
    window: Duration,
    /// After the last deploy, and after the start: what a server does then is no idling.
    rest: Duration,
}

/// A row per store.
pub(crate) async fn run(server: &Path, quick: bool) -> Result<Vec<Row>, Failure> {
    let size = if quick {
        Size { many: 200, window: Duration::from_secs(5), rest: Duration::from_secs(3) }
    } else {
        Size { many: 10_000, window: Duration::from_secs(30), rest: Duration::from_secs(10) }
    };
    let postgres = match Postgres::start() {
        Ok(bed) => on_postgres(server, &size, &bed).await?,
        Err(why) => Row::absent("idle on PostgreSQL", &format!("not measured: {why}")),
    };
    let kubernetes = Cluster::lend("idle", async |cluster| on_kubernetes(server, &size, cluster).await).await?;
    Ok(vec![postgres, kubernetes.unwrap_or_else(|| Row::no_cluster("idle on Kubernetes"))])
}

async fn on_postgres(server: &Path, size: &Size, bed: &Postgres) -> Result<Row, Failure> {
    let url = bed.database("rollhook").await?;
    let place = Place::postgres(url.clone())?;
    place.admin_token(server)?;
    let mut rates = Vec::new();
    let mut first = 0;
    for apps in [FEW, size.many] {
        let targets = seed::apps(&*place.open().await?, "load", first..apps).await?;
        first = apps;
        let rollhook = place.serve(server, "simulated:0ms").await?;
        deploy::each(rollhook.address, &targets).await?;
        // Else the server's own housekeeping would be counted, for it does that in transactions too.
        let mut connection = PgConnection::connect(&url).await?;
        sqlx::query("VACUUM ANALYZE").execute(&mut connection).await?;
        connection.close().await?;
        // Statistics are kept in common for all databases, so that this one is not disturbed.
        let mut connection = PgConnection::connect(bed.url()).await?;
        sleep(size.rest).await;
        let (before, start) = (transactions(&mut connection).await?, Instant::now());
        sleep(size.window).await;
        let made = transactions(&mut connection).await? - before;
        rates.push(made as f64 / start.elapsed().as_secs_f64());
        rollhook.stop().await?;
    }
    Ok(row("idle on PostgreSQL", "queries per second", &rates, size))
}

/// Each statement that stands alone is one.
async fn transactions(connection: &mut PgConnection) -> Result<i64, Failure> {
    let count = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'rollhook'";
    Ok(sqlx::query_scalar(count).fetch_one(connection).await?)
}

async fn on_kubernetes(server: &Path, size: &Size, cluster: &Cluster) -> Result<Row, Failure> {
    let place = Place::kubernetes(cluster)?;
    place.admin_token(server)?;
    let kubeconfig = place.path("kubeconfig");
    let tally = Tally::start(cluster.client.clone()).await?;
    tally.kubeconfig(&kubeconfig, &cluster.namespace())?;
    let mut rates = Vec::new();
    let mut first = 0;
    for apps in [FEW, size.many] {
        let rollhook = place.serve_at(ANY, server, "simulated:0ms", Some(&kubeconfig)).await?;
        let targets = seed::apps(&*place.open().await?, &cluster.project, first..apps).await?;
        first = apps;
        sleep(seed::KNOWN).await;
        deploy::each(rollhook.address, &targets).await?;
        sleep(size.rest).await;
        tally.take();
        let start = Instant::now();
        sleep(size.window).await;
        let (calls, minutes) = (tally.take(), start.elapsed().as_secs_f64() / 60.0);
        eprintln!("idle on Kubernetes with {apps} apps, per minute: {}", calls.told(minutes));
        rates.push(calls.total() as f64 / minutes);
        rollhook.stop().await?;
    }
    Ok(row("idle on Kubernetes", "API calls per minute", &rates, size))
}

fn row(name: &str, unit: &str, rates: &[f64], size: &Size) -> Row {
    let (few, many) = (rates.first().copied().unwrap_or_default(), rates.last().copied().unwrap_or_default());
    // Where nothing is ever asked, many cost as much as few.
    let ratio = if few == many { 1.0 } else { many / few };
    Row {
        name: format!("{name}, {unit}"),
        measured: format!("{many:.1} with {} apps", size.many),
        baseline: format!("{few:.1} with {FEW} apps"),
        ratio: format!("{ratio:.2} ×"),
        target: format!("≤ {TARGET} ×"),
        met: Some(ratio <= TARGET),
    }
}
