//! Secrets that the service keeps as records: sealed for a purpose, as printable text.

use base64::{Engine, engine::general_purpose::STANDARD};
use rollhook_core::{Error, Result};
use rollhook_management::ports::Sealer;
use zeroize::Zeroizing;

use crate::{KeyId, KeyRing};

impl Sealer for KeyRing {
    fn seal(&self, text: &str, purpose: &str) -> Result<String> {
        Ok(STANDARD.encode(Self::seal(self, text.as_bytes(), &associated_data(purpose))?))
    }

    fn open(&self, sealed: &str, purpose: &str) -> Result<Zeroizing<String>> {
        let text = Self::open(self, &decoded(sealed)?, &associated_data(purpose))?;
        let text = std::str::from_utf8(&text).map_err(|_| corrupt())?;
        Ok(Zeroizing::new(text.to_owned()))
    }
}

/// Returns the key that a sealed text names.
///
/// # Errors
/// `Corrupt` if it names none.
pub fn key_of(sealed: &str) -> Result<KeyId> {
    Ok(KeyRing::key_of(&decoded(sealed)?)?)
}

fn decoded(sealed: &str) -> Result<Vec<u8>> {
    STANDARD.decode(sealed).map_err(|_| corrupt())
}

/// No purpose's data is that of a webhook token or a configuration.
fn associated_data(purpose: &str) -> Vec<u8> {
    format!("secret:{purpose}").into_bytes()
}

fn corrupt() -> Error {
    Error::Corrupt { what: "a sealed text is damaged".to_owned(), cause: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_opens_for_its_own_purpose_alone() {
        let ring = KeyRing::of_key([7; crate::KEY_BYTES]);
        let sealer: &dyn Sealer = &ring;
        let sealed = sealer.seal("hunter2", "receiver:1").unwrap();
        assert!(!sealed.contains("hunter2") && !sealed.contains(&STANDARD.encode("hunter2")));
        assert_eq!(*sealer.open(&sealed, "receiver:1").unwrap(), "hunter2");
        assert!(matches!(sealer.open(&sealed, "receiver:2"), Err(Error::Corrupt { .. })));
        assert!(matches!(sealer.open("no base64", "receiver:1"), Err(Error::Corrupt { .. })));
        assert_eq!(key_of(&sealed).unwrap(), ring.primary());
        let other = KeyRing::from_keys([("k0002".parse().unwrap(), Zeroizing::new([8; crate::KEY_BYTES]))]).unwrap();
        assert!(matches!(Sealer::open(&other, &sealed, "receiver:1"), Err(Error::Denied { .. })));
    }
}
