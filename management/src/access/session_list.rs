//! The list of each principal's sessions and login codes: a sign-in leaves no more behind than a bounded number, and a
//! sign-out finds what it ends without a read of every session.
//!
//! The list decides which session may lend another: it is written by compare-and-swap, so that a session is either ended
//! together with what it lent, or was ended before and lends nothing.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use rollhook_core::{
    error::{Error, Result},
    time::Timestamp,
};

use crate::{
    ATTEMPTS, Management, Outcome, Refusal,
    access::SESSION_MAX,
    documents,
    ports::{Record, RecordKey, RecordKind},
    refused,
};

/// The most sessions of an API token or a person, those of command lines among them: one more ends the oldest.
pub const SESSIONS_MAX: usize = 20;
/// The most login codes of a session that wait for their command line: one more ends the oldest.
pub const LOGIN_CODES_MAX: usize = 3;
/// The most login codes of all sessions of an API token or a person.
const ALL_CODES_MAX: usize = 10;

/// The time for which a list is kept without a change: no session of it is left then.
const KEPT_FOR: Duration = Duration::from_secs(SESSION_MAX.as_secs() + 3600);

/// The document of a list's record: the oldest entry is the first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionList {
    entries: Vec<Entry>,
}

/// A session or a login code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// The key of the record.
    pub(crate) key: RecordKey,
    /// Whether it is a login code.
    #[serde(default)]
    pub(crate) is_code: bool,
    /// The session that lent it.
    #[serde(default)]
    pub(crate) lent_by: Option<RecordKey>,
    /// The hash of the name that a holder of the shared token gave itself.
    #[serde(default)]
    pub(crate) claimed: Option<RecordKey>,
    /// The time at which it has ended in any case.
    pub(crate) ends_at: Timestamp,
}

impl Entry {
    const fn kind(&self) -> RecordKind {
        if self.is_code { RecordKind::LoginCode } else { RecordKind::Session }
    }

    /// Returns whether this is the session, or stems from it.
    fn stems_from(&self, session: &RecordKey) -> bool {
        self.key == *session || self.lent_by.as_ref() == Some(session)
    }
}

/// The sessions and codes that a sign-out ends.
#[derive(Clone, Copy)]
pub(crate) enum Ending<'a> {
    /// The session, and what it lent.
    This,
    /// Every session and code of this claimed name.
    Everywhere(Option<&'a RecordKey>),
}

impl SessionList {
    /// Adds an entry, and returns those that make room for it.
    fn add(&mut self, entry: Entry) -> Vec<Entry> {
        self.entries.push(entry);
        let mut removed = Vec::new();
        while let Some(oldest) = self.oldest_beyond_a_bound() {
            let (out, stay) = self.entries.drain(..).partition(|entry| entry.stems_from(&oldest));
            self.entries = stay;
            removed.extend::<Vec<_>>(out);
        }
        removed
    }

    /// Returns the oldest entry of those that are more than their bound.
    fn oldest_beyond_a_bound(&self) -> Option<RecordKey> {
        let newest = self.entries.last()?;
        // A session stays for what it lends.
        let is_lender = |entry: &&Entry| newest.lent_by.as_ref() == Some(&entry.key);
        let of_lender = |entry: &Entry| entry.is_code && entry.lent_by == newest.lent_by;
        let oldest = |most: usize, counts: &dyn Fn(&Entry) -> bool| {
            let counted = || self.entries.iter().filter(|entry| counts(entry));
            let is_over = counted().count() > most;
            counted().find(|entry| !is_lender(entry)).filter(|_| is_over).map(|entry| entry.key.clone())
        };
        oldest(SESSIONS_MAX, &|entry| !entry.is_code)
            .or_else(|| oldest(LOGIN_CODES_MAX, &of_lender))
            .or_else(|| oldest(ALL_CODES_MAX, &|entry| entry.is_code))
    }

    fn contains(&self, session: &RecordKey) -> bool {
        self.entries.iter().any(|entry| entry.key == *session)
    }
}

impl Management {
    /// Enters a session or a code, whose record is stored already, into the list of its owner. What makes room for it
    /// ends. A redeemed code leaves the list with it.
    ///
    /// # Errors
    /// [`Unauthorized`](rollhook_core::request::Refusal::Unauthorized) if the session that lends it has ended;
    /// [`StoreUnavailable`](rollhook_core::request::Refusal::StoreUnavailable) while the store is away,
    /// [`Busy`](rollhook_core::request::Refusal::Busy) while others change the list. The record is removed then.
    pub(crate) async fn enter(&self, owner: &RecordKey, entry: Entry, redeemed: Option<&RecordKey>) -> Outcome<()> {
        let (kind, key) = (entry.kind(), entry.key.clone());
        let entered = self.try_enter(owner, entry, redeemed).await;
        if entered.is_err()
            && let Err(error) = self.records.remove(kind, &key).await
        {
            tracing::warn!(error = %error.chain(), "removing an unlisted session failed");
        }
        entered
    }

