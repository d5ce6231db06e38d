//! Reads of the versions of Secrets and ConfigMaps that workloads read without us: their metadata alone.

use std::time::Duration;

use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use rollhook_core::Error;

use crate::{
    client::Cluster,
    error::classify,
    object_version,
    rules::references::{REFERENCES_MAX, Reference, ReferenceKind, Version},
};

/// The most objects that are read at the same time for one workload.
const AT_ONCE: usize = 8;
/// The longest time for the reads of one workload: what is not read by then is not known, and no deploy waits for it.
const READS: Duration = Duration::from_secs(3);

/// Returns the versions of these objects as they are now, of the first [`REFERENCES_MAX`].
pub(crate) async fn versions(
    cluster: &Cluster,
    namespace: &str,
    references: impl IntoIterator<Item = Reference>,
) -> Vec<(Reference, Version)> {
    let mut found: Vec<(Reference, Version)> =
        references.into_iter().take(REFERENCES_MAX).map(|reference| (reference, Version::Unknown)).collect();
    let read = |index: usize, reference: Reference| {
        async move { (index, version(cluster, namespace, &reference).await) }.boxed()
    };
    let reads: Vec<BoxFuture<'_, (usize, Version)>> =
        found.iter().enumerate().map(|(index, (reference, _))| read(index, reference.clone())).collect();
    let mut reads = stream::iter(reads).buffer_unordered(AT_ONCE);
    let all = async {
        while let Some((index, version)) = reads.next().await {
            found[index].1 = version;
        }
    };
    if tokio::time::timeout(READS, all).await.is_err() {
        tracing::debug!(namespace, "reading the versions of Secrets and ConfigMaps took too long");
    }
    found
}

async fn version(cluster: &Cluster, namespace: &str, reference: &Reference) -> Version {
    let objects = match reference.kind {
        ReferenceKind::ConfigMap => object_version::of::<ConfigMap>(cluster, namespace),
        ReferenceKind::Secret => object_version::of::<Secret>(cluster, namespace),
    };
    match objects.get_opt(&reference.name).await.map_err(classify) {
        Ok(found) => Version::of(found.as_ref().map(|found| &found.metadata)),
        Err(Error::NotFound(_)) => Version::Missing,
        Err(error) => {
            tracing::debug!(namespace, name = reference.name, error = %error.chain(), "reading the version of an object failed");
            Version::Unknown
        }
    }
}
