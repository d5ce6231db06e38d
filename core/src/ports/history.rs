//! The port that keeps deploys, and who drives them.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use serde::{Deserialize, Serialize};

use crate::{
    app::{App, AppUid, Hold},
    deploy::{Actor, AdmissionId, Commit, Deploy, Origin, Revision, Trigger},
    error::Result,
    image::ImageRef,
    request::IdempotencyKey,
    time::Timestamp,
};

/// The most unfinished deploys that an app may have.
pub const UNFINISHED_MAX: usize = 100;

/// A guard that no app ever has.
const NEVER: u64 = i64::MAX as u64;

/// What an accept wants to be recorded.
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

impl NewDeploy {
    /// The queued entry that an accept of this draft makes.
    pub fn entry(self, id: AdmissionId, revision: Revision, now: Timestamp) -> Deploy {
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
            state: crate::deploy::State::Queued,
            touched: false,
            digest: None,
            step: 0,
            created_at: now,
            updated_at: now,
        }
    }
}

/// One accept: key, revision and entry, written together or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// The app.
    pub app: AppUid,
    /// The accept's own name.
    pub id: AdmissionId,
    /// The key that makes it repeatable.
    pub key: Option<IdempotencyKey>,
    /// What is recorded.
    pub draft: NewDeploy,
    /// The app's guard that the decision was made on.
    pub guard: u64,
    /// Where given, the newest revision that the decision was made on (`Some(None)`: there was none).
    pub after: Option<Option<Revision>>,
    /// Whether every unfinished entry ends `superseded` by this one in the same write: a rollback does not wait.
    pub supersede: bool,
    /// What is held from now on; its `by` is set to the new revision. Counts the app's guard up.
    pub hold: Option<Hold>,
}

/// How an accept ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// It is recorded.
    New {
        /// The entry.
        deploy: Deploy,
        /// The revisions that it superseded, ascending.
        superseded: Vec<Revision>,
    },
    /// The same request was accepted before under this key; its entry as it is now.
    Replay(Deploy),
    /// The key was used for another request.
    KeyReused,
    /// Guard or newest revision are not what the decision was made on: read again and decide again.
    Stale,
    /// [`UNFINISHED_MAX`] entries are unfinished.
    Full,
}

/// Changes to an app's entries, written together or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The app.
    pub app: AppUid,
    /// The claim under which an engine writes; none for a person's cancel.
    pub claim: Option<u64>,
    /// The entries as they are to be, each with `step` one higher than stored. The store stamps `updated_at`.
    pub changes: Vec<Deploy>,
    /// The rollbacks whose holds are lifted. Counts the app's guard up where there are any.
    pub lift: Vec<Revision>,
    /// The engine sees nothing left to do for the app once this is written: until the next accept or cancel, `claim`
    /// need not name it. Ignored while entries are unfinished, and for an app that is polled.
    pub rest: bool,
}

/// An app as decisions need it, read at one point in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The store's clock.
    pub now: Timestamp,
    /// The registration.
    pub app: App,
    /// The newest revision.
    pub last: Option<Revision>,
    /// Everything that is not terminal, ascending.
    pub unfinished: Vec<Deploy>,
    /// The newest that succeeded.
    pub current: Option<Deploy>,
    /// The newest that touched the cluster.
    pub on_cluster: Option<Deploy>,
    /// The newest that the service itself made to put a failed rollout right.
    pub last_restore: Option<Revision>,
}

/// Which part of a history is asked for; newest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Only revisions below this one.
    pub before: Option<Revision>,
    /// Only those that succeeded.
    pub succeeded: bool,
    /// At most this many.
    pub limit: usize,
}

/// A process that drives deploys: a name that survives its restart, and a number that does not.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Replica {
    /// Two living processes must not share it; a restarted one must keep it.
    pub name: String,
    /// Random, this process's own.
    pub incarnation: u64,
}

/// A sign of life, and a wish for work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Who.
    pub replica: Replica,
    /// How long the claim lasts without another sign of life; zero gives everything up at once.
    pub ttl: Duration,
    /// At most this many apps are named.
    pub limit: usize,
}

/// The answer to a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// The store's clock.
    pub now: Timestamp,
    /// Apps with work that this incarnation owns, newly or still; longest waiting first.
    pub apps: Vec<AppUid>,
}

/// A hint that something changed; only a hint, polling is the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// This app.
    App(AppUid),
    /// Some app.
    Any,
}

