//! How cost grows with the number of apps: the server's processor time per deploy and while idle, and an idle server's
//! calls of the API server.

use std::{path::Path, time::Duration};

use tokio::time::{Instant, sleep};

use crate::{
    Failure,
    api_counter::ApiCounter,
    bed::{Cluster, Postgres},
    deploy,
    fixture::{ANY, Fixture},
    load::CONNECTIONS,
    process::RESOLUTION,
    seed::{self, SeededApp},
    table::{Row, time},
};

/// The cost with many apps as a multiple of the cost with few.
const TARGET: f64 = 1.3;
/// The same for calls of the API server.
const CALLS_TARGET: f64 = 1.2;
const DATABASE: &str = "rollhook";

struct Size {
    /// The numbers of apps in the SQL stores, ascending.
    apps: [usize; 3],
    /// The numbers of apps in the cluster.
    apps_in_cluster: [usize; 2],
    deploys: usize,
    /// The time in which a server finishes what follows its start and its last deploy.
    rest: Duration,
    /// The time for which an idle server is measured.
    window: Duration,
}

/// Processor times with some number of apps; the database's are zero where the server's process is the database.
struct Cost {
    apps: usize,
    deploy: Times,
    idle_minute: Times,
}

#[derive(Clone, Copy)]
struct Times {
    server: Duration,
    database: Duration,
    /// The resolution of both.
    resolution: Duration,
}

/// Returns two rows per SQL store, and one for the calls of the API server.
pub(crate) async fn run(server: &Path, quick: bool) -> Result<Vec<Row>, Failure> {
    let (rest, window) = if quick { (3, 5) } else { (10, 60) };
    let (rest, window) = (Duration::from_secs(rest), Duration::from_secs(window));
    let size = if quick {
        Size { apps: [100, 300, 1000], apps_in_cluster: [10, 200], deploys: 500, rest, window }
    } else {
        Size { apps: [1000, 10_000, 100_000], apps_in_cluster: [10, 10_000], deploys: 20_000, rest, window }
    };
    let mut rows = rows("SQLite", &on_sql(server, &size, &Fixture::sqlite()?, None).await?);
    match Postgres::start() {
        Ok(bed) => {
            let fixture = Fixture::postgres(bed.database(DATABASE).await?)?;
            rows.extend(self::rows("PostgreSQL", &on_sql(server, &size, &fixture, Some(&bed)).await?));
        }
        Err(why) => rows.push(Row::absent("processor time on PostgreSQL", &format!("not measured: {why}"))),
    }
    let calls = Cluster::with_namespace("growth", async |cluster| on_kubernetes(server, &size, cluster).await).await?;
    rows.push(calls.unwrap_or_else(|| Row::no_cluster("idle on Kubernetes")));
    Ok(rows)
}

async fn on_sql(server: &Path, size: &Size, fixture: &Fixture, bed: Option<&Postgres>) -> Result<Vec<Cost>, Failure> {
    fixture.admin_token(server)?;
    let mut apps: Vec<SeededApp> = Vec::new();
    let mut costs = Vec::new();
    for count in size.apps {
        let store = fixture.open().await?;
        let added = seed::apps(&*store, "load", apps.len()..count).await?;
        // The state of an app without a deploy is smaller.
        seed::histories(&*store, &added, 1).await?;
        drop(store);
        apps.extend(added);
        let rollhook = fixture.serve(server, "simulated:0ms").await?;
        let times = async || Ok::<_, Failure>((rollhook.cpu()?, bed.map_or(Ok(Duration::ZERO), Postgres::cpu)?));
        deploy::each(rollhook.address, &spread(&apps, size.deploys / 10)).await?;
        let before = times().await?;
        deploy::each(rollhook.address, &spread(&apps, size.deploys)).await?;
        let deploy = Times::between(before, times().await?, 1.0 / size.deploys as f64);
        if let Some(bed) = bed {
            bed.tidy(DATABASE).await?;
        }
        sleep(size.rest).await;
        let (before, start) = (times().await?, Instant::now());
        sleep(size.window).await;
        let idle_minute = Times::between(before, times().await?, 60.0 / start.elapsed().as_secs_f64());
        let cost = Cost { apps: count, deploy, idle_minute };
        eprintln!(
            "processor time with {count} apps: {} per deploy, {} per idle minute",
            cost.deploy.summary(),
            cost.idle_minute.summary()
        );
        costs.push(cost);
        rollhook.stop().await?;
    }
    Ok(costs)
}

