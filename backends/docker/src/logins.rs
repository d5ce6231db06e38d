//! The logins of registries, from docker's `config.json` of the user that this process runs as.

use std::{collections::BTreeMap, path::PathBuf};

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

/// The file of the logins: `$DOCKER_CONFIG/config.json`, or `~/.docker/config.json`.
pub(crate) fn file() -> Option<PathBuf> {
    let directory = std::env::var_os("DOCKER_CONFIG").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".docker"));
    Some(directory.or_else(home)?.join("config.json"))
}

/// Returns the value of `X-Registry-Auth` for an image; `None` if there is no login of its registry. The file is read
/// each time, so that a login may be renewed.
pub(crate) async fn login(image: &ImageRef) -> Option<String> {
    let text = tokio::fs::read_to_string(file()?).await.ok()?;
    header(&text, image)
}

/// Returns all logins, by the registries' names, as a build gets them.
pub(crate) async fn all() -> BTreeMap<String, Value> {
    let Some(file) = file() else { return BTreeMap::new() };
    tokio::fs::read_to_string(file).await.map(|text| entries(&text)).unwrap_or_default()
}

fn entries(config: &str) -> BTreeMap<String, Value> {
    let config: Config = serde_json::from_str(config).unwrap_or_default();
    let entries = config.auths.into_iter().filter_map(|(name, entry)| {
        let login = login_of(&name, &entry)?;
        Some((name, login))
    });
    entries.collect()
}

fn header(config: &str, image: &ImageRef) -> Option<String> {
    let config: Config = serde_json::from_str(config).ok()?;
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
    let (name, entry) = names.iter().find_map(|name| config.auths.get_key_value(name))?;
    Some(BASE64_URL_SAFE.encode(login_of(name, entry)?.to_string()))
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

    #[test]
    fn login_is_that_of_the_images_registry() {
        let auth = BASE64_STANDARD.encode("ci:hun:ter2");
        let config =
            json!({"auths": {"registry.example.com": {"auth": auth}, HUB: {"auth": auth}, "other.example.com": {}}});
        let login = |image: &str| {
            let header = header(&config.to_string(), &image.parse().unwrap())?;
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
        let entries = entries(&config.to_string());
        assert_eq!(entries.keys().map(String::as_str).collect::<Vec<_>>(), [HUB, "registry.example.com"]);
        assert_eq!(entries[HUB]["username"], "ci");
        assert!(super::entries("{").is_empty());
    }
}
