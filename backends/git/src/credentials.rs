//! Credentials that a source names: a file of that name in the operator's directory.
//!
//! For https the file holds lines as `git-credential-store` has them, `https://USER:PASSWORD@HOST/PATH`: a user and a
//! password, and the URLs that they are for. For ssh it is a private key without a passphrase; the file `NAME.url`
//! beside it has the URLs, `ssh://USER@HOST/PATH`. Credentials are sent to no other URL.
//!
//! Beside them may be the file `known_hosts`, with the keys of the hosts that ssh may talk to. No credentials have the
//! name of such a file.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use rollhook_core::source::{CredentialsName, GitSource};

mod key;
mod scope;

use key::Kind;
use scope::{Login, Scope};

/// The credentials of a source. There is no `Debug`, so that no log shows them.
#[derive(Default)]
pub struct Credentials {
    /// The header of requests.
    header: Option<Header>,
    /// The file of ssh's private key; `None`: the keys of the server's user.
    key: Option<PathBuf>,
    /// The file of the hosts' keys; `None`: the one of the server's user.
    known_hosts: Option<PathBuf>,
}

/// A header, and the URL below which it is sent.
pub(crate) struct Header {
    pub(crate) below: String,
    pub(crate) text: String,
}

/// The files of one source's credentials, with what is for that source alone: for a builder elsewhere.
pub struct CredentialFiles {
    /// The file of the credentials' name.
    pub secret: Vec<u8>,
    /// The file of the URLs, with `.url` at the end of its name.
    pub urls: Option<Vec<u8>>,
}

/// No name of credentials has an underscore.
const KNOWN_HOSTS: &str = "known_hosts";

impl Credentials {
    /// Reads the credentials of a source from the operator's directory.
    ///
    /// # Errors
    /// A sentence for people, if there are none or they cannot be used for the source.
    pub fn find(source: &GitSource, directory: Option<&Path>) -> Result<Self, String> {
        let known_hosts = match directory.filter(|_| is_ssh(source)) {
            Some(directory) => known_hosts(directory)?,
            None => None,
        };
        let Some(named) = Named::find(source, directory)? else { return Ok(Self { known_hosts, ..Self::default() }) };
        if is_ssh(source) {
            named.check_key()?;
            named.urls()?;
            return Ok(Self { key: Some(named.file), known_hosts, ..Self::default() });
        }
        let (_, scope, Login { user, password }) = named.login()?;
        let text = format!("Authorization: Basic {}", STANDARD.encode(format!("{user}:{password}")));
        Ok(Self { header: Some(Header { below: scope.url(), text }), ..Self::default() })
    }

    pub(crate) fn header(&self) -> Option<&Header> {
        self.header.as_ref()
    }

    pub(crate) fn key(&self) -> Option<&Path> {
        self.key.as_deref()
    }

    pub(crate) fn known_hosts(&self) -> Option<&Path> {
        self.known_hosts.as_deref()
    }
}

impl CredentialFiles {
    /// Reads the files of a source's credentials from the operator's directory; `None` if the source names none.
    ///
    /// # Errors
    /// A sentence for people, if there are none or they cannot be used for the source.
    pub fn find(source: &GitSource, directory: Option<&Path>) -> Result<Option<Self>, String> {
        let Some(named) = Named::find(source, directory)? else { return Ok(None) };
        Ok(Some(if is_ssh(source) {
            let urls = Some(named.urls()?.into_bytes());
            Self { secret: named.text.into_bytes(), urls }
        } else {
            let (line, ..) = named.login()?;
            Self { secret: line.as_bytes().to_vec(), urls: None }
        }))
    }
}

/// The credentials that a source names.
struct Named<'a> {
    name: &'a CredentialsName,
    source: &'a GitSource,
    /// The path keeps its links: when a cluster replaces the files of a mounted Secret, the targets of the links go
    /// away, also in the middle of a build.
    file: PathBuf,
    text: String,
}

impl<'a> Named<'a> {
    /// Reads the credentials; `None` if the source names none.
    fn find(source: &'a GitSource, directory: Option<&Path>) -> Result<Option<Self>, String> {
        let Some(name) = &source.credentials else { return Ok(None) };
        let Some(directory) = directory else {
            return Err(format!(
                "The source names the credentials {name}, and this server has none (--build-credentials)."
            ));
        };
        // A name is letters, digits and hyphens: it does not lead out of the directory.
        let file = directory.join(name.as_str());
        let read = || Ok((std::path::absolute(&file)?, read(&file)?));
        let failed = |error: io::Error| {
            tracing::warn!(file = %file.display(), %error, "reading credentials failed");
            format!("The builder has no credentials named {name} that it can read.")
        };
        let (file, text) = read().map_err(failed)?;
        Ok(Some(Self { name, source, file, text }))
    }

    /// Returns the line whose login is for the source, its URLs and the login.
    fn login(&self) -> Result<(&str, Scope, Login), String> {
        let lines = lines(&self.text).map(|line| match Scope::parse(line) {
            Some((scope, Some(login))) => Some((line, scope, login)),
            Some((_, None)) | None => None,
        });
        // An unreadable line is passed over as git passes it over, unless there is no other.
        let read: Vec<_> = lines.flatten().collect();
        if read.is_empty() {
            return Err(format!(
                "The credentials {} name no URL that they are for: their file must hold https://USER:PASSWORD@HOST/PATH.",
                self.name
            ));
        }
        read.into_iter().find(|(_, scope, _)| self.is_for_source(scope)).ok_or_else(|| self.foreign())
    }

