//! The audit: who did what to apps' settings, webhooks and tokens, and what was refused to whom.
//!
//! An entry is written before the act, which does not happen if that fails: the audit may have an act too many, and
//! none too few. Repeated reads by one caller are one entry per hour, which counts them; and a caller that does very much
//! has one entry per hour for the rest, so that nobody fills the store. Admins of an environment make callers as they like,
//! so those of one environment, and those of one project, have a bounded number of entries in a day, and share one per hour
//! for the rest.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use rollhook_core::{
    app::AppId,
    deploy::Actor,
    error::{Entity, Error, Result},
    lock::PrincipalKey,
    text::hash_of,
    time::Timestamp,
};

use crate::{
    ATTEMPTS, Management, Outcome, Refusal,
    access::{Action, Grant, Granted, KnownCaller, Place, Principal, Realm},
    documents,
    ports::{Record, RecordKey, RecordKind, RecordPlace, RecordStore},
    recent::Recent,
    refused,
};

/// How long entries are kept.
const KEPT_FOR: Duration = Duration::from_secs(400 * 24 * 3600);
/// Entries per page while those of other realms are skipped.
const PAGE: usize = 200;
/// The most pages that one call reads.
const PAGES: usize = 5;
/// The most refusals of one caller that are written down in an hour; the log counts the others.
const REFUSALS: u32 = 100;
/// The most acts of one caller in an hour that have an entry each; the others of an action and realm share one.
const ACTS: u32 = 1_000;
const HOUR: Duration = Duration::from_secs(3600);
/// The most entries of the callers that admins of one environment make in a day, by those of one caller in an hour; the acts
/// beyond share an entry per hour and action.
const OF_ENVIRONMENT: u32 = 5;
/// The same of those that admins of one project make.
const OF_PROJECT: u32 = 10;
const DAY: Duration = Duration::from_secs(24 * 3600);
/// The most callers whose acts are counted, and the most environments and projects: one more makes the one forgotten that
/// acted least lately.
const CALLERS: usize = 10_000;

/// The number of acts and of refusals of each caller in its hour, and of entries of each environment and project in its day.
pub(crate) struct Acts {
    callers: Mutex<Recent<(Actor, bool), Counted>>,
    entries: Mutex<Recent<(PrincipalKey, bool), Counted>>,
}

/// A number of acts or entries, and the beginning of their hour or day.
struct Counted {
    begin: Duration,
    times: u32,
}

impl Counted {
    const fn none(now: Duration) -> Self {
        Self { begin: now, times: 0 }
    }

    /// Returns whether the hour or day has passed.
    fn is_over(&self, period: Duration, now: Duration) -> bool {
        now.saturating_sub(self.begin) >= period
    }

    /// Counts one more, of a new hour or day if the one before has passed, and returns the number.
    fn add(&mut self, period: Duration, now: Duration) -> u32 {
        if self.is_over(period, now) {
            *self = Self::none(now);
        }
        self.times = self.times.saturating_add(1);
        self.times
    }
}

/// The callers that have had their entries of a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spent {
    OfEnvironment,
    OfProject,
}

impl Default for Acts {
    fn default() -> Self {
        Self { callers: Mutex::new(Recent::new(CALLERS)), entries: Mutex::new(Recent::new(CALLERS)) }
    }
}

impl Acts {
    /// Counts an act or a refusal, and returns whether the caller has not done too much to be given an entry of its own.
    fn is_own_entry(&self, actor: &Actor, is_allowed: bool, now: Duration) -> bool {
        let most = most(is_allowed);
        let mut counts = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        counts.used(&(actor.clone(), is_allowed), || Counted::none(now), |counted| counted.add(HOUR, now) <= most)
    }

    /// Returns whether the callers of this one's project, or of its environment, have had their entries of the day.
    fn spent(&self, caller: &KnownCaller, is_allowed: bool, now: Duration) -> Option<Spent> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let is_spent = |key: &Option<PrincipalKey>, times: u32| {
            let counted = key.as_ref().and_then(|key| entries.get(&(key.clone(), is_allowed)));
            counted.is_some_and(|counted| !counted.is_over(DAY, now) && counted.times >= times * most(is_allowed))
        };
        if is_spent(&caller.project, OF_PROJECT) {
            Some(Spent::OfProject)
        } else if is_spent(&caller.environment, OF_ENVIRONMENT) {
            Some(Spent::OfEnvironment)
        } else {
            None
        }
    }

    /// Counts an entry for the callers of this one's environment and project.
    fn wrote(&self, caller: &KnownCaller, is_allowed: bool, now: Duration) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        for key in [&caller.environment, &caller.project].into_iter().flatten() {
            entries.used(&(key.clone(), is_allowed), || Counted::none(now), |counted| counted.add(DAY, now));
        }
    }
}

