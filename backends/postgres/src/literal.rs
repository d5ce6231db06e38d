//! Values within statements, and columns within answers.
//!
//! Every statement is sent by the protocol's simple query: one message and one round trip, which leaves nothing behind
//! in the server's session, so that a pooler may give each statement to another session. Statements with parameters
//! take two trips, and a pooler may part those. So values stand in the text of the statement, all of them as JSON.

use rollhook_core::{Error, Result, app::AppUid};
use serde::Serialize;
use sqlx::{Decode, Postgres, Row, Type, postgres::PgRow};

use crate::error::SqlError;

/// Returns the value as a constant of a statement, which the statement must take as `json` or `jsonb`.
///
/// Between the two `$json$` there is no `$`: JSON has it within strings only, where it can be escaped. So nothing that
/// was given from outside ends the constant.
pub(crate) fn json<T: Serialize + ?Sized>(value: &T) -> Result<String, SqlError> {
    let text = serde_json::to_string(value).map_err(|error| sqlx::Error::Encode(Box::new(error)))?;
    Ok(format!("$json${}$json$", text.replace('$', "\\u0024")))
}

/// Returns bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Returns the bytes that PostgreSQL's `encode` made these digits of.
pub(crate) fn unhex(text: &str) -> Result<Vec<u8>> {
    let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
    let bytes = if rest.is_empty() { bytes.collect() } else { None };
    bytes.ok_or_else(|| Error::Corrupt {
        what: "the database's answer is no hexadecimal digits".to_owned(),
        cause: None,
    })
}

/// Returns a column of an answer.
pub(crate) fn column<'row, T: Decode<'row, Postgres> + Type<Postgres>>(
    row: &'row PgRow,
    column: usize,
) -> Result<T, SqlError> {
    row.try_get(column).map_err(SqlError::from)
}

/// Parses an app's uid as PostgreSQL writes it.
pub(crate) fn uid(text: &str) -> Result<AppUid> {
    text.replace('-', "").parse().map_err(|error| Error::corrupt("a stored uid cannot be read", error))
}

#[cfg(test)]
mod tests {
    use super::{hex, json, uid, unhex};

    #[test]
    fn constant_ends_only_at_its_end() {
        for text in ["$json$; DROP TABLE x; --", "$", "\\$", "'", "\\", "$$", "\u{0}$json", "ü$json$"] {
            let constant = json(&text).unwrap();
            let inner = constant.strip_prefix("$json$").and_then(|rest| rest.strip_suffix("$json$")).unwrap();
            assert!(!inner.contains('$') && !inner.contains('\u{0}'), "{constant}");
            assert_eq!(serde_json::from_str::<String>(inner).unwrap(), text, "it means what was given");
        }
    }

    #[test]
    fn hexadecimal_digits_are_read_back() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(unhex(&hex(&bytes)).unwrap(), bytes);
        assert_eq!(hex(&[0, 0xaf]), "00af");
        assert!(unhex("0").is_err() && unhex("0g").is_err());
    }

    #[test]
    fn uid_is_read_as_postgresql_writes_it() {
        assert_eq!(uid("00000000-0000-0000-0000-0000000000ff").unwrap().as_bits(), 255);
        assert!(uid("ff").is_err());
    }
}
