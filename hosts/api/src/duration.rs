//! Durations as text: `10s`, `10m`, `500ms`, `2h`. One whole number and one unit.

use std::time::Duration;

/// The longest duration that is accepted: a week.
pub const MAX: Duration = Duration::from_secs(7 * 24 * 3600);

const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];

/// The rule for the text of a duration.
pub const RULE: &str = "must be a whole number and a unit, such as 500ms, 10s, 10m or 2h, at most 168h";

/// Returns the shortest text of a duration; fractions of a millisecond are dropped.
pub fn format(duration: Duration) -> String {
    let millis = duration.as_millis();
    if millis == 0 {
        return "0s".to_owned();
    }
    let fits = |(_, length): &&(&str, u64)| millis.is_multiple_of(u128::from(*length));
    let (unit, length) = UNITS.iter().rev().find(fits).copied().unwrap_or(UNITS[0]);
    format!("{}{unit}", millis / u128::from(length))
}

/// Returns the duration of a text, or `None` if the text breaks [`RULE`].
pub fn parse(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, length) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let millis = number.parse::<u64>().ok()?.checked_mul(*length)?;
    Some(Duration::from_millis(millis)).filter(|duration| *duration <= MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formatting_and_parsing_round_trip() {
        for (text, millis) in [
            ("0s", 0),
            ("1ms", 1),
            ("1500ms", 1500),
            ("10s", 10_000),
            ("90s", 90_000),
            ("10m", 600_000),
            ("2h", 7_200_000),
        ] {
            assert_eq!(parse(text), Some(Duration::from_millis(millis)), "{text}");
            assert_eq!(format(Duration::from_millis(millis)), text);
        }
        assert_eq!(parse("600s"), Some(Duration::from_secs(600)));
    }

    #[test]
    fn malformed_durations_are_refused() {
        for text in
            ["", "10", "s", "-1s", "+1s", " 1s", "1s ", "1.5s", "1m30s", "1d", "1S", "169h", "99999999999999999999s"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
