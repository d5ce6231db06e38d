//! Public keys of signers.

use std::{fmt, str::FromStr};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use sha2::{Digest as _, Sha256};

use super::InvalidRequirement;
use crate::text::hex;

/// The label of a key's text, and the dashes around it.
const LABEL: &str = "PUBLIC KEY";
const DASHES: &str = "-----";
/// The longest key in bytes, without the text around it: one of RSA with 8192 bits has about 1,060.
const BYTES_MAX: usize = 2_048;
/// The characters of a line of PEM.
const LINE: usize = 64;

/// A public key, as PEM text with the label `PUBLIC KEY`. Which algorithms are known is the verifier's to say.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PublicKey {
    der: Vec<u8>,
    pem: String,
}

impl PublicKey {
    /// The key as PEM text, in lines of 64 characters.
    pub fn as_pem(&self) -> &str {
        &self.pem
    }

    /// The key as it is between the lines: its algorithm and its bits (`SubjectPublicKeyInfo`).
    pub fn as_der(&self) -> &[u8] {
        &self.der
    }

    /// Returns the key's SHA-256, by which people tell keys apart.
    pub fn fingerprint(&self) -> String {
        format!("sha256:{}", hex(&Sha256::digest(&self.der)))
    }
}

impl FromStr for PublicKey {
    type Err = InvalidRequirement;

    fn from_str(text: &str) -> Result<Self, InvalidRequirement> {
        let invalid = |rule| InvalidRequirement::new(text, rule);
        if text.contains("PRIVATE KEY") {
            // The text is not repeated: it is a secret.
            return Err(InvalidRequirement::new("", "this is a private key; the public one belongs here"));
        }
        if text.len() > 2 * BYTES_MAX {
            return Err(invalid("the key must have at most 2048 bytes"));
        }
        let (begin, end) = (line("BEGIN"), line("END"));
        let body = text.trim().strip_prefix(&begin).and_then(|rest| rest.strip_suffix(&end));
        let body = body.ok_or_else(|| invalid("the key must be PEM text with the label PUBLIC KEY"))?;
        let digits: String = body.chars().filter(|character| !character.is_ascii_whitespace()).collect();
        let der = BASE64_STANDARD.decode(&digits).ok().filter(|der| is_one_sequence(der));
        let der = der.ok_or_else(|| invalid("the key between its lines cannot be read"))?;
        if der.len() > BYTES_MAX {
            return Err(invalid("the key must have at most 2048 bytes"));
        }
        Ok(Self { pem: pem(&der), der })
    }
}

fn pem(der: &[u8]) -> String {
    let digits = BASE64_STANDARD.encode(der);
    let lines = digits.as_bytes().chunks(LINE).map(String::from_utf8_lossy);
    let lines: String = lines.map(|line| format!("{line}\n")).collect();
    format!("{}\n{lines}{}\n", line("BEGIN"), line("END"))
}

/// Returns the first or the last line of a key's text.
fn line(word: &str) -> String {
    format!("{DASHES}{word} {LABEL}{DASHES}")
}

/// Returns whether bytes are one sequence of DER, to their end.
fn is_one_sequence(der: &[u8]) -> bool {
    match der {
        [0x30, 0x82, high, low, rest @ ..] => rest.len() == usize::from(*high) << 8 | usize::from(*low),
        [0x30, 0x81, length, rest @ ..] => rest.len() == usize::from(*length),
        [0x30, length, rest @ ..] => *length < 0x80 && rest.len() == usize::from(*length),
        _ => false,
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", self.fingerprint())
    }
}
