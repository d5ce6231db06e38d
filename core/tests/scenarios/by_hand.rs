//! Commands by hand: each rule as a scenario on the whole engine under simulated time.

use std::time::Duration;

use rollhook_core::{
    app::Policy,
    deploy::{Reason, Status},
    ledger::RUNS_MAX,
    ports::{Clock, ReleaseRun, ReleaseRunner},
    request::{IdempotencyKey, KeyHeader, Refusal, RunRequest},
    run::{Run, RunNumber, RunStatus},
    service::{Authorized, Outcome},
};

use crate::world::{World, image};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
/// How long a rollout and a command take.
const DELAY: Duration = Duration::from_secs(8);

fn words(word: &str) -> Vec<String> {
    vec!["bin/fix".to_owned(), word.to_owned()]
}

fn number(number: u64) -> RunNumber {
    RunNumber::new(number).unwrap()
}

impl World {
    async fn begin(&self, access: &Authorized, word: &str) -> Outcome<Run> {
        Ok(self.deployer.begin_run(access, RunRequest::new(words(word))).await?.run)
    }

    async fn run_ended(&self, access: &Authorized, run: u64) -> Run {
        let run = self.deployer.wait_for_run(access, number(run), 10 * HOUR).await.unwrap();
        assert!(run.is_ended(), "{run:?}");
        Run::clone(&run)
    }

    /// The numbers of the runs whose commands have begun, in order.
    fn begun_runs(&self) -> Vec<String> {
        self.cluster.commands_by_hand().iter().map(|begun| begun.run.kind.to_string()).collect()
    }

    /// Waits until the command of a run has begun, within ten minutes.
    async fn command_begins(&self, run: u64) {
        for _ in 0..6000 {
            if self.begun_runs().contains(&format!("run-{run}")) {
                return;
            }
            self.clock.sleep(Duration::from_millis(100)).await;
        }
        panic!("the command of run {run} never begins");
    }

    /// Waits until the app is idle: nothing drives it.
    async fn rests(&self, access: &Authorized) {
        for _ in 0..600 {
            if self.view(access).await.queued_at.is_none() {
                return;
            }
            self.clock.sleep(SECOND).await;
        }
        panic!("the app never rests: {:?}", self.view(access).await);
    }
}

fn message(run: &Run) -> &str {
    &run.state.failure().unwrap().message
}

#[test]
fn command_runs_once_with_the_current_image_and_is_no_revision() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let current = world.deployed(&access, "registry.example.com/api:v2").await;
        let run = world.begin(&access, "users").await.unwrap();
        assert_eq!((run.number, run.status(), &run.actor), (number(1), RunStatus::Preparing, &world.operator));
        let ended = world.run_ended(&access, 1).await;
        assert_eq!((ended.status(), ended.exit_code()), (RunStatus::Succeeded, Some(0)));
        let begun = world.cluster.commands_by_hand();
        assert_eq!((begun.len(), &begun[0].command), (1, &words("users")));
        assert_eq!(Some(&begun[0].image), current.pinned_image().as_ref(), "by its digest");
        world.rests(&access).await;
        assert_eq!(world.quiet(&access).await.len(), 2, "the history has no entry of it");
        assert_eq!(world.effects(), [1, 2]);
        let state = world.view(&access).await;
        assert_eq!((state.runs.latest, state.runs.unfinished), (Some(number(1)), None));
    });
}

#[test]
fn exit_code_of_a_failed_command_is_handed_on() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.begin(&access, "fail-3").await.unwrap();
        let failed = world.run_ended(&access, 1).await;
        assert_eq!((failed.status(), failed.exit_code()), (RunStatus::Failed, Some(3)));
        let end = failed.state.failure().unwrap();
        assert_eq!((end.reason.as_str(), end.began), (Reason::COMMAND_FAILED, true));
        assert_eq!(end.message, "The command ended with exit code 3.");
        let log = world.deployer.run_log(&access, number(1), 0, true).await.unwrap();
        assert!(String::from_utf8(log.bytes).unwrap().contains("it failed"));
    });
}

