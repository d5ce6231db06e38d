//! Where things are kept when nothing else is said: `$XDG_DATA_HOME/rollhook`, or `~/.local/share/rollhook`.

use std::{
    env, fs,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use crate::Error;

/// The data directory; none where there is no home.
pub fn data() -> Option<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")))?;
    Some(base.join("rollhook"))
}

/// The SQLite store's file.
pub fn database() -> Option<PathBuf> {
    Some(data()?.join("rollhook.db"))
}

/// The key directory.
pub fn keys() -> Option<PathBuf> {
    Some(data()?.join("keys"))
}

/// Where builds are kept.
pub fn builds() -> Option<PathBuf> {
    Some(data()?.join("builds"))
}

/// The management token's file.
pub fn admin_token() -> Option<PathBuf> {
    Some(data()?.join("admin-token"))
}

/// Makes the directory that a file is to lie in, readable by nobody else where it is new.
pub(crate) fn make_parent(file: &Path) -> Result<(), Error> {
    let Some(parent) = file.parent().filter(|parent| !parent.as_os_str().is_empty()) else { return Ok(()) };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(|source| Error::File {
        doing: "make the directory",
        path: parent.to_owned(),
        source,
    })
}
