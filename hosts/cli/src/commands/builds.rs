//! Builds of git apps, and the logs of builds and release commands.

use std::time::Duration;

use rollhook_api::{
    Deploy, Kind, Rebuild,
    operations::{
        DeployQuery, DeploysQuery, ListDeploys, LogQuery, LogStep, LogText, ReadBuildLog, RebuildApp, ShowDeploy,
    },
    terminal::plain,
};
use rollhook_core::{
    app::AppId,
    deploy::{Revision, Status},
};

use super::{
    Session,
    deploys::{conclude, image},
};
use crate::{args, exit::CliError, output::print};

/// The pause between two readings of a log that is being written.
const PAUSE: Duration = Duration::from_secs(1);
/// The number of newest entries that are searched for a build.
const RECENT: usize = 100;

pub(crate) async fn rebuild(session: &Session<'_>, args: &args::Rebuild) -> Result<(), CliError> {
    let id = &session.find(&args.target).await?;
    let rebuild = Rebuild { commit: args.commit.as_ref().map(ToString::to_string) };
    session.drive()?;
    let answer = session.api.call(RebuildApp, id, rebuild).await?;
    session.output.line(&format!("Building {} for {id}: revision {}", image(&answer), answer.revision))?;
    conclude(session, id, answer, args.wait).await
}

pub(crate) async fn logs(session: &Session<'_>, args: &args::BuildLogs) -> Result<(), CliError> {
    let id = &session.find(&args.target).await?;
    let step = if args.release { LogStep::Release } else { LogStep::Build };
    let revision = match args.revision {
        Some(revision) => revision,
        None => newest(session, id, step).await?,
    };
    let mut read = 0;
    let mut lines = Lines::default();
    loop {
        // Read before the log: once the step has ended, its log is complete.
        let runs = args.follow
            && goes_on(step, &session.api.call(ShowDeploy, &(id.clone(), revision), DeployQuery::default()).await?);
        loop {
            let query = LogQuery { step: args.release.then_some(step), from: Some(read), follow: None };
            let LogText(part) = match session.api.call(ReadBuildLog, &(id.clone(), revision), query).await {
                // The command may begin yet.
                Err(refused) if runs && refused.is(Kind::NoReleaseLog) => LogText::default(),
                part => part?,
            };
            if part.is_empty() {
                break;
            }
            read += part.len() as u64;
            print(&lines.push(&part))?;
        }
        if !runs {
            return print(&lines.rest());
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Returns whether the step is under way, or may begin yet.
fn goes_on(step: LogStep, entry: &Deploy) -> bool {
    match step {
        LogStep::Build => matches!(entry.status, Status::Queued | Status::Building) && entry.image.is_none(),
        LogStep::Release => matches!(entry.status, Status::Queued | Status::Building | Status::Releasing),
    }
}

/// Returns the newest revision that came to the step, or is to.
async fn newest(session: &Session<'_>, id: &AppId, step: LogStep) -> Result<Revision, CliError> {
    let recent = session.api.call(ListDeploys, id, DeploysQuery::page(None, RECENT)).await?.deploys;
    let came_to_it = |entry: &&Deploy| match step {
        LogStep::Build => entry.commit.is_some() && entry.from.is_none() && !entry.adopted,
        LogStep::Release => entry.release.is_some() || entry.status == Status::Releasing,
    };
    let what = match step {
        LogStep::Build => "was built",
        LogStep::Release => "ran a release command",
    };
    match recent.iter().find(came_to_it) {
        Some(entry) => Ok(entry.revision),
        None => Err(CliError::Other(format!(
            "None of the newest {RECENT} deploys of {id} {what}; name one with --revision."
        ))),
    }
}

/// A log in whole lines, without what a terminal would obey: builds and commands write text of strangers.
#[derive(Default)]
pub(super) struct Lines(Vec<u8>);

impl Lines {
    pub(super) fn push(&mut self, part: &[u8]) -> String {
        self.0.extend_from_slice(part);
        let end = self.0.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        shown(&self.0.drain(..end).collect::<Vec<u8>>())
    }

    pub(super) fn rest(&mut self) -> String {
        let rest = std::mem::take(&mut self.0);
        if rest.is_empty() { String::new() } else { format!("{}\n", shown(&rest)) }
    }
}

fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines = text.split_inclusive('\n').map(|line| match line.strip_suffix('\n') {
        Some(line) => format!("{}\n", plain(line)),
        None => plain(line),
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_shown_in_whole_lines_without_control_characters() {
        let mut lines = Lines::default();
        assert_eq!(lines.push("one\r\n\tt\u{1b}[2Jwo\u{7}\nthr\u{e4}".as_bytes()), "one\n\ttwo\\u{7}\n");
        assert_eq!(lines.push(b"\xff"), "");
        assert_eq!(lines.rest(), "thr\u{e4}\u{fffd}\n");
        assert_eq!(lines.rest(), "");
    }
}
