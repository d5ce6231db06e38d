//! Removes directories of builds, in which a build may have made anything: directories in one another without end, and
//! links in the place of directories.
//!
//! A directory is moved to the trash at once, which the user of builds cannot enter, and is emptied there by a thread for
//! which nothing waits. A directory within it is first moved to the trash itself, so that neither stack, open files nor
//! paths grow with the depth. All is named relative to opened directories, and no link is followed.

use std::{
    fs,
    io::{self, ErrorKind},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::{DirBuilderExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Sender},
    },
    thread,
};

use rustix::{
    fs::{AtFlags, Dir, Mode, OFlags},
    io::Errno,
    path::Arg,
};

/// The mode of the trash.
const PRIVATE: u32 = 0o700;
/// The number of attempts to empty a directory, to which something may be added meanwhile.
const ATTEMPTS: u32 = 10;

/// The directories that are being removed.
#[derive(Clone, Debug)]
pub(crate) struct Trash {
    path: PathBuf,
    names: Arc<Names>,
    /// The names of directories in the trash that are to be removed.
    removals: Sender<String>,
}

/// Names that no directory in the trash has had before.
#[derive(Debug)]
struct Names {
    prefix: String,
    next: AtomicU64,
}

/// Removes what is in the trash.
struct Remover {
    trash: OwnedFd,
    names: Arc<Names>,
}

impl Trash {
    /// Opens the trash at this path, and begins to remove what an earlier process has left in it. `prefix` is of this
    /// process alone.
    pub(crate) fn open(path: PathBuf, prefix: String) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(PRIVATE).create(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(PRIVATE))?;
        let names = Arc::new(Names { prefix, next: AtomicU64::new(0) });
        let remover = Remover { trash: open(rustix::fs::CWD, &path)?, names: names.clone() };
        let left = fs::read_dir(&path)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let (removals, removed) = mpsc::channel();
        let left: Vec<String> = left.collect();
        thread::Builder::new()
            .name("trash".to_owned())
            .spawn(move || left.into_iter().chain(removed).for_each(|name| remover.remove(name)))?;
        Ok(Self { path, names, removals })
    }

    /// Moves a directory of the same disk to the trash, from which it is removed later. A directory that is missing needs
    /// no removal.
    pub(crate) fn take(&self, directory: &Path) -> io::Result<()> {
        let name = self.names.next();
        match fs::rename(directory, self.path.join(&name)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
            Ok(()) => {
                // Without the thread, the next process on the builds' directory removes it.
                let _ = self.removals.send(name);
                Ok(())
            }
        }
    }
}

impl Names {
    fn next(&self) -> String {
        format!("{}-{}", self.prefix, self.next.fetch_add(1, Ordering::Relaxed))
    }
}

impl Remover {
    /// Removes a file or directory of the trash, with all that is in it.
    fn remove(&self, name: String) {
        let mut left = vec![name];
        let mut failures = 0_u64;
        let mut failed = None;
        while let Some(name) = left.pop() {
            if let Err(error) = present(self.remove_one(&name, &mut left)) {
                failures += 1;
                failed.get_or_insert((name, error));
            }
        }
        if let Some((name, error)) = failed {
            tracing::warn!(
                name,
                failures,
                %error,
                "removing a build's files from the trash failed; it is tried again at the next start"
            );
        }
    }

    /// Removes a file or directory of the trash. The directories in it are moved to the trash, and added to `left`.
    fn remove_one(&self, name: &str, left: &mut Vec<String>) -> io::Result<()> {
        for _ in 0..ATTEMPTS {
            match rustix::fs::unlinkat(&self.trash, name, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => return Ok(()),
                Err(Errno::NOTDIR) => return Ok(rustix::fs::unlinkat(&self.trash, name, AtFlags::empty())?),
                Err(Errno::NOTEMPTY | Errno::EXIST) => self.empty(&open(&self.trash, name)?, left)?,
                Err(error) => return Err(error.into()),
            }
        }
        Err(ErrorKind::DirectoryNotEmpty.into())
    }

