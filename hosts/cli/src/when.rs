//! Times as text.

use rollhook_core::time::Timestamp;

/// Returns the time by this machine's clock, which is good enough for "2 min ago".
pub(crate) fn now() -> Timestamp {
    Timestamp::from_millis(jiff::Timestamp::now().as_millisecond())
}

/// Returns how long ago a time was, such as "2 min ago"; a time in the future is "just now".
pub(crate) fn ago(time: Timestamp, now: Timestamp) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    let seconds = now.since(time).as_secs();
    let (count, unit) = match seconds {
        0..5 => return "just now".to_owned(),
        5..MINUTE => (seconds, "sec"),
        MINUTE..HOUR => (seconds / MINUTE, "min"),
        HOUR..DAY if seconds < 2 * HOUR => (1, "hour"),
        HOUR..DAY => (seconds / HOUR, "hours"),
        DAY.. if seconds < 2 * DAY => (1, "day"),
        DAY.. => (seconds / DAY, "days"),
    };
    format!("{count} {unit} ago")
}

/// Returns the time in full, to the second.
pub(crate) fn absolute(time: Timestamp) -> String {
    let text = rollhook_api::time::format(time);
    match text.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_time_is_said_in_its_greatest_unit() {
        let then = Timestamp::from_millis(1_767_323_045_678);
        for (seconds, said) in [
            (0, "just now"),
            (4, "just now"),
            (5, "5 sec ago"),
            (59, "59 sec ago"),
            (60, "1 min ago"),
            (121, "2 min ago"),
            (3599, "59 min ago"),
            (3600, "1 hour ago"),
            (7199, "1 hour ago"),
            (7200, "2 hours ago"),
            (86_399, "23 hours ago"),
            (86_400, "1 day ago"),
            (172_799, "1 day ago"),
            (3 * 86_400, "3 days ago"),
            (400 * 86_400, "400 days ago"),
        ] {
            assert_eq!(ago(then, then.after(Duration::from_secs(seconds))), said, "{seconds}");
        }
        assert_eq!(ago(then.after(Duration::from_secs(90)), then), "just now");
        assert_eq!(absolute(then), "2026-01-02T03:04:05Z");
    }
}
