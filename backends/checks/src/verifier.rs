//! The verifier: its kinds of checks, and the bounds that all of them have.

use std::{any::Any, sync::Arc};

use async_trait::async_trait;
use rollhook_core::{
    app::Settings,
    check::CheckKind,
    error::Result,
    ports::{KindOfCheck, MeasureSpec, Measured, Verifier},
    slots::Slots,
    source::HostPattern,
};
use rollhook_https::{Fetch, holding};

use crate::{
    found::Found,
    http::{self, HttpCheck},
    prometheus::{self, PrometheusCheck},
    settings,
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
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if self.hosts.is_empty() || self.hosts.iter().any(|pattern| pattern.covers(host)) {
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
    turns: Slots,
}

/// The settings of a check, read.
enum Read {
    Http(HttpCheck),
    Prometheus(PrometheusCheck),
}

/// The measurements that are made at once, and the most of them of one environment. One lasts until the look-ups of its names
/// have ended: a name server that does not answer keeps them for longer than any measurement.
const TURNS: (usize, usize) = (32, 8);

/// The word of a kind, and what it is.
type Kind = (&'static str, &'static str, &'static [rollhook_core::ports::CheckSetting]);

const KINDS: [Kind; 2] =
    [("http", http::ABOUT, http::SETTINGS), ("prometheus", prometheus::ABOUT, prometheus::SETTINGS)];

impl HttpVerifier {
    /// Returns a verifier that calls the addresses that the operator allows.
    pub fn new(addresses: AllowedAddresses) -> Self {
        Self {
            fetch: Fetch::new(addresses.local, FLAG).with_own_lookups(TURNS.0),
            addresses,
            turns: Slots::with_share(TURNS.0, TURNS.1),
        }
    }

    fn read(&self, kind: &CheckKind, settings: &Settings) -> std::result::Result<Read, String> {
        let kinds = self.describe();
        let Some(described) = kinds.iter().find(|known| known.kind == *kind) else {
            return Err(format!(
                "the kind {kind} is unknown here; there are {}.",
                KINDS.map(|(word, ..)| word).join(" and ")
            ));
        };
        let texts = settings::read(described, settings)?;
        if kind.as_str() == "http" {
            HttpCheck::parse(texts, &self.addresses, &self.fetch).map(Read::Http)
        } else {
            PrometheusCheck::parse(texts, &self.addresses, &self.fetch).map(Read::Prometheus)
        }
    }
}

#[async_trait]
impl Verifier for HttpVerifier {
    fn describe(&self) -> Vec<KindOfCheck> {
        let described = KINDS
            .iter()
            .filter_map(|(word, about, settings)| Some(KindOfCheck { kind: word.parse().ok()?, about, settings }));
        described.collect()
    }

    fn check(&self, kind: &CheckKind, settings: &Settings) -> std::result::Result<Settings, String> {
        Ok(match self.read(kind, settings)? {
            Read::Http(check) => check.settings(),
            Read::Prometheus(check) => check.settings(),
        })
    }

    async fn measure(&self, spec: &MeasureSpec) -> Result<Measured> {
        let (fetch, addresses, time) = (&self.fetch, &self.addresses, spec.check.timeout);
        let Ok(turn) = tokio::time::timeout(time, self.turns.acquire(&spec.app.namespace)).await else {
            let found =
                Found::none("Nothing was measured: others of the environment are measured, and came before it.");
            return Ok(found.measured(spec.now, String::new(), String::new()));
        };
        let turn: Arc<dyn Any + Send + Sync> = Arc::new(turn);
        let (found, request, condition) = match self.read(&spec.check.kind, &spec.check.settings) {
            Ok(Read::Http(check)) => {
                let found = tokio::time::timeout(time, holding(turn, check.measure(addresses, fetch, spec))).await;
                (found.unwrap_or_else(|_| check.timed_out(spec)), check.request(spec), check.condition())
            }
            Ok(Read::Prometheus(check)) => {
                let found = tokio::time::timeout(time, holding(turn, check.measure(addresses, fetch, spec))).await;
                (found.unwrap_or_else(|_| PrometheusCheck::timed_out(spec)), check.request(spec), check.condition())
            }
            // Another version of the server has stored it, or the operator allows less than it did.
            Err(why) => (Found::none(format!("Nothing was measured: {why}")), String::new(), String::new()),
        };
        Ok(found.measured(spec.now, request, condition))
    }
}
