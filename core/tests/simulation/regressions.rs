//! What the simulation has found, as it was after shrinking: these stay, whatever becomes of the seeds.

use std::time::Duration;

use rollhook_core::requirement::RequirementScope;

use crate::{
    broken::Promise,
    choices::{Ask, Choice, Expects, Key, Kind, Meddling, Scenario, Step},
    faults::InjectedFault,
    requests::{FAILS, HANGS, MIGRATES},
    run::play,
    workloads::{Also, LISTS},
};

/// Apps of one workload.
const ONE: [Also; 3] = [LISTS[0]; 3];

fn holds(choices: Vec<Choice>) {
    hold(Scenario {
        replicas: 1,
        settled: true,
        leave: false,
        hold_all: false,
        polled: false,
        checks: None,
        kinds: [Kind::Image; 2],
        choices,
        also: ONE,
        own: Vec::new(),
        resolves: false,
        followed: false,
        signed: None,
    });
}

fn holds_for_a_git_app(replicas: usize, choices: Vec<Choice>) {
    hold(Scenario {
        replicas,
        settled: true,
        leave: false,
        hold_all: false,
        polled: false,
        checks: None,
        kinds: [Kind::Git; 2],
        choices,
        also: ONE,
        own: Vec::new(),
        resolves: false,
        followed: false,
        signed: None,
    });
}

fn hold(scenario: Scenario) {
    let ended = play(&scenario, None, true);
    assert_eq!(ended.broken, None, "{}", ended.log.join("\n"));
}

fn ask(ask: Ask) -> Choice {
    asked_of(0, ask)
}

fn asked_of(replica: usize, ask: Ask) -> Choice {
    Choice::Ask { replica, ask, struck: None }
}

fn post(tag: &'static str) -> Choice {
    ask(Ask::Post { tag, key: Key::None, old_token: false })
}

fn policy(leave: bool) -> Choice {
    ask(Ask::Policy { app: 0, leave, hold_all: false, settle: 3 })
}

fn fault(call: &'static str, fault: InjectedFault) -> Choice {
    Choice::Fault { replica: 0, call, nth: 0, fault }
}

#[test]
fn a_store_that_is_slow_while_a_rollout_settles_makes_no_success() {
    let slow = fault("history.load", InjectedFault::Slow(Duration::from_secs(20)));
    holds(vec![post("dies"), Choice::Pass(2_000), slow, post("v1"), Choice::Pass(30_000)]);
}

#[test]
fn late_observation_makes_no_success() {
    let late = InjectedFault::Pause { done: true, time: Duration::from_secs(12) };
    holds(vec![post("dies"), Choice::Pass(3_000), fault("rollouts.observe", late), Choice::Pass(30_000)]);
}

#[test]
fn a_clock_that_is_set_ahead_makes_no_success() {
    holds(vec![post("dies"), Choice::Pass(3_000), Choice::Clock(40), post("v1"), Choice::Pass(30_000)]);
}

#[test]
fn process_that_takes_over_behind_a_clock_that_was_set_back_knows_that_an_instance_ended() {
    let crash = fault("rollouts.observe", InjectedFault::Crash { done: false });
    holds(vec![Choice::Clock(-200), post("dies"), Choice::Pass(0), crash, Choice::Pass(30_000)]);
}

#[test]
fn policy_that_is_set_before_the_failure_restores_it() {
    holds(vec![policy(true), post("missing"), Choice::Pass(2_000), policy(false), Choice::Pass(60_000)]);
}

#[test]
fn promotion_from_an_app_that_is_being_deleted_is_refused() {
    let promote = Ask::Promote { key: Key::None };
    let restart = Choice::Restart { replica: 0, orderly: false, after: 3, renamed: false };
    holds(vec![restart, post("v1"), ask(Ask::Delete { app: 0 }), ask(promote), Choice::Pass(30_000)]);
}

