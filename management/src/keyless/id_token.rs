//! The id_tokens of CI systems: signed JSON Web Tokens (RFC 7519), read but not yet believed.

use std::{fmt, str::FromStr};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Deserialize;
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use rollhook_core::{text::json_values, time::Timestamp, token::NotAToken};

/// The longest id_token, in bytes.
pub const TOKEN_MAX: usize = 12 * 1024;
/// The most JSON values of an id_token's header, and of its claims: anyone can present one, and each is kept in memory while
/// its call lasts.
pub const VALUES_MAX: usize = 300;

/// The signature algorithms that are accepted (RFC 7518, RFC 8037): those with a public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
    /// RSASSA-PKCS1-v1_5 with SHA-512.
    Rs512,
    /// RSASSA-PSS with SHA-256.
    Ps256,
    /// ECDSA with P-256 and SHA-256.
    Es256,
    /// ECDSA with P-384 and SHA-384.
    Es384,
    /// EdDSA, with Ed25519.
    EdDsa,
}

impl Algorithm {
    /// Returns the algorithm of a header's name. `none` and the algorithms with a shared secret are none of them.
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "RS256" => Self::Rs256,
            "RS512" => Self::Rs512,
            "PS256" => Self::Ps256,
            "ES256" => Self::Es256,
            "ES384" => Self::Es384,
            "EdDSA" => Self::EdDsa,
            _ => return None,
        })
    }
}

/// An id_token as a caller presented it. Nothing that it says is believed before its signature was verified.
///
/// `Debug` does not show it, nothing serializes it, and its memory is wiped when it is dropped.
#[derive(Clone)]
pub struct IdToken {
    text: Zeroizing<String>,
    /// The length of the signed part: header and claims.
    signed: usize,
    algorithm: Algorithm,
    key_id: String,
    claims: Claims,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    /// Extensions that a reader must understand (RFC 7515 section 4.1.11): none is understood here.
    crit: Option<Value>,
}

impl FromStr for IdToken {
    type Err = NotAToken;

    fn from_str(text: &str) -> Result<Self, NotAToken> {
        if text.len() > TOKEN_MAX {
            return Err(NotAToken);
        }
        let (signed, signature) = text.rsplit_once('.').ok_or(NotAToken)?;
        let (header, claims) = signed.split_once('.').ok_or(NotAToken)?;
        URL_SAFE_NO_PAD.decode(signature).ok().filter(|bytes| !bytes.is_empty()).ok_or(NotAToken)?;
        let header: Header = object(header)?;
        if header.crit.is_some() {
            return Err(NotAToken);
        }
        let claims = Claims(object(claims)?);
        Ok(Self {
            text: Zeroizing::new(text.to_owned()),
            signed: signed.len(),
            algorithm: Algorithm::of(&header.alg).ok_or(NotAToken)?,
            key_id: header.kid.ok_or(NotAToken)?,
            claims,
        })
    }
}

fn object<T: for<'de> Deserialize<'de>>(part: &str) -> Result<T, NotAToken> {
    let bytes = URL_SAFE_NO_PAD.decode(part).map_err(|_| NotAToken)?;
    if json_values(&bytes) > VALUES_MAX {
        return Err(NotAToken);
    }
    serde_json::from_slice(&bytes).map_err(|_| NotAToken)
}

impl IdToken {
    /// The text that the signature is over.
    pub fn signed(&self) -> &str {
        &self.text[..self.signed]
    }

    /// Returns the signature.
    pub fn signature(&self) -> Vec<u8> {
        URL_SAFE_NO_PAD.decode(&self.text[self.signed + 1..]).unwrap_or_default()
    }

    /// The algorithm that the signature claims to be of.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The id of the issuer's key that the signature claims to be of.
    pub fn key_id(&self) -> &str {
        &self.key_id
    }

    /// The claims.
    pub const fn claims(&self) -> &Claims {
        &self.claims
    }
}

