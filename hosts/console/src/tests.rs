//! The console over a management plane in memory, whose records can be away: sessions, their confirmation, and
//! permissions.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use rollhook_api::{
    Local,
    operations::{DeploysQuery, ListDeploys, ShowApp},
};
use rollhook_core::{
    Error, Result,
    app::Target,
    deploy::{Actor, Evidence},
    ports::{
        Applied, Clock, DriverIdentity, Observation, Rng, RolloutDriver, RolloutFailure, RolloutSpec, SettingValue,
        TargetDescription, TargetRequest, TargetSetting, Validated, Version,
    },
    request::Registration,
    service::{self, Deployer},
    time::Timestamp,
    token::Token,
};
use rollhook_management::{
    Management, Ports,
    access::{Grant, GroupGrant, NewApiToken, Principal, Realm, Role, SignInGrants, replace_admin_token},
    ports::{
        NewRecord, Record, RecordKey, RecordKind, RecordPlace, RecordStore, SignInProvider, SignInRequest, SignedIn,
    },
};
use rollhook_memory::{MemoryStore, SimulatedCluster};
use zeroize::Zeroizing;

use crate::{Answer, Body, Caller, Console, Host, Request};

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
    steering_variables: &[],
};

/// A clock that stands still.
struct Still;

#[async_trait]
impl Clock for Still {
    fn elapsed(&self) -> Duration {
        Duration::ZERO
    }

    async fn sleep(&self, _: Duration) {
        std::future::pending().await
    }
}

fn now() -> Timestamp {
    Timestamp::from_millis(1_767_323_045_678)
}

/// Bytes that are another one at each call.
#[derive(Default)]
struct Counted(AtomicU8);

impl Rng for Counted {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(self.0.fetch_add(1, Ordering::Relaxed));
    }
}

/// A driver of machines, each of which is a simulated cluster.
struct Machine(SimulatedCluster);

#[async_trait]
impl RolloutDriver for Machine {
    fn describe(&self) -> TargetDescription {
        MACHINE
    }

    fn unstoppable(&self, target: &Target) -> Option<String> {
        (target.settings.get("kind") == Some(&"compose".into())).then(|| "A service goes on.".to_owned())
    }

    fn unconfigurable(&self, target: &Target) -> Option<String> {
        self.0.unconfigurable(target)
    }

    async fn identity(&self) -> Result<DriverIdentity> {
        self.0.identity().await
    }

    async fn validate(&self, request: &TargetRequest) -> Result<Validated> {
        self.0.validate(request).await
    }

    async fn apply(&self, spec: &RolloutSpec) -> Result<Applied> {
        self.0.apply(spec).await
    }

    async fn observe(&self, spec: &RolloutSpec) -> Result<Observation> {
        self.0.observe(spec).await
    }

    async fn changed(&self, spec: &RolloutSpec) {
        self.0.changed(spec).await;
    }

    async fn evidence(&self, spec: &RolloutSpec, failure: Option<&RolloutFailure>) -> Result<Evidence> {
        self.0.evidence(spec, failure).await
    }
}

/// The records of a store that can be away.
struct Records {
    store: Arc<MemoryStore>,
    are_away: AtomicBool,
}

impl Records {
    fn reach(&self) -> Result<&MemoryStore> {
        let are_away = self.are_away.load(Ordering::Relaxed);
        if are_away { Err(Error::unavailable("the store", "it is away")) } else { Ok(&self.store) }
    }
}

#[async_trait]
impl RecordStore for Records {
    async fn read(&self, kind: RecordKind, key: &RecordKey) -> Result<Option<Record>> {
        self.reach()?.read(kind, key).await
    }

    async fn write(&self, kind: RecordKind, record: NewRecord, version: Option<Version>) -> Result<Version> {
        self.reach()?.write(kind, record, version).await
    }

    async fn remove(&self, kind: RecordKind, key: &RecordKey) -> Result<()> {
        self.reach()?.remove(kind, key).await
    }

    async fn list(&self, kind: RecordKind, after: Option<RecordPlace>, limit: usize) -> Result<Vec<Record>> {
        RecordStore::list(self.reach()?, kind, after, limit).await
    }
}

