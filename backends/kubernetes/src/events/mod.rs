//! Deploys as Kubernetes Events, where people with `kubectl` look first: on the workload, and on the `RollhookApp` where
//! the store is the cluster.
//!
//! ```text
//!   commit ─▶ note::of ─▶ queue (bounded) ─▶ one task: reads the objects' uids, creates an Event on each
//! ```
//!
//! An Event is a comfort, and the history is the truth: no deploy waits for one, and one that finds the queue full or
//! the cluster away is left out.

mod note;

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{Api, api::ObjectMeta};
use rollhook_core::{
    Error, Result,
    ports::{ConfirmedCommit, DeployObserver},
};
use tokio::{
    sync::{mpsc, oneshot},
    time::{MissedTickBehavior, interval, timeout},
};

use crate::{
    bounded,
    client::Cluster,
    error::{GRANT, classify},
    rules::object::MANAGER,
    store::crd::{AppObject, GROUP, KIND},
};
use note::Note;

/// The most notes that wait for their Events.
const WAITING: usize = 256;
/// The pause between two notes: so many Events the cluster can bear, however many deploys there are.
const PACE: Duration = Duration::from_millis(200);
/// The longest time in which the last Events are written when a process stops.
const STOP_TIME: Duration = Duration::from_secs(2);
/// The component that Events name as theirs.
const CONTROLLER: &str = "rollhook.dev/rollhook";

/// The objects that Events are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventObjects {
    /// The workloads of apps: the driver is the cluster.
    pub workloads: bool,
    /// The `RollhookApp`s: the store is the cluster.
    pub apps: bool,
}

/// The Events of a process's deploys: an observer of its commits.
pub struct KubernetesEvents {
    queue: mpsc::Sender<Message>,
    /// Whether a note was left out since the last one that was queued.
    overflows: AtomicBool,
}

enum Message {
    Write(Box<Note>),
    /// All that was queued before is written.
    Flush(oneshot::Sender<()>),
}

impl KubernetesEvents {
    /// Connects as `kubectl` would, or from inside a pod with its service account; `instance` names this process. Nothing
    /// is sent yet. Needs a runtime.
    ///
    /// # Errors
    /// `Invalid` if there is no configuration, or one that cannot be used.
    pub async fn connect(objects: EventObjects, instance: &str) -> Result<Self> {
        let writer = Writer {
            cluster: Cluster::connect().await?,
            objects,
            instance: instance.chars().take(128).collect(),
            denied: BTreeSet::new(),
        };
        let (queue, waiting) = mpsc::channel(WAITING);
        tokio::spawn(writer.run(waiting));
        Ok(Self { queue, overflows: AtomicBool::new(false) })
    }

    /// Writes the last Events. A cluster that does not answer is not waited for.
    pub async fn stop(&self) {
        let (written, done) = oneshot::channel();
        let flushed = async {
            if self.queue.send(Message::Flush(written)).await.is_ok() {
                let _ = done.await;
            }
        };
        let _ = timeout(STOP_TIME, flushed).await;
    }
}

impl DeployObserver for KubernetesEvents {
    fn committed(&self, commit: &ConfirmedCommit<'_>) {
        for note in note::of(commit) {
            let app = note.app.clone();
            let is_full = self.queue.try_send(Message::Write(Box::new(note))).is_err();
            if is_full && !self.overflows.swap(is_full, Ordering::Relaxed) {
                tracing::warn!(%app, "leaving out Events: the cluster takes them more slowly than deploys go on");
            } else if !is_full {
                self.overflows.store(false, Ordering::Relaxed);
            }
        }
    }
}

/// The task that writes.
struct Writer {
    cluster: Cluster,
    objects: EventObjects,
    instance: String,
    /// The namespaces in which Events may not be written, as the log says of each once.
    denied: BTreeSet<String>,
}