    /// Removes what is in a directory, except for directories, which are moved to the trash. Goes on after a failure, and
    /// returns the first one.
    fn empty(&self, directory: &OwnedFd, left: &mut Vec<String>) -> io::Result<()> {
        make_writable(directory);
        let mut first = Ok(());
        for entry in Dir::read_from(directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let removed = match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => Ok(()),
                // As systems say it of directories.
                Err(Errno::ISDIR | Errno::PERM) => self.take_out(directory, name).map(|moved| left.push(moved)),
                Err(error) => Err(error.into()),
            };
            first = first.and(present(removed));
        }
        first
    }

    /// Moves a directory out of this one, to the trash; returns its name there.
    fn take_out(&self, parent: &OwnedFd, name: &std::ffi::CStr) -> io::Result<String> {
        let moved = self.names.next();
        let rename = || rustix::fs::renameat(parent, name, &self.trash, moved.as_str());
        match rename() {
            // Moving a directory changes the `..` in it.
            Err(Errno::ACCESS) => {
                make_writable(&open(parent, name)?);
                rename()?;
            }
            renamed => renamed?,
        }
        Ok(moved)
    }
}

/// Returns the result of a removal, which another process on the builds' directory may have made already.
fn present(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Opens a directory; fails for a link.
fn open(parent: impl AsFd, name: impl Arg) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(parent, name, flags, Mode::empty())?)
}

fn make_writable(directory: &OwnedFd) {
    // If it fails, so does the removal, which says why.
    let _ = rustix::fs::fchmod(directory, Mode::RWXU);
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rollhook_testing::until;

    use super::*;

    struct Place {
        root: tempfile::TempDir,
        trash: Trash,
    }

    impl Place {
        fn new() -> Self {
            // In memory, where removing a directory takes no milliseconds.
            let root = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
            let trash = Trash::open(root.path().join("trash"), "1".to_owned()).unwrap();
            Self { root, trash }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.root.path().join(name)
        }

        fn is_empty(&self) -> bool {
            fs::read_dir(self.path("trash")).unwrap().next().is_none()
        }
    }

    #[test]
    fn directories_in_one_another_are_removed_at_any_depth() {
        let place = Place::new();
        let work = place.path("work");
        fs::create_dir(&work).unwrap();
        let mut deepest = open(rustix::fs::CWD, &work).unwrap();
        for _ in 0..20_000 {
            rustix::fs::mkdirat(&deepest, "a", Mode::RWXU).unwrap();
            deepest = open(&deepest, "a").unwrap();
        }
        place.trash.take(&work).unwrap();
        assert!(!work.exists(), "the directory is gone before it is empty");
        until("the trash is empty", || place.is_empty());
    }

    #[test]
    fn removal_follows_no_link_and_needs_no_permission_in_a_directory() {
        let place = Place::new();
        let work = place.path("work");
        let outside = place.path("outside");
        fs::create_dir_all(work.join("a/b")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("file"), "").unwrap();
        fs::write(work.join("a/b/file"), "").unwrap();
        symlink(&outside, work.join("a/link")).unwrap();
        // In the place of a directory that was there when its parent was read.
        symlink(&outside, place.path("trash/link")).unwrap();
        for directory in ["a/b", "a"] {
            fs::set_permissions(work.join(directory), fs::Permissions::from_mode(0o555)).unwrap();
        }
        place.trash.take(&work).unwrap();
        place.trash.removals.send("link".to_owned()).unwrap();
        until("the trash is empty", || place.is_empty());
        assert!(outside.join("file").exists());
        place.trash.take(&work).unwrap();
    }

    #[test]
    fn trash_is_private_and_emptied_by_the_next_process() {
        let place = Place::new();
        drop(place.trash);
        let left = place.root.path().join("trash");
        fs::create_dir_all(left.join("1-0/a/b")).unwrap();
        fs::set_permissions(&left, fs::Permissions::from_mode(0o755)).unwrap();
        let trash = Trash::open(left.clone(), "2".to_owned()).unwrap();
        assert_eq!(fs::metadata(&left).unwrap().permissions().mode() & 0o777, 0o700);
        until("the trash is empty", || fs::read_dir(&left).unwrap().next().is_none());
        drop(trash);
    }
}
