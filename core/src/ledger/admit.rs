//! Accepting a deploy: its number, its key, and what it ends or holds.

use std::sync::Arc;

use super::{Change, HOLDS_MAX, KeyLookup, KeyUse, KeyWrite, Revoked};
use crate::{
    app::Hold,
    configuration::ConfigurationId,
    deploy::{Actor, AdmissionId, Commit, Deploy, Order, Origin, Resolution, Revision, Scale, State, Trigger},
    follow::Followed,
    image::ImageRef,
    lock::{LockRule, Locked},
    replica::ReplicaId,
    request::{Cause, IdempotencyKey, Refusal},
    time::Timestamp,
    trace::TraceParent,
};

/// The most unfinished deploys that an app may have.
pub const UNFINISHED_MAX: usize = 100;

/// A deploy to be accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDeploy {
    /// The new [`Deploy::image`].
    pub image: Option<ImageRef>,
    /// The new [`Deploy::commit`].
    pub commit: Option<Commit>,
    /// The new [`Deploy::committed_at`].
    pub committed_at: Option<Timestamp>,
    /// The order among the deploys of the app's webhook, which gives the new [`Deploy::sequence`].
    pub order: Order,
    /// The new [`Deploy::trigger`].
    pub trigger: Trigger,
    /// The new [`Deploy::actor`].
    pub actor: Actor,
    /// The new [`Deploy::from`].
    pub from: Option<Origin>,
    /// The effective revision; `None`: the deploy's own.
    pub effective: Option<Revision>,
    /// The new [`Deploy::adopted`].
    pub adopted: bool,
    /// The new [`Deploy::scale`].
    pub scale: Scale,
    /// The configuration that the deploy brings; `None`: the app's own is its configuration.
    pub configuration: Option<Brought>,
    /// The new [`Deploy::unreleased`].
    pub unreleased: bool,
    /// Whether the image is that of an earlier version which is not [proven](Deploy::is_proven).
    pub is_unproven: bool,
    /// Whether the image is resolved at its registry before anything begins.
    pub resolves: bool,
    /// The new [`Deploy::trace`].
    pub trace: Option<TraceParent>,
}

/// The configuration that a deploy brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Brought(pub Option<ConfigurationId>);

/// The newest revision that a decision was made on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedLatest {
    /// The decision holds for any newest revision.
    Any,
    /// The decision holds only while this is the newest revision; `None`: there is no revision yet.
    Exactly(Option<Revision>),
}

/// The effect of an accept on the unfinished deploys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherDeploys {
    /// The unfinished deploys go on.
    GoOn,
    /// The unfinished deploys end `superseded` by the new one, in the same commit: a rollback does not wait.
    EndSuperseded,
}

/// A request to accept a deploy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// The accept's own id.
    pub id: AdmissionId,
    /// The idempotency key.
    pub key: Option<IdempotencyKey>,
    /// The deploy to be accepted.
    pub deploy: NewDeploy,
    /// The newest revision that the decision was made on.
    pub expected: ExpectedLatest,
    /// The effect on the unfinished deploys.
    pub others: OtherDeploys,
    /// The effect of the app's locks.
    pub locks: LockRule,
    /// The hold to set; its `by` is set to the new revision.
    pub hold: Option<Hold>,
    /// The image that following has decided on with it.
    pub followed: Option<Box<Followed>>,
    /// The replica that leases the app if it is idle.
    pub driver: Option<ReplicaId>,
    /// The values of variables that are revoked with it.
    pub revoked: Vec<Revoked>,
}

/// The outcome of [`Change::admit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// The deploy is accepted with the commit of the change.
    New {
        /// The accepted deploy.
        deploy: Arc<Deploy>,
        /// The superseded revisions, ascending.
        superseded: Vec<Revision>,
    },
    /// The same request was accepted before under this key, as this revision.
    Replayed(Revision),
    /// The key was used for another request.
    KeyReused,
    /// The newest revision is not the expected one: read again and decide again.
    Outdated,
    /// [`UNFINISHED_MAX`] deploys are unfinished.
    Full,
    /// A lock refuses new deploys.
    Locked(Box<Locked>),
    /// Another part of this change has changed a deploy that this one ends: it needs a commit of its own.
    NextCommit,
}

