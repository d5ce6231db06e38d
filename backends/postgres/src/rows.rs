//! How values lie in columns and in JSON.

use rollhook_core::{
    Error, Result,
    app::{App, AppUid},
    deploy::{Actor, AdmissionId, Commit, Deploy, Origin, Revision, State, Trigger},
    image::{Digest, ImageRef},
    ports::NewDeploy,
    request::KeyHeader,
    time::Timestamp,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sqlx::{Row, postgres::PgRow};

/// What an entry's `body` holds: all that the database has no column for.
#[derive(Serialize, Deserialize)]
pub(crate) struct Body {
    id: AdmissionId,
    image: Option<ImageRef>,
    commit: Option<Commit>,
    trigger: Trigger,
    actor: Actor,
    from: Option<Origin>,
    /// None: its own revision, which is given after the body is made.
    effective: Option<Revision>,
    adopted: bool,
    state: State,
    touched: bool,
    digest: Option<Digest>,
}

impl Body {
    /// Of an entry that is to be accepted.
    pub(crate) fn of_draft(id: AdmissionId, draft: &NewDeploy) -> Self {
        let effective = draft.effective;
        Self { effective, ..Self::of(&draft.clone().entry(id, Revision::FIRST, Timestamp::default())) }
    }

    /// Of an entry that there is.
    pub(crate) fn of(deploy: &Deploy) -> Self {
        let Deploy { id, image, commit, trigger, actor, from, effective, adopted, state, touched, digest, .. } =
            deploy.clone();
        Self { id, image, commit, trigger, actor, from, effective: Some(effective), adopted, state, touched, digest }
    }
}

/// An entry's columns, `rollhook.entry`, without its body.
pub(crate) struct Entry {
    pub(crate) revision: Revision,
    step: i32,
    superseded: Option<(Revision, bool)>,
    pub(crate) created_at: Timestamp,
    updated_at: Timestamp,
}

/// The columns of [`Entry`] and the body behind them, of a value of type `rollhook.entry`.
pub(crate) fn entry_columns(of: &str) -> String {
    ["revision", "step", "superseded_by", "by_rollback", "created_at", "updated_at", "body"]
        .map(|column| format!("({of}).{column}"))
        .join(", ")
}

impl Entry {
    /// From the columns that begin here; none where there is no entry.
    pub(crate) fn of(row: &PgRow, from: usize) -> sqlx::Result<Option<Self>> {
        let Some(revision) = row.try_get::<Option<i64>, _>(from)?.and_then(revision) else { return Ok(None) };
        let by = row.try_get::<Option<i64>, _>(from + 2)?.and_then(self::revision);
        let by_rollback: Option<bool> = row.try_get(from + 3)?;
        Ok(Some(Self {
            revision,
            step: row.try_get(from + 1)?,
            superseded: by.zip(Some(by_rollback.unwrap_or_default())),
            created_at: Timestamp::from_millis(row.try_get(from + 4)?),
            updated_at: Timestamp::from_millis(row.try_get(from + 5)?),
        }))
    }

    /// The body in the columns that begin here.
    pub(crate) fn body(row: &PgRow, from: usize) -> sqlx::Result<Option<&str>> {
        row.try_get(from + 6)
    }

    /// The whole entry.
    pub(crate) fn deploy(self, body: &str) -> Result<Deploy> {
        let what = || format!("entry {} of an app's history cannot be read", self.revision);
        let body: Body = from_json(body, what)?;
        let step = u32::try_from(self.step).map_err(|error| Error::corrupt(what(), error))?;
        Ok(Deploy {
            id: body.id,
            revision: self.revision,
            image: body.image,
            commit: body.commit,
            trigger: body.trigger,
            actor: body.actor,
            from: body.from,
            effective: body.effective.unwrap_or(self.revision),
            adopted: body.adopted,
            state: self.superseded.map_or(body.state, |(by, rollback)| State::Superseded { by, rollback }),
            touched: body.touched,
            digest: body.digest,
            step,
            created_at: self.created_at,
            updated_at: self.updated_at,
        })
    }
}

/// An entry in the columns that begin here, which must be there.
pub(crate) fn deploy(row: &PgRow, from: usize) -> sqlx::Result<Result<Deploy>> {
    let entry = Entry::of(row, from)?;
    let missing = || Error::Corrupt { what: "an entry of an app's history is missing".to_owned(), cause: None };
    Ok(match entry.zip(Entry::body(row, from)?) {
        Some((entry, body)) => entry.deploy(body),
        None => Err(missing()),
    })
}

/// A registration from the columns `created_at, body, policy, holds, guard` that begin here.
pub(crate) fn app(row: &PgRow, from: usize) -> sqlx::Result<Result<App>> {
    let created_at = Timestamp::from_millis(row.try_get(from)?);
    let (body, policy, holds) = (row.try_get(from + 1)?, row.try_get(from + 2)?, row.try_get(from + 3)?);
    let guard = unsigned(row.try_get(from + 4)?);
    Ok(parse_app(body, policy, holds).map(|app| App { created_at, guard, ..app }))
}

/// The columns of [`app`], of tables called `a` and `h`.
pub(crate) const APP_COLUMNS: &str = "a.created_at, a.body, a.policy, a.holds::text, h.guard";

fn parse_app(body: &str, policy: &str, holds: &str) -> Result<App> {
    let what = || "an app's registration cannot be read".to_owned();
    let app: App = from_json(body, what)?;
    Ok(App { policy: from_json(policy, what)?, holds: from_json(holds, what)?, ..app })
}

/// A stored revision, of which 0 means none.
pub(crate) fn revision(number: i64) -> Option<Revision> {
    u64::try_from(number).ok().and_then(Revision::new)
}

/// The number to store for a revision.
pub(crate) fn number(revision: Option<Revision>) -> i64 {
    revision.map_or(0, |revision| i64::try_from(revision.get()).unwrap_or(i64::MAX))
}

/// Numbers of 64 bits without a sign are stored by their bits.
pub(crate) const fn signed(number: u64) -> i64 {
    number.cast_signed()
}

/// What [`signed`] stored.
pub(crate) const fn unsigned(number: i64) -> u64 {
    number.cast_unsigned()
}

/// A stored uid.
pub(crate) fn uid(text: &str) -> sqlx::Result<AppUid> {
    text.parse().map_err(|error| sqlx::Error::Decode(Box::new(error)))
}

/// The number that stands for a header.
pub(crate) const fn header_number(header: KeyHeader) -> i64 {
    match header {
        KeyHeader::IdempotencyKey => 0,
        KeyHeader::WebhookId => 1,
        KeyHeader::GithubDelivery => 2,
    }
}

/// JSON to store.
pub(crate) fn to_json<T: Serialize + ?Sized>(value: &T) -> sqlx::Result<String> {
    serde_json::to_string(value).map_err(|error| sqlx::Error::Encode(Box::new(error)))
}

/// Stored JSON; what it is is told by `what` if it cannot be read.
fn from_json<T: DeserializeOwned>(text: &str, what: impl FnOnce() -> String) -> Result<T> {
    serde_json::from_str(text).map_err(|error| Error::corrupt(what(), error))
}
