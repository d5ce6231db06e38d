//! The program of the builder image: makes the build that its environment describes
//! (backends/kubernetes/builder-image/README.md).

use std::{io, os::fd::AsFd, process::ExitCode};

use rollhook_command::job::{self, Outcome, Paths};
use tokio::signal::unix::{SignalKind, signal};

/// The exit code of a process that SIGTERM ended, as shells have it.
const TERMINATED: u8 = 128 + 15;

#[tokio::main]
async fn main() -> ExitCode {
    // As the first process of its container, it gets no signal that it does not ask for.
    let stop = match signal(SignalKind::terminate()) {
        Ok(mut terminate) => {
            async move {
                let _ = terminate.recv().await;
            }
        }
        Err(error) => return failure("SIGTERM cannot be handled", &error),
    };
    let output = match io::stdout().as_fd().try_clone_to_owned() {
        Ok(output) => output.into(),
        Err(error) => return failure("there is no standard output", &error),
    };
    let variable = |name: &str| std::env::var(name).ok();
    match job::run(&Paths::of_builder_image(), variable, output, stop).await {
        Ok(Outcome::Built) => ExitCode::SUCCESS,
        Ok(Outcome::Failed) => ExitCode::FAILURE,
        Ok(Outcome::Stopped) => ExitCode::from(TERMINATED),
        Err(error) => failure("the termination message cannot be written", &error),
    }
}

fn failure(what: &str, error: &io::Error) -> ExitCode {
    eprintln!("rollhook-build: {what}: {error}");
    ExitCode::FAILURE
}
