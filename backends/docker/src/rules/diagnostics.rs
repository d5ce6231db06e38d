//! Failures of a container, in words.

use rollhook_core::{
    deploy::Reason,
    ports::{RolloutFailure, RolloutFailureKind},
};
use serde_json::Value;

use super::container::{Container, Process};

/// The number of lines of a log that are kept, and of characters of a line.
const LINES: usize = 50;
const LINE: usize = 500;
/// The number of outputs of a health check that are kept.
const CHECKS: usize = 3;

/// The failure of a deploy's container. `last_exit` is the exit code of its last end, if it runs again since and that is known.
pub(crate) fn failure(container: &Container, is_ready: bool, last_exit: Option<i64>) -> Option<RolloutFailure> {
    let told = |kind, reason: &str, message: String| {
        Some(RolloutFailure { kind, reason: Reason::new(reason), container: None, message })
    };
    let name = container.name();
    match container.process() {
        Process::Created => {
            let error = container.start_error()?;
            let message = format!("the container {name} cannot be started: {error}");
            told(RolloutFailureKind::Config, "container-not-started", message)
        }
        Process::Running if is_ready => None,
        Process::Running if container.health() == Some("unhealthy") => {
            let output = container.health_log().last().map(|(_, output)| output.trim()).unwrap_or_default();
            let said = if output.is_empty() { "it prints nothing" } else { output };
            let message = format!("the container {name} runs, and its health check fails: {}", cut(said));
            told(RolloutFailureKind::Unhealthy, "container-unhealthy", message)
        }
        Process::Running if container.restarts() == 0 => None,
        Process::Running | Process::Restarting | Process::Ended => {
            let reason = if container.is_out_of_memory() { "container-out-of-memory" } else { "container-exited" };
            let message = format!("the container {name} {}", ended(container, last_exit));
            told(RolloutFailureKind::Crash, reason, message)
        }
    }
}

/// How the container ended last. `last_exit` is the exit code of that end, if the container runs again since.
fn ended(container: &Container, last_exit: Option<i64>) -> String {
    // The engine forgets how the run before ended as soon as the next one begins.
    let code = if container.process() == Process::Running { last_exit } else { Some(container.exit_code()) };
    let how = match code {
        _ if container.is_out_of_memory() => "ran out of memory and was killed".to_owned(),
        None => "exited".to_owned(),
        Some(137) => "was killed (exit code 137)".to_owned(),
        Some(code) => format!("exited with code {code}"),
    };
    match container.restarts() {
        0 => how,
        1 => format!("{how}, and was restarted once"),
        restarts => format!("{how}, and was restarted {restarts} times"),
    }
}

/// The state of a container in a sentence, for the evidence.
pub(crate) fn state(container: &Container) -> String {
    let name = container.name();
    if let Some(error) = container.start_error() {
        return format!("container {name} cannot be started: {error}");
    }
    match container.process() {
        Process::Created => format!("container {name} was not started"),
        Process::Running => match container.health() {
            Some(health) => format!("container {name} runs, {health}; restarts: {}", container.restarts()),
            None => format!("container {name} runs; restarts: {}", container.restarts()),
        },
        Process::Restarting | Process::Ended => format!("container {name} {}", ended(container, None)),
    }
}

/// The state of a container in a sentence, for the evidence of a failure. Where that is an end of the container, the state is the
/// one that the failure was seen in: until the evidence is read, the container may run again, or have ended once more.
pub(crate) fn failed_state(container: &Container, failure: Option<&RolloutFailure>) -> String {
    let crash = failure.filter(|failure| failure.kind == RolloutFailureKind::Crash);
    let ended = crash.and_then(|failure| failure.message.strip_prefix("the "));
    let own = ended.filter(|ended| ended.starts_with(&format!("container {} ", container.name())));
    own.map_or_else(|| state(container), str::to_owned)
}

/// The exit code that one of the engine's events tells; `None` if it is no end of a container.
pub(crate) fn exit_of(event: &[u8]) -> Option<i64> {
    let event: Value = serde_json::from_slice(event).ok()?;
    event["Actor"]["Attributes"]["exitCode"].as_str()?.parse().ok()
}

/// The last outputs of the health check, as events.
pub(crate) fn checks(container: &Container) -> Vec<String> {
    let all: Vec<_> = container.health_log().collect();
    let last = all.iter().rev().take(CHECKS).rev();
    last.map(|(code, output)| format!("health check, exit code {code}: {}", cut(output.trim()))).collect()
}

/// The last lines of a log. Without a terminal, the engine puts eight bytes before each piece: the stream, and the
/// length.
pub(crate) fn log_lines(bytes: &[u8], has_terminal: bool) -> Vec<String> {
    let text = if has_terminal { bytes.to_vec() } else { pieces(bytes) };
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    lines.iter().skip(lines.len().saturating_sub(LINES)).map(|line| cut(line)).collect()
}

