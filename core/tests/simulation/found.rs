//! What the simulation has found, as it was after shrinking: these stay, whatever becomes of the seeds.

use std::time::Duration;

use crate::{
    choices::{Ask, Choice, Key, Kind, Scenario},
    faults::Trouble,
    run::play,
};

fn holds(choices: Vec<Choice>) {
    let scenario =
        Scenario { replicas: 1, settled: true, leave: false, hold_all: false, kinds: [Kind::Image; 2], choices };
    let ended = play(&scenario, None, true);
    assert_eq!(ended.broken, None, "{}", ended.log.join("\n"));
}

fn ask(ask: Ask) -> Choice {
    Choice::Ask { replica: 0, ask }
}

fn post(tag: &'static str) -> Choice {
    ask(Ask::Post { tag, key: Key::None, old_token: false })
}

fn policy(leave: bool) -> Choice {
    ask(Ask::Policy { app: 0, leave, hold_all: false, settle: 3 })
}

fn trouble(call: &'static str, trouble: Trouble) -> Choice {
    Choice::Trouble { replica: 0, call, nth: 0, trouble }
}

#[test]
fn a_store_that_is_slow_while_a_rollout_settles_makes_no_success() {
    let slow = trouble("history.view", Trouble::Slow(Duration::from_secs(20)));
    holds(vec![post("dies"), Choice::Pass(2_000), slow, post("v1"), Choice::Pass(30_000)]);
}

#[test]
fn a_look_whose_answer_is_late_makes_no_success() {
    let late = Trouble::Pause { done: true, time: Duration::from_secs(12) };
    holds(vec![post("dies"), Choice::Pass(3_000), trouble("rollouts.observe", late), Choice::Pass(30_000)]);
}

#[test]
fn a_clock_that_is_set_ahead_makes_no_success() {
    holds(vec![post("dies"), Choice::Pass(3_000), Choice::Clock(40), post("v1"), Choice::Pass(30_000)]);
}

#[test]
fn an_owner_who_wants_failures_put_right_before_one_has_failed_gets_it() {
    holds(vec![policy(true), post("missing"), Choice::Pass(2_000), policy(false), Choice::Pass(60_000)]);
}

#[test]
fn promoting_what_is_being_deleted_is_refused_for_what_it_is() {
    let promote = Ask::Promote { key: Key::None };
    let restart = Choice::Restart { replica: 0, orderly: false, after: 3, renamed: false };
    holds(vec![restart, post("v1"), ask(Ask::Delete { app: 0 }), ask(promote), Choice::Pass(30_000)]);
}