#[test]
fn second_run_is_refused_while_one_is_unfinished_and_numbers_are_never_reused() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.begin(&access, "users").await.unwrap();
        assert_eq!(world.begin(&access, "again").await, Err(Refusal::RunUnfinished(number(1))));
        world.run_ended(&access, 1).await;
        assert_eq!(world.begin(&access, "again").await.unwrap().number, number(2));
        world.run_ended(&access, 2).await;
        for _ in 0..RUNS_MAX {
            let run = world.begin(&access, "more").await.unwrap().number;
            world.run_ended(&access, run.get()).await;
        }
        let runs = world.deployer.runs(&access).await.unwrap();
        assert_eq!((runs.len(), runs[0].number, runs[RUNS_MAX - 1].number), (RUNS_MAX, number(22), number(3)));
        let gone = world.deployer.wait_for_run(&access, number(2), SECOND).await;
        assert_eq!(gone.unwrap_err(), Refusal::RunNotFound(number(2)));
        world.history(&access).await;
    });
}

#[test]
fn repeated_call_is_answered_with_the_first_ones_run() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let called = |key: &str, word: &str, call: u8| {
            let key = IdempotencyKey { header: KeyHeader::IdempotencyKey, key: key.to_owned(), request: [call; 32] };
            RunRequest::new(words(word)).with(|request| request.key = Some(key))
        };
        let keyed = |key: &str, word: &str| called(key, word, 7);
        let first = world.deployer.begin_run(&access, keyed("a", "users")).await.unwrap();
        let again = world.deployer.begin_run(&access, keyed("a", "users")).await.unwrap();
        assert_eq!((first.replayed, again.replayed, again.run.number), (false, true, number(1)));
        world.run_ended(&access, 1).await;
        let again = world.deployer.begin_run(&access, keyed("a", "users")).await.unwrap();
        assert_eq!((again.replayed, again.run.status()), (true, RunStatus::Succeeded));
        let another = world.deployer.begin_run(&access, called("a", "others", 8)).await;
        assert_eq!(another, Err(Refusal::KeyReused));
        assert_eq!(world.deployer.begin_run(&access, keyed("b", "users")).await.unwrap().run.number, number(2));
        world.run_ended(&access, 2).await;
        assert_eq!(world.begun_runs(), ["run-1", "run-2"]);
    });
}

#[test]
fn app_without_a_version_has_no_image_to_run_with() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.git_app(Policy::default()).await;
        assert_eq!(world.begin(&access, "users").await, Err(Refusal::NothingRuns(access.app().clone())));
    });
}

#[test]
fn command_that_is_too_long_or_has_no_program_is_refused() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let wrong = [
            RunRequest::new(Vec::new()),
            RunRequest::new(vec![" ".to_owned()]),
            RunRequest::new(vec!["x".to_owned(); 65]),
            RunRequest::new(vec!["x".repeat(4097)]),
            RunRequest::new(vec!["a\0b".to_owned()]),
            RunRequest::new(words("users")).with(|request| request.deadline = Some(Duration::ZERO)),
            RunRequest::new(words("users")).with(|request| request.deadline = Some(5 * HOUR)),
        ];
        for request in wrong {
            let refused = world.deployer.begin_run(&access, request.clone()).await;
            assert!(matches!(refused, Err(Refusal::InvalidField(..))), "{request:?}: {refused:?}");
        }
        assert_eq!(world.view(&access).await.runs, Default::default());
    });
}

#[test]
fn cancel_ends_a_command_that_runs_and_one_that_has_not_begun() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.begin(&access, "hang").await.unwrap();
        world.command_begins(1).await;
        world.deployer.cancel_run(&access, number(1)).await.unwrap();
        let ended = world.run_ended(&access, 1).await;
        assert_eq!((ended.status(), ended.may_have_begun()), (RunStatus::Cancelled, true));
        assert!(message(&ended).starts_with("alice cancelled the run."), "{}", message(&ended));
        let again = world.deployer.cancel_run(&access, number(1)).await;
        assert_eq!(again, Err(Refusal::RunEnded(number(1))));
        assert_eq!(world.deployer.cancel_run(&access, number(9)).await, Err(Refusal::RunNotFound(number(9))));

        world.begin(&access, "hang").await.unwrap();
        world.deployer.cancel_run(&access, number(2)).await.unwrap();
        let ended = world.run_ended(&access, 2).await;
        assert_eq!((ended.status(), ended.may_have_begun()), (RunStatus::Cancelled, false));
        assert_eq!(world.begun_runs(), ["run-1"]);
        let none = world.deployer.run_log(&access, number(2), 0, true).await;
        assert_eq!(none, Err(Refusal::NoRunLog(number(2))));
        world.rests(&access).await;
    });
}

