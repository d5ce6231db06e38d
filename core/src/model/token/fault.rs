//! Why the credentials of a webhook's caller were refused: for those who may know, never for the caller.

use std::fmt;

use crate::text::words;

/// The fault of a caller's credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Nothing was presented.
    NoCredentials,
    /// A header with credentials cannot be read.
    Unreadable,
    /// The token is another one.
    WrongToken,
    /// The credentials fit the token before, whose time is over.
    ReplacedToken,
    /// The signature does not fit.
    WrongSignature,
    /// The signature of Standard Webhooks does not fit.
    WrongMessage,
}

words! { Fault:
    NoCredentials = "no-credentials",
    Unreadable = "unreadable-header",
    WrongToken = "wrong-token",
    ReplacedToken = "replaced-token",
    WrongSignature = "wrong-signature",
    WrongMessage = "wrong-message-signature",
}

impl Fault {
    /// What is wrong, and what to look at.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::NoCredentials => "The call brought no token, no signature and no id_token.",
            Self::Unreadable => {
                "A header with credentials is sent twice or malformed, such as Authorization: Bearer with neither the \
                 webhook's token nor an id_token; or the time of a signed message is more than 5 minutes off."
            }
            Self::WrongToken => "The token is not this app's: the sender has another app's, or one that was replaced.",
            Self::ReplacedToken => "The token was replaced, and its time is over: give the sender the present one.",
            Self::WrongSignature => {
                "The signature does not fit: the secret at the sender is not this app's token, or the body was changed on its \
                 way."
            }
            Self::WrongMessage => {
                "The signature of Standard Webhooks does not fit: the sender lacks this app's signing key (whsec_), or the \
                 body was changed on its way."
            }
        }
    }
}