/// A provider with two people, of whom Ada alone is in a group.
struct Provider;

#[async_trait]
impl SignInProvider for Provider {
    fn name(&self) -> &str {
        "<Example>"
    }

    fn host(&self) -> &str {
        "login.example.com"
    }

    async fn begin(&self) -> Result<SignInRequest> {
        let text = |text: &str| Zeroizing::new(text.to_owned());
        let url = "https://login.example.com/auth?client_id=x".to_owned();
        Ok(SignInRequest { url, state: text("the-state"), nonce: text("the-nonce"), verifier: text("the-verifier") })
    }

    async fn finish(&self, code: &str, nonce: &str, verifier: &str) -> Result<SignedIn> {
        assert_eq!((nonce, verifier), ("the-nonce", "the-verifier"));
        let person = |subject: &str, name: &str, groups: &[&str]| SignedIn {
            subject: subject.to_owned(),
            name: name.to_owned(),
            groups: groups.iter().map(ToString::to_string).collect(),
        };
        match code {
            "of-ada" => Ok(person("1", "Ada", &["shop"])),
            "of-nora" => Ok(person("2", "<b>nora", &[])),
            _ => Err(Error::Denied { what: "the code".to_owned(), cause: None }),
        }
    }
}

struct Bench {
    records: Arc<Records>,
    management: Arc<Management>,
    console: Arc<Console>,
    /// The admin token.
    token: Token,
}

/// Returns the value of a future that waits for nothing.
fn done<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().unwrap()
}

fn realm(environment: &str) -> Realm {
    Realm::of(Some("shop".parse().unwrap()), Some(environment.parse().unwrap())).unwrap()
}

impl Bench {
    /// The console of two apps, whose environments Ada may administer and read.
    fn new() -> Self {
        let store = Arc::new(MemoryStore::new(Arc::new(now)));
        let cluster = SimulatedCluster::new(Arc::new(Still), Duration::ZERO);
        let ports = service::Ports::new(
            store.clone(),
            store.clone(),
            Arc::new(Machine(cluster)),
            Arc::new(Still),
            Arc::new(Counted::default()),
        );
        let ports = ports.with(|ports| ports.configurations = Some(store.clone()));
        let deployer = Arc::new(Deployer::new(ports, "one"));
        for environment in ["test", "prod"] {
            let names = ("shop".parse().unwrap(), environment.parse().unwrap(), "api".parse().unwrap());
            let app = Registration::new(names.0, names.1, names.2).image("registry.example.com/api:1".parse().unwrap());
            done(deployer.register(&Actor::person("alice"), app, None)).unwrap();
        }
        let records = Arc::new(Records { store, are_away: AtomicBool::new(false) });
        let management = Arc::new(Management::new(deployer, Ports::new(records.clone())));
        let token = management.deployer().new_token();
        done(management.adopt_admin_token(&token)).unwrap();
        let granted = |role, realm| GroupGrant { group: "shop".to_owned(), grant: Grant { role, realm } };
        let grants: Arc<[GroupGrant]> =
            Arc::new([granted(Role::Admin, realm("test")), granted(Role::Viewer, realm("prod"))]);
        management.let_people_in(SignInGrants { provider: Provider.host().to_owned(), grants: grants.clone() });
        let host = Host::new(management.clone(), "https://deploys.example.com".into(), now);
        let console = Arc::new(Console::new(host.with_sign_in(Arc::new(Provider), grants)));
        Self { records, management, console, token }
    }

    fn set_away(&self, are_away: bool) {
        self.records.are_away.store(are_away, Ordering::Relaxed);
    }

    /// A sign-in's form with this token.
    fn form(token: &Token) -> String {
        format!("token={}", token.expose())
    }

    fn call(&self, method: Method, path: &str, cookie: Option<&str>, body: &str) -> Answer {
        let mut headers = HeaderMap::new();
        headers.insert(HeaderName::from_static("sec-fetch-site"), HeaderValue::from_static("same-origin"));
        headers.extend(cookie.map(|cookie| (http::header::COOKIE, HeaderValue::from_str(cookie).unwrap())));
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let request = Request {
            method,
            path: path.to_owned(),
            query: query.to_owned(),
            headers,
            body: Bytes::copy_from_slice(body.as_bytes()),
        };
        done(self.console.answer(&request))
    }

