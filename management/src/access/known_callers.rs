//! Recognises callers by the API tokens and sessions that this process last read, so that a host can tell a known caller
//! from strangers before it reads the store.
//!
//! Recognition lets nobody in: a recognised caller is authenticated by a read of the store like every other. Each read
//! corrects what is remembered.

use std::sync::{Mutex, PoisonError};

use crate::{
    access::{api_tokens::key_of, recent::Recent},
    ports::RecordKey,
};

/// The most API tokens and sessions: one more makes the one forgotten that was read least lately.
const SECRETS: usize = 10_000;

/// The keys of the records of API tokens and of sessions that were valid when they were last read.
pub(crate) struct KnownCallers(Mutex<Recent<RecordKey, ()>>);

impl Default for KnownCallers {
    fn default() -> Self {
        Self(Mutex::new(Recent::new(SECRETS)))
    }
}

impl KnownCallers {
    /// Remembers whether the API token or session of this record is valid, as it was just read.
    pub(crate) fn read(&self, key: &RecordKey, is_valid: bool) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if is_valid {
            known.used(key, || (), |()| ());
        } else {
            known.remove(key);
        }
    }

    /// Returns whether this is an API token or session that was valid when it was last read.
    pub(crate) fn contain(&self, presented: &[u8]) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(&key_of(presented))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_callers_make_only_the_one_unknown_that_was_read_least_lately() {
        let known = KnownCallers::default();
        for number in 0..=SECRETS {
            known.read(&key_of(number.to_string().as_bytes()), true);
        }
        assert!(!known.contain(b"0"));
        assert!((1..=SECRETS).all(|number| known.contain(number.to_string().as_bytes())));
    }
}
