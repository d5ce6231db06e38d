//! Failures of opening the backends, with what to do about them.

use std::{io, path::PathBuf};

/// A failure at start-up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting is invalid; the sentence names its flag.
    #[error("{0}")]
    Usage(String),
    /// There is no home directory to put data in.
    #[error("neither XDG_DATA_HOME nor HOME is set; name the path with {0}")]
    NoDataDirectory(&'static str),
    /// A file or directory could not be used.
    #[error("cannot {doing} {}", path.display())]
    File {
        /// The attempted action.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// A store that replicas share was opened without keys.
    #[error(
        "processes share the {0} store, so that each must be given the same keys: name the directory that the others \
         use with --key-dir; for a new store, make one with rollhook-server keys new DIR"
    )]
    NoKeyDirectory(&'static str),
    /// A store that replicas share knows no admin token, and none was given.
    #[error(
        "the {0} store knows no admin token yet: make one with rollhook-server admin-token new FILE, and name the \
         file with --admin-token-file"
    )]
    NoSharedAdminToken(&'static str),
    /// An admin token's file is missing.
    #[error("there is no admin token in {}; make one with: rollhook-server admin-token new {}", .0.display(), .0.display())]
    NoAdminToken(PathBuf),
    /// The store knows an admin token, and the file of it is missing.
    #[error(
        "there is no admin token in {file}, and the store knows one: put the file back, or make a new one with \
         rollhook-server admin-token new {file}, and replace the stored one with rollhook-server admin-token set {file}",
        file = .0.display()
    )]
    AdminTokenLost(PathBuf),
    /// An admin token's file holds another one than the store knows.
    #[error(
        "{file} holds another admin token than the store knows: name the file that the other processes use, or \
         replace the stored token with rollhook-server admin-token set {file}",
        file = .0.display()
    )]
    OtherAdminToken(PathBuf),
    /// The Secret of an installation's keys is missing, while that of its admin token is there.
    #[error(
        "there is a Secret {admin_token}, and no Secret {keys} with the keys that tokens are sealed with: put it back \
         from your copy; if the keys are lost, make new ones (rollhook-server keys new DIR, kubectl create secret generic \
         {keys} --from-file=DIR) and enable each webhook anew"
    )]
    KeysLost {
        /// The Secret of the keys.
        keys: String,
        /// The Secret of the admin token.
        admin_token: String,
    },
    /// The Secret of an installation's admin token is missing, while that of its keys is there.
    #[error(
        "there is a Secret {keys}, and no Secret {admin_token} with the admin token that the store knows: put it back from \
         your copy; if it is lost, make a new one (rollhook-server admin-token new admin-token, kubectl create secret \
         generic {admin_token} --from-file=admin-token) and have the store take it (rollhook-server admin-token set \
         admin-token --store STORE --key-dir DIR); if no server has ever been started with these keys, delete the Secret \
         {keys} and begin anew"
    )]
    AdminTokenSecretLost {
        /// The Secret of the keys.
        keys: String,
        /// The Secret of the admin token.
        admin_token: String,
    },
    /// An admin token's file holds something else.
    #[error("{} does not hold an admin token; make one with: rollhook-server admin-token new FILE", .0.display())]
    NotAToken(PathBuf),
    /// The file of the sign-in cannot be used.
    #[error("--sign-in {}: {what}", path.display())]
    SignIn {
        /// The file.
        path: PathBuf,
        /// The place in it, and what to do.
        what: String,
    },
    /// Two builders were named.
    #[error("builds run on this machine (--build-command) or in the cluster (--build-image): name one of the two")]
    TwoBuilders,
    /// The namespace of builds holds something else.
    #[error(
        "the namespace {0} is rollhook's own or an app's: builds need one to themselves, which their policies close"
    )]
    BuildNamespace(String),
    /// The named SQLite file does not exist.
    #[error("there is no store in {}: name the one that the servers use with --store", .0.display())]
    NoStore(PathBuf),
    /// Servers are alive on the store.
    #[error("{0} works on the store: stop every server first (one that was killed counts for 15 s)")]
    ServersAlive(String),
    /// Another server works on the SQLite file.
    #[error(
        "another server works on {}: stop it, or give this one a store of its own; several servers share a postgres or \
         kubernetes store", .0.display()
    )]
    SecondServer(PathBuf),
    /// The build lacks a backend.
    #[error("this build has no {0}: it was made without that feature")]
    NotBuilt(&'static str),
    /// A backend could not be opened.
    #[error("cannot open the {what}")]
    Backend {
        /// The backend.
        what: &'static str,
        /// The backend's error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The store could not be read or written while the admin token was set up.
    #[error("cannot set up the admin token: {0}")]
    Admin(rollhook_management::Refusal),
}

impl Error {
    /// Returns a function that makes failures of opening `what`.
    pub(crate) fn backend(what: &'static str) -> impl Fn(Box<dyn std::error::Error + Send + Sync>) -> Self {
        move |source| Self::Backend { what, source }
    }

    /// Returns whether repeating the command changes nothing, until a person has put back or replaced what is lost.
    pub const fn needs_a_person(&self) -> bool {
        matches!(self, Self::KeysLost { .. } | Self::AdminTokenSecretLost { .. })
    }

    /// Returns the failure and its sources in one line.
    pub fn chain(&self) -> String {
        rollhook_core::error::chain(self)
    }
}
