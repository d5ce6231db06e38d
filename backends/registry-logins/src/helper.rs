//! Programs that keep logins: `docker-credential-NAME get`, with the registry's name on their input.

use std::{process::Stdio, time::Duration};

use serde::Deserialize;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::Command,
};
use zeroize::Zeroizing;

use crate::{Login, LoginFailure};

/// The longest time of a program.
const TIME: Duration = Duration::from_secs(10);
/// The longest answer, in bytes.
const ANSWER_MAX: u64 = 64 << 10;
/// The words of programs that have no login, as Docker's own library for them writes it.
const UNKNOWN: &str = "credentials not found";

#[derive(Deserialize)]
struct Answer {
    #[serde(rename = "Username", default)]
    user: String,
    #[serde(rename = "Secret", default)]
    secret: Zeroizing<String>,
}

/// Asks a program for a registry's login; `None` if it has none.
pub(crate) async fn get(name: &str, registry: &str) -> Result<Option<Login>, LoginFailure> {
    let program = format!("docker-credential-{name}");
    let failed = |why: &str| LoginFailure::Helper { program: program.clone(), why: why.to_owned() };
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    // A path would lead to another program.
    if !name.bytes().all(valid) {
        return Err(LoginFailure::Helper {
            program: "A program".to_owned(),
            why: "has a name that is none of docker-credential-NAME".to_owned(),
        });
    }
    let run = tokio::time::timeout(TIME, answer(&program, registry));
    let (succeeded, output) = match run.await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => return Err(failed(&format!("cannot be run: {error}"))),
        Err(_) => return Err(failed(&format!("has not answered within {} s", TIME.as_secs()))),
    };
    if !succeeded {
        let unknown = String::from_utf8_lossy(&output).to_lowercase().contains(UNKNOWN);
        return if unknown { Ok(None) } else { Err(failed("has failed")) };
    }
    let answer: Answer = serde_json::from_slice(&output).map_err(|_| failed("answers what cannot be read"))?;
    Ok(Login::of(&answer.user, &answer.secret))
}

/// Returns whether the program succeeded, and the begin of what it wrote.
async fn answer(program: &str, registry: &str) -> std::io::Result<(bool, Zeroizing<Vec<u8>>)> {
    let mut command = Command::new(program);
    command.arg("get").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    // The service's own settings may hold secrets, and say nothing to it.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ROLLHOOK_")) {
        command.env_remove(name);
    }
    let mut child = command.spawn()?;
    if let Some(mut input) = child.stdin.take() {
        // One that reads nothing may have answered all the same.
        let _ = input.write_all(registry.as_bytes()).await;
    }
    let mut output = Zeroizing::new(Vec::new());
    if let Some(stdout) = child.stdout.take() {
        stdout.take(ANSWER_MAX).read_to_end(&mut output).await?;
    }
    Ok((child.wait().await?.success(), output))
}
