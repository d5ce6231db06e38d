//! Receivers: where they are, what they are told, and their secrets.

use std::{collections::BTreeSet, fmt, str::FromStr};

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, STANDARD_NO_PAD},
};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::EventKind;
use crate::{
    access::Realm,
    app::{App, AppName, InvalidName, label},
    deploy::Actor,
    ports::Rng,
    text::checked_text,
    time::Timestamp,
};

/// The most receivers of a store.
pub const RECEIVERS_MAX: usize = 100;
/// The longest secret, in bytes.
pub const SECRET_MAX: usize = 1024;
/// The longest URL, in bytes.
const URL_MAX: usize = 2048;
/// How the secret of a signature begins (Standard Webhooks).
const SIGNING_PREFIX: &str = "whsec_";
/// The lengths of a signature's secret, in bytes (Standard Webhooks).
const SIGNING_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

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

checked_text! {
    /// The URL of a receiver: `https://…`, or `http://…` where the operator allows that; without credentials and
    /// fragment. Whether it may be called is the notifier's to say.
    DestinationUrl, InvalidName, url
}

fn url(text: &str) -> Result<String, InvalidName> {
    // An error repeats the text, and a URL's user part and query may hold secrets.
    let shown = text.split(['?', '#']).next().unwrap_or_default().rsplit('@').next().unwrap_or_default();
    let fail = |rule| Err(InvalidName::new("receiver's URL", shown, rule));
    if text.len() > URL_MAX
        || text.bytes().any(|byte| !byte.is_ascii_graphic() || matches!(byte, b'"' | b'<' | b'>' | b'\\'))
    {
        return fail("must be at most 2048 printable ASCII characters");
    }
    let Some(rest) = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")) else {
        return fail("must begin with https://");
    };
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    if authority.is_empty() || authority.starts_with(':') {
        return fail("must have a host");
    }
    if authority.contains('@') || text.contains('#') {
        return fail("must hold no credentials and no fragment");
    }
    Ok(text.to_owned())
}

/// The place that a receiver is told at, and the way in which it is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
#[non_exhaustive]
pub enum Destination {
    /// CloudEvents in JSON are posted to a URL, with signatures of Standard Webhooks.
    Webhook {
        /// The URL.
        url: DestinationUrl,
    },
}

impl Destination {
    /// The kind, as people name it.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Webhook { .. } => "webhook",
        }
    }

    /// The place, for people.
    pub fn place(&self) -> String {
        match self {
            Self::Webhook { url } => url.to_string(),
        }
    }

    /// Returns a new secret, if one can be made for this kind: the others' secrets are given by their services.
    pub fn new_secret(&self, rng: &dyn Rng) -> Option<ReceiverSecret> {
        match self {
            Self::Webhook { .. } => {
                let mut bytes = Zeroizing::new([0; 32]);
                rng.fill(bytes.as_mut_slice());
                Some(ReceiverSecret(Zeroizing::new(format!("{SIGNING_PREFIX}{}", STANDARD.encode(*bytes)))))
            }
        }
    }

    /// Returns `Ok` if this can be the secret of a receiver of this kind.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn check_secret(&self, secret: &ReceiverSecret) -> Result<(), &'static str> {
        match self {
            Self::Webhook { .. } if secret.signing_key().is_none() => {
                Err("must be whsec_ and the base64 of 24 to 64 bytes (Standard Webhooks).")
            }
            Self::Webhook { .. } => Ok(()),
        }
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

    /// Returns the key of signatures, if the secret is one of Standard Webhooks.
    pub fn signing_key(&self) -> Option<Zeroizing<Vec<u8>>> {
        let text = self.0.strip_prefix(SIGNING_PREFIX)?;
        let key = STANDARD.decode(text).or_else(|_| STANDARD_NO_PAD.decode(text)).ok().map(Zeroizing::new)?;
        SIGNING_BYTES.contains(&key.len()).then_some(key)
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

/// The apps that a receiver is told of.
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

    /// Returns whether the receiver is told of this app.
    pub fn contains(&self, app: &App) -> bool {
        self.realm.contains(&app.realm()) && self.app.as_ref().is_none_or(|name| *name == app.id.name)
    }
}

impl fmt::Display for ReceiverApps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.realm.fmt(f)?;
        self.app.as_ref().map_or(Ok(()), |app| write!(f, ", app {app}"))
    }
}

/// The events that a receiver is told of; never none.
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
        let is_usual = |event: &EventKind| !matches!(event, EventKind::Building | EventKind::RollingOut);
        EventKind::ALL.into_iter().filter(is_usual).collect()
    }

    /// Returns whether the receiver is told of this event.
    pub fn contains(&self, event: EventKind) -> bool {
        self.0.contains(&event)
    }

    /// The events, in the order of a deploy's life.
    pub fn iter(&self) -> impl Iterator<Item = EventKind> {
        self.0.iter().copied()
    }
}

/// A party outside that is told of deploys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receiver {
    /// The id.
    pub id: ReceiverId,
    /// The name.
    pub name: ReceiverName,
    /// The apps that it is told of.
    pub apps: ReceiverApps,
    /// The place and way.
    pub destination: Destination,
    /// The events that it is told of.
    pub events: Events,
    /// The party that added it.
    pub added_by: Actor,
    /// The time at which it was added: it is told of deploys that were accepted since.
    pub added_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_holds_no_credentials() {
        for text in ["https://hooks.example.com/x?y=1", "http://127.0.0.1:9000", "https://[::1]:8443/x"] {
            assert!(text.parse::<DestinationUrl>().is_ok(), "{text}");
        }
        for text in [
            "",
            "hooks.example.com",
            "ftp://x/",
            "https://",
            "https:///x",
            "https://u:hunter2@h/",
            "https://h/#x",
            "https://h/ x",
        ] {
            let refused = text.parse::<DestinationUrl>().unwrap_err().to_string();
            assert!(!refused.contains("hunter2"), "{refused}");
        }
    }

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
