//! A field that must be a text, or a number: a value of another type is passed over, and never built in memory.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};

/// The value of a field that must be a text.
#[derive(Debug, Default, PartialEq, Eq)]
pub enum PostedText {
    /// The field is missing, or `null`.
    #[default]
    Absent,
    /// The text.
    Text(String),
    /// A value of another type.
    Other,
}

/// A field has a value of another type than text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotText;

impl PostedText {
    /// Returns the text; `None` if there is none.
    ///
    /// # Errors
    /// [`NotText`] for a value of another type.
    pub fn text(self) -> Result<Option<String>, NotText> {
        match self {
            Self::Absent => Ok(None),
            Self::Text(text) => Ok(Some(text)),
            Self::Other => Err(NotText),
        }
    }
}

impl<'de> Deserialize<'de> for PostedText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue { kept: Kept::Text })
    }
}

/// The value of a field that must be a number, as its text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PostedNumber {
    /// The field is missing, or `null`.
    #[default]
    Absent,
    /// A number, or a text that may be one.
    Text(String),
    /// A value of another type.
    Other,
}

impl<'de> Deserialize<'de> for PostedNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let posted = deserializer.deserialize_any(AnyValue { kept: Kept::TextOrNumber })?;
        Ok(match posted {
            PostedText::Absent => Self::Absent,
            PostedText::Text(text) => Self::Text(text),
            PostedText::Other => Self::Other,
        })
    }
}

/// A value inside another one. It is read as strictly as one that is kept, so that a body is valid or not, whichever field
/// is looked at.
struct PassedOver;

impl<'de> Deserialize<'de> for PassedOver {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue { kept: Kept::Nothing }).map(|_| Self)
    }
}

/// Reads any value, and keeps at most its text.
struct AnyValue {
    kept: Kept,
}

/// The values of which the text is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    Nothing,
    Text,
    TextOrNumber,
}

impl AnyValue {
    fn number(self, number: impl fmt::Display) -> PostedText {
        if self.kept == Kept::TextOrNumber { PostedText::Text(number.to_string()) } else { PostedText::Other }
    }
}

impl<'de> Visitor<'de> for AnyValue {
    type Value = PostedText;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<PostedText, E> {
        Ok(PostedText::Absent)
    }

    fn visit_str<E>(self, text: &str) -> Result<PostedText, E> {
        Ok(if self.kept == Kept::Nothing { PostedText::Other } else { PostedText::Text(text.to_owned()) })
    }

    fn visit_bool<E>(self, _: bool) -> Result<PostedText, E> {
        Ok(PostedText::Other)
    }

    fn visit_i64<E>(self, number: i64) -> Result<PostedText, E> {
        Ok(self.number(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<PostedText, E> {
        Ok(self.number(number))
    }

    fn visit_f64<E>(self, number: f64) -> Result<PostedText, E> {
        // With its fraction, so that 7.0 is no whole number either.
        Ok(self.number(format_args!("{number:?}")))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<PostedText, A::Error> {
        while list.next_element::<PassedOver>()?.is_some() {}
        Ok(PostedText::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<PostedText, A::Error> {
        while object.next_entry::<PassedOver, PassedOver>()?.is_some() {}
        Ok(PostedText::Other)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn value_of_another_type_is_passed_over_and_as_valid_as_one_that_is_kept() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        for text in [
            "null",
            "\"\"",
            "\"a\\u00e4\\n\"",
            "true",
            "7",
            "-7",
            "7.5",
            "1e999",
            "[1e999]",
            "[]",
            "{}",
            "[1, [2, {\"a\": [null]}]]",
            "{\"a\": 1, \"a\": {\"b\": \"c\"}}",
            "{1: 2}",
            "[1,]",
            "[\"\\ud800\"]",
            "{\"\\ud800\": 1}",
            "[\"\u{1}\"]",
            "",
            "[",
            "nul",
            "\"a",
            "18446744073709551616",
            &nested(100),
            &nested(127),
            &nested(128),
            &nested(1_000),
        ] {
            let read = serde_json::from_str::<PostedText>(text).map_err(|error| error.to_string());
            let kept = serde_json::from_str::<Value>(text).map_err(|error| error.to_string());
            let expected = kept.map(|kept| match kept {
                Value::Null => PostedText::Absent,
                Value::String(text) => PostedText::Text(text),
                Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => PostedText::Other,
            });
            assert_eq!(read, expected, "{}", text.chars().take(80).collect::<String>());
        }
        for (text, posted) in
            [("7", "7"), ("-7", "-7"), ("7.0", "7.0"), ("\"7\"", "7"), ("9007199254740993", "9007199254740993")]
        {
            assert_eq!(serde_json::from_str::<PostedNumber>(text).unwrap(), PostedNumber::Text(posted.to_owned()));
        }
        assert_eq!(serde_json::from_str::<PostedNumber>("[7]").unwrap(), PostedNumber::Other);
        assert_eq!(serde_json::from_str::<PostedNumber>("null").unwrap(), PostedNumber::Absent);
        let invalid = b"[\"\xff\"]";
        assert!(
            serde_json::from_slice::<PostedText>(invalid).is_err() && serde_json::from_slice::<Value>(invalid).is_err()
        );
        assert_eq!(PostedText::Other.text(), Err(NotText));
        assert_eq!(PostedText::default().text(), Ok(None));
    }
}
