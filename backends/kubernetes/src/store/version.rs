//! Which of two copies of an object is the newer one.

use kube::api::ObjectMeta;

/// An object's `resourceVersion` as the number that it is. One that is none counts as the newest: then what was read
/// last replaces what was read before, which is right but for reorderings.
pub(crate) fn version(metadata: &ObjectMeta) -> u64 {
    metadata.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or(u64::MAX)
}
