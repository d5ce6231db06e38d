//! What the processes of a build find in their environment.

use std::path::Path;

use tokio::process::Command;

/// Carries a build's own number through everything that the build starts.
pub(crate) const MARKER: &str = "ROLLHOOK_BUILD";

/// Where container engines are, for the program alone.
const ENGINES: [&str; 3] = ["DOCKER_", "BUILDKIT_", "CONTAINERD_"];

/// The program, at home where its operator is.
pub(crate) fn program(program: &Path, run: &str) -> Command {
    let mut command = rollhook_git::environment::child(program, &ENGINES);
    command.envs(std::env::var_os("HOME").map(|home| ("HOME", home)));
    numbered(command, run)
}

/// The command, as one of this build's.
pub(crate) fn numbered(mut command: Command, run: &str) -> Command {
    command.env(MARKER, run);
    command
}
