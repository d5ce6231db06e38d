//! Query strings: every parameter is known, given once, and readable, or the call is refused.

use std::str::FromStr;

use percent_encoding::percent_decode_str;
use rollhook_api::Kind;

use crate::failure::Failure;

/// The parameters of a call.
#[derive(Debug)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads a query string that may have these parameters.
    ///
    /// # Errors
    /// 400 where it has another, or one twice.
    pub(crate) fn parse(text: Option<&str>, known: &[&str]) -> Result<Self, Failure> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for pair in text.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let unreadable = || malformed("The query cannot be read.".to_owned());
            let (name, value) = (decoded(name).ok_or_else(unreadable)?, decoded(value).ok_or_else(unreadable)?);
            if !known.contains(&name.as_str()) {
                return Err(malformed(format!("The query takes: {}.", known.join(", "))));
            }
            if pairs.iter().any(|(earlier, _)| *earlier == name) {
                return Err(malformed(format!("The query has {name} twice.")));
            }
            pairs.push((name, value));
        }
        Ok(Self(pairs))
    }

    /// A parameter's value, where it is given.
    ///
    /// # Errors
    /// 400 where it cannot be read.
    pub(crate) fn get<T: FromStr>(&self, name: &str) -> Result<Option<T>, Failure> {
        let Some((_, value)) = self.0.iter().find(|(given, _)| given == name) else { return Ok(None) };
        value.parse().map(Some).map_err(|_| malformed(format!("The query's {name} cannot be read.")))
    }

    /// The parameter `limit`: from 1 to `most`.
    ///
    /// # Errors
    /// 400 where it is none.
    pub(crate) fn limit(&self, default: usize, most: usize) -> Result<usize, Failure> {
        match self.get("limit")?.unwrap_or(default) {
            limit if (1..=most).contains(&limit) => Ok(limit),
            _ => Err(malformed(format!("The query's limit must be from 1 to {most}."))),
        }
    }
}

fn malformed(detail: String) -> Failure {
    Failure::new(Kind::Malformed, detail)
}

/// Returns the text that was encoded for a query (`application/x-www-form-urlencoded`), or `None` if it is not UTF-8.
fn decoded(text: &str) -> Option<String> {
    let bytes: Vec<u8> = percent_decode_str(&text.replace('+', " ")).collect();
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_known_single_and_readable() {
        let query = Query::parse(Some("limit=3&after=shop-test%2Fapi"), &["limit", "after"]).unwrap();
        assert_eq!(query.limit(20, 100).unwrap(), 3);
        assert_eq!(query.get::<String>("after").unwrap().as_deref(), Some("shop-test/api"));
        assert_eq!(Query::parse(None, &[]).unwrap().limit(20, 100).unwrap(), 20);
        for text in ["x=1", "limit=1&limit=1", "limit=%ff", "%6x=1", "li+mit=1"] {
            assert_eq!(Query::parse(Some(text), &["limit"]).unwrap_err().kind(), Kind::Malformed, "{text}");
        }
        for text in ["limit=0", "limit=101", "limit=", "limit", "limit=-1", "limit=x", "limit=%zz", "limit=%"] {
            assert!(Query::parse(Some(text), &["limit"]).unwrap().limit(20, 100).is_err(), "{text}");
        }
    }
}
