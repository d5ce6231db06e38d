//! Accepted deploys per second with the history in Kubernetes itself, and the engine driving each to its end, beside bare
//! replacements of the objects that an accept replaces.

use std::{path::Path, time::Duration};

use futures_util::future::try_join_all;
use kube::{
    Api, ResourceExt,
    api::{ListParams, PostParams},
};
use rollhook_kubernetes::crd::AppObject;
use tokio::time::{Instant, sleep};

use crate::{
    Failure,
    bed::Cluster,
    load::{CONNECTIONS, Calls},
    place::{ANY, Place},
    seed,
    subject::Subject,
    table::Row,
};

/// A share of the rate of bare replacements.
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
    let mut rollhook = Subject::new(serve().await?, place.open().await?);
    let targets = seed::apps(&*place.open().await?, &cluster.project, 0..apps).await?;
    sleep(seed::KNOWN).await;
    let calls = Calls::new(&targets, true);
    rollhook.warm_up(&calls, phase / 4).await?;
    let mut rates = 0.0;
    for number in 1..=PHASES {
        rollhook.warm_up(&calls, phase / 10).await?;
        rollhook.load(&calls, phase, &format!("{NAME} {number}")).await?;
        // It would watch what is replaced.
        rollhook.stop().await?;
        let mut bare = Bare::of(cluster).await?;
        bare.replace(phase / 10).await?;
        let rate = bare.replace(phase).await?;
        eprintln!("{NAME} {number}: bare replacements {rate:.0}/s");
        rates += rate / PHASES as f64;
        rollhook.resume(serve().await?);
    }
    rollhook.stop().await?;
    let mut ours = rollhook.total().await?;
    let ratio = ours.sent.per_second() / rates;
    Ok(Row::share(NAME, ours.told(), format!("bare replacements: {rates:.0}/s"), ratio, TARGET))
}

/// Replaces the objects of the apps, each as it is.
struct Bare {
    apps: Api<AppObject>,
    objects: Vec<AppObject>,
    made: u64,
}

impl Bare {
    async fn of(cluster: &Cluster) -> Result<Self, Failure> {
        let apps: Api<AppObject> = Api::namespaced(cluster.client.clone(), &cluster.namespace());
        let objects = apps.list(&ListParams::default()).await?.items;
        Ok(Self { apps, objects, made: 0 })
    }

    /// Has as many replacements under way as the load has connections, for this long. Returns how many there were per
    /// second.
    async fn replace(&mut self, time: Duration) -> Result<f64, Failure> {
        let (start, apps, made) = (Instant::now(), &self.apps, self.made);
        let share = self.objects.len().div_ceil(CONNECTIONS).max(1);
        let workers = self.objects.chunks_mut(share).map(async |objects| {
            let mut replaced = 0;
            for at in (0..objects.len()).cycle() {
                if start.elapsed() >= time {
                    break;
                }
                let object = &mut objects[at];
                // An object that does not change is not written.
                object.annotations_mut().insert("bench".to_owned(), format!("{made}-{replaced}"));
                *object = apps.replace(&object.name_any(), &PostParams::default(), object).await?;
                replaced += 1;
            }
            Ok::<u64, kube::Error>(replaced)
        });
        let replaced: u64 = try_join_all(workers).await?.into_iter().sum();
        self.made += replaced;
        Ok(replaced as f64 / start.elapsed().as_secs_f64())
    }
}
