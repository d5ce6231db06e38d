//! Measuring checks of kind `command`: a run of the app's own platform, with the image of the deploy that is measured.
//!
//! A run is named by its measurement, which is stored only once it has ended. So a process that takes over measures by the run
//! that is under way, and a command is not run twice for one measurement. Whatever keeps the command from its own end, such as
//! an image that cannot be pulled, says nothing of the version, and is no verdict.

use std::{
    collections::BTreeSet,
    future::pending,
    pin::pin,
    sync::{Mutex, PoisonError},
    task::Poll,
    time::Duration,
};

use event_listener::Event;
use futures_util::{FutureExt, future::join_all, poll, select_biased};

use crate::{
    app::AppUid,
    check::{CheckName, END_TIME, MESSAGE_MAX, Measurement, Verdict},
    deploy::Reason,
    engine::{by_hand, verifying::Answer},
    error::{Error, Result},
    ports::{MeasureSpec, Measured, ReleaseFailure, ReleaseRun, ReleaseRunner, ReleaseSpec, ReleaseState, RunId},
    service::{Deployer, NO_RUNNER, drive::log},
    slots::{Rank, Slot},
    text::without_tokens,
};

/// The most commands of checks that this process has run at once, and the most of them of one environment.
pub(crate) const COMMANDS: (usize, usize) = (8, 2);
/// The interval of observations of a run without a hint from its platform.
const OBSERVE_INTERVAL: Duration = Duration::from_secs(2);
/// The interval of attempts to end a run.
const END_AGAIN: Duration = Duration::from_secs(15);
/// The most runs that are remembered to be ended: those beyond end by themselves.
const ENDING_MAX: usize = 1_000;
/// The most runs that are ended at once.
const ENDED_AT_ONCE: usize = 8;
/// The condition of a pass.
const CONDITION: &str = "exit code 0";
/// The exit codes of a command that was ended by SIGKILL or SIGTERM: from outside, or as memory ran out.
const ENDED_FROM_OUTSIDE: [i32; 2] = [137, 143];

/// The fate of a command whose measurement is no longer waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhenDropped {
    /// The command goes on: another process may wait for its end.
    RunsOn,
    /// The command is ended.
    Ends,
}

/// The runs that are to be ended.
#[derive(Default)]
pub(crate) struct EndingRuns {
    runs: Mutex<Vec<ReleaseRun>>,
    arrived: Event,
}

impl EndingRuns {
    /// Adds a run. One that has ended, or never was, is no matter.
    pub(crate) fn put(&self, run: ReleaseRun) {
        self.with(|runs| {
            if runs.len() < ENDING_MAX && !runs.contains(&run) {
                runs.push(run);
            }
        });
        self.arrived.notify(usize::MAX);
    }

