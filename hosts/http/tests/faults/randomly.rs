//! Three servers, of which one after the other is killed, or paused for a while, in an order from a seed.

use std::{
    thread,
    time::{Duration, Instant},
};

use rollhook_testing::{
    Start,
    beds::{Fleet, Shared},
    server, usually_or_long,
};

use crate::Run;

/// The first six rounds hold three kills and a pause of each length, and hit every server.
const SEED: u64 = 17;
/// The shortest run, in rounds.
const ROUNDS: usize = 6;
/// The longest run, in rounds.
const MOST_ROUNDS: usize = 400;
/// The shortest run in its long form.
const LONG: Duration = Duration::from_secs(300);
/// The lengths of pauses, in milliseconds: shorter than a heartbeat, shorter than a lease, and past the lease.
const PAUSES: [u64; 3] = [300, 2_000, 17_000];

/// A linear congruential generator: the same seed gives the same rounds.
struct Choices(u64);

impl Choices {
    /// Returns the next choice, a number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

pub fn three_servers_are_killed_and_paused_at_random(shared: Shared, test: &str) {
    let Some(fleet) = Fleet::on_cluster(server!(), shared, test) else { return };
    let replicas = ["first", "second", "third"].map(|name| fleet.replica(name));
    let mut servers = replicas.each_ref().map(Start::run);
    let addresses = servers.each_ref().map(|server| server.address);
    let run = Run::begin(&fleet, addresses);
    let (shortest, begin) = (usually_or_long(Duration::ZERO, LONG), Instant::now());
    let (mut choices, mut kills, mut pauses) = (Choices(SEED), 0, [0; PAUSES.len()]);
    println!("seed {SEED}");
    for round in 0..MOST_ROUNDS {
        if round >= ROUNDS && begin.elapsed() >= shortest {
            break;
        }
        let victim = choices.below(3) as usize;
        if choices.below(2) == 0 {
            let away = choices.below(3_000);
            println!("round {round}: server {victim} is killed, and back after {away} ms");
            kills += 1;
            servers[victim].down();
            thread::sleep(Duration::from_millis(away));
            servers[victim].restart();
        } else {
            let length = choices.below(3) as usize;
            println!("round {round}: server {victim} is paused for {} ms", PAUSES[length]);
            pauses[length] += 1;
            servers[victim].signal("STOP");
            thread::sleep(Duration::from_millis(PAUSES[length]));
            servers[victim].signal("CONT");
        }
        // Few posts until the next fault: the server may still be catching up.
        run.load.goes_on(choices.below(15) as usize);
    }
    run.load.goes_on(40);
    println!(
        "{kills} kills, {pauses:?} pauses of {PAUSES:?} ms, {} posts accepted in {:.0} s",
        run.load.accepted(),
        begin.elapsed().as_secs_f64()
    );
    run.end(&fleet, addresses[choices.below(3) as usize]);
}