#[test]
fn a_source_that_another_replica_changes_while_it_is_built_makes_no_image() {
    let change = asked_of(1, Ask::Source { app: 0, to: 1 });
    holds_for_a_git_app(3, vec![post("v1"), Choice::Pass(250), change]);
}

#[test]
fn build_watcher_sees_changes_made_after_its_last_read() {
    let other = asked_of(2, Ask::Post { tag: "v1", key: Key::None, old_token: false });
    let leaves = Choice::Restart { replica: 2, orderly: true, after: 0, renamed: false };
    let stale = fault("", InjectedFault::Stale);
    holds_for_a_git_app(3, vec![post("hang"), other, leaves, stale, Choice::Pass(250)]);
}

#[test]
fn a_build_that_began_after_its_entry_had_ended_is_ended_by_the_next_one() {
    let adrift = fault("builds.start", InjectedFault::Adrift(Duration::from_secs(20)));
    let away = Choice::Cluster(Meddling::Builder(false));
    let back = Choice::Cluster(Meddling::Builder(true));
    let cancel = ask(Ask::Cancel { app: 0, back: 0 });
    let choices = vec![adrift, post("hang"), away, cancel, back, Choice::Pass(40_000), post("v1")];
    holds_for_a_git_app(1, choices);
}

#[test]
fn a_build_that_begins_while_its_app_is_deleted_is_ended() {
    let late = InjectedFault::Late(Duration::from_secs(1));
    let late = Choice::Fault { replica: 1, call: "history.commit", nth: 0, fault: late };
    let hang = asked_of(1, Ask::Post { tag: "hang", key: Key::None, old_token: false });
    holds_for_a_git_app(2, vec![late, hang, ask(Ask::Delete { app: 0 })]);
}

/// Replicas that poll the source of a git app.
fn polled(replicas: usize, choices: Vec<Choice>) -> Scenario {
    Scenario {
        replicas,
        settled: true,
        leave: false,
        hold_all: false,
        polled: true,
        checks: None,
        kinds: [Kind::Git; 2],
        choices,
        also: ONE,
        own: Vec::new(),
        resolves: false,
        followed: false,
        signed: None,
    }
}

/// Asserts that the rules hold in a scenario, and that backends which break a promise break the rule with these words.
fn is_caught(scenario: Scenario, promise: Promise, words: &str) {
    let ended = play(&scenario, Some(promise), true);
    let log = || ended.log.join("\n");
    assert!(ended.broken.as_ref().is_some_and(|rule| rule.contains(words)), "{:?}\n{}", ended.broken, log());
    hold(scenario);
}

fn roll_back() -> Choice {
    ask(Ask::Rollback { app: 0, back: None, whole: false, expects: Expects::Anything, key: Key::None })
}

/// A rollback goes away from a head, and the branch leaves it and comes back to it.
fn a_held_head_comes_back() -> Scenario {
    let to = |step| Choice::Cluster(Meddling::Head { branch: 0, step });
    let wait = || Choice::Pass(25_000);
    let choices = vec![roll_back(), wait(), to(Step::New("v3")), wait(), to(Step::Back(1)), wait()];
    polled(2, choices)
}

#[test]
fn a_head_that_is_held_is_not_deployed_when_it_comes_back() {
    is_caught(a_held_head_comes_back(), Promise::HoldOfFound, "was found, and is held");
}

/// A replica that follows the repository of an image app, and has deployed its version 10.
fn followed(choices: Vec<Choice>) -> Scenario {
    Scenario { kinds: [Kind::Image; 2], polled: false, resolves: true, followed: true, ..polled(1, choices) }
}

fn push_version() -> Choice {
    Choice::Cluster(Meddling::Publish { tag: "v2", below: false })
}

/// A rollback goes away from the newest version, and the replica's next life finds that one.
fn a_held_version_is_found_again() -> Scenario {
    let restart = Choice::Restart { replica: 0, orderly: false, after: 3, renamed: false };
    let wait = || Choice::Pass(25_000);
    followed(vec![roll_back(), wait(), restart, wait()])
}

