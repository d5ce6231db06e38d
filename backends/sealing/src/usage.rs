//! The use of keys: how many secrets are sealed with each.

use std::collections::BTreeMap;

use rollhook_core::Result;

use crate::{KeyId, KeyRing};

/// Adds up sealed values by their keys. Each stands for a number of values; its beginning, up to the nonce, is enough.
///
/// # Errors
/// `Corrupt` if a value names no key.
pub fn of_sealed(sealed: impl IntoIterator<Item = (impl AsRef<[u8]>, u64)>) -> Result<Vec<(KeyId, u64)>> {
    let keys = sealed.into_iter().map(|(sealed, count)| Ok((KeyRing::key_of(sealed.as_ref())?, count)));
    Ok(sum(keys.collect::<Result<Vec<_>>>()?))
}

/// Adds up the numbers of each key.
pub fn sum(uses: impl IntoIterator<Item = (KeyId, u64)>) -> Vec<(KeyId, u64)> {
    let mut counts = BTreeMap::new();
    for (key, count) in uses {
        *counts.entry(key).or_default() += count;
    }
    counts.into_iter().collect()
}
