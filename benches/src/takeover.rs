//! The time from an accept to the deploy's end: on the replica that leases the app, on another one, and after the
//! leasing replica was killed.

use std::{path::Path, time::Duration};

use tokio::time::{Instant, sleep};

use crate::{
    Failure,
    bed::{Cluster, Postgres},
    deploy::{self, Driven},
    fixture::{ANY, Fixture},
    process::Process,
    seed,
    table::{Row, percentile, time},
};

/// The time in which another replica takes over, as the design promises.
const TARGET: Duration = Duration::from_secs(30);
const REPLICAS: [usize; 3] = [1, 2, 4];
/// The time after which a started replica has sent its first heartbeats.
const REST: Duration = Duration::from_secs(2);

/// Returns a row per store and number of replicas.
pub(crate) async fn run(server: &Path, quick: bool) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    match Postgres::start() {
        Err(why) => rows.push(Row::absent("take-over on PostgreSQL", &format!("not measured: {why}"))),
        Ok(bed) => {
            for replicas in REPLICAS {
                let fixture = Fixture::postgres(bed.database(&format!("replicas_{replicas}")).await?)?;
                fixture.admin_token(server)?;
                rows.push(
                    measure(
                        "PostgreSQL",
                        &Bench { fixture: &fixture, server, kubeconfig: None, project: "load" },
                        replicas,
                        quick,
                    )
                    .await?,
                );
            }
        }
    }
    let on_cluster = Cluster::with_namespace("takeover", async |cluster| {
        let fixture = Fixture::kubernetes(cluster)?;
        fixture.admin_token(server)?;
        let kubeconfig = fixture.path("kubeconfig");
        cluster.kubeconfig(&kubeconfig)?;
        let mut rows = Vec::new();
        for replicas in REPLICAS {
            let bench = Bench { fixture: &fixture, server, kubeconfig: Some(&kubeconfig), project: &cluster.project };
            rows.push(measure("Kubernetes", &bench, replicas, quick).await?);
        }
        Ok(rows)
    });
    match on_cluster.await? {
        Some(measured) => rows.extend(measured),
        None => rows.push(Row::no_cluster("take-over on Kubernetes")),
    }
    Ok(rows)
}

struct Bench<'a> {
    fixture: &'a Fixture,
    server: &'a Path,
    kubeconfig: Option<&'a Path>,
    project: &'a str,
}

impl Bench<'_> {
    async fn replica(&self, listen: std::net::SocketAddr) -> Result<Process, Failure> {
        self.fixture.serve_at(listen, self.server, "simulated:0ms", self.kubeconfig).await
    }
}

/// The times until the ends of deploys.
#[derive(Default)]
struct Waits(Vec<Duration>);

impl Waits {
    fn add(&mut self, driven: &[Driven]) {
        self.0.extend(driven.iter().map(|driven| driven.took));
    }

    fn summary(&mut self) -> String {
        let (middle, most) = (percentile(&mut self.0, 50), percentile(&mut self.0, 100));
        format!("p50 {}, max {}", time(middle), time(most))
    }
}

async fn measure(store: &str, bench: &Bench<'_>, replicas: usize, quick: bool) -> Result<Row, Failure> {
    let (rounds, count) = if quick { (1, 8) } else { (2, 32) };
    let (mut fresh, mut own, mut others, mut after) = <(Waits, Waits, Waits, Waits)>::default();
    for round in 0..rounds {
        let first = (replicas * rounds + round) * 2 * count;
        let mut apps = seed::apps(&*bench.fixture.open().await?, bench.project, first..first + 2 * count).await?;
        let unowned = apps.split_off(count);
        // The only replica leases every app that is posted to it.
        let owner = bench.replica(ANY).await?;
        deploy::each(owner.address, &apps).await?;
        let mut servers = Vec::new();
        for _ in 1..replicas {
            servers.push(bench.replica(ANY).await?);
        }
        sleep(REST).await;
        own.add(&deploy::each(owner.address, &apps).await?);
        if let Some(other) = servers.first() {
            others.add(&deploy::each(other.address, &apps).await?);
        }
        fresh.add(&deploy::each(owner.address, &unowned).await?);
        let address = owner.address;
        owner.kill().await?;
        let killed = Instant::now();
        if servers.is_empty() {
            servers.push(bench.replica(address).await?);
        }
        for driven in deploy::each(servers[0].address, &apps).await? {
            after.0.push(driven.accepted - killed + driven.took);
        }
        for server in servers {
            server.stop().await?;
        }
    }
    let others = if replicas > 1 { format!("; another replica's app {}", others.summary()) } else { String::new() };
    let most = after.0.iter().max().copied().unwrap_or_default();
    Ok(Row {
        name: format!("take-over on {store}, {replicas} replica{}", if replicas == 1 { ", restarted" } else { "s" }),
        measured: format!("{} of {}", after.summary(), after.0.len()),
        baseline: format!("while all live: idle app {}; own app {}{others}", fresh.summary(), own.summary()),
        ratio: "–".to_owned(),
        target: format!("≤ {} s", TARGET.as_secs()),
        met: Some(most <= TARGET),
    })
}
