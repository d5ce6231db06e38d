//! An app's secret token, and the proofs that a caller holds it.

mod credentials;
mod fault;
mod trace;

use std::{fmt, str::FromStr};

pub use credentials::{Credential, Credentials, SignedMessage, TOLERANCE};
pub use fault::Fault;
pub use trace::{TokenTrace, TraceKey};

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, STANDARD_NO_PAD},
};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// The random characters of a token; 30 of base62 hold 178 bits.
const RANDOM: usize = 30;
const CHECKSUM: usize = 6;
const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The lengths of a key that is shared, in bytes (Standard Webhooks).
const SHARED_KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// A secret of `rh_`, 30 random base62 characters and 6 of CRC-32, so that secret scanners can tell one.
///
/// `Debug` does not show it, nothing serializes it, and its memory is wiped when it is dropped.
#[derive(Clone)]
pub struct Token(Zeroizing<String>);

/// The error of a text that is not a token of this service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a rollhook token")]
pub struct NotAToken;

impl Token {
    /// The number of random bytes that [`Token::from_random`] takes; plenty, as some are rejected.
    pub const RANDOM_BYTES: usize = 64;
    /// The first characters of every token.
    pub const PREFIX: &str = "rh_";
    /// The number of a token's characters, all of them ASCII.
    pub(crate) const LENGTH: usize = Self::PREFIX.len() + RANDOM + CHECKSUM;

    /// Returns a token made of random bytes; `None` if too few of them were usable, which does not happen with 64
    /// random bytes in practice.
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

    /// The token's text: only for the answers of enable and status, and for sealing.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns whether the presented text is this token, in constant time.
    pub fn matches(&self, presented: &[u8]) -> bool {
        // Comparing hashes reveals neither the place of a difference nor the lengths.
        let ours = Sha256::digest(self.0.as_bytes());
        let theirs = Sha256::digest(presented);
        ours.ct_eq(&theirs).into()
    }

    /// Returns the key that signs messages of Standard Webhooks, which must be 32 bytes. It is derived from this token,
    /// so that there is one secret to keep.
    pub fn signing_key(&self) -> SigningKey {
        SigningKey(Zeroizing::new(mac(self.0.as_bytes(), &[SIGNING])))
    }

    /// Returns the SHA-256 of the text, which is all that is stored of an admin token.
    pub fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.0.as_bytes()).into()
    }
}

/// Returns an HMAC-SHA256 under a key of at most 64 bytes, as all of ours are.
fn keyed(key: &[u8]) -> Hmac<Sha256> {
    // A key shorter than the hash's block is padded with zeros (RFC 2104 section 2).
    let mut block = Zeroizing::new([0; 64]);
    block.iter_mut().zip(key).for_each(|(byte, of_key)| *byte = *of_key);
    Hmac::<Sha256>::new(&(*block).into())
}

/// Returns the HMAC-SHA256 of the concatenated parts.
fn finished(mut mac: Hmac<Sha256>, parts: &[&[u8]]) -> [u8; 32] {
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

/// Returns the HMAC-SHA256 of the concatenated parts, under a key of at most 64 bytes.
pub(crate) fn mac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    finished(keyed(key), parts)
}

/// Returns the key of a secret of Standard Webhooks that is shared with another service, `whsec_` and the base64 of 24 to 64
/// bytes; `None` for any other text.
pub fn shared_signing_key(secret: &str) -> Option<Zeroizing<Vec<u8>>> {
    let text = secret.strip_prefix(SigningKey::PREFIX)?;
    let key = STANDARD.decode(text).or_else(|_| STANDARD_NO_PAD.decode(text)).ok().map(Zeroizing::new)?;
    SHARED_KEY_BYTES.contains(&key.len()).then_some(key)
}

/// Returns the bytes in base64 (RFC 4648 section 4), padded.
fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
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

/// The message of which [`Token::signing_key`] is the HMAC.
const SIGNING: &[u8] = b"rollhook: key of Standard Webhooks, 1";

/// The key that signs messages of Standard Webhooks, as secret as the token that it is derived from.
#[derive(Clone)]
pub struct SigningKey(Zeroizing<[u8; 32]>);

impl SigningKey {
    /// The first characters of every key.
    pub(crate) const PREFIX: &str = "whsec_";
    /// The number of the characters that follow the prefix.
    pub(crate) const DIGITS: usize = 44;

    /// The key as git hosts expect it, `whsec_` and the bytes in base64: only for the answers of enable and status.
    pub fn expose(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("{}{}", Self::PREFIX, *Zeroizing::new(base64(self.as_bytes()))))
    }

    fn as_bytes(&self) -> &[u8] {
        self.0.as_slice()
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(…)")
    }
}

/// A presented HMAC-SHA256, as `X-Hub-Signature-256: sha256=<hex>` carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature([u8; 32]);

impl FromStr for Signature {
    type Err = NotAToken;

    fn from_str(text: &str) -> Result<Self, NotAToken> {
        Self::bare(text.strip_prefix("sha256=").ok_or(NotAToken)?)
    }
}

impl Signature {
    /// Returns the signature of a text that is its hexadecimal digits alone.
    ///
    /// # Errors
    /// If the text is anything but 64 of them.
    pub fn bare(text: &str) -> Result<Self, NotAToken> {
        let hex = text.as_bytes();
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The published example of webhook signatures ("Validating webhook deliveries").
    #[test]
    fn published_signature_vector() {
        let signature: Signature =
            "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17".parse().unwrap();
        let key = b"It's a Secret to Everybody";
        assert_eq!(mac(key, &[b"Hello, World!"]), signature.0);
        assert_eq!(mac(key, &[b"Hello, ", b"World!"]), signature.0);
        assert_ne!(mac(key, &[b"Hello, World"]), signature.0);
        assert_ne!(mac(b"another secret", &[b"Hello, World!"]), signature.0);
    }

    #[test]
    fn a_signature_is_64_digits_behind_its_name_or_bare() {
        let digits = "0aF1".repeat(16);
        assert_eq!(format!("sha256={digits}").parse::<Signature>(), Signature::bare(&digits));
        assert!(Signature::bare(&digits).is_ok());
        for text in ["", "sha256=", &digits[1..], &format!("{digits}0"), &digits.replace('a', "g"), &"é".repeat(32)] {
            assert!(Signature::bare(text).is_err(), "{text}");
            assert!(format!("sha256={text}").parse::<Signature>().is_err(), "{text}");
        }
        assert!(digits.parse::<Signature>().is_err());
        assert!(format!("sha1={digits}").parse::<Signature>().is_err());
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
    fn a_signing_key_is_32_bytes_that_follow_from_the_token() {
        let key = token(7).signing_key().expose();
        assert!(key.starts_with("whsec_"), "{}", *key);
        assert_eq!(key.len(), "whsec_".len() + SigningKey::DIGITS, "32 bytes in base64");
        assert_eq!(*key, *token(7).signing_key().expose());
        assert_ne!(*key, *token(8).signing_key().expose());
    }
}
