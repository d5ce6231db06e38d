//! Apps and history in Kubernetes itself, as custom resources; webhook tokens in Secrets beside them.
//!
//! ```text
//!   admit ──▶ create AppDeploy {app}-{n}        one object per revision: AlreadyExists means read it, try the next
//!   record ─▶ replace App (resourceVersion)     head and unfinished entries: one compare-and-swap
//!                └▶ AppDeploy.status            what has ended, moved out of the App; finished by whoever comes next
//!   claim ──▶ Lease per replica                 a sign of life; an app's owner stands in the App
//!   view, page ◀── App, then the few AppDeploys that are needed
//!                  mirror ◀── three watches     where to look, never what is true
//! ```
//!
//! Numbers have no gaps, because an accept creates the object that follows the last it knows: one that knows too little
//! finds that name taken, reads what is there, and goes on from it. So it has seen every key, every hold and every
//! entry below the one it creates, however old its knowledge was when it began.
//!
//! An accept that ends others or holds an image takes effect with the replacement of the App that follows its creation.
//! Whoever meets such an entry before that makes the replacement first ([`load`]), so that nobody sees it half done.

pub mod crd;

mod admit;
mod apps;
mod calls;
mod caught_up;
mod claims;
mod clock;
mod codec;
mod commit;
mod elsewhere;
mod error;
mod head;
mod history;
mod install;
mod leases;
mod load;
mod mirror;
mod pairs;
mod record;
mod retention;
mod secrets;
mod version;
mod views;
mod watches;

use std::{fmt, sync::Arc, time::Duration};

use rollhook_core::{Result, ports::Wake};
use rollhook_sealing::KeyRing;
use tokio::sync::broadcast;

pub use clock::StoreClock;
pub use install::ensure_crds;
pub(crate) use secrets::OPERATOR_SECRET;

use crate::client::Cluster;
use admit::Turns;
use calls::Calls;
use elsewhere::Elsewhere;
use mirror::Mirror;
use secrets::Secrets;
use watches::Watches;

/// Wakes that a listener may be behind with before it is told [`Wake::Any`] instead.
const WAKES: usize = 1024;

/// How long nothing may come on a connection: longer than a watch, which tells something at its end.
const QUIET: Duration = Duration::from_secs(15);

/// Apps, tokens and history in the cluster; clones share their connection and what it has seen.
#[derive(Clone)]
pub struct KubernetesStore {
    pub(crate) calls: Calls,
    pub(crate) clock: StoreClock,
    pub(crate) mirror: Arc<Mirror>,
    pub(crate) wakes: broadcast::Sender<Wake>,
    elsewhere: Arc<Elsewhere>,
    secrets: Arc<Secrets>,
    turns: Arc<Turns>,
    _watches: Arc<Watches>,
}

impl KubernetesStore {
    /// Connects as `kubectl` would, or from inside a pod with its service account. Our own objects (Leases, and what
    /// belongs to no app) are in the namespace that this connection has by default. One installation per cluster is
    /// meant, for apps are found wherever they are: its replicas, and command lines on the same store, should have one
    /// namespace here. Tokens are sealed with the ring's
    /// keys. The custom resources are made where they are missing.
    ///
    /// # Errors
    /// `Invalid` where there is no configuration, or one that cannot be used; as [`ensure_crds`].
    pub async fn connect(ring: KeyRing) -> Result<Self> {
        let client = Cluster::connect_with_limit(QUIET).await?.into_client();
        if ensure_crds(&client).await? {
            tracing::info!(group = crd::GROUP, "made the custom resources App and AppDeploy");
        }
        let namespace = client.default_namespace().to_owned();
        Ok(Self::new(client, &namespace, ring))
    }

    /// A store through this client, whose own objects are in this namespace. Watches run until the last clone is
    /// dropped.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(client: kube::Client, namespace: &str, ring: KeyRing) -> Self {
        Self::with_clock(client, namespace, ring, StoreClock::system())
    }

    /// A store as [`KubernetesStore::new`] makes it, with clocks of one's own.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn with_clock(client: kube::Client, namespace: &str, ring: KeyRing, clock: StoreClock) -> Self {
        let calls = Calls::new(client, namespace);
        let (wakes, _) = broadcast::channel(WAKES);
        let mirror = Arc::new(Mirror::new(clock.clone()));
        let watches = Arc::new(Watches::start(&calls, &mirror, &wakes));
        let secrets = Arc::new(Secrets::new(calls.clone(), Arc::new(ring), clock.clone()));
        Self {
            calls,
            clock,
            mirror,
            wakes,
            elsewhere: Arc::default(),
            secrets,
            turns: Arc::default(),
            _watches: watches,
        }
    }
}

impl fmt::Debug for KubernetesStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubernetesStore")
            .field("namespace", &self.calls.namespace())
            .field("keys", &self.secrets.ring())
            .finish()
    }
}
