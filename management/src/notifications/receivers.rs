//! Receivers of notifications: adding, listing, testing and removing them.
//!
//! A receiver is a record, with its secret sealed: stores do not seal records.

use std::time::Duration;

use futures_util::{FutureExt, select_biased};
use serde::{Deserialize, Serialize};

use rollhook_core::{
    error::{Error, Result},
    request::{Field, Refusal as CoreRefusal},
    time::Timestamp,
};

use crate::{
    Management, NotificationPorts, Outcome, Refusal,
    access::{Action, Granted, Place, Principal, Realm, Subject},
    documents,
    notifications::{
        Content, Destination, Events, Notification, NotificationId, RECEIVERS_MAX, Receiver, ReceiverApps, ReceiverId,
        ReceiverName, ReceiverSecret,
    },
    ports::{Delivered, DeliveryFailure, Record, RecordKey, RecordKind, RecordStore, Sealer},
    rate::Rate,
    refused,
};

/// The longest time of one attempt to deliver.
const SEND_TIME: Duration = Duration::from_secs(10);

/// A request to add a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewReceiver {
    /// The name; no other receiver may have it.
    pub name: ReceiverName,
    /// The apps that it is notified of.
    pub apps: ReceiverApps,
    /// The place and way.
    pub destination: Destination,
    /// The events that it is notified of.
    pub events: Events,
    /// The secret; `None`: one is made, if the kind of receiver lets the service choose it.
    pub secret: Option<ReceiverSecret>,
}

/// How deliveries to a receiver went, as the replica that notifies it has written down.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiverStatus {
    /// The time of the last delivery, with an error of up to half a minute.
    pub last_delivered_at: Option<Timestamp>,
    /// The time of the first failure since then.
    pub failing_since: Option<Timestamp>,
    /// The last failure, if nothing was delivered since.
    pub failure: Option<String>,
    /// The number of apps with notifications that wait while it fails.
    pub waiting: usize,
}

/// The document of a receiver's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stored {
    pub(crate) receiver: Receiver,
    pub(crate) sealed_secret: String,
}

impl Stored {
    /// Returns the secret.
    pub(crate) fn secret(&self, sealer: &dyn Sealer) -> Result<ReceiverSecret> {
        let text = sealer.open(&self.sealed_secret, &purpose(&self.receiver.id))?;
        text.parse().map_err(|rule: &str| Error::corrupt("the secret of a receiver", rule))
    }
}

/// Returns the most receivers of a realm and all that it contains: the admin of an environment or a project does not use
/// up what all have.
const fn receivers_max(realm: &Realm) -> usize {
    match realm {
        Realm::Everything => RECEIVERS_MAX,
        Realm::Project { .. } => 50,
        Realm::Environment { .. } => 20,
    }
}

/// The purpose that a receiver's secret is sealed for: no other receiver's.
fn purpose(receiver: &ReceiverId) -> String {
    format!("receiver:{receiver}")
}

/// Returns the key of a receiver's record.
fn key_of(name: &ReceiverName) -> Result<RecordKey> {
    name.as_str().parse().map_err(|error| Error::corrupt("the name of a receiver", error))
}

/// Returns the key of a receiver's status.
pub(crate) fn status_key(receiver: &ReceiverId) -> Result<RecordKey> {
    receiver.as_str().parse().map_err(|error| Error::corrupt("the id of a receiver", error))
}

/// Returns how deliveries to a receiver went. A status that cannot be read is logged and counts as none: the next
/// delivery writes it anew.
pub(crate) async fn status(records: &dyn RecordStore, receiver: &Receiver) -> Result<ReceiverStatus> {
    match documents::read(records, RecordKind::ReceiverStatus, &status_key(&receiver.id)?).await {
        Ok(read) => Ok(read.map(|(_, status)| status).unwrap_or_default()),
        Err(error @ Error::Corrupt { .. }) => {
            let receiver = receiver.name.as_str();
            tracing::warn!(receiver, error = %error.chain(), "reading the status of a receiver failed");
            Ok(ReceiverStatus::default())
        }
        Err(error) => Err(error),
    }
}

/// Returns every receiver, newest first.
pub(crate) async fn all(records: &dyn RecordStore) -> Result<Vec<(Record, Stored)>> {
    documents::all(records, RecordKind::Receiver).await
}

