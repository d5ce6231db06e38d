//! An app's secret token, and what proves that a caller holds it.

use std::{fmt, str::FromStr};

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// The random characters of a token; 30 of base62 hold 178 bits.
const RANDOM: usize = 30;
const CHECKSUM: usize = 6;
const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// A secret of `rh_`, 30 random base62 characters and 6 of CRC-32, so that secret scanners can tell one.
///
/// `Debug` does not show it, nothing serializes it, and its memory is wiped when it is dropped.
#[derive(Clone)]
pub struct Token(Zeroizing<String>);

/// The text is not a token that this service made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a rollhook token")]
pub struct NotAToken;

impl Token {
    /// Number of random bytes that [`Token::from_random`] wants, plenty so that rejection leaves enough.
    pub const RANDOM_BYTES: usize = 64;
    /// What every token begins with.
    pub(crate) const PREFIX: &str = "rh_";
    /// Number of a token's characters, all of them ASCII.
    pub(crate) const LENGTH: usize = Self::PREFIX.len() + RANDOM + CHECKSUM;

    /// Makes a token of random bytes; none where too few of them could be used, which 64 random bytes do not do in
    /// practice.
    pub fn from_random(bytes: &[u8]) -> Option<Self> {
        // 248 is the greatest multiple of 62 below 256: a byte above it would make some characters likelier.
        let random: Zeroizing<String> = Zeroizing::new(
            bytes
                .iter()
                .filter(|byte| **byte < 248)
                .take(RANDOM)
                .map(|byte| char::from(BASE62[usize::from(byte % 62)]))
                .collect(),
        );
        (random.len() == RANDOM)
            .then(|| Self(Zeroizing::new(format!("{}{}{}", Self::PREFIX, *random, checksum(&random)))))
    }

    /// The token's text: for the answer to enable and status, and for sealing; for nothing else.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether the presented text is this token, in constant time.
    pub fn matches(&self, presented: &[u8]) -> bool {
        // Comparing hashes leaves no trace of where texts differ, nor of their lengths.
        let ours = Sha256::digest(self.0.as_bytes());
        let theirs = Sha256::digest(presented);
        ours.ct_eq(&theirs).into()
    }

    /// Whether the signature is HMAC-SHA256 over the body with this token's bytes as the key, in constant time.
    pub fn signed(&self, body: &[u8], signature: &Signature) -> bool {
        verify(self.0.as_bytes(), body, signature)
    }

    /// The SHA-256 of the text, which is all that is kept of a management token.
    pub fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.0.as_bytes()).into()
    }
}

/// Whether `signature` is HMAC-SHA256 of `body` under `key`, in constant time.
pub fn verify(key: &[u8], body: &[u8], signature: &Signature) -> bool {
    match Hmac::<Sha256>::new_from_slice(key) {
        Ok(mut mac) => {
            mac.update(body);
            mac.verify_slice(&signature.0).is_ok()
        }
        // HMAC takes keys of any length.
        Err(_) => false,
    }
}

fn checksum(random: &str) -> String {
    let mut rest = crc32fast::hash(random.as_bytes());
    let mut digits = [b'0'; CHECKSUM];
    for digit in digits.iter_mut().rev() {
        *digit = BASE62[(rest % 62) as usize];
        rest /= 62;
    }
    digits.iter().map(|digit| char::from(*digit)).collect()
}

impl FromStr for Token {
    type Err = NotAToken;

    fn from_str(text: &str) -> Result<Self, NotAToken> {
        let rest = text.strip_prefix(Self::PREFIX).ok_or(NotAToken)?;
        if rest.len() != RANDOM + CHECKSUM || !rest.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(NotAToken);
        }
        let (random, sum) = rest.split_at(RANDOM);
        if checksum(random) == sum { Ok(Self(Zeroizing::new(text.to_owned()))) } else { Err(NotAToken) }
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// A presented HMAC-SHA256, as `X-Hub-Signature-256: sha256=<hex>` carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature([u8; 32]);

impl FromStr for Signature {
    type Err = NotAToken;

