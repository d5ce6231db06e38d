//! The space that a build's directory may take while git writes to it.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::{
    disk::disk_space,
    disk_limits::{Bytes, DiskLimits},
};

/// The pause between two looks at the disk.
const PAUSE: Duration = Duration::from_millis(250);
/// The number of files for which the sizes are read once less often: reading those of many takes a while.
const FILES_PER_PAUSE: usize = 50_000;

/// The space of a build's directory.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    pub(crate) directory: PathBuf,
    /// The most bytes that the directory may take.
    pub(crate) most: u64,
    pub(crate) disk: DiskLimits,
}

impl Space {
    /// Waits until the directory takes too much, or its disk is nearly full. Returns a sentence that says so.
    pub(crate) async fn exceeded(self) -> String {
        loop {
            let files = match self.check().await {
                Ok(files) => files,
                Err(message) => return message,
            };
            for _ in 0..=files / FILES_PER_PAUSE {
                tokio::time::sleep(PAUSE).await;
                if let Some(message) = refusal(&self.directory, self.disk).await {
                    return message;
                }
            }
        }
    }

    /// Returns the number of the directory's files.
    ///
    /// # Errors
    /// A sentence that says that the directory takes too much, or its disk is nearly full.
    pub(crate) async fn check(&self) -> Result<usize, String> {
        if let Some(message) = refusal(&self.directory, self.disk).await {
            return Err(message);
        }
        let stop = Stop::default();
        let (directory, most, stopped) = (self.directory.clone(), self.most, stop.0.clone());
        let used = tokio::task::spawn_blocking(move || Used::of(directory, most, &stopped)).await.unwrap_or_default();
        if used.bytes > self.most {
            let most = Bytes(self.most);
            return Err(format!(
                "The commit takes more than {most} of disk space while it is fetched and checked out."
            ));
        }
        Ok(used.files)
    }
}

/// Returns why nothing more is put on the disk of the builds' directory; `None` if it has room, or cannot be seen.
pub(crate) async fn refusal(directory: &Path, limits: DiskLimits) -> Option<String> {
    if limits.are_off() {
        return None;
    }
    let space = disk_space(directory).await.ok().filter(|space| limits.is_scarce(*space))?;
    let (free, size, least) = (Bytes(space.free), Bytes(space.size), Bytes(limits.least(space.size)));
    Some(format!(
        "The disk with the builds' directory is nearly full ({free} of {size} free), and the last {least} are left for what \
         runs: remove what is not needed, then build again."
    ))
}

/// Ends a walk once this is dropped.
#[derive(Default)]
struct Stop(Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The use of a directory.
#[derive(Default)]
struct Used {
    bytes: u64,
    files: usize,
}

impl Used {
    /// Adds up a directory's files, until they are more than `most` or the walk is ended. Files that disappear meanwhile
    /// take nothing.
    fn of(directory: PathBuf, most: u64, stop: &AtomicBool) -> Self {
        let mut used = Self::default();
        let mut directories = vec![directory];
        while let Some(directory) = directories.pop() {
            let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
            for entry in entries {
                if used.bytes > most || stop.load(Ordering::Relaxed) {
                    return used;
                }
                // Of a link itself, not of where it leads.
                let Ok(metadata) = entry.metadata() else { continue };
                used.files += 1;
                used.bytes = used.bytes.saturating_add(metadata.len().max(metadata.blocks() * 512));
                if metadata.is_dir() {
                    directories.push(entry.path());
                }
            }
        }
        used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn directory_that_takes_too_much_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b");
        fs::create_dir_all(&path).unwrap();
        std::os::unix::fs::symlink("/", path.join("link")).unwrap();
        let space = Space { directory: directory.path().to_owned(), most: 1 << 20, disk: DiskLimits::below(0) };
        assert_eq!(space.check().await, Ok(3));
        let exceeded = tokio::spawn(space.clone().exceeded());
        fs::write(path.join("file"), vec![0; 2 << 20]).unwrap();
        assert!(exceeded.await.unwrap().contains("more than 1 MiB"));
        assert!(space.check().await.is_err());
    }

    #[tokio::test]
    async fn full_disk_is_refused_in_numbers() {
        let directory = tempfile::tempdir().unwrap();
        let refused = refusal(directory.path(), DiskLimits::below(u64::MAX)).await.unwrap();
        assert!(refused.contains("nearly full"), "{refused}");
        assert_eq!(refusal(directory.path(), DiskLimits::below(0)).await, None);
        assert_eq!(refusal(&directory.path().join("missing"), DiskLimits::below(u64::MAX)).await, None);
    }
}