    async fn try_enter(&self, owner: &RecordKey, entry: Entry, redeemed: Option<&RecordKey>) -> Outcome<()> {
        for _ in 0..ATTEMPTS {
            let (record, mut list) = self.session_list(owner).await.map_err(refused)?;
            if let Some(record) = &record {
                list.entries.retain(|entry| entry.ends_at > record.now && Some(&entry.key) != redeemed);
            }
            if entry.lent_by.as_ref().is_some_and(|lender| !list.contains(lender)) {
                return Err(Refusal::UNAUTHORIZED);
            }
            let removed = list.add(entry.clone());
            match self.write_list(owner, &list, record.as_ref()).await {
                Ok(()) => return self.remove_entries(&removed).await.map_err(refused),
                Err(Error::Conflict(_)) => {}
                Err(error) => return Err(refused(error)),
            }
        }
        Err(Refusal::BUSY)
    }

    /// Ends a session of an owner, and what it lent; the session itself ends last, so that a call that failed can be
    /// repeated.
    ///
    /// # Errors
    /// As [`Management::end_others`].
    pub(crate) async fn end_listed(&self, owner: &RecordKey, own: &RecordKey) -> Outcome<()> {
        self.end_others(owner, own, Ending::This).await?;
        self.end_own(own).await
    }

    /// Ends the record of a session that is in no list any more.
    pub(crate) async fn end_own(&self, own: &RecordKey) -> Outcome<()> {
        self.records.remove(RecordKind::Session, own).await.map_err(refused)?;
        self.known_callers.read(own, None);
        Ok(())
    }

    /// Ends sessions and codes of an owner; of the session that the call is made by, only its place in the list. Once this
    /// returns, none of them can lend another. Returns whether the list is so young that sessions of the owner may exist which
    /// were begun before lists were kept.
    ///
    /// # Errors
    /// [`StoreUnavailable`](rollhook_core::request::Refusal::StoreUnavailable) while the store is away,
    /// [`Busy`](rollhook_core::request::Refusal::Busy) while others change the list.
    pub(crate) async fn end_others(&self, owner: &RecordKey, own: &RecordKey, ending: Ending<'_>) -> Outcome<bool> {
        let ends = |entry: &Entry| match ending {
            Ending::This => entry.stems_from(own),
            Ending::Everywhere(claimed) => entry.stems_from(own) || entry.claimed.as_ref() == claimed,
        };
        for _ in 0..ATTEMPTS {
            let (record, mut list) = self.session_list(owner).await.map_err(refused)?;
            let Some(record) = record else { return Ok(true) };
            let (ended, stay): (Vec<_>, Vec<_>) = list.entries.drain(..).partition(ends);
            let is_young = record.now.since(record.created_at) <= SESSION_MAX;
            if ended.is_empty() {
                return Ok(is_young);
            }
            let others: Vec<_> = ended.into_iter().filter(|entry| entry.key != *own).collect();
            self.remove_entries(&others).await.map_err(refused)?;
            list.entries = stay;
            match self.write_list(owner, &list, Some(&record)).await {
                Ok(()) => return Ok(is_young),
                Err(Error::Conflict(_)) => {}
                Err(error) => return Err(refused(error)),
            }
        }
        Err(Refusal::BUSY)
    }

    /// Returns the keys of the sessions in an owner's list, the oldest first.
    pub(crate) async fn listed_sessions(&self, owner: &RecordKey) -> Outcome<Vec<RecordKey>> {
        let (_, list) = self.session_list(owner).await.map_err(refused)?;
        Ok(list.entries.into_iter().filter(|entry| !entry.is_code).map(|entry| entry.key).collect())
    }

    async fn session_list(&self, owner: &RecordKey) -> Result<(Option<Record>, SessionList)> {
        let read = documents::read(&*self.records, RecordKind::SessionList, owner).await?;
        Ok(read.map_or_else(Default::default, |(record, list)| (Some(record), list)))
    }

    async fn write_list(&self, owner: &RecordKey, list: &SessionList, read: Option<&Record>) -> Result<()> {
        let written = documents::encode(owner.clone(), list, Some(KEPT_FOR))?;
        self.records.write(RecordKind::SessionList, written, read.map(|record| record.version)).await.map(drop)
    }

    async fn remove_entries(&self, entries: &[Entry]) -> Result<()> {
        for entry in entries {
            self.records.remove(entry.kind(), &entry.key).await?;
            self.known_callers.read(&entry.key, None);
        }
        Ok(())
    }
}
