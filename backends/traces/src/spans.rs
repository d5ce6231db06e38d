//! Spans of deploys: those that end with a commit, their ids, times and attributes.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry::{
    InstrumentationScope, KeyValue,
    trace::{SpanContext, SpanId, SpanKind, Status as SpanStatus, TraceFlags, TraceId, TraceState},
};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use rollhook_core::{
    app::App,
    deploy::{Deploy, State},
    ports::ConfirmedCommit,
    time::Timestamp,
    trace::TraceParent,
};
use sha2::{Digest as _, Sha256};

use crate::{conventions, phases::Phase};

/// Returns the spans that end with this commit.
pub(crate) fn of_commit(commit: &ConfirmedCommit<'_>, base_url: &str) -> Vec<SpanData> {
    let app = commit.app();
    let mut spans = Vec::new();
    for (before, deploy) in commit.deploys().filter(|(_, deploy)| is_traced(deploy)) {
        let ended = match before {
            None => Some((Phase::Accept, deploy.created_at, deploy.created_at.after(commit.took))),
            Some(before) => Phase::ended(before, deploy),
        };
        let page = conventions::page(base_url, app, deploy);
        spans.extend(ended.map(|(phase, begin, end)| of_phase(app, deploy, phase, (begin, end), &page)));
        if deploy.is_terminal() {
            spans.push(of_deploy(app, deploy, &page));
        }
    }
    spans
}

/// Returns whether a deploy has a trace. The image that ran when the app was registered is no deploy; and a trace that
/// its caller does not keep is not exported in parts.
fn is_traced(deploy: &Deploy) -> bool {
    !deploy.adopted && deploy.trace.as_ref().is_none_or(TraceParent::is_sampled)
}

/// Returns the span of a phase.
fn of_phase(app: &App, deploy: &Deploy, phase: Phase, times: (Timestamp, Timestamp), page: &str) -> SpanData {
    let parent = span_id(deploy, "deploy");
    let own = span_id(deploy, phase.name());
    let mut span = span(app, deploy, own, times);
    span.attributes.extend(conventions::of_phase(deploy, phase, page));
    SpanData { parent_span_id: parent, name: phase.name().into(), ..span }
}

/// Returns the span of a whole deploy, which has ended.
fn of_deploy(app: &App, deploy: &Deploy, page: &str) -> SpanData {
    let caller = deploy.trace.as_ref().map(|trace| SpanId::from_bytes(trace.span_id().to_be_bytes()));
    let times = (deploy.created_at, deploy.updated_at.max(deploy.created_at));
    let mut span = span(app, deploy, span_id(deploy, "deploy"), times);
    span.parent_span_id = caller.unwrap_or(SpanId::INVALID);
    span.parent_span_is_remote = caller.is_some();
    span.name = format!("deploy {}", app.id).into();
    span.span_kind = SpanKind::Server;
    span.attributes.extend(conventions::of_run(app, deploy, page));
    span
}

fn span(app: &App, deploy: &Deploy, id: SpanId, (begin, end): (Timestamp, Timestamp)) -> SpanData {
    SpanData {
        span_context: SpanContext::new(trace_id(deploy), id, TraceFlags::SAMPLED, false, TraceState::default()),
        parent_span_id: SpanId::INVALID,
        parent_span_is_remote: false,
        span_kind: SpanKind::Internal,
        name: "".into(),
        start_time: time(begin),
        end_time: time(end),
        attributes: attributes(app, deploy),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: status(deploy),
        instrumentation_scope: InstrumentationScope::builder("rollhook")
            .with_version(env!("CARGO_PKG_VERSION"))
            .build(),
    }
}

/// Returns the trace of a deploy: its caller's, or one of its own.
fn trace_id(deploy: &Deploy) -> TraceId {
    match &deploy.trace {
        Some(trace) => TraceId::from_bytes(trace.trace_id().to_be_bytes()),
        None => {
            let mut id = [0; 16];
            id.copy_from_slice(&hash(deploy, "trace")[..16]);
            TraceId::from_bytes(id)
        }
    }
}

fn span_id(deploy: &Deploy, name: &str) -> SpanId {
    let mut id = [0; 8];
    id.copy_from_slice(&hash(deploy, name)[..8]);
    SpanId::from_bytes(id)
}

/// Returns random bits that every process makes of a deploy in the same way: the accept's id is random.
fn hash(deploy: &Deploy, name: &str) -> [u8; 32] {
    Sha256::digest(format!("{:032x}/{name}", deploy.id.0)).into()
}

/// Returns the facts of an entry. A message or evidence may hold what a container printed, and is left out.
fn attributes(app: &App, deploy: &Deploy) -> Vec<KeyValue> {
    let text = |name: &'static str, value: &dyn ToString| KeyValue::new(name, value.to_string());
    let mut attributes = vec![
        text("rollhook.app", &app.id),
        text("rollhook.project", &app.project),
        text("deployment.environment.name", &app.environment),
        KeyValue::new("rollhook.revision", i64::try_from(deploy.revision.get()).unwrap_or(i64::MAX)),
        text("rollhook.trigger", &deploy.trigger),
        text("rollhook.status", &deploy.status()),
    ];
    attributes.extend(deploy.wanted_image().iter().flat_map(conventions::of_image));
    attributes.extend(deploy.commit.as_ref().map(|commit| text("vcs.ref.head.revision", commit)));
    if let State::Failed { reason, .. } | State::Cancelled { reason, .. } = &deploy.state {
        attributes.push(text("rollhook.reason", reason));
    }
    attributes.extend(conventions::of_workloads(deploy));
    if let State::Superseded { by, .. } = &deploy.state {
        attributes.push(text("rollhook.superseded_by", by));
    }
    attributes
}

fn status(deploy: &Deploy) -> SpanStatus {
    match &deploy.state {
        State::Succeeded { .. } => SpanStatus::Ok,
        State::Failed { reason, .. } => SpanStatus::error(reason.to_string()),
        State::Queued
        | State::Building { .. }
        | State::Releasing { .. }
        | State::RollingOut { .. }
        | State::Superseded { .. }
        | State::Cancelled { .. } => SpanStatus::Unset,
    }
}

fn time(at: Timestamp) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(at.as_millis()).unwrap_or_default())
}

#[cfg(test)]
mod tests;