/// Keeps the history, numbers it, and knows who drives what; the only truth between replicas.
///
/// - `admit_numbers_without_gaps`: revisions are 1, 2, 3, … per app, also for concurrent accepts.
/// - `admit_same_key_replays`: same key and request → `Replay` of the entry as it is now, also for concurrent accepts.
/// - `admit_same_key_other_request_is_reused`.
/// - `admit_keys_are_per_app_and_header`.
/// - `admit_key_expires`: after [`crate::request::KeyHeader::kept_for`] of store time the key is free.
/// - `admit_stale_guard`, `admit_stale_after`: `Stale`, and nothing is recorded (a known key replays first).
/// - `admit_full`: at [`UNFINISHED_MAX`] unfinished entries `Full`, nothing recorded; not for one that supersedes.
/// - `admit_supersedes`: unfinished entries end in the same write, and are listed.
/// - `admit_holds`: the hold is in the app with `by` = the new revision, the guard is one higher; at most
///   [`crate::app::HOLDS_MAX`] are kept.
/// - `admit_unknown_app_is_not_found`: `NotFound("app")`.
/// - `record_moves_forward_only`: an entry whose stored `step` is not one below, or that is terminal, is
///   `Conflict("deploy")` and nothing of the record is written.
/// - `record_needs_the_claim`: with `claim` of an incarnation that does not own the app: `Conflict("claim")`, nothing
///   written.
/// - `record_takes_a_touch_back`: where a change sets `touched` back (a refused order changed nothing),
///   [`View::on_cluster`] is the newest of those that are left.
/// - `record_lifts_holds`.
/// - `view_is_whole`: each field of [`View`] as its documentation says, also with superseded and restored entries.
/// - `page_is_newest_first`: `before`, `succeeded` and `limit` narrow it; an unknown app has no entries.
/// - `times_never_decrease`: `created_at` and `updated_at` of later writes to an app are not below earlier ones, though
///   the store's clock be set back.
/// - `claim_takes_free_work`: an app with work is named by one replica's claim, and by no other's while that one's
///   claims last; the owner's next claim names it again.
/// - `claim_expires`: `ttl` after its last sign of life a replica's apps are free.
/// - `claim_of_a_new_incarnation_frees_the_old`: at once, without waiting for its time.
/// - `claim_zero_gives_up`.
/// - `rest_ends_work`: after a record with `rest` and nothing unfinished the app is not named, until the next accept,
///   or a record without `rest`.
/// - `polled_app_has_work`: an app that is polled ([`App::is_polled`]) is named, from the [`super::Apps::create`] or
///   [`super::Apps::update`] on that has it polled, and whatever records say of rest; once an update ends the polling,
///   the next record with `rest` ends the work.
/// - `wakes_follow_writes`: a handle's stream has an item after an accept or record through that handle.
/// - `corrupt_entry_is_an_error`: what cannot be read is `Corrupt`, never left out.
#[async_trait]
pub trait History: Send + Sync {
    /// Accepts a deploy.
    async fn admit(&self, admission: Admission) -> Result<Admitted>;

    /// Changes entries.
    async fn record(&self, record: Record) -> Result<()>;

    /// The app as decisions need it; `NotFound("app")` where the uid is gone.
    async fn view(&self, app: AppUid) -> Result<View>;

    /// A part of the history.
    async fn page(&self, app: AppUid, page: Page) -> Result<Vec<Deploy>>;

    /// Gives a sign of life and asks for work.
    async fn claim(&self, claim: Claim) -> Result<Claimed>;

    /// Hints of changes, from this and, where the store can, from other processes.
    fn wakes(&self) -> BoxStream<'static, Wake>;
}

/// Comforts over [`History`].
#[async_trait]
pub trait HistoryExt: History {
    /// One entry.
    async fn entry(&self, app: AppUid, revision: Revision) -> Result<Option<Deploy>> {
        let page = Page { before: Some(revision.next()), succeeded: false, limit: 1 };
        Ok(self.page(app, page).await?.into_iter().find(|deploy| deploy.revision == revision))
    }

    /// The entry that an accept made, looked for among the newest: what a caller does whose answer was lost.
    async fn admitted(&self, app: AppUid, id: AdmissionId) -> Result<Option<Deploy>> {
        let page = Page { before: None, succeeded: false, limit: 4 * UNFINISHED_MAX };
        Ok(self.page(app, page).await?.into_iter().find(|deploy| deploy.id == id))
    }

    /// What an earlier accept under this key came to, where there was one: an accept that is stale whatever the app's
    /// guard, so that it can only replay.
    async fn replay(&self, app: AppUid, key: &IdempotencyKey) -> Result<Option<Admitted>> {
        let draft = NewDeploy {
            image: None,
            commit: None,
            trigger: Trigger::Manual,
            actor: Actor::auto(),
            from: None,
            effective: None,
            adopted: false,
        };
        let admission = Admission {
            app,
            id: AdmissionId(0),
            key: Some(key.clone()),
            draft,
            guard: NEVER,
            after: None,
            supersede: false,
            hold: None,
        };
        Ok(match self.admit(admission).await? {
            known @ (Admitted::Replay(_) | Admitted::KeyReused) => Some(known),
            Admitted::New { .. } | Admitted::Stale | Admitted::Full => None,
        })
    }
}

impl<T: History + ?Sized> HistoryExt for T {}
