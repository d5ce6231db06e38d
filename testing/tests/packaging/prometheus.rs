//! Metrics as Prometheus reads them, by its own tools; the alerts and the dashboard on top of them.

use std::{
    collections::BTreeSet,
    env, fs,
    io::Write,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use rollhook_testing::{Call, Server, documents::root, free_address, image, process::tool, server, test_name, until};
use serde_json::{Value, json};

/// A file of the repository.
fn file(path: &str) -> PathBuf {
    root().join(path)
}

fn text(path: &str) -> String {
    fs::read_to_string(file(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The names of metrics in a text, as they are sampled.
fn names(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit();
    let words = text.split(|c: char| !is_part(c)).filter(|word| word.starts_with("rollhook_"));
    words.map(str::to_owned).collect()
}

/// The names that samples of the documented metrics have.
fn documented() -> BTreeSet<String> {
    let page = text("docs/metrics.md");
    let rows = page.lines().filter(|line| line.starts_with("| `rollhook_"));
    rows.flat_map(|row| {
        let mut cells = row.split('|').map(str::trim).skip(1);
        let (name, kind) = (cells.next().unwrap().trim_matches('`'), cells.next().unwrap());
        let parts: &[&str] = if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        parts.iter().map(move |part| format!("{name}{part}")).collect::<Vec<_>>()
    })
    .collect()
}

/// A server that has deployed, failed and refused.
fn busy() -> Server {
    let server = server!().variable("ROLLHOOK_METRICS_PER_APP", "10").run();
    let app = server.app_with("api", json!({ "settle": "0s" }));
    server.post(&app, &image("v2")).header("prefer", "wait=50").expect(200);
    server.post(&app, &image("missing")).header("prefer", "wait=50").expect(424);
    server.call("POST", &app.hook).json(&image("v3")).expect(401);
    server
}

/// Lets a program of Prometheus judge.
fn judged(command: &mut Command, input: &str) {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}

#[test]
fn metrics_pass_prometheus_own_check_and_are_documented() {
    let server = busy();
    let metrics = server.call("GET", "/metrics").expect(200).text();
    let unknown: Vec<String> = names(&samples(&metrics)).difference(&documented()).cloned().collect();
    assert_eq!(unknown, Vec::<String>::new(), "these are not in docs/metrics.md");
    for sample in [
        r#"rollhook_app_deploys_ended_total{app_namespace="shop-test",app_name="api",status="failed"} 1"#,
        r#"rollhook_webhook_answers_total{code="401"} 1"#,
        r#"rollhook_deploys_ended_total{trigger="webhook",status="failed"} 1"#,
        r#"rollhook_deploy_rollout_duration_seconds_count{status="failed"} 1"#,
        "rollhook_store_writable 1",
        "rollhook_replicas 1",
    ] {
        assert!(metrics.contains(sample), "{sample}\n{metrics}");
    }
    let Some(promtool) = tool("bin/promtool", &test_name!()) else { return };
    judged(Command::new(promtool).args(["check", "metrics"]), &metrics);
}

/// The samples of a text, without what describes them.
fn samples(metrics: &str) -> String {
    let samples = metrics.lines().filter(|line| !line.starts_with('#'));
    samples.map(|line| line.split(['{', ' ']).next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

#[test]
fn alerts_pass_prometheus_own_check_and_their_tests() {
    let Some(promtool) = tool("bin/promtool", &test_name!()) else { return };
    let alerts = |name| file(&format!("packaging/prometheus/{name}"));
    judged(Command::new(&promtool).args(["check", "rules", "--lint-fatal"]).arg(alerts("alerts.yaml")), "");
    judged(Command::new(&promtool).args(["test", "rules"]).arg(alerts("alerts.test.yaml")), "");
}

#[test]
fn alerts_and_dashboard_use_metrics_that_exist() {
    let documented = documented();
    for path in ["packaging/prometheus/alerts.yaml", "packaging/prometheus/alerts.test.yaml"] {
        let unknown: Vec<String> = names(&text(path)).difference(&documented).cloned().collect();
        assert_eq!(unknown, Vec::<String>::new(), "{path}");
    }
    let dashboard: Value = serde_json::from_str(&text("packaging/grafana/rollhook.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let expressions = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    for expression in expressions.map(|target| target["expr"].as_str().unwrap()) {
        let used = names(expression);
        assert!(!used.is_empty() && used.is_subset(&documented), "{expression}");
    }
}

#[test]
fn each_alert_has_its_runbook_page_and_its_tests() {
    let (alerts, tests) = (text("packaging/prometheus/alerts.yaml"), text("packaging/prometheus/alerts.test.yaml"));
    let (page, mut names, mut links) = (text("docs/runbook/index.md"), 0, 0);
    for line in alerts.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("- alert: ") {
            names += 1;
            assert!(page.contains(&format!("| `{name}` |")), "{name} is not in docs/runbook/index.md");
            assert!(tests.contains(&format!("        alertname: {name}\n        exp_alerts:")), "{name} is not tested");
        } else if let Some(link) = line.strip_prefix("runbook_url: ") {
            links += 1;
            let runbook = text(link);
            for heading in ["**What it means.**", "**What to look at**", "**What to do"] {
                assert!(runbook.contains(heading), "{link} lacks {heading}");
            }
        }
    }
    assert!(names > 0 && names == links, "{names} alerts, {links} links");
}

/// Prometheus, killed by its own process id when it is dropped.
struct Prometheus(Child);

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn prometheus_scrapes_a_server_and_loads_the_alerts() {
    let Some(prometheus) = tool("bin/prometheus", &test_name!()) else { return };
    let server = busy();
    let (address, directory) = (free_address(), server.recipe().file("prometheus"));
    let settings = format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{}]\nscrape_configs:\n  - job_name: \
         rollhook\n    static_configs: [{{targets: ['{}']}}]\n",
        file("packaging/prometheus/alerts.yaml").display(),
        server.address
    );
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("prometheus.yaml"), settings).unwrap();
    let log = fs::File::create(directory.join("log")).unwrap();
    let child = Command::new(prometheus)
        .arg(format!("--config.file={}", directory.join("prometheus.yaml").display()))
        .arg(format!("--storage.tsdb.path={}", directory.join("data").display()))
        .arg(format!("--web.listen-address={address}"))
        .current_dir(&directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap();
    let _prometheus = Prometheus(child);
    until("prometheus listens", || std::net::TcpStream::connect(address).ok());
    until("prometheus is ready", || (Call::to(address, "GET", "/-/ready").send().status == 200).then_some(()));
    let query = "/api/v1/query?query=rollhook_deploys_ended_total%7Btrigger%3D%22webhook%22,status%3D%22failed%22%7D";
    let value = || {
        let answer = Call::to(address, "GET", query).send();
        let sample = answer.json()["data"]["result"][0]["value"][1].as_str().map(str::to_owned);
        sample.filter(|value| value == "1")
    };
    until("the failed deploy is scraped", value);
    let alerts = text("packaging/prometheus/alerts.yaml").matches("- alert: ").count();
    // The answer is chunked, so it is read as text.
    let rules = || Call::to(address, "GET", "/api/v1/rules").expect(200).text();
    until("all alerts evaluate", || (rules().matches(r#""health":"ok""#).count() == alerts).then_some(()));
}