/// Returns the most acts, or refusals, of one caller in an hour that have an entry each.
const fn most(is_allowed: bool) -> u32 {
    if is_allowed { ACTS } else { REFUSALS }
}

impl Spent {
    /// Returns the actor and subject of the entry that all callers of the environment or project share: its subject names
    /// the last of them.
    fn together(self, principal: &Principal, subject: Subject) -> (Actor, Subject) {
        let made_in = principal.made_in();
        let realm = match (self, made_in.project()) {
            (Self::OfProject, Some(project)) => Realm::Project { project: project.clone() },
            (Self::OfEnvironment, Some(_)) => made_in.clone(),
            // An account of a cluster, whose namespace is an environment's.
            (Self::OfProject | Self::OfEnvironment, None) => subject.realm.clone(),
        };
        // No token or person has a name like this.
        let actor = Actor::person(&format!("several callers of {realm}"));
        (actor, Subject { name: format!("{}, by {}", subject.name, principal.actor()), realm })
    }
}

/// The thing that an action is done to.
pub(crate) struct Subject {
    realm: Realm,
    name: String,
}

/// The most characters of a remark in the audit.
const REMARK_MAX: usize = 600;

impl Subject {
    pub(crate) fn app(id: &AppId, realm: Realm) -> Self {
        Self { realm, name: format!("app {id}") }
    }

    pub(crate) fn new(name: String, realm: Realm) -> Self {
        Self { realm, name }
    }

    /// Returns the subject with a remark, such as the reason that the caller gave; its beginning, if it is long.
    pub(crate) fn because(self, reason: Option<&str>) -> Self {
        match reason {
            Some(reason) => {
                let cut = if reason.chars().nth(REMARK_MAX).is_some() { "…" } else { "" };
                let reason: String = reason.chars().take(REMARK_MAX).collect();
                Self { name: format!("{}: {reason}{cut}", self.name), ..self }
            }
            None => self,
        }
    }
}

/// The realms in which a principal may do an action.
pub(crate) enum Realms {
    /// The realms in which these grants allow it.
    Granted(Arc<[Grant]>, Action),
    Everything,
}

impl Realms {
    /// Returns whether they contain all of this realm.
    pub(crate) fn contain(&self, realm: &Realm) -> bool {
        match self {
            Self::Granted(grants, action) => grants.iter().any(|grant| grant.allows(*action, realm)),
            Self::Everything => true,
        }
    }
}

/// An entry of the audit as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// The party that acted; `several callers of` an environment or project if their entries of the day are used up.
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
    /// How many acts the entry stands for: more than one for reads, and for a caller that does very much. The subject is
    /// that of the last one.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub times: u32,
    /// The time of the last one, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

const fn once() -> u32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_once(times: &u32) -> bool {
    *times == 1
}

impl AuditEntry {
    /// Returns the key of the entry that all acts like this one share in an hour of the store's clock: of the same
    /// subject, or of any.
    fn shared_key(&self, subject: Option<&String>, now: Timestamp) -> RecordKey {
        let hour = now.as_millis() / HOUR.as_millis().try_into().unwrap_or(i64::MAX);
        let (actor, realm, hour) = (self.actor.to_string(), self.realm.to_string(), hour.to_string());
        RecordKey::of_hash(hash_of([&*actor, &*self.action, subject.map_or("", String::as_str), &*realm, &*hour]))
    }
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

impl Management {
    /// Writes an entry, if the action is audited or refused, and returns `Ok` if it is allowed.
    ///
    /// # Errors
    /// [`Refusal::Forbidden`], [`Refusal::NotGranted`]; [`StoreUnavailable`](rollhook_core::request::Refusal::StoreUnavailable) if an allowed action cannot be
    /// written down.
    pub(crate) async fn audit(
        &self,
        principal: &Principal,
        action: Action,
        subject: Subject,
        granted: Granted,
    ) -> Outcome<()> {
        let actor = principal.actor();
        let (is_allowed, decided) = (granted.is_yes(), granted.of(action));
        if is_allowed && !action.is_audited() {
            return Ok(());
        }
        let elapsed = self.deployer.ports().clock.elapsed();
        let caller = self.known_namespaces.resolve(principal.known_caller());
        let spent = self.acts.spent(&caller, is_allowed, elapsed);
        let has_own = self.acts.is_own_entry(actor, is_allowed, elapsed) && spent.is_none();
        let line = |left_out: Option<u64>| {
            let subject = &subject.name;
            tracing::info!(target: "rollhook::audit", %actor, %action, subject, is_allowed, left_out, "audit");
        };
        if has_own {
            line(None);
        } else if is_allowed && !action.only_reads() {
            // Apart from those of others, which are to displace no line of what may have changed something.
            self.act_lines.write(elapsed, line);
        } else {
            self.audit_lines.write(elapsed, line);
        }
        if !is_allowed && !has_own {
            return decided;
        }
        let (actor, subject) = match spent {
            Some(spent) => spent.together(principal, subject),
            None => (actor.clone(), subject),
        };
        let entry = AuditEntry {
            actor,
            action: action.to_string(),
            subject: subject.name,
            realm: subject.realm,
            is_allowed,
            times: 1,
            until: None,
        };
        let is_shared = !has_own || (is_allowed && action.only_reads());
        let now = self.deployer.time();
        let key = if is_shared && now != Timestamp::default() {
            entry.shared_key(has_own.then_some(&entry.subject), now)
        } else {
            RecordKey::of_bits(self.deployer.ports().rng.bits())
        };
        match self.count(key, entry).await {
            Err(error) if is_allowed => Err(refused(error)),
            Err(error) => {
                tracing::warn!(error = %error.chain(), "writing a refusal to the audit failed");
                decided
            }
            Ok(is_new) => {
                if is_new && spent.is_none() {
                    self.acts.wrote(&caller, is_allowed, elapsed);
                }
                decided
            }
        }
    }

