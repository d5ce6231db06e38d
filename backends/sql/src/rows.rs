//! Commits as rows, and rows as the core's types.

use rollhook_core::{
    Error, Result,
    app::{AppId, AppUid},
    deploy::{Deploy, Evidence, Revision, State, Status, Verification},
    ledger::{AppState, Change, KeyUse, KeyWrite},
    ports::{AppCommit, ListedApp, UnreadableApp},
    request::KeyHeader,
    time::Timestamp,
};
use serde::{Deserialize, Serialize, Serializer, de::IgnoredAny};

use crate::located;

/// A commit of one app, as rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CommitRows {
    /// The app.
    pub app: AppUid,
    /// The version that the commit was made on; `None` for a registration.
    pub version: Option<i64>,
    /// The rows to write; `None` for a removal.
    #[serde(flatten)]
    pub put: Option<Box<PutRows>>,
}

/// The rows of one change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PutRows {
    /// The state.
    #[serde(flatten)]
    pub state: StateRow,
    /// The deploys to be archived.
    pub ended: Vec<DeployRow>,
    /// The idempotency keys to be stored.
    pub keys: Vec<KeyRow>,
    /// The revisions that leave the archive.
    pub forgotten: Vec<i64>,
}

/// A state, and the columns that queries need of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StateRow {
    /// The app's namespace.
    pub namespace: String,
    /// The app's name.
    pub name: String,
    /// The app's project.
    pub project: String,
    /// The app's environment.
    pub environment: String,
    /// The time since which the app has had work, in milliseconds since the epoch; `None`: it is idle.
    pub queued_at: Option<i64>,
    /// The replica that drives the app, in its text form.
    pub lease: Option<String>,
    /// The JSON document.
    pub document: String,
}

/// An archived deploy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeployRow {
    /// The deploy's revision.
    pub revision: i64,
    /// Whether the deploy succeeded.
    pub succeeded: bool,
    /// The JSON document, without the evidence.
    pub document: String,
    /// The evidence as JSON, apart from the document, so that pages do not read it.
    pub evidence: Option<String>,
}

/// An idempotency key and its use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeyRow {
    /// The number of the key's header, see [`header_number`].
    pub header: i16,
    /// The key's text.
    pub key: String,
    /// The SHA-256 of the request; hexadecimal digits where rows are JSON.
    #[serde(serialize_with = "hexadecimal")]
    pub request: [u8; 32],
    /// The revision that the key made.
    pub revision: i64,
    /// The time at which the use expires, in milliseconds since the epoch.
    pub expires_at: i64,
    /// Whether a stored use is replaced; otherwise the key must be free.
    pub replaces: bool,
}

impl CommitRows {
    /// Encodes a commit.
    ///
    /// # Errors
    /// `Invalid` if a number or document has no form in a database.
    pub fn encode(commit: AppCommit) -> Result<Self> {
        let (app, version) = (commit.app(), commit.version());
        let put = match commit {
            AppCommit::Register(change) | AppCommit::Update(_, change) => Some(PutRows::encode(*change)?),
            AppCommit::Remove(..) => None,
        };
        Ok(Self { app, version: version.map(|version| number(version.0)).transpose()?, put: put.map(Box::new) })
    }
}

impl PutRows {
    fn encode(change: Change) -> Result<Self> {
        let Change { state, ended, keys, forgotten, .. } = change;
        Ok(Self {
            state: StateRow::encode(&state)?,
            ended: ended.iter().map(|deploy| DeployRow::encode(deploy)).collect::<Result<_>>()?,
            keys: keys.into_iter().map(KeyRow::encode).collect::<Result<_>>()?,
            forgotten: forgotten.into_iter().map(|revision| number(revision.get())).collect::<Result<_>>()?,
        })
    }
}

impl StateRow {
    fn encode(state: &AppState) -> Result<Self> {
        let app = &state.app;
        Ok(Self {
            namespace: app.id.namespace.to_string(),
            name: app.id.name.to_string(),
            project: app.project.to_string(),
            environment: app.environment.to_string(),
            queued_at: state.queued_at.map(Timestamp::as_millis),
            lease: state.lease.as_ref().map(ToString::to_string),
            document: document(state)?,
        })
    }
}

impl DeployRow {
    fn encode(deploy: &Deploy) -> Result<Self> {
        let evidence = if let State::Failed { evidence, .. } = &deploy.state { evidence.as_ref() } else { None };
        // Only a deploy with more measurements than pages have keeps them apart.
        let verification = deploy.verification.as_deref().filter(|verification| verification.short() != **verification);
        let apart = match (verification, evidence) {
            (Some(verification), evidence) => Some(document(&Apart { verification, evidence })?),
            (None, Some(evidence)) => Some(document(evidence)?),
            (None, None) => None,
        };
        Self::bare(deploy, apart)
    }

