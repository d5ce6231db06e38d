//! Points in time as RFC 3339 text in UTC, with milliseconds: `2026-01-02T03:04:05.678Z`.

use rollhook_core::time::Timestamp;
use serde::{Deserialize, Deserializer, Serializer};

/// Returns the time as text.
pub fn format(time: Timestamp) -> String {
    match jiff::Timestamp::from_millisecond(time.as_millis()) {
        Ok(time) => format!("{time:.3}"),
        // Only a store that was edited by hand holds a time out of this range.
        Err(_) if time.as_millis() < 0 => format!("{:.3}", jiff::Timestamp::MIN),
        Err(_) => format!("{:.3}", jiff::Timestamp::MAX),
    }
}

/// Returns the time of a text, or `None` if the text is not RFC 3339 in UTC.
pub fn parse(text: &str) -> Option<Timestamp> {
    let utc = text.ends_with('Z') && text.as_bytes().get(10) == Some(&b'T');
    let time: jiff::Timestamp = utc.then(|| text.parse().ok()).flatten()?;
    Some(Timestamp::from_millis(time.as_millisecond()))
}

/// Returns the day of a time in UTC, such as `2026-01-02`.
pub fn day(time: Timestamp) -> String {
    let text = format(time);
    text.split_once('T').map_or(text.clone(), |(day, _)| day.to_owned())
}

/// Returns how long ago a time was, such as "2 min ago"; a time in the future is "just now".
pub fn ago(time: Timestamp, now: Timestamp) -> String {
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
pub fn absolute(time: Timestamp) -> String {
    let text = format(time);
    match text.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => text,
    }
}

pub(crate) fn serialize<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format(*time))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse(&text).ok_or_else(|| serde::de::Error::custom("not a time such as 2026-01-02T03:04:05.678Z"))
}

/// The same for a time that may be absent.
pub(crate) mod maybe {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(time: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => super::serialize(time, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        let time = |text: String| parse(&text).ok_or_else(|| serde::de::Error::custom("not a time"));
        text.map(time).transpose()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn formatting_and_parsing_round_trip() {
        let time = Timestamp::from_millis(1_767_323_045_678);
        assert_eq!(format(time), "2026-01-02T03:04:05.678Z");
        assert_eq!(parse("2026-01-02T03:04:05.678Z"), Some(time));
        assert_eq!(format(Timestamp::default()), "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn other_spellings_are_refused() {
        for text in
            ["", "2026-01-02", "2026-01-02T03:04:05", "2026-01-02 03:04:05Z", "2026-01-02T03:04:05+01:00", "soonZ"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }

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