/// A rollback goes away from a version that CI has posted, and the registry lists it only then.
fn a_held_version_is_listed_late() -> Scenario {
    let wait = || Choice::Pass(25_000);
    followed(vec![post("v2-20"), wait(), roll_back(), wait(), push_version(), wait()])
}

#[test]
fn version_that_is_held_is_not_followed() {
    for scenario in [a_held_version_is_found_again(), a_held_version_is_listed_late()] {
        is_caught(scenario, Promise::HeldFollowed, "was followed, and is held");
    }
}

/// Version 30 comes right after version 20, which is never deployed, and is withdrawn again.
fn a_followed_version_is_withdrawn() -> Scenario {
    let wait = || Choice::Pass(25_000);
    followed(vec![push_version(), push_version(), wait(), Choice::Cluster(Meddling::Withdraw), wait()])
}

/// Version 20 is pushed while version 95 runs, which CI has posted.
fn a_posted_version_is_above_the_listed_ones() -> Scenario {
    let wait = || Choice::Pass(25_000);
    followed(vec![post("v2-95"), wait(), push_version(), wait()])
}

/// Version 20 is pushed after version 95 has failed, which CI has posted, and no restore is made.
fn a_posted_version_above_the_listed_ones_has_failed() -> Scenario {
    let wait = || Choice::Pass(60_000);
    followed(vec![policy(true), post("crash-95"), wait(), push_version(), wait()])
}

/// A registry sends the hint of version 20 twice, and none of version 30.
fn doubled_and_lost_hints() -> Scenario {
    let wait = || Choice::Pass(25_000);
    let hint = ask(Ask::Hint { app: 0, twice: true });
    followed(vec![push_version(), hint, wait(), push_version(), wait()])
}

#[test]
fn each_version_is_followed_once_though_its_hint_is_doubled_or_lost() {
    let ended = play(&doubled_and_lost_hints(), None, true);
    let log = || ended.log.join("\n");
    assert_eq!(ended.broken, None, "{}", log());
    let count = |what| ended.tally.get(what).copied().unwrap_or_default();
    assert_eq!(count("follow: a hint came twice"), 1, "{}", log());
    assert_eq!(count("follow: a version was followed after a hint"), 1, "{}", log());
    // Version 10 is followed before anything else happens.
    assert_eq!(count("follow: a version was followed without a hint"), 2, "{}", log());
}

#[test]
fn lower_version_is_not_followed() {
    is_caught(a_followed_version_is_withdrawn(), Promise::Downgrade, "goes back to 20, and Some(30) was followed");
    let posted = a_posted_version_is_above_the_listed_ones();
    is_caught(posted, Promise::Downgrade, "goes back to 20, and Some(95) is current");
    let failed = a_posted_version_above_the_listed_ones_has_failed();
    is_caught(failed, Promise::Downgrade, "goes back to 20, and Some(95) was accepted last");
}

/// While an app's release command runs, another one of its group is registered, and deployed.
fn two_apps_of_a_release_group(replicas: usize, apart: u32) -> Scenario {
    let releases = |app, settle| ask(Ask::Policy { app, leave: false, hold_all: false, settle });
    let wait = || Choice::Pass(15_000);
    let choices = vec![
        releases(0, HANGS),
        ask(Ask::Register { app: 2, take_over: true }),
        wait(),
        releases(2, MIGRATES),
        post("v2"),
        Choice::Pass(apart),
        asked_of(1, Ask::Deploy { app: 2, tag: "v1", key: Key::None }),
        Choice::Restart { replica: 1, orderly: false, after: 3, renamed: false },
        wait(),
        wait(),
    ];
    let (kinds, also) = ([Kind::Image; 2], ONE);
    let (settled, leave, hold_all, polled, own) = (true, false, false, false, Vec::new());
    Scenario {
        replicas,
        settled,
        leave,
        hold_all,
        polled,
        checks: None,
        kinds,
        choices,
        also,
        own,
        resolves: false,
        followed: false,
        signed: None,
    }
}