    fn bare(deploy: &Deploy, evidence: Option<String>) -> Result<Self> {
        Ok(Self {
            revision: number(deploy.revision.get())?,
            succeeded: deploy.status() == Status::Succeeded,
            document: document(&deploy.without_logs())?,
            evidence,
        })
    }
}

impl KeyRow {
    fn encode(write: KeyWrite) -> Result<Self> {
        let KeyWrite { key, made, replaces } = write;
        Ok(Self {
            header: header_number(key.header),
            key: key.key,
            request: made.request,
            revision: number(made.revision.get())?,
            expires_at: made.expires_at.as_millis(),
            replaces,
        })
    }
}

/// What only a read of one deploy needs, where that is more than evidence.
#[derive(Serialize, Deserialize)]
struct Apart<V, E> {
    verification: V,
    evidence: Option<E>,
}

/// Tells both forms apart of what is stored apart from a deploy's document: evidence alone has no such member.
#[derive(Deserialize)]
struct HasVerification {
    verification: Option<IgnoredAny>,
}

/// Returns the number that stands for a header in a key's row.
pub const fn header_number(header: KeyHeader) -> i16 {
    match header {
        KeyHeader::IdempotencyKey => 0,
        KeyHeader::WebhookId => 1,
        KeyHeader::Delivery => 2,
    }
}

/// Decodes a stored state.
///
/// # Errors
/// `Corrupt` if the document is no state.
pub fn state(document: &[u8]) -> Result<AppState> {
    decode(document, "an app's stored state cannot be read")
}

/// Decodes an app of the list.
///
/// # Errors
/// `Corrupt` if the columns hold no app's name.
pub fn listed(namespace: &str, name: &str, document: &[u8]) -> Result<ListedApp> {
    let unnamed = |error| Error::corrupt("the name of a stored app cannot be read", error);
    let id = AppId { namespace: namespace.parse().map_err(unnamed)?, name: name.parse().map_err(unnamed)? };
    Ok(state(document).map_err(|error| UnreadableApp { error: located(&id.to_string(), error), id }))
}

/// Decodes an archived deploy of a page, without its logs.
///
/// # Errors
/// `Corrupt` if the document is no deploy.
pub fn deploy(document: &[u8]) -> Result<Deploy> {
    let deploy: Deploy = decode(document, "an archived deploy cannot be read")?;
    // Earlier versions kept the evidence in the document.
    Ok(deploy.without_logs())
}

/// Decodes an archived deploy with its evidence.
///
/// # Errors
/// `Corrupt` if the document is no deploy, or the evidence is none.
pub fn deploy_with_evidence(document: &[u8], stored: Option<&[u8]>) -> Result<Deploy> {
    let mut deploy: Deploy = decode(document, "an archived deploy cannot be read")?;
    let Some(stored) = stored else { return Ok(deploy) };
    let unreadable = "the evidence of an archived deploy cannot be read";
    let (stored_verification, stored_evidence) = match decode::<HasVerification>(stored, unreadable)?.verification {
        Some(_) => {
            let Apart { verification, evidence }: Apart<Verification, Evidence> = decode(stored, unreadable)?;
            (Some(verification), evidence)
        }
        None => (None, Some(decode::<Evidence>(stored, unreadable)?)),
    };
    if let (State::Failed { evidence, .. }, Some(stored)) = (&mut deploy.state, stored_evidence) {
        *evidence = Some(stored);
    }
    deploy.verification = stored_verification.map(Box::new).or(deploy.verification);
    Ok(deploy)
}

/// Decodes the use of an idempotency key from its columns.
///
/// # Errors
/// `Corrupt` if the columns hold something else.
pub fn key_use(request: &[u8], revision: i64, expires_at: i64) -> Result<KeyUse> {
    let request = request.try_into().ok();
    let revision = u64::try_from(revision).ok().and_then(Revision::new);
    let corrupt = || Error::Corrupt { what: "a stored idempotency key cannot be read".to_owned(), cause: None };
    let (request, revision) = request.zip(revision).ok_or_else(corrupt)?;
    Ok(KeyUse { request, revision, expires_at: Timestamp::from_millis(expires_at) })
}

fn document<T: Serialize>(value: &T) -> Result<String> {
    serde_json::to_string(value)
        .map_err(|error| Error::Invalid { what: "this has no form in JSON".to_owned(), cause: Some(error.into()) })
}

fn decode<'a, T: Deserialize<'a>>(document: &'a [u8], what: &str) -> Result<T> {
    serde_json::from_slice(document).map_err(|error| Error::corrupt(what, error))
}

fn hexadecimal<S: Serializer>(bytes: &[u8; 32], serializer: S) -> Result<S::Ok, S::Error> {
    let digits = rollhook_core::text::hex(bytes);
    serializer.serialize_str(&digits)
}

fn number(unsigned: u64) -> Result<i64> {
    i64::try_from(unsigned).map_err(|_| Error::invalid(format!("{unsigned} is too large for the database")))
}