fn pieces(mut bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    while let Some((&[_, _, _, _, a, b, c, d], rest)) = bytes.split_first_chunk::<8>() {
        let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX).min(rest.len());
        let (piece, next) = rest.split_at(length);
        text.extend_from_slice(piece);
        bytes = next;
    }
    text
}

fn cut(text: &str) -> String {
    text.chars().take(LINE).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rules::samples::{container, with};

    fn told(container: &Container) -> (RolloutFailureKind, String, String) {
        let failure = failure(container, false, None).unwrap();
        (failure.kind, failure.reason.as_str().to_owned(), failure.message)
    }

    #[test]
    fn failure_says_how_the_container_ended() {
        let exited = with(container("web", "exited"), "/State/ExitCode", json!(3));
        let (kind, reason, message) = told(&exited);
        assert_eq!((kind, reason.as_str()), (RolloutFailureKind::Crash, "container-exited"));
        assert_eq!(message, "the container web exited with code 3");
        let again = with(with(container("web", "restarting"), "/State/ExitCode", json!(1)), "/RestartCount", json!(2));
        assert_eq!(told(&again).2, "the container web exited with code 1, and was restarted 2 times");
        let memory = with(exited, "/State/OOMKilled", json!(true));
        assert_eq!(told(&memory).1, "container-out-of-memory");
    }

    #[test]
    fn failure_tells_what_the_health_check_says() {
        let log = json!({"Status": "unhealthy", "Log": [{"ExitCode": 1, "Output": "no database\n"}]});
        let sick = with(container("web", "running"), "/State/Health", log);
        let (kind, reason, message) = told(&sick);
        assert_eq!((kind, reason.as_str()), (RolloutFailureKind::Unhealthy, "container-unhealthy"));
        assert!(message.ends_with("no database"), "{message}");
        assert_eq!(checks(&sick), ["health check, exit code 1: no database"]);
    }

    #[test]
    fn container_that_cannot_be_started_is_a_configuration_failure() {
        let error = json!("driver failed: Bind for 0.0.0.0:80 failed: port is already allocated");
        let (kind, _, message) = told(&with(container("web", "created"), "/State/Error", error));
        assert_eq!(kind, RolloutFailureKind::Config);
        assert!(message.contains("port is already allocated"), "{message}");
    }

    #[test]
    fn container_that_runs_again_has_recovered() {
        let restarted = with(container("web", "running"), "/RestartCount", json!(1));
        assert_eq!(failure(&restarted, true, None), None);
        assert_eq!(told(&restarted).2, "the container web exited, and was restarted once");
        let known = failure(&restarted, false, Some(3)).unwrap();
        assert_eq!(known.message, "the container web exited with code 3, and was restarted once");
        assert_eq!(failure(&container("web", "running"), false, None), None);
    }

    #[test]
    fn state_of_a_crash_is_the_end_that_failed_the_deploy() {
        let ended = with(with(container("web", "restarting"), "/State/ExitCode", json!(3)), "/RestartCount", json!(2));
        let crash = failure(&ended, false, None).unwrap();
        let later = with(container("web", "running"), "/RestartCount", json!(3));
        assert_eq!(
            failed_state(&later, Some(&crash)),
            "container web exited with code 3, and was restarted 2 times",
            "it runs again by now"
        );
        assert_eq!(failed_state(&later, None), "container web runs; restarts: 3");
        let other = RolloutFailure { message: "the container web.2-ab exited with code 4".to_owned(), ..crash };
        assert_eq!(failed_state(&later, Some(&other)), "container web runs; restarts: 3", "that is another container");
    }

    #[test]
    fn exit_is_read_of_events_that_tell_one() {
        let event = |attributes: Value| json!({ "Action": "die", "Actor": { "Attributes": attributes } }).to_string();
        assert_eq!(exit_of(event(json!({ "exitCode": "3" })).as_bytes()), Some(3));
        assert_eq!(exit_of(event(json!({})).as_bytes()), None);
        assert_eq!(exit_of(b"{"), None);
    }

    #[test]
    fn log_is_read_in_the_engines_pieces() {
        let piece = |text: &str| {
            let mut bytes = vec![1, 0, 0, 0];
            bytes.extend(u32::try_from(text.len()).unwrap().to_be_bytes());
            bytes.extend(text.as_bytes());
            bytes
        };
        let mut bytes = [piece("one\r\ntw"), piece("o\n\nthree\n")].concat();
        assert_eq!(log_lines(&bytes, false), ["one", "two", "three"]);
        bytes.truncate(12);
        assert_eq!(log_lines(&bytes, false), ["one"]);
        assert_eq!(log_lines(b"one\ntwo\n", true), ["one", "two"]);
        let long = "x".repeat(600);
        assert_eq!(log_lines(long.as_bytes(), true)[0].len(), 500);
    }
}
