//! The time for which a server asks to be left alone.

use std::time::Duration;

use http::{
    HeaderMap,
    header::{DATE, RETRY_AFTER},
};
use jiff::fmt::rfc2822;

/// Returns the time in the header `Retry-After`: seconds, or the time until a date by the clock of the answer itself.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name)?.to_str().ok().map(str::trim);
    let retry = text(RETRY_AFTER)?;
    if let Ok(seconds) = retry.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let second = |text: &str| rfc2822::parse(text).ok().map(|time| time.timestamp().as_second());
    let wait = second(retry)?.saturating_sub(second(text(DATE)?)?);
    Some(Duration::from_secs(u64::try_from(wait).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_in_seconds_or_until_a_date() {
        let asked = |retry: &str, date: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, retry.parse().unwrap());
            headers.extend(date.map(|date| (DATE, date.parse().unwrap())));
            retry_after(&headers)
        };
        let date = Some("Fri, 02 Jan 2026 03:04:05 GMT");
        assert_eq!(asked(" 7 ", None), Some(Duration::from_secs(7)));
        assert_eq!(asked("Fri, 02 Jan 2026 03:05:05 GMT", date), Some(Duration::from_secs(60)));
        assert_eq!(asked("Fri, 02 Jan 2026 03:04:04 GMT", date), Some(Duration::ZERO));
        for (retry, date) in [("soon", date), ("-1", date), ("Fri, 02 Jan 2026 03:05:05 GMT", None)] {
            assert_eq!(asked(retry, date), None, "{retry}");
        }
    }
}
