//! The console with a host whose tokens can be replaced: sessions, their confirmation, and permissions.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use rollhook_api::Kind;
use rollhook_core::{
    app::AppId,
    ports::{SettingValue, TargetDescription, TargetSetting},
    request::{IdempotencyKey, Refusal},
    time::Timestamp,
};
use rollhook_management::{
    access::{Principal, SessionSecret},
    ports::{RecordKey, SignInRequest},
};
use zeroize::Zeroizing;

use crate::{
    Access, Answer, Body, Caller, CallerOperations, Console, Ended, Failure, Host, Permissions, Request, Watch, Welcome,
};

/// Targets of a machine.
pub(crate) const MACHINE: TargetDescription = TargetDescription {
    platform: "machine",
    instances: "containers",
    kinds: &[("", "Any"), ("container", "Container"), ("compose", "Service")],
    settings: &[
        TargetSetting { name: "name", label: "Name", help: "", value: SettingValue::Text },
        TargetSetting {
            name: "replace",
            label: "Replacement",
            help: "",
            value: SettingValue::Word(&["first", "last"]),
        },
        TargetSetting { name: "template.port", label: "Port", help: "Listens.", value: SettingValue::Number },
        TargetSetting { name: "template.env", label: "Environment", help: "", value: SettingValue::Pairs },
        TargetSetting { name: "template.volumes", label: "Volumes", help: "", value: SettingValue::Texts },
    ],
};

/// A host with one token.
struct OneToken {
    token: Mutex<&'static str>,
    is_away: Mutex<bool>,
    permissions: Permissions,
    /// The sessions, each with the token that it stands for and its person's name.
    sessions: Mutex<BTreeMap<String, (&'static str, String)>>,
}

#[async_trait]
impl Host for OneToken {
    fn targets(&self) -> TargetDescription {
        MACHINE
    }

    fn notice(&self, _: &Principal) -> Option<String> {
        None
    }

    async fn begin_session(&self, token: &str, name: Option<&str>) -> Result<SessionSecret, Failure> {
        if *self.is_away.lock().unwrap() {
            return Err(Refusal::StoreUnavailable { maybe_recorded: false }.into());
        }
        let known = *self.token.lock().unwrap();
        if token != known {
            return Err(Refusal::Unauthorized.into());
        }
        let mut sessions = self.sessions.lock().unwrap();
        let secret = format!("session{}", sessions.len());
        sessions.insert(secret.clone(), (known, name.unwrap_or("admin").to_owned()));
        Ok(Zeroizing::new(secret))
    }

    fn provider_name(&self) -> Option<&str> {
        Some("<Example>")
    }

    async fn begin_sign_in(&self) -> Result<SignInRequest, Failure> {
        let text = |text: &str| Zeroizing::new(text.to_owned());
        let url = "https://login.example.com/auth?client_id=x".to_owned();
        Ok(SignInRequest { url, state: text("the-state"), nonce: text("the-nonce"), verifier: text("the-verifier") })
    }

    async fn finish_sign_in(&self, code: &str, nonce: &str, verifier: &str) -> Result<Welcome, Failure> {
        assert_eq!((nonce, verifier), ("the-nonce", "the-verifier"));
        match code {
            "of-ada" => Ok(Welcome::Session(self.begin_session("old", Some("Ada")).await?)),
            "of-nora" => Ok(Welcome::NoRole { name: "<b>nora".to_owned() }),
            _ => Err(Failure::new(Kind::Unauthorized, "The provider's answer proves nothing; try again.")),
        }
    }

    async fn lend_session(&self, _: &str, challenge: &RecordKey) -> Result<SessionSecret, Failure> {
        Ok(Zeroizing::new(format!("code-for-{challenge}")))
    }

    async fn session(&self, secret: &str) -> Result<Access, Failure> {
        if *self.is_away.lock().unwrap() {
            return Err(Refusal::StoreUnavailable { maybe_recorded: false }.into());
        }
        let known = *self.token.lock().unwrap();
        let session = self.sessions.lock().unwrap().get(secret).filter(|(token, _)| *token == known).cloned();
        let (_, name) = session.ok_or(Refusal::Unauthorized)?;
        Ok(Access { principal: Principal::trusted(&name), permissions: self.permissions })
    }

    async fn keep_session(&self, _: &str) {}

    async fn end_session(&self, secret: &str, _: Ended) -> Result<(), Failure> {
        if let Some(session) = self.sessions.lock().unwrap().get_mut(secret) {
            session.0 = "no token";
        }
        Ok(())
    }

    fn recognizes(&self, secret: &str) -> bool {
        self.sessions.lock().unwrap().contains_key(secret)
    }

