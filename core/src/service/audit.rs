//! The audit: who did what to apps' settings, webhooks and tokens, and what was refused to whom.
//!
//! An entry is written before the act, which does not happen if that fails: the audit may have an act too many, and
//! none too few.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{
    Deployer, Outcome, Principal,
    auth::{Granted, Place},
    documents, refused,
};
use crate::{
    access::{Action, Grant, Realm},
    app::AppId,
    deploy::Actor,
    error::{Error, Result},
    ports::{Record, RecordKey, RecordKind, RecordPlace, RecordStore},
    request::Refusal,
    time::Timestamp,
};

/// How long entries are kept.
const KEPT_FOR: Duration = Duration::from_secs(400 * 24 * 3600);
/// Entries per page while those of other realms are skipped.
const PAGE: usize = 200;
/// The most pages that one call reads.
const PAGES: usize = 20;
/// The most refusals of one caller that are written down in an hour; the others are in the log.
const REFUSALS: u32 = 100;
const HOUR: Duration = Duration::from_secs(3600);
/// The most callers whose refusals are counted; once there are more, all counts begin anew.
const CALLERS: usize = 10_000;

/// The refusals of each caller, and the beginning of their hour.
#[derive(Default)]
pub(super) struct Refusals(Mutex<HashMap<Actor, (Duration, u32)>>);

impl Refusals {
    /// Counts a refusal, and returns whether it is written down.
    fn is_written(&self, actor: &Actor, now: Duration) -> bool {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.len() >= CALLERS {
            counts.clear();
        }
        let (begin, count) = counts.entry(actor.clone()).or_insert((now, 0));
        if now.saturating_sub(*begin) >= HOUR {
            (*begin, *count) = (now, 0);
        }
        *count += 1;
        *count <= REFUSALS
    }
}

/// The thing that an action is done to.
pub(super) struct Subject {
    realm: Realm,
    name: String,
}

impl Subject {
    pub(super) fn app(id: &AppId, realm: Realm) -> Self {
        Self { realm, name: format!("app {id}") }
    }

    pub(super) fn new(name: String, realm: Realm) -> Self {
        Self { realm, name }
    }

    /// Returns the subject with a remark, such as the reason that the caller gave.
    pub(super) fn because(self, reason: Option<&str>) -> Self {
        match reason {
            Some(reason) => Self { name: format!("{}: {reason}", self.name), ..self },
            None => self,
        }
    }
}

/// The realms in which a principal may do an action.
pub(super) enum Realms {
    /// The realms in which these grants allow it.
    Granted(Arc<[Grant]>, Action),
    Everything,
}

impl Realms {
    /// Returns whether they contain all of this realm.
    pub(super) fn contain(&self, realm: &Realm) -> bool {
        match self {
            Self::Granted(grants, action) => grants.iter().any(|grant| grant.allows(*action, realm)),
            Self::Everything => true,
        }
    }
}

/// An entry of the audit as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// The party that acted.
    pub actor: Actor,
    /// The action, in words.
    pub action: String,
    /// The thing that it was done to, such as `app shop-test/api`.
    pub subject: String,
    /// The realm that the thing is in.
    #[serde(flatten)]
    pub realm: Realm,
    /// Whether the caller was allowed to; else nothing was done.
    pub is_allowed: bool,
}

/// An entry of the audit, and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audited {
    /// The entry as it is stored.
    pub entry: AuditEntry,
    /// The time of the entry, and its place in the audit.
    pub place: RecordPlace,
}

impl Audited {
    /// The time of the entry.
    pub const fn at(&self) -> Timestamp {
        self.place.created_at
    }

    fn of(record: &Record) -> Result<Self> {
        Ok(Self { entry: documents::decode(record)?, place: record.place() })
    }
}

