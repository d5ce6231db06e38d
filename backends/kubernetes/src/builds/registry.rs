//! The part of docker's `config.json` that one build may have: pure.
//!
//! | entry of `auths` | builds that get it |
//! |---|---|
//! | of the registry that the build pushes to | the build whose repository its path fits best |
//! | of another registry, with a path | none: builds of that path push with it |
//! | of another registry, without a path | all, to read base images with |
//!
//! The entry to push with has the registry's name alone in the build, because BuildKit asks by that name. The rest of
//! the file is dropped: programs that hand out credentials (`credHelpers`, `credsStore`) are not in the builder image.

use rollhook_registry_logins::LoginScope;
use serde_json::{Map, Value, json};

/// The part of the file for one build.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) config: Vec<u8>,
    /// Whether the login to push with is missing, while the file names a program that may have it.
    pub(super) is_missing: bool,
}

/// Cuts the file for a build that pushes to this repository, in full (`docker.io/library/nginx`). Returns `None` if the
/// file has another form.
pub(super) fn cut(file: &[u8], repository: &str) -> Option<Cut> {
    let Ok(Value::Object(file)) = serde_json::from_slice::<Value>(file) else { return None };
    let none = Map::new();
    let auths = match file.get("auths") {
        Some(Value::Object(auths)) => auths,
        Some(Value::Null) | None => &none,
        Some(_) => return None,
    };
    let (registry, path) = repository.split_once('/')?;
    let entries = auths.iter().map(|(key, login)| (LoginScope::of(key), key, login));
    let (own, others): (Vec<_>, Vec<_>) = entries.partition(|(scope, ..)| scope.registry == registry);
    let mut kept: Map<String, Value> = others
        .iter()
        .filter(|(scope, ..)| scope.path.is_empty())
        .map(|(scope, _, login)| (LoginScope::key(&scope.registry).to_owned(), (*login).clone()))
        .collect();
    let best = LoginScope::best(own.iter().map(|(_, key, login)| (key.as_str(), *login)), registry, path);
    kept.extend(best.map(|(_, login)| (LoginScope::key(registry).to_owned(), login.clone())));
    let by_program = ["credHelpers", "credsStore"].iter().any(|name| file.contains_key(*name));
    let is_missing = best.is_none() && by_program;
    let config = serde_json::to_vec(&json!({"auths": kept})).ok()?;
    Some(Cut { config, is_missing })
}

#[cfg(test)]
mod tests {
    use rollhook_registry_logins::HUB_KEY;

    use super::*;

    /// The logins that a build has, each as its key and its `auth`.
    fn logins(auths: Value, repository: &str) -> Vec<(String, String)> {
        let file = json!({"auths": auths, "credsStore": "desktop", "HttpHeaders": {"X": "y"}}).to_string();
        let cut: Value = serde_json::from_slice(&cut(file.as_bytes(), repository).unwrap().config).unwrap();
        assert_eq!(cut.as_object().unwrap().len(), 1, "{cut}");
        let auth = |login: &Value| login["auth"].as_str().unwrap().to_owned();
        cut["auths"].as_object().unwrap().iter().map(|(key, login)| (key.clone(), auth(login))).collect()
    }

    fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(key, auth)| ((*key).to_owned(), (*auth).to_owned())).collect()
    }

    #[test]
    fn build_pushes_with_the_login_of_the_longest_path() {
        let auths = || {
            json!({
                "r.example.com": {"auth": "all"},
                "r.example.com/shop": {"auth": "shop"},
                "https://r.example.com/shop/api/": {"auth": "api"},
                "r.example.com/prod": {"auth": "prod"},
                "r.example.com:5000": {"auth": "port"},
            })
        };
        for (repository, auth) in [
            ("r.example.com/shop/api", "api"),
            ("r.example.com/shop/api/debug", "api"),
            ("r.example.com/shop/apis", "shop"),
            ("r.example.com/shops/api", "all"),
            ("r.example.com/other", "all"),
        ] {
            let expected = owned(&[("r.example.com", auth), ("r.example.com:5000", "port")]);
            assert_eq!(logins(auths(), repository), expected, "{repository}");
        }
        let expected = owned(&[("r.example.com", "all"), ("r.example.com:5000", "port")]);
        assert_eq!(logins(auths(), "r.example.com:5000/shop/api"), expected);
    }

    #[test]
    fn login_for_a_path_of_another_registry_stays_with_the_server() {
        let auths = json!({
            "prod.example.com/shop": {"auth": "prod"},
            "base.example.com": {"auth": "base"},
            "https://index.docker.io/v1/": {"auth": "hub"},
            "r.example.com/other": {"auth": "other"},
        });
        let expected = owned(&[("base.example.com", "base"), (HUB_KEY, "hub")]);
        assert_eq!(logins(auths, "r.example.com/shop/api"), expected);
    }

    #[test]
    fn docker_hub_is_asked_for_by_its_old_name() {
        for key in ["docker.io", "https://index.docker.io/v1/", "index.docker.io", "https://registry-1.docker.io/v2/"] {
            assert_eq!(
                logins(json!({key: {"auth": "hub"}}), "docker.io/shop/api"),
                owned(&[(HUB_KEY, "hub")]),
                "{key}"
            );
        }
        let both = json!({"https://r.example.com/v1/": {"auth": "old"}, "R.example.com": {"auth": "new"}});
        assert_eq!(logins(both, "r.example.com/api"), owned(&[("r.example.com", "new")]));
    }

    #[test]
    fn file_without_a_login_becomes_an_empty_list() {
        for (file, is_missing) in [
            ("{}", false),
            (r#"{"auths": null}"#, false),
            (r#"{"auths": {"other.example.com/x": {}}, "credHelpers": {"r.example.com": "ecr"}}"#, true),
        ] {
            let cut = cut(file.as_bytes(), "r.example.com/api").unwrap();
            assert_eq!((cut.config.as_slice(), cut.is_missing), (br#"{"auths":{}}"#.as_slice(), is_missing), "{file}");
        }
        for file in ["", "alice:secret", "[]", r#"{"auths": 7}"#] {
            assert_eq!(cut(file.as_bytes(), "r.example.com/api"), None, "{file}");
        }
    }
}
