//! Logins: how the request of a check carries its secret, and that no text of a measurement repeats it.

use std::fmt;

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderName, HeaderValue, Request, Uri, header::AUTHORIZATION};
use memchr::memmem;
use rollhook_core::{
    check::{CheckSecret, PastValue},
    ports::CheckSetting,
};
use zeroize::Zeroizing;

use crate::found::Found;

pub(crate) const SETTING: CheckSetting = CheckSetting {
    name: "login",
    about: "How the check's secret is sent: bearer, basic (the secret is USER:PASSWORD), or header=NAME, such as header=X-Api-Key.",
    required: false,
};

pub(crate) const SECRET: &str =
    "With login, the secret that is sent: a token, USER:PASSWORD, or the value of the header.";

/// The least characters of a secret, and of a password in it, that no text repeats: shorter ones are in many texts by chance.
const SECRET_MIN: usize = 8;
/// The most bytes of a form of a secret in an answer: of base64 of the longest one.
pub(crate) const FORM_MAX: usize = 8 * 1024;
/// What stands in the place of a secret in texts for people.
const HIDDEN: &str = "(secret)";

/// How a request carries the secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Login {
    Bearer,
    Basic,
    Header(HeaderName),
}

impl Login {
    /// Returns the login that a setting names.
    ///
    /// # Errors
    /// What is wrong with it, as a sentence.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text {
            "bearer" => return Ok(Self::Bearer),
            "basic" => return Ok(Self::Basic),
            _ => {}
        }
        let name = text.strip_prefix("header=").ok_or_else(|| format!("login must be {FORMS}."))?;
        let name = name.parse::<HeaderName>().map_err(|_| "login must name a header, such as header=X-Api-Key.")?;
        if is_reserved(&name) {
            return Err(format!("login must not set the header {name}, which every request has by itself."));
        }
        Ok(Self::Header(name))
    }

    /// Returns `Ok` if this can be the secret.
    ///
    /// # Errors
    /// What is wrong with it, as the end of a sentence about the secret.
    pub(crate) fn check(&self, secret: &CheckSecret) -> Result<(), String> {
        let text = secret.expose();
        if text.chars().count() < SECRET_MIN {
            return Err(format!("must have at least {SECRET_MIN} characters."));
        }
        match self {
            Self::Basic if !text.contains(':') => Err("must be USER:PASSWORD for the login basic.".to_owned()),
            Self::Bearer if text.contains(' ') => {
                Err("must be the token alone, without a space; the word Bearer is sent before it.".to_owned())
            }
            Self::Bearer | Self::Header(_) if !text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) => {
                Err("must be printable ASCII characters, as headers are.".to_owned())
            }
            Self::Basic | Self::Bearer | Self::Header(_) => Ok(()),
        }
    }

    /// Adds the login to a request.
    ///
    /// # Errors
    /// Why that cannot be done, as a sentence that follows "was not made:".
    fn add(&self, request: &mut Request<Vec<u8>>, secret: Option<&CheckSecret>) -> Result<(), String> {
        let secret = secret.ok_or("the check has no secret; set it anew with one")?;
        self.check(secret).map_err(|why| format!("the secret {}", why.trim_end_matches('.')))?;
        let text = match self {
            Self::Bearer => Zeroizing::new(format!("Bearer {}", secret.expose())),
            Self::Basic => Zeroizing::new(format!("Basic {}", STANDARD.encode(secret.expose()))),
            Self::Header(_) => Zeroizing::new(secret.expose().to_owned()),
        };
        let mut value = HeaderValue::from_str(&text).map_err(|_| "the secret is no value of a header")?;
        value.set_sensitive(true);
        request.headers_mut().insert(self.header().clone(), value);
        Ok(())
    }

    fn header(&self) -> &HeaderName {
        if let Self::Header(name) = self { name } else { &AUTHORIZATION }
    }

    /// Returns the login as a request is shown with it.
    fn shown(&self) -> String {
        match self {
            Self::Bearer => format!("Authorization: Bearer {HIDDEN}"),
            Self::Basic => format!("Authorization: Basic {HIDDEN}"),
            Self::Header(name) => format!("{name}: {HIDDEN}"),
        }
    }
}

