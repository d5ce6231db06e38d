//! What an Event says of a deploy.

use rollhook_core::{
    app::{App, AppId},
    deploy::{Deploy, State},
    ports::ConfirmedCommit,
    text::escaped,
};
use serde::Deserialize as _;

use crate::{store::calendar, workload::Workload};

/// The most bytes of a text: the API server takes no note of more than 1024.
const TEXT_MAX: usize = 1000;

/// A step of a deploy that people are told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) app: AppId,
    /// The app's workload; `None` if its target is none of a cluster's.
    pub(super) workload: Option<Workload>,
    pub(super) at: jiff::Timestamp,
    /// The step in one word.
    pub(super) reason: &'static str,
    pub(super) is_warning: bool,
    pub(super) text: String,
}

/// Returns the steps that a commit makes: accepts and ends, and the first wait for a person's decision.
pub(super) fn of(commit: &ConfirmedCommit<'_>) -> Vec<Note> {
    let asks = |deploy: &Deploy| deploy.awaited_decision().is_some();
    let steps = commit.deploys().filter(|(before, deploy)| match before {
        None => true,
        Some(before) => deploy.is_terminal() || asks(deploy) && !asks(before),
    });
    steps.map(|(_, deploy)| note(commit.app(), deploy)).collect()
}

fn note(app: &App, deploy: &Deploy) -> Note {
    let is_restore = deploy.is_restore();
    let (reason, told) = match &deploy.state {
        State::RollingOut { .. } if deploy.awaited_decision().is_some() => {
            let gap = deploy.verification.as_ref().and_then(|asking| asking.gap()).unwrap_or_default();
            ("DeployAwaitsDecision", format!("waits for a person's decision, as checks came to no verdict: {gap}"))
        }
        State::Queued | State::Building { .. } | State::Releasing { .. } | State::RollingOut { .. } => {
            ("DeployAccepted", format!("accepted, {} by {}", deploy.trigger, deploy.actor))
        }
        State::Succeeded { .. } if is_restore => ("DeployRestored", "restored what ran before".to_owned()),
        State::Succeeded { note } => {
            let note = note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
            ("DeploySucceeded", format!("succeeded{note}"))
        }
        State::Failed { reason, message, .. } => ("DeployFailed", format!("failed: {reason}: {message}")),
        State::Superseded { by, newer: Some(newer), .. } => {
            ("DeploySuperseded", format!("superseded: revision {by} had brought {newer} before"))
        }
        State::Superseded { by, newer: None, .. } => ("DeploySuperseded", format!("superseded by revision {by}")),
        State::Cancelled { reason, message } => ("DeployCancelled", format!("cancelled: {reason}: {message}")),
    };
    let image = deploy.image.as_ref().map(ToString::to_string);
    let commit = deploy.commit.as_ref().map(|commit| format!("commit {commit}"));
    let what = image.or(commit).unwrap_or_default();
    let mut text = escaped(&format!("Revision {} ({what}) {told}", deploy.revision));
    text.truncate(text.floor_char_boundary(TEXT_MAX));
    Note {
        app: app.id.clone(),
        workload: Workload::deserialize(&app.target.settings).ok(),
        at: calendar(deploy.updated_at),
        reason,
        is_warning: matches!(deploy.state, State::Failed { .. }),
        text,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rollhook_conformance::samples;
    use rollhook_core::{
        deploy::Reason,
        ledger::{Change, Record},
        time::Timestamp,
    };
    use serde_json::json;

    use super::*;

    fn app() -> App {
        let mut app = samples::app("shop", "test", "api");
        let settings = json!({"kind": "StatefulSet", "name": "db", "containers": ["db"]});
        app.target.settings = serde_json::from_value(settings).unwrap();
        app
    }

    fn notes(change: &Change) -> Vec<Note> {
        of(&ConfirmedCommit { before: None, change, took: Duration::ZERO })
    }

    #[test]
    fn accept_and_end_are_told_and_no_step_between() {
        let now = Timestamp::from_millis(1_000);
        let mut change = Change::register(app());
        let accepted = samples::admit(&mut change, samples::admission(samples::deploy("v1")), now);
        let told = notes(&change);
        assert_eq!((told.len(), told[0].reason, told[0].is_warning), (1, "DeployAccepted", false));
        assert!(told[0].text.contains("Revision 1 (registry.example.com/") && told[0].text.contains("by"), "{told:?}");
        assert_eq!(told[0].workload.as_ref().unwrap().name, "db");

        let before = change.state.clone();
        let rolling = Deploy { touched: true, ..accepted.moved(samples::rolling_out(&accepted)) };
        let mut change = Change::on(before.clone());
        change.record(Record { changes: vec![rolling.clone()], ..Record::default() }, now).unwrap();
        assert_eq!(of(&ConfirmedCommit { before: Some(&before), change: &change, took: Duration::ZERO }), []);

        let before = change.state.clone();
        let mut change = Change::on(before.clone());
        let failed = State::Failed {
            reason: Reason::new("CrashLoopBackOff"),
            message: format!("ended\u{1b}[2J {}", "é".repeat(2000)),
            evidence: None,
        };
        change.record(Record { changes: vec![rolling.moved(failed)], idle: true, ..Record::default() }, now).unwrap();
        let told = of(&ConfirmedCommit { before: Some(&before), change: &change, took: Duration::ZERO });
        assert_eq!((told.len(), told[0].reason, told[0].is_warning), (1, "DeployFailed", true));
        assert!(told[0].text.contains("failed: CrashLoopBackOff: ended\\u{1b}[2J é"), "{told:?}");
        assert!(told[0].text.len() <= 1024, "the API server takes no longer one");
    }
}
