//! Commands by hand: run one with the image that an app runs, list them, follow and end them.

use std::{
    io::{self, IsTerminal, Write},
    time::Duration,
};

use rollhook_api::{
    Kind, Run, RunPost,
    operations::{CancelRun, ListRuns, LogText, ReadRunLog, RunLogQuery, ShowRun, StartRun},
    words::command_line,
};
use rollhook_core::{
    app::AppId,
    run::{RunNumber, RunStatus},
    text::escaped,
};

use super::{Session, builds::Lines};
use crate::{
    args,
    exit::{CliError, Exit},
    output::{message, print},
    progress::interrupted,
    table::{self, Cell, Column, Fit},
    when,
};

/// The pause between two readings of a log that is being written.
const PAUSE: Duration = Duration::from_secs(1);
/// The most consecutive failures: an accepted run goes on during a short outage, and each call has been repeated several
/// times already.
const FAILURES: u32 = 20;

/// Runs a command, prints its log, and ends with its exit code.
pub(crate) async fn run(session: &Session<'_>, args: &args::Run) -> Result<(), CliError> {
    if args.detach && session.direct.is_some() {
        return Err(CliError::Usage(
            "--detach: without a server, this command itself runs the command to its end; name a --server.".to_owned(),
        ));
    }
    let id = &session.find(&args.target).await?;
    let post = RunPost { command: args.command.clone(), deadline: args.deadline.clone() };
    session.drive()?;
    let run = session.api.call(StartRun, id, post).await?;
    if args.detach {
        session.output.line(&format!("Running it as run {} of {id}", run.number))?;
        return session.document(&run);
    }
    message(&format!("run {} of {id}: {}", run.number, escaped(&run.image)));
    let number = run.number;
    let mut following = std::pin::pin!(follow(session, id, number));
    tokio::select! {
        ended = &mut following => return finish(session, &ended?),
        () = interrupted() => {}
    }
    message(&format!("Interrupted: ending run {number}; interrupt again to leave it."));
    let end = async {
        match session.api.call(CancelRun, &(id.clone(), number), ()).await {
            Err(refused) if !refused.is(Kind::RunEnded) => Err(refused),
            Ok(_) | Err(_) => following.await,
        }
    };
    let ended = tokio::select! {
        ended = end => ended?,
        () = interrupted() => {
            return Err(CliError::Interrupted(format!("Interrupted; run {number} has not been seen to end.")));
        }
    };
    if ended.status != RunStatus::Cancelled {
        return finish(session, &ended);
    }
    session.document(&ended)?;
    Err(CliError::Interrupted(end_of(&ended)))
}

/// Lists runs, or follows or ends one.
pub(crate) async fn runs(session: &Session<'_>, args: &args::Runs) -> Result<(), CliError> {
    let id = &session.find(&args.target).await?;
    if let Some(number) = args.follow {
        return finish(session, &follow(session, id, number).await?);
    }
    if let Some(number) = args.cancel {
        session.drive()?;
        let mut run = session.api.call(CancelRun, &(id.clone(), number), ()).await?;
        // Without a server, nobody else ends it while this command is there.
        while session.direct.is_some() && !run.is_ended() {
            tokio::time::sleep(PAUSE).await;
            run = session.api.call(ShowRun, &(id.clone(), number), ()).await?;
        }
        session.output.line(&format!("Run {number} of {id} is told to end"))?;
        return session.document(&run);
    }
    let list = session.api.call(ListRuns, id, ()).await?;
    session.output.data(&list, || {
        let columns = [
            Column("RUN", 0, Fit::Keep),
            Column("COMMAND", 0, Fit::Cut),
            Column("STATUS", 0, Fit::Keep),
            Column("EXIT", 0, Fit::Keep),
            Column("WHO", 0, Fit::Drop(1)),
            Column("WHEN", 0, Fit::Time),
        ];
        let now = when::now();
        let row = |run: &Run| {
            vec![
                Cell::new(run.number.to_string()),
                Cell::new(command_line(&run.command)),
                Cell::new(run.status.as_str()),
                Cell::optional(run.exit_code.map(|code| code.to_string())),
                Cell::new(&run.actor),
                Cell::new(when::ago(run.created_at, now)),
            ]
        };
        let rows: Vec<_> = list.runs.iter().map(row).collect();
        table::render(&columns, &rows, session.output.style)
    })
}

/// Prints the log of a run until it has ended, and returns it.
async fn follow(session: &Session<'_>, id: &AppId, number: RunNumber) -> Result<Run, CliError> {
    let subject = (id.clone(), number);
    let mut log = Log::new(session);
    let mut failures = 0;
    loop {
        // Read before the log: the log of a run that has ended is complete.
        let read = async {
            let run = session.api.call(ShowRun, &subject, ()).await?;
            log.read(session, &subject).await.map(|()| run)
        };
        match read.await {
            Ok(run) if run.is_ended() => {
                log.end()?;
                return Ok(run);
            }
            Ok(_) => failures = 0,
            Err(failure) if failure.exit() == Exit::Unreachable && failures < FAILURES => failures += 1,
            Err(failure) => return Err(failure),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The log of a run as it is printed: on a terminal, without what that would obey; else as it is.
struct Log {
    read: u64,
    /// Whether somebody reads the log: a program that wants a document gets that alone.
    is_printed: bool,
    lines: Option<Lines>,
}

impl Log {
    fn new(session: &Session<'_>) -> Self {
        let lines = io::stdout().is_terminal().then(Lines::default);
        Self { read: 0, is_printed: !session.output.format.is_document(), lines }
    }

    /// Prints what was written since.
    async fn read(&mut self, session: &Session<'_>, subject: &(AppId, RunNumber)) -> Result<(), CliError> {
        while self.is_printed {
            let query = RunLogQuery { from: Some(self.read), follow: None };
            let LogText(part) = match session.api.call(ReadRunLog, subject, query).await {
                // The command never began, or its log is gone: the run's end says so.
                Err(refused) if refused.is(Kind::NoRunLog) => return Ok(()),
                part => part?,
            };
            if part.is_empty() {
                return Ok(());
            }
            self.read += part.len() as u64;
            match &mut self.lines {
                Some(lines) => print(&lines.push(&part))?,
                None => write(&part)?,
            }
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), CliError> {
        self.lines.as_mut().map_or(Ok(()), |lines| print(&lines.rest()))
    }
}

/// Writes bytes as they are; a reader that has gone away drops them, and the command goes on.
fn write(part: &[u8]) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    match out.write_all(part).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(CliError::Other(format!("Standard output cannot be written to: {error}.")))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Returns how a run ended, in a sentence.
fn end_of(run: &Run) -> String {
    let message = run.message.as_deref().unwrap_or_default();
    format!("Run {} {}: {message}", run.number, run.status)
}

/// Ends with the exit code of the command that a run was of.
fn finish(session: &Session<'_>, run: &Run) -> Result<(), CliError> {
    session.document(run)?;
    if run.status == RunStatus::Succeeded {
        return Ok(());
    }
    Err(CliError::Command(end_of(run), run.exit_code))
}