    /// Signs the holder of the admin token in.
    fn sign_in(&self) -> String {
        self.sign_in_by(&format!("{}&name=Ada", Self::form(&self.token)))
    }

    fn sign_in_by(&self, form: &str) -> String {
        let answer = self.call(Method::POST, "/sign-in", None, form);
        assert_eq!((answer.response.status().as_u16(), answer.caller), (303, Caller::Known));
        let cookie = answer.response.headers()["set-cookie"].to_str().unwrap();
        cookie.split(';').next().unwrap().to_owned()
    }

    fn status(&self, method: Method, path: &str, cookie: &str) -> u16 {
        self.call(method, path, Some(cookie), "").response.status().as_u16()
    }
}

fn text(answer: &Answer) -> &str {
    match answer.response.body() {
        Body::Whole(text) => std::str::from_utf8(text).unwrap(),
        Body::Stream(_) => panic!("a stream"),
    }
}

#[test]
fn a_replaced_token_ends_its_sessions_at_once() {
    let bench = Bench::new();
    let cookie = bench.sign_in();
    assert_eq!(bench.status(Method::GET, "/apps/new", &cookie), 200);
    let other = bench.management.deployer().new_token();
    done(replace_admin_token(&*bench.records, &other, &Actor::person("alice"))).unwrap();
    let answer = bench.call(Method::GET, "/apps/new", Some(&cookie), "");
    assert_eq!((answer.response.status().as_u16(), answer.caller), (303, Caller::Refused));
}

#[test]
fn form_of_very_many_fields_is_refused_before_it_is_read() {
    let bench = Bench::new();
    let cookie = bench.sign_in();
    let form = format!("app=web{}", "&app=web".repeat(5_000));
    for (path, cookie) in
        [("/sign-in", None), ("/apps/new", Some(&*cookie)), ("/projects/shop/promote", Some(&*cookie))]
    {
        let answer = bench.call(Method::POST, path, cookie, &form);
        assert_eq!((answer.response.status().as_u16(), answer.caller), (413, Caller::Unknown), "{path}");
        assert!(text(&answer).contains("A form may have at most 1020 fields. Nothing was done."), "{path}");
    }
}

#[test]
fn tables_of_all_apps_hold_no_settings() {
    let bench = Bench::new();
    let names = ("shop".parse().unwrap(), "test".parse().unwrap(), "web".parse().unwrap());
    let mut app = Registration::new(names.0, names.1, names.2).image("registry.example.com/web:1".parse().unwrap());
    app.target.insert("note".to_owned(), "large".into());
    done(bench.management.deployer().register(&Actor::person("alice"), app, None)).unwrap();
    let operations = bench.console.host.operations(&Principal::trusted("alice"), None);
    let shown = done(operations.call(ShowApp, &"shop-test/web".parse().unwrap(), ())).unwrap();
    assert!(!shown.workload.is_empty());
    let all = done(crate::pages::apps::all(&operations)).unwrap();
    assert!(all.apps.len() == 3 && all.apps.iter().all(|app| !app.workload.contains_key("note")));
}

#[test]
fn app_that_a_form_names_many_times_is_promoted_once() {
    let bench = Bench::new();
    let cookie = bench.sign_in();
    let form = format!("from=test&to=prod&key=k{}", "&app=api@1".repeat(500));
    let answer = bench.call(Method::POST, "/projects/shop/promote", Some(&cookie), &form);
    // Nothing has been deployed yet that could be promoted.
    assert_eq!(answer.response.status(), 409);
    assert_eq!(text(&answer).matches("not promoted").count(), 1);
}

#[test]
fn claims_beyond_those_of_a_trust_are_refused_before_they_are_read() {
    let bench = Bench::new();
    let cookie = bench.sign_in();
    let trust = |lines: usize| {
        let form =
            format!("system=other&issuer=https%3A%2F%2Fci.example.com&audience=x&claims={}", "a%3Db%0A".repeat(lines));
        let answer = bench.call(Method::POST, "/apps/shop-test/api/webhook/trust", Some(&cookie), &form);
        (answer.response.status().as_u16(), text(&answer).contains("A trust has at most 10 claims."))
    };
    assert_eq!(trust(10), (422, false), "the claim is given twice");
    assert_eq!(trust(11), (422, true));
}

