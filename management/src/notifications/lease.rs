//! The lease of the one replica that notifies receivers: a record that expires by the store's clock.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use rollhook_core::{
    error::{Error, Result},
    ports::{Clock, Version},
    replica::ReplicaId,
};

use crate::{
    documents,
    ports::{Record, RecordKey, RecordKind, RecordStore},
};

/// The time for which the lease is taken.
const TTL: Duration = Duration::from_secs(15);
/// The interval of renewals.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(5);
/// The time without a renewal after which the replica stops: well before another one may begin.
const GIVE_UP_AFTER: Duration = Duration::from_secs(10);
const KEY: &str = "lease";

/// The record's document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Holder {
    replica: ReplicaId,
}

/// A lease of this replica.
pub(super) struct Lease {
    version: Version,
}

impl Lease {
    /// Takes the lease. Returns `None` if another replica has it. A new boot of a replica takes over from the one
    /// before.
    pub(super) async fn take(records: &dyn RecordStore, replica: &ReplicaId) -> Result<Option<Self>> {
        let version = match read(records).await {
            Ok(Some((_, holder))) if holder.replica.name != replica.name => return Ok(None),
            Ok(Some((record, _))) => Some(record.version),
            Ok(None) => None,
            // A later version holds it, or it is damaged: it expires as every lease does.
            Err(error @ Error::Corrupt { .. }) => {
                tracing::debug!(error = %error.chain(), "reading the lease of notifying failed, waiting until it expires");
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        match write(records, replica, version).await {
            Ok(version) => Ok(Some(Self { version })),
            Err(Error::Conflict(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Renews the lease again and again, and returns once it is lost.
    pub(super) async fn renewals(&mut self, records: &dyn RecordStore, replica: &ReplicaId, clock: &Arc<dyn Clock>) {
        let mut renewed_at = clock.elapsed();
        loop {
            clock.sleep(RENEWAL_INTERVAL).await;
            let now = clock.elapsed();
            match write(records, replica, Some(self.version)).await {
                Ok(version) => (self.version, renewed_at) = (version, now),
                Err(Error::Conflict(_)) => return,
                Err(error) => tracing::debug!(error = %error.chain(), "renewing the lease of notifying failed"),
            }
            if clock.elapsed().saturating_sub(renewed_at) > GIVE_UP_AFTER {
                return;
            }
        }
    }

    /// Releases the lease if it is this replica's.
    pub(super) async fn release(records: &dyn RecordStore, replica: &ReplicaId) -> Result<()> {
        match read(records).await? {
            Some((_, holder)) if holder.replica == *replica => records.remove(RecordKind::NotifierLease, &key()?).await,
            _ => Ok(()),
        }
    }
}

fn key() -> Result<RecordKey> {
    KEY.parse().map_err(|error| Error::corrupt("the key of the lease of notifying", error))
}

async fn read(records: &dyn RecordStore) -> Result<Option<(Record, Holder)>> {
    documents::read(records, RecordKind::NotifierLease, &key()?).await
}

async fn write(records: &dyn RecordStore, replica: &ReplicaId, version: Option<Version>) -> Result<Version> {
    let holder = Holder { replica: replica.clone() };
    records.write(RecordKind::NotifierLease, documents::encode(key()?, &holder, Some(TTL))?, version).await
}