/// Returns what [`all`] does, and the number of receivers that cannot be read.
pub(crate) async fn all_and_unreadable(records: &dyn RecordStore) -> Result<(Vec<(Record, Stored)>, usize)> {
    documents::all_and_unreadable(records, RecordKind::Receiver).await
}

/// Returns the sealed secrets of all receivers, so that the keys in use can be counted.
///
/// # Errors
/// Those of the store.
pub async fn sealed_receiver_secrets(records: &dyn RecordStore) -> Result<Vec<String>> {
    Ok(all(records).await?.into_iter().map(|(_, stored)| stored.sealed_secret).collect())
}

/// Seals the secrets of receivers anew, those for which `is_old` says so, and returns how many were.
///
/// # Errors
/// Those of the store and of the sealer.
pub async fn reseal_receivers(
    records: &dyn RecordStore,
    sealer: &dyn Sealer,
    is_old: impl Fn(&str) -> bool + Send + Sync,
) -> Result<u64> {
    let mut resealed = 0;
    for (record, stored) in all(records).await?.into_iter().filter(|(_, stored)| is_old(&stored.sealed_secret)) {
        let secret = stored.secret(sealer)?;
        let sealed_secret = sealer.seal(secret.expose(), &purpose(&stored.receiver.id))?;
        let written = documents::encode(record.key, &Stored { sealed_secret, ..stored }, None)?;
        match records.write(RecordKind::Receiver, written, Some(record.version)).await {
            // It was removed meanwhile.
            Err(Error::Conflict(_)) => {}
            other => {
                other?;
                resealed += 1;
            }
        }
    }
    Ok(resealed)
}

/// Tests of receivers of one realm: 1 in 6 seconds, 10 at once. Each is a call of a foreign server.
const TESTS: Rate = Rate { every: Duration::from_secs(6), burst: 10 };

impl Management {
    /// Returns the ports by which receivers are notified.
    fn notifications(&self) -> Outcome<&NotificationPorts> {
        self.notifications.as_ref().ok_or_else(|| {
            let why = "Notifications need a key that seals secrets, and this service has none.";
            CoreRefusal::StoreRefused(why.to_owned()).into()
        })
    }

    /// Adds a receiver, which is notified of deploys that are accepted from now on. Returns the secret if it was made here:
    /// it is returned this once.
    ///
    /// # Errors
    /// [`Refusal::Forbidden`] unless the principal is an admin of all the apps; [`InvalidField`](rollhook_core::request::Refusal::InvalidField);
    /// [`Refusal::ReceiverExists`], [`Refusal::TooManyReceivers`]; [`StoreRefused`](rollhook_core::request::Refusal::StoreRefused) without the ports of notifications;
    /// [`StoreUnavailable`](rollhook_core::request::Refusal::StoreUnavailable) while the store is away.
    pub async fn add_receiver(
        &self,
        principal: &Principal,
        wanted: NewReceiver,
    ) -> Outcome<(Receiver, Option<ReceiverSecret>)> {
        let act = format!("added: {} of {}", wanted.destination.kind(), wanted.apps);
        self.may_manage_receiver(principal, &wanted.name, &act, &wanted.apps.realm).await?;
        let ports = self.notifications()?;
        let records = &*self.records;
        let checked = ports.notifier.check(&wanted.destination);
        checked.map_err(|why| CoreRefusal::InvalidField(Field::ReceiverUrl, format!("The address {why}.")))?;
        let (secret, is_made) = self.secret_of(&wanted.destination, wanted.secret)?;
        let counting = self.counting.turn(principal).await;
        let others = all(records).await.map_err(refused)?;
        for realm in wanted.apps.realm.and_containing() {
            let most = receivers_max(&realm);
            if others.iter().filter(|(_, other)| realm.contains(&other.receiver.apps.realm)).count() >= most {
                return Err(Refusal::TooManyReceivers(most, realm));
            }
        }
        let receiver = Receiver {
            id: ReceiverId::of_bits(self.deployer.ports().rng.bits()),
            name: wanted.name,
            apps: wanted.apps,
            destination: wanted.destination,
            events: wanted.events,
            added_by: principal.actor().clone(),
            added_at: self.deployer.store_time().await?,
        };
        let sealed_secret = ports.sealer.seal(secret.expose(), &purpose(&receiver.id)).map_err(refused)?;
        let stored = Stored { receiver, sealed_secret };
        let record = documents::encode(key_of(&stored.receiver.name).map_err(refused)?, &stored, None);
        match records.write(RecordKind::Receiver, record.map_err(refused)?, None).await {
            Err(Error::Conflict(_)) => return Err(Refusal::ReceiverExists(stored.receiver.name)),
            other => other.map_err(refused)?,
        };
        drop(counting);
        self.hints.receivers_changed();
        Ok((stored.receiver, is_made.then_some(secret)))
    }

