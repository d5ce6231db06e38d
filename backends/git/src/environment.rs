//! What a child process finds in its environment: nothing of the server's but what programs need to be found and to reach
//! the world.

use std::ffi::{OsStr, OsString};

use tokio::process::Command;

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

/// A program to be started with what every one finds, and with the variables whose names begin with one of these.
pub fn child(program: impl AsRef<OsStr>, prefixes: &[&str]) -> Command {
    let mut command = Command::new(program);
    let passed = |name: &OsString| {
        name.to_str()
            .is_some_and(|name| PASSED.contains(&name) || prefixes.iter().any(|prefix| name.starts_with(prefix)))
    };
    command.env_clear().envs(std::env::vars_os().filter(|(name, _)| passed(name)));
    command
}
