//! Progress of a deploy until its end: one moving line on a terminal, a line per change elsewhere.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use rollhook_api::{Deploy, Operations};
use rollhook_core::{
    app::AppId,
    deploy::{Revision, Status},
};
use rollhook_wiring::StopSignals;

use crate::{
    commands::Session,
    exit::{CliError, Exit},
    history::{predicate, what},
    output::{Output, message},
};

/// The longest wait for a change in one call.
const WAIT: Duration = Duration::from_secs(10);
/// The most consecutive failures: an accepted deploy goes on during a short outage, and each call has been repeated
/// several times already.
const FAILURES: u32 = 20;
/// The pause after a failure.
const AFTER_FAILURE: Duration = Duration::from_secs(2);

/// The display of progress: a bar on a terminal, else lines.
struct Progress(Option<ProgressBar>);

impl Progress {
    fn new(output: Output) -> Self {
        Self(output.watched.then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        }))
    }

    /// Shows the present activity, until the next call.
    fn activity(&self, text: &str) {
        match &self.0 {
            Some(bar) => bar.set_message(text.to_owned()),
            None => message(text),
        }
    }

    /// Prints an event, which stays.
    fn event(&self, text: &str) {
        match &self.0 {
            Some(bar) => bar.suspend(|| message(text)),
            None => message(text),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

/// Returns the entry once it has ended. If a newer deploy superseded it, that one is followed, because it decides what
/// runs; if a rollback did, it is not.
///
/// # Errors
/// [`CliError::Interrupted`] if the person stops the command; others if the entry cannot be read.
pub(crate) async fn watch(session: &Session<'_>, id: &AppId, revision: Revision) -> Result<Deploy, CliError> {
    let progress = Progress::new(session.output);
    tokio::select! {
        ended = follow(session.operations, id, revision, &progress) => ended,
        () = interrupted() => {
            let how = match session.direct {
                Some(_) => "It goes on as soon as a server or another rollhook works on this store.",
                None => "It goes on at the server.",
            };
            Err(CliError::Interrupted(format!("Interrupted; revision {revision} has not ended. {how}")))
        }
    }
}

async fn follow(
    operations: &dyn Operations<Error = CliError>,
    id: &AppId,
    mut revision: Revision,
    progress: &Progress,
) -> Result<Deploy, CliError> {
    let mut shown: Option<(Revision, Status)> = None;
    let mut step = None;
    let mut failures = 0;
    loop {
        let read = match step {
            None => operations.entry(id, revision).await,
            Some(step) => operations.changed(id, revision, step, WAIT).await,
        };
        let entry = match read {
            Ok(entry) => entry,
            Err(failure) if failure.exit() == Exit::Unreachable && failures < FAILURES => {
                failures += 1;
                shown = None;
                progress.activity(&format!("Still trying: {}", failure.lines().join(" ")));
                tokio::time::sleep(AFTER_FAILURE).await;
                continue;
            }
            Err(failure) => return Err(failure),
        };
        failures = 0;
        step = Some(entry.step);
        if shown != Some((revision, entry.status)) && !entry.status.is_terminal() {
            progress.activity(&format!("Revision {revision} {}: {}", predicate(entry.status), what(&entry)));
            shown = Some((revision, entry.status));
        }
        match entry.superseded_by {
            Some(by) if entry.reason.as_deref() == Some("superseded") => {
                progress.event(&format!("Revision {revision} was superseded by revision {by}."));
                revision = by;
                step = None;
            }
            Some(_) | None if entry.status.is_terminal() => return Ok(entry),
            Some(_) | None => {}
        }
    }
}

/// Returns once the person or the system stops the command.
async fn interrupted() {
    match StopSignals::catch() {
        Ok(mut signals) => signals.next().await,
        // Without a handler, the signal itself ends the process.
        Err(_) => std::future::pending().await,
    }
}