    /// Returns the receivers of the realms whose admin the principal is, newest first, and how their deliveries went.
    ///
    /// # Errors
    /// [`Refusal::Forbidden`]; [`StoreUnavailable`](rollhook_core::request::Refusal::StoreUnavailable) while the store is away.
    pub async fn receivers(&self, principal: &Principal) -> Outcome<Vec<(Receiver, ReceiverStatus)>> {
        let realms = self.permit_somewhere(principal, Action::ManageReceivers).await?;
        let records = &*self.records;
        let mut listed = Vec::new();
        for (_, stored) in all(records).await.map_err(refused)? {
            if realms.contain(&stored.receiver.apps.realm) {
                let status = status(records, &stored.receiver).await.map_err(refused)?;
                listed.push((stored.receiver, status));
            }
        }
        Ok(listed)
    }

    /// Removes a receiver: it gets no notification from then on, except one that is under way.
    ///
    /// # Errors
    /// [`Refusal::ReceiverNotFound`], also for one of another realm; [`Refusal::Forbidden`];
    /// [`StoreUnavailable`](rollhook_core::request::Refusal::StoreUnavailable) while the store is away.
    pub async fn remove_receiver(&self, principal: &Principal, name: &ReceiverName) -> Outcome<()> {
        let stored = self.named_receiver(principal, name).await?;
        self.may_manage_receiver(principal, name, "removed", &stored.receiver.apps.realm).await?;
        self.records.remove(RecordKind::Receiver, &key_of(name).map_err(refused)?).await.map_err(refused)?;
        self.hints.receivers_changed();
        // The replica that notifies removes what a failure leaves here.
        let status = status_key(&stored.receiver.id).map_err(refused)?;
        self.records.remove(RecordKind::ReceiverStatus, &status).await.map_err(refused)
    }

    /// Replaces a receiver's secret: notifications carry the new one from the next moments on. Returns the secret if it was
    /// made here: it is returned this once.
    ///
    /// # Errors
    /// As [`Management::remove_receiver`]; [`InvalidField`](rollhook_core::request::Refusal::InvalidField); [`Busy`](rollhook_core::request::Refusal::Busy) if the receiver was changed
    /// meanwhile; [`StoreRefused`](rollhook_core::request::Refusal::StoreRefused) without the ports of notifications.
    pub async fn rotate_receiver(
        &self,
        principal: &Principal,
        name: &ReceiverName,
        secret: Option<ReceiverSecret>,
    ) -> Outcome<Option<ReceiverSecret>> {
        let stored = self.named_receiver(principal, name).await?;
        self.may_manage_receiver(principal, name, "secret replaced", &stored.receiver.apps.realm).await?;
        let ports = self.notifications()?;
        let (secret, is_made) = self.secret_of(&stored.receiver.destination, secret)?;
        let key = key_of(name).map_err(refused)?;
        let read: Option<(Record, Stored)> =
            documents::read(&*self.records, RecordKind::Receiver, &key).await.map_err(refused)?;
        let same = read.filter(|(_, now)| now.receiver == stored.receiver);
        let (record, stored) = same.ok_or_else(|| Refusal::ReceiverNotFound(name.clone()))?;
        let sealed_secret = ports.sealer.seal(secret.expose(), &purpose(&stored.receiver.id)).map_err(refused)?;
        let next = documents::encode(key, &Stored { sealed_secret, ..stored }, None).map_err(refused)?;
        self.records.write(RecordKind::Receiver, next, Some(record.version)).await.map_err(refused)?;
        self.hints.receivers_changed();
        Ok(is_made.then_some(secret))
    }