    async fn permissions(&self, _: &Principal, id: &AppId) -> Result<Permissions, Failure> {
        Ok(if id.namespace.as_str() == "shop-prod" { Permissions::default() } else { self.permissions })
    }

    fn operations(&self, _: &Principal, _: Option<IdempotencyKey>) -> CallerOperations {
        panic!("no page of these tests calls an operation")
    }

    async fn watch(&self, _: &Principal, _: &AppId) -> Result<Box<dyn Watch>, Failure> {
        Err(Failure::new(Kind::AppNotFound, "There is no app."))
    }

    fn base_url(&self) -> &str {
        "https://deploys.example.com"
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_767_323_045_678)
    }

    fn random(&self) -> Zeroizing<String> {
        Zeroizing::new("random".to_owned())
    }
}

struct Bench {
    host: Arc<OneToken>,
    console: Arc<Console>,
}

impl Bench {
    fn new(permissions: Permissions) -> Self {
        let (token, is_away) = (Mutex::new("old"), Mutex::default());
        let host = Arc::new(OneToken { token, is_away, permissions, sessions: Mutex::default() });
        let console = Arc::new(Console::new(host.clone()));
        Self { host, console }
    }

    fn call(&self, method: Method, path: &str, cookie: Option<&str>, body: &'static str) -> Answer {
        let mut headers = HeaderMap::new();
        headers.insert(HeaderName::from_static("sec-fetch-site"), HeaderValue::from_static("same-origin"));
        headers.extend(cookie.map(|cookie| (http::header::COOKIE, HeaderValue::from_str(cookie).unwrap())));
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let request = Request {
            method,
            path: path.to_owned(),
            query: query.to_owned(),
            headers,
            body: Bytes::from_static(body.as_bytes()),
        };
        self.console.answer(&request).now_or_never().unwrap()
    }

    fn sign_in(&self) -> String {
        let answer = self.call(Method::POST, "/sign-in", None, "token=old&name=Ada");
        assert_eq!((answer.response.status().as_u16(), answer.caller), (303, Caller::Known));
        let cookie = answer.response.headers()["set-cookie"].to_str().unwrap();
        cookie.split(';').next().unwrap().to_owned()
    }

    fn status(&self, method: Method, path: &str, cookie: &str) -> u16 {
        self.call(method, path, Some(cookie), "").response.status().as_u16()
    }
}

fn all() -> Permissions {
    Permissions::of(|_| true)
}

fn text(answer: &Answer) -> &str {
    match answer.response.body() {
        Body::Whole(text) => std::str::from_utf8(text).unwrap(),
        Body::Stream(_) => panic!("a stream"),
    }
}

#[test]
fn a_replaced_token_ends_its_sessions_at_once() {
    let bench = Bench::new(all());
    let cookie = bench.sign_in();
    assert_eq!(bench.status(Method::GET, "/apps/new", &cookie), 200);
    *bench.host.token.lock().unwrap() = "new";
    let answer = bench.call(Method::GET, "/apps/new", Some(&cookie), "");
    assert_eq!((answer.response.status().as_u16(), answer.caller), (303, Caller::Refused));
}

#[test]
fn a_store_that_is_away_ends_no_session() {
    let bench = Bench::new(all());
    let cookie = bench.sign_in();
    *bench.host.is_away.lock().unwrap() = true;
    let answer = bench.call(Method::GET, "/apps/new", Some(&cookie), "");
    assert_eq!((answer.response.status().as_u16(), answer.caller), (503, Caller::Unknown));
    assert_eq!(answer.response.headers()["retry-after"], "2");
    assert!(text(&answer).contains("The store is not available"));
    let sign_in = bench.call(Method::POST, "/sign-in", None, "token=old");
    assert_eq!(
        (sign_in.response.status().as_u16(), sign_in.caller),
        (503, Caller::Unknown),
        "no failed authentication"
    );
    *bench.host.is_away.lock().unwrap() = false;
    assert_eq!(bench.status(Method::GET, "/apps/new", &cookie), 200);
}

#[test]
fn page_that_a_role_does_not_cover_is_not_offered() {
    let bench = Bench::new(Permissions::default());
    let cookie = bench.sign_in();
    for path in
        ["deploy", "rollback", "release-hold", "delete", "deploys/1/cancel", "webhook/enable", "webhook/disable"]
    {
        assert_eq!(bench.status(Method::GET, &format!("/apps/shop-test/api/{path}"), &cookie), 403, "{path}");
    }
    let answer = bench.call(Method::GET, "/apps/new", Some(&cookie), "");
    assert_eq!(answer.response.status(), 403);
    assert!(text(&answer).contains("This takes the role admin, and yours is viewer here. Nothing was done."));
    assert_eq!(bench.status(Method::POST, "/sign-out", &cookie), 303, "leaving needs no role");
}

