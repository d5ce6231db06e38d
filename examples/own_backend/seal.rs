//! Sealed tokens: readable with the key alone, and for one app alone.

pub(crate) use chacha20poly1305::{KeyInit, XChaCha20Poly1305 as Key};
use chacha20poly1305::{
    XNonce,
    aead::{Aead, Payload},
};
use rollhook_core::{Error, Result, app::AppUid, token::Token};
use zeroize::Zeroizing;

const NONCE: usize = 24;

/// Returns a random nonce and the encrypted token behind it.
///
/// The app's uid is authenticated with the token, so that a sealed token moved to another app cannot be opened.
pub(crate) fn seal(key: &Key, app: AppUid, token: &Token) -> Result<Vec<u8>> {
    let mut nonce = [0; NONCE];
    getrandom::fill(&mut nonce).map_err(|error| Error::unavailable("reading random bytes failed", error))?;
    let payload = Payload { msg: token.expose().as_bytes(), aad: &app.as_bits().to_be_bytes() };
    let sealed = key.encrypt(&XNonce::from(nonce), payload);
    Ok([nonce.as_slice(), &sealed.map_err(|_| Error::invalid("the token cannot be sealed"))?].concat())
}

/// Returns the token that was sealed for this app.
pub(crate) fn open(key: &Key, app: AppUid, sealed: &[u8]) -> Result<Token> {
    let token = || {
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE>()?;
        let payload = Payload { msg: sealed, aad: &app.as_bits().to_be_bytes() };
        let text = Zeroizing::new(key.decrypt(&XNonce::from(*nonce), payload).ok()?);
        std::str::from_utf8(&text).ok()?.parse().ok()
    };
    let what = "a stored token was changed, moved, or sealed with another key".to_owned();
    token().ok_or(Error::Corrupt { what, cause: None })
}
