//! The answers of a provider of sign-ins, which are refused before they are read if they have very many values: in memory each
//! takes many times its bytes.

use base64::{
    Engine as _, alphabet,
    engine::{GeneralPurpose, general_purpose::NO_PAD},
};
use rollhook_https::{FetchError, check_values};
use serde::Deserialize;

/// The encoding of tokens, as leniently as they are read.
const ENCODING: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));

/// The token in the answer of a token endpoint.
#[derive(Deserialize)]
struct Tokens {
    id_token: String,
}

/// Refuses an answer of very many values, in itself or in the header or the claims of its token: that of a token endpoint,
/// or all of it where the provider signs what it says of people.
pub(crate) fn check(url: &str, body: &[u8]) -> Result<(), FetchError> {
    check_values(url, body)?;
    let token =
        serde_json::from_slice(body).map_or_else(|_| body.to_vec(), |Tokens { id_token }| id_token.into_bytes());
    for part in token.split(|byte| *byte == b'.').take(2) {
        // A part that cannot be decoded is read by nothing.
        if let Ok(json) = ENCODING.decode(part) {
            check_values(url, &json)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(values: usize) -> String {
        format!(r#"{{"groups":[0{}]}}"#, ",0".repeat(values))
    }

    #[test]
    fn answer_of_very_many_values_is_refused_and_one_with_a_token_of_as_many() {
        let is_read = |body: &str| check("https://login.example/token", body.as_bytes()).is_ok();
        let token =
            |header: &str, claims: &str| format!("{}.{}.c2ln", ENCODING.encode(header), ENCODING.encode(claims));
        for (values, expected) in [(1_000, true), (5_000, false)] {
            let (many, few) = (object(values), object(1));
            assert_eq!(is_read(&many), expected, "{values}");
            for token in [token(&few, &many), token(&many, &few)] {
                assert_eq!(is_read(&token), expected, "{values} in a signed answer");
                let answer = format!(r#"{{"access_token":"a","id_token":"{token}"}}"#);
                assert_eq!(is_read(&answer), expected, "{values} in an id_token");
            }
        }
        assert!(is_read("<html>502</html>") && is_read("") && is_read(r#"{"id_token": 7}"#));
    }
}
