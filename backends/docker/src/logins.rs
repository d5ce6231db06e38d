//! The logins of registries, as the engine wants them: those of docker's `config.json` of the user that this process runs as.

use base64::{Engine as _, prelude::BASE64_URL_SAFE};
use rollhook_core::image::ImageRef;
use rollhook_registry_logins::{Login, LoginFailure, LoginFiles, Logins};
use serde_json::{Map, Value, json};

/// The login for a pull.
pub(crate) struct PullLogin {
    /// The value of `X-Registry-Auth`; `None` if there is no login of the registry.
    pub(crate) header: Option<String>,
    /// Why a login that there may be is missing: the registry is asked without one.
    missing: Option<LoginFailure>,
}

/// The logins for a build.
pub(crate) struct BuildLogins {
    /// The value of `X-Registry-Config`.
    pub(crate) header: String,
    /// Why logins that there may be are missing.
    pub(crate) missing: Vec<String>,
}

/// Reads `$DOCKER_CONFIG/config.json`, or `~/.docker/config.json`: each time, so that a login may be renewed. No file means
/// that there are no logins.
async fn read() -> Logins {
    match LoginFiles::of_user() {
        Some(file) => Logins::read(&file).await,
        None => Logins::parse(Ok("{}")),
    }
}

/// Returns the login for pulling an image.
pub(crate) async fn for_pull(image: &ImageRef) -> PullLogin {
    PullLogin::of(&read().await, image).await
}

/// Returns all logins, by the registries' names, as a build gets them.
pub(crate) async fn for_build() -> BuildLogins {
    BuildLogins::of(&read().await).await
}

impl PullLogin {
    async fn of(logins: &Logins, image: &ImageRef) -> Self {
        match logins.login(image).await {
            Ok(login) => {
                let header = login.map(|(name, login)| BASE64_URL_SAFE.encode(document(&name, &login).to_string()));
                Self { header, missing: None }
            }
            Err(failure) => Self { header: None, missing: Some(failure) },
        }
    }

    /// Returns the words of an image's failure, with those of a missing login that may have caused it.
    pub(crate) fn explain(&self, failure: String) -> String {
        match &self.missing {
            Some(missing) => format!("{failure} (the registry was asked without a login: {missing})"),
            None => failure,
        }
    }
}

impl BuildLogins {
    async fn of(logins: &Logins) -> Self {
        let (all, missing) = logins.all().await;
        let documents: Map<String, Value> =
            all.iter().map(|(name, login)| (name.clone(), document(name, login))).collect();
        Self {
            header: BASE64_URL_SAFE.encode(Value::Object(documents).to_string()),
            missing: missing.iter().map(|why| format!("Registries are asked without a login: {why}.")).collect(),
        }
    }
}

fn document(name: &str, login: &Login) -> Value {
    match login {
        Login::Password { user, password } => {
            json!({ "username": user, "password": **password, "serveraddress": name })
        }
        Login::Identity(token) => json!({ "identitytoken": **token, "serveraddress": name }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(header: &str) -> Value {
        serde_json::from_slice(&BASE64_URL_SAFE.decode(header).unwrap()).unwrap()
    }

    fn logins() -> Logins {
        let config = json!({"auths": {
            "registry.example.com": {"username": "ci", "password": "hunter2"},
            "https://index.docker.io/v1/": {"identitytoken": "t"},
            "other.example.com": {},
        }});
        Logins::parse(Ok(&config.to_string()))
    }

    #[tokio::test]
    async fn pull_has_the_login_of_the_images_registry() {
        let login = async |image: &str| PullLogin::of(&logins(), &image.parse().unwrap()).await;
        let own = login("registry.example.com/shop/api:v1").await;
        let document = json!({"username": "ci", "password": "hunter2", "serveraddress": "registry.example.com"});
        assert_eq!(decoded(&own.header.unwrap()), document);
        let hub = decoded(&login("nginx").await.header.unwrap());
        assert_eq!(hub, json!({"identitytoken": "t", "serveraddress": "https://index.docker.io/v1/"}));
        let none = login("registry.example.com:5000/api:v1").await;
        assert_eq!((none.header.clone(), none.explain("unauthorized".to_owned())), (None, "unauthorized".to_owned()));
        let unusable = login("other.example.com/api:v1").await;
        assert_eq!(unusable.header, None);
        let said = unusable.explain("unauthorized".to_owned());
        assert!(said.starts_with("unauthorized (") && said.contains("other.example.com"), "{said}");
    }

    #[tokio::test]
    async fn build_gets_every_login_and_says_which_are_missing() {
        let all = BuildLogins::of(&logins()).await;
        let documents = decoded(&all.header);
        assert_eq!(
            documents.as_object().unwrap().keys().collect::<Vec<_>>(),
            ["https://index.docker.io/v1/", "registry.example.com"]
        );
        assert!(all.missing.len() == 1 && all.missing[0].contains("other.example.com"), "{:?}", all.missing);
    }
}