impl Writer {
    async fn run(mut self, mut waiting: mpsc::Receiver<Message>) {
        let mut pace = interval(PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while let Some(message) = waiting.recv().await {
            match message {
                Message::Write(note) => {
                    pace.tick().await;
                    let written = bounded(self.write(&note)).await;
                    self.log(&note, written);
                }
                // The other end may have stopped waiting.
                Message::Flush(written) => drop(written.send(())),
            }
        }
    }

    async fn write(&self, note: &Note) -> Result<()> {
        let namespace = note.app.namespace.as_str();
        if let Some(workload) = note.workload.as_ref().filter(|_| self.objects.workloads) {
            let found = self.cluster.workloads(namespace, workload.kind).get_opt(&workload.name).await;
            if let Some(found) = found.map_err(classify)? {
                self.create(note, reference(workload.kind.api_version(), workload.kind.as_str(), found.metadata))
                    .await?;
            }
        }
        if self.objects.apps {
            let apps: Api<AppObject> = self.cluster.api(namespace);
            if let Some(found) = apps.get_metadata_opt(note.app.name.as_str()).await.map_err(classify)? {
                self.create(note, reference(&format!("{GROUP}/v1"), KIND, found.metadata)).await?;
            }
        }
        Ok(())
    }

    async fn create(&self, note: &Note, regarding: ObjectReference) -> Result<()> {
        let event = v1::Event {
            metadata: ObjectMeta {
                generate_name: Some(format!("{MANAGER}-{}-", note.app.name)),
                namespace: regarding.namespace.clone(),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(note.at)),
            action: Some("Deploy".to_owned()),
            reason: Some(note.reason.to_owned()),
            type_: Some(if note.is_warning { "Warning" } else { "Normal" }.to_owned()),
            note: Some(note.text.clone()),
            regarding: Some(regarding),
            reporting_controller: Some(CONTROLLER.to_owned()),
            reporting_instance: Some(self.instance.clone()),
            ..v1::Event::default()
        };
        self.cluster.create(note.app.namespace.as_str(), &event).await.map(drop).map_err(classify)
    }

    /// Logs a missing permission once for each namespace.
    fn log(&mut self, note: &Note, written: Result<()>) {
        let (app, namespace) = (&note.app, note.app.namespace.as_str());
        match written {
            Ok(()) => drop(self.denied.remove(namespace)),
            Err(Error::Denied { what, .. }) if self.denied.insert(namespace.to_owned()) => {
                tracing::warn!(%app, denied = what, "writing Events is not permitted: {GRANT}");
            }
            Err(error) => tracing::debug!(%app, error = %error.chain(), "writing an Event failed"),
        }
    }
}

fn reference(api_version: &str, kind: &str, metadata: ObjectMeta) -> ObjectReference {
    ObjectReference {
        api_version: Some(api_version.to_owned()),
        kind: Some(kind.to_owned()),
        name: metadata.name,
        namespace: metadata.namespace,
        // `kubectl describe` looks for the Events of just this object.
        uid: metadata.uid,
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::{Method, Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};
    use tower::service_fn;

    use super::*;
    use crate::{lock, workload::WorkloadKind};

    /// A cluster that has every object, and takes Events where it permits them; with the Events that it took.
    fn cluster(permits: bool) -> (Cluster, Arc<Mutex<Vec<Value>>>) {
        let taken = Arc::<Mutex<Vec<Value>>>::default();
        let kept = taken.clone();
        let service = service_fn(move |request: Request<Body>| {
            let kept = kept.clone();
            async move {
                let (parts, body) = request.into_parts();
                let name = parts.uri.path().rsplit('/').next().unwrap_or_default().to_owned();
                let (status, answer) = match parts.method {
                    Method::GET => {
                        let uid = format!("uid of {}", parts.uri.path().rsplit('/').nth(1).unwrap_or_default());
                        let metadata = json!({"name": name, "namespace": "shop-test", "uid": uid});
                        (200, json!({"apiVersion": "v1", "kind": "PartialObjectMetadata", "metadata": metadata}))
                    }
                    _ if permits => {
                        let event: Value = serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap();
                        lock(&kept).push(event.clone());
                        (201, event)
                    }
                    _ => {
                        let message =
                            "events.events.k8s.io is forbidden: User \"rollhook\" cannot create resource \"events\"";
                        (
                            403,
                            json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "message": message, "code": 403}),
                        )
                    }
                };
                let answer = Response::builder().status(status).body(Body::from(answer.to_string().into_bytes()));
                Ok::<_, std::convert::Infallible>(answer.unwrap())
            }
        });
        (Cluster::of(kube::Client::new(service, "rollhook")), taken)
    }

    fn writer(cluster: Cluster, objects: EventObjects) -> Writer {
        Writer { cluster, objects, instance: "pod-1".to_owned(), denied: BTreeSet::new() }
    }

    fn note() -> Note {
        Note {
            app: "shop-test/api".parse().unwrap(),
            workload: Some(crate::Workload {
                kind: WorkloadKind::StatefulSet,
                name: "db".to_owned(),
                containers: vec!["db".to_owned()],
                template: None,
            }),
            at: jiff::Timestamp::UNIX_EPOCH,
            reason: "DeployFailed",
            is_warning: true,
            text: "Revision 7 failed".to_owned(),
        }
    }

    const BOTH: EventObjects = EventObjects { workloads: true, apps: true };

    #[tokio::test]
    async fn event_is_about_the_workload_and_the_app_as_they_are() {
        let (cluster, taken) = cluster(true);
        writer(cluster.clone(), BOTH).write(&note()).await.unwrap();
        let events = std::mem::take(&mut *lock(&taken));
        let regarding = |event: &Value| {
            let regarding = &event["regarding"];
            ["apiVersion", "kind", "name", "uid"].map(|field| regarding[field].as_str().unwrap().to_owned())
        };
        let about: Vec<_> = events.iter().map(regarding).collect();
        let workload = ["apps/v1", "StatefulSet", "db", "uid of statefulsets"];
        assert_eq!(about, [workload, ["rollhook.dev/v1", "RollhookApp", "api", "uid of rollhookapps"]]);
        for event in &events {
            let fields = ["type", "reason", "note", "reportingInstance"].map(|field| event[field].as_str().unwrap());
            assert_eq!(fields, ["Warning", "DeployFailed", "Revision 7 failed", "pod-1"]);
            assert_eq!(event["metadata"]["namespace"], "shop-test");
        }
        writer(cluster, EventObjects { apps: false, ..BOTH }).write(&note()).await.unwrap();
        assert_eq!(lock(&taken).len(), 1, "the store is another one");
    }

    #[tokio::test]
    async fn missing_permission_is_noted_once_for_each_namespace_and_ends_no_task() {
        let (cluster, _) = cluster(false);
        let mut writer = writer(cluster, BOTH);
        for _ in 0..2 {
            let written = writer.write(&note()).await;
            assert!(matches!(written, Err(Error::Denied { .. })), "{written:?}");
            writer.log(&note(), written);
        }
        assert_eq!(writer.denied, ["shop-test".to_owned()].into());
    }
}
