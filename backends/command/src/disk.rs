//! The space of this machine's disks.

use std::{fs, io, os::unix::fs::MetadataExt, path::Path};

use rollhook_core::disk::DiskSpace;

/// Returns the space of the disk that a file or directory is on. The directories above it must let this process in; the
/// directory itself need not be readable.
///
/// # Errors
/// The operating system's error.
pub async fn disk_space(path: &Path) -> io::Result<DiskSpace> {
    let path = path.to_owned();
    // A file system of another machine may keep its callers waiting.
    let read = tokio::task::spawn_blocking(move || {
        let found = rustix::fs::statvfs(&path)?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        let device = fs::metadata(&path)?.dev();
        Ok(DiskSpace { free: bytes(found.f_bavail), size: bytes(found.f_blocks), device })
    });
    read.await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn space_is_that_of_the_disk_which_holds_the_directory() {
        let directory = tempfile::tempdir().unwrap();
        let inner = directory.path().join("inner");
        fs::create_dir(&inner).unwrap();
        let (outer, inner) = (disk_space(directory.path()).await.unwrap(), disk_space(&inner).await.unwrap());
        assert_eq!((outer.size, outer.device), (inner.size, inner.device));
        assert!(outer.size > 0 && outer.free <= outer.size, "{outer:?}");
        let missing = disk_space(&directory.path().join("missing")).await.unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
