//! The environment of git: of the server's own, only the variables by which programs are found and reach the
//! network.

use std::ffi::{OsStr, OsString};

use tokio::process::Command;

const PASSED: [&str; 19] = [
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
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
];

/// Returns a command with these variables.
pub(crate) fn child(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    let passed = |name: &OsString| name.to_str().is_some_and(|name| PASSED.contains(&name));
    command.env_clear().envs(std::env::vars_os().filter(|(name, _)| passed(name)));
    command
}
