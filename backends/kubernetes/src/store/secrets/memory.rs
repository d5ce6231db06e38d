//! The tokens that this replica remembers, to refuse callers by; none is let in by them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use rollhook_core::{
    Error, Result,
    app::{AppId, AppUid},
    ports::WebhookSecret,
};

use super::{Registered, budget::INTERVAL, shared::Shared};
use crate::lock;

/// One slot per app that was called.
#[derive(Default)]
pub(crate) struct Memory {
    slots: Mutex<HashMap<AppId, Arc<Slot>>>,
}

/// The remembered token of one app, and the reads that are under way.
#[derive(Default)]
pub(crate) struct Slot {
    pub(crate) reads: Shared<Stored>,
    seen: Mutex<Option<Seen>>,
}

/// The content of an app's Secret.
#[derive(Clone, Debug)]
pub(crate) enum Stored {
    /// There is no token.
    Nothing,
    /// The token.
    Token(WebhookSecret),
    /// A token that cannot be opened: its key is missing, or it is damaged.
    Unopened(Arc<Error>),
}

struct Seen {
    /// The registration, and the version that it had announced before the read.
    of: (AppUid, Option<String>),
    outcome: Result<Stored, Arc<Error>>,
    /// The time of the read.
    at: Duration,
}

/// The content of a slot.
#[derive(Debug)]
pub(crate) enum Recall {
    /// Nothing: the token was not read since its last announced change, or reading it failed a while ago.
    Nothing,
    /// Reading the token failed just now.
    Failed(Arc<Error>),
    /// The token that was read; `None` if there is none that can be opened, by a read or by the announcement.
    Token(Option<WebhookSecret>),
}

impl Memory {
    /// The app's slot.
    pub(crate) fn slot(&self, app: &AppId) -> Arc<Slot> {
        lock(&self.slots).entry(app.clone()).or_default().clone()
    }

    /// Forgets an app.
    pub(crate) fn forget(&self, app: &AppId) {
        lock(&self.slots).remove(app);
    }

    /// Forgets the apps that are gone.
    pub(crate) fn retain(&self, is_there: impl Fn(&AppId) -> bool) {
        lock(&self.slots).retain(|app, _| is_there(app));
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        lock(&self.slots).len()
    }
}

impl Stored {
    pub(crate) fn of(opened: Result<Option<WebhookSecret>>) -> Self {
        match opened {
            Ok(None) => Self::Nothing,
            Ok(Some(secret)) => Self::Token(secret),
            Err(error) => Self::Unopened(Arc::new(error)),
        }
    }

    /// The token, if it can be opened.
    fn token(&self) -> Option<WebhookSecret> {
        match self {
            Self::Token(secret) => Some(secret.clone()),
            Self::Nothing | Self::Unopened(_) => None,
        }
    }
}

impl Slot {
    /// The content of the slot, for the app as it is known now.
    pub(crate) fn recall(&self, app: &Registered, now: Duration) -> Recall {
        let holds = |seen: &&Seen| seen.is_of(app) && (seen.outcome.is_ok() || now < seen.at + INTERVAL);
        match lock(&self.seen).as_ref().filter(holds) {
            Some(seen) => match &seen.outcome {
                Ok(stored) => Recall::Token(stored.token()),
                Err(failure) => Recall::Failed(failure.clone()),
            },
            None if app.webhook.is_none() => Recall::Token(None),
            None => Recall::Nothing,
        }
    }

    /// Remembers a read that began when the app was known like this. A failure takes nothing away.
    pub(crate) fn remember(&self, app: &Registered, outcome: Result<Stored, Arc<Error>>, at: Duration) {
        let mut seen = lock(&self.seen);
        let known = seen.as_ref().is_some_and(|seen| seen.is_of(app) && seen.outcome.is_ok());
        if outcome.is_ok() || !known {
            *seen = Some(Seen { of: (app.uid, app.webhook.clone()), outcome, at });
        }
    }
}

impl Seen {
    fn is_of(&self, app: &Registered) -> bool {
        self.of.0 == app.uid && self.of.1 == app.webhook
    }
}
