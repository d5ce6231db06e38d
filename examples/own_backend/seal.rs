//! Tokens as they are stored: readable with the key alone, and for one app alone.

use chacha20poly1305::{
    KeyInit, XChaCha20Poly1305, XNonce,
    aead::{Aead, Payload},
};
use rollhook_core::{Error, Result, app::AppUid, token::Token};
use zeroize::Zeroizing;

const NONCE: usize = 24;

/// The key that tokens are sealed with; it does not lie beside them.
pub(crate) struct Key(XChaCha20Poly1305);

impl Key {
    pub(crate) fn new(bytes: &[u8; 32]) -> Self {
        Self(XChaCha20Poly1305::new(bytes.into()))
    }

    pub(crate) fn seal(&self, app: AppUid, token: &Token) -> Result<Vec<u8>> {
        let mut sealed = vec![0; NONCE];
        getrandom::fill(&mut sealed).map_err(|error| Error::unavailable("randomness", error))?;
        let nonce = XNonce::try_from(sealed.as_slice()).map_err(|error| Error::corrupt("a nonce", error))?;
        // The app's uid is sealed with it: moved to another app, the token opens nothing.
        let uid = app.to_string();
        let payload = Payload { msg: token.expose().as_bytes(), aad: uid.as_bytes() };
        let ciphertext = self.0.encrypt(&nonce, payload).map_err(|_| Error::invalid("a token cannot be sealed"))?;
        sealed.extend(ciphertext);
        Ok(sealed)
    }

    pub(crate) fn open(&self, app: AppUid, sealed: &[u8]) -> Result<Token> {
        self.try_open(app, sealed).ok_or_else(|| Error::Corrupt {
            what: "a stored token was changed, or sealed with another key".to_owned(),
            cause: None,
        })
    }

    fn try_open(&self, app: AppUid, sealed: &[u8]) -> Option<Token> {
        let (nonce, ciphertext) = sealed.split_at_checked(NONCE)?;
        let uid = app.to_string();
        let payload = Payload { msg: ciphertext, aad: uid.as_bytes() };
        let text = Zeroizing::new(self.0.decrypt(&XNonce::try_from(nonce).ok()?, payload).ok()?);
        std::str::from_utf8(&text).ok()?.parse().ok()
    }
}
