//! The past lives of a container. The engine keeps the end of the last one, and forgets its start with the next.

use std::time::Duration;

use jiff::Timestamp;
use rollhook_core::ports::PastLives;

use super::container::{Container, Process};

/// The lives that have ended; `None` before the first end.
pub(crate) fn past(container: &Container, now: Timestamp) -> Option<PastLives> {
    let has_ended = matches!(container.process(), Process::Restarting | Process::Ended);
    // A container that ended with the engine, and runs again, has not been restarted: its end was none of its own. One that
    // is about to be started again is counted by the engine already.
    let count = container.restarts().saturating_add(u32::from(container.process() == Process::Ended));
    let end = container.ended_at().filter(|_| count > 0)?;
    let all = span(container.made_at()?, end);
    let started = container.started_at().parse().ok().filter(|_| has_ended);
    Some(PastLives {
        instance: container.id().to_owned(),
        count,
        last: started.map_or(all, |start| span(start, end)),
        all,
        ended_ago: span(end, now),
    })
}

/// The time between two, or none if the second is the earlier one.
pub(crate) fn span(from: Timestamp, to: Timestamp) -> Duration {
    to.duration_since(from).try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rules::samples::{container, with};

    #[test]
    fn lives_lie_between_the_making_and_the_last_end() {
        let now = "2026-01-01T00:02:00Z".parse().unwrap();
        let of = |status: &str, restarts: u32| {
            let container = with(container("web", status), "/RestartCount", json!(restarts));
            let container = with(container, "/State/StartedAt", json!("2026-01-01T00:00:30.5Z"));
            past(&with(container, "/State/FinishedAt", json!("2026-01-01T00:00:40Z")), now)
                .map(|lives| (lives.count, lives.last.as_millis(), lives.all.as_secs(), lives.ended_ago.as_secs()))
        };
        assert_eq!(of("running", 2), Some((2, 40_000, 40, 80)), "the start of the last one is forgotten");
        assert_eq!(of("restarting", 2), Some((2, 9_500, 40, 80)));
        assert_eq!(of("exited", 0), Some((1, 9_500, 40, 80)));
        assert_eq!(of("running", 0), None, "the engine was started again");
    }

    #[test]
    fn container_that_never_ended_has_no_past_life() {
        let never = with(container("web", "running"), "/State/FinishedAt", json!("0001-01-01T00:00:00Z"));
        assert_eq!(past(&with(never, "/RestartCount", json!(1)), Timestamp::UNIX_EPOCH), None);
    }
}