#[test]
fn a_role_is_asked_for_by_app() {
    let bench = Bench::new(all());
    let cookie = bench.sign_in();
    assert_eq!(bench.status(Method::GET, "/apps/shop-prod/api/rollback", &cookie), 403);
    assert_eq!(bench.status(Method::GET, "/apps/shop-prod/api/delete", &cookie), 403);
    assert_eq!(bench.status(Method::GET, "/apps/new", &cookie), 200);
}

#[test]
fn only_a_wrong_credential_counts_as_a_failure() {
    let bench = Bench::new(all());
    let caller = |path, cookie, body: &'static str| {
        let method = if body.is_empty() { Method::GET } else { Method::POST };
        bench.call(method, path, cookie, body).caller
    };
    assert_eq!(caller("/", None, ""), Caller::Unknown);
    assert_eq!(caller("/sign-in", None, ""), Caller::Unknown);
    assert_eq!(caller("/", Some("__Host-rollhook=guess"), ""), Caller::Refused);
    assert_eq!(caller("/sign-in", None, "token=guess"), Caller::Refused);
    assert_eq!(caller("/sign-in", None, "name=Ada"), Caller::Refused);
}

#[test]
fn a_new_sign_in_ends_the_session_that_the_browser_had() {
    let bench = Bench::new(all());
    let first = bench.sign_in();
    let answer = bench.call(Method::POST, "/sign-in", Some(&first), "token=old");
    assert_eq!(answer.response.status(), 303);
    assert_eq!(bench.status(Method::GET, "/apps/new", &first), 303);
}

#[test]
fn a_person_s_name_is_shown_as_text() {
    let bench = Bench::new(all());
    let answer = bench.call(Method::POST, "/sign-in", None, "token=old&name=%3Cscript%3E%1B%5B31m%E2%80%AE");
    let cookie = answer.response.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    let answer = bench.call(Method::GET, "/apps/new", Some(&cookie), "");
    let page = text(&answer);
    assert!(page.contains("&#60;script&#62;") && !page.contains("<script>"));
    assert!(!page.contains('\u{1b}') && !page.contains('\u{202e}'));
}

#[test]
fn the_sign_in_says_where_the_cookie_cannot_work() {
    let bench = Bench::new(all());
    let page = |headers: &[(&'static str, &'static str)]| {
        let headers =
            headers.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let request = Request {
            method: Method::GET,
            path: "/sign-in".to_owned(),
            query: String::new(),
            headers: headers.collect(),
            body: Bytes::new(),
        };
        text(&bench.console.answer(&request).now_or_never().unwrap()).to_owned()
    };
    assert!(page(&[("host", "deploys.example.com")]).contains("You cannot sign in on this page."));
    for headers in [&[("host", "localhost:8080")][..], &[("host", "deploys.example.com"), ("sec-fetch-site", "none")]] {
        assert!(!page(headers).contains("You cannot sign in on this page."), "{headers:?}");
    }
}

/// The cookies that an answer sets: name, value, and whether it is removed.
fn cookies(answer: &Answer) -> Vec<(String, String, bool)> {
    let lines = answer.response.headers().get_all("set-cookie").iter().map(|line| line.to_str().unwrap());
    let cookie = |line: &str| {
        assert!(line.starts_with("__Host-") && line.contains("; Path=/; Secure; HttpOnly; SameSite=Lax"), "{line}");
        let (name, value) = line.split(';').next().unwrap().split_once('=').unwrap();
        (name.to_owned(), value.to_owned(), line.contains("Max-Age=0"))
    };
    lines.map(cookie).collect()
}

/// Begins a sign-in at the provider, and returns its cookie.
fn begun(bench: &Bench, next: &str) -> String {
    let answer = bench.call(Method::GET, &format!("/sign-in/start?next={next}"), None, "");
    assert_eq!((answer.response.status().as_u16(), answer.caller), (303, Caller::Unknown));
    assert_eq!(answer.response.headers()["location"], "https://login.example.com/auth?client_id=x");
    let (name, value, _) = cookies(&answer).remove(0);
    format!("{name}={value}")
}

const RETURNED: &str = "/sign-in/callback?state=the-state&code=of-ada";

