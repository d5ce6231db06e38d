//! What a container is made with, changed by a revision of its own.

use rollhook_testing::{server, test_name};
use serde_json::json;

use crate::bench::Bench;

fn memory(bench: &Bench, name: &str) -> u64 {
    let found = bench.docker.run(&["inspect", "--format", "{{.HostConfig.Memory}}", name]);
    found.trim().parse().unwrap()
}

#[test]
fn change_is_a_revision_that_is_restored_and_rolled_back() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let name = bench.name("web");
    bench.start(&name, &["--restart", "unless-stopped", "--memory", "256m"], "app:v1");
    let app = bench.register(&name, &json!({ "policy": { "settle": "1s" } }));
    let cli = bench.cli().with("ROLLHOOK_PROJECT", "shop").with("ROLLHOOK_ENVIRONMENT", "test");
    let run = |command: &str| cli.run(&format!("app {command}"));
    let volume = bench.name("data");
    run(&format!("set {name} --memory 64m --volume {volume}:/data --label team=shop --wait")).ok();
    assert_eq!(memory(&bench, &name), 64 << 20);
    let listed = run(&format!("config list {name}")).ok();
    for words in ["memory", "64m", &format!("{volume}:/data"), "team=shop"] {
        assert!(listed.out.contains(words), "{words}: {listed:?}");
    }
    let same = run(&format!("set {name} --memory 64m")).ok();
    assert!(format!("{}{}", same.out, same.err).contains("just this configuration"), "{same:?}");
    // A variable beside it keeps it, and a deploy too.
    run(&format!("config set {name} MODE=test --plain --wait")).ok();
    run(&format!("deploy {name} app:v2 --wait")).ok();
    assert_eq!((memory(&bench, &name), bench.version(&name).as_str()), (64 << 20, "v2"));
    // Refused before anything is recorded.
    for (flags, words) in [
        ("--network no-such-network", "--network: must be a network"),
        ("--memory 1t", "--memory: must be an amount"),
        ("--volume data", "--volume: must be"),
        ("--label dev.rollhook.name=a", "--label: must"),
    ] {
        let refused = run(&format!("set {name} {flags}")).exits(1);
        assert!(refused.err.contains(words), "{flags}: {refused:?}");
    }
    let newest = run(&format!("history {name} --limit 1")).ok();
    assert!(newest.out.contains("app:v2"), "{newest:?}");
    // A path that nothing answers fails, and the settings before come back.
    run(&format!("set {name} --rollout-deadline 10s")).ok();
    run(&format!("set {name} --memory 96m --readiness-path /nowhere --readiness-port 8080 --wait")).exits(3);
    assert_eq!(bench.ended(&app, 6)["status"], "succeeded");
    assert_eq!(memory(&bench, &name), 64 << 20);
    // Back to revision 1, first without its configuration.
    run(&format!("rollback {name} --revision 1 --wait")).ok();
    assert_eq!((memory(&bench, &name), bench.version(&name).as_str()), (64 << 20, "v1"));
    let back = run(&format!("rollback {name} --revision 1 --with-config --wait")).ok();
    assert!(back.err.contains("-memory"), "{back:?}");
    assert_eq!(memory(&bench, &name), 256 << 20, "as it was before");
    bench.docker.run(&["volume", "rm", &volume]);
}