impl Admission {
    /// Returns the accept of a deploy that leaves the others alone, whatever the newest revision is.
    pub fn plain(id: AdmissionId, deploy: NewDeploy) -> Self {
        Self {
            id,
            key: None,
            deploy,
            expected: ExpectedLatest::Any,
            others: OtherDeploys::GoOn,
            locks: LockRule::Respected,
            hold: None,
            followed: None,
            driver: None,
            revoked: Vec::new(),
        }
    }
}

impl Change {
    /// Accepts a deploy: the next revision, `queued`. Every other outcome than [`Admitted::New`] leaves the change as
    /// it was.
    ///
    /// A known key is answered first, whatever else has changed. A restore is never refused for the number of
    /// unfinished deploys, nor is one that ends them; a lock refuses no rollback.
    ///
    /// A deploy whose sequence is lower than that of an earlier one ends `superseded` by it in the same commit, and leaves all
    /// else as it is.
    pub fn admit(&mut self, admission: Admission, lookup: KeyLookup, now: Timestamp) -> Admitted {
        match admission.key.as_ref().map_or(Ok(None), |key| self.replay_of(key, lookup, now)) {
            Ok(Some(revision)) => return Admitted::Replayed(revision),
            Ok(None) => {}
            Err(_) => return Admitted::KeyReused,
        }
        // A use that does not answer the call has expired.
        let replaces = admission.key.as_ref().is_some_and(|key| self.used(key, lookup).is_some());
        if let ExpectedLatest::Exactly(expected) = admission.expected
            && expected != self.state.latest
        {
            return Admitted::Outdated;
        }
        // By the store's clock: the app's own time may be ahead, and a lock would end early by it.
        if admission.locks == LockRule::Respected
            && admission.deploy.trigger != Trigger::Rollback
            && let Some(locked) = self.state.app.locks.refusing(now)
        {
            return Admitted::Locked(Box::new(locked));
        }
        let overtaken = self.state.newer_in_sequence(admission.deploy.order.sequence());
        let supersedes = overtaken.is_none() && admission.others == OtherDeploys::EndSuperseded;
        let restores = admission.deploy.trigger == Trigger::Rollback && admission.deploy.actor.is_service();
        if overtaken.is_none() && !supersedes && !restores && self.state.unfinished.len() >= UNFINISHED_MAX {
            return Admitted::Full;
        }
        if supersedes && self.state.unfinished.iter().any(|deploy| self.changed.contains(&deploy.revision)) {
            return Admitted::NextCommit;
        }
        let now = self.touch(now);
        let revision = Revision::following(self.state.latest);
        let superseded = if supersedes { self.supersede_all(revision, &admission.deploy, now) } else { Vec::new() };
        if let Some(hold) = admission.hold.filter(|_| overtaken.is_none()) {
            self.hold(Hold { by: revision, ..hold });
        }
        if let Some(followed) = admission.followed {
            self.state.followed = Some(followed);
        }
        let kept_until = admission.key.as_ref().map(|key| now.after(key.header.kept_for()));
        if let (Some(key), Some(expires_at)) = (admission.key, kept_until) {
            let made = KeyUse { request: key.request, revision, expires_at };
            self.keys.push(KeyWrite { key, made, replaces });
        }
        // Before the first one there is nothing that could be newer.
        let is_known = admission.deploy.image.is_none() && self.state.latest.is_none();
        let resolves = admission.deploy.resolves && overtaken.is_none() && !is_known;
        let is_to_be_ordered = resolves && admission.deploy.image.is_none();
        self.note_revision(revision, admission.deploy.order.sequence().filter(|_| overtaken.is_none()));
        if overtaken.is_none() && !is_to_be_ordered {
            self.watch_followed(revision, restores);
        }
        if restores {
            self.state.last_restore = Some(revision);
        }
        if admission.deploy.trigger == Trigger::Rollback && admission.deploy.configuration.is_some() {
            // What waits was made from the configuration that the rollback goes away from.
            self.state.staged = None;
        }
        self.revoke(admission.revoked, now);
        self.state.queued_at.get_or_insert(now);
        if self.state.lease.is_none() {
            self.state.lease = admission.driver;
        }
        self.admitted.push(revision);
        let deploy = NewDeploy { resolves, ..admission.deploy };
        let entry = Deploy { kept_until, ..deploy.entry(admission.id, revision, now) };
        self.put(match overtaken {
            Some(newer) => entry.moved(newer.supersedes()),
            None => entry,
        });
        match self.deploy(revision) {
            Some(deploy) => Admitted::New { deploy: Arc::clone(deploy), superseded },
            None => Admitted::Outdated,
        }
    }

