//! A call of a browser: its path, query, form and headers.

use std::fmt;

use bytes::Bytes;
use http::{
    HeaderMap, Method,
    header::{COOKIE, HOST, ORIGIN},
};
use rollhook_api::Kind;
use rollhook_management::{ENVIRONMENT_APPS_MAX, access::SessionSecret};
use zeroize::Zeroizing;

use crate::host::Failure;

/// The largest form, in bytes.
const FORM_MAX: usize = 256 * 1024;
/// The most fields of a form: a promotion has one for each app of an environment, and a few more.
const FIELDS_MAX: usize = ENVIRONMENT_APPS_MAX + 20;

/// The cookie of a session. The prefix makes browsers insist on `Secure`, on the path `/`, and on this very host.
pub(crate) const COOKIE_NAME: &str = "__Host-rollhook";

/// A call with its whole body.
#[derive(Clone)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The path, as it was sent.
    pub path: String,
    /// The query string; empty if there is none.
    pub query: String,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// Headers and body may hold a session's secret or a token.
impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("method", &self.method).field("path", &self.path).finish_non_exhaustive()
    }
}

impl Request {
    /// Returns whether the method only reads.
    pub(crate) fn reads(&self) -> bool {
        self.method == Method::GET || self.method == Method::HEAD
    }

    /// Returns a parameter of the query, trimmed; `None` if it is absent or empty.
    pub(crate) fn query(&self, name: &str) -> Option<String> {
        value(self.query.as_bytes(), name)
    }

    /// Returns a field of the form, trimmed; `None` if it is absent or empty.
    pub(crate) fn field(&self, name: &str) -> Option<String> {
        value(&self.body, name)
    }

    /// Returns `Ok` for a form that pages read: each of them looks several times at each field.
    ///
    /// # Errors
    /// [`Kind::BodyTooLarge`] beyond 256 KiB, or beyond as many fields as the largest promotion has.
    pub(crate) fn check_form(&self) -> Result<(), Failure> {
        let bound = if self.body.len() > FORM_MAX {
            "256 KiB".to_owned()
        } else if self.body.iter().filter(|byte| **byte == b'&').count() >= FIELDS_MAX {
            format!("{FIELDS_MAX} fields")
        } else {
            return Ok(());
        };
        Err(Failure::new(Kind::BodyTooLarge, format!("A form may have at most {bound}. Nothing was done.")))
    }

    /// Returns the secret of the session that the call's cookie brings.
    pub fn session(&self) -> Option<SessionSecret> {
        session_secret(&self.headers)
    }

    /// Returns the token that a sign-in brings.
    pub fn sign_in_token(&self) -> Option<Zeroizing<String>> {
        self.field("token").map(Zeroizing::new)
    }

    /// Returns whether htmx asks for a part of a page.
    pub(crate) fn is_partial(&self) -> bool {
        self.headers.get("hx-request").is_some_and(|value| value == "true")
    }

    /// Returns path and query, to return to after a sign-in.
    pub(crate) fn target(&self) -> String {
        if self.query.is_empty() { self.path.clone() } else { format!("{}?{}", self.path, self.query) }
    }

