//! The instances of a target, and the lives of its containers within their logs.

use std::{cmp::Reverse, time::Duration};

use jiff::Timestamp;
use rollhook_core::{app::AppUid, instance::InstanceName, ports::TargetInstance};

use super::{
    container::{Container, Process, Seen},
    diagnostics,
};

/// The most instances that are listed.
const MOST: usize = 100;
/// The time by which the engine may note a start after the first line of that life.
const NOTED_LATE: Duration = Duration::from_millis(50);

/// Returns the instances, those of the newest revision first.
pub(crate) fn of(seen: &Seen, app: AppUid) -> Vec<TargetInstance> {
    let mut found: Vec<_> = seen.containers.iter().map(|container| instance(container, app)).collect();
    found.sort_by_key(|instance| (Reverse(instance.revision), instance.name.clone()));
    found.truncate(MOST);
    found
}

/// Returns the container of an instance, by its name or id.
pub(crate) fn named<'a>(seen: &'a Seen, instance: &InstanceName) -> Option<&'a Container> {
    let name = instance.as_str();
    let by_id = seen.containers.iter().find(|container| container.short_id() == name);
    by_id.or_else(|| seen.containers.iter().find(|container| container.name() == name))
}

/// Whether a container runs well, by what the engine reports.
pub(crate) fn is_ready(container: &Container) -> bool {
    let is_well = container.health().is_none_or(|health| health == "healthy");
    container.process() == Process::Running && !container.is_paused() && is_well
}

fn instance(container: &Container, app: AppUid) -> TargetInstance {
    let revision = container.deploy().filter(|id| id.app == app).map(|id| id.revision);
    TargetInstance {
        name: InstanceName::shortened(container.name()),
        id: InstanceName::shortened(container.short_id()),
        revision,
        state: diagnostics::state(container),
        is_ready: is_ready(container),
        restarts: container.restarts(),
        workload: None,
    }
}

/// Returns the time in the log at which the present life begins, or the last one if none runs; `None` if there was none
/// before. The engine keeps all lives in one log, and notes starts and ends a moment before or after their lines.
pub(crate) fn life_begin(container: &Container) -> Option<Timestamp> {
    let started: Timestamp = container.started_at().parse().ok()?;
    match container.process() {
        Process::Created => None,
        Process::Running => {
            let ended = container.ended_at().filter(|ended| *ended <= started)?;
            ended.checked_add(started.duration_since(ended) / 2).ok()
        }
        Process::Restarting | Process::Ended => {
            (container.restarts() > 0).then(|| started.checked_sub(NOTED_LATE).ok()).flatten()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rules::samples::{container, with};

    #[test]
    fn life_begins_between_the_end_of_the_one_before_and_its_start() {
        let of = |status: &str, restarts: u32, ended: &str| {
            let container = with(container("web", status), "/RestartCount", json!(restarts));
            let container = with(container, "/State/StartedAt", json!("2026-01-01T00:00:30.2Z"));
            let begin = life_begin(&with(container, "/State/FinishedAt", json!(ended)));
            begin.map(|begin| begin.to_string())
        };
        assert_eq!(of("running", 1, "2026-01-01T00:00:30Z").as_deref(), Some("2026-01-01T00:00:30.1Z"));
        assert_eq!(of("restarting", 1, "2026-01-01T00:00:31Z").as_deref(), Some("2026-01-01T00:00:30.15Z"));
        assert_eq!(of("running", 0, "0001-01-01T00:00:00Z"), None, "it never ended");
        assert_eq!(of("exited", 0, "2026-01-01T00:00:31Z"), None, "its only life has ended");
        assert_eq!(of("created", 0, "0001-01-01T00:00:00Z"), None);
    }

    #[test]
    fn instance_is_found_by_its_name_and_by_its_id() {
        let old = with(container("web.old-1", "running"), "/Id", json!("1".repeat(64)));
        let seen = Seen { containers: vec![container("web", "running"), old], ..Seen::default() };
        for instance in of(&seen, AppUid::from_bits(1)) {
            assert!(instance.is_ready);
            for name in [&instance.name, &instance.id] {
                assert_eq!(named(&seen, name).map(Container::name), Some(instance.name.as_str()));
            }
        }
        assert_eq!(named(&seen, &"nosuch".parse().unwrap()), None);
    }
}
