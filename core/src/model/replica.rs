//! The processes that share a store.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One process that drives deploys: its name, and which start of that name it is.
///
/// The name survives a restart, the boot id does not: the next process of the name replaces this one at once, without
/// waiting for its leases to expire.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReplicaId {
    /// A name that no other living process on the same store has.
    pub name: String,
    /// A random number of this start; it fits into a signed 64-bit column.
    pub boot: u64,
}

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{:x}", self.name, self.boot)
    }
}