    /// Returns the URL that the key is for and that covers the source.
    fn urls(&self) -> Result<String, String> {
        let file = self.file.with_file_name(format!("{}.url", self.name));
        let text = read(&file).map_err(|error| {
            tracing::warn!(file = %file.display(), %error, "reading the URLs of credentials failed");
            let name = self.name;
            format!(
                "The credentials {name} name no URL that they are for: a file {name}.url beside the key must hold \
                 ssh://USER@HOST/PATH."
            )
        })?;
        let covers = |line: &&str| Scope::parse(line).is_some_and(|(scope, _)| self.is_for_source(&scope));
        lines(&text).find(covers).map(str::to_owned).ok_or_else(|| self.foreign())
    }

    fn check_key(&self) -> Result<(), String> {
        let name = self.name;
        match Kind::of(&self.text) {
            Kind::Open => Ok(()),
            Kind::Locked => Err(format!(
                "The private key of the credentials {name} has a passphrase, which cannot be typed here: store it \
                 without one (ssh-keygen -p)."
            )),
            Kind::None => Err(format!("The credentials {name} are no private key, which a source over ssh needs.")),
        }
    }

    fn is_for_source(&self, scope: &Scope) -> bool {
        Scope::parse(self.source.url.as_str()).is_some_and(|(source, _)| scope.covers(&source))
    }

    fn foreign(&self) -> String {
        format!(
            "The credentials {} are not for {}: the operator keeps them for other URLs, and they are sent nowhere else.",
            self.name, self.source.url
        )
    }
}

fn is_ssh(source: &GitSource) -> bool {
    source.url.protocol() == "ssh"
}

/// The largest file of credentials.
const LARGEST: usize = 256 << 10;

fn read(file: &Path) -> io::Result<String> {
    let bytes = fs::read(file)?;
    if bytes.len() > LARGEST {
        return Err(io::Error::other("the file is too large for credentials"));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the lines of a file, without blank ones and comments.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
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
        fs::write(path("..2026/deploy.url"), "ssh://git@git.example.com\n").unwrap();
        symlink("..2026", path("..data")).unwrap();
        symlink("..data/deploy", path("deploy")).unwrap();
        symlink("..data/deploy.url", path("deploy.url")).unwrap();
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

    /// A directory with the credentials `token`, for two hosts, and `deploy`, a key for one.
    fn directory() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        write(
            "token",
            "# shop\nhttps://ci:t0ken@git.example.com/shop/\n\nhttps://ada:hunter2@other.example.com\nnonsense\n",
        );
        write("deploy", KEY);
        write("deploy.url", "ssh://git@git.example.com/shop\nssh://other.example.com\n");
        directory
    }

    #[test]
    fn credentials_are_sent_to_the_urls_that_they_name_and_to_no_other() {
        let directory = directory();
        let find = |url, name| Credentials::find(&source(url, Some(name)), Some(directory.path()));
        for (url, below, login) in [
            ("https://git.example.com/shop/api.git", "https://git.example.com/shop/", "ci:t0ken"),
            ("https://other.example.com/any/api.git", "https://other.example.com/", "ada:hunter2"),
        ] {
            let found = find(url, "token").unwrap();
            let header = found.header().unwrap();
            assert_eq!(header.text, format!("Authorization: Basic {}", STANDARD.encode(login)));
            assert_eq!((header.below.as_str(), found.key()), (below, None));
        }
        assert!(find("git@git.example.com:shop/api.git", "deploy").unwrap().key().is_some());
        for (url, name) in [
            ("https://git.example.com/shops/api.git", "token"),
            ("https://git.example.com:8443/shop/api.git", "token"),
            ("http://git.example.com/shop/api.git", "token"),
            ("https://evil.example/shop/api.git", "token"),
            ("ssh://git@evil.example/shop/api.git", "deploy"),
            ("ssh://root@git.example.com/shop/api.git", "deploy"),
        ] {
            let told = find(url, name).map(drop).unwrap_err();
            assert!(told.starts_with(&format!("The credentials {name} are not for {url}")), "{told}");
            assert!(!told.contains("other.example.com") && !told.contains("hunter2"), "{told}");
        }
    }

    #[test]
    fn credentials_without_a_url_are_refused() {
        let directory = directory();
        let find = |url, name| Credentials::find(&source(url, Some(name)), Some(directory.path())).map(drop);
        for text in ["t0ken", "ci:t0ken", "https://t0ken@git.example.com/"] {
            fs::write(directory.path().join("token"), text).unwrap();
            let told = find("https://git.example.com/api.git", "token").unwrap_err();
            assert!(told.contains("https://USER:PASSWORD@HOST/PATH") && !told.contains("t0ken"), "{told}");
        }
        fs::remove_file(directory.path().join("deploy.url")).unwrap();
        let told = find("ssh://git@git.example.com/api.git", "deploy").unwrap_err();
        assert!(told.contains("a file deploy.url"), "{told}");
        let told = find("ssh://git@git.example.com/api.git", "token").unwrap_err();
        assert!(told.contains("no private key") && !told.contains("t0ken"), "{told}");
    }

    #[test]
    fn builder_elsewhere_gets_what_is_for_its_source_alone() {
        let directory = directory();
        let files = |url, name| CredentialFiles::find(&source(url, name), Some(directory.path()));
        let https = files("https://git.example.com/shop/api.git", Some("token")).unwrap().unwrap();
        assert_eq!((https.secret, https.urls), (b"https://ci:t0ken@git.example.com/shop/".to_vec(), None));
        let ssh = files("git@git.example.com:shop/api.git", Some("deploy")).unwrap().unwrap();
        assert_eq!(ssh.secret, KEY.as_bytes());
        assert_eq!(ssh.urls, Some(b"ssh://git@git.example.com/shop".to_vec()));
        assert!(files("https://evil.example/shop/api.git", Some("token")).is_err());
        assert!(files("https://evil.example/shop/api.git", None).unwrap().is_none());
    }
}
