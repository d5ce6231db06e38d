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
}
