//! Removes directories of builds, in which a build may have made anything: directories in one another without end, and
//! links in the place of directories.
//!
//! A directory is moved to the trash at once, which the user of builds cannot enter, and is emptied there by a thread for
//! which nothing waits. The directories within it are moved out of it first, into one beside it: so neither stack, open files
//! nor paths grow with the depth, nor does memory with the width. All is named relative to opened directories, and no link
//! is followed.

use std::{
    ffi::CStr,
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
        mpsc::{self, Receiver, Sender},
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

/// The removals that one look at a directory has come to.
#[derive(Default)]
struct Look {
    removed: u64,
    failures: u64,
    /// The first failure.
    failure: Option<io::Error>,
}

impl Trash {
    /// Opens the trash at this path, and begins to remove what an earlier process has left in it. `prefix` is of this
    /// process alone.
    pub(crate) fn open(path: PathBuf, prefix: String) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(PRIVATE).create(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(PRIVATE))?;
        let names = Arc::new(Names { prefix, next: AtomicU64::new(0) });
        let remover = Remover { trash: open(rustix::fs::CWD, &path)?, names: names.clone() };
        let (removals, removed) = mpsc::channel();
        thread::Builder::new().name("trash".to_owned()).spawn(move || remover.run(removed))?;
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

    /// Returns whether this process has given the name.
    fn has_given(&self, name: &str) -> bool {
        name.strip_prefix(&self.prefix).is_some_and(|rest| rest.starts_with('-'))
    }
}

impl Remover {
    /// Removes what an earlier process has left, and then each directory that is named.
    fn run(&self, named: Receiver<String>) {
        if let Err(error) = self.remove_left() {
            tracing::warn!(%error, "reading the trash of builds failed; it is tried again at the next start");
        }
        named.into_iter().for_each(|name| self.remove(&name));
    }

    /// Removes what an earlier process has left. The names of this process come by themselves, or have failed.
    fn remove_left(&self) -> io::Result<()> {
        for entry in Dir::read_from(&self.trash)? {
            let entry = entry?;
            if let Ok(name) = entry.file_name().to_str()
                && !matches!(name, "." | "..")
                && !self.names.has_given(name)
            {
                self.remove(name);
            }
        }
        Ok(())
    }

    /// Removes a file or directory of the trash, with all that is in it.
    fn remove(&self, name: &str) {
        let Look { failures, failure, .. } = self.try_remove(name);
        if let Some(error) = failure {
            tracing::warn!(
                name,
                failures,
                %error,
                "removing a build's files from the trash failed; it is tried again at the next start"
            );
        }
    }

    /// Removes a file or directory of the trash. The directories in it are moved to a directory beside it, which is looked
    /// at until a look removes nothing.
    fn try_remove(&self, name: &str) -> Look {
        let mut look = Look::default();
        match rustix::fs::unlinkat(&self.trash, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return look,
            Err(Errno::NOTDIR) => {
                look.note(rustix::fs::unlinkat(&self.trash, name, AtFlags::empty()).map_err(Into::into));
                return look;
            }
            // It is not empty; any other failure comes again below.
            Err(_) => {}
        }
        let pile = self.names.next();
        let made = rustix::fs::mkdirat(&self.trash, &pile, Mode::RWXU).map_err(Into::into);
        let opened = match made.and_then(|()| open(&self.trash, &pile)) {
            Ok(opened) => opened,
            Err(error) => {
                look.fail(error);
                return look;
            }
        };
        look.note(self.remove_directory(&self.trash, name, &opened));
        look.failures += self.remove_pile(&opened, &mut look.failure);
        // One that is not empty has had failures.
        let _ = rustix::fs::unlinkat(&self.trash, &pile, AtFlags::REMOVEDIR);
        look
    }

    /// Empties a directory in which there is what this thread has moved there. Returns the number of failures, of which the
    /// first one is added unless there is one.
    fn remove_pile(&self, pile: &OwnedFd, failure: &mut Option<io::Error>) -> u64 {
        loop {
            let look = look(pile, |name| self.remove_directory(pile, name, pile));
            if look.removed == 0 {
                if failure.is_none() {
                    *failure = look.failure;
                }
                return look.failures;
            }
        }
    }

    /// Removes a directory. The directories in it are moved to the pile, all else is removed.
    fn remove_directory(&self, parent: &OwnedFd, name: impl Arg + Copy, pile: &OwnedFd) -> io::Result<()> {
        for _ in 0..ATTEMPTS {
            match rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => return Ok(()),
                Err(Errno::NOTEMPTY | Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            let directory = open(parent, name)?;
            if let Some(error) = look(&directory, |name| self.take_out(&directory, name, pile)).failure {
                return Err(error);
            }
        }
        Err(ErrorKind::DirectoryNotEmpty.into())
    }

    /// Moves a directory out of this one, to the pile.
    fn take_out(&self, parent: &OwnedFd, name: &CStr, pile: &OwnedFd) -> io::Result<()> {
        let moved = self.names.next();
        let rename = || rustix::fs::renameat(parent, name, pile, moved.as_str());
        match rename() {
            // Moving a directory changes the `..` in it.
            Err(Errno::ACCESS) => {
                make_writable(&open(parent, name)?);
                rename()?;
            }
            renamed => renamed?,
        }
        Ok(())
    }
}

impl Look {
    fn note(&mut self, removed: io::Result<()>) {
        match present(removed) {
            Ok(()) => self.removed += 1,
            Err(error) => self.fail(error),
        }
    }

    fn fail(&mut self, error: io::Error) {
        self.failures += 1;
        self.failure.get_or_insert(error);
    }
}

/// Removes the files of a directory, and its directories by a function. Goes on after a failure. No names are collected: what
/// the reading has passed over is for the next look.
fn look(directory: &OwnedFd, remove_directory: impl Fn(&CStr) -> io::Result<()>) -> Look {
    make_writable(directory);
    let mut look = Look::default();
    let entries = match Dir::read_from(directory) {
        Ok(entries) => entries,
        Err(error) => {
            look.fail(error.into());
            return look;
        }
    };
    for entry in entries {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                look.fail(error.into());
                break;
            }
        };
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        look.note(match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
            Ok(()) => Ok(()),
            // As systems say it of directories.
            Err(Errno::ISDIR | Errno::PERM) => remove_directory(name),
            Err(error) => Err(error.into()),
        });
    }
    look
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

    /// A directory in memory, where removing one takes no milliseconds.
    fn root() -> tempfile::TempDir {
        tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
    }

    impl Place {
        fn new() -> Self {
            let root = root();
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
    fn directories_beside_one_another_are_removed_at_any_width() {
        let place = Place::new();
        let work = place.path("work");
        for outer in 0..10 {
            for inner in 0..300 {
                fs::create_dir_all(work.join(format!("{outer}/{inner}/last"))).unwrap();
                fs::write(work.join(format!("{outer}/{inner}/file")), "").unwrap();
            }
        }
        place.trash.take(&work).unwrap();
        until("the trash is empty", || place.is_empty());
    }

    #[test]
    fn removal_that_fails_leaves_the_others_and_ends() {
        let root = tempfile::tempdir().unwrap();
        let names = Arc::new(Names { prefix: "1".to_owned(), next: AtomicU64::new(0) });
        let remover = Remover { trash: open(rustix::fs::CWD, root.path()).unwrap(), names };
        fs::create_dir_all(root.path().join("0-0/a/b")).unwrap();
        fs::create_dir_all(root.path().join("0-0/c/d")).unwrap();
        // Stands in for a directory that cannot be removed.
        let pile = open(rustix::fs::CWD, root.path().join("0-0")).unwrap();
        let look = look(&pile, |name| {
            if name.to_bytes() == b"a" {
                Err(ErrorKind::Other.into())
            } else {
                remover.remove_directory(&pile, name, &pile)
            }
        });
        assert_eq!((look.failures, look.failure.map(|error| error.kind())), (1, Some(ErrorKind::Other)));
        assert!(look.removed > 0 && !root.path().join("0-0/c").exists());
        assert!(remover.try_remove("0-0").failure.is_none());
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
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
    fn names_of_this_process_are_known() {
        let names = Names { prefix: "1".to_owned(), next: AtomicU64::new(0) };
        let given = names.next();
        assert!(names.has_given(&given));
        for other in ["12-0", "2-1", "1", "link"] {
            assert!(!names.has_given(other), "{other}");
        }
    }

    #[test]
    fn trash_is_private_and_emptied_by_the_next_process() {
        // Not in a place, whose own thread could still be at work.
        let root = root();
        let left = root.path().join("trash");
        fs::create_dir_all(left.join("1-0/a/b")).unwrap();
        fs::set_permissions(&left, fs::Permissions::from_mode(0o755)).unwrap();
        let trash = Trash::open(left.clone(), "2".to_owned()).unwrap();
        assert_eq!(fs::metadata(&left).unwrap().permissions().mode() & 0o777, 0o700);
        until("the trash is empty", || fs::read_dir(&left).unwrap().next().is_none());
        drop(trash);
    }
}
