//! From the webhook's call to the Deployment's changed generation on a real API server, beside a bare patch of the
//! image.

use std::{path::Path, time::Duration};

use futures_util::{StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams, WatchEvent, WatchParams},
};
use serde_json::json;
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};

use crate::{
    Failure,
    bed::Cluster,
    client::Connection,
    deploy,
    fixture::{ANY, Fixture},
    seed,
    table::{Row, median},
};

/// A multiple of a bare patch's time.
const TARGET: f64 = 2.0;
const NAME: &str = "call to changed Deployment";
/// The time without a change after which the controllers rest: longer than a pod of the test bed takes to become ready.
const QUIET: Duration = Duration::from_millis(400);
const CHANGE_MAX: Duration = Duration::from_secs(20);

pub(crate) async fn run(server: &Path, quick: bool) -> Result<Row, Failure> {
    let measured = Cluster::with_namespace("cluster", async |cluster| measure(server, quick, cluster).await).await?;
    Ok(measured.unwrap_or_else(|| Row::no_cluster(NAME)))
}

async fn measure(server: &Path, quick: bool, cluster: &Cluster) -> Result<Row, Failure> {
    let count = if quick { 5 } else { 50 };
    let deployments: Api<Deployment> = Api::namespaced(cluster.client.clone(), &cluster.namespace());
    let mut rolled = Watched::create(&deployments, "rolled").await?;
    let mut patched = Watched::create(&deployments, "patched").await?;
    let fixture = Fixture::sqlite()?;
    let kubeconfig = fixture.path("kubeconfig");
    cluster.kubeconfig(&kubeconfig)?;
    fixture.admin_token(server)?;
    let app = seed::app(&*fixture.open().await?, &cluster.project, "test", "rolled").await?;
    let rollhook = fixture.serve_at(ANY, server, "kubernetes", Some(&kubeconfig)).await?;
    let mut connection = Connection::open(rollhook.address).await?;
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for number in 0..=count {
        quiet(&mut rolled, &mut patched).await;
        let (start, before) = (Instant::now(), rolled.generation());
        let revision = deploy::post(&mut connection, &app, &image(number)).await?;
        let changed = rolled.changed(before).await? - start;
        deploy::end(&mut connection, &app, revision).await?;
        quiet(&mut rolled, &mut patched).await;
        let (start, before) = (Instant::now(), patched.generation());
        patch(&deployments, number).await?;
        let patched = patched.changed(before).await? - start;
        // The first of each also opens connections and fills caches.
        if number > 0 {
            ours.push(changed);
            bare.push(patched);
        }
    }
    rollhook.stop().await?;
    let (ours, bare) = (median(&mut ours), median(&mut bare));
    let ratio = ours.as_secs_f64() / bare.as_secs_f64();
    Ok(Row {
        name: format!("{NAME}, median of {count}"),
        measured: format!("{:.1} ms", ours.as_secs_f64() * 1000.0),
        baseline: format!("bare patch: {:.1} ms", bare.as_secs_f64() * 1000.0),
        ratio: format!("{ratio:.2} ×"),
        target: format!("≤ {TARGET} ×"),
        met: Some(ratio <= TARGET),
    })
}

/// Waits until both rollouts are over and the controllers rest, whose work would slow the next measurement.
async fn quiet(one: &mut Watched, other: &mut Watched) {
    loop {
        tokio::select! {
            _ = one.0.changed() => {}
            _ = other.0.changed() => {}
            () = sleep(QUIET) => return,
        }
    }
}

async fn patch(deployments: &Api<Deployment>, number: u32) -> Result<(), Failure> {
    let containers = json!([{"name": "app", "image": image(number)}]);
    let patch = json!({"spec": {"template": {"spec": {"containers": containers}}}});
    deployments.patch("patched", &PatchParams::default(), &Patch::Strategic(patch)).await?;
    Ok(())
}

fn image(number: u32) -> String {
    format!("registry.example.com/shop/api:v{number}")
}

/// Creates a Deployment of one pod, which is available as soon as it is ready.
pub(crate) async fn create(deployments: &Api<Deployment>, name: &str) -> Result<Deployment, Failure> {
    let labels = json!({"app": name});
    let deployment = json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "app", "image": "registry.example.com/shop/api:first"}]},
            },
        },
    });
    Ok(deployments.create(&PostParams::default(), &serde_json::from_value(deployment)?).await?)
}

/// A Deployment, and its generation as a watch reports it.
struct Watched(watch::Receiver<i64>);

impl Watched {
    async fn create(deployments: &Api<Deployment>, name: &str) -> Result<Self, Failure> {
        let made = create(deployments, name).await?;
        let (sender, receiver) = watch::channel(made.metadata.generation.unwrap_or(0));
        let version = made.metadata.resource_version.unwrap_or_default();
        let parameters = WatchParams::default().fields(&format!("metadata.name={name}")).timeout(290);
        let mut events = deployments.watch(&parameters, &version).await?.boxed();
        tokio::spawn(async move {
            while let Ok(Some(event)) = events.try_next().await {
                if let WatchEvent::Modified(seen) = event {
                    sender.send_replace(seen.metadata.generation.unwrap_or(0));
                }
            }
        });
        Ok(Self(receiver))
    }

    fn generation(&self) -> i64 {
        *self.0.borrow()
    }

    /// Waits for another generation, and returns the time at which it was seen.
    async fn changed(&mut self, before: i64) -> Result<Instant, Failure> {
        let changed = self.0.wait_for(|generation| *generation != before);
        timeout(CHANGE_MAX, changed).await.map_err(|_| "the Deployment has not changed in time")??;
        Ok(Instant::now())
    }
}
