//! Watching a deploy until it has ended: one moving line on a terminal, a line per change elsewhere.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use rollhook_api::{Deploy, Operations};
use rollhook_core::{
    app::AppId,
    deploy::{Revision, Status},
};

use crate::{
    commands::Session,
    exit::Failure,
    history::{said, what},
    output::message,
};

/// How long one look may wait for a change.
const LOOK: Duration = Duration::from_secs(10);
/// How many looks in a row may fail: what was accepted goes on without us, so that a short outage is no reason to give
/// up, each look having tried several times already.
const FAILURES: u32 = 20;
const AFTER_FAILURE: Duration = Duration::from_secs(2);

/// Where progress is shown.
struct Progress(Option<ProgressBar>);

impl Progress {
    fn new(watched: bool) -> Self {
        Self(watched.then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        }))
    }

    /// What goes on now; lasts until the next one.
    fn now(&self, text: &str) {
        match &self.0 {
            Some(bar) => bar.set_message(text.to_owned()),
            None => message(text),
        }
    }

    /// What has happened; stays.
    fn past(&self, text: &str) {
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

/// The entry once it has ended. One that a newer deploy took the place of is followed to that one, as the newer one
/// decides what runs; a rollback is not.
///
/// # Errors
/// [`Failure::Interrupted`] where the person has enough of it; others where it cannot be looked at.
pub(crate) async fn watch(session: &Session<'_>, id: &AppId, revision: Revision) -> Result<Deploy, Failure> {
    let progress = Progress::new(session.output.watched);
    tokio::select! {
        ended = follow(session.operations, id, revision, &progress) => ended,
        () = interrupted() => {
            let how = match session.direct {
                Some(_) => "It goes on as soon as a server or another rollhook works on this store.",
                None => "It goes on at the server.",
            };
            Err(Failure::Interrupted(format!("Interrupted; revision {revision} has not ended. {how}")))
        }
    }
}

async fn follow(
    operations: &dyn Operations<Error = Failure>,
    id: &AppId,
    mut revision: Revision,
    progress: &Progress,
) -> Result<Deploy, Failure> {
    let mut shown: Option<(Revision, Status)> = None;
    let mut step = None;
    let mut failures = 0;
    loop {
        let look = match step {
            None => operations.entry(id, revision).await,
            Some(step) => operations.changed(id, revision, step, LOOK).await,
        };
        let entry = match look {
            Ok(entry) => entry,
            Err(failure) if failure.code() == 5 && failures < FAILURES => {
                failures += 1;
                shown = None;
                progress.now(&format!("Still trying: {}", failure.lines().join(" ")));
                tokio::time::sleep(AFTER_FAILURE).await;
                continue;
            }
            Err(failure) => return Err(failure),
        };
        failures = 0;
        step = Some(entry.step);
        if shown != Some((revision, entry.status)) && !entry.status.is_terminal() {
            progress.now(&format!("Revision {revision} {}: {}", said(entry.status), what(&entry)));
            shown = Some((revision, entry.status));
        }
        match entry.superseded_by {
            Some(by) if entry.reason.as_deref() == Some("superseded") => {
                progress.past(&format!("Revision {revision} was superseded by revision {by}."));
                revision = by;
                step = None;
            }
            Some(_) | None if entry.status.is_terminal() => return Ok(entry),
            Some(_) | None => {}
        }
    }
}

/// Resolves once the person or the system wants the command to stop.
async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    // Without a handler the signal itself ends the process, which is as good.
    let asked = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let terminated = async {
        match signal(SignalKind::terminate()) {
            Ok(mut terminate) => terminate.recv().await,
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        () = asked => {}
        _ = terminated => {}
    }
}
