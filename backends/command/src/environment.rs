//! The environment of a build's processes.

use tokio::process::Command;

/// The variable with a build's number, in all processes that the build starts.
pub(crate) const MARKER: &str = "ROLLHOOK_BUILD";

/// Adds the build's number to a command.
pub(crate) fn numbered(mut command: Command, run: &str) -> Command {
    command.env(MARKER, run);
    command
}
