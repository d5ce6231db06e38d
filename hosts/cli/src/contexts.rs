//! Contexts: the servers that a person is signed in to, in `$XDG_CONFIG_HOME/rollhook/contexts.json`.

use std::{
    collections::BTreeMap,
    env, fs,
    io::{ErrorKind, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rollhook_core::app::{Environment, Project};
use serde::{Deserialize, Serialize};

use crate::{args::Place, exit::CliError};

/// The contexts, and the one that counts where no server is named.
#[derive(Default, Deserialize, Serialize)]
pub(crate) struct Contexts {
    #[serde(default)]
    pub(crate) current: Option<String>,
    #[serde(default)]
    pub(crate) contexts: BTreeMap<String, Context>,
}

/// A server, and the credential for it.
#[derive(Clone, Deserialize, Serialize)]
pub(crate) struct Context {
    /// The server's URL.
    pub(crate) server: String,
    /// The token, of a login at the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<String>,
    /// The file of the API token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token_file: Option<PathBuf>,
    /// The person or the token, as the server has named it.
    pub(crate) actor: String,
    /// The project of commands that name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) project: Option<Project>,
    /// The environment of commands that name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) environment: Option<Environment>,
}

impl Context {
    /// Returns the context of a server, with a token or the file of one.
    pub(crate) fn new(server: &str, actor: String, token: Option<String>, token_file: Option<PathBuf>) -> Self {
        Self { server: server.to_owned(), token, token_file, actor, project: None, environment: None }
    }

    /// Sets the project and the environment that are given; the others stay.
    pub(crate) fn default_to(&mut self, place: &Place) {
        self.project = place.project.clone().or(self.project.take());
        self.environment = place.environment.clone().or(self.environment.take());
    }

    /// Returns the context's token.
    ///
    /// # Errors
    /// If its file cannot be read.
    pub(crate) fn token(&self) -> Result<String, CliError> {
        match (&self.token, &self.token_file) {
            (Some(token), _) => Ok(token.clone()),
            (None, Some(file)) => read_token(file),
            (None, None) => {
                Err(CliError::Usage(format!("The context has no token; sign in again: rollhook login {}", self.server)))
            }
        }
    }
}

/// Returns the token of a file.
///
/// # Errors
/// If the file cannot be read.
pub(crate) fn read_token(file: &Path) -> Result<String, CliError> {
    let read = fs::read_to_string(file).map(|text| text.trim().to_owned());
    read.map_err(|error| CliError::Usage(format!("Reading {} failed: {error}.", file.display())))
}

impl Contexts {
    /// Reads the contexts; none if there is no file.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(crate) fn read() -> Result<Self, CliError> {
        let Some(file) = file() else { return Ok(Self::default()) };
        match fs::read(&file) {
            Ok(text) => serde_json::from_slice(&text).map_err(|error| {
                CliError::Usage(format!(
                    "Reading {} failed: {error}. Delete the file, and sign in again.",
                    file.display()
                ))
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(CliError::Usage(format!("Reading {} failed: {error}.", file.display()))),
        }
    }

    /// The context that counts where no server is named.
    pub(crate) fn current(&self) -> Option<&Context> {
        self.contexts.get(self.current.as_ref()?)
    }

    /// Writes the contexts: to another file first, which only its owner may read, so that no reader sees a part.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn write(&self) -> Result<(), CliError> {
        let file = file().ok_or_else(|| {
            CliError::Other(
                "Contexts are kept in the home directory, and neither XDG_CONFIG_HOME nor HOME is set.".to_owned(),
            )
        })?;
        let failed = |error: std::io::Error| CliError::Other(format!("Writing {} failed: {error}.", file.display()));
        let directory = file.parent().unwrap_or(Path::new("/"));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
        let draft = file.with_extension(format!("{}.new", std::process::id()));
        let text = serde_json::to_vec_pretty(self)
            .map_err(|error| CliError::Other(format!("The contexts cannot be written as JSON: {error}.")))?;
        let mut options = fs::OpenOptions::new();
        let written = options.write(true).create_new(true).mode(0o600).open(&draft);
        let written = written.and_then(|mut draft| draft.write_all(&text).and_then(|()| draft.sync_all()));
        written.and_then(|()| fs::rename(&draft, &file)).map_err(|error| {
            let _ = fs::remove_file(&draft);
            failed(error)
        })
    }
}

fn file() -> Option<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
    Some(base.join("rollhook/contexts.json"))
}