impl fmt::Debug for IdToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IdToken(…)")
    }
}

/// The claims of an id_token.
#[derive(Clone, PartialEq, Eq)]
pub struct Claims(Map<String, Value>);

impl Claims {
    /// Returns claims of these members.
    pub const fn new(members: Map<String, Value>) -> Self {
        Self(members)
    }

    /// Returns the claims of a signed JSON Web Token of any issuer and algorithm, none of which is verified; `None` if the
    /// text is no such token.
    pub fn unverified(text: &str) -> Option<Self> {
        let (signed, signature) = text.rsplit_once('.').filter(|_| text.len() <= TOKEN_MAX)?;
        let (header, claims) = signed.split_once('.')?;
        URL_SAFE_NO_PAD.decode(signature).ok().filter(|bytes| !bytes.is_empty())?;
        object::<Map<String, Value>>(header).ok()?;
        object(claims).ok().map(Self)
    }

    /// Returns the text of a claim: of a string, a whole number, or a truth value.
    pub fn text(&self, name: &str) -> Option<String> {
        match self.0.get(name)? {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) if !number.is_f64() => Some(number.to_string()),
            Value::Bool(truth) => Some(truth.to_string()),
            Value::Number(_) | Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }

    /// Returns whether the token is for this audience (`aud`: one, or several).
    pub fn are_for(&self, audience: &str) -> bool {
        match self.0.get("aud") {
            Some(Value::String(text)) => text == audience,
            Some(Value::Array(all)) => all.iter().any(|one| one.as_str() == Some(audience)),
            _ => false,
        }
    }

    /// Returns a claim that is a time: seconds since the Unix epoch, with or without a fraction.
    pub fn time(&self, name: &str) -> Option<Timestamp> {
        let seconds = self.0.get(name)?.as_f64().filter(|seconds| (0.0..1e11).contains(seconds))?;
        #[allow(clippy::cast_possible_truncation, reason = "the range was checked")]
        Some(Timestamp::from_millis((seconds * 1000.0) as i64))
    }

    /// Returns whether the claim is there, whatever its value.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

impl fmt::Debug for Claims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn token(header: &Value, claims: &Value, signature: &str) -> Result<IdToken, NotAToken> {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        format!("{}.{}.{signature}", part(header), part(claims)).parse()
    }

    #[test]
    fn only_algorithms_with_a_public_key_are_read() {
        for alg in ["RS256", "RS512", "PS256", "ES256", "ES384", "EdDSA"] {
            assert!(token(&json!({ "alg": alg, "kid": "1" }), &json!({}), "AAAA").is_ok(), "{alg}");
        }
        for alg in ["none", "None", "NONE", "", "HS256", "HS384", "HS512", "rs256", "RS1", "ES256K", "dir"] {
            assert!(token(&json!({ "alg": alg, "kid": "1" }), &json!({}), "AAAA").is_err(), "{alg}");
        }
    }

