//! Servers that share a store, under load, while they are killed and stopped and what they stand on goes away.
//!
//! After each run: whatever was accepted is in the history, once; no Deployment ever went back to an earlier revision;
//! everything has ended; and the cluster runs what is current.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "a test may")]
#![allow(unreachable_pub, reason = "a test program's modules")]

mod load;
mod pausing;
mod permissions;
mod randomly;
mod stamps;
mod verdict;
mod wire;

use std::{net::SocketAddr, sync::Arc, thread, time::Duration};

use load::{APPS, KEPT, Load};
use rollhook_testing::{
    App, Start,
    beds::{Fleet, Shared},
    server, test_name, until, usually_or_long,
};
use serde_json::json;
use stamps::Stamps;
use wire::Wire;

/// The time without a new entry after which none is expected any more.
const STILL: Duration = Duration::from_secs(5);
const OUTDATED: &str = r#"rollhook_rollout_applies_total{outcome="newer"}"#;

mod postgres {
    use super::{Shared::Postgres, test_name};

    #[test]
    fn servers_are_killed() {
        super::servers_are_killed(Postgres, &test_name!());
    }

    #[test]
    fn servers_are_stopped_past_their_lease() {
        super::servers_are_stopped_past_their_lease(Postgres, &test_name!());
    }

    #[test]
    fn three_servers_are_killed_and_paused_at_random() {
        super::randomly::three_servers_are_killed_and_paused_at_random(Postgres, &test_name!());
    }

    #[test]
    fn the_cluster_goes_away() {
        super::the_cluster_goes_away(Postgres, &test_name!());
    }

    #[test]
    fn the_database_is_restarted() {
        super::the_database_is_restarted(&test_name!());
    }
}

mod kubernetes {
    use super::{Shared::Kubernetes, test_name};

    #[test]
    fn servers_are_killed() {
        super::servers_are_killed(Kubernetes, &test_name!());
    }

    #[test]
    fn servers_are_stopped_past_their_lease() {
        super::servers_are_stopped_past_their_lease(Kubernetes, &test_name!());
    }

    #[test]
    fn three_servers_are_killed_and_paused_at_random() {
        super::randomly::three_servers_are_killed_and_paused_at_random(Kubernetes, &test_name!());
    }

    #[test]
    fn the_cluster_goes_away() {
        super::the_cluster_goes_away(Kubernetes, &test_name!());
    }

    #[test]
    fn an_api_server_that_restarts_fails_no_deploy() {
        super::permissions::an_api_server_that_restarts_fails_no_deploy(Kubernetes, &test_name!());
    }
}

fn servers_are_killed(shared: Shared, test: &str) {
    let Some(fleet) = Fleet::on_cluster(server!(), shared, test) else { return };
    let replicas = [fleet.replica("first"), fleet.replica("second")];
    let mut servers = replicas.each_ref().map(|replica| Some(replica.run()));
    let addresses = servers.each_ref().map(|server| server.as_ref().unwrap().address);
    let run = Run::begin(&fleet, addresses);
    for kill in 0..usually_or_long(8_u64, 60) {
        // Never after the same number of answers, and at no particular moment between two.
        run.load.goes_on(15 + 7 * (kill as usize % 3));
        thread::sleep(Duration::from_micros(9770 * (kill % 7)));
        let victim = kill as usize % 2;
        drop(servers[victim].take());
        if kill % 4 >= 2 {
            run.load.goes_on(10);
        }
        servers[victim] = Some(replicas[victim].run());
    }
    // One stays away: the other one ends what it was at.
    run.load.goes_on(20);
    drop(servers[0].take());
    run.load.goes_on(10);
    run.end(&fleet, addresses[1]);
}

