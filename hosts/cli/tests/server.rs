//! Against the real server: both sides of the wire as they are.
//!
//! The server's binary is the one that lies beside ours; where there is none, it is built.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Once,
};

use common::{Ended, Home};

static BUILT: Once = Once::new();

/// A running server with a store in memory.
struct Server {
    child: Child,
    home: Home,
}

impl Server {
    fn start() -> Self {
        let binary = Path::new(env!("CARGO_BIN_EXE_rollhook")).with_file_name("rollhook-server");
        BUILT.call_once(|| build(&binary));
        let home = Home::new();
        let mut child = Command::new(binary)
            .args(["--listen", "127.0.0.1:0", "--store", "memory", "--driver", "simulated:300ms"])
            .env_clear()
            .env("HOME", home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("listening on ").unwrap_or_else(|| panic!("{line}")).to_owned();
        let token = home.path().join(".local/share/rollhook/admin-token");
        let home = home.with("ROLLHOOK_SERVER", &url).with("ROLLHOOK_TOKEN_FILE", token.to_str().unwrap());
        Self { child, home }
    }

    fn run(&self, words: &str) -> Ended {
        self.home.run(words)
    }

    /// Runs a snippet that `enable` printed, as a CI job would.
    fn job(&self, enabled: &serde_json::Value, snippet: &str, image: &str) -> Ended {
        let mut command = Command::new("sh");
        command
            .args(["-c", enabled["snippets"][snippet].as_str().unwrap()])
            .env_clear()
            .env("PATH", std::env::var("PATH").unwrap())
            .env("SERVICE_WEBHOOK_URL", enabled["url"].as_str().unwrap())
            .env("SERVICE_WEBHOOK_TOKEN", enabled["token"].as_str().unwrap())
            .env("IMAGE", image)
            .env("COMMIT", "0123456789abcdef0123456789abcdef01234567");
        command.output().unwrap().into()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn build(binary: &Path) {
    if !binary.exists() {
        let built = Command::new(env!("CARGO")).args(["build", "-p", "rollhook-server"]).status().unwrap();
        assert!(built.success() && binary.exists(), "no server at {}", binary.display());
    }
}

#[test]
fn the_first_operations() {
    let server = Server::start();
    server.run("app create api --image r.example.com/api:one --settle 0s --wait").ok();
    let enabled = server.run("app webhook enable api -o json").ok().json();
    let deployed = server.job(&enabled, "shell", "r.example.com/api:two").ok();
    assert!(deployed.out.contains("\"status\":\"succeeded\""), "{deployed:?}");
    let history = server.run("app history api").ok();
    let first = history.out.lines().nth(1).unwrap();
    assert!(first.starts_with("2   r.example.com/api:two  0123456   webhook    "), "{history:?}");
    let back = server.run("app rollback api --wait").ok();
    assert!(back.out.contains("to revision 1 (r.example.com/api:one): new revision 3\n"), "{back:?}");
    assert!(back.out.ends_with("Revision 3 succeeded: shop-test/api runs r.example.com/api:one\n"), "{back:?}");
    server.run("app webhook disable api").ok();
    let refused = server.job(&enabled, "shell", "r.example.com/api:two").exits(1);
    assert!(refused.out.contains("/problems/unauthorized"), "{refused:?}");
}

#[test]
fn a_failed_deploy_fails_the_job_and_the_command() {
    let server = Server::start();
    server.run("app create api --image r.example.com/api:one --settle 0s --wait").ok();
    server.run("app set api --rollout-deadline 100ms --on-failure leave").ok();
    let enabled = server.run("app webhook enable api -o json").ok().json();
    let failed = server.job(&enabled, "shell", "r.example.com/api:two").exits(1);
    assert!(failed.out.contains("/problems/deploy-failed"), "{failed:?}");
    let failed = server.run("app deploy api --image r.example.com/api:three --wait").exits(3);
    assert!(failed.err.contains("Revision 3 failed (rollout-deadline-exceeded)"), "{failed:?}");
    assert!(server.run("app rollback api --revision 3").exits(6).err.contains("--yes"));
}

#[test]
fn everything_else_is_understood() {
    let server = Server::start();
    server.run("app create api --image r.example.com/api:one --settle 0s --port 80 --env A=b --wait").ok();
    server.run("app create api --environment prod --image r.example.com/api:zero --settle 0s --wait").ok();
    assert!(server.run("app create api --image r.example.com/api:one").exits(1).err.contains("registered already"));
    assert_eq!(server.run("app list --project shop -o json").ok().json()["apps"].as_array().unwrap().len(), 2);
    assert_eq!(server.run("app list --environment test -o json").ok().json()["apps"].as_array().unwrap().len(), 1);
    server.run("app set api --repository r.example.com/api --hold all --settle 1s").ok();
    assert_eq!(server.run("app show api -o json").ok().json()["policy"]["hold"], "all");
    server.run("app set api --settle 0s").ok();
    let promoted = server.run("app promote api --environment prod --from-environment test --wait").ok();
    assert!(promoted.out.contains("Promoting r.example.com/api:one from shop-test/api"), "{promoted:?}");
    server.run("app deploy api --image r.example.com/api:two").ok();
    let deployed = server.run("app deploy api --image r.example.com/api:three --wait").ok();
    assert!(deployed.out.contains("Revision 3 succeeded"), "{deployed:?}");
    server.run("app rollback api --wait").ok();
    assert!(server.run("app show api").ok().out.contains("since rollback 4"));
    server.run("app release-hold api").ok();
    server.run("app set api --settle 1m").ok();
    server.run("app deploy api --image r.example.com/api:five").ok();
    assert!(server.run("app cancel api --revision 5").ok().out.contains("Cancelled revision 5"));
    let page = server.run("app history api --limit 2 -o json").ok().json();
    assert_eq!((page["deploys"].as_array().unwrap().len(), &page["next"]), (2, &page["deploys"][1]["revision"]));
    assert!(server.run("app history api --revision 1").exits(2).err.contains("--revision"));
    assert!(server.run("app webhook status api").exits(1).err.contains("not enabled"));
    server.run("app delete api --yes").ok();
    let gone = server.run("app history api").exits(1);
    assert!(gone.err.contains("no app shop-test/api") && gone.err.contains("request "), "{gone:?}");
}
