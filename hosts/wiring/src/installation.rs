//! The Secrets of an installation in a cluster: keys and admin token, made once.

use std::{collections::BTreeMap, fs, path::Path};

use rollhook_core::app::Namespace;

use crate::{Error, admin, keys};

/// The Secrets that servers in a cluster are given: keys, and the admin token.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct Installation {
    /// The namespace that the server runs in [default: the connection's]
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAMESPACE"))]
    pub namespace: Option<Namespace>,
    /// The Secret of the keys that tokens are sealed with
    #[cfg_attr(feature = "clap", arg(long, default_value = "rollhook-keys", value_name = "NAME"))]
    pub keys: String,
    /// The Secret of the admin token
    #[cfg_attr(feature = "clap", arg(long, default_value = "rollhook-admin-token", value_name = "NAME"))]
    pub admin_token: String,
    /// Name of this run and its repetitions: a repetition makes the Secret that a stopped run left out
    #[cfg_attr(feature = "clap", arg(long, env = "ROLLHOOK_SECRETS_RUN", value_name = "NAME"))]
    pub run: Option<String>,
}

/// A Secret of an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstalledSecret {
    /// Its namespace and name.
    pub name: String,
    /// Whether it was made; otherwise it was there.
    pub made: bool,
}

impl Installation {
    /// Makes the Secrets that do not exist. Returns both; one that exists is left as it is.
    ///
    /// # Errors
    /// If one of the two is lost while the other is there, the cluster does not answer, or it refuses a Secret.
    #[cfg(feature = "kubernetes")]
    pub async fn make(&self) -> Result<[InstalledSecret; 2], Error> {
        use rollhook_kubernetes::InstallationSecrets;

        let fail = |error: rollhook_core::Error| Error::backend("cluster's Secrets")(error.into());
        let secrets = InstallationSecrets::connect(self.namespace.as_ref().map(Namespace::as_str)).await;
        let secrets = secrets.map_err(fail)?;
        let found_keys = secrets.find(&self.keys).await.map_err(fail)?;
        let has_token = secrets.find(&self.admin_token).await.map_err(fail)?.is_some();
        let has_keys = found_keys.is_some();
        self.check(found_keys.map(|found| found.run), has_token)?;
        let draft = tempfile::tempdir().map_err(|source| unwritable(&std::env::temp_dir(), source))?;
        // The keys first: where the token is, they have been made.
        let made = async |name: &str, exists: bool, make: &dyn Fn(&Path) -> Result<(), Error>| {
            let (shown, directory) = (format!("{}/{name}", secrets.namespace()), draft.path().join(name));
            if exists {
                return Ok::<_, Error>(InstalledSecret { name: shown, made: false });
            }
            fs::create_dir(&directory).map_err(|source| unwritable(&directory, source))?;
            make(&directory)?;
            let made = secrets.create(name, files(&directory)?, self.run.as_deref()).await.map_err(fail)?;
            Ok(InstalledSecret { name: shown, made })
        };
        Ok([
            made(&self.keys, has_keys, &|directory| keys::create(directory).map(drop)).await?,
            made(&self.admin_token, has_token, &|directory| admin::create(&directory.join("admin-token"))).await?,
        ])
    }

    /// Refuses to make one Secret anew beside the other: other keys open no stored token, and servers refuse another
    /// admin token than the store knows. `keys` is the run that made the keys, if they are there.
    #[cfg(feature = "kubernetes")]
    fn check(&self, keys: Option<Option<String>>, has_token: bool) -> Result<(), Error> {
        let [keys_name, token_name] = [&self.keys, &self.admin_token].map(String::clone);
        match keys {
            None if has_token => Err(Error::KeysLost { keys: keys_name, admin_token: token_name }),
            // Made by this very run, which was stopped before it came to the admin token.
            Some(run) if !has_token && (run.is_none() || run != self.run) => {
                Err(Error::AdminTokenSecretLost { keys: keys_name, admin_token: token_name })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Makes the Secrets that do not exist.
    ///
    /// # Errors
    /// This binary lacks Kubernetes.
    #[cfg(not(feature = "kubernetes"))]
    pub async fn make(&self) -> Result<[InstalledSecret; 2], Error> {
        Err(Error::NotBuilt("kubernetes store"))
    }
}

/// The files of a directory, as a Secret has them.
#[cfg(feature = "kubernetes")]
fn files(directory: &Path) -> Result<BTreeMap<String, Vec<u8>>, Error> {
    let read = || {
        let file =
            |entry: fs::DirEntry| Ok((entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path())?));
        fs::read_dir(directory)?.map(|entry| file(entry?)).collect::<std::io::Result<_>>()
    };
    read().map_err(|source| Error::File { doing: "read", path: directory.to_owned(), source })
}

#[cfg(feature = "kubernetes")]
fn unwritable(path: &Path, source: std::io::Error) -> Error {
    Error::File { doing: "write to", path: path.to_owned(), source }
}

#[cfg(all(test, feature = "kubernetes"))]
mod tests {
    use super::*;

    #[test]
    fn neither_secret_is_made_anew_beside_the_other_but_by_the_run_that_was_stopped_between_them() {
        let installation = |run: Option<&str>| Installation {
            namespace: None,
            keys: "keys".to_owned(),
            admin_token: "admin-token".to_owned(),
            run: run.map(str::to_owned),
        };
        let named = |run: &str| Some(Some(run.to_owned()));
        let one = installation(Some("one"));
        for (keys, has_token) in [(None, false), (named("one"), false), (named("one"), true), (Some(None), true)] {
            assert!(one.check(keys, has_token).is_ok());
        }
        assert!(matches!(one.check(None, true), Err(Error::KeysLost { .. })));
        for (installation, keys) in [(&one, named("two")), (&one, Some(None)), (&installation(None), Some(None))] {
            let lost = installation.check(keys, false).unwrap_err();
            assert!(matches!(lost, Error::AdminTokenSecretLost { .. }) && lost.needs_a_person());
        }
    }
}
