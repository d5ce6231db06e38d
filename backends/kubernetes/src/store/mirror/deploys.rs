//! The `AppDeploy`s of one app, as far as they are known: by their metadata alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use kube::api::ObjectMeta;
use rollhook_core::{
    app::AppUid,
    deploy::{Revision, Status},
    ledger::KeyUse,
    ports::Version,
    time::Timestamp,
};

use crate::store::{
    app_record::{AppRecord, KeyHash, StoredKey, trimmed, version},
    crd::{APP_LABEL, KEY_ANNOTATION, STATUS_LABEL, UID_LABEL},
};

/// How long a key is remembered after it has expired: no clock is that far ahead.
const EXPIRED: Duration = Duration::from_secs(3600);

/// What is known of an `AppDeploy`.
#[derive(Clone, Debug)]
pub(crate) struct KnownDeploy {
    pub(crate) version: Version,
    pub(crate) status: Status,
    /// The list that has shown the object, or during which it was noted.
    pub(crate) listing: u32,
    key: Option<Box<(KeyHash, KeyUse)>>,
    /// Its metadata, as long as the deploy has not ended: the object will be replaced.
    pub(crate) metadata: Option<Box<ObjectMeta>>,
}

/// The known `AppDeploy`s of an app.
#[derive(Default)]
pub(crate) struct KnownDeploys {
    known: BTreeMap<Revision, KnownDeploy>,
    /// Each archived deploy up to this revision is known, or gone, except for those of `open`.
    complete: u64,
    /// The deploys up to `complete` that were not archived then.
    open: BTreeSet<Revision>,
    /// `complete` and `open` from the end of the list that is under way.
    expected: Option<(u64, BTreeSet<Revision>)>,
}

impl KnownDeploy {
    /// Reads an object's metadata. Returns `None` if it is no deploy of an app, or a copy under another name.
    pub(crate) fn read(metadata: ObjectMeta, now: Timestamp) -> Option<((String, AppUid), Revision, Self)> {
        let labels = metadata.labels.as_ref()?;
        let uid = labels.get(UID_LABEL)?.parse().ok()?;
        let revision = metadata.name.as_deref()?.strip_prefix(labels.get(APP_LABEL)?)?.strip_prefix('-')?.parse().ok()?;
        let status = serde_json::from_value(labels.get(STATUS_LABEL)?.as_str().into()).unwrap_or(Status::Queued);
        let stored = metadata.annotations.as_ref().and_then(|annotations| annotations.get(KEY_ANNOTATION));
        let stored = stored.and_then(|text| serde_json::from_str::<StoredKey>(text).ok());
        let stored = stored.filter(|stored| stored.expires_at.after(EXPIRED) > now);
        let key = stored.and_then(|stored| Some(Box::new((stored.hash(), stored.made(revision)?))));
        let of = (metadata.namespace.clone()?, uid);
        let at = version(&metadata).ok()?;
        let metadata = (!status.is_terminal()).then(|| Box::new(trimmed(metadata)));
        Some((of, revision, Self { version: at, status, listing: 0, key, metadata }))
    }
}

impl KnownDeploys {
    pub(crate) fn note(&mut self, revision: Revision, deploy: KnownDeploy, listed: bool) {
        if let Some(known) = self.known.get_mut(&revision) {
            // As for apps, a list is right about what was known when it began.
            let is_older = listed && deploy.version < known.version && known.listing != deploy.listing;
            known.listing = if listed { deploy.listing } else { known.listing };
            if deploy.version <= known.version && !is_older {
                return;
            }
        }
        self.known.insert(revision, deploy);
    }

    pub(crate) fn forget(&mut self, revision: Revision) {
        self.known.remove(&revision);
    }

    pub(crate) fn get(&self, revision: Revision) -> Option<&KnownDeploy> {
        self.known.get(&revision)
    }

    pub(crate) fn is_archived(&self, revision: Revision) -> bool {
        self.get(revision).is_some_and(|known| known.status.is_terminal())
    }

    /// A list begins, which will show each deploy that the app has archived by now.
    pub(crate) fn expect(&mut self, record: &AppRecord) {
        self.expected = Some(standing(record));
    }

    /// The list of this number is complete.
    pub(crate) fn listed(&mut self, listing: u32) {
        self.known.retain(|_, known| known.listing == listing);
        (self.complete, self.open) = self.expected.take().unwrap_or_default();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty() && self.complete == 0
    }

    pub(crate) fn archived(&self, record: &AppRecord) -> Vec<(Revision, Status)> {
        let is_of = |revision: Revision| Some(revision) <= record.state.latest && !record.is_open(revision);
        let ended = self.known.iter().rev().filter(|(_, known)| known.status.is_terminal());
        ended.filter(|(revision, _)| is_of(**revision)).map(|(revision, known)| (*revision, known.status)).collect()
    }

    pub(crate) fn missing(&self, record: &AppRecord) -> Vec<Revision> {
        let latest = record.state.latest.map_or(0, Revision::get);
        let since = (self.complete + 1..=latest).filter_map(Revision::new);
        let unseen = self.open.iter().copied().chain(since);
        unseen.filter(|revision| !record.is_open(*revision) && !self.is_archived(*revision)).collect()
    }

    pub(crate) fn complete(&mut self, record: &AppRecord) {
        (self.complete, self.open) = standing(record);
    }

    pub(crate) fn key_use(&self, record: &AppRecord, hash: KeyHash) -> Option<KeyUse> {
        let keys = self.known.values().rev().filter_map(|known| known.key.as_ref());
        keys.filter(|key| key.0 == hash && Some(key.1.revision) <= record.state.latest).map(|key| key.1).next()
    }
}

/// The newest revision of an app, and the revisions that are not archived yet.
fn standing(record: &AppRecord) -> (u64, BTreeSet<Revision>) {
    let open = record.deploys().map(|deploy| deploy.revision).collect();
    (record.state.latest.map_or(0, Revision::get), open)
}
