//! Core dumps, which would hold what is secret in memory: none is written of this process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Keeps the kernel from writing the memory of this process to a file or to a program, whatever ends the process.
pub(crate) fn disable() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Core);
    let limited = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum });
    if let Err(error) = limited.and_then(|()| set_undumpable()) {
        tracing::warn!(%error, "disabling core dumps failed");
    }
}

/// A program that takes core dumps gets them whatever the limit says. Processes that this one starts are not affected.
#[cfg(target_os = "linux")]
fn set_undumpable() -> rustix::io::Result<()> {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};

    set_dumpable_behavior(DumpableBehavior::NotDumpable)
}

#[cfg(not(target_os = "linux"))]
fn set_undumpable() -> rustix::io::Result<()> {
    Ok(())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use rustix::process::{DumpableBehavior, dumpable_behavior};

    #[test]
    fn neither_files_nor_programs_get_a_core_dump() {
        super::disable();
        assert_eq!(super::getrlimit(super::Resource::Core).current, Some(0));
        assert_eq!(dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
    }
}
