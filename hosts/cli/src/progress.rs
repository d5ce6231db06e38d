//! Progress of a deploy until its end: one moving line on a terminal, a line per change elsewhere.

use std::{pin::pin, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};
use rollhook_api::{
    Deploy,
    operations::{DeployQuery, ShowDeploy},
};
use rollhook_core::{app::AppId, deploy::Revision, text::escaped};
use rollhook_wiring::StopSignals;

use crate::{
    api::Api,
    commands::Session,
    exit::{CliError, Exit},
    history::{predicate, what},
    output::{Output, message},
    when,
};

/// The longest wait for a change in one call: a server's answer comes within the time limit of a call.
const WAIT: Duration = Duration::from_secs(20);
/// The interval at which the time left is shown anew.
const TICK: Duration = Duration::from_secs(1);
/// The most consecutive failures: an accepted deploy goes on during a short outage, and each call has been repeated
/// several times already.
const FAILURES: u32 = 20;
/// The pause after a failure.
const AFTER_FAILURE: Duration = Duration::from_secs(2);

/// The display of progress: a bar on a terminal, else lines.
struct Progress {
    bar: Option<ProgressBar>,
    /// The activity that was shown last.
    shown: String,
}

impl Progress {
    fn new(output: Output) -> Self {
        let bar = output.watched.then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg} {elapsed}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Self { bar, shown: String::new() }
    }

    /// Shows the present activity, until the next call: on a terminal with the time left, which changes all the time.
    fn activity(&mut self, text: &str, left: Option<Duration>) {
        match &self.bar {
            Some(bar) => {
                bar.set_message(left.map_or_else(|| text.to_owned(), |left| format!("{text} ({})", at_most(left))))
            }
            None if text != self.shown => message(text),
            None => {}
        }
        text.clone_into(&mut self.shown);
    }

    /// Prints an event, which stays.
    fn event(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| message(text)),
            None => message(text),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
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
    let mut progress = Progress::new(session.output);
    tokio::select! {
        ended = follow(session.api, id, revision, &mut progress) => ended,
        () = interrupted() => {
            let how = match session.direct {
                Some(_) => "It goes on as soon as a server or another rollhook works on this store.",
                None => "It goes on at the server.",
            };
            Err(CliError::Interrupted(format!("Interrupted; revision {revision} has not ended. {how}")))
        }
    }
}

async fn follow(api: &Api, id: &AppId, mut revision: Revision, progress: &mut Progress) -> Result<Deploy, CliError> {
    let mut last: Option<Deploy> = None;
    let mut failures = 0;
    loop {
        let read = match &last {
            None => api.call(ShowDeploy, &(id.clone(), revision), DeployQuery::default()).await,
            Some(last) => {
                let entry = (id.clone(), revision);
                let changed = api.changed(&entry, last, WAIT);
                shown(progress, last, failures, changed).await
            }
        };
        let entry = match read {
            Ok(entry) => entry,
            Err(failure) if failure.exit() == Exit::Unreachable && failures < FAILURES => {
                failures += 1;
                progress.activity(&format!("Still trying: {}", failure.lines().join(" ")), None);
                tokio::time::sleep(AFTER_FAILURE).await;
                continue;
            }
            Err(failure) => return Err(failure),
        };
        failures = 0;
        if !entry.status.is_terminal() {
            progress.activity(&activity(&entry), time_left(&entry));
        }
        match entry.successor() {
            Some(by) => {
                progress.event(&format!("Revision {revision} was superseded by revision {by}."));
                revision = by;
                last = None;
            }
            None if entry.status.is_terminal() => return Ok(entry),
            None => last = Some(entry),
        }
    }
}

/// Returns the next reading of an entry; meanwhile, the time left of the last one is shown, unless that is a failure.
async fn shown<T>(progress: &mut Progress, last: &Deploy, failures: u32, read: impl Future<Output = T>) -> T {
    let mut read = pin!(read);
    loop {
        tokio::select! {
            entry = &mut read => return entry,
            () = tokio::time::sleep(TICK), if failures == 0 => progress.activity(&activity(last), time_left(last)),
        }
    }
}

/// Returns what an unfinished deploy does: what its step waits for, or its status.
fn activity(entry: &Deploy) -> String {
    let observed = entry.progress.as_ref().and_then(|progress| progress.message.as_deref());
    match observed {
        Some(observed) => format!("Revision {}: {}", entry.revision, escaped(observed)),
        None => format!("Revision {} {}: {}", entry.revision, predicate(entry.status), what(entry)),
    }
}

/// Returns the time until the step fails, by this machine's clock.
fn time_left(entry: &Deploy) -> Option<Duration> {
    Some(entry.progress.as_ref()?.deadline?.since(when::now()))
}

fn at_most(left: Duration) -> String {
    match left.as_secs() {
        seconds @ 0..60 => format!("at most {seconds} s more"),
        seconds => format!("at most {} min more", seconds.div_ceil(60)),
    }
}

/// Returns once the person or the system stops the command.
pub(crate) async fn interrupted() {
    match StopSignals::catch() {
        Ok(mut signals) => signals.next().await,
        // Without a handler, the signal itself ends the process.
        Err(_) => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use rollhook_api::Progress;
    use rollhook_core::deploy::Status;

    use super::*;
    use crate::history::tests::entry;

    #[test]
    fn a_rollout_tells_its_pods_where_the_server_knows_them() {
        let rolling = entry(5, "def456a", Status::RollingOut, 0);
        assert_eq!(activity(&rolling), "Revision 5 rolls out: registry.example.com/api:def456a");
        let message = Some("2 of 4 new pods are ready\u{1b}".to_owned());
        let progress = Some(Progress {
            since: rolling.updated_at,
            ready: Some(2),
            wanted: Some(4),
            message,
            mark: None,
            deadline: None,
            workloads: Vec::new(),
        });
        let observed = Deploy { progress, ..rolling };
        assert_eq!(activity(&observed), "Revision 5: 2 of 4 new pods are ready\\u{1b}");
        assert_eq!(time_left(&observed), None);
    }

    #[test]
    fn the_time_left_is_rounded_up() {
        assert_eq!(at_most(Duration::from_secs(59)), "at most 59 s more");
        assert_eq!(at_most(Duration::from_secs(61)), "at most 2 min more");
    }
}