    /// Writes an entry, or counts the act in the entry that has this key; returns whether it is a new one.
    async fn count(&self, key: RecordKey, entry: AuditEntry) -> Result<bool> {
        match write(&*self.records, key.clone(), &entry).await {
            Err(Error::Conflict(_)) => {}
            other => {
                self.written.audit();
                return other.map(|()| true);
            }
        }
        for _ in 0..ATTEMPTS {
            let read: Option<(Record, AuditEntry)> = documents::read(&*self.records, RecordKind::Audit, &key).await?;
            let (version, times, until) = match read {
                Some((record, known)) => (Some(record.version), known.times.saturating_add(1), Some(record.now)),
                // The entry was removed meanwhile.
                None => (None, 1, None),
            };
            let counted = AuditEntry { times, until, ..entry.clone() };
            let written = documents::encode(key.clone(), &counted, Some(KEPT_FOR))?;
            match self.records.write(RecordKind::Audit, written, version).await {
                Err(Error::Conflict(_)) => {}
                other => return other.map(|_| false),
            }
        }
        Err(Error::Conflict(Entity::Version))
    }

    /// Returns where the principal may do this, if it may anywhere. An authority outside of the service is asked for
    /// everything: what is done somewhere belongs to no namespace.
    pub(crate) async fn permit_somewhere(&self, principal: &Principal, action: Action) -> Outcome<Realms> {
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
        let audited = self.audit(principal, action, subject, granted).await;
        audited.and(Err(Refusal::Forbidden(action, None)))
    }

    /// Returns at most `limit` entries after this place, newest first, and the place that the next part begins after:
    /// those of the realms of which the principal may read the audit. A part may have fewer entries, and not be the
    /// last.
    ///
    /// # Errors
    /// [`Refusal::Forbidden`]; [`StoreUnavailable`](rollhook_core::request::Refusal::StoreUnavailable) while the store is away.
    pub async fn audited(
        &self,
        principal: &Principal,
        mut after: Option<RecordPlace>,
        limit: usize,
    ) -> Outcome<(Vec<Audited>, Option<RecordPlace>)> {
        let realms = self.permit_somewhere(principal, Action::ReadAudit).await?;
        // Where every entry counts, no more is read than is returned.
        let size = if realms.contain(&Realm::Everything) { limit.min(PAGE) } else { PAGE };
        let _turn = self.record_lists.turn(principal).await;
        let mut found = Vec::new();
        for _ in 0..PAGES {
            let page = self.records.list(RecordKind::Audit, after.clone(), size).await.map_err(refused)?;
            let is_last = page.len() < size;
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
pub(crate) async fn append(records: &dyn RecordStore, key: &RecordKey, actor: &Actor, action: &str) -> Result<()> {
    let (realm, action) = (Realm::Everything, action.to_owned());
    let entry = AuditEntry {
        actor: actor.clone(),
        action,
        subject: "API token admin".to_owned(),
        realm,
        is_allowed: true,
        times: 1,
        until: None,
    };
    match write(records, key.clone(), &entry).await {
        Err(Error::Conflict(_)) => Ok(()),
        other => other,
    }
}
