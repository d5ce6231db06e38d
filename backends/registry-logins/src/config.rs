//! Docker's `config.json`.

use std::{collections::BTreeMap, io::ErrorKind, path::Path};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use rollhook_core::image::ImageRef;
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::{Login, LoginFailure, LoginScope, helper};

/// The largest file.
const LARGEST: usize = 256 << 10;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Config {
    auths: Option<BTreeMap<String, Option<Entry>>>,
    /// The programs that keep the logins of single registries.
    cred_helpers: Option<BTreeMap<String, String>>,
    /// The program that keeps all others.
    creds_store: Option<String>,
}

#[derive(Default, Deserialize)]
struct Entry {
    #[serde(default)]
    auth: Zeroizing<String>,
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: Zeroizing<String>,
    #[serde(default)]
    identitytoken: Zeroizing<String>,
}

/// The logins of one reading of a file.
pub struct Logins {
    config: Config,
    /// The cause, where the file is there and cannot be read.
    unreadable: Option<String>,
}

/// The place at which a login is kept.
enum Kept {
    /// The file itself.
    File(Login),
    /// The program of this name, which knows it by a name of its own.
    Program(String, String),
    /// Nowhere: an entry is there, without a login.
    Nowhere,
}

impl Logins {
    /// Reads a file. No file means that there are no logins; one that cannot be read is logged.
    pub async fn read(file: &Path) -> Self {
        let logins = Self::parse(text(file).await.as_deref().map_err(String::as_str));
        if let Some(cause) = &logins.unreadable {
            tracing::warn!(file = %file.display(), cause, "reading the registries' logins failed");
        }
        logins
    }

    /// Returns the logins of a file's text, or of none if it could not be read.
    pub fn parse(text: Result<&str, &str>) -> Self {
        // The words of the error name a place in the file, and nothing of its text.
        let read = text.map_err(str::to_owned).and_then(|text| {
            serde_json::from_str(text)
                .map_err(|error| format!("line {}, column {} is not as Docker writes it", error.line(), error.column()))
        });
        match read {
            Ok(config) => Self { config, unreadable: None },
            Err(cause) => Self { config: Config::default(), unreadable: Some(cause) },
        }
    }

    /// Returns the logins that the text itself has, or none if it cannot be read: the programs that it names are not run. It was
    /// written by those who may write to an environment.
    pub fn without_programs(text: &str) -> Self {
        let Config { auths, .. } = Self::parse(Ok(text)).config;
        Self { config: Config { auths, ..Config::default() }, unreadable: None }
    }

    /// Returns the login for an image's repository, and the name of its registry; `None` if there is none. A program that
    /// keeps it is asked for it.
    ///
    /// # Errors
    /// Why the login that there is, or may be, cannot be used.
    pub async fn login(&self, image: &ImageRef) -> Result<Option<(String, Login)>, LoginFailure> {
        self.readable()?;
        let repository = image.canonical_repository();
        let Some((registry, path)) = repository.split_once('/') else { return Ok(None) };
        let found = LoginScope::best(self.entries(), registry, path);
        let name = found.map_or_else(|| LoginScope::key(registry), |(key, _)| key);
        let Some(kept) = self.kept(registry, found) else { return Ok(None) };
        Ok(asked(name, kept).await?.map(|login| (name.to_owned(), login)))
    }

    /// Returns all logins that the file names, by their registries' names, and why others are missing. Those that a program
    /// keeps without an entry in the file are left out.
    pub async fn all(&self) -> (BTreeMap<String, Login>, Vec<LoginFailure>) {
        let mut logins = BTreeMap::new();
        let mut failures = Vec::from_iter(self.readable().err());
        let mut named: BTreeMap<&str, Option<&Entry>> = self.entries().collect();
        for registry in self.config.cred_helpers.iter().flatten().map(|(registry, _)| registry.as_str()) {
            named.entry(registry).or_default();
        }
        for (name, entry) in named {
            let registry = LoginScope::of(name).registry;
            let Some(kept) = self.kept(&registry, Some((name, entry))) else { continue };
            // A program that does not answer is waited for once.
            let is_lost = |program: &String| failures.iter().any(|failure| failure.is_of(program));
            if matches!(&kept, Kept::Program(program, _) if is_lost(program)) {
                continue;
            }
            match asked(name, kept).await {
                Ok(Some(login)) => drop(logins.insert(name.to_owned(), login)),
                Ok(None) => {}
                Err(failure) => failures.push(failure),
            }
        }
        (logins, failures)
    }

