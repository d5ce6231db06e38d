//! Accepting a deploy: its number, its key, and what it ends or holds.

use std::sync::Arc;

use super::{Change, HOLDS_MAX, KeyLookup, KeyUse, KeyWrite};
use crate::{
    app::Hold,
    deploy::{Actor, AdmissionId, Commit, Deploy, Origin, Revision, State, Trigger},
    image::ImageRef,
    replica::ReplicaId,
    request::IdempotencyKey,
    time::Timestamp,
};

/// The most unfinished deploys that an app may have.
pub const UNFINISHED_MAX: usize = 100;

/// A deploy to be accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDeploy {
    /// See [`Deploy::image`].
    pub image: Option<ImageRef>,
    /// See [`Deploy::commit`].
    pub commit: Option<Commit>,
    /// See [`Deploy::trigger`].
    pub trigger: Trigger,
    /// See [`Deploy::actor`].
    pub actor: Actor,
    /// See [`Deploy::from`].
    pub from: Option<Origin>,
    /// The revision that the deploy stands for; none: its own.
    pub effective: Option<Revision>,
    /// See [`Deploy::adopted`].
    pub adopted: bool,
}

/// The newest revision that a decision was made on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedLatest {
    /// The decision holds whatever came since.
    Any,
    /// The decision holds only while this is the newest revision; none: there is no revision yet.
    Exactly(Option<Revision>),
}

/// What becomes of the unfinished deploys when another is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherDeploys {
    /// They go on.
    GoOn,
    /// They end `superseded` by the new one, in the same commit: a rollback does not wait.
    EndSuperseded,
}

/// A request to accept a deploy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// The accept's own id.
    pub id: AdmissionId,
    /// The key that makes it repeatable.
    pub key: Option<IdempotencyKey>,
    /// The deploy.
    pub deploy: NewDeploy,
    /// The newest revision that the decision was made on.
    pub expected: ExpectedLatest,
    /// What becomes of the unfinished deploys.
    pub others: OtherDeploys,
    /// What is held from now on; its `by` is set to the new revision.
    pub hold: Option<Hold>,
    /// The replica that drives the app from now on, if none does.
    pub driver: Option<ReplicaId>,
}

/// The outcome of [`Change::admit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// The deploy is accepted with the commit of the change.
    New {
        /// The deploy.
        deploy: Arc<Deploy>,
        /// The revisions that it superseded, ascending.
        superseded: Vec<Revision>,
    },
    /// The same request was accepted before under this key, as this revision.
    Replayed(Revision),
    /// The key was used for another request.
    KeyReused,
    /// Another revision is the newest than was expected: read again and decide again.
    Outdated,
    /// [`UNFINISHED_MAX`] deploys are unfinished.
    Full,
    /// Another part of this change has changed a deploy that this one ends: it needs a commit of its own.
    NextCommit,
}

impl Admission {
    /// The accept of a deploy that leaves the others alone, whatever came since.
    pub fn plain(id: AdmissionId, deploy: NewDeploy) -> Self {
        Self {
            id,
            key: None,
            deploy,
            expected: ExpectedLatest::Any,
            others: OtherDeploys::GoOn,
            hold: None,
            driver: None,
        }
    }
}