    /// Returns the secret of a destination, which is the given one or a new one, and whether it was made here.
    fn secret_of(&self, destination: &Destination, given: Option<ReceiverSecret>) -> Outcome<(ReceiverSecret, bool)> {
        let is_made = given.is_none();
        let invalid = |why: &str| Refusal::Core(CoreRefusal::InvalidField(Field::ReceiverSecret, why.to_owned()));
        let secret = given.or_else(|| destination.new_secret(&*self.deployer.ports().rng));
        let secret = secret.ok_or_else(|| invalid("must be given: the receiver's own service makes it."))?;
        destination.check_secret(&secret).map_err(invalid)?;
        Ok((secret, is_made))
    }

    /// Sends a test to a receiver, and returns its answer, or why it has not taken the test.
    ///
    /// # Errors
    /// As [`Management::remove_receiver`]; [`Refusal::TooManyTests`]; [`StoreRefused`](rollhook_core::request::Refusal::StoreRefused) without the ports of notifications.
    pub async fn test_receiver(
        &self,
        principal: &Principal,
        name: &ReceiverName,
    ) -> Outcome<Result<Delivered, DeliveryFailure>> {
        let stored = self.named_receiver(principal, name).await?;
        let realm = &stored.receiver.apps.realm;
        let (granted, subject) = self.judge_of_receiver(principal, name, "tested", realm).await?;
        let ports = self.notifications()?;
        let elapsed = self.deployer.ports().clock.elapsed();
        if granted.is_yes() && !self.receiver_tests.take(TESTS, realm, elapsed) {
            return Err(Refusal::TooManyTests(realm.clone()));
        }
        self.audit(principal, Action::ManageReceivers, subject, granted).await?;
        let secret = stored.secret(&*ports.sealer).map_err(refused)?;
        let now = self.deployer.store_time().await?;
        let notification = Notification {
            id: NotificationId::of_test(&stored.receiver.id, self.deployer.ports().rng.bits()),
            content: Content::Test,
            at: now,
            sent_at: now,
            base_url: self.base_url.clone(),
        };
        Ok(self.send(ports, &stored.receiver, &secret, &notification, None).await)
    }

    /// Makes one attempt to deliver, within [`SEND_TIME`].
    pub(crate) async fn send(
        &self,
        ports: &NotificationPorts,
        receiver: &Receiver,
        secret: &ReceiverSecret,
        notification: &Notification,
        reference: Option<&str>,
    ) -> Result<Delivered, DeliveryFailure> {
        let mut sending = ports.notifier.send(&receiver.destination, secret, notification, reference).fuse();
        let mut time = self.deployer.ports().clock.sleep(SEND_TIME).fuse();
        select_biased! {
            sent = sending => sent,
            () = time => Err(DeliveryFailure {
                message: format!("no answer came within {} s", SEND_TIME.as_secs()),
                retry_after: None,
                is_final: false,
            }),
        }
    }

    /// Returns a receiver of the principal's realms.
    async fn named_receiver(&self, principal: &Principal, name: &ReceiverName) -> Outcome<Stored> {
        let realms = self.permit_somewhere(principal, Action::ManageReceivers).await?;
        let unknown = || Refusal::ReceiverNotFound(name.clone());
        let key = key_of(name).map_err(refused)?;
        let read: Option<(Record, Stored)> =
            documents::read(&*self.records, RecordKind::Receiver, &key).await.map_err(refused)?;
        let (_, stored) = read.ok_or_else(unknown)?;
        if !realms.contain(&stored.receiver.apps.realm) {
            return Err(unknown());
        }
        Ok(stored)
    }

    async fn may_manage_receiver(
        &self,
        principal: &Principal,
        name: &ReceiverName,
        act: &str,
        realm: &Realm,
    ) -> Outcome<()> {
        let (granted, subject) = self.judge_of_receiver(principal, name, act, realm).await?;
        self.audit(principal, Action::ManageReceivers, subject, granted).await
    }

    /// Returns whether the principal may manage the receivers of a realm, and what the audit is to say of it.
    async fn judge_of_receiver(
        &self,
        principal: &Principal,
        name: &ReceiverName,
        act: &str,
        realm: &Realm,
    ) -> Outcome<(Granted, Subject)> {
        let granted = self.may(principal, Action::ManageReceivers, Place::realm(realm)).await?;
        Ok((granted, Subject::new(format!("receiver {name}, {act}"), realm.clone())))
    }
}
