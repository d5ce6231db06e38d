//! The command line's words about a container that is made, or was there before.

use rollhook_testing::{server, test_name};
use serde_json::json;

use crate::bench::Bench;

#[test]
fn app_shows_what_its_container_was_made_with_and_which_flags_were_not_used() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let (made, found, network) = (bench.name("made"), bench.name("found"), bench.docker.network());
    let cli = bench.cli().with("ROLLHOOK_PROJECT", "shop").with("ROLLHOOK_ENVIRONMENT", "test");
    let flags =
        format!("--image app:v1 --network {network} --port 8080 --env TOKEN=hunter2 --memory 64m --settle 1s --wait");
    let created = cli.run(&format!("app create {made} {flags}")).ok();
    assert!(!created.err.contains("not used"), "{created:?}");
    let shown = cli.run(&format!("app show {made}")).ok().out;
    for line in ["Made with         env TOKEN\n", &format!("  network {network}\n"), "  port 8080\n", "  memory 64m\n"]
    {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    let document = cli.run(&format!("app show {made} -o json")).ok();
    assert_eq!(document.json()["template"]["env"], json!(["TOKEN"]));
    assert!(!shown.contains("hunter2") && !document.out.contains("hunter2"), "{shown}");

    bench.start(&found, &[], "app:v1");
    let adopted = cli.run(&format!("app create {found} {flags}")).ok();
    let note = format!(
        "note: container {found} exists, and stays as it is; not used: --image, --env, --memory, --network, --port"
    );
    assert!(adopted.err.contains(&note), "{adopted:?}");
    assert!(!cli.run(&format!("app show {found}")).ok().out.contains("Made with"), "nothing was made");

    let refused = cli.run(&format!("app create {found}-2 --image app:v1 --readiness-path healthz --port 80")).exits(1);
    assert!(refused.err.contains("error: --readiness-path: must be a path"), "{refused:?}");
}
