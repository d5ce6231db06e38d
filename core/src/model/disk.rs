//! The space of disks.

/// The space of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpace {
    /// The bytes that ordinary users may still take.
    pub free: u64,
    /// All bytes of the file system.
    pub size: u64,
    /// The operating system's number of the file system, which all of its directories have in common.
    pub device: u64,
}