    /// Returns the revision that an earlier call with this key made; `None` if the key is free, or was not looked up.
    ///
    /// # Errors
    /// [`Refusal::KeyReused`] if the earlier call was another request.
    pub fn replay_of(
        &self,
        key: &IdempotencyKey,
        lookup: KeyLookup,
        now: Timestamp,
    ) -> Result<Option<Revision>, Refusal> {
        // A change that was staged made no deploy.
        self.state.has_staged(key, now)?;
        // The app's own time may be that of a replica whose clock is ahead: by it, keys would expire early everywhere.
        match self.used(key, lookup).filter(|used| used.expires_at > now) {
            Some(used) if used.request == key.request => Ok(Some(used.revision)),
            Some(_) => Err(Refusal::KeyReused),
            None => Ok(None),
        }
    }

    /// Returns the use of a key, which may have expired.
    fn used(&self, key: &IdempotencyKey, lookup: KeyLookup) -> Option<KeyUse> {
        let is_same = |write: &&KeyWrite| (write.key.header, &write.key.key) == (key.header, &key.key);
        let stored = if let KeyLookup::Read(stored) = lookup { stored } else { None };
        self.keys.iter().find(is_same).map(|write| write.made).or(stored)
    }

    fn supersede_all(&mut self, by: Revision, deploy: &NewDeploy, now: Timestamp) -> Vec<Revision> {
        let rollback = deploy.trigger == Trigger::Rollback;
        let unfinished = self.state.unfinished.clone();
        for deploy in &unfinished {
            self.put(Deploy { updated_at: now, ..deploy.moved(State::Superseded { by, rollback, newer: None }) });
        }
        unfinished.iter().map(|deploy| deploy.revision).collect()
    }

    fn hold(&mut self, hold: Hold) {
        let holds = &mut Arc::make_mut(&mut self.state.app).holds;
        holds.push(hold);
        let surplus = holds.len().saturating_sub(HOLDS_MAX);
        holds.drain(..surplus);
    }
}

impl NewDeploy {
    /// Returns a deploy of this cause, without an image and a commit.
    pub fn new(cause: &Cause) -> Self {
        let Cause { trigger, actor } = cause.clone();
        let (image, commit, committed_at, from, effective, trace) = Default::default();
        Self {
            image,
            commit,
            committed_at,
            order: Order::Unstated,
            trigger,
            actor,
            from,
            effective,
            adopted: false,
            scale: Scale::Keep,
            configuration: None,
            unreleased: false,
            is_unproven: false,
            resolves: false,
            trace,
        }
    }

    /// Returns the queued entry of this deploy.
    pub(crate) fn entry(self, id: AdmissionId, revision: Revision, now: Timestamp) -> Deploy {
        Deploy {
            id,
            revision,
            image: self.image,
            commit: self.commit,
            committed_at: self.committed_at,
            sequence: self.order.sequence(),
            trigger: self.trigger,
            actor: self.actor,
            from: self.from,
            effective: self.effective.unwrap_or(revision),
            adopted: self.adopted,
            scale: self.scale,
            configuration: self.configuration.and_then(|brought| brought.0),
            configures: self.configuration.is_some(),
            state: State::Queued,
            touched: false,
            release: None,
            unreleased: self.unreleased,
            verification: None,
            resolution: self.resolves.then(|| Box::new(Resolution::Pending)),
            digest: None,
            step: 0,
            created_at: now,
            updated_at: now,
            kept_until: None,
            trace: self.trace,
        }
    }
}
