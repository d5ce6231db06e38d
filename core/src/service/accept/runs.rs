//! Commands by hand: begun and ended by people, with the image that the app runs.

use std::time::Duration;

use crate::{
    action::Action,
    ledger::{AppState, Begun, NewRun},
    request::{Field, IdempotencyKey, Refusal, RunRequest},
    run::{Run, RunKey, RunNumber},
    service::{
        Authorized, Deployer, Outcome,
        accept::apps::{check_command, check_command_deadline},
        journal::Decision,
        unwritten,
    },
    text::{hash_of, hex},
};

/// The time that a command may take if its caller names none.
const DEADLINE: Duration = Duration::from_secs(3600);

/// An accepted run by hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedRun {
    /// The run, as it is now.
    pub run: Run,
    /// Whether an earlier call with the same key made it.
    pub replayed: bool,
}

/// Returns `Ok` if the command can be stored and run.
///
/// # Errors
/// [`Refusal::InvalidField`].
pub fn check_run(request: &RunRequest) -> Outcome<()> {
    if request.command.is_empty() {
        return Err(Refusal::InvalidField(Field::Command, "must name a program.".to_owned()));
    }
    check_command(Field::Command, &request.command)?;
    check_command_deadline(Field::Deadline, request.deadline.unwrap_or(DEADLINE))
}

/// Returns an idempotency key as a run keeps it.
fn run_key(key: &IdempotencyKey) -> RunKey {
    RunKey { key: hex(&hash_of([key.header.as_str(), &key.key])), request: hex(&hash_of([hex(&key.request).as_str()])) }
}

impl Deployer {
    /// Returns `Ok` if a run may begin on this state of an app, so that a caller can judge it before anything is written;
    /// [`Deployer::begin_run`] decides.
    ///
    /// # Errors
    /// As [`Deployer::begin_run`].
    pub fn check_begin_run(&self, state: &AppState, request: &RunRequest) -> Outcome<()> {
        check_run(request)?;
        if self.ports.rollouts.release_runner().is_none() {
            return Err(Refusal::NoCommands);
        }
        state.next_run(request.key.as_ref().map(run_key).as_ref()).map(drop)
    }

    /// Runs a command once with the image of the app's current version. Once it returns, the run is stored, and will end. It is
    /// no deploy: locks refuse it as little as deploys wait for it.
    /// A dropped call may have been recorded or not: see [Cancellation](Deployer#cancellation).
    ///
    /// # Errors
    /// [`Refusal::RunUnfinished`] while another run goes on, [`Refusal::NothingRuns`], [`Refusal::NoCommands`],
    /// [`Refusal::KeyReused`], [`Refusal::InvalidField`]; any other refusal. Nothing was recorded, unless it says that it may have been.
    pub async fn begin_run(&self, access: &Authorized, request: RunRequest) -> Outcome<AcceptedRun> {
        access.check(Action::Run)?;
        check_run(&request)?;
        let RunRequest { command, deadline, key } = request;
        let deadline = deadline.unwrap_or(DEADLINE);
        if self.ports.rollouts.release_runner().is_none() {
            return Err(Refusal::NoCommands);
        }
        let key = key.as_ref().map(run_key);
        let (driver, lacks_builder) = (self.driver(), self.lacks_builder());
        let new = NewRun { command, actor: access.actor().clone(), deadline, key, driver: None };
        let begun = self.journal.update(access.uid, None, move |change, _, now| {
            let driver = driver.clone().filter(|_| !lacks_builder(&change.state));
            match change.begin_run(NewRun { driver, ..new.clone() }, now) {
                Ok(begun @ Begun::New(_)) => Decision::Commit(Ok(begun)),
                Ok(begun @ Begun::Replayed(_)) => Decision::Answer(Ok(begun)),
                Err(refusal) => Decision::Answer(Err(refusal)),
            }
        });
        match begun.await.map_err(|error| unwritten(&access.id, error))?.0? {
            Begun::New(run) => {
                tracing::info!(app = %access.id, run = %run.number, actor = %run.actor, "accepted a command by hand");
                self.changed_here(access.uid);
                Ok(AcceptedRun { run: Run::clone(&run), replayed: false })
            }
            Begun::Replayed(run) => Ok(AcceptedRun { run: Run::clone(&run), replayed: true }),
        }
    }

    /// Asks for the end of a run by hand, which its driver brings about; one that was asked for before stays as it is.
    ///
    /// # Errors
    /// [`Refusal::RunNotFound`], [`Refusal::RunEnded`], [`Refusal::AppNotFound`]; [`Refusal::StoreUnavailable`] while the
    /// store is away.
    pub async fn cancel_run(&self, access: &Authorized, number: RunNumber) -> Outcome<Run> {
        access.check(Action::Run)?;
        let actor = access.actor().clone();
        let cancelled = self.journal.update(access.uid, None, move |change, _, now| {
            let cancelled = change.cancel_run(number, actor.clone(), now);
            if change.is_empty() { Decision::Answer(cancelled) } else { Decision::Commit(cancelled) }
        });
        let run = cancelled.await.map_err(|error| unwritten(&access.id, error))?.0?;
        self.changed_here(access.uid);
        Ok(Run::clone(&run))
    }

    /// Ends the run of an app that is being deleted, so that no driver begins it any more. Returns its number.
    pub(crate) async fn end_run_of_deleted(&self, access: &Authorized, message: String) -> Outcome<Option<RunNumber>> {
        let ended = self.journal.update(access.uid, None, move |change, _, now| {
            match change.end_run_of_deleted(&message, now) {
                Some(number) => Decision::Commit(Some(number)),
                None => Decision::Answer(None),
            }
        });
        Ok(ended.await.map_err(|error| unwritten(&access.id, error))?.0)
    }
}
