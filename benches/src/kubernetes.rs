//! Accepted deploys per second with the history in Kubernetes itself, and the engine driving each to its end, beside bare
//! creates of the object that an accept makes.

use std::{path::Path, time::Duration};

use futures_util::{StreamExt, stream};
use kube::{
    Api,
    api::{ListParams, PostParams},
    core::ObjectMeta,
};
use rollhook_kubernetes::crd::DeployObject;
use tokio::time::{Instant, sleep};

use crate::{
    Failure,
    bed::Cluster,
    ledger::Ledger,
    load::{CONNECTIONS, Calls},
    place::{ANY, Place},
    seed,
    subject::Subject,
    table::Row,
};

/// A share of the rate of bare creates.
const TARGET: f64 = 0.5;
const PHASES: usize = 3;
const NAME: &str = "accepts on Kubernetes";

pub(crate) async fn run(server: &Path, quick: bool) -> Result<Row, Failure> {
    let measured = Cluster::lend("accepts", async |cluster| measure(server, quick, cluster).await).await?;
    Ok(measured.unwrap_or_else(|| Row::no_cluster(NAME)))
}

async fn measure(server: &Path, quick: bool, cluster: &Cluster) -> Result<Row, Failure> {
    let (apps, phase) = if quick { (100, Duration::from_secs(2)) } else { (1000, Duration::from_secs(10)) };
    let place = Place::kubernetes(cluster)?;
    place.admin_token(server)?;
    let kubeconfig = place.path("kubeconfig");
    cluster.kubeconfig(&kubeconfig)?;
    let serve = || place.serve_at(ANY, server, "simulated:0ms", Some(&kubeconfig));
    let mut rollhook = Subject::new(serve().await?, Ledger::kubernetes(cluster));
    let targets = seed::apps(&*place.open().await?, &cluster.project, 0..apps).await?;
    sleep(seed::KNOWN).await;
    let calls = Calls::new(&targets, true);
    rollhook.warm_up(&calls, phase / 4).await?;
    let mut bare = Bare::like_those_of(cluster).await?;
    let mut rates = 0.0;
    for number in 1..=PHASES {
        rollhook.warm_up(&calls, phase / 10).await?;
        rollhook.load(&calls, phase, &format!("{NAME} {number}")).await?;
        // It would watch what is created.
        rollhook.stop().await?;
        bare.create(phase / 10).await?;
        let rate = bare.create(phase).await?;
        eprintln!("{NAME} {number}: bare creates {rate:.0}/s");
        rates += rate / PHASES as f64;
        rollhook.resume(serve().await?);
    }
    rollhook.stop().await?;
    let mut ours = rollhook.total();
    let ratio = ours.sent.per_second() / rates;
    Ok(Row::share(NAME, ours.told(), format!("bare creates: {rates:.0}/s"), ratio, TARGET))
}

/// Creates objects like those that accepts make, which belong to no app.
struct Bare {
    deploys: Api<DeployObject>,
    object: DeployObject,
    made: u64,
}

impl Bare {
    async fn like_those_of(cluster: &Cluster) -> Result<Self, Failure> {
        let deploys: Api<DeployObject> = Api::namespaced(cluster.client.clone(), &cluster.namespace());
        let some = deploys.list(&ListParams::default().limit(1)).await?;
        let mut object = some.items.into_iter().next().ok_or("no accept made an object")?;
        object.metadata = ObjectMeta {
            labels: object.metadata.labels.take(),
            annotations: object.metadata.annotations.take(),
            owner_references: object.metadata.owner_references.take(),
            finalizers: object.metadata.finalizers.take(),
            ..ObjectMeta::default()
        };
        // Of no app that there is.
        let stranger = "f".repeat(object.spec.app_uid.len());
        object
            .metadata
            .labels
            .iter_mut()
            .flatten()
            .filter(|(_, value)| **value == object.spec.app_uid)
            .for_each(|(_, value)| value.clone_from(&stranger));
        object.spec.app = object.spec.app.replace("app-", "not-");
        object.spec.app_uid = stranger;
        object.status = None;
        Ok(Self { deploys, object, made: 0 })
    }

    /// Has as many creates under way as the load has connections, for this long; how many there were per second.
    async fn create(&mut self, time: Duration) -> Result<f64, Failure> {
        let (start, before) = (Instant::now(), self.made);
        let deploys = &self.deploys;
        let mut all = stream::iter(std::iter::from_fn(|| {
            if start.elapsed() >= time {
                return None;
            }
            self.made += 1;
            let mut object = self.object.clone();
            object.metadata.name = Some(format!("bare-{}", self.made));
            Some(async move { deploys.create(&PostParams::default(), &object).await })
        }))
        .buffer_unordered(CONNECTIONS);
        while let Some(created) = all.next().await {
            created?;
        }
        drop(all);
        Ok((self.made - before) as f64 / start.elapsed().as_secs_f64())
    }
}
