//! The URLs that credentials are for.
//!
//! They are written as in the files of `git-credential-store`, `https://USER:PASSWORD@HOST[:PORT][/PATH]`, a line each,
//! and matched as git matches `credential.<url>` with `useHttpPath`: the same protocol, host and port, and a path that
//! is the same or lies below. An ssh key, whose file has no place for them, has them in a file beside it.

use percent_encoding::percent_decode_str;

/// The URLs below one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Scope {
    protocol: String,
    /// The user of ssh; `None`: any.
    user: Option<String>,
    host: String,
    port: Option<String>,
    /// Without a slash at its end; empty for all of the host.
    path: String,
}

/// A user and a password. There is no `Debug`, so that no log shows them.
pub(super) struct Login {
    pub(super) user: String,
    pub(super) password: String,
}

impl Scope {
    /// Returns the URLs below this one, and the login within it.
    pub(super) fn parse(text: &str) -> Option<(Self, Option<Login>)> {
        let (protocol, rest) = text.split_once("://")?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, place) = match authority.rsplit_once('@') {
            Some((login, place)) => (Some(login), place),
            None => (None, authority),
        };
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, Some(port)),
            Some(_) | None => (place, None),
        };
        if host.is_empty() {
            return None;
        }
        let (user, login) = match login {
            Some(user) if protocol == "ssh" => (Some(user.to_owned()), None),
            Some(login) => (None, Some(Login::parse(login)?)),
            None => (None, None),
        };
        let path = path.trim_end_matches('/');
        let scope = Self {
            protocol: protocol.to_owned(),
            user,
            host: host.to_ascii_lowercase(),
            port: port.filter(|port| Some(*port) != default_port(protocol)).map(str::to_owned),
            path: if path.is_empty() { String::new() } else { format!("/{path}") },
        };
        Some((scope, login))
    }

    /// Returns whether this source is among the URLs.
    pub(super) fn covers(&self, source: &Self) -> bool {
        let below = source.path.strip_prefix(&self.path);
        self.protocol == source.protocol
            && self.host == source.host
            && self.port == source.port
            && (self.user.is_none() || self.user == source.user)
            && below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// The URL itself, without a user.
    pub(super) fn url(&self) -> String {
        let port = self.port.as_ref().map(|port| format!(":{port}")).unwrap_or_default();
        format!("{}://{}{port}{}/", self.protocol, self.host, self.path)
    }
}

impl Login {
    fn parse(text: &str) -> Option<Self> {
        let (user, password) = text.split_once(':')?;
        let decoded = |text| percent_decode_str(text).decode_utf8().ok().map(String::from);
        Some(Self { user: decoded(user)?, password: decoded(password)? })
    }
}

fn default_port(protocol: &str) -> Option<&'static str> {
    match protocol {
        "https" => Some("443"),
        "http" => Some("80"),
        "ssh" => Some("22"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(text: &str) -> Scope {
        Scope::parse(text).unwrap().0
    }

    #[test]
    fn url_covers_what_lies_below_it_on_the_same_host() {
        for (credentials, source, covered) in [
            ("https://u:p@git.example.com", "https://git.example.com/shop/api.git", true),
            ("https://u:p@git.example.com/", "https://GIT.example.com:443/shop/api.git", true),
            ("https://u:p@git.example.com/shop/", "https://git.example.com/shop/api.git", true),
            ("https://u:p@git.example.com/shop", "https://git.example.com/shop/api.git", true),
            ("https://u:p@git.example.com/shop/api.git", "https://git.example.com/shop/api.git", true),
            ("https://u:p@git.example.com/shop", "https://git.example.com/shops/api.git", false),
            ("https://u:p@git.example.com/shop/api", "https://git.example.com/shop/api.git", false),
            ("https://u:p@git.example.com/shop", "https://git.example.com/", false),
            ("https://u:p@git.example.com/shop", "https://git.example.com/Shop/api.git", false),
            ("https://u:p@git.example.com", "https://git.example.com.evil.example/a.git", false),
            ("https://u:p@git.example.com", "https://example.com/a.git", false),
            ("https://u:p@git.example.com", "http://git.example.com/a.git", false),
            ("https://u:p@git.example.com", "https://git.example.com:8443/a.git", false),
            ("https://u:p@git.example.com:8443", "https://git.example.com:8443/a.git", true),
            ("https://u:p@[2001:db8::1]", "https://[2001:db8::1]:443/a.git", true),
            ("ssh://git@git.example.com/shop", "ssh://git@git.example.com/shop/api.git", true),
            ("ssh://git@git.example.com/shop", "ssh://root@git.example.com/shop/api.git", false),
            ("ssh://git.example.com", "ssh://git@git.example.com:22/shop/api.git", true),
        ] {
            assert_eq!(scope(credentials).covers(&scope(source)), covered, "{credentials}: {source}");
        }
    }

    #[test]
    fn login_is_percent_encoded() {
        let (scope, login) = Scope::parse("https://ada%40shop:p%3Aa%25s@git.example.com/shop").unwrap();
        let login = login.unwrap();
        assert_eq!((login.user.as_str(), login.password.as_str()), ("ada@shop", "p:a%s"));
        assert_eq!(scope.url(), "https://git.example.com/shop/");
        for text in ["ada:hunter2", "t0ken", "", "https://", "https://t0ken@git.example.com/shop"] {
            assert!(Scope::parse(text).is_none(), "{text}");
        }
    }
}
