//! The secret that a call has to know.

use rollhook_core::app::AppId;

/// The secret that a call's credentials are for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Target {
    /// An API token, or a session.
    Management,
    /// The API token of a sign-in to the console.
    SignIn,
    /// The code by which the provider of sign-ins names a person.
    ProviderCallback,
    /// The code by which a command line signs in.
    Login,
    /// An app's token.
    App(AppId),
    /// The token of an app that cannot exist by its name.
    Nothing,
}

impl Target {
    /// Returns whether people sign in by the secret. Failures with other secrets do not count here: strangers who try
    /// tokens keep nobody from signing in, whose address they share.
    pub(crate) const fn is_sign_in(&self) -> bool {
        match self {
            Self::SignIn | Self::ProviderCallback | Self::Login => true,
            Self::Management | Self::App(_) | Self::Nothing => false,
        }
    }
}
