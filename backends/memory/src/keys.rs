//! Idempotency keys, kept until they expire.

use std::collections::{BTreeMap, BTreeSet};

use rollhook_core::{
    deploy::Revision,
    request::{IdempotencyKey, KeyHeader},
    time::Timestamp,
};

type Name = (KeyHeader, String);

/// The keys of one app.
#[derive(Default)]
pub(crate) struct Keys {
    known: BTreeMap<Name, Known>,
    expiring: BTreeSet<(Timestamp, Name)>,
}

struct Known {
    request: [u8; 32],
    revision: Revision,
}

/// What a key was used for.
pub(crate) enum Used {
    /// The same request, which made this revision.
    Same(Revision),
    /// Another request.
    Other,
}

impl Keys {
    /// What the key was used for, if it has not expired; expired ones are forgotten on the way.
    pub(crate) fn used(&mut self, key: &IdempotencyKey, now: Timestamp) -> Option<Used> {
        while let Some((expiry, _)) = self.expiring.first()
            && *expiry <= now
            && let Some((_, name)) = self.expiring.pop_first()
        {
            self.known.remove(&name);
        }
        let known = self.known.get(&name(key))?;
        Some(if known.request == key.request { Used::Same(known.revision) } else { Used::Other })
    }

    /// Keeps a key that is free.
    pub(crate) fn keep(&mut self, key: &IdempotencyKey, revision: Revision, now: Timestamp) {
        self.known.insert(name(key), Known { request: key.request, revision });
        self.expiring.insert((now.after(key.header.kept_for()), name(key)));
    }
}

fn name(key: &IdempotencyKey) -> Name {
    (key.header, key.key.clone())
}
