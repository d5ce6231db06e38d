//! The number of files that this process may have open: each connection is one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit as far as the process may; many systems start it far below.
pub(crate) fn raise_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::warn!(%error, "raising the limit of open files failed");
    }
}

/// Returns the limit.
pub(crate) fn limit() -> usize {
    let current = getrlimit(Resource::Nofile).current;
    current.and_then(|files| usize::try_from(files).ok()).unwrap_or(usize::MAX)
}