impl Change {
    /// Accepts a deploy: the next revision, `queued`. Everything but [`Admitted::New`] leaves the change as it was.
    ///
    /// A known key is answered first, whatever else has changed. A restore is never refused for the number of unfinished
    /// deploys, nor is one that ends them.
    pub fn admit(&mut self, admission: Admission, lookup: KeyLookup, now: Timestamp) -> Admitted {
        let time = self.state.time(now);
        let replaces = match self.known(admission.key.as_ref(), lookup, time) {
            Known::Used(admitted) => return admitted,
            Known::Expired => true,
            Known::Free => false,
        };
        if let ExpectedLatest::Exactly(expected) = admission.expected
            && expected != self.state.latest
        {
            return Admitted::Outdated;
        }
        let supersedes = admission.others == OtherDeploys::EndSuperseded;
        let restores = admission.deploy.trigger == Trigger::Rollback && admission.deploy.actor.is_service();
        if !supersedes && !restores && self.state.unfinished.len() >= UNFINISHED_MAX {
            return Admitted::Full;
        }
        if supersedes && self.state.unfinished.iter().any(|deploy| self.changed.contains(&deploy.revision)) {
            return Admitted::NextCommit;
        }
        let now = self.touch(now);
        let revision = Revision::following(self.state.latest);
        let superseded = if supersedes { self.supersede_all(revision, &admission.deploy, now) } else { Vec::new() };
        if let Some(hold) = admission.hold {
            self.hold(Hold { by: revision, ..hold });
        }
        let kept_until = admission.key.as_ref().map(|key| now.after(key.header.kept_for()));
        if let (Some(key), Some(expires_at)) = (admission.key, kept_until) {
            let made = KeyUse { request: key.request, revision, expires_at };
            self.keys.push(KeyWrite { key, made, replaces });
        }
        self.state.latest = Some(revision);
        if restores {
            self.state.last_restore = Some(revision);
        }
        self.state.queued_at.get_or_insert(now);
        if self.state.lease.is_none() {
            self.state.lease = admission.driver;
        }
        self.admitted.push(revision);
        self.put(Deploy { kept_until, ..admission.deploy.entry(admission.id, revision, now) });
        match self.state.unfinished.last() {
            Some(deploy) => Admitted::New { deploy: Arc::clone(deploy), superseded },
            None => Admitted::Outdated,
        }
    }

    /// What an earlier call made under this key: [`Admitted::Replayed`], or [`Admitted::KeyReused`]. Returns `None` if the
    /// key is free, or was not looked up.
    pub fn made_by(&self, key: &IdempotencyKey, lookup: KeyLookup, now: Timestamp) -> Option<Admitted> {
        match self.known(Some(key), lookup, self.state.time(now)) {
            Known::Used(admitted) => Some(admitted),
            Known::Free | Known::Expired => None,
        }
    }

    fn known(&self, key: Option<&IdempotencyKey>, lookup: KeyLookup, now: Timestamp) -> Known {
        let Some(key) = key else { return Known::Free };
        let is_same = |write: &&KeyWrite| (write.key.header, &write.key.key) == (key.header, &key.key);
        let used = match (self.keys.iter().find(is_same), lookup) {
            (Some(write), _) => write.made,
            (None, KeyLookup::Unread | KeyLookup::Read(None)) => return Known::Free,
            (None, KeyLookup::Read(Some(used))) => used,
        };
        match used.request == key.request {
            _ if used.expires_at <= now => Known::Expired,
            true => Known::Used(Admitted::Replayed(used.revision)),
            false => Known::Used(Admitted::KeyReused),
        }
    }

    fn supersede_all(&mut self, by: Revision, deploy: &NewDeploy, now: Timestamp) -> Vec<Revision> {
        let rollback = deploy.trigger == Trigger::Rollback;
        let unfinished = self.state.unfinished.clone();
        for deploy in &unfinished {
            self.put(Deploy { updated_at: now, ..deploy.moved(State::Superseded { by, rollback }) });
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

enum Known {
    Free,
    Expired,
    Used(Admitted),
}

impl NewDeploy {
    /// The queued entry of this deploy.
    pub(crate) fn entry(self, id: AdmissionId, revision: Revision, now: Timestamp) -> Deploy {
        Deploy {
            id,
            revision,
            image: self.image,
            commit: self.commit,
            trigger: self.trigger,
            actor: self.actor,
            from: self.from,
            effective: self.effective.unwrap_or(revision),
            adopted: self.adopted,
            state: State::Queued,
            touched: false,
            digest: None,
            step: 0,
            created_at: now,
            updated_at: now,
            kept_until: None,
        }
    }
}
