//! The sessions as their owners and the admins of everything see and end them.
//!
//! A session is named by an id that is made of its record's key, which is itself a hash of the secret: whoever reads the
//! id can neither use the session nor find its record.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    str::FromStr,
};

use serde::{Deserialize, Serialize};

use rollhook_core::{
    app::InvalidName,
    deploy::Actor,
    text::{checked_text, hash_of, hex},
    time::Timestamp,
};

use crate::{
    Management, Outcome, Refusal,
    access::{
        Action, Place, Principal, Realm, SESSION_IDLE, Subject,
        principal::Proof,
        sessions::{Holder, Stored},
    },
    documents,
    ports::{Record, RecordKey, RecordKind, RecordPlace},
    refused,
};

/// The sessions per page of the store.
const PAGE: usize = 200;
/// The most pages that one call lists while sessions of revoked tokens are skipped.
const PAGES: usize = 5;

checked_text! {
    /// The id of a session, which opens nothing: 16 hexadecimal digits.
    SessionId, InvalidName, |text| {
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() == 16 && text.bytes().all(is_hex) {
            return Ok(text.to_owned());
        }
        Err(InvalidName::new("session", text, "must be 16 hexadecimal digits, as the list of sessions shows them"))
    }
}

impl SessionId {
    fn of(key: &RecordKey) -> Self {
        Self(hex(&hash_of(["session", key.as_str()])[..8]))
    }
}

/// A session that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedIn {
    /// The id, which opens nothing.
    pub id: SessionId,
    /// The token or person that the session stands for, as the history names it.
    pub actor: Actor,
    /// The session of the console that lent it; `None`: it is one of the console itself.
    pub lent_by: Option<SessionId>,
    /// The time at which it began.
    pub began_at: Timestamp,
    /// The time of its last use, with an error of some minutes, where it is known.
    pub last_used_at: Option<Timestamp>,
    /// The time at which it ends unless it is used.
    pub ends_at: Timestamp,
    /// Whether the call that asks was made by it.
    pub is_current: bool,
}

/// A session's record, and the name of its holder.
struct Found {
    record: Record,
    stored: Stored,
    actor: Actor,
}

impl Found {
    fn id(&self) -> SessionId {
        SessionId::of(&self.record.key)
    }

    /// Returns what is the same for all sessions of one person, or of one token with one claimed name.
    fn holder(&self) -> (RecordKey, Option<RecordKey>) {
        (self.stored.holder.list(), self.stored.holder.claimed())
    }

    fn shown(&self, current: Option<&RecordKey>) -> SignedIn {
        let (record, stored) = (&self.record, &self.stored);
        let longest = stored.ends_at(record);
        let ends_at = record.expires_at.map_or(longest, |end| end.min(longest));
        // A use of the console's sessions sets their end anew, and nothing else is written.
        let is_renewed = stored.lent.is_none() && ends_at < longest;
        let idle = SESSION_IDLE.as_millis().try_into().unwrap_or_default();
        let last_used_at = is_renewed.then(|| Timestamp::from_millis(ends_at.as_millis().saturating_sub(idle)));
        SignedIn {
            id: self.id(),
            actor: self.actor.clone(),
            lent_by: stored.lent.as_ref().map(|lent| SessionId::of(&lent.by)),
            began_at: record.created_at,
            last_used_at,
            ends_at,
            is_current: current == Some(&record.key),
        }
    }
}

/// The names of API tokens, each read once; `None`: the token is not valid any more.
type TokenNames = HashMap<(RecordKey, Option<String>), Option<Actor>>;

