//! The commands: each performs an operation, and prints the outcome.

pub(crate) mod apps;
pub(crate) mod builds;
pub(crate) mod deploys;
mod outcome;
pub(crate) mod webhook;

use rollhook_api::Operations;
use serde::Serialize;

use crate::{direct::Direct, exit::Failure, output::Output};

/// The surroundings of a command.
pub(crate) struct Session<'a> {
    pub(crate) operations: &'a dyn Operations<Error = Failure>,
    /// The deployer in this process, which has to drive deploys to their end; none if a server does.
    pub(crate) direct: Option<&'a Direct>,
    pub(crate) output: Output,
}

impl Session<'_> {
    /// Makes sure that deploys are driven; to be called before an operation that makes or ends one.
    fn drive(&self) -> Result<(), Failure> {
        self.direct.map_or(Ok(()), Direct::start)
    }

    /// Prints the document where a program reads; people were told already.
    fn document<T: Serialize>(&self, document: &T) -> Result<(), Failure> {
        self.output.data(document, String::new)
    }
}
