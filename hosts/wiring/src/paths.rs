//! The data directory: `$XDG_DATA_HOME/rollhook`, or `~/.local/share/rollhook`.

use std::{
    env, fs,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use crate::Error;

/// Returns a path in the data directory, the default of this flag.
pub(crate) fn in_data_directory(name: &str, flag: &'static str) -> Result<PathBuf, Error> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")));
    Ok(base.ok_or(Error::NoDataDirectory(flag))?.join("rollhook").join(name))
}

/// Creates the directory of a file if it is missing, readable by its owner alone.
pub(crate) fn make_parent(file: &Path) -> Result<(), Error> {
    let Some(parent) = file.parent().filter(|parent| !parent.as_os_str().is_empty()) else { return Ok(()) };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(|source| Error::File {
        doing: "make the directory",
        path: parent.to_owned(),
        source,
    })
}
