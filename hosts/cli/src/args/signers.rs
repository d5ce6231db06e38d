//! Flags that name signers, and the files of their keys.

use std::{fmt, fs::File, io::Read, str::FromStr};

use rollhook_core::requirement::{Attestation, InvalidRequirement, PublicKey, Signer};

/// The word that ends a requirement.
const OFF: &str = "off";
/// The word before the file of a key; on the command line it is the last one.
const KEY: &str = "key=";
/// The most bytes of a key's file.
const FILE_MAX: u64 = 16 << 10;

/// Returns the words of a signer, whose key's file is not read yet; empty for `off`.
///
/// # Errors
/// The rule that the text breaks.
pub(super) fn signer_or_off(text: &str) -> Result<String, String> {
    or_off(text, signer)
}

/// Returns the words of an attestation, likewise.
///
/// # Errors
/// As [`signer_or_off`].
pub(super) fn attestation_or_off(text: &str) -> Result<String, String> {
    or_off(text, attestation)
}

/// Returns the words of a signer. A key's file is read later.
///
/// # Errors
/// The rule that they break.
pub(super) fn signer(text: &str) -> Result<String, String> {
    checked::<Signer>(text)
}

/// Returns the words of an attestation, likewise.
///
/// # Errors
/// As [`signer`].
pub(super) fn attestation(text: &str) -> Result<String, String> {
    checked::<Attestation>(text)
}

fn or_off(text: &str, otherwise: impl FnOnce(&str) -> Result<String, String>) -> Result<String, String> {
    if text == OFF { Ok(String::new()) } else { otherwise(text) }
}

fn checked<T: FromStr<Err = InvalidRequirement>>(text: &str) -> Result<String, String> {
    if file(text).is_none() {
        text.parse::<T>().map_err(|invalid| invalid.rule.to_owned())?;
    }
    Ok(text.to_owned())
}

/// Returns the words before a key, and its file.
fn file(text: &str) -> Option<(&str, &str)> {
    text.rsplit_once(KEY).filter(|(words, _)| words.is_empty() || words.ends_with([',', ' ']))
}

/// Returns the words with the text of the key in the place of its file. What is no public key is sent nowhere.
///
/// # Errors
/// Why the file cannot be read, or is no key.
pub(super) fn with_key(text: &str) -> Result<String, String> {
    let Some((words, path)) = file(text) else { return Ok(text.to_owned()) };
    let unread = |why: &dyn fmt::Display| format!("{path}: {why}");
    let mut key = String::new();
    let file = File::open(path).map_err(|error| unread(&error))?;
    file.take(FILE_MAX).read_to_string(&mut key).map_err(|error| unread(&error))?;
    key.parse::<PublicKey>().map_err(|invalid| unread(&invalid.rule))?;
    Ok(format!("{words}{KEY}{key}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEM: &str = "-----BEGIN PUBLIC KEY-----\n\
        MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEX1hHnVCq/f8MKeFOYVFMCeze4DWS\n\
        QmQi02UnbrHevnbUgPKszRu0xDo1OcUa6aR+TCNPe5drA3i8sLXNAYOjzQ==\n\
        -----END PUBLIC KEY-----\n";

    #[test]
    fn key_is_read_from_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cosign.pub");
        std::fs::write(&path, PEM).unwrap();
        let path = path.display();
        assert_eq!(with_key(&format!("key={path}")).unwrap(), format!("key={PEM}"));
        let attested = with_key(&format!("slsa-provenance,builder=https://ci.test/*,key={path}")).unwrap();
        assert!(attested.ends_with(&format!(",key={PEM}")), "{attested}");
        assert!(with_key(&format!("key={path}.missing")).unwrap_err().contains(".missing: "));
        std::fs::write(directory.path().join("cosign.key"), PEM.replace("PUBLIC", "PRIVATE")).unwrap();
        let private = with_key(&format!("key={}", directory.path().join("cosign.key").display())).unwrap_err();
        assert!(private.ends_with("cosign.key: this is a private key; the public one belongs here"), "{private}");
    }

    #[test]
    fn identity_has_no_file_and_off_is_empty() {
        let identity = "issuer=https://id.test,subject=https://git.test/key=1";
        assert_eq!(signer_or_off(identity).unwrap(), identity);
        assert_eq!(signer_or_off("off").unwrap(), "");
        assert!(signer_or_off("ada").is_err());
        assert!(attestation_or_off("vuln").unwrap_err().contains("slsa-provenance"));
    }
}