impl Management {
    /// Returns at most `limit` sessions after this place, newest first, and the place that the next part begins after: all
    /// of them for an admin of everything, and for others their own, in one part. A part may have fewer sessions, and not
    /// be the last.
    ///
    /// # Errors
    /// [`Refusal::Forbidden`] or [`Refusal::NotGranted`] for a caller that has none;
    /// [`StoreUnavailable`](rollhook_core::request::Refusal::StoreUnavailable) while the store is away.
    pub async fn sessions(
        &self,
        principal: &Principal,
        mut after: Option<RecordPlace>,
        limit: usize,
    ) -> Outcome<(Vec<SignedIn>, Option<RecordPlace>)> {
        let current = current(principal);
        if !self.manages_sessions(principal).await? {
            let Some(owner) = self.owner_of(principal).await? else {
                self.forbid_sessions(principal, "listed").await?;
                return Ok((Vec::new(), None));
            };
            let own = self.listed(&owner).await?;
            return Ok((own.iter().map(|found| found.shown(current)).collect(), None));
        }
        let (mut shown, mut names) = (Vec::new(), TokenNames::new());
        for _ in 0..PAGES {
            let size = (limit - shown.len()).min(PAGE);
            let page = self.records.list(RecordKind::Session, after.clone(), size).await.map_err(refused)?;
            let is_last = page.len() < size;
            after = page.last().map(Record::place).or(after);
            for found in self.found(page, &mut names).await? {
                shown.push(found.shown(current));
            }
            if is_last {
                return Ok((shown, None));
            }
            if shown.len() >= limit {
                break;
            }
        }
        Ok((shown, after))
    }

    /// Ends a session and what it lent, on every replica: one of the caller's own, or any for an admin of everything. The
    /// audit has it.
    ///
    /// # Errors
    /// [`Refusal::SessionNotFound`], also for another party's session; as [`Management::end_session`].
    pub async fn end_session_of_id(&self, principal: &Principal, id: &SessionId) -> Outcome<()> {
        let own = match self.owner_of(principal).await? {
            Some(owner) => self.listed(&owner).await?.into_iter().find(|found| found.id() == *id),
            None => None,
        };
        let found = match own {
            Some(own) => Some(own),
            None if self.manages_sessions(principal).await? => self.all(|found| found.id() == *id).await?.pop(),
            None => None,
        };
        let found = found.ok_or_else(|| Refusal::SessionNotFound(id.clone()))?;
        self.audit_end(principal, &format!("session {id} of {}, ended", found.actor)).await?;
        self.end_found(&found).await
    }

    /// Ends every session of the token or person whom the history names so, on every replica, and returns how many there
    /// were: the caller's own, or anybody's for an admin of everything. The audit has it. A person's sessions end whatever
    /// name each of them has: the provider may state another one at each sign-in. Codes that wait for a command line end
    /// with the session that lends.
    ///
    /// # Errors
    /// [`Refusal::Forbidden`] or [`Refusal::NotGranted`]; as [`Management::end_session`].
    pub async fn end_sessions_of(&self, principal: &Principal, actor: &str) -> Outcome<usize> {
        let is_named = |found: &Found| found.actor.to_string() == actor;
        let found = if self.manages_sessions(principal).await? {
            let mut all = self.all(|_| true).await?;
            let named: HashSet<_> = all.iter().filter(|found| is_named(found)).map(Found::holder).collect();
            all.retain(|found| named.contains(&found.holder()));
            all
        } else {
            let own = match self.owner_of(principal).await? {
                Some(owner) => self.listed(&owner).await?,
                None => Vec::new(),
            };
            let is_own_name = |found: &Found| matches!(found.stored.holder, Holder::Person { .. }) && is_named(found);
            if own.is_empty() || !(principal.actor().to_string() == actor || own.iter().any(is_own_name)) {
                self.forbid_sessions(principal, "ended").await?;
            }
            own
        };
        self.audit_end(principal, &format!("sessions of {}, ended", Actor::person(actor))).await?;
        // The caller's own session is the last: a call that failed can be repeated.
        let is_current = |found: &&Found| current(principal) == Some(&found.record.key);
        for found in found.iter().filter(|found| !is_current(found)).chain(found.iter().filter(is_current)) {
            self.end_found(found).await?;
        }
        Ok(found.len())
    }

    async fn end_found(&self, found: &Found) -> Outcome<()> {
        self.end_listed(&found.stored.holder.list(), &found.record.key).await
    }