impl Deployer {
    /// Writes an entry, if the action is audited or refused, and returns `Ok` if it is allowed.
    ///
    /// # Errors
    /// [`Refusal::Forbidden`], [`Refusal::NotGranted`]; [`Refusal::StoreUnavailable`] if an allowed action cannot be
    /// written down.
    pub(super) async fn audit(&self, actor: &Actor, action: Action, subject: Subject, granted: Granted) -> Outcome<()> {
        let (is_allowed, decided) = (granted.is_yes(), granted.of(action));
        if is_allowed && !action.is_audited() {
            return Ok(());
        }
        tracing::info!(target: "rollhook::audit", %actor, %action, subject = subject.name, is_allowed, "audit");
        let Some(records) = &self.ports.records else { return decided };
        if !is_allowed && !self.refusals.is_written(actor, self.ports.clock.elapsed()) {
            return decided;
        }
        let (actor, action) = (actor.clone(), action.to_string());
        let entry = AuditEntry { actor, action, subject: subject.name, realm: subject.realm, is_allowed };
        match write(&**records, RecordKey::of_bits(self.ports.rng.bits()), &entry).await {
            Err(error) if is_allowed => Err(refused(error)),
            Err(error) => {
                tracing::warn!(error = %error.chain(), "writing a refusal to the audit failed");
                decided
            }
            Ok(()) => decided,
        }
    }

    /// Returns where the principal may do this, if it may anywhere. An authority outside of the service is asked for
    /// everything: what is done somewhere belongs to no namespace.
    pub(super) async fn permit_somewhere(&self, principal: &Principal, action: Action) -> Outcome<Realms> {
        let granted = match principal.is_reviewed() {
            false => {
                let role = principal.grants().iter().map(|grant| grant.role).max();
                Granted::by_role(role.is_some_and(|role| role.may(action)), role)
            }
            true => self.may(principal, action, Place::everything()).await?,
        };
        if granted.is_yes() {
            return Ok(match principal.is_reviewed() {
                false => Realms::Granted(principal.grants().iter().cloned().collect(), action),
                true => Realms::Everything,
            });
        }
        let realm = principal.grants().first().map_or(Realm::Everything, |grant| grant.realm.clone());
        let subject = Subject { name: realm.to_string(), realm };
        let audited = self.audit(principal.actor(), action, subject, granted).await;
        audited.and(Err(Refusal::Forbidden(action, None)))
    }

    /// Returns at most `limit` entries after this place, newest first, and the place that the next part begins after:
    /// those of the realms of which the principal may read the audit. A part may have fewer entries, and not be the
    /// last.
    ///
    /// # Errors
    /// [`Refusal::Forbidden`]; [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn audited(
        &self,
        principal: &Principal,
        mut after: Option<RecordPlace>,
        limit: usize,
    ) -> Outcome<(Vec<Audited>, Option<RecordPlace>)> {
        let realms = self.permit_somewhere(principal, Action::ReadAudit).await?;
        let Some(records) = &self.ports.records else { return Ok((Vec::new(), None)) };
        let mut found = Vec::new();
        for _ in 0..PAGES {
            let page = records.list(RecordKind::Audit, after.clone(), PAGE).await.map_err(refused)?;
            let is_last = page.len() < PAGE;
            for record in &page {
                after = Some(record.place());
                match Audited::of(record) {
                    Ok(entry) if realms.contain(&entry.entry.realm) => found.push(entry),
                    Ok(_) => {}
                    Err(error) => tracing::error!(error = %error.chain(), "reading the audit failed"),
                }
                if found.len() >= limit {
                    return Ok((found, after));
                }
            }
            if is_last {
                return Ok((found, None));
            }
        }
        Ok((found, after))
    }
}

async fn write(records: &dyn RecordStore, key: RecordKey, entry: &AuditEntry) -> Result<()> {
    records.write(RecordKind::Audit, documents::encode(key, entry, Some(KEPT_FOR))?, None).await.map(drop)
}

/// Writes an entry about everything, once under this key: of a program that has the store.
pub(super) async fn append(records: &dyn RecordStore, key: &RecordKey, actor: &Actor, action: &str) -> Result<()> {
    let (realm, action) = (Realm::Everything, action.to_owned());
    let entry =
        AuditEntry { actor: actor.clone(), action, subject: "API token admin".to_owned(), realm, is_allowed: true };
    match write(records, key.clone(), &entry).await {
        Err(Error::Conflict(_)) => Ok(()),
        other => other,
    }
}
