//! Statuses of HTTP that an answer may have.

use std::fmt;

/// Ranges of statuses, such as `200` and `200-299,404`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Statuses(Vec<(u16, u16)>);

/// The most ranges.
const RANGES_MAX: usize = 20;

impl Statuses {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let parse = |text: &str| text.trim().parse::<u16>().ok().filter(|status| (200..=599).contains(status));
        let range = |part: &str| match part.split_once('-') {
            Some((first, last)) => Some((parse(first)?, parse(last)?)).filter(|(first, last)| first <= last),
            None => parse(part).map(|status| (status, status)),
        };
        let ranges: Option<Vec<_>> = text.split(',').map(range).collect();
        let ranges = ranges.filter(|ranges| ranges.len() <= RANGES_MAX);
        ranges.map(Self).ok_or_else(|| {
            format!("status must be at most {RANGES_MAX} statuses from 200 to 599 or ranges of them, such as 200 or 200-299,404.")
        })
    }

    pub(crate) fn contain(&self, status: u16) -> bool {
        self.0.iter().any(|(first, last)| (*first..=*last).contains(&status))
    }
}

impl fmt::Display for Statuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (first, last)) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            if first == last { write!(f, "{first}") } else { write!(f, "{first}-{last}") }?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_lists_of_ranges() {
        let statuses = Statuses::parse("200-299, 404").unwrap();
        assert_eq!(statuses.to_string(), "200-299,404");
        for (status, is_one) in [(200, true), (299, true), (300, false), (404, true), (405, false)] {
            assert_eq!(statuses.contain(status), is_one, "{status}");
        }
        for text in ["", "ok", "99", "600", "299-200", "200-", "2xx", "200;201", "-1", &["200"; 21].join(",")] {
            assert!(Statuses::parse(text).is_err(), "{text}");
        }
    }
}
