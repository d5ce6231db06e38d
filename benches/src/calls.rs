//! Calls of the API server: how many a deploy costs, and how many all those who do not authenticate.

use std::{net::SocketAddr, path::Path, time::Duration};

use kube::Api;
use tokio::time::{Instant, sleep};

use crate::{
    Failure,
    bed::Cluster,
    client::Connection,
    cluster, deploy,
    load::{self, Calls},
    place::{ANY, Place},
    seed::{self, Target},
    table::Row,
    tally::Tally,
};

/// Per second and replica, for requests that do not authenticate.
const TARGET: f64 = 1.0;
const DEPLOY: &str = "API calls per deploy";
const UNAUTHENTICATED: &str = "API calls for requests that do not authenticate";

/// Two rows.
pub(crate) async fn run(server: &Path, quick: bool) -> Result<Vec<Row>, Failure> {
    let rows = Cluster::lend("calls", async |cluster| {
        Ok(vec![per_deploy(server, quick, cluster).await?, unauthenticated(server, quick, cluster).await?])
    });
    Ok(rows.await?.unwrap_or_else(|| vec![Row::no_cluster(DEPLOY), Row::no_cluster(UNAUTHENTICATED)]))
}

/// Deploys to a Deployment of the cluster, with the history in the cluster, beside the same with the history in SQLite.
async fn per_deploy(server: &Path, quick: bool, cluster: &Cluster) -> Result<Row, Failure> {
    let count = if quick { 3 } else { 20 };
    let mut measured = Vec::new();
    for (app, place) in [("stored", Place::kubernetes(cluster)?), ("driven", Place::new()?)] {
        place.admin_token(server)?;
        let kubeconfig = place.path("kubeconfig");
        let tally = Tally::start(cluster.client.clone()).await?;
        tally.kubeconfig(&kubeconfig, &cluster.namespace())?;
        let rollhook = place.serve_at(ANY, server, "kubernetes", Some(&kubeconfig)).await?;
        let target = seed::app(&*place.open().await?, &cluster.project, "test", app).await?;
        cluster::create(&Api::namespaced(cluster.client.clone(), &cluster.namespace()), app).await?;
        // The first one finds nothing at hand.
        one(rollhook.address, &target, 0).await?;
        let idle = idle(&tally, quick).await;
        let start = Instant::now();
        for number in 1..=count {
            one(rollhook.address, &target, number).await?;
        }
        let time = start.elapsed();
        let calls = tally.take();
        eprintln!(
            "{DEPLOY}, {app}: {}; a deploy takes {:.0} ms",
            calls.told(f64::from(count)),
            time.as_secs_f64() * 1000.0 / f64::from(count)
        );
        measured.push((calls.total() as f64 - idle * time.as_secs_f64()) / f64::from(count));
        rollhook.stop().await?;
    }
    let [all, driver] = measured[..] else { return Err("one of two was not measured".into()) };
    Ok(Row {
        name: DEPLOY.to_owned(),
        measured: format!("{all:.1}, with the history in the cluster"),
        baseline: format!("{driver:.1} with the history in SQLite: the driver's own"),
        ratio: format!("+ {:.1}", all - driver),
        target: "–".to_owned(),
        met: None,
    })
}

/// By a connection of its own: the server closes those that are silent for as long as the bench waits in between.
async fn one(address: SocketAddr, target: &Target, number: u32) -> Result<(), Failure> {
    let mut connection = Connection::open(address).await?;
    let revision = deploy::post(&mut connection, target, &format!("registry.example.com/shop/api:v{number}")).await?;
    deploy::end(&mut connection, target, revision).await?;
    Ok(())
}

/// The calls per second of a server that has nothing to do.
async fn idle(tally: &Tally, quick: bool) -> f64 {
    sleep(Duration::from_secs(2)).await;
    tally.take();
    let start = Instant::now();
    sleep(Duration::from_secs(if quick { 3 } else { 15 })).await;
    tally.take().total() as f64 / start.elapsed().as_secs_f64()
}

async fn unauthenticated(server: &Path, quick: bool, cluster: &Cluster) -> Result<Row, Failure> {
    let time = Duration::from_secs(if quick { 3 } else { 15 });
    let place = Place::kubernetes(cluster)?;
    place.admin_token(server)?;
    let kubeconfig = place.path("kubeconfig");
    let tally = Tally::start(cluster.client.clone()).await?;
    tally.kubeconfig(&kubeconfig, &cluster.namespace())?;
    let rollhook = place.serve_at(ANY, server, "simulated:0ms", Some(&kubeconfig)).await?;
    let targets = seed::apps(&*place.open().await?, &cluster.project, 0..32).await?;
    let wrong = strangers(&targets, cluster)?;
    // As where webhooks are in use: a replica has to read each token once before it can refuse others by it.
    sleep(seed::KNOWN).await;
    deploy::each(rollhook.address, &targets).await?;
    tally.take();
    let sent = load::send(rollhook.address, &Calls::new(&wrong, false), time).await?;
    let calls = tally.take();
    rollhook.stop().await?;
    if sent.accepted > 0 {
        return Err(format!("{} requests were let in", sent.accepted).into());
    }
    let seconds = sent.time.as_secs_f64();
    eprintln!("{UNAUTHENTICATED}, per second: {}", calls.told(seconds));
    // The replica's sign of life has nothing to do with them.
    let made = calls.but("leases") as f64;
    Ok(Row {
        name: UNAUTHENTICATED.to_owned(),
        measured: format!("{:.2} per second ({made} in {seconds:.1} s)", made / seconds),
        baseline: format!("{:.0} such requests per second", sent.refused as f64 / seconds),
        ratio: "–".to_owned(),
        target: format!("≤ {TARGET} per second"),
        // There is one call at the begin and one at the end of each second.
        met: Some(made <= TARGET * seconds + 1.0),
    })
}

/// Calls with another app's token, and calls of apps that there are not.
fn strangers(targets: &[Target], cluster: &Cluster) -> Result<Vec<Target>, Failure> {
    let mut wrong = Vec::new();
    for (number, (target, other)) in targets.iter().zip(targets.iter().cycle().skip(1)).enumerate() {
        let known = Target { token: other.token.clone(), ..target.clone() };
        let unknown = Target { app: format!("{}/none-{number}", cluster.namespace()).parse()?, ..target.clone() };
        wrong.extend([known, unknown]);
    }
    Ok(wrong)
}
