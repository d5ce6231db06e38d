//! The first API token, named `admin`, which may do everything: made on the first start of a store that one process
//! uses, else given in a file; replaced on request only.

use std::{
    fs,
    io::{ErrorKind, Write},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use rollhook_core::{deploy::Actor, ports::Rng, token::Token};
use rollhook_management::{
    Management,
    access::{Adopted, replace_admin_token},
};
use zeroize::Zeroizing;

use crate::{Created, Error, StoreSettings, StoreUrl, SystemRng, paths, store};

/// Makes sure that the store knows an admin token. Returns the file of the token if one was made.
///
/// A store that knows none keeps the given file's token, or that of the data directory's file; the file is made if it
/// is missing and only one process uses the store. A given file must hold the token that the store knows: an old file,
/// which may have leaked since, does not replace it. [`set`] does.
///
/// # Errors
/// If the file cannot be read or holds no token, or another one than the store knows, a shared store has none and none
/// is given, or the store does not answer.
pub async fn ensure(management: &Management, store: &StoreUrl, given: Option<&Path>) -> Result<Option<Created>, Error> {
    let known = management.has_admin_token().await.map_err(Error::Admin)?;
    let file = match given {
        Some(file) => file.to_owned(),
        None if known => return Ok(None),
        None if store.is_shared() => return Err(Error::NoSharedAdminToken(store.kind())),
        None => paths::in_data_directory("admin-token", "--admin-token-file")?,
    };
    let missing = matches!(fs::metadata(&file), Err(error) if error.kind() == ErrorKind::NotFound);
    if missing && known {
        return Err(Error::AdminTokenLost(file));
    }
    if missing && store.is_shared() {
        return Err(Error::NoAdminToken(file));
    }
    if missing {
        match create(&file) {
            // Another process that starts at the same time made it.
            Err(Error::File { source, .. }) if source.kind() == ErrorKind::AlreadyExists => {}
            other => other?,
        }
    }
    match management.adopt_admin_token(&read(&file)?).await.map_err(Error::Admin)? {
        Adopted::Valid => {}
        // Webhooks need no admin token, and others may have one.
        Adopted::Revoked => {
            tracing::warn!(file = %file.display(), "the admin token of this file was revoked, and opens nothing");
        }
        Adopted::Other => return Err(Error::OtherAdminToken(file)),
    }
    Ok(missing.then_some(Created { what: "admin token", path: file }))
}

/// Makes the file's token the store's admin token; the former one is refused from then on, by every process.
///
/// # Errors
/// If the file cannot be read or holds no token, or the store cannot be opened or written.
pub async fn set(settings: &StoreSettings, file: &Path) -> Result<(), Error> {
    let (url, token) = (settings.named()?, read(file)?);
    let opened = store::open_existing(&url, settings.key_dir.as_deref()).await?;
    let written = replace_admin_token(&*opened.records, &token, &Actor::person("admin-token set")).await;
    written.map_err(|error| Error::backend("store to write the admin token")(error.into()))
}

/// Makes an admin token's file, mode 0600; an existing file is left as it is.
///
/// # Errors
/// If the file exists or cannot be written.
pub fn create(file: &Path) -> Result<(), Error> {
    paths::make_parent(file)?;
    let fail = |source| Error::File { doing: "write the admin token to", path: file.to_owned(), source };
    let directory = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    };
    // The file is complete from the moment it has its name: a crash could otherwise leave an empty one, which no later
    // start could use or replace.
    let mut draft = tempfile::NamedTempFile::new_in(directory).map_err(fail)?;
    let text = Zeroizing::new(format!("{}\n", new_token().expose()));
    draft.write_all(text.as_bytes()).and_then(|()| draft.as_file().sync_all()).map_err(fail)?;
    draft.persist_noclobber(file).map_err(|error| fail(error.error))?;
    fs::File::open(directory).and_then(|handle| handle.sync_all()).map_err(fail)
}

/// Reads an admin token's file.
///
/// # Errors
/// If the file is missing or holds no token.
pub fn read(file: &Path) -> Result<Token, Error> {
    let text = fs::read_to_string(file).map_err(|source| {
        if source.kind() == ErrorKind::NotFound {
            Error::NoAdminToken(file.to_owned())
        } else {
            Error::File { doing: "read the admin token from", path: file.to_owned(), source }
        }
    })?;
    if fs::metadata(file).is_ok_and(|metadata| metadata.permissions().mode() & 0o004 != 0) {
        tracing::warn!(file = %file.display(), "every user of this machine can read the admin token");
    }
    text.trim().parse().map_err(|_| Error::NotAToken(file.to_owned()))
}

fn new_token() -> Token {
    loop {
        let mut bytes = [0; Token::RANDOM_BYTES];
        SystemRng.fill(&mut bytes);
        if let Some(token) = Token::from_random(&bytes) {
            return token;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_made_token_is_private_and_read_back() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("new/admin-token");
        create(&file).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(read(&file).is_ok());
        assert!(create(&file).is_err(), "an existing token is not replaced");
        fs::write(&file, "hunter2\n").unwrap();
        assert!(!read(&file).unwrap_err().to_string().contains("hunter2"));
    }
}
