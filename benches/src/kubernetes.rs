//! Accepted and driven deploys per second with the history in Kubernetes itself, beside bare creates on the same API
//! server; and the server's resident memory after many deploys.

use std::{path::Path, sync::Arc, time::Duration};

use futures_util::future::try_join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, api::PostParams};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    Failure,
    bed::Cluster,
    fixture::{ANY, Fixture},
    load::{CONNECTIONS, Calls},
    memory,
    seed::{self, SeededApp},
    subject::Subject,
    table::Row,
};

/// A share of the rate of bare creates.
const TARGET: f64 = 0.15;
/// The longest time from the end of a load to the end of the last deploy.
const DRAIN_TARGET: Duration = Duration::from_secs(5);
const PHASES: usize = 3;
const NAME: &str = "accepts on Kubernetes";
const MEMORY: &str = "memory on Kubernetes";

struct Size {
    apps: usize,
    deploys: u64,
    phase: Duration,
}

/// Returns two rows.
pub(crate) async fn run(server: &Path, quick: bool) -> Result<Vec<Row>, Failure> {
    let size = if quick {
        Size { apps: 100, deploys: 600, phase: Duration::from_secs(2) }
    } else {
        Size { apps: 1000, deploys: 12_000, phase: Duration::from_secs(10) }
    };
    let measured = Cluster::with_namespace("accepts", async |cluster| measure(server, &size, cluster).await).await?;
    Ok(measured.unwrap_or_else(|| vec![Row::no_cluster(NAME), Row::no_cluster(MEMORY)]))
}

async fn measure(server: &Path, size: &Size, cluster: &Cluster) -> Result<Vec<Row>, Failure> {
    let fixture = Fixture::kubernetes(cluster)?;
    fixture.admin_token(server)?;
    let kubeconfig = fixture.path("kubeconfig");
    cluster.kubeconfig(&kubeconfig)?;
    let apps = seed::apps(&*fixture.open().await?, &cluster.project, 0..size.apps).await?;
    let rollhook = fixture.serve_at(ANY, server, "simulated:0ms", Some(&kubeconfig)).await?;
    let mut rollhook = Subject::new(rollhook, fixture.open().await?);
    let calls = Calls::new(&apps, true);
    rollhook.warm_up(&calls, size.phase / 4).await?;
    let mut bare = Bare::new(cluster, &apps)?;
    bare.create(size.phase / 10).await?;
    let mut creates = 0.0;
    for number in 1..=PHASES {
        rollhook.load(&calls, size.phase, &format!("{NAME} {number}")).await?;
        let rate = bare.create(size.phase / 3).await?;
        eprintln!("{NAME} {number}: bare creates {rate:.0}/s");
        creates += rate / PHASES as f64;
    }
    let mut ours = rollhook.total().await?;
    let ratio = ours.per_second() / creates;
    let rate = Row {
        target: format!("≥ {:.0} %, drained in {} s", 100.0 * TARGET, DRAIN_TARGET.as_secs()),
        met: Some(ratio >= TARGET && ours.drained <= DRAIN_TARGET),
        ..Row::share(NAME, ours.summary(), format!("bare creates: {creates:.0}/s"), ratio, TARGET)
    };
    let resident = after_deploys(&mut rollhook, &calls, size).await?;
    rollhook.server.stop().await?;
    Ok(vec![rate, resident])
}

/// Goes on until so many deploys were made, and returns the row of the memory.
async fn after_deploys(rollhook: &mut Subject, calls: &Arc<Calls>, size: &Size) -> Result<Row, Failure> {
    let mut deploys = 0;
    while deploys < size.deploys {
        rollhook.warm_up(calls, size.phase).await?;
        deploys = rollhook.stored.totals().await?.deploys;
    }
    let resident = rollhook.server.resident()?;
    let measured = format!("{} resident, {} at most", memory::mib(resident.now), memory::mib(resident.peak));
    Ok(memory::row(&format!("{MEMORY} with {} apps, after {deploys} deploys", size.apps), measured, resident.now))
}

/// Creates objects that hold as much as an archived deploy, and that no server watches.
struct Bare {
    objects: Api<ConfigMap>,
    content: String,
    made: usize,
}

impl Bare {
    fn new(cluster: &Cluster, apps: &[SeededApp]) -> Result<Self, Failure> {
        let app = apps.first().ok_or("there are no apps")?;
        let [.., done] = seed::deploy(app.state.clone(), None)?;
        let objects = Api::namespaced(cluster.client.clone(), &cluster.namespace());
        Ok(Self { objects, content: serde_json::to_string(&done.ended)?, made: 0 })
    }

    /// Creates objects for this long, as many at a time as the load has connections, and returns the creates per
    /// second.
    async fn create(&mut self, time: Duration) -> Result<f64, Failure> {
        let (start, objects, content, first) = (Instant::now(), &self.objects, &self.content, self.made);
        let workers = (0..CONNECTIONS).map(async |worker| {
            let mut created = 0;
            while start.elapsed() < time {
                let name = format!("bare-{}", first + worker + created * CONNECTIONS);
                let object = json!({"metadata": {"name": name}, "data": {"deploy": content}});
                objects.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
                created += 1;
            }
            Ok::<usize, Failure>(created)
        });
        let created = try_join_all(workers).await?;
        self.made += created.iter().max().unwrap_or(&0) * CONNECTIONS;
        Ok(created.iter().sum::<usize>() as f64 / start.elapsed().as_secs_f64())
    }
}
