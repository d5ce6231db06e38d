//! The files that logins are read from.

use std::path::{Path, PathBuf};

use rollhook_core::{app::Namespace, image::ImageRef};

use crate::{Login, LoginFailure, Logins};

/// The files of logins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LoginFiles {
    /// The file of the user that this process runs as: `$DOCKER_CONFIG/config.json`, or `~/.docker/config.json`.
    #[default]
    OfUser,
    /// One file, for all environments; or a directory of them. There `NAMESPACE.json` has the logins that only one
    /// environment may use, and `HOST.json` (`HOST:PORT.json`) those of a registry, for all.
    At(PathBuf),
}

impl LoginFiles {
    /// Returns the path of the file of the user that this process runs as.
    pub fn of_user() -> Option<PathBuf> {
        let directory = std::env::var_os("DOCKER_CONFIG").map(PathBuf::from);
        let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".docker"));
        Some(directory.or_else(home)?.join("config.json"))
    }

    /// Returns the login with which an environment reads an image; `None` if there is none.
    ///
    /// # Errors
    /// Why the login that there is, or may be, cannot be used.
    pub async fn login(&self, environment: &Namespace, image: &ImageRef) -> Result<Option<Login>, LoginFailure> {
        for file in self.files(environment, image).await {
            if let Some((_, login)) = Logins::read(&file).await.login(image).await? {
                return Ok(Some(login));
            }
        }
        Ok(None)
    }

    async fn files(&self, environment: &Namespace, image: &ImageRef) -> Vec<PathBuf> {
        match self {
            Self::OfUser => Self::of_user().into_iter().collect(),
            Self::At(path) if is_directory(path).await => {
                // Neither leads out of the directory: a namespace is letters, digits and hyphens, and a host has names
                // between its dots. No host of an image is a namespace too: it has a dot or a port, or is `localhost`,
                // and a namespace has a hyphen.
                let repository = image.canonical_repository();
                let registry = repository.split('/').next().unwrap_or_default().to_ascii_lowercase();
                vec![path.join(format!("{environment}.json")), path.join(format!("{registry}.json"))]
            }
            Self::At(path) => vec![path.clone()],
        }
    }
}

async fn is_directory(path: &Path) -> bool {
    tokio::fs::metadata(path).await.is_ok_and(|found| found.is_dir())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn directory_has_a_file_for_an_environment_and_one_for_a_registry() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, registry: &str, user: &str| {
            let config = json!({"auths": {registry: {"username": user, "password": "p"}}});
            fs::write(directory.path().join(name), config.to_string()).unwrap();
        };
        write("shop-prod.json", "registry.example.com", "prod");
        write("registry.example.com.json", "registry.example.com", "all");
        write("docker.io.json", "docker.io", "hub");
        let files = LoginFiles::At(directory.path().to_owned());
        let user = async |files: &LoginFiles, environment: &str, image: &str| {
            let login = files.login(&environment.parse().unwrap(), &image.parse().unwrap()).await.unwrap();
            login.map(|login| match login {
                Login::Password { user, .. } => user,
                Login::Identity(_) => "a token".to_owned(),
            })
        };
        let api = "registry.example.com/api:v1";
        assert_eq!(user(&files, "shop-prod", api).await.as_deref(), Some("prod"));
        assert_eq!(user(&files, "shop-test", api).await.as_deref(), Some("all"));
        assert_eq!(user(&files, "shop-prod", "nginx").await.as_deref(), Some("hub"));
        assert_eq!(user(&files, "shop-test", "other.example.com/api:v1").await, None);
        let one = LoginFiles::At(directory.path().join("shop-prod.json"));
        assert_eq!(user(&one, "shop-test", api).await.as_deref(), Some("prod"));
    }
}
