//! The instances of a workload, and their logs as the nodes keep them.

use async_trait::async_trait;
use futures_util::AsyncReadExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::{
    Error as KubeError,
    api::{ListParams, LogParams},
};
use rollhook_core::{
    Error, Result,
    app::App,
    instance::InstanceName,
    ports::{InstanceLogPart, InstanceLogs, LogQuery, LogReader, TargetInstance},
};
use serde::Deserialize;

use crate::{
    KubernetesCluster,
    client::{Cluster, parsed},
    error::classify,
    for_app,
    rules::{instances, listed::ListedPod, pods},
    workload::Workload,
};

/// The size of the pieces in which a log is read.
const PIECE: usize = 16 << 10;

#[async_trait]
impl InstanceLogs for KubernetesCluster {
    async fn instances(&self, app: &App) -> Result<Vec<TargetInstance>> {
        for_app(async {
            let workload = workload(app)?;
            let found = pods(&self.cluster, app, &workload, ListParams::default()).await?;
            Ok(instances::of(&found, app.uid, &workload.containers))
        })
        .await
    }

    async fn read(&self, app: &App, instance: &InstanceName, query: &LogQuery) -> Result<Option<InstanceLogPart>> {
        for_app(read(&self.cluster, app, instance, query)).await
    }
}

fn workload(app: &App) -> Result<Workload> {
    Workload::deserialize(&app.target.settings)
        .map_err(|error| Error::corrupt(format!("the target of app {} is not a Kubernetes workload", app.id), error))
}

/// The pods of the workload, of every revision that are still there. Those of a CronJob's Jobs are known by their stamp.
async fn pods(cluster: &Cluster, app: &App, workload: &Workload, parameters: ListParams) -> Result<Vec<Pod>> {
    let namespace = app.id.namespace.as_str();
    let Some(object) = cluster.workload(namespace, workload.kind, &workload.name).await? else {
        return Ok(Vec::new());
    };
    let selector = object.selector();
    let parameters = match selector {
        Some(selector) => parameters.labels_from(&parsed(selector)?),
        None => parameters,
    };
    let mut kept = Vec::new();
    let keep = |page: Vec<ListedPod>| {
        let page = page.into_iter().map(|pod| pod.with_containers(&workload.containers));
        instances::keep(
            &mut kept,
            page.filter(|pod| selector.is_some() || instances::is_of(pod, app.uid, &workload.name)),
        );
    };
    cluster.list::<Pod, ListedPod>(namespace, parameters, keep).await?;
    Ok(kept)
}

async fn read(
    cluster: &Cluster,
    app: &App,
    instance: &InstanceName,
    query: &LogQuery,
) -> Result<Option<InstanceLogPart>> {
    let workload = workload(app)?;
    let (pod, container) = instances::container(instance, &workload.containers);
    let named = ListParams::default().fields(&format!("metadata.name={pod}"));
    let found = pods(cluster, app, &workload, named).await?;
    let Some(found) = found.iter().find(|found| pods::name(found) == pod) else { return Ok(None) };
    let status = pods::statuses(found).find(|status| status.name == container);
    if status.is_none() && instance.as_str() != pod {
        return Ok(None);
    }
    let Some(status) = status else { return Ok(Some(LogReader::new(query, time).finish(true))) };
    let source = Source { cluster, namespace: app.id.namespace.as_str(), pod, status };
    // A reader who follows the log gets what was written until the restart as well.
    if let Some(position) = query.after.filter(|_| !query.previous)
        && instances::was_restarted_since(status, position)
    {
        let before = source.part(&query.of_previous()).await?;
        if !before.lines.is_empty() {
            return Ok(Some(InstanceLogPart { has_more: true, ..before }));
        }
    }
    source.part(query).await.map(Some)
}

/// A container whose log is read.
struct Source<'a> {
    cluster: &'a Cluster,
    namespace: &'a str,
    pod: &'a str,
    status: &'a ContainerStatus,
}

impl Source<'_> {
    async fn part(&self, query: &LogQuery) -> Result<InstanceLogPart> {
        let since = LogReader::since(query).map(|nanos| Timestamp::from_nanosecond(nanos.into()).unwrap_or_default());
        let parameters = LogParams {
            container: Some(self.status.name.clone()),
            previous: query.previous,
            since_time: since,
            tail_lines: i64::try_from(query.lines).ok().filter(|_| query.after.is_none()),
            timestamps: true,
            ..LogParams::default()
        };
        let mut reader = LogReader::new(query, time);
        let mut log = match self.cluster.api::<Pod>(self.namespace).log_stream(self.pod, &parameters).await {
            Ok(log) => Box::pin(log),
            // The container has not begun, has no life before, or is gone by now.
            Err(KubeError::Api(status)) if matches!(status.code, 400 | 404) => return Ok(reader.finish(true)),
            Err(error) => return Err(classify(error)),
        };
        let mut piece = vec![0; PIECE];
        while !reader.is_full() {
            let broken = |error| Error::unavailable("a log cannot be read to its end", error);
            match log.read(&mut piece).await.map_err(broken)? {
                0 => break,
                length => reader.take(piece.get(..length).unwrap_or_default()),
            }
        }
        Ok(reader.finish(query.previous || !instances::is_running(self.status)))
    }
}

fn time(text: &str) -> Option<i64> {
    i64::try_from(text.parse::<Timestamp>().ok()?.as_nanosecond()).ok()
}
