//! What this replica remembers of tokens, to refuse by. Nobody is let in by it.

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

/// One slot per app that was asked for.
#[derive(Default)]
pub(crate) struct Memory {
    slots: Mutex<HashMap<AppId, Arc<Slot>>>,
}

/// What is remembered of one app's token, and the reads that are under way.
#[derive(Default)]
pub(crate) struct Slot {
    pub(crate) reads: Shared<Option<WebhookSecret>>,
    seen: Mutex<Option<Seen>>,
}

struct Seen {
    /// The registration, and what it had announced before the read.
    of: (AppUid, Option<String>),
    outcome: Result<Option<WebhookSecret>, Arc<Error>>,
    /// When, by the clock.
    at: Duration,
}

/// What a slot has to say of an app.
#[derive(Debug)]
pub(crate) enum Recall {
    /// Nothing: it has not been read since it was last announced that it changed, or could not be, a while ago.
    Nothing,
    /// It could not be read just now.
    Failed(Arc<Error>),
    /// This is what was read, or announced: that there is no token.
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
}

impl Slot {
    /// What is remembered of the app as it is known now.
    pub(crate) fn recall(&self, app: &Registered, now: Duration) -> Recall {
        let holds = |seen: &&Seen| seen.is_of(app) && (seen.outcome.is_ok() || now < seen.at + INTERVAL);
        match lock(&self.seen).as_ref().filter(holds) {
            Some(seen) => seen.outcome.clone().map_or_else(Recall::Failed, Recall::Token),
            None if app.webhook.is_none() => Recall::Token(None),
            None => Recall::Nothing,
        }
    }

    /// Remembers a read that began when the app was known like this. A failure takes nothing away.
    pub(crate) fn remember(&self, app: &Registered, outcome: Result<Option<WebhookSecret>, Arc<Error>>, at: Duration) {
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
