//! The verifier: its kinds of checks, and the bounds that all of them have.

use std::{any::Any, sync::Arc};

use async_trait::async_trait;
use rollhook_core::{
    app::Settings,
    check::{CheckKind, CheckSecret, PastValue},
    error::Result,
    ports::{CheckSetting, KindOfCheck, MeasureSpec, Measured, TimesBefore, Verifier},
    slots::Slots,
    source::HostPattern,
};
use rollhook_https::{Fetch, covers, holding};

use crate::{
    found::Found,
    http::{self, HttpCheck},
    instances::InstanceCalls,
    login::{self, FORMS, Hidden, origin},
    prometheus::{self, PrometheusCheck},
    settings,
    webhook::{self, WebhookCheck},
};

/// The addresses that checks may call: by default, those of any other machine, with encryption.
#[derive(Clone, Debug, Default)]
pub struct AllowedAddresses {
    /// Whether checks may call this machine, link-local addresses, and servers without encryption.
    pub local: bool,
    /// The hosts that they may call; empty: any.
    pub hosts: Vec<HostPattern>,
}

impl AllowedAddresses {
    /// Returns `Ok` if a URL may be called.
    ///
    /// # Errors
    /// The end of a sentence that begins with the setting's name.
    pub(crate) fn check(&self, fetch: &Fetch, url: &str) -> std::result::Result<(), String> {
        fetch.check(url).map_err(|error| error.to_string())?;
        let uri = url.parse::<::http::Uri>().ok();
        let host = uri.as_ref().and_then(::http::Uri::host).unwrap_or_default();
        if self.hosts.is_empty() || covers(&self.hosts, host) {
            return Ok(());
        }
        Err("is on none of the hosts that the operator allows (--receiver-host)".to_owned())
    }
}

/// The flag by which the operator allows local addresses.
const FLAG: &str = "--allow-local-receivers";

/// Measures by requests over HTTP.
pub struct HttpVerifier {
    fetch: Fetch,
    addresses: AllowedAddresses,
    instances: InstanceCalls,
    turns: Slots,
}

/// The settings of a check, read.
enum Read {
    Http(HttpCheck),
    Prometheus(PrometheusCheck),
    Webhook(WebhookCheck),
}

impl Read {
    fn settings(&self) -> Settings {
        match self {
            Self::Http(check) => check.settings(),
            Self::Prometheus(check) => check.settings(),
            Self::Webhook(check) => check.settings(),
        }
    }

    fn check_secret(&self, secret: &CheckSecret) -> std::result::Result<(), String> {
        let login = match self {
            Self::Http(check) => &check.login,
            Self::Prometheus(check) => &check.login,
            Self::Webhook(_) => return WebhookCheck::check_secret(secret),
        };
        let login = login.as_ref();
        login.ok_or_else(|| format!("is sent by a login, which must be given: {FORMS}."))?.check(secret)
    }

    /// Returns what is asked, without the secret.
    fn request(&self, spec: &MeasureSpec) -> String {
        match self {
            Self::Http(check) => check.request(spec),
            Self::Prometheus(check) => check.request(spec),
            Self::Webhook(check) => check.request(spec),
        }
    }

    fn condition(&self) -> String {
        match self {
            Self::Http(check) => check.condition(),
            Self::Prometheus(check) => check.condition(),
            Self::Webhook(_) => webhook::CONDITION.to_owned(),
        }
    }

    async fn measure(&self, of: &HttpVerifier, spec: &MeasureSpec) -> Found {
        let (addresses, fetch) = (&of.addresses, &of.fetch);
        match self {
            Self::Http(check) => check.measure((addresses, fetch), &of.instances, spec).await,
            Self::Prometheus(check) => check.measure(addresses, fetch, spec).await,
            Self::Webhook(check) => check.measure(addresses, fetch, spec).await,
        }
    }

    fn timed_out(&self, spec: &MeasureSpec) -> Found {
        match self {
            Self::Http(check) => check.timed_out(spec),
            Self::Prometheus(_) => PrometheusCheck::timed_out(spec),
            Self::Webhook(_) => WebhookCheck::timed_out(spec),
        }
    }
}

/// The measurements that are made at once, and the most of them of one environment. One lasts until the look-ups of its names
/// have ended: a name server that does not answer keeps them for longer than any measurement.
const TURNS: (usize, usize) = (32, 8);

/// The word of a kind, what it is, its settings, and what its secret is.
type Kind = (&'static str, &'static str, &'static [CheckSetting], &'static str);

