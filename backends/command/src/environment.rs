//! The environment of a build's processes.

use std::path::Path;

use tokio::process::Command;

/// The variable with a build's number, in all processes that the build starts.
pub(crate) const MARKER: &str = "ROLLHOOK_BUILD";

/// The variables of container engines, for the program alone.
const ENGINES: [&str; 3] = ["DOCKER_", "BUILDKIT_", "CONTAINERD_"];

/// Returns a command for the program, with the home of its operator.
pub(crate) fn program(program: &Path, run: &str) -> Command {
    let mut command = rollhook_git::environment::child(program, &ENGINES);
    command.envs(std::env::var_os("HOME").map(|home| ("HOME", home)));
    numbered(command, run)
}

/// Adds the build's number to a command.
pub(crate) fn numbered(mut command: Command, run: &str) -> Command {
    command.env(MARKER, run);
    command
}
