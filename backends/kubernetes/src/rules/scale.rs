//! Stops and starts: the number of a workload's pods, and the one from before a stop, which an annotation keeps.

use rollhook_core::deploy::Scale;
use serde_json::{Map, Value, json};

use super::object::Object;
use crate::workload::{Rollout, WorkloadKind};

/// The annotation of a workload that was stopped: the number of its replicas before, also if there were none; of a CronJob
/// whether it was active. A workload without it was not stopped.
pub(crate) const STOPPED_FROM: &str = "rollhook.dev/stopped-from";
/// The values of [`STOPPED_FROM`] for a CronJob.
const ACTIVE: &str = "active";
const SUSPENDED: &str = "suspended";

/// The change of a workload that a stop or a start makes beside the deploy's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScalePatch {
    /// The annotations; a `null` removes one.
    pub(crate) annotations: Map<String, Value>,
    /// The fields of the specification.
    pub(crate) spec: Map<String, Value>,
}

impl ScalePatch {
    fn set(mut self, field: &str, value: Value) -> Self {
        self.spec.insert(field.to_owned(), value);
        self
    }

    fn keep(mut self, value: Option<&str>) -> Self {
        self.annotations.insert(STOPPED_FROM.to_owned(), json!(value));
        self
    }
}

/// The change of the workload for a rollout: none where it keeps the number of pods, nor where a return (`is_return`) takes
/// back a stop that never came to this workload.
pub(crate) fn patch(object: &Object, scale: Scale, is_return: bool) -> ScalePatch {
    let kept = object.metadata().annotations.as_ref().and_then(|all| all.get(STOPPED_FROM)).map(String::as_str);
    let none = ScalePatch::default();
    match (scale, size(object)) {
        (Scale::Keep, _) | (_, Size::Fixed) => none,
        (Scale::Start, _) if is_return && kept.is_none() => none,
        // Of one that rests already, what was kept before stays.
        (Scale::Stop, Size::Replicas(0)) => none.keep(Some(kept.unwrap_or("0"))),
        (Scale::Stop, Size::Replicas(count)) => none.set("replicas", json!(0)).keep(Some(&count.to_string())),
        // What another has set since stays.
        (Scale::Start, Size::Replicas(count)) if count > 0 => none.keep(None),
        (Scale::Start, Size::Replicas(_)) => {
            let count: i32 = kept.and_then(|kept| kept.parse().ok()).filter(|count| *count >= 0).unwrap_or(1);
            none.set("replicas", json!(count)).keep(None)
        }
        (Scale::Stop, Size::Schedule { is_suspended: true }) => none.keep(Some(kept.unwrap_or(SUSPENDED))),
        (Scale::Stop, Size::Schedule { is_suspended: false }) => none.set("suspend", json!(true)).keep(Some(ACTIVE)),
        (Scale::Start, Size::Schedule { is_suspended: true }) if kept != Some(SUSPENDED) => {
            none.set("suspend", json!(false)).keep(None)
        }
        (Scale::Start, Size::Schedule { .. }) => none.keep(None),
    }
}

/// Why a workload of this kind can be neither stopped nor started. Returns `None` if it can be.
pub(crate) fn obstacle(kind: WorkloadKind, name: &str) -> Option<String> {
    (kind == WorkloadKind::DaemonSet).then(|| {
        format!("{kind} {name} has a pod on each of its nodes, and can be neither stopped nor started: choose its nodes instead.")
    })
}

/// The change by another that undid a stop while it was under way. Returns `None` if there is none.
pub(crate) fn undone(object: &Object, rollout: &Rollout) -> Option<String> {
    let title = object.title();
    match (rollout.scale, size(object)) {
        (Scale::Stop, Size::Replicas(count)) if count > 0 => {
            Some(format!("{title} was scaled to {count} replicas while it stopped"))
        }
        (Scale::Stop, Size::Schedule { is_suspended: false }) => Some(format!("{title} was resumed while it stopped")),
        _ => None,
    }
}

/// What the history says of a workload that was stopped. Returns `None` for every other rollout.
pub(crate) fn note(object: &Object, scale: Scale) -> Option<String> {
    match (scale, size(object)) {
        (Scale::Stop, Size::Schedule { .. }) => {
            Some("stopped: no Job is made any more, and one that runs goes on".to_owned())
        }
        (Scale::Stop, Size::Replicas(_)) => Some("stopped: no pod runs".to_owned()),
        (Scale::Keep | Scale::Start, _) | (Scale::Stop, Size::Fixed) => None,
    }
}

/// The part of a workload's specification that says how much of it runs.
enum Size {
    Replicas(i32),
    Schedule { is_suspended: bool },
    Fixed,
}

