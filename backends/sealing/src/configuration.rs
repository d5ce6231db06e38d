//! Configurations as stores keep them: sealed for their app and their id, so that they open as no other.

use rollhook_core::{
    Error, Result,
    app::AppUid,
    configuration::{ConfigurationId, Variables},
};

use crate::{KeyId, KeyRing};

/// A sealed configuration. Stores keep the key beside it, so that its use is known without a read of the long value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// The key that it is sealed with.
    pub key: KeyId,
    /// The sealed form.
    pub bytes: Vec<u8>,
}

impl Sealed {
    /// Returns a sealed form with its key.
    ///
    /// # Errors
    /// `Corrupt` if it names none.
    pub fn of(bytes: Vec<u8>) -> Result<Self> {
        Ok(Self { key: KeyRing::key_of(&bytes)?, bytes })
    }
}

/// Seals an app's configuration with the ring's newest key.
///
/// # Errors
/// `Unavailable` if the system gives no random bytes.
pub fn seal(ring: &KeyRing, app: AppUid, id: ConfigurationId, variables: &Variables) -> Result<Sealed> {
    Sealed::of(ring.seal(variables.to_text().as_bytes(), &associated_data(app, id))?)
}

/// Opens a stored configuration.
///
/// # Errors
/// `Denied` if the ring lacks its key; `Corrupt` if it was damaged, or sealed for another app or id.
pub fn open(ring: &KeyRing, app: AppUid, id: ConfigurationId, sealed: &[u8]) -> Result<Variables> {
    let text = ring.open(sealed, &associated_data(app, id))?;
    let variables = std::str::from_utf8(&text).ok().and_then(Variables::from_text);
    variables.ok_or_else(|| Error::Corrupt { what: "a sealed text is no configuration".to_owned(), cause: None })
}

/// Seals a stored configuration with the newest key; returns one that is so already as it is.
///
/// # Errors
/// As [`open`], also if it is sealed with the newest key.
pub fn reseal(ring: &KeyRing, app: AppUid, id: ConfigurationId, sealed: Vec<u8>) -> Result<Sealed> {
    let renewed = ring.reseal(&sealed, &associated_data(app, id))?;
    Sealed::of(renewed.unwrap_or(sealed))
}

fn associated_data(app: AppUid, id: ConfigurationId) -> Vec<u8> {
    format!("configuration:{app}/{id}").into_bytes()
}
