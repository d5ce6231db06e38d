//! How long an accepted deploy waits for somebody who drives it: on a replica that has its app, on one that has not, and
//! once the one that had it was killed.

use std::{path::Path, time::Duration};

use tokio::time::{Instant, sleep};

use crate::{
    Failure,
    bed::{Cluster, Postgres},
    deploy::{self, Driven},
    place::{ANY, Place},
    process::Process,
    seed,
    table::{Row, percentile, time},
};

/// What rule 6 of the design promises, and tests hold.
const TARGET: Duration = Duration::from_secs(30);
const REPLICAS: [usize; 3] = [1, 2, 4];
/// A replica that has just started has its first signs of life behind it.
const REST: Duration = Duration::from_secs(2);

/// For each store a row per number of replicas.
pub(crate) async fn run(server: &Path, quick: bool) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    match Postgres::start() {
        Err(why) => rows.push(Row::absent("take-over on PostgreSQL", &format!("not measured: {why}"))),
        Ok(bed) => {
            for replicas in REPLICAS {
                let place = Place::postgres(bed.database(&format!("replicas_{replicas}")).await?)?;
                place.admin_token(server)?;
                rows.push(
                    measure(
                        "PostgreSQL",
                        &Bench { place: &place, server, kubeconfig: None, project: "load" },
                        replicas,
                        quick,
                    )
                    .await?,
                );
            }
        }
    }
    let on_cluster = Cluster::lend("takeover", async |cluster| {
        let place = Place::kubernetes(cluster)?;
        place.admin_token(server)?;
        let kubeconfig = place.path("kubeconfig");
        cluster.kubeconfig(&kubeconfig)?;
        let mut rows = Vec::new();
        for replicas in REPLICAS {
            let bench = Bench { place: &place, server, kubeconfig: Some(&kubeconfig), project: &cluster.project };
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
    place: &'a Place,
    server: &'a Path,
    kubeconfig: Option<&'a Path>,
    project: &'a str,
}

impl Bench<'_> {
    async fn replica(&self, listen: std::net::SocketAddr) -> Result<Process, Failure> {
        self.place.serve_at(listen, self.server, "simulated:0ms", self.kubeconfig).await
    }
}

/// How long what waited, in milliseconds.
#[derive(Default)]
struct Waits(Vec<Duration>);

impl Waits {
    fn add(&mut self, driven: &[Driven]) {
        self.0.extend(driven.iter().map(|driven| driven.took));
    }

    fn told(&mut self) -> String {
        let (middle, most) = (percentile(&mut self.0, 50), percentile(&mut self.0, 100));
        format!("p50 {}, max {}", time(middle), time(most))
    }
}

async fn measure(store: &str, bench: &Bench<'_>, replicas: usize, quick: bool) -> Result<Row, Failure> {
    let (rounds, apps) = if quick { (1, 8) } else { (2, 32) };
    let (mut fresh, mut own, mut others, mut after) = <(Waits, Waits, Waits, Waits)>::default();
    for round in 0..rounds {
        let first = (replicas * rounds + round) * 2 * apps;
        let mut targets = seed::apps(&*bench.place.open().await?, bench.project, first..first + 2 * apps).await?;
        let unowned = targets.split_off(apps);
        // As long as it is alone, whatever it is given is its own.
        let owner = bench.replica(ANY).await?;
        deploy::each(owner.address, &targets).await?;
        let mut servers = Vec::new();
        for _ in 1..replicas {
            servers.push(bench.replica(ANY).await?);
        }
        sleep(REST).await;
        own.add(&deploy::each(owner.address, &targets).await?);
        if let Some(other) = servers.first() {
            others.add(&deploy::each(other.address, &targets).await?);
        }
        fresh.add(&deploy::each(owner.address, &unowned).await?);
        let address = owner.address;
        owner.kill().await?;
        let killed = Instant::now();
        if servers.is_empty() {
            servers.push(bench.replica(address).await?);
        }
        for driven in deploy::each(servers[0].address, &targets).await? {
            after.0.push(driven.accepted - killed + driven.took);
        }
        for server in servers {
            server.stop().await?;
        }
    }
    let others = if replicas > 1 { format!("; another's app {}", others.told()) } else { String::new() };
    let most = after.0.iter().max().copied().unwrap_or_default();
    Ok(Row {
        name: format!("take-over on {store}, {replicas} replica{}", if replicas == 1 { ", restarted" } else { "s" }),
        measured: format!("{} of {}", after.told(), after.0.len()),
        baseline: format!("claims while all live: fresh app {}; own app {}{others}", fresh.told(), own.told()),
        ratio: "–".to_owned(),
        target: format!("≤ {} s", TARGET.as_secs()),
        met: Some(most <= TARGET),
    })
}
