//! Credentials that a source names: a file of that name in the operator's directory.
//!
//! For https the file holds `USER:PASSWORD`, or a token alone; for ssh it is a private key without a passphrase. Beside them
//! may be the file `known_hosts`, with the keys of the hosts that ssh may talk to: no credentials have such a name.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use rollhook_core::source::GitSource;

mod key;

use key::Kind;

/// The credentials of a source. There is no `Debug`, so that no log shows them.
#[derive(Default)]
pub struct Credentials {
    /// The header of every request.
    header: Option<String>,
    /// The file of ssh's private key; `None`: the keys of the server's user.
    key: Option<PathBuf>,
    /// The file of the hosts' keys; `None`: the one of the server's user.
    known_hosts: Option<PathBuf>,
}

/// The user that goes with a token, which git hosts ignore.
const TOKEN_USER: &str = "x-access-token";
/// No name of credentials has an underscore.
const KNOWN_HOSTS: &str = "known_hosts";

impl Credentials {
    /// Reads the credentials of a source from the operator's directory.
    ///
    /// # Errors
    /// A sentence for people, if there are none or they cannot be used.
    pub fn find(source: &GitSource, directory: Option<&Path>) -> Result<Self, String> {
        if source.url.protocol() == "ssh" {
            return Self::for_ssh(source, directory);
        }
        let Some((_, text)) = named(source, directory)? else { return Ok(Self::default()) };
        let text = text.trim();
        let pair = if text.contains(':') { text.to_owned() } else { format!("{TOKEN_USER}:{text}") };
        Ok(Self { header: Some(format!("Authorization: Basic {}", STANDARD.encode(pair))), ..Self::default() })
    }

    fn for_ssh(source: &GitSource, directory: Option<&Path>) -> Result<Self, String> {
        let known_hosts = match directory {
            Some(directory) => known_hosts(directory)?,
            None => None,
        };
        let Some((file, text)) = named(source, directory)? else { return Ok(Self { known_hosts, ..Self::default() }) };
        let name = source.credentials.as_ref().map(ToString::to_string).unwrap_or_default();
        match Kind::of(&text) {
            Kind::Open => Ok(Self { key: Some(file), known_hosts, ..Self::default() }),
            Kind::Locked => Err(format!(
                "The private key of the credentials {name} has a passphrase, which cannot be typed here: store it \
                 without one (ssh-keygen -p)."
            )),
            Kind::None => Err(format!("The credentials {name} are no private key, which a source over ssh needs.")),
        }
    }

    pub(crate) fn header(&self) -> Option<&str> {
        self.header.as_deref()
    }

    pub(crate) fn key(&self) -> Option<&Path> {
        self.key.as_deref()
    }

    pub(crate) fn known_hosts(&self) -> Option<&Path> {
        self.known_hosts.as_deref()
    }
}

/// Returns the path and the text of a source's credentials; `None` if the source names none.
///
/// The path keeps its links: when a cluster replaces the files of a mounted Secret, the targets of the links go away, also
/// in the middle of a build.
fn named(source: &GitSource, directory: Option<&Path>) -> Result<Option<(PathBuf, String)>, String> {
    let Some(name) = &source.credentials else { return Ok(None) };
    let Some(directory) = directory else {
        return Err(format!(
            "The source names the credentials {name}, and this server has none (--build-credentials)."
        ));
    };
    // A name is letters, digits and hyphens: it does not lead out of the directory.
    let file = directory.join(name.as_str());
    let read = || Ok((std::path::absolute(&file)?, fs::read(&file)?));
    let failed = |error: io::Error| {
        tracing::warn!(file = %file.display(), %error, "reading credentials failed");
        format!("The builder has no credentials named {name} that it can read.")
    };
    let (path, bytes) = read().map_err(failed)?;
    Ok(Some((path, String::from_utf8_lossy(&bytes).into_owned())))
}

/// Returns the path of the hosts' keys; `None` if the directory has none.
fn known_hosts(directory: &Path) -> Result<Option<PathBuf>, String> {
    let file = directory.join(KNOWN_HOSTS);
    // ssh takes a file that it cannot read for an empty one.
    match File::open(&file).and_then(|_| std::path::absolute(&file)) {
        Ok(path) => Ok(Some(path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => {
            tracing::warn!(file = %file.display(), %error, "reading known_hosts failed");
            Err("The file known_hosts beside the credentials cannot be read.".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const KEY: &str = "-----BEGIN PRIVATE KEY-----\n";

    fn source(url: &str, credentials: Option<&str>) -> GitSource {
        let mut source = rollhook_conformance::samples::git_source();
        source.url = url.parse().unwrap();
        source.credentials = credentials.map(|name| name.parse().unwrap());
        source
    }

    #[test]
    fn ssh_files_are_named_by_their_links() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::create_dir(path("..2026")).unwrap();
        fs::write(path("..2026/deploy"), KEY).unwrap();
        symlink("..2026", path("..data")).unwrap();
        symlink("..data/deploy", path("deploy")).unwrap();
        let deploy = source("git@git.example.com:api.git", Some("deploy"));
        let found = Credentials::find(&deploy, Some(directory.path())).unwrap();
        assert_eq!((found.key(), found.known_hosts()), (Some(&*path("deploy")), None));
        fs::write(path("known_hosts"), "").unwrap();
        for name in [None, Some("deploy")] {
            let source = source("git@git.example.com:api.git", name);
            let found = Credentials::find(&source, Some(directory.path())).unwrap();
            assert_eq!(found.known_hosts(), Some(&*path("known_hosts")), "{name:?}");
        }
    }

    #[test]
    fn each_protocol_has_its_own_credentials() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("token"), "t0ken\n").unwrap();
        let find = |url| Credentials::find(&source(url, Some("token")), Some(directory.path()));
        let https = find("https://git.example.com/api.git").unwrap();
        let sent = format!("Authorization: Basic {}", STANDARD.encode("x-access-token:t0ken"));
        assert_eq!((https.header(), https.key(), https.known_hosts()), (Some(&*sent), None, None));
        let told = find("ssh://git@git.example.com/api.git").map(drop).unwrap_err();
        assert!(told.contains("no private key") && !told.contains("t0ken"), "{told}");
    }
}