#[test]
fn a_sign_in_at_the_provider_begins_a_session_and_leads_back() {
    let bench = Bench::new(all());
    let page = bench.call(Method::GET, "/sign-in?next=/apps/shop-test/api", None, "");
    assert!(text(&page).contains("/sign-in/start?next=%2Fapps%2Fshop-test%2Fapi"));
    assert!(text(&page).contains("Sign in with &#60;Example&#62;"));
    for (next, led) in
        [("%2Fapps%2Fnew", "/apps/new"), ("https%3A%2F%2Fevil.example", "/"), ("%2F%2Fevil.example", "/")]
    {
        let answer = bench.call(Method::GET, RETURNED, Some(&begun(&bench, next)), "");
        assert_eq!((answer.response.status().as_u16(), answer.caller), (303, Caller::Known));
        assert_eq!(answer.response.headers()["location"], led);
        let set = cookies(&answer);
        let session = set.iter().find(|(name, ..)| name == "__Host-rollhook").unwrap();
        assert_eq!(bench.status(Method::GET, "/apps/new", &format!("__Host-rollhook={}", session.1)), 200);
        assert!(set.iter().any(|(name, _, is_gone)| name == "__Host-rollhook-sign-in" && *is_gone));
    }
}

#[test]
fn an_answer_that_the_browser_did_not_ask_for_begins_no_session() {
    let bench = Bench::new(all());
    let cookie = begun(&bench, "/");
    let other = cookie.replace("the-state", "other");
    for (path, cookie, status, caller) in [
        (RETURNED, None, 400, Caller::Unknown),
        (RETURNED, Some("__Host-rollhook-sign-in=x"), 400, Caller::Unknown),
        (RETURNED, Some(other.as_str()), 400, Caller::Unknown),
        ("/sign-in/callback?code=of-ada", Some(&cookie), 400, Caller::Unknown),
        ("/sign-in/callback?state=the-state&code=guess", Some(&cookie), 401, Caller::Refused),
        ("/sign-in/callback?state=the-state&error=%3Cb%3Eaccess_denied", Some(&cookie), 403, Caller::Unknown),
        ("/sign-in/callback?state=the-state&code=of-nora", Some(&cookie), 403, Caller::Unknown),
    ] {
        let answer = bench.call(Method::GET, path, cookie, "");
        assert_eq!((answer.response.status().as_u16(), answer.caller), (status, caller), "{path} {cookie:?}");
        assert!(cookies(&answer).iter().all(|(name, _, is_gone)| name != "__Host-rollhook" && *is_gone), "{path}");
        assert!(!text(&answer).contains("<b>"), "{path}");
    }
    assert!(bench.console.brings_credentials(&Request {
        method: Method::GET,
        path: "/sign-in/callback".to_owned(),
        query: String::new(),
        headers: HeaderMap::new(),
        body: Bytes::new(),
    }));
}

#[test]
fn form_of_a_new_app_has_the_kinds_and_settings_of_the_driver() {
    let bench = Bench::new(all());
    let cookie = bench.sign_in();
    let form = bench.call(Method::GET, "/apps/new?workload.kind=compose", Some(&cookie), "");
    let form = text(&form);
    for told in [
        "<option value=\"\">Any</option>",
        "<option value=\"compose\" selected>Service</option>",
        "<input id=\"workload-name\" name=\"workload.name\"",
        "<option value=\"\">by default</option><option>first</option>",
        "<details class=\"more\"><summary>",
        "<input id=\"template-port\" name=\"template.port\" class=\"mono\" value=\"\" inputmode=\"numeric\"",
        "<textarea id=\"template-env\"",
        "<p class=\"help\" id=\"template-port-help\">Listens.</p>",
    ] {
        assert!(form.contains(told), "{told}: {form}");
    }
    assert!(!form.contains("StatefulSet") && !form.contains("workload-containers"), "{form}");
}

#[test]
fn form_of_a_new_app_is_shown_again_with_the_setting_that_is_wrong() {
    let bench = Bench::new(all());
    let cookie = bench.sign_in();
    let filled =
        "app=web&project=shop&environment=test&template.port=http&template.env=MODE%3Da%3Cb&workload.replace=last";
    let answer = bench.call(Method::POST, "/apps/new", Some(&cookie), filled);
    assert_eq!(answer.response.status().as_u16(), 422);
    let form = text(&answer);
    for told in [
        "id=\"error\">Port must be a whole number.</p>",
        "<details class=\"more\" open>",
        "value=\"http\" inputmode=\"numeric\"",
        "aria-describedby=\"error template-port-help\" aria-invalid=\"true\"",
        "MODE=a&#60;b</textarea>",
        "<option selected>last</option>",
    ] {
        assert!(form.contains(told), "{told}: {form}");
    }
}