    fn with<T>(&self, change: impl FnOnce(&mut Vec<ReleaseRun>) -> T) -> T {
        change(&mut self.runs.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The checks whose commands wait for a slot, by their apps.
#[derive(Default)]
pub(crate) struct WaitingCommands(Mutex<BTreeSet<(AppUid, CheckName)>>);

impl WaitingCommands {
    /// Returns whether the command of an app's check waits for a slot.
    pub(crate) fn has(&self, app: AppUid, check: &CheckName) -> bool {
        self.with(|waiting| waiting.contains(&(app, check.clone())))
    }

    fn with<T>(&self, change: impl FnOnce(&mut BTreeSet<(AppUid, CheckName)>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A guard of a command that waits for a slot: those who watch its app are notified at both ends.
struct InQueue<'a> {
    of: &'a Deployer,
    command: (AppUid, CheckName),
}

impl<'a> InQueue<'a> {
    fn enter(of: &'a Deployer, spec: &MeasureSpec) -> Self {
        let command = (spec.deploy.app, spec.check.name.clone());
        of.waiting_commands.with(|waiting| waiting.insert(command.clone()));
        of.waiters.notify(command.0);
        Self { of, command }
    }
}

impl Drop for InQueue<'_> {
    fn drop(&mut self) {
        self.of.waiting_commands.with(|waiting| waiting.remove(&self.command));
        self.of.waiters.notify(self.command.0);
    }
}

/// A guard that ends a run which was not waited for to its end.
struct Waiting<'a> {
    ending: &'a EndingRuns,
    run: Option<ReleaseRun>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.run.take().into_iter().for_each(|run| self.ending.put(run));
    }
}

impl Deployer {
    /// Measures by the command of a check, as soon as there is a slot for it. The answer comes within the check's timeout from
    /// then on, and the time of ending the command.
    pub(super) async fn measure_by_command(&self, spec: MeasureSpec, rank: Rank, when_dropped: WhenDropped) -> Answer {
        let (clock, asked) = (&self.ports.clock, self.ports.clock.elapsed());
        let _slot = self.slot_of_command(&spec, rank, when_dropped).await;
        let at = spec.now.after(clock.elapsed().saturating_sub(asked));
        let command = spec.check.command().unwrap_or_default();
        let found = match self.ports.rollouts.release_runner() {
            None => Found::none(NO_RUNNER),
            // Another version of the service has stored it.
            Some(_) if command.is_empty() => Found::none("Its command cannot be read."),
            Some(runner) => self.run_command(runner, &spec, &command, when_dropped).await,
        };
        let request = format!("{} in {}", command.join(" "), spec.image);
        let measurement = found.measurement(at);
        Answer {
            check: spec.check,
            at,
            measured: Ok(Measured { request, condition: CONDITION.to_owned(), measurement }),
            before: Vec::new(),
        }
    }

    /// Waits for a slot for the command of a check.
    async fn slot_of_command(&self, spec: &MeasureSpec, rank: Rank, when_dropped: WhenDropped) -> Slot {
        let mut slot = pin!(self.check_commands.acquire_ranked(&spec.app.namespace, rank));
        if let Poll::Ready(slot) = poll!(&mut slot) {
            return slot;
        }
        // One that a person tries out is no part of a deploy.
        let _queued = (when_dropped == WhenDropped::RunsOn).then(|| InQueue::enter(self, spec));
        slot.await
    }

    async fn run_command(
        &self,
        runner: &dyn ReleaseRunner,
        spec: &MeasureSpec,
        command: &[String],
        when_dropped: WhenDropped,
    ) -> Found {
        let run = ReleaseRun::of_check(&spec.app, spec.deploy.app, spec.run);
        let mut waiting =
            Waiting { ending: &self.ending_runs, run: Some(run.clone()).filter(|_| when_dropped == WhenDropped::Ends) };
        let target = (*spec.target).clone();
        let release = ReleaseSpec::new(run.clone(), target, spec.image.clone(), command.to_vec());
        let release = ReleaseSpec { configuration: spec.configuration.clone(), ..release };
        let mut trouble = None;
        let timeout = spec.check.timeout;
        let found = select_biased! {
            found = self.run_to_end(runner, &release, &mut trouble).fuse() => found,
            () = self.ports.clock.sleep(timeout).fuse() => {
                if !self.end_run(&run).await {
                    self.ending_runs.put(run);
                }
                Found::none(&format!("The command did not end within {} s, and was ended.", timeout.as_secs_f64()))
            }
        };
        waiting.run = None;
        // The last failure of the platform is the reason.
        match trouble {
            Some(trouble) if found.verdict == Verdict::None => Found::none(&trouble),
            Some(_) | None => found,
        }
    }

    /// Makes a run ready, starts it, and waits for its end. `trouble` is why the last call failed, if it did.
    async fn run_to_end(&self, runner: &dyn ReleaseRunner, spec: &ReleaseSpec, trouble: &mut Option<String>) -> Found {
        let run = &spec.run;
        let mut is_started = false;
        loop {
            let seen = if is_started { runner.observe(run).await } else { self.prepare_run(runner, spec).await };
            let seen = match seen {
                Ok(ReleaseState::Prepared) => {
                    log::starting(run);
                    let started = runner.start(run).await;
                    is_started |= started.is_ok();
                    started.map(|()| ReleaseState::Prepared)
                }
                seen => seen,
            };
            *trouble = None;
            match seen {
                Ok(ReleaseState::Succeeded { .. }) => return Found::pass(),
                Ok(ReleaseState::Failed(failure)) => return Found::of(&failure),
                Ok(ReleaseState::Unknown) => {
                    return Found::none("The platform knows nothing of the command's run any more.");
                }
                // One that goes on already was started before this process began to wait for it.
                Ok(ReleaseState::Running) => is_started = true,
                Ok(ReleaseState::Preparing | ReleaseState::Prepared) => {}
                Err(error) if error.is_transient() => {
                    *trouble = Some(if let Error::Denied { what, .. } = &error {
                        format!("The command could not be run: permission is denied ({what}).")
                    } else {
                        "The command could not be run: the platform could not be reached.".to_owned()
                    });
                    let error = error.chain();
                    tracing::debug!(app = %run.app, run = %run.id.kind, error, "running the command of a check failed");
                }
                Err(error) => return Found::none(&format!("The command could not be run: {error}.")),
            }
            select_biased! {
                () = self.ports.clock.sleep(OBSERVE_INTERVAL).fuse() => {}
                () = changed(runner, run, trouble.is_none()).fuse() => {}
            }
        }
    }

    async fn prepare_run(&self, runner: &dyn ReleaseRunner, spec: &ReleaseSpec) -> Result<ReleaseState> {
        let (app, of) = (&spec.run, spec.configuration.as_ref());
        let Some(of) = of else { return runner.prepare(spec).await };
        // Few calls have variables at once: each app may have a megabyte of them.
        let _turn = self.variables_held.acquire(&app.app.namespace).await;
        let configuration = self.filled(app.id.app, Some(of)).await?;
        runner.prepare(&ReleaseSpec { configuration, ..spec.clone() }).await
    }

    /// Ends a run. Returns `false` if the call is to be repeated.
    async fn end_run(&self, run: &ReleaseRun) -> bool {
        let Some(runner) = self.ports.rollouts.release_runner() else { return true };
        let ended = select_biased! {
            ended = runner.cancel(run).fuse() => ended,
            () = self.ports.clock.sleep(END_TIME).fuse() => {
                Err(Error::Unavailable { what: "ending the command of a check took too long".to_owned(), cause: None })
            }
        };
        let Err(error) = ended else {
            log::ended(run);
            return true;
        };
        tracing::debug!(app = %run.app, run = %run.id.kind, error = %error.chain(), "ending the command of a check failed");
        !error.is_transient()
    }

    /// Ends the runs that are no longer waited for, a few at once, for as long as it is polled.
    pub(super) async fn end_runs(&self) {
        loop {
            let arrived = self.ending_runs.arrived.listen();
            if self.end_runs_once().await {
                arrived.await;
            } else {
                self.ports.clock.sleep(END_AGAIN).await;
            }
        }
    }

    /// Ends the runs that are no longer waited for. Returns `false` if some are left.
    pub(super) async fn end_runs_once(&self) -> bool {
        let mut tried = BTreeSet::<RunId>::new();
        loop {
            let untried = |run: &&ReleaseRun| !tried.contains(&run.id);
            let next: Vec<ReleaseRun> =
                self.ending_runs.with(|runs| runs.iter().filter(untried).take(ENDED_AT_ONCE).cloned().collect());
            if next.is_empty() {
                return self.ending_runs.with(|runs| runs.is_empty());
            }
            tried.extend(next.iter().map(|run| run.id));
            join_all(next.iter().map(|run| self.end_one_run(run))).await;
        }
    }

    async fn end_one_run(&self, run: &ReleaseRun) {
        if self.end_run(run).await {
            self.ending_runs.with(|runs| runs.retain(|other| other != run));
        }
    }
}

/// Waits for a hint of the platform, if it answers.
async fn changed(runner: &dyn ReleaseRunner, run: &ReleaseRun, answers: bool) {
    if answers {
        runner.changed(run).await;
    } else {
        pending::<()>().await;
    }
}

/// The verdict of a run.
struct Found {
    verdict: Verdict,
    value: Option<String>,
    message: String,
}

impl Found {
    fn none(why: &str) -> Self {
        Self { verdict: Verdict::None, value: None, message: why.to_owned() }
    }

    fn pass() -> Self {
        let message = "The command ended with exit code 0.".to_owned();
        Self { verdict: Verdict::Pass, value: Some(CONDITION.to_owned()), message }
    }

    /// A command that came to its own end fails; anything else that ended it is no verdict.
    fn of(failure: &ReleaseFailure) -> Self {
        let is_its_own = failure.began && failure.reason.as_str() == Reason::RELEASE_FAILED;
        let code = failure.exit_code.filter(|code| is_its_own && *code != 0 && !ENDED_FROM_OUTSIDE.contains(code));
        let message = format!("{}.", by_hand::worded(&failure.message).trim_end_matches('.'));
        let message = match last_lines(&failure.log, MESSAGE_MAX.saturating_sub(message.chars().count() + 20)) {
            Some(lines) => format!("{message} Its last lines: {lines}"),
            None => message,
        };
        match code {
            Some(code) => Self { verdict: Verdict::Fail, value: Some(format!("exit code {code}")), message },
            None => Self { verdict: Verdict::None, value: None, message },
        }
    }

    fn measurement(&self, at: crate::time::Timestamp) -> Measurement {
        let measurement = Measurement::new(at, self.verdict, &self.message);
        match &self.value {
            Some(value) => measurement.of(value),
            None => measurement,
        }
    }
}

/// Returns the last lines of a log that have room in so many characters, in one line; of a line that is too long its begin.
/// `None` if there are none.
fn last_lines(log: &[String], room: usize) -> Option<String> {
    let mut lines = Vec::new();
    let mut left = room;
    for line in log.iter().rev().map(|line| without_tokens(line.trim())).filter(|line| !line.is_empty()) {
        let length = line.chars().count();
        if length > left && !lines.is_empty() {
            break;
        }
        lines.push(line.chars().take(left).collect::<String>());
        left = left.saturating_sub(length + 3);
    }
    lines.reverse();
    (!lines.is_empty()).then(|| lines.join(" / "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(reason: &str, exit_code: Option<i32>, log: &[&str]) -> ReleaseFailure {
        let message = "The release command ended.".to_owned();
        let log = log.iter().map(|line| (*line).to_owned()).collect();
        ReleaseFailure { began: true, reason: Reason::new(reason), message, exit_code, log }
    }

    #[test]
    fn only_a_command_that_came_to_its_own_end_fails() {
        let verdict = |failure: &ReleaseFailure| Found::of(failure).verdict;
        for code in [1, 2, 126, 127, 139, 255, -1] {
            assert_eq!(verdict(&failure(Reason::RELEASE_FAILED, Some(code), &[])), Verdict::Fail, "{code}");
        }
        for (reason, code) in [
            (Reason::RELEASE_FAILED, None),
            (Reason::RELEASE_FAILED, Some(0)),
            (Reason::RELEASE_FAILED, Some(137)),
            (Reason::RELEASE_FAILED, Some(143)),
            (Reason::RELEASE_UNKNOWN, Some(1)),
            (Reason::CANCELLED, Some(1)),
            ("Evicted", Some(1)),
            ("OOMKilled", Some(1)),
        ] {
            assert_eq!(verdict(&failure(reason, code, &[])), Verdict::None, "{reason} {code:?}");
        }
        let unpulled = ReleaseFailure { began: false, ..failure(Reason::RELEASE_FAILED, Some(1), &[]) };
        assert_eq!(verdict(&unpulled), Verdict::None);
    }

    #[test]
    fn message_has_the_last_lines_that_fit() {
        let found = Found::of(&failure(Reason::RELEASE_FAILED, Some(1), &["one", "", "GET / is 500"]));
        assert_eq!(found.message, "The command ended. Its last lines: one / GET / is 500");
        let long = "x".repeat(500);
        for log in [vec![long.as_str()], vec![long.as_str(), "the end"], vec!["the begin", long.as_str()]] {
            let found = Found::of(&failure(Reason::RELEASE_FAILED, Some(1), &log));
            assert!(found.message.chars().count() <= MESSAGE_MAX, "{}", found.message);
        }
        let two = Found::of(&failure(Reason::RELEASE_FAILED, Some(1), &[long.as_str(), "the end"]));
        assert!(two.message.ends_with("Its last lines: the end"), "{}", two.message);
    }
}
