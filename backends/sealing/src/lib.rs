//! Seals tokens and configurations at rest with a ring of keys.
//!
//! A store keeps secrets that it must be able to show again, so it cannot hash them: it seals them with
//! XChaCha20-Poly1305 under a key that lies outside of it. A reader of the store alone learns nothing; a writer
//! cannot move a secret elsewhere, because the app that it belongs to is authenticated with it.
//!
//! ```text
//!   sealed value:  version (1) · id length (1) · key id · nonce (24) · ciphertext and tag
//!                  ╰──────── authenticated, with the associated data ───╯
//! ```
//!
//! [`KeyRing`] holds several keys: the newest seals, every one opens. So a key is replaced by adding one
//! ([`KeyRing::create_key`]), sealing everything anew, and then deleting the old file. A store seals webhook
//! tokens by [`mod@token`] and configurations by [`mod@configuration`]; with the feature `management`, the module `text` seals
//! other secrets, which are kept as records.

pub mod configuration;
#[cfg(feature = "management")]
pub mod text;
pub mod token;
pub mod usage;

mod directory;
mod error;
mod key;
mod ring;

pub use error::Error;
pub use key::{KEY_BYTES, KeyId};
pub use ring::KeyRing;
