//! The errors of sealing, by what helps.

use std::path::PathBuf;

use crate::key::KeyId;

/// A failure of loading keys, of sealing or of opening. No message shows a key or a sealed text.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or directory could not be read or written.
    #[error("{what} {}", path.display())]
    Io {
        /// The action that failed.
        what: &'static str,
        /// The path of the file or directory.
        path: PathBuf,
        /// The failure underneath.
        #[source]
        source: std::io::Error,
    },
    /// The directory has no key in it.
    #[error("there is no key in {}; make one with: rollhook-server keys new {}", directory.display(), directory.display())]
    NoKey {
        /// The directory.
        directory: PathBuf,
    },
    /// Others than the owner can read a key file.
    #[error("{} can be read by others (mode {mode:04o}); make it private with: chmod 600 {}", path.display(), path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// A key file does not hold a key.
    #[error("{} is not a key file: {why}", path.display())]
    NotAKey {
        /// The file.
        path: PathBuf,
        /// The rule that the file breaks.
        why: &'static str,
    },
    /// The value was sealed with a key that is not in the ring.
    #[error("sealed with key {0}, which is not in the key directory")]
    UnknownKey(KeyId),
    /// The value was damaged, or was sealed for another purpose.
    #[error("the sealed value was damaged, or does not belong here")]
    Corrupt,
    /// The operating system gave no random bytes.
    #[error("the operating system gives no random bytes")]
    NoRandomness,
}

impl From<Error> for rollhook_core::Error {
    fn from(error: Error) -> Self {
        let what = error.to_string();
        match error {
            Error::Corrupt => Self::Corrupt { what, cause: None },
            Error::Io { source, .. } => Self::unavailable(what, source),
            Error::NoRandomness => Self::Unavailable { what, cause: None },
            // Keys are this service's credentials for what it stored.
            Error::UnknownKey(_) | Error::NoKey { .. } | Error::Exposed { .. } | Error::NotAKey { .. } => {
                Self::Denied { what, cause: None }
            }
        }
    }
}