#[test]
fn release_commands_of_a_group_run_one_at_a_time() {
    for replicas in 1..=3 {
        let at_once = play(&two_apps_of_a_release_group(replicas, 0), None, true);
        let waited = at_once.tally.contains_key("rule 18: a release command began as another app waited for its turn");
        assert!(at_once.broken.is_none() && waited, "{}", at_once.log.join("\n"));
        let apart = two_apps_of_a_release_group(replicas, 3_000);
        is_caught(apart, Promise::ReleaseTurns, "runs its command beside one of");
    }
}

/// A branch moves on, and a look is answered by a server that has not heard of it.
fn a_poll_that_lags_behind() -> Scenario {
    let to = |tag| Choice::Cluster(Meddling::Head { branch: 0, step: Step::New(tag) });
    let wait = || Choice::Pass(60_000);
    let stale = fault("branches.head", InjectedFault::Stale);
    let choices = vec![to("v1"), wait(), to("v2"), wait(), stale, wait(), wait()];
    polled(1, choices)
}

#[test]
fn poll_that_lags_behind_deploys_nothing_older() {
    let ended = play(&a_poll_that_lags_behind(), None, true);
    assert_eq!(ended.broken, None, "{}", ended.log.join("\n"));
    let older = ended.tally.contains_key("polling: a look may have found an older head");
    assert!(older, "{}", ended.log.join("\n"));
}

/// A process stops before it brings a second workload to a deploy, and goes on when a newer one has reached the first.
fn a_late_order_for_a_second_workload() -> Scenario {
    let stops = InjectedFault::Pause { done: false, time: Duration::from_secs(40) };
    let stops = |replica| Choice::Fault { replica, call: "rollouts.apply", nth: 1, fault: stops };
    let newer = asked_of(1, Ask::Post { tag: "v3", key: Key::None, old_token: false });
    let cancel = asked_of(1, Ask::Cancel { app: 0, back: 0 });
    let choices = vec![stops(0), stops(1), post("v2"), Choice::Pass(5_000), cancel, newer, Choice::Pass(90_000)];
    Scenario {
        replicas: 2,
        settled: true,
        leave: true,
        hold_all: false,
        polled: false,
        checks: None,
        kinds: [Kind::Image; 2],
        choices,
        also: [LISTS[1]; 3],
        own: Vec::new(),
        resolves: false,
        followed: false,
        signed: None,
    }
}

#[test]
fn late_order_for_a_second_workload_gives_way_to_the_newer_deploy() {
    let ended = play(&a_late_order_for_a_second_workload(), None, true);
    assert_eq!(ended.broken, None, "{}", ended.log.join("\n"));
    let late = ended.tally.contains_key("rule 19: a late order reached a workload before a newer deploy did");
    assert!(late, "{}", ended.log.join("\n"));
}

