//! The key directory: one file per key, which only the service can read.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, ErrorKind, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::SystemTime,
};

use zeroize::Zeroizing;

use crate::{
    error::Error,
    key::{Key, KeyId},
};

const SUFFIX: &str = ".key";
/// The most bytes that are read of a key file, which are more than one has.
const FILE_MAX: usize = 256;

/// Returns every key of the directory; none if the directory is missing.
pub(crate) fn read(directory: &Path) -> Result<BTreeMap<KeyId, Key>, Error> {
    let fail = |source| Error::Io { what: "cannot read the key directory", path: directory.to_owned(), source };
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(fail(error)),
    };
    let mut keys = BTreeMap::new();
    for entry in entries {
        let path = entry.map_err(fail)?.path();
        let Some(stem) = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(SUFFIX))
        else {
            continue;
        };
        let why = "its name must be 1 to 32 lower-case letters, digits and hyphens, then .key";
        let id = stem.parse().map_err(|_| Error::NotAKey { path: path.clone(), why })?;
        keys.insert(id, read_key(&path)?);
    }
    Ok(keys)
}

fn read_key(path: &Path) -> Result<Key, Error> {
    let fail = |source| Error::Io { what: "cannot read the key file", path: path.to_owned(), source };
    let mut file = File::open(path).map_err(fail)?;
    let metadata = file.metadata().map_err(fail)?;
    if !is_private(metadata.mode(), metadata.uid(), own_uid()) {
        return Err(Error::Exposed { path: path.to_owned(), mode: metadata.mode() & 0o7777 });
    }
    let mut buffer = Zeroizing::new([0; FILE_MAX]);
    let mut length = 0;
    while length < FILE_MAX {
        match file.read(&mut buffer[length..]).map_err(fail)? {
            0 => break,
            read => length += read,
        }
    }
    Key::from_text(&buffer[..length]).map_err(|why| Error::NotAKey { path: path.to_owned(), why })
}

/// Returns whether only the owner can read a file of this mode, with PostgreSQL's exception: a file that root owns may
/// be read by a group, because that is how a service that is not root is given one (a Kubernetes Secret's `fsGroup`).
fn is_private(mode: u32, owner: u32, us: Option<u32>) -> bool {
    let given_by_root = owner == 0 && us.is_some_and(|us| us != 0);
    let forbidden = if given_by_root { 0o037 } else { 0o077 };
    mode & forbidden == 0
}

/// Returns the user that this process runs as, if the system says so.
fn own_uid() -> Option<u32> {
    fs::metadata("/proc/self").ok().map(|metadata| metadata.uid())
}

/// Makes the directory, and those above it, if it is missing.
pub(crate) fn make(directory: &Path) -> Result<(), Error> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(|source| Error::Io {
        what: "cannot make the key directory",
        path: directory.to_owned(),
        source,
    })
}

/// Writes a key file that appears whole or not at all, and durably; returns `false` if the name is taken.
pub(crate) fn add(directory: &Path, id: &KeyId, key: &Key) -> Result<bool, Error> {
    let mut unique = [0; 8];
    getrandom::fill(&mut unique).map_err(|_| Error::NoRandomness)?;
    let draft = directory.join(format!(".{id}-{:016x}.new", u64::from_le_bytes(unique)));
    let written = write_private(&draft, key.to_text().as_bytes());
    // A link, unlike a rename, never replaces what another process put there.
    let linked = written.and_then(|()| fs::hard_link(&draft, file(directory, id)));
    // What is left of a failure is a file that no reader takes for a key.
    let _ = fs::remove_file(&draft);
    let fail = |source| Error::Io { what: "cannot write the key file", path: file(directory, id), source };
    match linked {
        Ok(()) => File::open(directory).and_then(|handle| handle.sync_all()).map(|()| true).map_err(fail),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(fail(error)),
    }
}

/// Returns the time at which a key's file was written, if the system tells it.
pub(crate) fn written(directory: &Path, id: &KeyId) -> Option<SystemTime> {
    fs::metadata(file(directory, id)).ok()?.modified().ok()
}

fn write_private(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text)?;
    file.sync_all()
}

fn file(directory: &Path, id: &KeyId) -> PathBuf {
    directory.join(format!("{id}{SUFFIX}"))
}

#[cfg(test)]
mod tests {
    use super::is_private;

    #[test]
    fn only_the_owner_may_read_unless_root_owns_the_file() {
        for mode in [0o600, 0o400, 0o100_600] {
            assert!(is_private(mode, 7, Some(7)), "{mode:o}");
        }
        for mode in [0o640, 0o604, 0o660, 0o601] {
            assert!(!is_private(mode, 7, Some(7)), "{mode:o}");
        }
        assert!(is_private(0o440, 0, Some(7)), "a Secret mounted with fsGroup");
        assert!(!is_private(0o444, 0, Some(7)));
        assert!(!is_private(0o460, 0, Some(7)), "whoever can write the key chooses it");
        assert!(!is_private(0o440, 0, Some(0)));
        assert!(!is_private(0o440, 0, None));
    }
}
