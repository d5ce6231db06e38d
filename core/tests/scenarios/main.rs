//! The rules as scenarios on the whole engine under simulated time. They are one program: what they share is compiled once.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on ends")]

mod at_rest;
mod builds;
mod builds_returning;
mod builds_sources;
mod by_hand;
mod check_commands;
mod checked_instances;
mod checks;
mod configuration;
mod damage;
mod deploy_observers;
mod ended;
mod following;
mod history_turns;
mod images;
mod joined_calls;
mod locks;
mod lost_answers;
mod one_point_in_time;
mod polling;
mod proofs;
mod pushes;
mod redeploys;
mod release_groups;
mod releases;
mod resolving;
mod rules_apps;
mod rules_deploying;
mod rules_returning;
mod set_back;
mod set_checks;
mod shared_looks;
mod signed;
mod starting;
mod stops;
mod stored_images;
mod token_reads;
mod transitions;
mod unreliable_branch_reads;
mod watch;
mod watching;
mod workloads;
mod world;