/// Chooses apps for so many deploys, anywhere among all; each app belongs to one connection, so that no deploy
/// supersedes another.
fn spread(apps: &[SeededApp], deploys: usize) -> Vec<SeededApp> {
    let per_connection = apps.len() / CONNECTIONS;
    let app = |number: usize| &apps[number % CONNECTIONS + number / CONNECTIONS * 7919 % per_connection * CONNECTIONS];
    (0..deploys).map(|number| app(number).clone()).collect()
}

async fn on_kubernetes(server: &Path, size: &Size, cluster: &Cluster) -> Result<Row, Failure> {
    let fixture = Fixture::kubernetes(cluster)?;
    fixture.admin_token(server)?;
    let kubeconfig = fixture.path("kubeconfig");
    let counter = ApiCounter::start(cluster.client.clone()).await?;
    counter.kubeconfig(&kubeconfig, &cluster.namespace())?;
    let (mut rates, mut first) = ([0.0; 2], 0);
    for (count, rate) in size.apps_in_cluster.into_iter().zip(&mut rates) {
        let rollhook = fixture.serve_at(ANY, server, "simulated:0ms", Some(&kubeconfig)).await?;
        let apps = seed::apps(&*fixture.open().await?, &cluster.project, first..count).await?;
        first = count;
        sleep(seed::KNOWN).await;
        deploy::each(rollhook.address, &apps).await?;
        sleep(size.rest).await;
        counter.take();
        let start = Instant::now();
        sleep(size.window / 2).await;
        let (calls, minutes) = (counter.take(), start.elapsed().as_secs_f64() / 60.0);
        eprintln!("idle on Kubernetes with {count} apps, per minute: {}", calls.summary(minutes));
        *rate = calls.total() as f64 / minutes;
        rollhook.stop().await?;
    }
    let ([few, many], [few_apps, many_apps]) = (rates, size.apps_in_cluster);
    let ratio = if few == many { 1.0 } else { many / few };
    Ok(Row {
        name: "idle on Kubernetes, API calls per minute".to_owned(),
        measured: format!("{many_apps} apps: {many:.1}"),
        baseline: format!("{few_apps} apps: {few:.1}"),
        ratio: format!("{ratio:.2} ×"),
        target: format!("≤ {CALLS_TARGET} ×"),
        met: Some(ratio <= CALLS_TARGET),
    })
}

impl Times {
    fn between(before: (Duration, Duration), after: (Duration, Duration), factor: f64) -> Self {
        let part = |before, after: Duration| after.saturating_sub(before).mul_f64(factor);
        let resolution = RESOLUTION.mul_f64(factor);
        Self { server: part(before.0, after.0), database: part(before.1, after.1), resolution }
    }

    fn summary(&self) -> String {
        let database = match self.database {
            Duration::ZERO => String::new(),
            database => format!(" (database: {})", time(database)),
        };
        format!("{}{database}", time(self.server))
    }
}

/// Compares the cost with the most apps with the cost with the fewest.
fn rows(store: &str, costs: &[Cost]) -> Vec<Row> {
    let row = |what: &str, times: fn(&Cost) -> Times| {
        let text = |cost: &Cost| format!("{} apps: {}", cost.apps, times(cost).summary());
        let (few, more) = costs.split_first()?;
        let most = more.last()?;
        let resolution = times(few).resolution;
        let ratio = times(most).server.as_secs_f64() / times(few).server.max(resolution).as_secs_f64();
        Some(Row {
            name: format!("processor time {what} on {store}"),
            measured: more.iter().rev().map(text).collect::<Vec<_>>().join("; "),
            baseline: text(few),
            ratio: format!("{ratio:.2} ×"),
            target: format!("≤ {TARGET} ×"),
            met: Some(times(most).server <= times(few).server.mul_f64(TARGET) + resolution),
        })
    };
    [row("per deploy", |cost| cost.deploy), row("per idle minute", |cost| cost.idle_minute)]
        .into_iter()
        .flatten()
        .collect()
}
