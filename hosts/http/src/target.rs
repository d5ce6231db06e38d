//! The secret that a call has to know.

use rollhook_core::app::AppId;

/// The secret that a call's credentials are for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Target {
    /// An API token.
    Management,
    /// An app's token.
    App(AppId),
    /// The token of an app that cannot exist by its name.
    Nothing,
}