#[test]
fn command_is_ended_at_its_deadline() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let request = RunRequest::new(words("hang")).with(|request| request.deadline = Some(60 * SECOND));
        world.deployer.begin_run(&access, request).await.unwrap();
        let ended = world.run_ended(&access, 1).await;
        assert_eq!(ended.status(), RunStatus::Failed);
        let end = ended.state.failure().unwrap();
        assert_eq!((end.reason.as_str(), end.began), (Reason::COMMAND_DEADLINE, true));
        assert_eq!(end.message, "The command did not end within 60 s, and was ended.");
        world.begin(&access, "hang").await.unwrap();
        let ended = world.run_ended(&access, 2).await;
        assert!(ended.updated_at.since(ended.created_at) >= HOUR, "{ended:?}");
    });
}

#[test]
fn deploys_and_runs_do_not_wait_for_each_other() {
    let world = World::new(DELAY);
    world.run(async {
        let policy = Policy::default().with(|policy| policy.release_command = words("migrate"));
        let access = world.app("api", policy).await;
        world.begin(&access, "hang").await.unwrap();
        world.command_begins(1).await;
        let done = world.deployed(&access, "registry.example.com/api:v2").await;
        assert_eq!(done.status(), Status::Succeeded);
        assert_eq!(world.cluster.releases().len(), 2, "its release command ran beside the command by hand");
        let run = world.deployer.runs(&access).await.unwrap()[0].clone();
        assert_eq!(
            (run.status(), &run.image.clone().unpinned()),
            (RunStatus::Running, &image("registry.example.com/api:v1"))
        );
        world.deployer.cancel_run(&access, number(1)).await.unwrap();
        world.run_ended(&access, 1).await;
        world.deploy(&access, "registry.example.com/api:hang").await.unwrap();
        world.sleep(30).await;
        assert_eq!(world.entry(&access, 3).await.status(), Status::RollingOut);
        world.begin(&access, "users").await.unwrap();
        assert_eq!(world.run_ended(&access, 2).await.status(), RunStatus::Succeeded);
        assert_eq!(world.entry(&access, 3).await.status(), Status::RollingOut);
    });
}

#[test]
fn lock_refuses_no_run() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let owner = rollhook_core::lock::PrincipalKey::of("name", &["alice"]);
        let lock = rollhook_core::service::NewLock { reason: "a freeze".parse().unwrap(), owner, ttl: None };
        world.deployer.set_lock(&access, None, Some(lock)).await.unwrap();
        assert!(matches!(world.deploy(&access, "registry.example.com/api:v2").await, Err(Refusal::Locked(_))));
        world.begin(&access, "users").await.unwrap();
        assert_eq!(world.run_ended(&access, 1).await.status(), RunStatus::Succeeded);
    });
}

#[test]
fn take_over_goes_on_with_a_run_and_starts_nothing_again() {
    let world = World::new(DELAY);
    let access = world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.begin(&access, "hang").await.unwrap();
        world.command_begins(1).await;
        access
    });
    let second = world.replica("two", 7);
    world.run_beside(&second, async {
        world.sleep(60).await;
        assert_eq!(world.deployer.runs(&access).await.unwrap()[0].status(), RunStatus::Running);
        second.cancel_run(&access, number(1)).await.unwrap();
        let ended = second.wait_for_run(&access, number(1), HOUR).await.unwrap();
        assert_eq!(ended.status(), RunStatus::Cancelled);
        assert_eq!(world.begun_runs(), ["run-1"]);
    });
}

