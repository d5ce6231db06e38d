//! The file: read whole, changed under a lock, and replaced in one step.

use std::{
    fs::{self, File, OpenOptions},
    io::{ErrorKind, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use rollhook_core::{Error, Result};

use crate::state::State;

/// A JSON file that is never seen half written.
pub(crate) struct JsonFile {
    path: PathBuf,
}

impl JsonFile {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// What the file holds; it is replaced in one step, so that reading needs no lock.
    pub(crate) fn read(&self) -> Result<State> {
        Ok(self.load()?.1)
    }

    /// Changes what the file holds. Where the change fails, or changes nothing, the file stays as it is.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        let _held_until_the_end = self.lock()?;
        let (before, mut state) = self.load()?;
        let answer = change(&mut state)?;
        let after = serde_json::to_vec_pretty(&state).map_err(|error| Error::corrupt("what is to be stored", error))?;
        if after != before {
            self.replace(&after).map_err(|error| Error::unavailable("the store's file cannot be written", error))?;
        }
        Ok(answer)
    }

    fn load(&self) -> Result<(Vec<u8>, State)> {
        match fs::read(&self.path) {
            Ok(bytes) => {
                let state = serde_json::from_slice(&bytes);
                let state = state.map_err(|error| Error::corrupt("the store's file cannot be understood", error))?;
                Ok((bytes, state))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Default::default()),
            Err(error) => Err(Error::unavailable("the store's file cannot be read", error)),
        }
    }

    /// Waits until no other process, and no other handle of this one, changes the file. The lock is a file of its own,
    /// because the store's is another one after each change.
    fn lock(&self) -> Result<File> {
        let path = self.path.with_extension("lock");
        let lock = OpenOptions::new().create(true).write(true).truncate(false).mode(0o600).open(path);
        lock.and_then(|file| file.lock().map(|()| file))
            .map_err(|error| Error::unavailable("the store's file cannot be locked", error))
    }

    /// On disk before it is in place, and in place before anybody is answered: an accept survives the power going out.
    fn replace(&self, bytes: &[u8]) -> std::io::Result<()> {
        let new = self.path.with_extension("new");
        let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
    }
}
