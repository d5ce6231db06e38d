//! The logins of registries, from docker's `config.json` of the user that this process runs as.

use std::{collections::BTreeMap, io::ErrorKind, path::PathBuf};

use base64::{Engine as _, prelude::BASE64_STANDARD, prelude::BASE64_URL_SAFE};
use rollhook_core::image::ImageRef;
use serde::Deserialize;
use serde_json::{Value, json};

/// The name of Docker Hub in `config.json`.
const HUB: &str = "https://index.docker.io/v1/";

#[derive(Default, Deserialize)]
struct Config {
    #[serde(default)]
    auths: BTreeMap<String, Entry>,
}

#[derive(Default, Deserialize)]
struct Entry {
    #[serde(default)]
    auth: String,
}

/// The logins of one reading of the file. It is read each time, so that a login may be renewed.
pub(crate) struct Logins {
    config: Config,
    /// The cause, where the file is there and cannot be read: the registries are asked without a login.
    unreadable: Option<String>,
}

/// Reads `$DOCKER_CONFIG/config.json`, or `~/.docker/config.json`. No file means that there are no logins.
pub(crate) async fn read() -> Logins {
    let Some(file) = file() else { return Logins::parse(Ok("{}")) };
    let text = match tokio::fs::read_to_string(&file).await {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok("{}".to_owned()),
        Err(error) => Err(error.to_string()),
        Ok(text) => Ok(text),
    };
    let logins = Logins::parse(text.as_deref().map_err(String::as_str));
    if let Some(cause) = &logins.unreadable {
        tracing::warn!(file = %file.display(), cause, "reading the registries' logins failed");
    }
    logins
}

fn file() -> Option<PathBuf> {
    let directory = std::env::var_os("DOCKER_CONFIG").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".docker"));
    Some(directory.or_else(home)?.join("config.json"))
}

impl Logins {
    fn parse(text: Result<&str, &str>) -> Self {
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

    /// Returns the value of `X-Registry-Auth` for an image; `None` if there is no login of its registry.
    pub(crate) fn header(&self, image: &ImageRef) -> Option<String> {
        let (name, entry) = self.entry(image)?;
        Some(BASE64_URL_SAFE.encode(login_of(name, entry)?.to_string()))
    }

    fn entry(&self, image: &ImageRef) -> Option<(&String, &Entry)> {
        let repository = image.canonical_repository();
        let host = repository.split('/').next()?;
        let names = match host {
            "docker.io" => vec![HUB.to_owned(), host.to_owned()],
            host => vec![
                host.to_owned(),
                format!("https://{host}"),
                format!("https://{host}/v1/"),
                format!("https://{host}/v2/"),
            ],
        };
        names.iter().find_map(|name| self.config.auths.get_key_value(name))
    }

    /// Returns all logins, by the registries' names, as a build gets them.
    pub(crate) fn all(&self) -> BTreeMap<String, Value> {
        let auths = self.config.auths.iter();
        auths.filter_map(|(name, entry)| Some((name.clone(), login_of(name, entry)?))).collect()
    }

    /// Returns the words of an image's failure, with those of a missing login that may have caused it.
    pub(crate) fn explain(&self, image: &ImageRef, failure: String) -> String {
        let helper = || {
            let (name, entry) = self.entry(image)?;
            let missing = "no login that the server can use; credential helpers are not asked";
            login_of(name, entry).is_none().then(|| format!("the server's config.json has of {name} {missing}"))
        };
        match self.missing().or_else(helper) {
            Some(missing) => format!("{failure} ({missing})"),
            None => failure,
        }
    }

    /// Returns why the logins are missing, where the file is there and cannot be read.
    pub(crate) fn missing(&self) -> Option<String> {
        let cause = self.unreadable.as_ref()?;
        Some(format!("registries are asked without a login, as the server cannot read its config.json: {cause}"))
    }
}

fn login_of(name: &str, entry: &Entry) -> Option<Value> {
    let decoded = BASE64_STANDARD.decode(&entry.auth).ok()?;
    let decoded = String::from_utf8(decoded).ok()?;
    let (user, password) = decoded.split_once(':')?;
    Some(json!({ "username": user, "password": password, "serveraddress": name }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logins(config: &Value) -> Logins {
        Logins::parse(Ok(&config.to_string()))
    }

    #[test]
    fn login_is_that_of_the_images_registry() {
        let auth = BASE64_STANDARD.encode("ci:hun:ter2");
        let logins = logins(
            &json!({"auths": {"registry.example.com": {"auth": auth}, HUB: {"auth": auth}, "other.example.com": {}}}),
        );
        let login = |image: &str| {
            let header = logins.header(&image.parse().unwrap())?;
            Some(String::from_utf8(BASE64_URL_SAFE.decode(header).unwrap()).unwrap())
        };
        assert!(login("registry.example.com/shop/api:v1").unwrap().contains("\"password\":\"hun:ter2\""));
        assert!(login("nginx").unwrap().contains("index.docker.io"));
        for without in ["other.example.com/api:v1", "registry.example.com:5000/api:v1"] {
            assert_eq!(login(without), None, "{without}");
        }
    }

    #[test]
    fn build_gets_every_login_that_can_be_read() {
        let auth = BASE64_STANDARD.encode("ci:hunter2");
        let config =
            json!({"auths": {"registry.example.com": {"auth": auth}, HUB: {"auth": auth}, "b": {"auth": "?"}}});
        let all = logins(&config).all();
        assert_eq!(all.keys().map(String::as_str).collect::<Vec<_>>(), [HUB, "registry.example.com"]);
        assert_eq!(all[HUB]["username"], "ci");
    }

    #[test]
    fn failure_says_if_the_logins_could_not_be_read_and_tells_none() {
        let told = |logins: &Logins, image: &str| logins.explain(&image.parse().unwrap(), "unauthorized".to_owned());
        let image = "registry.example.com/shop/api:v1";
        let cut = Logins::parse(Ok(r#"{"auths": {"registry.example.com": {"auth": "Y2k6aHVudGVyMg=="#));
        assert!(cut.all().is_empty());
        let said = told(&cut, image);
        assert!(said.starts_with("unauthorized (") && said.contains("config.json: line 1"), "{said}");
        assert!(!said.contains("Y2k6"), "{said}");
        assert!(told(&Logins::parse(Err("Permission denied")), image).contains("Permission denied"));
        assert_eq!(told(&Logins::parse(Ok("{}")), image), "unauthorized");
        let helper = logins(&json!({"credsStore": "desktop", "auths": {"registry.example.com": {}}}));
        assert!(told(&helper, image).contains("registry.example.com no login"), "{}", told(&helper, image));
        assert_eq!(told(&helper, "other.example.com/api:v1"), "unauthorized");
    }
}