    fn header(&self, name: impl http::header::AsHeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Returns the scheme by which the first proxy was called, as it says.
    fn forwarded_scheme(&self) -> Option<&str> {
        self.header("x-forwarded-proto")?.split(',').next().map(str::trim)
    }

    /// Returns whether the browser takes a cookie that is for secure pages only. Browsers send `Sec-Fetch-Site` to
    /// https and to their own machine alone.
    pub(crate) fn is_secure(&self) -> bool {
        let host = self.header(HOST).unwrap_or_default();
        let name = host.rsplit_once(':').map_or(host, |(name, port)| if port.ends_with(']') { host } else { name });
        self.headers.contains_key("sec-fetch-site")
            || self.forwarded_scheme() == Some("https")
            || matches!(name, "localhost" | "[::1]")
            || name.ends_with(".localhost")
            || name.starts_with("127.")
    }

    /// Returns whether a changing call comes from a page of this console. Another site can make a browser send the
    /// cookie; it can forge neither of these headers.
    pub(crate) fn is_same_origin(&self) -> bool {
        if let Some(site) = self.headers.get("sec-fetch-site") {
            return site == "same-origin" || site == "none";
        }
        let Some((scheme, authority)) = self.header(ORIGIN).and_then(|origin| origin.split_once("://")) else {
            return false;
        };
        // A page that came without TLS, as from another machine on the way, is none of this console's behind a proxy with TLS.
        let is_scheme = self.forwarded_scheme().is_none_or(|forwarded| forwarded == scheme);
        is_scheme && Some(authority) == self.header(HOST)
    }
}

/// Returns the secret of the session that a call's cookie brings.
pub(crate) fn session_secret(headers: &HeaderMap) -> Option<SessionSecret> {
    cookie(headers, COOKIE_NAME)
}

/// Returns the value of a cookie.
pub(crate) fn cookie(headers: &HeaderMap, name: &str) -> Option<Zeroizing<String>> {
    let lines = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let (_, value) = pairs.find(|(known, _)| *known == name)?;
    (!value.is_empty()).then(|| Zeroizing::new(value.to_owned()))
}

fn value(text: &[u8], name: &str) -> Option<String> {
    let mut pairs = form_urlencoded::parse(text);
    let (_, value) = pairs.find(|(known, _)| known == name)?;
    let trimmed = value.trim();
    (!trimmed.is_empty()).then(|| trimmed.to_owned())
}

/// Returns every value of a field of the form, trimmed.
pub(crate) fn values(body: &[u8], name: &str) -> Vec<String> {
    form_urlencoded::parse(body).filter(|(known, _)| known == name).map(|(_, value)| value.trim().to_owned()).collect()
}

/// Returns a path of this console to go to after a sign-in; anything else is the start page, so that no link to the
/// sign-in leads away from here.
pub(crate) fn local_path(wanted: Option<&str>) -> &str {
    let is_local = |path: &str| {
        // A cookie keeps the path during a sign-in, and browsers drop cookies over 4 KB.
        path.len() <= 2048
            && path.starts_with('/')
            && !path.starts_with("//")
            && !path.starts_with("/sign-")
            && path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\')
    };
    wanted.filter(|path| is_local(path)).unwrap_or("/")
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn request(headers: &[(&str, &str)]) -> Request {
        let headers = headers.iter().map(|(name, value)| {
            (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap())
        });
        Request {
            method: Method::POST,
            path: "/".to_owned(),
            query: String::new(),
            headers: headers.collect(),
            body: Bytes::new(),
        }
    }

    #[test]
    fn form_has_a_bounded_size_and_a_bounded_number_of_fields() {
        let refused = |body: String| {
            let checked = Request { body: body.into(), ..request(&[]) }.check_form();
            checked.err().map(|failure| (failure.kind, failure.problem.detail))
        };
        let name = "app=".len();
        assert_eq!(refused(format!("app={}", "x".repeat(FORM_MAX - name))), None);
        let (kind, detail) = refused(format!("app={}", "x".repeat(FORM_MAX - name + 1))).unwrap();
        assert_eq!((kind, detail.as_str()), (Kind::BodyTooLarge, "A form may have at most 256 KiB. Nothing was done."));
        let apps = |count: usize| format!("from=test{}", "&app=api@1".repeat(count));
        assert_eq!(refused(apps(ENVIRONMENT_APPS_MAX)), None, "all apps of an environment are promoted");
        assert_eq!(refused(apps(FIELDS_MAX - 1)), None);
        let (kind, detail) = refused(apps(FIELDS_MAX)).unwrap();
        assert_eq!((kind, detail.contains("1020 fields")), (Kind::BodyTooLarge, true));
        assert_eq!(refused(String::new()), None);
    }

    #[test]
    fn only_a_page_of_this_console_may_change_anything() {
        let host = ("host", "deploys.example.com");
        for (headers, allowed) in [
            (&[host][..], false),
            (&[host, ("sec-fetch-site", "same-origin")], true),
            (&[host, ("sec-fetch-site", "none")], true),
            (&[host, ("sec-fetch-site", "same-site")], false),
            (&[host, ("sec-fetch-site", "cross-site")], false),
            (&[host, ("sec-fetch-site", "cross-site"), ("origin", "https://deploys.example.com")], false),
            (&[host, ("origin", "https://deploys.example.com")], true),
            (&[host, ("origin", "https://deploys.example.com.evil.example")], false),
            (&[host, ("origin", "https://deploys.example.com:8443")], false),
            (&[host, ("origin", "https://deploys.example.com"), ("x-forwarded-proto", "https")], true),
            (&[host, ("origin", "http://deploys.example.com"), ("x-forwarded-proto", "https, http")], false),
            (&[host, ("origin", "null")], false),
            (&[("origin", "https://deploys.example.com")], false),
        ] {
            assert_eq!(request(headers).is_same_origin(), allowed, "{headers:?}");
        }
    }

    #[test]
    fn a_secure_page_is_one_to_which_browsers_send_secure_cookies() {
        for (headers, secure) in [
            (&[("host", "deploys.example.com")][..], false),
            (&[("host", "10.0.0.5:8080")], false),
            (&[("host", "127.0.0.1:8080")], true),
            (&[("host", "localhost:8080")], true),
            (&[("host", "localhost")], true),
            (&[("host", "[::1]:8080")], true),
            (&[("host", "[::1]")], true),
            (&[("host", "deploys.example.com"), ("x-forwarded-proto", "https")], true),
            (&[("host", "deploys.example.com"), ("sec-fetch-site", "none")], true),
        ] {
            assert_eq!(request(headers).is_secure(), secure, "{headers:?}");
        }
    }

    #[test]
    fn a_sign_in_leads_to_a_path_of_this_console_only() {
        for path in ["/apps/shop-test/api", "/?q=api"] {
            assert_eq!(local_path(Some(path)), path);
        }
        for path in ["", "https://evil.example", "//evil.example", "/\\evil.example", "/a b", "/a\nb", "/sign-in"] {
            assert_eq!(local_path(Some(path)), "/", "{path}");
        }
        assert_eq!(local_path(Some(&format!("/{}", "a".repeat(2048)))), "/", "no cookie keeps it");
        assert_eq!(local_path(None), "/");
    }

    #[test]
    fn the_cookie_is_found_among_others() {
        let secret =
            |line: &str| session_secret(&request(&[("cookie", line)]).headers).map(|secret| secret.to_string());
        assert_eq!(secret("a=b; __Host-rollhook=x; c=d").as_deref(), Some("x"));
        for line in ["", "rollhook=x", "__Host-rollhook=", "a__Host-rollhook=x"] {
            assert_eq!(secret(line), None, "{line}");
        }
    }
}
