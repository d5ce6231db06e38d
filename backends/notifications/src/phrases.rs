//! Sentences on deploys, for services that show texts to people.

use rollhook_core::{
    app::App,
    deploy::{Deploy, Reason, State},
};
use rollhook_management::notifications::{EventKind, Notification};

/// Returns the event of a deploy as the rest of a sentence that begins with the deploy.
pub(crate) const fn happened(event: EventKind) -> &'static str {
    match event {
        EventKind::Accepted => "was accepted",
        EventKind::Building => "is being built",
        EventKind::Releasing => "is running its release command",
        EventKind::RollingOut => "is being rolled out",
        EventKind::Verifying => "is being verified",
        EventKind::AwaitingDecision => "waits for a person's decision",
        EventKind::Succeeded => "succeeded",
        EventKind::Failed => "failed",
        EventKind::Superseded => "was superseded",
        EventKind::Cancelled => "was cancelled",
        EventKind::PutRight => "has put a failed rollout right",
        EventKind::RolledBack => "rolled back",
        EventKind::VerificationRevoked => "failed a check after it had succeeded",
        EventKind::Drift => "was changed by another party",
        EventKind::Degraded => "does not run as it should",
    }
}

/// Returns why a deploy ended as it did, if the event is its end and there is a reason: the reason's code alone. Of one that waits
/// for a person's decision, it returns the checks that came to no verdict.
///
/// The message is left out: it may repeat a container's output or a registry's error, and a repository's statuses
/// are often public.
pub(crate) fn explanation(deploy: &Deploy, event: EventKind) -> Option<String> {
    if event != EventKind::of(deploy) {
        return None;
    }
    match &deploy.state {
        State::Failed { reason, .. } => Some(reason.to_string()),
        // "was cancelled: cancelled" explains nothing.
        State::Cancelled { reason, .. } => (reason.as_str() != Reason::CANCELLED).then(|| reason.to_string()),
        State::Superseded { by, newer: Some(newer), .. } => Some(format!("revision {by} had brought {newer} before")),
        State::Superseded { by, newer: None, .. } => Some(format!("revision {by} took its place")),
        State::RollingOut { .. } => {
            let (asking, _) = deploy.awaited_decision()?;
            let names: Vec<&str> = asking.without_verdict().map(|check| check.name.as_str()).collect();
            Some(format!("no verdict of {}", names.join(", ")))
        }
        State::Succeeded { .. } | State::Queued | State::Building { .. } | State::Releasing { .. } => None,
    }
}

/// Returns the states of several workloads, if the event is the failure of their deploy: that which failed first. What they
/// waited for is left out, as messages are.
pub(crate) fn workloads(deploy: &Deploy, event: EventKind) -> Vec<String> {
    let known = if event == EventKind::of(deploy) { deploy.workloads() } else { &[] };
    known.iter().map(|workload| format!("{}: {}", workload.name, workload.state)).collect()
}

/// Returns a deploy's event in at most `max` characters, without its image: the service shows the commit.
pub(crate) fn description(app: &App, deploy: &Deploy, event: EventKind, max: usize) -> String {
    let why = explanation(deploy, event).map(|why| format!(": {why}")).unwrap_or_default();
    let workloads = workloads(deploy, event).join(", ");
    let workloads = if workloads.is_empty() { workloads } else { format!(" ({workloads})") };
    let text = format!("{} #{} {}{why}{workloads}", app.id, deploy.revision, happened(event));
    if text.chars().count() <= max {
        return text;
    }
    text.chars().take(max.saturating_sub(1)).chain(['…']).collect()
}

/// Returns the URL of a page in the console; `None` if the service does not know its own URL.
pub(crate) fn page(notification: &Notification, app: &App, deploy: Option<&Deploy>) -> Option<String> {
    let deploy = deploy.map(|deploy| format!("/deploys/{}", deploy.revision)).unwrap_or_default();
    let base = &notification.base_url;
    base.starts_with("http").then(|| format!("{base}/apps/{}{deploy}", app.id))
}