    #[test]
    fn a_token_has_a_key_id_a_signature_and_no_extension() {
        let header = json!({ "alg": "RS256", "kid": "1" });
        let read = token(&header, &json!({ "iss": "x" }), "AAEC").unwrap();
        assert_eq!((read.key_id(), read.signature()), ("1", vec![0, 1, 2]));
        assert_eq!(read.signed().split('.').count(), 2);
        assert!(token(&header, &json!({}), "").is_err(), "unsigned");
        assert!(token(&header, &json!({}), "AA==").is_err(), "padded");
        assert!(token(&header, &json!([]), "AAAA").is_err(), "no object");
        assert!(token(&json!({ "alg": "RS256" }), &json!({}), "AAAA").is_err(), "no key id");
        assert!(token(&json!({ "alg": "RS256", "kid": "1", "crit": ["b64"] }), &json!({}), "AAAA").is_err());
        let long = "x".repeat(TOKEN_MAX);
        assert!(token(&header, &json!({ "sub": long }), "AAAA").is_err());
        for text in ["", ".", "..", "a.b", "a.b.c", "rh_x", "e30.e30.AAAA"] {
            assert!(text.parse::<IdToken>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_token_of_very_many_values_is_not_read() {
        let header = json!({ "alg": "RS256", "kid": "1" });
        // Two values beside the groups: the object and their list.
        let claims = |groups: usize| json!({ "groups": vec![1; groups] });
        assert!(token(&header, &claims(VALUES_MAX - 2), "AAAA").is_ok());
        assert!(token(&header, &claims(VALUES_MAX - 1), "AAAA").is_err());
        assert!(token(&header, &json!({ "groups": ",[{".repeat(VALUES_MAX) }), "AAAA").is_ok(), "a text is one value");
        for (many, fits) in [
            (json!({ "a": [] }), true),
            (json!({ "a": vec![json!({}); 1_000] }), false),
            (json!({ "a": vec![json!([[], []]); 300] }), false),
        ] {
            assert_eq!(token(&header, &many, "AAAA").is_ok(), fits);
            assert_eq!(token(&json!({ "alg": "RS256", "kid": "1", "more": many }), &json!({}), "AAAA").is_ok(), fits);
            let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
            let unverified = |header: &Value, claims: &Value| {
                Claims::unverified(&format!("{}.{}.AAAA", part(header), part(claims))).is_some()
            };
            assert_eq!(unverified(&json!({}), &many), fits);
            assert_eq!(unverified(&many, &json!({})), fits);
        }
    }

    #[test]
    fn unverified_claims_are_those_of_any_signed_token_and_of_no_other_text() {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let text = |header: &Value, claims: &Value| format!("{}.{}.AAAA", part(header), part(claims));
        let read = Claims::unverified(&text(&json!({ "alg": "ES512" }), &json!({ "aud": ["rollhook"] }))).unwrap();
        assert!(read.are_for("rollhook"));
        assert!(Claims::unverified(&text(&json!([]), &json!({}))).is_none());
        assert!(Claims::unverified(&text(&json!({}), &json!([]))).is_none());
        assert!(Claims::unverified(&text(&json!({}), &json!({ "sub": "x".repeat(TOKEN_MAX) }))).is_none());
        for text in ["", ".", "..", "a.b", "a.b.c", "e30.e30.", "rh_x", "rhl_0123", "e30.e30.A=="] {
            assert!(Claims::unverified(text).is_none(), "{text}");
        }
    }

    #[test]
    fn debug_shows_no_token_and_no_values() {
        let read = token(&json!({ "alg": "RS256", "kid": "key" }), &json!({ "sub": "secret" }), "AAAA").unwrap();
        let shown = format!("{read:?} {:?}", read.claims());
        assert!(!shown.contains("secret") && !shown.contains("AAAA") && shown.contains("sub"), "{shown}");
    }

    #[test]
    fn a_claim_is_a_text_a_whole_number_or_a_truth_value() {
        let claims = token(
            &json!({ "alg": "RS256", "kid": "1" }),
            &json!({ "a": "74", "b": 74, "c": true, "d": 7.5, "e": null, "f": ["74"], "exp": 1_700_000_000.5, "aud": ["x", "y"] }),
            "AAAA",
        );
        let claims = claims.unwrap().claims;
        let texts: Vec<_> = ["a", "b", "c", "d", "e", "f", "g"].map(|name| claims.text(name)).into();
        assert_eq!(texts, [Some("74".into()), Some("74".into()), Some("true".into()), None, None, None, None]);
        assert_eq!(claims.time("exp"), Some(Timestamp::from_millis(1_700_000_000_500)));
        assert_eq!(claims.time("a"), None);
        assert!(claims.are_for("x") && claims.are_for("y") && !claims.are_for("z") && !claims.are_for(""));
    }
}
