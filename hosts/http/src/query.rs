//! Query strings. A call with an unknown, repeated or malformed parameter is refused.

use std::str::FromStr;

use rollhook_api::Kind;

use crate::error_reply::ErrorReply;

/// The parameters of a call.
#[derive(Debug)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads a query string with these parameters.
    ///
    /// # Errors
    /// 400 if there is another parameter, or one twice.
    pub(crate) fn parse(text: Option<&str>, known: &[&str]) -> Result<Self, ErrorReply> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for (name, value) in form_urlencoded::parse(text.unwrap_or_default().as_bytes()) {
            if !known.contains(&&*name) {
                return Err(malformed(format!("The query takes: {}.", known.join(", "))));
            }
            if pairs.iter().any(|(earlier, _)| *earlier == name) {
                return Err(malformed(format!("The query has {name} twice.")));
            }
            pairs.push((name.into_owned(), value.into_owned()));
        }
        Ok(Self(pairs))
    }

    /// Returns a parameter's value if it is given.
    ///
    /// # Errors
    /// 400 if the value is malformed.
    pub(crate) fn get<T: FromStr>(&self, name: &str) -> Result<Option<T>, ErrorReply> {
        let Some((_, value)) = self.0.iter().find(|(given, _)| given == name) else { return Ok(None) };
        value.parse().map(Some).map_err(|_| malformed(format!("The query's {name} cannot be read.")))
    }

    /// Returns the parameter `limit`, from 1 to `most`.
    ///
    /// # Errors
    /// 400 if it is out of this range.
    pub(crate) fn limit(&self, default: usize, most: usize) -> Result<usize, ErrorReply> {
        match self.get("limit")?.unwrap_or(default) {
            limit if (1..=most).contains(&limit) => Ok(limit),
            _ => Err(malformed(format!("The query's limit must be from 1 to {most}."))),
        }
    }
}

fn malformed(detail: String) -> ErrorReply {
    ErrorReply::new(Kind::Malformed, detail)
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
        for text in ["x=1", "limit=1&limit=1", "%6x=1", "li+mit=1", "%ff=1"] {
            assert_eq!(Query::parse(Some(text), &["limit"]).unwrap_err().kind(), Kind::Malformed, "{text}");
        }
        for text in
            ["limit=0", "limit=101", "limit=", "limit", "limit=-1", "limit=x", "limit=%zz", "limit=%", "limit=%ff"]
        {
            assert!(Query::parse(Some(text), &["limit"]).unwrap().limit(20, 100).is_err(), "{text}");
        }
    }
}