#[test]
fn a_store_that_is_away_ends_no_session() {
    let bench = Bench::new();
    let cookie = bench.sign_in();
    bench.set_away(true);
    let answer = bench.call(Method::GET, "/apps/new", Some(&cookie), "");
    assert_eq!((answer.response.status().as_u16(), answer.caller), (503, Caller::Unknown));
    assert_eq!(answer.response.headers()["retry-after"], "2");
    assert!(text(&answer).contains("The store is not available"));
    let sign_in = bench.call(Method::POST, "/sign-in", None, &Bench::form(&bench.token));
    assert_eq!(
        (sign_in.response.status().as_u16(), sign_in.caller),
        (503, Caller::Unknown),
        "no failed authentication"
    );
    bench.set_away(false);
    assert_eq!(bench.status(Method::GET, "/apps/new", &cookie), 200);
}

#[test]
fn page_that_a_role_does_not_cover_is_not_offered() {
    let bench = Bench::new();
    let grant = Grant { role: Role::Viewer, realm: Realm::Everything };
    let viewer = NewApiToken { name: "viewer".parse().unwrap(), grant, ttl: None };
    let (_, token) = done(bench.management.create_api_token(&Principal::trusted("alice"), viewer)).unwrap();
    let cookie = bench.sign_in_by(&Bench::form(&token));
    for path in [
        "deploy",
        "redeploy",
        "stop",
        "start",
        "rollback",
        "config",
        "config/unset",
        "config/discard",
        "release-hold",
        "delete",
        "deploys/1/cancel",
        "webhook/enable",
        "webhook/disable",
    ] {
        assert_eq!(bench.status(Method::GET, &format!("/apps/shop-test/api/{path}"), &cookie), 403, "{path}");
    }
    let answer = bench.call(Method::GET, "/apps/new", Some(&cookie), "");
    assert_eq!(answer.response.status(), 403);
    assert!(text(&answer).contains("This takes the role admin, and yours is viewer here. Nothing was done."));
    assert_eq!(bench.status(Method::POST, "/sign-out", &cookie), 303, "leaving needs no role");
}

#[test]
fn a_role_is_asked_for_by_app() {
    let bench = Bench::new();
    let answer = bench.call(Method::GET, RETURNED, Some(&begun(&bench, "/")), "");
    let cookie = cookies(&answer).into_iter().find(|(name, ..)| name == "__Host-rollhook").unwrap();
    let cookie = format!("{}={}", cookie.0, cookie.1);
    assert_eq!(bench.status(Method::GET, "/apps/shop-test/api/delete", &cookie), 200);
    assert_eq!(bench.status(Method::GET, "/apps/shop-prod/api/rollback", &cookie), 403);
    assert_eq!(bench.status(Method::GET, "/apps/shop-prod/api/delete", &cookie), 403);
    assert_eq!(bench.status(Method::GET, "/apps/new", &cookie), 200);
}

