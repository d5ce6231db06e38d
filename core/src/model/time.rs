//! Points in time, always passed as arguments.

use std::{
    str::FromStr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

/// Milliseconds since the Unix epoch, read from a store's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Returns the point `millis` milliseconds after the Unix epoch.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// Returns this point moved into the future; saturates.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }

    /// Returns this point moved into the past; saturates.
    #[must_use]
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }

    /// Returns this point after its clock was set from `was` to `is`: as far from `is` as it was from `was`.
    #[must_use]
    pub fn reset(self, was: Self, is: Self) -> Self {
        Self(self.0.saturating_add(is.0.saturating_sub(was.0)))
    }

    /// Returns the time since `earlier`; zero if it lies in the future.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// The error of a text that is not a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be a time as RFC 3339 writes it, such as 2026-01-02T03:04:05+01:00")]
pub struct InvalidTime;

impl FromStr for Timestamp {
    type Err = InvalidTime;

    /// Reads a time as RFC 3339 writes it, to the millisecond, in any offset from UTC.
    fn from_str(text: &str) -> Result<Self, InvalidTime> {
        read_time(text).ok_or(InvalidTime)
    }
}

fn read_time(text: &str) -> Option<Timestamp> {
    const FORM: &[u8] = b"0000-00-00T00:00:00";
    let (fixed, rest) = text.split_at_checked(FORM.len())?;
    let fits = |(byte, form): (u8, &u8)| {
        if *form == b'0' { byte.is_ascii_digit() } else { byte.eq_ignore_ascii_case(form) }
    };
    if !fixed.bytes().zip(FORM).all(fits) {
        return None;
    }
    let number = |from: usize, to: usize| fixed.get(from..to).and_then(|digits| digits.parse::<i64>().ok());
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    // A leap second counts as the one after it.
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    if !(1..=12).contains(&month) || !(1..=days_of(year, month)).contains(&day) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let (millis, zone) = match rest.strip_prefix('.') {
        Some(fraction) => {
            let end = fraction.bytes().position(|byte| !byte.is_ascii_digit())?;
            let (digits, zone) = fraction.split_at_checked(end)?;
            let digits: String = digits.chars().chain("000".chars()).take(3).collect();
            if end == 0 {
                return None;
            }
            (digits.parse::<i64>().ok()?, zone)
        }
        None => (0, rest),
    };
    let seconds = ((days_to(year, month, day) * 24 + hour) * 60 + minute - offset(zone)?) * 60 + second;
    Some(Timestamp(seconds * 1_000 + millis))
}

/// Returns the minutes by which a zone such as `+01:00` is ahead of UTC.
fn offset(zone: &str) -> Option<i64> {
    if zone.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let (sign, time) = zone.split_at_checked(1)?;
    let (hours, minutes) = time.split_once(':')?;
    let number = |digits: &str| {
        let is_number = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| digits.parse::<i64>().ok()).flatten()
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    let ahead = (hours <= 23 && minutes <= 59).then_some(hours * 60 + minutes)?;
    match sign {
        "+" => Some(ahead),
        "-" => Some(-ahead),
        _ => None,
    }
}

const fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_of(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Returns the days from the Unix epoch to a date of the Gregorian calendar.
fn days_to(year: i64, month: i64, day: i64) -> i64 {
    let before = year - 1;
    let leap_days = before / 4 - before / 100 + before / 400;
    let in_year: i64 = (1..month).map(|month| days_of(year, month)).sum();
    // 719,162 days lie between the first day of the year 1 and the epoch.
    before * 365 + leap_days + in_year + day - 1 - 719_162
}

impl From<SystemTime> for Timestamp {
    /// A time before the Unix epoch becomes the epoch.
    fn from(time: SystemTime) -> Self {
        Self::default().after(time.duration_since(UNIX_EPOCH).unwrap_or_default())
    }
}

/// Durations that may be absent, stored as whole milliseconds.
pub(crate) mod maybe_millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(value: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => super::millis::serialize(value, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_millis))
    }
}

/// Durations stored as whole milliseconds.
pub(crate) mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        u64::try_from(value.as_millis()).unwrap_or(u64::MAX).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_read_in_any_offset() {
        for (text, millis) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2026-01-02T03:04:05Z", 1_767_323_045_000),
            ("2026-01-02t03:04:05.678z", 1_767_323_045_678),
            ("2026-01-02T04:04:05+01:00", 1_767_323_045_000),
            ("2026-01-01T21:34:05.6-05:30", 1_767_323_045_600),
            ("2024-02-29T12:00:00.1234567Z", 1_709_208_000_123),
            ("2000-02-29T00:00:00Z", 951_782_400_000),
            ("1969-12-31T23:59:59Z", -1_000),
            ("2016-12-31T23:59:60Z", 1_483_228_800_000),
            ("0001-01-01T00:00:00Z", -62_135_596_800_000),
            ("9999-12-31T23:59:59Z", 253_402_300_799_000),
        ] {
            assert_eq!(text.parse(), Ok(Timestamp(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "2026-01-02",
            "2026-01-02T03:04:05",
            "2026-01-02 03:04:05Z",
            "2026-13-02T03:04:05Z",
            "2026-00-02T03:04:05Z",
            "2026-02-29T03:04:05Z",
            "1900-02-29T03:04:05Z",
            "2026-01-02T24:04:05Z",
            "2026-01-02T03:60:05Z",
            "2026-01-02T03:04:61Z",
            "2026-01-02T03:04:05.Z",
            "2026-01-02T03:04:05.1",
            "2026-01-02T03:04:05+1:00",
            "2026-01-02T03:04:05+01:60",
            "2026-01-02T03:04:05+0100",
            "2026-01-02T03:04:05ZZ",
            "+026-01-02T03:04:05Z",
            "2026-01-02T03:04:0\u{661}Z",
            "1767323045",
        ] {
            assert_eq!(text.parse::<Timestamp>(), Err(InvalidTime), "{text}");
        }
    }
}