fn size(object: &Object) -> Size {
    match object {
        Object::Deployment(object) => Size::Replicas(object.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)),
        Object::StatefulSet(object) => Size::Replicas(object.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)),
        Object::CronJob(object) => {
            Size::Schedule { is_suspended: object.spec.as_ref().and_then(|spec| spec.suspend).unwrap_or(false) }
        }
        Object::DaemonSet(_) => Size::Fixed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::samples;

    fn changed(object: &Object, scale: Scale) -> Value {
        let ScalePatch { annotations, spec } = patch(object, scale, false);
        json!([annotations.get(STOPPED_FROM), spec])
    }

    fn sized(replicas: i32, kept: Option<&str>) -> Value {
        let annotations = kept.map(|kept| json!({STOPPED_FROM: kept})).unwrap_or_default();
        json!({"metadata": {"annotations": annotations}, "spec": {"replicas": replicas}})
    }

    fn deployment(replicas: i32, kept: Option<&str>) -> Object {
        samples::deployment(sized(replicas, kept))
    }

    #[test]
    fn stop_keeps_the_number_of_replicas_and_start_puts_it_back() {
        for sample in [samples::deployment, samples::stateful_set] {
            let of = |replicas, kept| sample(sized(replicas, kept));
            assert_eq!(changed(&of(3, None), Scale::Stop), json!(["3", {"replicas": 0}]));
            assert_eq!(changed(&of(3, Some("5")), Scale::Stop), json!(["3", {"replicas": 0}]), "scaled since");
            assert_eq!(changed(&of(0, Some("3")), Scale::Stop), json!(["3", {}]), "the number from before stays");
            assert_eq!(changed(&of(0, None), Scale::Stop), json!(["0", {}]), "scaled down by a person");
            assert_eq!(changed(&of(0, Some("0")), Scale::Start), json!([null, {"replicas": 0}]));
            assert_eq!(patch(&of(0, None), Scale::Start, true), ScalePatch::default(), "no stop came to it");
            assert_eq!(changed(&of(0, Some("3")), Scale::Start), json!([null, {"replicas": 3}]));
            for unknown in [None, Some("-4"), Some("many"), Some("99999999999")] {
                assert_eq!(changed(&of(0, unknown), Scale::Start), json!([null, {"replicas": 1}]), "{unknown:?}");
            }
            let by_another = patch(&of(5, Some("3")), Scale::Start, false);
            assert_eq!((by_another.spec.len(), &by_another.annotations[STOPPED_FROM]), (0, &Value::Null));
            assert_eq!(patch(&of(3, None), Scale::Keep, false), ScalePatch::default());
        }
    }

    #[test]
    fn cron_job_is_suspended_and_resumed_unless_it_was_suspended_before() {
        let of = |is_suspended: bool, kept: Option<&str>| {
            let annotations = kept.map(|kept| json!({STOPPED_FROM: kept})).unwrap_or_default();
            samples::cron_job(json!({"metadata": {"annotations": annotations}, "spec": {"suspend": is_suspended}}))
        };
        assert_eq!(changed(&of(false, None), Scale::Stop), json!(["active", {"suspend": true}]));
        assert_eq!(changed(&of(true, None), Scale::Stop), json!(["suspended", {}]));
        assert_eq!(changed(&of(true, Some("active")), Scale::Stop), json!(["active", {}]), "stopped twice");
        assert_eq!(changed(&of(true, Some("active")), Scale::Start), json!([null, {"suspend": false}]));
        assert_eq!(changed(&of(true, Some("suspended")), Scale::Start), json!([null, {}]));
        assert_eq!(changed(&of(true, None), Scale::Start), json!([null, {"suspend": false}]));
        assert_eq!(patch(&of(true, None), Scale::Start, true), ScalePatch::default(), "no stop came to it");
        assert_eq!(changed(&of(false, Some("active")), Scale::Start), json!([null, {}]), "resumed by another");
    }

    #[test]
    fn daemon_set_cannot_be_stopped() {
        assert!(obstacle(WorkloadKind::DaemonSet, "agent").unwrap().starts_with("DaemonSet agent has a pod on each"));
        assert_eq!(obstacle(WorkloadKind::CronJob, "nightly"), None);
        assert_eq!(patch(&samples::daemon_set(json!({})), Scale::Stop, false), ScalePatch::default());
    }

    #[test]
    fn stop_that_another_undoes_is_named() {
        let stop = Rollout { scale: Scale::Stop, ..samples::rollout(2) };
        assert_eq!(undone(&deployment(0, Some("3")), &stop), None);
        let why = undone(&deployment(2, Some("3")), &stop).unwrap();
        assert_eq!(why, "Deployment api was scaled to 2 replicas while it stopped");
        assert_eq!(undone(&deployment(2, Some("3")), &samples::rollout(2)), None);
    }
}