fn servers_are_stopped_past_their_lease(shared: Shared, test: &str) {
    let Some(fleet) = Fleet::on_cluster(server!(), shared, test) else { return };
    let wire = Wire::lay(&fleet.kubectl(), &fleet.file("kubeconfig"));
    wire.write_kubeconfig(&fleet.file("wire"));
    let trigger = fleet.file("trigger");
    let first = fleet.replica("first").variable("KUBECONFIG", fleet.file("wire"));
    let second = pausing::by_this_program(fleet.replica("second"), &trigger);
    let servers = [first.run(), second.run()];
    let run = Run::begin(&fleet, servers.each_ref().map(|server| server.address));
    run.load.goes_on(20);

    // Between the driver's reading and its change: what arrives late is refused by what it was made for.
    let held = wire.hold_next(servers[0].pid());
    run.overtaken(&held.app, held.revision);
    servers[0].signal("CONT");
    assert_eq!(held.release(), 409, "a change that was made for an earlier state");
    // Before the driver reads: it finds a newer revision there, if it is not dropped first by whoever lost the app.
    let (app, revision) = pausing::at_next_order(&trigger);
    run.overtaken(&app, revision);
    pausing::release(&trigger);
    servers[1].signal("CONT");
    until("the order has come to nothing", || pausing::was_dropped(&trigger) || servers[1].counted(OUTDATED) > 0);

    run.load.goes_on(20);
    run.end(&fleet, servers[1].address);
}

fn the_cluster_goes_away(shared: Shared, test: &str) {
    let Some(fleet) = Fleet::on_cluster(server!(), shared, test) else { return };
    let cluster = fleet.cluster.as_ref().unwrap();
    let replicas = [fleet.replica("first"), fleet.replica("second")];
    let servers = replicas.each_ref().map(Start::run);
    let addresses = servers.each_ref().map(|server| server.address);
    let run = Run::begin(&fleet, addresses);
    for (name, away, back) in [
        ("apiserver", "stop", "start"),
        ("etcd", "stop", "start"),
        ("apiserver", "pause", "resume"),
        ("etcd", "pause", "resume"),
    ] {
        run.load.goes_on(20);
        cluster.service(name, away);
        match shared {
            // The store is away as well: nothing is accepted, and nobody is told anything else.
            Shared::Kubernetes => thread::sleep(Duration::from_secs(6)),
            // That is no reason to refuse.
            Shared::Postgres => run.load.goes_on(40),
        }
        cluster.service(name, back);
    }
    run.load.goes_on(40);
    run.end(&fleet, addresses[0]);
}

fn the_database_is_restarted(test: &str) {
    let Some(fleet) = Fleet::on_cluster(server!(), Shared::Postgres, test) else { return };
    let postgres = fleet.postgres.as_ref().unwrap();
    let replicas = [fleet.replica("first"), fleet.replica("second")];
    let servers = replicas.each_ref().map(Start::run);
    let addresses = servers.each_ref().map(|server| server.address);
    let run = Run::begin(&fleet, addresses);
    for (round, how) in ["stop", "kill", "stop", "kill", "kill"].into_iter().enumerate() {
        run.load.goes_on(20 + round);
        postgres.control(how);
        // Now and then it is back before anybody has noticed.
        thread::sleep(Duration::from_millis(700 * (round as u64 % 3)));
        postgres.control("start");
    }
    run.load.goes_on(40);
    run.end(&fleet, addresses[0]);
}

/// Apps under load, and the watch on what they run.
struct Run {
    apps: Arc<Vec<App>>,
    stamps: Stamps,
    load: Load,
}

impl Run {
    /// Each server gets its share of the apps to drive. Their histories keep every deploy of the run.
    fn begin<const N: usize>(fleet: &Fleet, servers: [SocketAddr; N]) -> Self {
        let policy = json!({ "settle": "0s", "keep": KEPT });
        let app = |number: usize| fleet.app_with(servers[number * N / APPS], &format!("app{number}"), &policy);
        let apps: Arc<Vec<App>> = Arc::new((0..APPS).map(app).collect());
        let stamps = Stamps::watch(fleet.kubectl());
        let load = Load::start(servers.to_vec(), apps.clone());
        Self { apps, stamps, load }
    }

    /// Waits until another replica has brought the app to a later revision.
    fn overtaken(&self, app: &str, revision: u64) {
        until("another replica goes on", || self.stamps.of(app) > revision);
    }

    /// Ends the load, waits until everything is over, and checks all of it.
    fn end(self, fleet: &Fleet, server: SocketAddr) {
        let posts = self.load.end();
        let mut histories = verdict::at_rest(fleet, server, &self.apps);
        // A call whose client has given up may be accepted yet, by a server that was stopped meanwhile.
        for _ in 0..10 {
            thread::sleep(STILL);
            let before = std::mem::replace(&mut histories, verdict::at_rest(fleet, server, &self.apps));
            if histories == before {
                break;
            }
        }
        verdict::check(fleet, &self.apps, &histories, &posts, &self.stamps.end());
    }
}
