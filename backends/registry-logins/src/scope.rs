//! The repositories that an entry of `config.json` is for: pure.

/// The host of Docker Hub, as image references have it.
const HUB: &str = "docker.io";
/// The name of Docker Hub in `config.json`, and the one by which programs know its login.
pub const HUB_KEY: &str = "https://index.docker.io/v1/";

/// The repositories that an entry is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginScope {
    /// The registry's host and port, as image references in full have them.
    pub registry: String,
    /// The path without slashes at its ends; empty for all of the registry.
    pub path: String,
}

impl LoginScope {
    /// Returns the repositories of an entry with this name, such as `registry.example.com/shop` or
    /// `https://index.docker.io/v1/`.
    pub fn of(key: &str) -> Self {
        let bare = key.trim_start_matches("https://").trim_start_matches("http://");
        let (host, path) = bare.split_once('/').unwrap_or((bare, ""));
        let host = host.to_ascii_lowercase();
        let registry = if matches!(&*host, "index.docker.io" | "registry-1.docker.io") { HUB.to_owned() } else { host };
        let path = path.trim_matches('/');
        // The version of the registry's interface is not a path of images.
        let path = if matches!(path, "v1" | "v2") { "" } else { path };
        Self { registry, path: path.to_owned() }
    }

    /// Returns whether a path of the registry's images is one of these.
    pub fn holds(&self, path: &str) -> bool {
        self.path.is_empty()
            || path.strip_prefix(&*self.path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Returns the entry that fits best of those which hold a path of the registry: the one with the longest path, and of
    /// two with the same, the one that is written like an image reference.
    pub fn best<'a, T>(
        entries: impl IntoIterator<Item = (&'a str, T)>,
        registry: &str,
        path: &str,
    ) -> Option<(&'a str, T)> {
        let entries = entries.into_iter().map(|(key, entry)| (Self::of(key), key, entry));
        // A host in an image reference may have capitals.
        let fitting = entries.filter(|(scope, ..)| scope.registry.eq_ignore_ascii_case(registry) && scope.holds(path));
        let best = fitting.max_by_key(|(scope, key, _)| (scope.path.len(), !key.contains("://")));
        best.map(|(_, key, entry)| (key, entry))
    }

    /// Returns the name by which programs know a registry.
    pub fn key(registry: &str) -> &str {
        if registry == HUB { HUB_KEY } else { registry }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_that_fits_best_has_the_longest_path() {
        let keys = [
            "r.example.com",
            "https://r.example.com/v1/",
            "r.example.com/shop",
            "https://r.example.com/shop/api/",
            "r.example.com/prod",
            "r.example.com:5000",
            "index.docker.io",
        ];
        let best = |registry: &str, path: &str| {
            LoginScope::best(keys.map(|key| (key, ())), registry, path).map_or("none", |(key, ())| key)
        };
        for (registry, path, expected) in [
            ("r.example.com", "shop/api", "https://r.example.com/shop/api/"),
            ("r.example.com", "shop/api/debug", "https://r.example.com/shop/api/"),
            ("r.example.com", "shop/apis", "r.example.com/shop"),
            ("R.example.com", "shops/api", "r.example.com"),
            ("r.example.com:5000", "shop/api", "r.example.com:5000"),
            ("docker.io", "library/nginx", "index.docker.io"),
            ("other.example.com", "shop/api", "none"),
        ] {
            assert_eq!(best(registry, path), expected, "{registry}/{path}");
        }
    }
}
