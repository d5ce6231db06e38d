//! The tool that makes images of checkouts.

use std::{fmt::Debug, fs, io, os::unix::fs::PermissionsExt, path::Path, path::PathBuf, sync::Arc};

use async_trait::async_trait;
use rollhook_core::{app::AppId, image::ImageRef, source::GitSource};

use crate::{builder::Error, confinement::Confinement, log::Log};

/// The tool that makes an image of a checkout.
#[derive(Clone, Debug)]
pub enum Tool {
    /// A program on this machine; see the crate's documentation.
    Program {
        /// The program's path.
        path: PathBuf,
        /// The user that the program runs as; `None`: the server's own, which must not be root.
        user: Option<String>,
    },
    /// A container engine, which gets the files of the checkout. No code of the repository runs outside of it.
    Engine(Arc<dyn ImageBuilder>),
}

/// A commit that is checked out.
#[derive(Clone, Copy, Debug)]
pub struct Checkout<'a> {
    /// The app's name.
    pub app: &'a AppId,
    /// The source of the commit.
    pub source: &'a GitSource,
    /// The commit, in full.
    pub commit: &'a str,
    /// The directory of the checkout, which only this process can change.
    pub directory: &'a Path,
}

/// Makes images in a container engine.
#[async_trait]
pub trait ImageBuilder: Debug + Send + Sync {
    /// Builds, and returns the image by digest, of the source's repository. The build ends when the future is dropped.
    ///
    /// # Errors
    /// A sentence for people.
    async fn build(&self, checkout: Checkout<'_>, log: &mut Log) -> Result<ImageRef, String>;

    /// Returns a sentence that says why no image can be made now; `None` if one can. The commit is not fetched then.
    async fn refusal(&self) -> Option<String> {
        None
    }
}

/// A tool that was tried.
#[derive(Debug)]
pub(crate) enum OpenedTool {
    Program { path: PathBuf, confinement: Confinement },
    Engine(Arc<dyn ImageBuilder>),
}

impl Tool {
    /// A program that runs as the server's own user.
    pub fn program(path: PathBuf) -> Self {
        Self::Program { path, user: None }
    }

    /// Tries whether the tool can be used with the builds' directory.
    pub(crate) async fn open(&self, directory: &Path) -> Result<OpenedTool, Error> {
        match self {
            Self::Program { path, user } => {
                let path = program(path)?;
                let confinement = Confinement::open(user.as_deref(), &path, directory).await?;
                Ok(OpenedTool::Program { path, confinement })
            }
            Self::Engine(builder) => Ok(OpenedTool::Engine(builder.clone())),
        }
    }
}

impl OpenedTool {
    /// Returns a sentence that says why no image can be made now.
    pub(crate) async fn refusal(&self) -> Option<String> {
        match self {
            Self::Program { .. } => None,
            Self::Engine(builder) => builder.refusal().await,
        }
    }

    /// Gives a checkout to the user that the tool runs as, if it is another one.
    pub(crate) fn hand_over(&self, checkout: &Path, directory: &Path) -> io::Result<()> {
        match self {
            Self::Program { confinement, .. } => confinement.hand_over(checkout, directory),
            Self::Engine(_) => Ok(()),
        }
    }
}

fn program(path: &Path) -> Result<PathBuf, Error> {
    let found = path.canonicalize().and_then(|program| Ok((fs::metadata(&program)?, program)));
    match found {
        Ok((metadata, program)) if metadata.is_file() && metadata.permissions().mode() & 0o111 != 0 => Ok(program),
        Ok(_) | Err(_) => Err(Error::NotAProgram(path.to_owned())),
    }
}