    /// Returns `Ok` unless the file is there and cannot be read.
    ///
    /// # Errors
    /// [`LoginFailure::Unreadable`].
    pub fn readable(&self) -> Result<(), LoginFailure> {
        self.unreadable.clone().map_or(Ok(()), |cause| Err(LoginFailure::Unreadable(cause)))
    }

    fn entries(&self) -> impl Iterator<Item = (&str, Option<&Entry>)> {
        self.config.auths.iter().flatten().map(|(key, entry)| (key.as_str(), entry.as_ref()))
    }

    /// Returns where the login of a registry is kept, as Docker looks for it, but that an entry of the file comes before the
    /// program for all others.
    fn kept(&self, registry: &str, found: Option<(&str, Option<&Entry>)>) -> Option<Kept> {
        let helpers = self.config.cred_helpers.iter().flatten();
        let helper = helpers.into_iter().find(|(key, _)| LoginScope::of(key).registry == registry);
        if let Some((key, program)) = helper {
            return Some(Kept::Program(program.clone(), key.clone()));
        }
        if let Some(login) = found.and_then(|(_, entry)| login_of(entry?)) {
            return Some(Kept::File(login));
        }
        if let Some(program) = self.config.creds_store.as_ref().filter(|program| !program.is_empty()) {
            return Some(Kept::Program(program.clone(), LoginScope::key(registry).to_owned()));
        }
        found.map(|_| Kept::Nowhere)
    }
}

async fn asked(name: &str, kept: Kept) -> Result<Option<Login>, LoginFailure> {
    match kept {
        Kept::File(login) => Ok(Some(login)),
        Kept::Program(program, key) => helper::get(&program, &key).await,
        Kept::Nowhere => Err(LoginFailure::Unusable(name.to_owned())),
    }
}

