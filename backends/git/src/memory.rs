//! Limits the memory of git: a server chooses how much it answers, and git keeps it in memory.

use std::sync::Once;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

/// Limits the memory of a process that has just begun, and of each process that it starts, in bytes.
pub fn limit_memory(process: Option<u32>, most: u64) {
    let Some(pid) = process.and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw) else { return };
    let most = getrlimit(Resource::Data).maximum.map_or(most, |own| own.min(most));
    // A process that has ended already needs no limit.
    if let Err(error) = prlimit(Some(pid), Resource::Data, Rlimit { current: Some(most), maximum: Some(most) }) {
        static WARNED: Once = Once::new();
        tracing::debug!(%error, "limiting the memory of git failed");
        WARNED.call_once(|| {
            tracing::warn!(%error, "the memory of git cannot be limited: allow the system call prlimit64 to this service");
        });
    }
}