#[test]
fn only_a_wrong_credential_counts_as_a_failure() {
    let bench = Bench::new();
    let caller = |path, cookie, body: &str| {
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
    let bench = Bench::new();
    let first = bench.sign_in();
    let answer = bench.call(Method::POST, "/sign-in", Some(&first), &Bench::form(&bench.token));
    assert_eq!(answer.response.status(), 303);
    assert_eq!(bench.status(Method::GET, "/apps/new", &first), 303);
}

#[test]
fn a_person_s_name_is_shown_as_text() {
    let bench = Bench::new();
    let form = format!("{}&name=%3Cscript%3E%1B%5B31m%E2%80%AE", Bench::form(&bench.token));
    let answer = bench.call(Method::POST, "/sign-in", None, &form);
    let cookie = answer.response.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    let answer = bench.call(Method::GET, "/apps/new", Some(&cookie), "");
    let page = text(&answer);
    assert!(page.contains("&#60;script&#62;") && !page.contains("<script>"));
    assert!(!page.contains('\u{1b}') && !page.contains('\u{202e}'));
}

#[test]
fn the_sign_in_says_where_the_cookie_cannot_work() {
    let bench = Bench::new();
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
        text(&done(bench.console.answer(&request))).to_owned()
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
    let bench = Bench::new();
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
    let bench = Bench::new();
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
    let bench = Bench::new();
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
    let bench = Bench::new();
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

#[test]
fn large_list_of_a_history_waits_for_its_turn() {
    let bench = Bench::new();
    let caller =
        Local::new(bench.management.clone(), Principal::trusted("alice"), "https://deploys.example.com".into());
    let (test, prod) = ("shop-test/api".parse().unwrap(), "shop-prod/api".parse().unwrap());
    let list = |app, limit| caller.call(ListDeploys, app, DeploysQuery::page(None, limit)).now_or_never();
    let access = done(caller.open(&test)).unwrap();
    let turn = done(bench.management.deployer().history_turn(&access, 200));
    assert!(list(&test, 200).is_none(), "one of an environment at a time");
    assert!(list(&test, 20).is_some() && list(&prod, 200).is_some());
    drop(turn);
    assert!(list(&test, 200).is_some_and(|listed| listed.is_ok()));
}

#[test]
fn driver_decides_which_apps_can_be_stopped() {
    let bench = Bench::new();
    let operations = bench.console.host.operations(&Principal::trusted("alice"), None);
    let mut app = done(operations.call(ShowApp, &"shop-test/api".parse().unwrap(), ())).unwrap();
    for (kind, can_scale) in [("container", true), ("compose", false)] {
        app.workload.insert("kind".to_owned(), kind.into());
        assert_eq!(bench.console.host.can_scale(&app), can_scale, "{kind}");
    }
}

#[test]
fn variable_is_set_by_a_form_and_its_value_is_never_shown() {
    let bench = Bench::new();
    let cookie = bench.sign_in();
    let path = "/apps/shop-test/api/config";
    let get = |path: &str| bench.call(Method::GET, path, Some(&cookie), "");
    let post = |path: &str, form: &str| bench.call(Method::POST, path, Some(&cookie), form);
    assert!(text(&get(path)).contains("No variables are set through rollhook."));

    // Nothing has succeeded yet, so that it waits for that.
    let answer = post(path, "name=A&value=hun%0D%0Ater2");
    assert_eq!(answer.response.status(), 200);
    assert!(text(&answer).contains("The change waits for the next deploy."));
    for page in [text(&answer), text(&get(path))] {
        assert!(
            page.contains("Variables of the next deploy") && page.contains("<td data-label=\"Bytes\">8</td>"),
            "{page}"
        );
        assert!(!page.contains("ter2"), "{page}");
    }
    assert!(text(&post(path, "name=A&value=hun%0D%0Ater2")).contains("just this configuration already"));
    assert!(
        text(&post(path, "name=B&value=%3Cb%3E&plain=yes")).contains("&#60;b&#62;"),
        "a plain value is shown as text"
    );

    let refused = post(path, "name=9A&value=hunter3");
    assert_eq!(refused.response.status(), 422);
    assert!(text(&refused).contains("value=\"9A\"") && !text(&refused).contains("hunter3"), "{}", text(&refused));

    assert!(text(&get(&format!("{path}/unset?name=A"))).contains("Unset A?"));
    assert!(!text(&post(&format!("{path}/unset"), "name=A")).contains("<th scope=\"row\" class=\"mono\">A</th>"));
    let refused = post(&format!("{path}/unset"), "name=A&break_glass=%3Cwhy%3E");
    assert_eq!(refused.response.status(), 422);
    assert!(
        text(&refused).contains("Unset A?") && text(&refused).contains("there is no variable A"),
        "the question again"
    );

    assert!(text(&get(&format!("{path}/unset?name=B"))).contains("name=\"revoked\""));
    assert!(text(&get(path)).contains("/config/discard"));
    assert!(text(&get(&format!("{path}/discard"))).contains("Discard what waits for the next deploy?"));
    let discarded = post(&format!("{path}/discard"), "");
    let discarded = text(&discarded);
    assert!(
        discarded.contains("role=\"status\"") && !discarded.contains("Variables of the next deploy"),
        "{discarded}"
    );
    assert!(!discarded.contains("/config/discard"), "nothing waits");
}