async fn text(file: &Path) -> Result<String, String> {
    let read = async {
        let length = tokio::fs::metadata(file).await?.len();
        if length > LARGEST as u64 {
            return Err(std::io::Error::other("it is too large"));
        }
        tokio::fs::read_to_string(file).await
    };
    match read.await {
        Ok(text) => Ok(text),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok("{}".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn login_of(entry: &Entry) -> Option<Login> {
    if !entry.identitytoken.is_empty() {
        return Some(Login::Identity(entry.identitytoken.clone()));
    }
    if entry.auth.is_empty() {
        return Login::of(&entry.username, &entry.password);
    }
    let decoded = Zeroizing::new(BASE64_STANDARD.decode(entry.auth.as_bytes()).ok()?);
    let (user, password) = std::str::from_utf8(&decoded).ok()?.split_once(':')?;
    Login::of(user, password.trim_matches('\0'))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::HUB_KEY;

    fn logins(config: &Value) -> Logins {
        Logins::parse(Ok(&config.to_string()))
    }

    async fn login(logins: &Logins, image: &str) -> Result<Option<(String, Login)>, LoginFailure> {
        logins.login(&image.parse().unwrap()).await
    }

    fn password(user: &str, password: &str) -> Login {
        Login::Password { user: user.to_owned(), password: Zeroizing::new(password.to_owned()) }
    }

    #[tokio::test]
    async fn login_is_that_of_the_images_registry() {
        let auth = BASE64_STANDARD.encode("ci:hun:ter2");
        let logins = logins(&json!({"auths": {
            "registry.example.com": {"auth": auth},
            "registry.example.com/prod": {"username": "prod", "password": "p"},
            HUB_KEY: {"identitytoken": "t"},
            "none.example.com": null,
            "other.example.com": {},
        }}));
        let of = async |image: &str| login(&logins, image).await;
        let own = ("registry.example.com".to_owned(), password("ci", "hun:ter2"));
        assert_eq!(of("registry.example.com/shop/api:v1").await, Ok(Some(own)));
        let prod = ("registry.example.com/prod".to_owned(), password("prod", "p"));
        assert_eq!(of("registry.example.com/prod/api:v1").await, Ok(Some(prod)));
        let hub = (HUB_KEY.to_owned(), Login::Identity(Zeroizing::new("t".to_owned())));
        assert_eq!(of("nginx").await, Ok(Some(hub)));
        assert_eq!(of("registry.example.com:5000/api:v1").await, Ok(None));
        for without in ["other.example.com", "none.example.com"] {
            let unusable = LoginFailure::Unusable(without.to_owned());
            assert_eq!(of(&format!("{without}/api:v1")).await, Err(unusable), "{without}");
        }
    }

    #[tokio::test]
    async fn build_gets_every_login_that_can_be_read() {
        let auth = BASE64_STANDARD.encode("ci:hunter2");
        let config =
            json!({"auths": {"registry.example.com": {"auth": auth}, HUB_KEY: {"auth": auth}, "b": {"auth": "?"}}});
        let (all, missing) = logins(&config).all().await;
        assert_eq!(all.keys().map(String::as_str).collect::<Vec<_>>(), [HUB_KEY, "registry.example.com"]);
        assert_eq!(all[HUB_KEY], password("ci", "hunter2"));
        assert_eq!(missing, [LoginFailure::Unusable("b".to_owned())]);
    }

    #[tokio::test]
    async fn failure_names_the_place_and_no_word_of_the_file() {
        let image = "registry.example.com/shop/api:v1";
        let cut = Logins::parse(Ok(r#"{"auths": {"registry.example.com": {"auth": "Y2k6aHVudGVyMg=="#));
        let why = login(&cut, image).await.unwrap_err().to_string();
        assert!(why.contains("config.json: line 1") && !why.contains("Y2k6"), "{why}");
        let (all, missing) = cut.all().await;
        assert!(all.is_empty() && missing.len() == 1, "{missing:?}");
        let denied = login(&Logins::parse(Err("Permission denied")), image).await.unwrap_err();
        assert!(denied.to_string().contains("Permission denied"), "{denied}");
        assert_eq!(login(&Logins::parse(Ok("{}")), image).await, Ok(None));
        assert_eq!(login(&Logins::parse(Ok(r#"{"auths": null}"#)), image).await, Ok(None));
    }

    #[tokio::test]
    async fn text_of_an_environment_runs_no_program() {
        let auth = BASE64_STANDARD.encode("ci:hunter2");
        let config = json!({
            "auths": {"registry.example.com": {"auth": auth}, "other.example.com": {}},
            "credHelpers": {"registry.example.com": "evil"}, "credsStore": "evil",
        });
        let logins = Logins::without_programs(&config.to_string());
        let own = ("registry.example.com".to_owned(), password("ci", "hunter2"));
        assert_eq!(login(&logins, "registry.example.com/shop/api:v1").await, Ok(Some(own)));
        let unusable = LoginFailure::Unusable("other.example.com".to_owned());
        assert_eq!(login(&logins, "other.example.com/api:v1").await, Err(unusable));
        assert_eq!(login(&logins, "nginx").await, Ok(None));
        for text in ["", "[]", "{\"auths\": 7}"] {
            assert_eq!(login(&Logins::without_programs(text), "nginx").await, Ok(None), "{text}");
        }
    }

    #[tokio::test]
    async fn file_that_is_missing_has_no_logins_and_a_huge_one_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let missing = Logins::read(&directory.path().join("no/config.json")).await;
        assert_eq!(missing.readable(), Ok(()));
        let huge = directory.path().join("config.json");
        std::fs::write(&huge, " ".repeat(LARGEST + 1)).unwrap();
        assert!(matches!(Logins::read(&huge).await.readable(), Err(LoginFailure::Unreadable(_))));
    }
}