const KINDS: [Kind; 3] = [
    ("http", http::ABOUT, http::SETTINGS, login::SECRET),
    ("prometheus", prometheus::ABOUT, prometheus::SETTINGS, login::SECRET),
    ("webhook", webhook::ABOUT, webhook::SETTINGS, webhook::SECRET),
];

impl HttpVerifier {
    /// Returns a verifier that calls the addresses that the operator allows.
    pub fn new(addresses: AllowedAddresses) -> Self {
        Self {
            fetch: Fetch::new(addresses.local, FLAG).with_own_lookups(TURNS.0),
            addresses,
            instances: InstanceCalls::new(),
            turns: Slots::with_share(TURNS.0, TURNS.1),
        }
    }

    fn read(&self, kind: &CheckKind, settings: &Settings) -> std::result::Result<Read, String> {
        let kinds = self.describe();
        let Some(described) = kinds.iter().find(|known| known.kind == *kind) else {
            return Err(format!(
                "the kind {kind} is unknown here; there are {}.",
                KINDS.map(|(word, ..)| word).join(", ")
            ));
        };
        let texts = settings::read(described, settings)?;
        match kind.as_str() {
            "http" => HttpCheck::parse(texts, (&self.addresses, &self.fetch), &self.instances).map(Read::Http),
            "prometheus" => PrometheusCheck::parse(texts, &self.addresses, &self.fetch).map(Read::Prometheus),
            _ => WebhookCheck::parse(texts, &self.addresses, &self.fetch).map(Read::Webhook),
        }
    }
}

#[async_trait]
impl Verifier for HttpVerifier {
    fn describe(&self) -> Vec<KindOfCheck> {
        let described = KINDS.iter().filter_map(|(word, about, settings, secret)| {
            Some(KindOfCheck { kind: word.parse().ok()?, about, settings, secret: Some(secret) })
        });
        described.collect()
    }

    fn check(&self, kind: &CheckKind, settings: &Settings) -> std::result::Result<Settings, String> {
        Ok(self.read(kind, settings)?.settings())
    }

    fn secret_for(&self, kind: &CheckKind, settings: &Settings) -> Option<String> {
        let text = |name: &str| settings.get(name).and_then(serde_json::Value::as_str);
        let has_secret = kind.as_str() == "webhook" || text(login::SETTING.name).is_some();
        origin(text("url").filter(|_| has_secret)?)
    }

    fn check_secret(
        &self,
        kind: &CheckKind,
        settings: &Settings,
        secret: &CheckSecret,
    ) -> std::result::Result<(), String> {
        self.read(kind, settings)?.check_secret(secret)
    }

    fn instance_port(&self, kind: &CheckKind, settings: &Settings) -> Option<u16> {
        if kind.as_str() == "http" { http::instance_port(settings) } else { None }
    }

    async fn measure(&self, spec: &MeasureSpec) -> Result<Measured> {
        let time = spec.check.timeout;
        let Ok(turn) = tokio::time::timeout(time, self.turns.acquire(&spec.app.namespace)).await else {
            let found =
                Found::none("Nothing was measured: others of the environment are measured, and came before it.");
            return Ok(found.measured(spec.now, String::new(), String::new()));
        };
        let turn: Arc<dyn Any + Send + Sync> = Arc::new(turn);
        let read = match self.read(&spec.check.kind, &spec.check.settings) {
            Ok(read) => read,
            // Another version of the server has stored it, or the operator allows less than it did.
            Err(why) => {
                let found = Found::none(format!("Nothing was measured: {why}"));
                return Ok(found.measured(spec.now, String::new(), String::new()));
            }
        };
        let found = tokio::time::timeout(time, holding(turn, read.measure(self, spec))).await;
        let found = found.unwrap_or_else(|_| read.timed_out(spec));
        let found = Hidden::of(spec.secret.as_ref()).hide(found);
        Ok(found.measured(spec.now, read.request(spec), read.condition()))
    }

    async fn values_before(&self, spec: &MeasureSpec, times: &TimesBefore) -> Vec<PastValue> {
        let Ok(Read::Prometheus(check)) = self.read(&spec.check.kind, &spec.check.settings) else { return Vec::new() };
        let turn: Arc<dyn Any + Send + Sync> = Arc::new(self.turns.acquire(&spec.app.namespace).await);
        let values = holding(turn, check.values_before(&self.addresses, &self.fetch, spec, times));
        match tokio::time::timeout(spec.check.timeout, values).await {
            Ok(Ok(values)) => Hidden::of(spec.secret.as_ref()).without(values),
            // The measurement beside it says what is wrong with the query.
            Ok(Err(_)) | Err(_) => Vec::new(),
        }
    }
}
