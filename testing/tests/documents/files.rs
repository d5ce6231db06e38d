//! Files and programs that the book shows, judged by the programs that read them.

use std::{
    fs,
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use rollhook_testing::{
    Cli, Ended,
    documents::{blocks, page, root},
    fixtures::Receiver,
    process::{program, tool},
    server, skip, test_name,
};
use serde_json::{Value, json};

/// Runs a program on this input, and returns how it ended.
fn run(command: &mut Command, input: &str) -> Ended {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap().into()
}

#[test]
fn signature_check_of_the_book_tells_a_genuine_delivery_from_others() {
    const JUDGE: &str = "
import json, sys
sent = json.load(sys.stdin)
print(*[is_genuine(sent['secret'], sent['headers'], body.encode()) for body in (sent['body'], sent['body'] + ' ')])
";
    if Command::new("python3").arg("--version").output().is_err() {
        return skip(&test_name!(), "python3 is not installed");
    }
    let receiver = Receiver::start();
    let server = server!().variable("ROLLHOOK_ALLOW_LOCAL_RECEIVERS", "true").run();
    let cli = Cli::new(program("rollhook-cli", "rollhook"))
        .with("ROLLHOOK_SERVER", &format!("http://{}", server.address))
        .with("ROLLHOOK_TOKEN", &server.admin);
    let added: Value = cli.run(&format!("receiver add ops --webhook {} -o json", receiver.url)).ok().json();
    cli.run("receiver test ops").ok();
    let sent = receiver.sent().remove(0);
    let sent = json!({ "secret": added["secret"], "headers": sent.headers, "body": sent.body });
    let text = page("docs/notifications.md");
    let program = format!("{}{JUDGE}", blocks(&text, "python")[0]);
    let judged = run(Command::new("python3").args(["-c", &program]), &sent.to_string()).ok();
    assert_eq!(judged.out.trim(), "True False", "{judged:?}");
}

#[test]
fn proxy_file_of_the_book_is_one_that_caddy_reads() {
    let caddy = Path::new("/usr/bin/caddy");
    if !caddy.exists() {
        return skip(&test_name!(), "caddy is not installed");
    }
    let text = page("docs/one-machine.md");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("Caddyfile");
    fs::write(&file, blocks(&text, "text")[0]).unwrap();
    let mut adapt = Command::new(caddy);
    adapt.args(["adapt", "--adapter", "caddyfile", "--config"]).arg(&file).env("HOME", directory.path());
    let read = run(&mut adapt, "").ok().json();
    assert!(read.to_string().contains("web:8080"), "{read}");
}

#[test]
fn scrape_file_of_the_book_is_one_that_prometheus_reads() {
    let Some(promtool) = tool("bin/promtool", &test_name!()) else { return };
    let text = page("docs/metrics.md");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("prometheus.yaml");
    fs::write(&file, blocks(&text, "yaml")[0]).unwrap();
    fs::copy(root().join("packaging/prometheus/alerts.yaml"), directory.path().join("alerts.yaml")).unwrap();
    run(Command::new(promtool).args(["check", "config"]).arg(file), "").ok();
}

#[test]
fn sign_in_file_of_the_book_is_one_that_the_server_starts_with() {
    let text = page("docs/console.md");
    let start = server!();
    let (file, secret) = (start.file("sign-in.yaml"), start.file("client-secret"));
    fs::write(&secret, "secret\n").unwrap();
    let own = blocks(&text, "yaml")[0].replace("/etc/rollhook/client-secret", &secret.display().to_string());
    fs::write(&file, own).unwrap();
    let server =
        start.variable("ROLLHOOK_SIGN_IN", file).variable("ROLLHOOK_BASE_URL", "https://deploys.example.com").run();
    let page = server.call("GET", "/sign-in").expect(200).text();
    assert!(page.contains("Example"), "{page}");
}