    async fn manages_sessions(&self, principal: &Principal) -> Outcome<bool> {
        Ok(self.may(principal, Action::ManageSessions, Place::everything()).await?.is_yes())
    }

    async fn audit_end(&self, principal: &Principal, subject: &str) -> Outcome<()> {
        let subject = Subject::new(subject.to_owned(), Realm::Everything);
        self.audit(principal, Action::ManageSessions, subject, super::Granted::Yes).await
    }

    /// Refuses a caller that may not manage sessions; the audit has it.
    async fn forbid_sessions(&self, principal: &Principal, act: &str) -> Outcome<()> {
        let granted = self.may(principal, Action::ManageSessions, Place::everything()).await?;
        let subject = Subject::new(format!("sessions, {act}"), Realm::Everything);
        self.audit(principal, Action::ManageSessions, subject, granted).await
    }

    /// Returns the key of the list of the caller's own sessions; `None` for a caller that can have none.
    async fn owner_of(&self, principal: &Principal) -> Outcome<Option<RecordKey>> {
        Ok(match principal.proof() {
            Some(Proof::Token(token, claimed)) => {
                Some(Holder::Token { token: token.clone(), claimed: claimed.clone() }.list())
            }
            Some(Proof::Session(key)) => self.living(key).await?.map(|(_, stored)| stored.holder.list()),
            Some(Proof::Reviewed(_)) | None => None,
        })
    }

    /// Returns the sessions in a list, newest first.
    async fn listed(&self, owner: &RecordKey) -> Outcome<Vec<Found>> {
        let mut records = Vec::new();
        for key in self.listed_sessions(owner).await? {
            records.extend(self.records.read(RecordKind::Session, &key).await.map_err(refused)?);
        }
        records.reverse();
        self.found(records, &mut TokenNames::new()).await
    }

    /// Returns all sessions that fit.
    async fn all(&self, fits: impl Fn(&Found) -> bool) -> Outcome<Vec<Found>> {
        let (mut fitting, mut names) = (Vec::new(), TokenNames::new());
        let records = documents::records(&*self.records, RecordKind::Session).await.map_err(refused)?;
        for some in records.chunks(PAGE) {
            fitting.extend(self.found(some.to_vec(), &mut names).await?.into_iter().filter(&fits));
        }
        Ok(fitting)
    }

    /// Returns those of the records whose sessions have not ended, with the names of their holders. A record that cannot be
    /// read opens nothing.
    async fn found(&self, records: Vec<Record>, names: &mut TokenNames) -> Outcome<Vec<Found>> {
        let mut found = Vec::new();
        for record in records {
            let stored: Stored = match documents::decode(&record) {
                Ok(stored) => stored,
                Err(error) => {
                    tracing::error!(error = %error.chain(), "reading a session failed");
                    continue;
                }
            };
            if record.now >= stored.ends_at(&record) {
                continue;
            }
            if let Some(actor) = self.holder_name(&stored.holder, names).await? {
                found.push(Found { record, stored, actor });
            }
        }
        Ok(found)
    }

    /// Returns the name of a session's holder; `None` if the session's token is not valid any more.
    async fn holder_name(&self, holder: &Holder, names: &mut TokenNames) -> Outcome<Option<Actor>> {
        let (token, claimed) = match holder {
            Holder::Person { person, .. } => return Ok(Some(Actor::person(person))),
            Holder::Token { token, claimed } => (token, claimed),
        };
        let name = (token.clone(), claimed.clone());
        if let Some(known) = names.get(&name) {
            return Ok(known.clone());
        }
        let actor = self.name_of_token(token, claimed.as_deref()).await?;
        names.insert(name, actor.clone());
        Ok(actor)
    }
}

/// Returns the key of the session that the caller's call was made by.
const fn current(principal: &Principal) -> Option<&RecordKey> {
    match principal.proof() {
        Some(Proof::Session(key)) => Some(key),
        Some(Proof::Token(..) | Proof::Reviewed(_)) | None => None,
    }
}
