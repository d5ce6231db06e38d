//! A world whose replicas tell receivers that fail as a test wants.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use rollhook_core::{
    Error, Result,
    app::Policy,
    service::{Authorized, Deployer},
};
use rollhook_management::{
    Management, NotificationPorts, Ports,
    access::Realm,
    notifications::{
        Content, Destination, EventKind, Events, NewReceiver, Notification, ReceiverApps, ReceiverName, ReceiverSecret,
    },
    ports::{Delivered, DeliveryFailure, Notifier, Sealer},
};
use zeroize::Zeroizing;

use crate::world::ManagedWorld;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const GOOD: &str = "https://good.example.com/";
pub(crate) const BAD: &str = "https://bad.example.com/";

/// A call of a receiver: a delivery, or an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) url: String,
    pub(crate) id: String,
    pub(crate) event: Option<EventKind>,
    pub(crate) revision: Option<u64>,
    pub(crate) is_taken: bool,
}

/// How receivers at [`BAD`] answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Fails,
    Hangs,
    /// Notifications of the app `poison` alone.
    RefusesForGood,
}

#[derive(Default)]
pub(crate) struct FakeNotifier {
    pub(crate) calls: Mutex<Vec<Call>>,
    pub(crate) fault: Mutex<Option<Fault>>,
    pub(crate) secrets: Mutex<BTreeSet<String>>,
}

#[async_trait]
impl Notifier for FakeNotifier {
    fn check(&self, destination: &Destination) -> Result<(), String> {
        if destination.place().contains("169.254.") { Err("must not be there".to_owned()) } else { Ok(()) }
    }

    async fn send(
        &self,
        destination: &Destination,
        secret: &ReceiverSecret,
        notification: &Notification,
        _reference: Option<&str>,
    ) -> Result<Delivered, DeliveryFailure> {
        let url = destination.place();
        let is_poison = notification.app().is_some_and(|app| app.id.name.as_str() == "poison");
        let concerns = |fault: &Fault| url == BAD && (is_poison || *fault != Fault::RefusesForGood);
        let fault = self.fault.lock().unwrap().filter(concerns);
        let revision = match &notification.content {
            Content::Deploy { deploy, .. } | Content::Revoked { deploy, .. } => Some(deploy.revision.get()),
            Content::Drift { .. } | Content::Degraded { .. } | Content::Test => None,
        };
        let (id, event) = (notification.id.to_string(), notification.event());
        self.secrets.lock().unwrap().insert(secret.expose().to_owned());
        self.calls.lock().unwrap().push(Call { url, id, event, revision, is_taken: fault.is_none() });
        let failure = |is_final| DeliveryFailure { message: "it answered 500".to_owned(), retry_after: None, is_final };
        match fault {
            None => Ok(Delivered::default()),
            Some(Fault::Fails) => Err(failure(false)),
            Some(Fault::RefusesForGood) => Err(failure(true)),
            Some(Fault::Hangs) => std::future::pending().await,
        }
    }
}

/// A sealer that turns texts around, unless its key is missing.
#[derive(Default)]
pub(crate) struct FakeSealer {
    pub(crate) lacks_key: AtomicBool,
}

impl Sealer for FakeSealer {
    fn seal(&self, text: &str, purpose: &str) -> Result<String> {
        Ok(format!("{purpose} {}", text.chars().rev().collect::<String>()))
    }

    fn open(&self, sealed: &str, purpose: &str) -> Result<Zeroizing<String>> {
        if self.lacks_key.load(Ordering::Relaxed) {
            return Err(Error::invalid("the key is missing"));
        }
        let text = sealed.strip_prefix(&format!("{purpose} ")).ok_or_else(|| Error::invalid("another purpose"))?;
        Ok(Zeroizing::new(text.chars().rev().collect()))
    }
}

/// A world whose replicas tell receivers.
pub(crate) struct Bench {
    pub(crate) world: ManagedWorld,
    pub(crate) notifier: Arc<FakeNotifier>,
    pub(crate) management: Arc<Management>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let (world, notifier) = (ManagedWorld::new(SECOND), Arc::new(FakeNotifier::default()));
        let management = replica(&world, &notifier, "teller", 3);
        Self { world, notifier, management }
    }

    pub(crate) fn run<T>(&self, scenario: impl Future<Output = T>) -> T {
        self.world.run_managed(&self.management, scenario)
    }

    pub(crate) async fn add(&self, name: &str, url: &str, events: &[EventKind]) {
        self.add_of(name, url, events, Realm::Everything).await;
    }

    pub(crate) async fn add_of(&self, name: &str, url: &str, events: &[EventKind], realm: Realm) {
        let wanted = wanted(name, url, events, realm);
        self.management.add_receiver(&self.world.operator, wanted).await.unwrap();
    }

    /// Returns the events that receivers at this URL have taken, each once, in order, with their revisions.
    pub(crate) fn taken(&self, url: &str) -> Vec<(u64, EventKind)> {
        let mut ids = BTreeSet::new();
        let calls = self.notifier.calls.lock().unwrap();
        let taken = calls.iter().filter(|call| call.url == url && call.is_taken && ids.insert(call.id.clone()));
        taken.filter_map(|call| Some((call.revision?, call.event?))).collect()
    }

    pub(crate) fn set(&self, fault: Option<Fault>) {
        *self.notifier.fault.lock().unwrap() = fault;
    }
}

pub(crate) fn replica(world: &ManagedWorld, notifier: &Arc<FakeNotifier>, name: &str, seed: u64) -> Arc<Management> {
    replica_with(world, notifier, &Arc::default(), name, seed)
}

pub(crate) fn replica_with(
    world: &ManagedWorld,
    notifier: &Arc<FakeNotifier>,
    sealer: &Arc<FakeSealer>,
    name: &str,
    seed: u64,
) -> Arc<Management> {
    let deployer = Arc::new(Deployer::new(world.ports(seed).with(|ports| ports.builder = None), name));
    let notifications = NotificationPorts { notifier: notifier.clone(), sealer: sealer.clone() };
    world.managed(deployer, Ports::new(world.records()).with(|ports| ports.notifications = Some(notifications)))
}

pub(crate) fn wanted(name: &str, url: &str, events: &[EventKind], realm: Realm) -> NewReceiver {
    NewReceiver {
        name: name.parse().unwrap(),
        apps: ReceiverApps::new(realm, None).unwrap(),
        destination: Destination::Webhook { url: url.parse().unwrap() },
        events: Events::new(events.iter().copied()),
        secret: None,
    }
}

pub(crate) fn name(text: &str) -> ReceiverName {
    text.parse().unwrap()
}

/// An app that runs version 1 of its image.
pub(crate) async fn app(world: &ManagedWorld, name: &str) -> Authorized {
    world.app(name, Policy::default().with(|policy| policy.settle = Duration::ZERO)).await
}

/// The events of two deploys that succeeded.
pub(crate) const OF_TWO_DEPLOYS: [(u64, EventKind); 4] =
    [(2, EventKind::Accepted), (2, EventKind::Succeeded), (3, EventKind::Accepted), (3, EventKind::Succeeded)];
