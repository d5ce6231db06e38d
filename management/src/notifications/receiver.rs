//! Receivers: their apps, events and secrets.

use std::{collections::BTreeSet, fmt, str::FromStr};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::notifications::{Destination, EventKind};
use rollhook_core::{
    app::{App, AppName, InvalidName, label},
    deploy::Actor,
    ports::Rng,
    text::checked_text,
    time::Timestamp,
    token::shared_signing_key,
};

use crate::access::Realm;

/// The most receivers of a store.
pub const RECEIVERS_MAX: usize = 100;
/// The longest secret, in bytes.
pub const SECRET_MAX: usize = 1024;
/// How the secret of a signature begins (Standard Webhooks).
const SIGNING_PREFIX: &str = "whsec_";
/// The random bytes of a signature's secret that is made here.
const SIGNING_BYTES_MADE: usize = 32;

checked_text! {
    /// The name of a receiver: a DNS-1123 label of up to 63 characters.
    ReceiverName, InvalidName, |text| label("receiver", text)
}

checked_text! {
    /// The id of a receiver: 32 hexadecimal digits. One that is removed and added again has another.
    ReceiverId, InvalidName, |text| {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let is_id = text.len() == 32 && text.bytes().all(is_digit);
        is_id.then(|| text.to_owned()).ok_or_else(|| InvalidName::new("receiver's id", text, "must be 32 hexadecimal digits"))
    }
}

impl ReceiverId {
    /// Returns the id of random bits.
    pub fn of_bits(bits: u128) -> Self {
        Self(format!("{bits:032x}"))
    }
}

/// The secret of a receiver: the key of its signatures, or the token that its service has given.
#[derive(Clone, PartialEq, Eq)]
pub struct ReceiverSecret(Zeroizing<String>);

impl ReceiverSecret {
    /// The secret's text.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns a new key of signatures.
    pub fn new_signing_key(rng: &dyn Rng) -> Self {
        let mut bytes = Zeroizing::new([0; SIGNING_BYTES_MADE]);
        rng.fill(bytes.as_mut_slice());
        Self(Zeroizing::new(format!("{SIGNING_PREFIX}{}", STANDARD.encode(*bytes))))
    }

    /// Returns the key of signatures, if the secret is one of Standard Webhooks.
    pub fn signing_key(&self) -> Option<Zeroizing<Vec<u8>>> {
        shared_signing_key(&self.0)
    }
}

impl FromStr for ReceiverSecret {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let is_plain = !text.is_empty() && text.len() <= SECRET_MAX && text.bytes().all(|byte| byte.is_ascii_graphic());
        // The text is not repeated: it is a secret.
        if is_plain {
            Ok(Self(Zeroizing::new(text.to_owned())))
        } else {
            Err("must be 1 to 1024 printable ASCII characters.")
        }
    }
}

impl fmt::Debug for ReceiverSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReceiverSecret")
    }
}

/// The apps that a receiver is notified of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiverApps {
    /// The realm of the apps.
    #[serde(flatten)]
    pub realm: Realm,
    /// The one app of an environment; `None`: every app of the realm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<AppName>,
}

impl ReceiverApps {
    /// Returns the apps of a realm, or one app of an environment.
    ///
    /// # Errors
    /// If an app is named without its environment.
    pub fn new(realm: Realm, app: Option<AppName>) -> Result<Self, InvalidName> {
        match app {
            Some(app) if realm.environment().is_none() => {
                Err(InvalidName::new("app", app.as_str(), "needs the project and environment that it belongs to"))
            }
            app => Ok(Self { realm, app }),
        }
    }

    /// Returns whether the receiver is notified of this app.
    pub fn contains(&self, app: &App) -> bool {
        self.realm.contains(&Realm::of_app(app)) && self.app.as_ref().is_none_or(|name| *name == app.id.name)
    }
}

impl fmt::Display for ReceiverApps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.realm.fmt(f)?;
        self.app.as_ref().map_or(Ok(()), |app| write!(f, ", app {app}"))
    }
}

/// The events that a receiver is notified of; never none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Events(BTreeSet<EventKind>);

impl Events {
    /// Returns these events; without any, all but the steps between accept and end.
    pub fn new(events: impl IntoIterator<Item = EventKind>) -> Self {
        let chosen: BTreeSet<_> = events.into_iter().collect();
        Self(if chosen.is_empty() { Self::usual() } else { chosen })
    }

    fn usual() -> BTreeSet<EventKind> {
        use EventKind::{Building, Releasing, RollingOut, Verifying};
        let is_usual = |event: &EventKind| !matches!(event, Building | Releasing | RollingOut | Verifying);
        EventKind::ALL.into_iter().filter(is_usual).collect()
    }

    /// Returns whether the receiver is notified of this event.
    pub fn contains(&self, event: EventKind) -> bool {
        self.0.contains(&event)
    }

    /// The events, in the order of a deploy's life.
    pub fn iter(&self) -> impl Iterator<Item = EventKind> {
        self.0.iter().copied()
    }
}

/// A party outside that is notified of deploys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receiver {
    /// The id.
    pub id: ReceiverId,
    /// The name.
    pub name: ReceiverName,
    /// The apps that it is notified of.
    pub apps: ReceiverApps,
    /// The place and way.
    pub destination: Destination,
    /// The events that it is notified of.
    pub events: Events,
    /// The party that added it.
    pub added_by: Actor,
    /// The time at which it was added: it is notified of deploys that were accepted since.
    pub added_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signing_secret_is_one_of_standard_webhooks() {
        let key = |text: &str| text.parse::<ReceiverSecret>().unwrap().signing_key().map(|key| key.len());
        assert_eq!(key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), Some(24));
        for text in ["MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_", "whsec_MfKQ", "whsec_!"] {
            assert_eq!(key(text), None, "{text}");
        }
        assert!("".parse::<ReceiverSecret>().is_err() && "a b".parse::<ReceiverSecret>().is_err());
        assert_eq!(format!("{:?}", "hunter2".parse::<ReceiverSecret>().unwrap()), "ReceiverSecret");
    }

    #[test]
    fn an_app_needs_its_environment() {
        let app = Some("api".parse().unwrap());
        assert!(ReceiverApps::new(Realm::Everything, app).is_err());
    }
}