    fn from_str(text: &str) -> Result<Self, NotAToken> {
        let hex = text.strip_prefix("sha256=").ok_or(NotAToken)?.as_bytes();
        if hex.len() != 64 {
            return Err(NotAToken);
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(hex.chunks_exact(2)) {
            let digit = |c: u8| char::from(c).to_digit(16).ok_or(NotAToken);
            *byte = u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).map_err(|_| NotAToken)?;
        }
        Ok(Self(bytes))
    }
}

/// What a caller of a webhook presented; each that is present must be valid.
///
/// A header that was present but could not be read at all, or was repeated, is `Some(Err(NotAToken))`: it is invalid,
/// which is not the same as absent.
#[derive(Clone, Default)]
pub struct Credentials {
    /// The text of `X-Service-Token`.
    pub token: Option<Result<Zeroizing<Vec<u8>>, NotAToken>>,
    /// The content of `X-Hub-Signature-256`.
    pub signature: Option<Result<Signature, NotAToken>>,
}

impl Credentials {
    /// Whether anything was presented and all of it fits the secret, over this body.
    pub fn fit(&self, secret: &Token, body: &[u8]) -> bool {
        let token = self.token.as_ref().map(|token| token.as_ref().is_ok_and(|presented| secret.matches(presented)));
        let signature =
            self.signature.as_ref().map(|given| given.as_ref().is_ok_and(|signature| secret.signed(body, signature)));
        (token.is_some() || signature.is_some()) && token.unwrap_or(true) && signature.unwrap_or(true)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("token", &self.token.is_some())
            .field("signature", &self.signature.is_some())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// GitHub's published example: "Validating webhook deliveries", section "Testing the webhook payload validation".
    #[test]
    fn github_published_signature_vector() {
        let signature: Signature =
            "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17".parse().unwrap();
        assert!(verify(b"It's a Secret to Everybody", b"Hello, World!", &signature));
        assert!(!verify(b"It's a Secret to Everybody", b"Hello, World", &signature));
        assert!(!verify(b"another secret", b"Hello, World!", &signature));
    }

    fn token(seed: u8) -> Token {
        let bytes: Vec<u8> = (0..64).map(|index| seed.wrapping_mul(31).wrapping_add(index * 3)).collect();
        Token::from_random(&bytes).unwrap()
    }

    #[test]
    fn a_token_is_told_by_its_prefix_length_and_checksum() {
        let text = token(7).expose().to_owned();
        assert_eq!(text.len(), 39);
        assert!(text.starts_with("rh_"));
        assert!(text.parse::<Token>().is_ok());
        let mut wrong = text.clone().into_bytes();
        wrong[10] = if wrong[10] == b'a' { b'b' } else { b'a' };
        assert!(String::from_utf8(wrong).unwrap().parse::<Token>().is_err());
        assert!(text[..38].parse::<Token>().is_err());
    }

    #[test]
    fn debug_shows_no_secret() {
        let secret = token(9);
        let credentials =
            Credentials { token: Some(Ok(Zeroizing::new(secret.expose().as_bytes().to_vec()))), signature: None };
        let shown = format!("{secret:?} {credentials:?}");
        assert!(!shown.contains(&secret.expose()[3..12]), "{shown}");
    }

    #[test]
    fn each_credential_that_is_present_must_fit() {
        let secret = token(1);
        let body = b"{}";
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.expose().as_bytes()).unwrap();
        mac.update(body);
        let hex: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        let good_token = || Some(Ok(Zeroizing::new(secret.expose().as_bytes().to_vec())));
        let good_signature = || Some(format!("sha256={hex}").parse());
        let bad_signature = || Some(format!("sha256={}", "0".repeat(64)).parse());
        let fits = |token, signature| Credentials { token, signature }.fit(&secret, body);
        assert!(fits(good_token(), None));
        assert!(fits(None, good_signature()));
        assert!(fits(good_token(), good_signature()));
        assert!(!fits(None, None));
        assert!(!fits(good_token(), bad_signature()));
        assert!(!fits(good_token(), Some(Err(NotAToken))));
        assert!(!fits(Some(Err(NotAToken)), good_signature()));
        assert!(!fits(Some(Ok(Zeroizing::new(b"x".to_vec()))), good_signature()));
    }
}
