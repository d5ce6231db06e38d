//! The JSON file: read whole, changed under a lock, and replaced in one step.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Write},
    path::{Path, PathBuf},
};

use rollhook::{Error, Result, ports::WallClock, sealing::KeyRing, time::Timestamp};
use tempfile::NamedTempFile;
use tokio::sync::watch;

use crate::contents::{Contents, json};

/// A token store and a history store in one JSON file, which several processes of one machine may share.
pub(crate) struct JsonStore {
    directory: PathBuf,
    file: PathBuf,
    /// The keys that seal tokens; they are kept elsewhere.
    pub(crate) keys: KeyRing,
    pub(crate) clock: WallClock,
    /// Tells the streams of [`watch`](rollhook::ports::HistoryStore::watch) of commits.
    pub(crate) committed: watch::Sender<()>,
}

impl JsonStore {
    /// Opens the store in this directory, which is empty at first.
    pub(crate) fn open(directory: &Path, keys: KeyRing, clock: WallClock) -> Self {
        let (file, committed) = (directory.join("store.json"), watch::Sender::new(()));
        Self { directory: directory.to_owned(), file, keys, clock, committed }
    }

    /// Returns the contents of the file; a missing file is an empty store. Reading needs no lock, because a change
    /// replaces the file in one step.
    pub(crate) fn read(&self) -> Result<Contents> {
        match fs::read(&self.file) {
            Ok(bytes) => json(serde_json::from_slice(&bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Contents::default()),
            Err(error) => Err(Error::unavailable("the store's file cannot be read", error)),
        }
    }

    /// Changes the contents of the file, at a time that is read under the lock. If `change` fails, the file stays as it
    /// is. If writing fails, the error is `Unavailable`, and the change may have been written.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Contents, Timestamp) -> Result<T>) -> Result<T> {
        let unavailable = |error| Error::unavailable("the store's file cannot be written", error);
        // The lock is on the directory, because each change puts another file in the file's place.
        let directory = File::open(&self.directory).map_err(unavailable)?;
        directory.lock().map_err(unavailable)?;
        let mut contents = self.read()?;
        let answer = change(&mut contents, (self.clock)())?;
        self.replace(&contents, &directory).map_err(unavailable)?;
        Ok(answer)
    }

    /// Puts a new file in the place of the old one: its bytes are durable before the rename, and the rename before this
    /// returns. A process that is killed in between leaves a temporary file, which nothing reads.
    fn replace(&self, contents: &Contents, directory: &File) -> io::Result<()> {
        let mut file = NamedTempFile::new_in(&self.directory)?;
        file.write_all(&serde_json::to_vec_pretty(contents)?)?;
        file.as_file().sync_all()?;
        file.persist(&self.file)?;
        directory.sync_all()
    }
}
