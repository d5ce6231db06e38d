//! The `AppDeploy`s of an app, as far as they are known: by their metadata alone.

use std::{collections::BTreeSet, time::Duration};

use kube::api::ObjectMeta;
use rollhook_core::{
    app::AppUid,
    deploy::{Deploy, Revision, Status},
    ledger::KeyUse,
    time::Timestamp,
};

use crate::store::{
    app_record::{AppRecord, KeyHash, StoredKey, trimmed},
    crd::{APP_LABEL, KEY_ANNOTATION, STATUS_LABEL, UID_LABEL},
};

/// How long a key is remembered after it has expired: no clock is that far ahead.
const EXPIRED: Duration = Duration::from_secs(3600);

/// The known part of an `AppDeploy`.
#[derive(Clone, Debug)]
pub(crate) struct KnownDeploy {
    pub(crate) status: Status,
    pub(crate) key: Option<Box<(KeyHash, KeyUse)>>,
    /// Its metadata, as long as the deploy has not ended: the object will be replaced.
    pub(crate) metadata: Option<Box<ObjectMeta>>,
}

/// How much of an app's archive was seen: each archived deploy up to `latest` is known, or gone, except for those of
/// `open`.
#[derive(Default)]
pub(crate) struct ArchiveCoverage {
    latest: u64,
    /// The deploys up to `latest` that were not archived then.
    open: BTreeSet<Revision>,
}

impl KnownDeploy {
    /// Whether this tells the deploy's status. An end that an app holds is final, while a status on the way to it may
    /// be older than what is known.
    pub(crate) fn shows(&self, deploy: &Deploy) -> bool {
        let status = deploy.status();
        self.status == status || !status.is_terminal() && (self.status.is_terminal() || self.status > status)
    }

    /// The deploy that an object is of. Returns `None` if it is none, or a copy under another name.
    pub(crate) fn named(metadata: &ObjectMeta) -> Option<(AppUid, Revision)> {
        let labels = metadata.labels.as_ref()?;
        let revision = metadata.name.as_deref()?.strip_prefix(labels.get(APP_LABEL)?)?.strip_prefix('-')?;
        Some((labels.get(UID_LABEL)?.parse().ok()?, revision.parse().ok()?))
    }

    pub(crate) fn read(metadata: ObjectMeta, revision: Revision, now: Timestamp) -> Self {
        let status = metadata.labels.as_ref().and_then(|labels| labels.get(STATUS_LABEL)).cloned().unwrap_or_default();
        let status = serde_json::from_value(status.into()).unwrap_or(Status::Queued);
        let stored = metadata.annotations.as_ref().and_then(|annotations| annotations.get(KEY_ANNOTATION));
        let stored = stored.and_then(|text| serde_json::from_str::<StoredKey>(text).ok());
        let stored = stored.filter(|stored| stored.expires_at.after(EXPIRED) > now);
        let key = stored.and_then(|stored| Some(Box::new((stored.hash(), stored.made(revision)?))));
        Self { status, key, metadata: (!status.is_terminal()).then(|| Box::new(trimmed(metadata))) }
    }
}

impl ArchiveCoverage {
    /// All that an app has archived, as it was read.
    pub(crate) fn of(record: &AppRecord) -> Self {
        let open = record.deploys().map(|deploy| deploy.revision).collect();
        Self { latest: record.state.latest.map_or(0, Revision::get), open }
    }

    /// The revisions that an app has archived since, as it was read.
    pub(crate) fn since(&self, record: &AppRecord) -> impl Iterator<Item = Revision> {
        let latest = record.state.latest.map_or(0, Revision::get);
        let newer = (self.latest + 1..=latest).filter_map(Revision::new);
        self.open.iter().copied().chain(newer).filter(|revision| !record.is_open(*revision))
    }
}
