//! Values within statements.
//!
//! Every statement is sent by the protocol's simple query: one message and one round trip, which leaves nothing behind in
//! the server's session, so that a pooler may give each statement to another session. Statements with parameters take two
//! trips, and a pooler may part those. So values stand in the text of the statement, all of them as JSON.

use serde::Serialize;

/// The value as a constant of a statement, which the statement must take as `json` or `jsonb`.
///
/// Between the two `$json$` there is no `$`: JSON has it within strings only, where it can be escaped. So nothing that was
/// given from outside ends the constant.
pub(crate) fn json<T: Serialize + ?Sized>(value: &T) -> sqlx::Result<String> {
    let text = serde_json::to_string(value).map_err(|error| sqlx::Error::Encode(Box::new(error)))?;
    Ok(format!("$json${}$json$", text.replace('$', "\\u0024")))
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// What [`hex`], or PostgreSQL's `encode`, made of bytes; none where it did not.
pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
    if rest.is_empty() { bytes.collect() } else { None }
}

#[cfg(test)]
mod tests {
    use super::{hex, json, unhex};

    #[test]
    fn nothing_ends_a_constant_but_its_end() {
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
        assert_eq!((unhex("0"), unhex("0g")), (None, None));
    }
}
