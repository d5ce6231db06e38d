//! What runs in the builder image: one build, ordered by the environment (backends/kubernetes/builder-image/README.md).

use std::{io, os::fd::AsFd, process::ExitCode};

use rollhook_command::job::{self, Ended, Places};
use tokio::signal::unix::{SignalKind, signal};

/// As a shell has it for a process that SIGTERM ended.
const TERMINATED: u8 = 128 + 15;

#[tokio::main]
async fn main() -> ExitCode {
    // As the first process of its container, it gets no signal that it does not ask for.
    let asked = match signal(SignalKind::terminate()) {
        Ok(mut terminate) => {
            async move {
                let _ = terminate.recv().await;
            }
        }
        Err(error) => return broken("signals cannot be heard", &error),
    };
    let output = match io::stdout().as_fd().try_clone_to_owned() {
        Ok(output) => output.into(),
        Err(error) => return broken("there is no standard output", &error),
    };
    let variable = |name: &str| std::env::var(name).ok();
    match job::run(&Places::of_the_image(), variable, output, asked).await {
        Ok(Ended::Built) => ExitCode::SUCCESS,
        Ok(Ended::Failed) => ExitCode::FAILURE,
        Ok(Ended::Stopped) => ExitCode::from(TERMINATED),
        Err(error) => broken("the build's end cannot be told", &error),
    }
}

fn broken(what: &str, error: &io::Error) -> ExitCode {
    eprintln!("rollhook-build: {what}: {error}");
    ExitCode::FAILURE
}
