//! Query strings. A call with an unknown, repeated or malformed parameter is refused.

use std::any::TypeId;

use rollhook_api::Kind;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::{body::member, error_reply::ErrorReply};

/// Reads a query string.
///
/// # Errors
/// 400 if it has another parameter than the type, has one twice, or one that cannot be read.
pub(crate) fn read<T: DeserializeOwned + 'static>(text: Option<&str>) -> Result<T, ErrorReply> {
    let mut pairs = Map::new();
    for (name, value) in form_urlencoded::parse(text.unwrap_or_default().as_bytes()) {
        if pairs.insert(name.to_string(), value.into_owned().into()).is_some() {
            return Err(malformed(format!("The query has {} twice.", member(&name))));
        }
    }
    let query = match is_nothing::<T>() {
        true if pairs.is_empty() => Value::Null,
        true => return Err(malformed("This call takes no query.".to_owned())),
        false => pairs.into(),
    };
    serde_path_to_error::deserialize(query).map_err(|error| {
        let (name, why) = (member(&error.path().to_string()), error.inner().to_string());
        if name == "." && why.starts_with("missing field ") {
            return malformed(format!("The query: {why}."));
        }
        malformed(match why.split_once(", expected ") {
            Some((_, known)) if why.starts_with("unknown field ") => format!("The query takes {known}."),
            Some(_) | None => format!("The query's {name} {why}."),
        })
    })
}

/// Returns whether an operation of this input is sent nothing.
pub(crate) fn is_nothing<T: 'static>() -> bool {
    TypeId::of::<T>() == TypeId::of::<()>()
}

fn malformed(detail: String) -> ErrorReply {
    ErrorReply::new(Kind::Malformed, detail)
}

#[cfg(test)]
mod tests {
    use rollhook_api::operations::{AppsQuery, DeploysQuery, LogQuery};

    use super::*;

    #[test]
    fn parameters_are_known_single_and_readable() {
        let query: AppsQuery = read(Some("limit=3&after=shop-test%2Fapi")).unwrap();
        assert_eq!(query.limit.map(rollhook_api::query::PageSize::get), Some(3));
        assert_eq!(query.after.map(|after| after.to_string()).as_deref(), Some("shop-test/api"));
        assert!(read::<AppsQuery>(None).unwrap().limit.is_none());
        read::<()>(None).unwrap();
        assert!(read::<()>(Some("x=1")).is_err());
        for text in ["x=1", "limit=1&limit=1", "%6x=1", "li+mit=1", "%ff=1"] {
            assert!(read::<DeploysQuery>(Some(text)).is_err(), "{text}");
        }
        for text in
            ["limit=0", "limit=201", "limit=", "limit", "limit=-1", "limit=x", "limit=%zz", "limit=%", "limit=%ff"]
        {
            assert!(read::<DeploysQuery>(Some(text)).is_err(), "{text}");
        }
        let refused = |text: &str| format!("{:?}", read::<DeploysQuery>(Some(text)).unwrap_err());
        assert!(refused("limit=0").contains("The query's limit must be from 1 to 200."), "{}", refused("limit=0"));
        assert!(refused("before=x").contains("The query's before cannot be read."));
        assert!(refused("x=1").contains("The query takes `limit` or `before`."));
        let refused = format!("{:?}", read::<LogQuery>(Some("step=deploy")).unwrap_err());
        assert!(refused.contains("The query's step must be build or release."), "{refused}");
    }
}
