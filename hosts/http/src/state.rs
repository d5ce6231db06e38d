//! The state that all calls share.

use std::sync::Arc;

use rollhook_console::Console;
use rollhook_core::{
    app::{AppId, AppUid},
    service::Deployer,
};
use rollhook_management::Management;
use tokio::sync::watch;

use crate::{
    answers::Answers,
    budget::Budget,
    callers::{Caller, Callers},
    client_ip::Proxies,
    connections::InCall,
    disks::Disks,
    error_reply::ErrorReply,
    instrumented::Writable,
    limits::Limits,
    lines::Lines,
    metrics::Metrics,
    places::Places,
    readiness::Readiness,
    streams::Streams,
};

/// The deployer, the management plane above it, and the state of the host.
pub(crate) struct State {
    pub(crate) deployer: Arc<Deployer>,
    pub(crate) management: Arc<Management>,
    pub(crate) base_url: Arc<str>,
    pub(crate) console: Arc<Console>,
    pub(crate) callers: Callers,
    pub(crate) limits: Limits,
    pub(crate) lines: Lines,
    pub(crate) proxies: Arc<Proxies>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) writable: Writable,
    pub(crate) drain: Drain,
    pub(crate) bodies: Budget,
    /// The calls that wait for deploys, of which each app has a bounded number; further ones are answered at once.
    pub(crate) waits: Places<AppUid>,
    pub(crate) streams: Streams,
    pub(crate) answers: Answers,
    pub(crate) readiness: Readiness,
    /// Whether probes and metrics are answered on a listener of their own alone.
    pub(crate) has_probe_listener: bool,
    /// The sentence that every page of the console shows.
    pub(crate) notice: Option<&'static str>,
    pub(crate) disks: Arc<Disks>,
}

impl State {
    /// Returns the caller that a token or session stands for, as this process last read it.
    pub(crate) fn holder(&self, secret: &str) -> Caller {
        let known = self.management.known_caller(secret.as_bytes());
        known.map_or_else(|| self.callers.holder(secret), |known| self.callers.of(&known))
    }

    /// Returns the callers of an app's webhook, who are counted together.
    pub(crate) fn webhook(&self, app: &AppId) -> Caller {
        self.callers.of(&self.management.webhook_caller(app))
    }

    /// Notes that a call's caller is known, and counts the call once.
    ///
    /// # Errors
    /// 429 if the caller calls too often.
    pub(crate) fn known(&self, in_call: &InCall, caller: Caller) -> Result<(), ErrorReply> {
        if in_call.known(caller) { self.limits.caller(caller) } else { Ok(()) }
    }

    /// Reads the newest API tokens, so that their callers are recognised: once in a second, whoever asks.
    pub(crate) async fn read_new_tokens(&self) {
        // A store that is away is reported to the caller who is let in.
        let _ = self.readiness.get(async || self.management.ready().await).await;
    }
}

/// Whether the server is stopping.
#[derive(Clone)]
pub(crate) struct Drain(watch::Receiver<bool>);

impl Drain {
    /// Returns a drain that has not begun, and the sender that begins it.
    pub(crate) fn new() -> (watch::Sender<bool>, Self) {
        let (begin, begun) = watch::channel(false);
        (begin, Self(begun))
    }

    /// Returns whether it has begun.
    pub(crate) fn has_begun(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns once it has begun, or the server was dropped.
    pub(crate) async fn begun(&self) {
        let _ = self.0.clone().wait_for(|begun| *begun).await;
    }
}
