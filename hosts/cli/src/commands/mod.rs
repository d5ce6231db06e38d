//! What each command does: ask the backend, and say what came of it.

pub(crate) mod apps;
pub(crate) mod builds;
pub(crate) mod deploys;
mod outcome;
pub(crate) mod webhook;

use serde::Serialize;

use crate::{backend::Backend, exit::Failure, output::Output};

/// What a command works with.
pub(crate) struct Session<'a> {
    pub(crate) backend: &'a dyn Backend,
    pub(crate) output: Output,
}

impl Session<'_> {
    /// Prints the document where a program reads; people were told already.
    fn document<T: Serialize>(&self, document: &T) -> Result<(), Failure> {
        self.output.data(document, String::new)
    }
}
