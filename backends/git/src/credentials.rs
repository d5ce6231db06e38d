//! Credentials that a source names: a file of that name in the operator's directory.
//!
//! For https the file holds `USER:PASSWORD`, or a token alone; for ssh it is a private key.

use std::{fs, io, path::Path};

use base64::{Engine, engine::general_purpose::STANDARD};
use rollhook_core::source::GitSource;

/// What git is given to be let in; `Debug` is not there on purpose.
#[derive(Default)]
pub struct Credentials {
    /// A header of every request.
    header: Option<String>,
    /// The options of ssh.
    ssh: Option<String>,
}

/// A token's user, which the hosts that have tokens do not look at.
const TOKEN_USER: &str = "x-access-token";

impl Credentials {
    /// The credentials of a source, from the operator's directory of them.
    ///
    /// # Errors
    /// A sentence for a person, where they cannot be had.
    pub fn find(source: &GitSource, directory: Option<&Path>) -> Result<Self, String> {
        let Some(name) = &source.credentials else { return Ok(Self::default()) };
        let Some(directory) = directory else {
            return Err(format!(
                "The source names the credentials {name}, and this server has none (--build-credentials)."
            ));
        };
        // A name is letters, digits and hyphens: it does not lead out of the directory.
        let file = directory.join(name.as_str());
        let told = |error: io::Error| {
            tracing::warn!(file = %file.display(), %error, "credentials cannot be read");
            format!("The builder has no credentials named {name} that it can read.")
        };
        if source.url.protocol() == "ssh" {
            let file = file.canonicalize().map_err(told)?;
            let quoted = file.display().to_string().replace('\'', "'\\''");
            return Ok(Self { ssh: Some(format!("-i '{quoted}' -o IdentitiesOnly=yes")), ..Self::default() });
        }
        let text = fs::read_to_string(&file).map_err(told)?;
        let text = text.trim();
        let pair = if text.contains(':') { text.to_owned() } else { format!("{TOKEN_USER}:{text}") };
        Ok(Self { header: Some(format!("Authorization: Basic {}", STANDARD.encode(pair))), ..Self::default() })
    }

    pub(crate) fn header(&self) -> Option<&str> {
        self.header.as_deref()
    }

    pub(crate) fn ssh(&self) -> Option<&str> {
        self.ssh.as_deref()
    }
}