/// Sequences that few seeds contain, and that every run is to have met.
pub(crate) fn rare() -> Vec<Scenario> {
    let of = |kind, leave, polled, choices| Scenario {
        checks: None,
        replicas: 1,
        settled: true,
        leave,
        hold_all: false,
        polled,
        kinds: [kind, Kind::Image],
        choices,
        also: ONE,
        own: Vec::new(),
        resolves: false,
        followed: false,
        signed: None,
    };
    let roll_back =
        |back| ask(Ask::Rollback { app: 0, back, whole: false, expects: Expects::Anything, key: Key::None });
    let wait = || Choice::Pass(60_000);
    let failed = vec![post("missing"), wait(), roll_back(Some(0)), wait(), roll_back(None), wait()];
    let dies = |call| fault(call, InjectedFault::Crash { done: true });
    let cancelled =
        vec![dies("builds.cancel"), post("hang"), Choice::Pass(1_000), ask(Ask::Cancel { app: 0, back: 0 })];
    let adrift = fault("", InjectedFault::Adrift(Duration::from_secs(20)));
    let reach = |there| Choice::Cluster(Meddling::Reach(there));
    let run = ask(Ask::Run { app: 0, word: "hang", key: Key::None });
    let lost_sight_of = vec![run, Choice::Pass(2_000), reach(false), Choice::Pass(3_700_000), reach(true), wait()];
    let delete = ask(Ask::Delete { app: 0 });
    let deleted = vec![adrift, reach(false), post("v2"), Choice::Pass(300), reach(true), delete.clone(), wait()];
    let without_builder =
        vec![post("hang"), Choice::Pass(1_000), Choice::Cluster(Meddling::Builder(false)), delete, wait()];
    // The restore ends at its deadline, by a clock that is set ahead, and its instances get ready nevertheless.
    let recovered = vec![post("slow"), wait(), post("missing"), Choice::Pass(6_000), Choice::Clock(4_000), wait()];
    let cancel = ask(Ask::Cancel { app: 0, back: 0 });
    let stopped = vec![post("slow"), Choice::Pass(3_000), cancel, Choice::Pass(0), roll_back(None), wait()];
    let enabled = vec![dies("tokens.put"), ask(Ask::Enable), wait()];
    let require = ask(Ask::Require { app: 0, scope: RequirementScope::Environment, signer: Some(1) });
    let never_ran = vec![post("crash"), wait(), require, roll_back(Some(1)), wait()];
    let resolved = |followed, choices| Scenario { resolves: true, followed, ..of(Kind::Image, false, false, choices) };
    vec![
        of(Kind::Image, true, false, stopped),
        of(Kind::Image, false, false, enabled),
        resolved(false, never_ran),
        resolved(true, vec![dies("registry.tags"), wait()]),
        of(Kind::Image, false, false, recovered),
        of(Kind::Image, true, false, failed),
        of(Kind::Git, false, false, cancelled),
        of(Kind::Image, false, false, deleted),
        of(Kind::Image, false, false, lost_sight_of),
        of(Kind::Git, false, false, without_builder),
        of(Kind::Git, false, true, vec![dies("branches.head"), wait()]),
        of(Kind::Image, false, false, vec![dies("rollouts.evidence"), post("missing"), wait(), wait()]),
        a_poll_that_lags_behind(),
        doubled_and_lost_hints(),
        a_late_order_for_a_second_workload(),
        two_apps_of_a_release_group(2, 0),
        two_apps_of_a_release_group(2, 3_000),
    ]
}

#[test]
fn clock_that_is_set_ahead_during_an_apply_lets_no_newer_deploy_take_over() {
    let late = InjectedFault::Late(Duration::from_secs(4));
    let late = Choice::Fault { replica: 0, call: "history.commit", nth: 2, fault: late };
    let away = Choice::Cluster(Meddling::Reach(false));
    holds(vec![Choice::Order(3), away, late, post("v1"), Choice::Pass(0), Choice::Clock(40), post("v1")]);
}

#[test]
fn apply_that_arrives_after_another_party_changed_the_workload_recovers_its_deploy() {
    let adrift = fault("", InjectedFault::Adrift(Duration::from_secs(4)));
    holds(vec![Choice::Pass(0), adrift, post("v1"), Choice::Cluster(Meddling::Image(0)), Choice::Pass(0)]);
}

#[test]
fn accept_by_a_restarted_replica_takes_no_lease_of_its_former_life() {
    let dies = |replica, ask| {
        let crash = InjectedFault::Crash { done: false };
        Choice::Ask { replica, ask, struck: Some((0, crash)) }
    };
    let posted = || Ask::Post { tag: "v1", key: Key::None, old_token: false };
    holds_for_a_git_app(
        2,
        vec![
            dies(1, Ask::Delete { app: 0 }),
            ask(posted()),
            ask(posted()),
            Choice::Clock(4_000),
            dies(2, posted()),
            ask(posted()),
            Choice::Pass(0),
        ],
    );
}

