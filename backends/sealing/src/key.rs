//! One key, and the id that sealed values name it by.

use std::{fmt, str::FromStr};

use chacha20poly1305::{
    KeyInit, XChaCha20Poly1305, XNonce,
    aead::{Aead, Payload},
};
use zeroize::Zeroizing;

use crate::error::Error;

/// Length of a key.
pub const KEY_BYTES: usize = 32;
pub(crate) const NONCE_BYTES: usize = 24;

/// A key's name: 1 to 32 lower-case letters, digits and hyphens. In the order of names, the last is the newest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(String);

impl KeyId {
    /// The longest id, in bytes.
    pub const MAX: usize = 32;

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the id of the key that a first start makes.
    pub(crate) fn first() -> Self {
        Self("k0001".to_owned())
    }

    /// `k0001-…`, `k0002-…`, …: names that sort by number and are unique to a directory, so that a key is
    /// never taken for another of its name.
    pub(crate) fn numbered(number: u32) -> Result<Self, Error> {
        let mut unique = [0; 4];
        getrandom::fill(&mut unique).map_err(|_| Error::NoRandomness)?;
        Ok(Self(format!("k{number:04}-{:08x}", u32::from_be_bytes(unique))))
    }

    /// Returns the number of a numbered id; zero for any other.
    pub(crate) fn number(&self) -> u32 {
        let digits = self.0.strip_prefix('k').and_then(|rest| rest.split('-').next());
        digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
    }
}

impl FromStr for KeyId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let sound = (1..=Self::MAX).contains(&text.len())
            && text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'));
        if sound { Ok(Self(text.to_owned())) } else { Err(Error::Corrupt) }
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A key; its memory is wiped when it is dropped.
pub(crate) struct Key(Zeroizing<[u8; KEY_BYTES]>);

impl Key {
    pub(crate) fn new(bytes: Zeroizing<[u8; KEY_BYTES]>) -> Self {
        Self(bytes)
    }

    pub(crate) fn random() -> Result<Self, Error> {
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        getrandom::fill(bytes.as_mut()).map_err(|_| Error::NoRandomness)?;
        Ok(Self(bytes))
    }

    /// Returns the 64 hexadecimal digits of a key file, and a line feed.
    pub(crate) fn to_text(&self) -> Zeroizing<String> {
        // Reserved in full, so that no half of it stays behind in memory given back while it grows.
        let mut text = Zeroizing::new(String::with_capacity(2 * KEY_BYTES + 1));
        for byte in self.0.iter() {
            for digit in [byte >> 4, byte & 15] {
                text.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
            }
        }
        text.push('\n');
        text
    }

    pub(crate) fn from_text(text: &[u8]) -> Result<Self, &'static str> {
        let digits = text.trim_ascii();
        if digits.len() != 2 * KEY_BYTES {
            return Err("it must hold 64 hexadecimal digits");
        }
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            for digit in pair {
                let value = char::from(*digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
                *byte = (*byte << 4) | value.ok_or("it must hold hexadecimal digits only")?;
            }
        }
        Ok(Self(bytes))
    }

    pub(crate) fn encrypt(&self, nonce: &[u8; NONCE_BYTES], plain: &[u8], bound: &[u8]) -> Result<Vec<u8>, Error> {
        // Fails only for texts of more than 256 GiB.
        self.cipher()?.encrypt(&XNonce::from(*nonce), Payload { msg: plain, aad: bound }).map_err(|_| Error::Corrupt)
    }

    pub(crate) fn decrypt(
        &self,
        nonce: &[u8; NONCE_BYTES],
        sealed: &[u8],
        bound: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, Error> {
        let plain = self.cipher()?.decrypt(&XNonce::from(*nonce), Payload { msg: sealed, aad: bound });
        plain.map(Zeroizing::new).map_err(|_| Error::Corrupt)
    }

    fn cipher(&self) -> Result<XChaCha20Poly1305, Error> {
        XChaCha20Poly1305::new_from_slice(self.0.as_ref()).map_err(|_| Error::Corrupt)
    }
}