impl fmt::Display for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bearer => f.write_str("bearer"),
            Self::Basic => f.write_str("basic"),
            Self::Header(name) => write!(f, "header={name}"),
        }
    }
}

/// The forms of a login.
pub(crate) const FORMS: &str = "bearer, basic or header=NAME";

/// Adds a login, if there is one, to a request.
///
/// # Errors
/// As [`Login::add`].
pub(crate) fn add(
    login: Option<&Login>,
    request: &mut Request<Vec<u8>>,
    secret: Option<&CheckSecret>,
) -> Result<(), String> {
    login.map_or(Ok(()), |login| login.add(request, secret))
}

/// Returns what is shown of a login beside the address of a request.
pub(crate) fn shown(login: Option<&Login>) -> String {
    login.map(|login| format!(", with {}", login.shown())).unwrap_or_default()
}

/// Returns whether a header is one of the connection or of the message itself.
fn is_reserved(name: &HeaderName) -> bool {
    let name = name.as_str();
    let of_message = ["host", "connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "expect"];
    of_message.contains(&name) || name == "user-agent" || name.starts_with("content-") || name.starts_with("proxy-")
}

/// Returns the origin of a URL, which a secret is bound to.
pub(crate) fn origin(url: &str) -> Option<String> {
    // Its path may have placeholders.
    let authority = url.find("://").map(|scheme| scheme + 3)?;
    let end = url[authority..].find(['/', '?', '#']).map_or(url.len(), |path| authority + path);
    let uri: Uri = url[..end].parse().ok()?;
    let (scheme, host) = (uri.scheme_str()?.to_ascii_lowercase(), uri.host()?.to_ascii_lowercase());
    let usual = if scheme == "https" { 443 } else { 80 };
    Some(match uri.port_u16() {
        Some(port) if port != usual => format!("{scheme}://{host}:{port}"),
        Some(_) | None => format!("{scheme}://{host}"),
    })
}

/// The forms of a secret in texts that come from elsewhere.
pub(crate) struct Hidden(Vec<Zeroizing<String>>);

impl Hidden {
    pub(crate) fn of(secret: Option<&CheckSecret>) -> Self {
        let Some(text) = secret.map(CheckSecret::expose) else { return Self(Vec::new()) };
        let password = text.split_once(':').map(|(_, password)| password);
        let password = password.filter(|password| password.chars().count() >= SECRET_MIN);
        let mut forms: Vec<_> = [Some(text), password].into_iter().flatten().flat_map(written).collect();
        forms.push(Zeroizing::new(STANDARD.encode(text).trim_end_matches('=').to_owned()));
        // A longer form may have a shorter one in it.
        forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
        Self(forms)
    }

    /// Returns whether an answer repeats the secret.
    pub(crate) fn is_in(&self, answer: &[u8]) -> bool {
        self.0.iter().any(|form| memmem::find(answer, form.as_bytes()).is_some())
    }

    /// Returns an outcome whose texts do not have the secret.
    pub(crate) fn hide(&self, found: Found) -> Found {
        let text = |text: String| self.0.iter().fold(text, |text, form| text.replace(form.as_str(), HIDDEN));
        Found { value: found.value.map(text), message: text(found.message), ..found }
    }

    /// Returns past values without those that have the secret.
    pub(crate) fn without(&self, values: Vec<PastValue>) -> Vec<PastValue> {
        let shown =
            |past: PastValue| PastValue { value: past.value.filter(|text| !self.is_in(text.as_bytes())), ..past };
        values.into_iter().map(shown).collect()
    }
}

/// Returns a text as it is, and as JSON writes it.
fn written(text: &str) -> Vec<Zeroizing<String>> {
    let json = Zeroizing::new(serde_json::Value::from(text).to_string());
    let json = json.trim_matches('"');
    let slashes = json.replace('/', "\\/");
    let mut forms: Vec<_> = [text, json, &slashes].map(|form| Zeroizing::new(form.to_owned())).into();
    forms.dedup();
    forms
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> CheckSecret {
        text.parse().unwrap()
    }

    #[test]
    fn logins_are_headers_that_nothing_shows() {
        for (text, given, header, value, shown) in [
            ("bearer", "hunter2-hunter2", "authorization", "Bearer hunter2-hunter2", "Authorization: Bearer (secret)"),
            (
                "basic",
                "alice:wonderland",
                "authorization",
                "Basic YWxpY2U6d29uZGVybGFuZA==",
                "Authorization: Basic (secret)",
            ),
            ("header=X-Api-Key", "hunter2 hunter2", "x-api-key", "hunter2 hunter2", "x-api-key: (secret)"),
        ] {
            let login = Login::parse(text).unwrap();
            assert_eq!(login.to_string().parse::<String>().unwrap().to_lowercase(), text.to_lowercase());
            let mut request = Request::new(Vec::new());
            login.add(&mut request, Some(&secret(given))).unwrap();
            assert_eq!(request.headers()[header], value);
            assert!(!format!("{request:?}").contains(value), "{request:?}");
            assert_eq!(login.shown(), shown);
            assert!(login.add(&mut Request::new(Vec::new()), None).is_err());
        }
        for text in
            ["", "Bearer", "baerer", "header=", "header=a b", "header=Host", "header=content-length", "header=te"]
        {
            assert!(Login::parse(text).is_err(), "{text}");
        }
        for (text, given) in [
            ("bearer", "short"),
            ("bearer", "Bearer hunter2-hunter2"),
            ("bearer", "hunter2-hünter2"),
            ("basic", "no-colon-in-it"),
            ("header=x-api-key", "schlüssel-schlüssel"),
        ] {
            let why = Login::parse(text).unwrap().check(&secret(given)).unwrap_err();
            assert!(!why.contains(given), "{why}");
        }
    }

    #[test]
    fn secrets_are_for_an_origin() {
        for (url, expected) in [
            ("https://a.example/x?y#z", Some("https://a.example")),
            ("https://A.example:443/{{app}}", Some("https://a.example")),
            ("https://a.example:8443", Some("https://a.example:8443")),
            ("http://10.0.0.1:9090?x={{app}}", Some("http://10.0.0.1:9090")),
            ("https://[2001:db8::1]:443/", Some("https://[2001:db8::1]")),
            ("http://a.example:443/", Some("http://a.example:443")),
            ("a.example", None),
            ("", None),
        ] {
            assert_eq!(origin(url).as_deref(), expected, "{url}");
        }
        assert_ne!(origin("http://a.example/"), origin("https://a.example/"));
        assert_ne!(origin("https://a.example"), origin("https://a.example.evil.example"));
    }

    #[test]
    fn answers_that_repeat_a_secret_are_known_and_shown_without_it() {
        let hidden = Hidden::of(Some(&secret("alice:wonder/\"land")));
        for text in
            ["Basic YWxpY2U6d29uZGVyLyJsYW5k", r#"{"a":"wonder/\"land"}"#, r#""wonder\/\"land""#, "wonder/\"land"]
        {
            assert!(hidden.is_in(text.as_bytes()), "{text}");
            let found = hidden.hide(Found::none(text).of(text));
            assert!(found.message.contains(HIDDEN) && !found.message.contains("land"), "{found:?}");
            assert!(!found.value.unwrap().contains("land"));
        }
        assert!(!hidden.is_in(b"alice"));
        let none = Hidden::of(None);
        assert!(!none.is_in(b"alice"));
        assert_eq!(none.hide(Found::none("alice")), Found::none("alice"));
        // A short password is in many texts by chance.
        assert!(!Hidden::of(Some(&secret("someone:shop"))).is_in(b"shop"));
    }
}