/// A restore that was cancelled runs well, which nobody has seen for long enough when a deploy begins; the release command
/// of that one fails, and nothing rolls out.
#[test]
fn what_runs_recovers_though_the_deploy_after_it_never_rolled_out() {
    let choices = vec![
        Choice::Pass(3_000),
        ask(Ask::Scale { app: 0, stop: true, expects: Expects::Anything, key: Key::None }),
        post("slow"),
        Choice::Ahead { replica: 0, by: 60 },
        Choice::Restart { replica: 0, orderly: false, after: 3, renamed: true },
        Choice::Clock(-5),
        post("v1"),
        ask(Ask::Policy { app: 0, leave: false, hold_all: false, settle: FAILS }),
        Choice::Pass(13_001),
        ask(Ask::Cancel { app: 0, back: 1 }),
    ];
    hold(Scenario { kinds: [Kind::Git, Kind::Image], ..polled(1, choices) });
}

/// The rollback of a stop that never came to the further workload fails, and what ran there runs on after its restore.
#[test]
fn restore_that_takes_a_stop_back_keeps_what_the_stop_never_came_to() {
    let choices = vec![
        ask(Ask::Scale { app: 0, stop: true, expects: Expects::Anything, key: Key::None }),
        fault("", InjectedFault::Before),
        post("v1"),
        ask(Ask::Rollback { app: 0, back: None, whole: false, expects: Expects::Anything, key: Key::None }),
        Choice::Pass(1500),
        Choice::Ahead { replica: 0, by: 60 },
    ];
    let also = [LISTS[1], LISTS[0], LISTS[0]];
    hold(Scenario { kinds: [Kind::Git, Kind::Image], also, polled: false, ..polled(2, choices) });
}

#[test]
fn a_restore_after_another_one_that_was_superseded_does_not_stop_the_app() {
    let stop = ask(Ask::Scale { app: 0, stop: true, expects: Expects::Current, key: Key::None });
    let cancel = ask(Ask::Cancel { app: 0, back: 0 });
    // Without the workload's deploy id, the restore makes no progress.
    let anew = Choice::Cluster(Meddling::Remove { part: 2, anew: true });
    holds(vec![Choice::Pass(3_000), stop, cancel, anew, post("crash"), Choice::Pass(90_000)]);
}

/// The image of an earlier commit is still being built, which is told to end as its app now requires signatures.
#[test]
fn commit_whose_order_is_known_waits_for_its_place_though_it_can_have_no_signature() {
    let build = ask(Ask::Deploy { app: 0, tag: "hang", key: Key::None });
    let require = ask(Ask::Require { app: 0, scope: RequirementScope::Project, signer: Some(0) });
    let hint = || ask(Ask::Hint { app: 0, twice: false });
    holds_for_a_git_app(1, vec![build, Choice::Pass(0), require, hint(), hint(), post("v3"), Choice::Pass(0)]);
}

/// The image of the first version was never found to be signed, nor did it ever run.
#[test]
fn version_of_a_git_app_that_never_ran_waits_for_its_registry_before_it_is_returned_to() {
    let require = ask(Ask::Require { app: 0, scope: RequirementScope::Project, signer: Some(1) });
    let expects = Expects::Anything;
    let again = ask(Ask::Configure { app: 0, variable: 0, value: 1, staged: false, expects, key: Key::None });
    let fails = Choice::Ahead { replica: 0, by: 60 };
    let choices = vec![Choice::Pass(500), fails, Choice::Pass(100), require, again, Choice::Pass(60_000)];
    hold(Scenario { kinds: [Kind::Git; 2], settled: false, polled: false, resolves: true, ..polled(1, choices) });
}
