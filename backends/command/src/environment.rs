//! What a child process finds in its environment: nothing of the server's but what programs need to be found and to reach
//! the world.

use std::{ffi::OsString, path::Path};

use tokio::process::Command;

/// Carries a build's own number through everything that the build starts.
pub(crate) const MARKER: &str = "ROLLHOOK_BUILD";

const PASSED: [&str; 20] = [
    "PATH",
    "USER",
    "LOGNAME",
    "LANG",
    "TZ",
    "TMPDIR",
    "XDG_RUNTIME_DIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "GIT_SSL_CAINFO",
    "GIT_EXEC_PATH",
    "SSH_AUTH_SOCK",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
];
/// Where container engines are, for the program alone.
const ENGINES: [&str; 3] = ["DOCKER_", "BUILDKIT_", "CONTAINERD_"];

/// git, with no configuration but what is given here, and nobody to ask.
pub(crate) fn git(run: &str, home: &Path) -> Command {
    let mut command = child("git", run, false);
    command
        .env("HOME", home)
        .env("LC_ALL", "C")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_ASKPASS", "")
        .env("SSH_ASKPASS_REQUIRE", "never")
        .env("GIT_NO_LAZY_FETCH", "1");
    command
}

/// The program, at home where its operator is.
pub(crate) fn program(program: &Path, run: &str) -> Command {
    let mut command = child(program, run, true);
    command.envs(std::env::var_os("HOME").map(|home| ("HOME", home)));
    command
}

fn child(program: impl AsRef<std::ffi::OsStr>, run: &str, engines: bool) -> Command {
    let mut command = Command::new(program);
    let passed = |name: &OsString| {
        name.to_str().is_some_and(|name| {
            PASSED.contains(&name) || (engines && ENGINES.iter().any(|prefix| name.starts_with(prefix)))
        })
    };
    command.env_clear().envs(std::env::vars_os().filter(|(name, _)| passed(name))).env(MARKER, run);
    command
}
