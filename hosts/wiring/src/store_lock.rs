//! One server per SQLite file: two of them would serve each other's callers from memories that miss the other's half.

use std::{
    ffi::OsString,
    fs::{File, TryLockError},
    os::unix::fs::OpenOptionsExt,
};

use crate::{Error, StoreUrl, paths};

/// The right of one server to a store; ends with the process.
#[derive(Debug)]
pub struct StoreLock(#[expect(dead_code, reason = "the lock is held as long as the file is open")] Option<File>);

impl StoreLock {
    /// Takes the store for this server. Only a SQLite file needs that: a store in memory is the process's own, and
    /// shared ones are for several servers. Command lines may work on the file meanwhile.
    ///
    /// # Errors
    /// [`Error::SecondServer`] if another server has the store.
    pub fn take(store: &StoreUrl) -> Result<Self, Error> {
        let StoreUrl::Sqlite(file) = store else { return Ok(Self(None)) };
        paths::make_parent(file)?;
        let mut path = OsString::from(file);
        path.push(".server");
        let fail = |source| Error::File { doing: "lock", path: path.clone().into(), source };
        let lock = File::options().create(true).append(true).mode(0o600).open(&path).map_err(fail)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self(Some(lock))),
            Err(TryLockError::WouldBlock) => Err(Error::SecondServer(file.clone())),
            Err(TryLockError::Error(source)) => Err(fail(source)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_server_on_a_file_is_refused_until_the_first_has_ended() {
        let directory = tempfile::tempdir().unwrap();
        let store = StoreUrl::Sqlite(directory.path().join("new/rollhook.db"));
        let first = StoreLock::take(&store).unwrap();
        assert!(matches!(StoreLock::take(&store), Err(Error::SecondServer(_))));
        assert!(StoreLock::take(&StoreUrl::Sqlite(directory.path().join("other.db"))).is_ok());
        drop(first);
        assert!(StoreLock::take(&store).is_ok());
    }
}
