//! Calls of the API server: per deploy, and for all unauthenticated requests.

use std::{path::Path, time::Duration};

use kube::Api;
use tokio::time::{Instant, sleep};

use crate::{
    Failure,
    api_counter::ApiCounter,
    bed::Cluster,
    client::Connection,
    cluster, deploy,
    fixture::{ANY, Fixture},
    load::{self, Calls},
    seed::{self, SeededApp},
    table::Row,
};

/// The calls for unauthenticated requests, per second and replica.
const TARGET: f64 = 1.0;
const DEPLOY: &str = "API calls per deploy";
const UNAUTHENTICATED: &str = "API calls for unauthenticated requests";

/// Returns two rows.
pub(crate) async fn run(server: &Path, quick: bool) -> Result<Vec<Row>, Failure> {
    let rows = Cluster::with_namespace("calls", async |cluster| {
        Ok(vec![per_deploy(server, quick, cluster).await?, unauthenticated(server, quick, cluster).await?])
    });
    Ok(rows.await?.unwrap_or_else(|| vec![Row::no_cluster(DEPLOY), Row::no_cluster(UNAUTHENTICATED)]))
}

/// Deploys to a Deployment of the cluster, with the history in the cluster, beside the same with the history in SQLite.
async fn per_deploy(server: &Path, quick: bool, cluster: &Cluster) -> Result<Row, Failure> {
    let count = if quick { 3 } else { 20 };
    let mut measured = Vec::new();
    for (name, fixture) in [("stored", Fixture::kubernetes(cluster)?), ("driven", Fixture::sqlite()?)] {
        fixture.admin_token(server)?;
        let kubeconfig = fixture.path("kubeconfig");
        let counter = ApiCounter::start(cluster.client.clone()).await?;
        counter.kubeconfig(&kubeconfig, &cluster.namespace())?;
        let rollhook = fixture.serve_at(ANY, server, "kubernetes", Some(&kubeconfig)).await?;
        let app = seed::app(&*fixture.open().await?, &cluster.project, "test", name).await?;
        cluster::create(&Api::namespaced(cluster.client.clone(), &cluster.namespace()), name).await?;
        let mut connection = Connection::open(rollhook.address).await?;
        // The first deploy also opens connections and fills caches.
        one(&mut connection, &app, 0).await?;
        let idle = idle(&counter, quick).await;
        let start = Instant::now();
        for number in 1..=count {
            one(&mut connection, &app, number).await?;
        }
        let time = start.elapsed();
        let calls = counter.take();
        eprintln!(
            "{DEPLOY}, {name}: {}; a deploy takes {:.0} ms",
            calls.summary(f64::from(count)),
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

/// Posts a deploy, and waits for its end.
async fn one(connection: &mut Connection, app: &SeededApp, number: u32) -> Result<(), Failure> {
    let revision = deploy::post(connection, app, &format!("registry.example.com/shop/api:v{number}")).await?;
    deploy::end(connection, app, revision).await?;
    Ok(())
}

/// Returns the calls per second of an idle server.
async fn idle(counter: &ApiCounter, quick: bool) -> f64 {
    sleep(Duration::from_secs(2)).await;
    counter.take();
    let start = Instant::now();
    sleep(Duration::from_secs(if quick { 3 } else { 15 })).await;
    counter.take().total() as f64 / start.elapsed().as_secs_f64()
}

async fn unauthenticated(server: &Path, quick: bool, cluster: &Cluster) -> Result<Row, Failure> {
    let time = Duration::from_secs(if quick { 3 } else { 15 });
    let fixture = Fixture::kubernetes(cluster)?;
    fixture.admin_token(server)?;
    let kubeconfig = fixture.path("kubeconfig");
    let counter = ApiCounter::start(cluster.client.clone()).await?;
    counter.kubeconfig(&kubeconfig, &cluster.namespace())?;
    let rollhook = fixture.serve_at(ANY, server, "simulated:0ms", Some(&kubeconfig)).await?;
    let apps = seed::apps(&*fixture.open().await?, &cluster.project, 0..32).await?;
    let wrong = strangers(&apps, cluster)?;
    // A replica has to read each token once before it can refuse others by it.
    sleep(seed::KNOWN).await;
    deploy::each(rollhook.address, &apps).await?;
    counter.take();
    let sent = load::send(rollhook.address, &Calls::new(&wrong, false), time).await?;
    let calls = counter.take();
    rollhook.stop().await?;
    if sent.accepted > 0 {
        return Err(format!("{} unauthenticated requests were accepted", sent.accepted).into());
    }
    let seconds = sent.time.as_secs_f64();
    eprintln!("{UNAUTHENTICATED}, per second: {}", calls.summary(seconds));
    // The replica's heartbeats are independent of the requests.
    let made = calls.but("leases") as f64;
    Ok(Row {
        name: UNAUTHENTICATED.to_owned(),
        measured: format!("{:.2} per second ({made} in {seconds:.1} s)", made / seconds),
        baseline: format!("{:.0} such requests per second", sent.refused as f64 / seconds),
        ratio: "–".to_owned(),
        target: format!("≤ {TARGET} per second"),
        // A window of a second has a call at each of its ends.
        met: Some(made <= TARGET * seconds + 1.0),
    })
}

/// Returns apps with another app's token, and apps that are unknown.
fn strangers(apps: &[SeededApp], cluster: &Cluster) -> Result<Vec<SeededApp>, Failure> {
    let mut wrong = Vec::new();
    for (number, (app, other)) in apps.iter().zip(apps.iter().cycle().skip(1)).enumerate() {
        let known = SeededApp { token: other.token.clone(), ..app.clone() };
        let unknown = SeededApp { id: format!("{}/none-{number}", cluster.namespace()).parse()?, ..app.clone() };
        wrong.extend([known, unknown]);
    }
    Ok(wrong)
}
