//! Decisions: one app, whatever is asked of it, whatever its cluster answers, and whenever its driver is killed.
//!
//! ```text
//!   choices ──▶ people and CI ──▶ the ledger ──▶ the store in memory ──▶ check, after every step
//!          ╰──▶ what the cluster answers ──▶ engine::step ⇄ perform ──▶ the witness, which saw it all
//! ```
//!
//! The store is the one that keeps every promise of its port; the cluster is a liar. What the engine says of a deploy
//! is compared with a plain record of what the cluster answered, and what is decided with the whole history read by the
//! rules' own words. In the end the cluster is well, and everything ends.

#![no_main]

mod choices;
mod driver;
mod people;
mod witness;
mod world;

use choices::{Choice, Scenario};
use libfuzzer_sys::fuzz_target;
use world::World;

/// More than these say nothing new, and take long.
const CHOICES_MAX: usize = 48;

fuzz_target!(|scenario: Scenario| {
    let mut world = World::new(scenario.rules);
    for choice in scenario.choices.into_iter().take(CHOICES_MAX) {
        match choice {
            Choice::Deploy(image, by) => world.deploy(image, by),
            Choice::Rollback(back) => world.roll_back(back),
            Choice::Cancel(back) => world.cancel(back),
            Choice::ReleaseHolds => world.release_holds(),
            Choice::Rules(rules) => world.change(rules),
            Choice::Cluster(weather) => world.weather = weather,
            Choice::Pass(span) => world.pass(span.millis()),
            Choice::Read => world.read(),
            Choice::Deaf(deaf) => world.deaf = deaf,
            Choice::Kill { after } => world.fuse = Some(after % 8),
            Choice::LoseAnswer => world.lose_answer = true,
        }
        world.keeps_the_rules();
    }
    world.ends();
});
