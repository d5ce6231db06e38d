//! Logins, and why there is none.

use std::fmt;

use zeroize::Zeroizing;

/// A login of a registry.
#[derive(Clone, PartialEq, Eq)]
pub enum Login {
    /// A user's name and password, or what a registry takes in their place.
    Password {
        /// The name.
        user: String,
        /// The password.
        password: Zeroizing<String>,
    },
    /// A token by which the registry's token server knows the user.
    Identity(Zeroizing<String>),
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login(…)")
    }
}

impl Login {
    /// Returns the login of a name and a secret, of which the name may say that the secret is a token.
    pub(crate) fn of(user: &str, secret: &str) -> Option<Self> {
        let secret = Zeroizing::new(secret.to_owned());
        match (user, secret.is_empty()) {
            (_, true) => None,
            ("<token>", false) => Some(Self::Identity(secret)),
            (user, false) => Some(Self::Password { user: user.to_owned(), password: secret }),
        }
    }
}

/// The reason why a login that there may be cannot be used. No words of the file, nor of a program, are in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginFailure {
    /// The file is there and cannot be read.
    #[error("the server cannot read its config.json: {0}")]
    Unreadable(String),
    /// The entry has no login, and no program is named that may have one.
    #[error("the server's config.json has of {0} no login that the server can use")]
    Unusable(String),
    /// The program that keeps the login does not return it.
    #[error("{program}, which the server's config.json names, {why}")]
    Helper {
        /// The program's name.
        program: String,
        /// The failure, as the end of a sentence about it.
        why: String,
    },
}

impl LoginFailure {
    /// Returns whether it is the failure of the program that is named so.
    pub(crate) fn is_of(&self, name: &str) -> bool {
        matches!(self, Self::Helper { program, .. } if program.strip_prefix("docker-credential-") == Some(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_has_no_part_of_a_login() {
        for (user, secret) in [("ada", "hunter2"), ("<token>", "hunter2")] {
            let login = Login::of(user, secret).unwrap();
            assert_eq!(format!("{login:?}"), "Login(…)");
        }
        assert_eq!(Login::of("ada", ""), None);
    }
}
