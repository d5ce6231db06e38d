//! The attributes that OpenTelemetry's conventions for CI/CD have for a deploy, which is a run of its app's pipeline, and for its
//! phases, which are the run's tasks or the time that it waits.

use opentelemetry::{Array, KeyValue, StringValue, Value};
use rollhook_core::{
    app::App,
    deploy::{Deploy, Reason, State},
    image::ImageRef,
};

use crate::phases::Phase;

/// Reasons of a deploy that took too long.
const TIMEOUTS: [&str; 3] = [Reason::DEADLINE, Reason::BUILD_DEADLINE, Reason::RELEASE_DEADLINE];
/// Reasons that the platform or this service is to blame for, and not what was deployed.
const ERRORS: [&str; 10] = [
    Reason::UNREACHABLE,
    Reason::REFUSED,
    Reason::DISK_FULL,
    Reason::BUILD_LOST,
    Reason::BUILD_REFUSED,
    Reason::RELEASE_UNKNOWN,
    Reason::CONFIGURATION_MISSING,
    Reason::SOURCE_UNREACHABLE,
    Reason::SOURCE_DENIED,
    Reason::IMAGE_NOT_RESOLVED,
];

/// Returns the URL of a deploy's page in the console.
pub(crate) fn page(base_url: &str, app: &App, deploy: &Deploy) -> String {
    format!("{base_url}/apps/{}/deploys/{}", app.id, deploy.revision)
}

/// Returns the attributes of the run that a deploy is.
pub(crate) fn of_run(app: &App, deploy: &Deploy, page: &str) -> Vec<KeyValue> {
    let mut attributes = vec![
        KeyValue::new("cicd.pipeline.name", app.id.to_string()),
        KeyValue::new("cicd.pipeline.run.id", run_id(deploy)),
        KeyValue::new("cicd.pipeline.run.url.full", page.to_owned()),
    ];
    if let Some(result) = result(deploy) {
        attributes.push(KeyValue::new("cicd.pipeline.result", result));
    }
    if let State::Failed { reason, .. } = &deploy.state {
        attributes.push(KeyValue::new("error.type", reason.to_string()));
    }
    attributes
}

/// Returns the attributes of a phase: those of a task, or the state of a run that waits. `deploy` is as the phase left it.
pub(crate) fn of_phase(deploy: &Deploy, phase: Phase, page: &str) -> Vec<KeyValue> {
    let kind = match phase {
        Phase::Accept | Phase::Queue | Phase::Ready => {
            return vec![KeyValue::new("cicd.pipeline.run.state", "pending")];
        }
        Phase::Build => "build",
        Phase::Release | Phase::Rollout => "deploy",
        Phase::Verify => "test",
    };
    vec![
        KeyValue::new("cicd.pipeline.task.name", phase.name()),
        KeyValue::new("cicd.pipeline.task.type", kind),
        KeyValue::new("cicd.pipeline.task.run.id", format!("{}/{}", run_id(deploy), phase.name())),
        KeyValue::new("cicd.pipeline.task.run.url.full", page.to_owned()),
        KeyValue::new("cicd.pipeline.task.run.result", result(deploy).unwrap_or("success")),
    ]
}

/// Returns the attributes of an image: its name, tags and digests apart.
pub(crate) fn of_image(image: &ImageRef) -> Vec<KeyValue> {
    let list = |entry: String| Value::Array(Array::String(vec![StringValue::from(entry)]));
    let tag = image.tag().map(|tag| KeyValue::new("container.image.tags", list(tag.to_owned())));
    let digest = image.digest().map(|digest| format!("{}@{digest}", image.repository()));
    let digest = digest.map(|digest| KeyValue::new("container.image.repo_digests", list(digest)));
    let name = KeyValue::new("container.image.name", image.repository().to_owned());
    [Some(name), tag, digest].into_iter().flatten().collect()
}

/// Returns how far a failed deploy had come on each of several workloads, without what it waited for there.
pub(crate) fn of_workloads(deploy: &Deploy) -> Option<KeyValue> {
    let states: Vec<StringValue> = deploy
        .workloads()
        .iter()
        .map(|workload| StringValue::from(format!("{}: {}", workload.name, workload.state)))
        .collect();
    (!states.is_empty()).then(|| KeyValue::new("rollhook.workloads", Value::Array(Array::String(states))))
}

/// Returns the result of a run; `None` until it has ended.
fn result(deploy: &Deploy) -> Option<&'static str> {
    match &deploy.state {
        State::Succeeded { .. } => Some("success"),
        State::Failed { reason, .. } => Some(match reason.as_str() {
            reason if TIMEOUTS.contains(&reason) => "timeout",
            reason if ERRORS.contains(&reason) => "error",
            _ => "failure",
        }),
        State::Superseded { .. } => Some("skip"),
        State::Cancelled { .. } => Some("cancellation"),
        State::Queued | State::Building { .. } | State::Releasing { .. } | State::RollingOut { .. } => None,
    }
}

/// Returns the id of a run: that of the accept, which no other deploy has.
fn run_id(deploy: &Deploy) -> String {
    format!("{:032x}", deploy.id.0)
}
