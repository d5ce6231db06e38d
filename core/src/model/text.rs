//! Text from outside, made safe to show.

use sha2::{Digest, Sha256};

use crate::token::{SigningKey, Token};

/// Returns the SHA-256 of texts together. Each one's length goes before it, so that no two lists of texts read the same.
pub fn hash_of<'a>(texts: impl IntoIterator<Item = &'a str>) -> [u8; 32] {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update(u64::try_from(text.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(text);
    }
    hash.finalize().into()
}

/// Cuts a text to so many characters, and marks that it goes on.
pub(crate) fn cut(text: &mut String, most: usize) {
    if let Some((end, _)) = text.char_indices().nth(most) {
        text.truncate(end);
        text.push('…');
    }
}

/// Returns bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the number of values in a JSON text, in one pass and without memory, so that a text of a stranger can be refused
/// before it is read: a value in memory takes many times its two or three bytes. An empty list or object counts as two; of
/// a text that is no JSON, at least the values before its first fault are counted.
pub fn json_values(text: &[u8]) -> usize {
    let mut values = 1;
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            // The first value within it, and each further one.
            b'[' | b'{' | b',' => values += 1,
            b'"' => {
                while let Some(byte) = bytes.next() {
                    match byte {
                        b'"' => break,
                        b'\\' => drop(bytes.next()),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    values
}

/// Implements a type's serialized form as a text that is parsed again.
#[doc(hidden)]
#[macro_export]
macro_rules! text_conversions {
    ($name:ident, $error:ty, $into:expr) => {
        impl TryFrom<String> for $name {
            type Error = $error;

            fn try_from(text: String) -> Result<Self, $error> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> String {
                let into: fn($name) -> String = $into;
                into(value)
            }
        }
    };
}

/// Declares a text that was checked by a function from `&str` to `Result<String, Error>`.
#[doc(hidden)]
#[macro_export]
macro_rules! checked_text {
    ($(#[$doc:meta])* $name:ident, $error:ty, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The value's text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = $error;

            fn from_str(text: &str) -> Result<Self, $error> {
                let check: fn(&str) -> Result<String, $error> = $check;
                check(text).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        $crate::text_conversions!($name, $error, |value| value.0);
    };
}

/// Declares a positive number that ascends. Its `FromStr` names it by this word.
macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident, $word:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(NonZeroU64);

        impl $name {
            /// The first one.
            pub const FIRST: Self = Self(NonZeroU64::MIN);

            /// Returns this number; `None` for zero.
            pub const fn new(number: u64) -> Option<Self> {
                match NonZeroU64::new(number) {
                    Some(number) => Some(Self(number)),
                    None => None,
                }
            }

            /// The number.
            pub const fn get(self) -> u64 {
                self.0.get()
            }

            /// Returns the following one.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }

            /// Returns the one that follows the newest, or the first if there is none.
            pub fn following(last: Option<Self>) -> Self {
                last.map_or(Self::FIRST, Self::next)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidName;

            fn from_str(text: &str) -> Result<Self, InvalidName> {
                let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
                let number = digits.then(|| text.parse().ok()).flatten();
                number
                    .and_then(Self::new)
                    .ok_or_else(|| InvalidName::new($word, text, "must be a positive whole number"))
            }
        }
    };
}

/// Declares a random id of 128 bits, written as 32 hexadecimal digits.
macro_rules! random_id {
    ($(#[$doc:meta])* $name:ident, $word:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(pub u128);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", self.0)
            }
        }

        impl FromStr for $name {
            type Err = InvalidName;

            fn from_str(text: &str) -> Result<Self, InvalidName> {
                let digits = (1..=32).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
                let bits = digits.then(|| u128::from_str_radix(text, 16).ok()).flatten();
                bits.map(Self).ok_or_else(|| InvalidName::new($word, text, "must be 32 hexadecimal digits"))
            }
        }

        $crate::text_conversions!($name, InvalidName, |id| id.to_string());
    };
}

/// Implements the words that people read for the variants of an enum.
#[doc(hidden)]
#[macro_export]
macro_rules! words {
    ($name:ident: $($variant:ident = $word:literal,)*) => {
        impl $name {
            /// The word that people read.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

/// Lets other crates change the fields of a struct that grows, which they cannot write out.
#[doc(hidden)]
#[macro_export]
macro_rules! with_fields {
    ($($name:ident),*) => {
        $(impl $name {
            /// Returns the value with its fields changed.
            #[must_use]
            pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
                change(&mut self);
                self
            }
        })*
    };
}

pub use {checked_text, text_conversions, with_fields, words};
#[doc(hidden)]
pub(crate) use {numbered, random_id};

/// Returns the text with its control characters escaped, as a terminal or a log may show it.
pub fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() || is_direction_override(character) {
            shown.extend(character.escape_unicode());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Returns the escaped text between quotation marks, without tokens, cut after 200 characters.
pub fn quoted(text: &str) -> String {
    let text = without_tokens(text);
    let mut cut: String = text.chars().take(200).collect();
    if cut.len() < text.len() {
        cut.push('…');
    }
    format!("\"{}\"", escaped(&cut))
}

/// Returns the text with each token left out, so that a token in a wrong field does not get into a log.
pub fn without_tokens(text: &str) -> String {
    let text = without_keys(text);
    let mut rest = text.as_str();
    let mut shown = String::with_capacity(text.len());
    while let Some(start) = rest.find(Token::PREFIX) {
        let (before, candidate) = rest.split_at(start);
        shown.push_str(before);
        shown.push_str(Token::PREFIX);
        let hidden = token_length(candidate);
        if hidden > 0 {
            shown.push('…');
        }
        rest = &candidate[hidden.max(Token::PREFIX.len())..];
    }
    shown.push_str(rest);
    shown
}

/// Returns the text with each signing key, or most of one, left out.
fn without_keys(text: &str) -> String {
    let mut pieces = text.split(SigningKey::PREFIX);
    let mut shown = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let digits = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
        let length = piece.bytes().take_while(|byte| digits(byte)).count();
        let hidden = if length > SigningKey::DIGITS / 2 { length } else { 0 };
        shown.push_str(SigningKey::PREFIX);
        shown.push_str(if hidden > 0 { "…" } else { "" });
        shown.push_str(&piece[hidden..]);
    }
    shown
}

/// Returns the length of the token, or most of one, at the beginning of a text. An error keeps only the beginning of a
/// rejected text, and so may have cut a token's end off.
fn token_length(candidate: &str) -> usize {
    match candidate.get(..Token::LENGTH) {
        Some(whole) if whole.parse::<Token>().is_ok() => Token::LENGTH,
        Some(_) => 0,
        None => {
            let told = candidate.len() > Token::LENGTH / 2;
            let random = candidate.bytes().skip(Token::PREFIX.len()).all(|byte| byte.is_ascii_alphanumeric());
            if told && random { candidate.len() } else { 0 }
        }
    }
}

/// Returns whether a character makes a terminal show the following text in another order than it is written.
fn is_direction_override(character: char) -> bool {
    matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_values_are_counted_outside_of_strings() {
        for (text, values) in [
            ("7", 1),
            (r#""a""#, 1),
            ("[7]", 2),
            ("[1, 2, 3]", 4),
            (r#"{"a": 1, "b": [true, null]}"#, 5),
            ("[]", 2),
            ("[[[[", 5),
            (r#"{"a":1,"a":1,"a":1"#, 4),
            (r#"["[{,", "\",[", "\\", ","]"#, 5),
            (r#"["[[[["#, 2),
            (r#"["\"#, 2),
            ("", 1),
        ] {
            assert_eq!(json_values(text.as_bytes()), values, "{text}");
        }
    }

    #[test]
    fn a_signing_key_in_a_wrong_place_is_not_repeated() {
        let token = Token::from_random(&[7; Token::RANDOM_BYTES]).unwrap();
        let key = token.signing_key().expose();
        assert_eq!(quoted(&format!("a:{} {}!", *key, token.expose())), "\"a:whsec_… rh_…!\"");
        assert_eq!(quoted(&format!("{0}{0}", *key)), "\"whsec_…whsec_…\"");
        assert_eq!(quoted(&key[..40]), "\"whsec_…\"", "a key that was cut off");
        assert_eq!(quoted("whsec_ whsec_main ä"), "\"whsec_ whsec_main ä\"");
    }

    #[test]
    fn a_token_in_a_wrong_place_is_not_repeated() {
        let token = Token::from_random(&[7; Token::RANDOM_BYTES]).unwrap();
        let given = format!("a:{} rh_ä {0}{0}", token.expose());
        assert_eq!(quoted(&given), "\"a:rh_… rh_ä rh_…rh_…\"");
        let other = "rh_0123456789012345678901234567890123456";
        assert_eq!(quoted(other), format!("\"{other}\""), "a wrong checksum is no token");
        assert_eq!(quoted("rh_"), "\"rh_\"");
        for kept in [20, 34, 38] {
            assert_eq!(quoted(&format!("a:{}", &token.expose()[..kept])), "\"a:rh_…\"", "a token that was cut off");
        }
        assert_eq!(quoted("rh_main"), "\"rh_main\"", "too short to tell anybody a token");
        // Cutting comes after: no part of a token is left over at the end.
        assert_eq!(quoted(&format!("{}{}", "x".repeat(180), token.expose())), format!("\"{}rh_…\"", "x".repeat(180)));
    }
}