#[test]
fn lost_run_ends_unknown_and_is_not_run_again() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.begin(&access, "hang").await.unwrap();
        world.command_begins(1).await;
        world.cluster.lose_releases();
        let ended = world.run_ended(&access, 1).await;
        assert_eq!((ended.status(), ended.exit_code()), (RunStatus::Unknown, None));
        assert_eq!(ended.state.failure().unwrap().reason.as_str(), Reason::COMMAND_UNKNOWN);
        world.sleep(600).await;
        assert_eq!(world.begun_runs(), ["run-1"]);
        world.rests(&access).await;
    });
}

#[test]
fn command_that_was_cancelled_while_the_platform_was_away_is_told_to_end_and_has_the_time_to() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.begin(&access, "hang").await.unwrap();
        world.command_begins(1).await;
        world.cluster.set_reachable(false);
        world.deployer.cancel_run(&access, number(1)).await.unwrap();
        world.sleep(1_200).await;
        world.cluster.set_reachable(true);
        assert_eq!(world.run_ended(&access, 1).await.status(), RunStatus::Cancelled);
    });
}

#[test]
fn command_that_does_not_end_though_it_was_told_to_is_given_up() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.begin(&access, "hang").await.unwrap();
        world.command_begins(1).await;
        world.cluster.keep_releases(true);
        world.deployer.cancel_run(&access, number(1)).await.unwrap();
        let ended = world.run_ended(&access, 1).await;
        assert_eq!(ended.status(), RunStatus::Unknown);
        assert!(message(&ended).contains("is not seen to have ended"), "{}", message(&ended));
    });
}

#[test]
fn outage_of_the_platform_moves_the_deadline_on_and_ends_a_run_after_an_hour() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let request = RunRequest::new(words("hang")).with(|request| request.deadline = Some(300 * SECOND));
        world.deployer.begin_run(&access, request.clone()).await.unwrap();
        world.command_begins(1).await;
        world.cluster.set_reachable(false);
        world.sleep(900).await;
        assert_eq!(world.deployer.runs(&access).await.unwrap()[0].status(), RunStatus::Running);
        world.cluster.set_reachable(true);
        world.sleep(60).await;
        assert_eq!(world.deployer.runs(&access).await.unwrap()[0].status(), RunStatus::Running);
        let ended = world.run_ended(&access, 1).await;
        assert_eq!(ended.state.failure().unwrap().reason.as_str(), Reason::COMMAND_DEADLINE);
        world.deployer.begin_run(&access, request).await.unwrap();
        world.command_begins(2).await;
        world.cluster.set_reachable(false);
        let ended = world.run_ended(&access, 2).await;
        assert_eq!(ended.status(), RunStatus::Unknown);
        assert!(message(&ended).starts_with("The cluster could not be reached for an hour"), "{}", message(&ended));
    });
}

#[test]
fn deleted_app_leaves_no_command_behind() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.begin(&access, "hang").await.unwrap();
        world.command_begins(1).await;
        world.deployer.delete(&access).await.unwrap();
        let run = ReleaseRun::by_hand(access.app(), access.uid(), number(1));
        let state = ReleaseRunner::observe(&*world.cluster, &run).await.unwrap();
        assert!(state.is_ended(), "{state:?}");
        assert!(matches!(world.deployer.runs(&access).await, Err(Refusal::AppNotFound(_))));
    });
}

#[test]
fn log_is_followed_to_its_end() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.begin(&access, "users").await.unwrap();
        let first = world.deployer.run_log(&access, number(1), 0, false).await.unwrap();
        assert_eq!((first.bytes.len(), first.last), (0, true), "it has not begun");
        let mut log = Vec::new();
        loop {
            let part = world.deployer.run_log(&access, number(1), log.len() as u64, true).await.unwrap();
            log.extend(part.bytes);
            if part.last {
                break;
            }
        }
        assert!(String::from_utf8(log).unwrap().ends_with("it ended\n"));
        let none = world.deployer.run_log(&access, number(9), 0, true).await;
        assert_eq!(none, Err(Refusal::RunNotFound(number(9))));
    });
}

#[test]
fn state_of_before_runs_is_read() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        let state = world.view(&access).await;
        let stored = serde_json::to_value(&state).unwrap();
        assert_eq!(stored.get("runs"), None, "an app without runs is stored as before");
        assert_eq!(serde_json::from_value::<rollhook_core::ledger::AppState>(stored).unwrap(), state);
    });
}
