//! A steady load through a proxy, while versions come and go behind it.

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rollhook_testing::{Call, free_address, server, skip, test_name, until, usually_or_long};
use serde_json::json;

use crate::bench::{Bench, fetch};

/// Requests per second, all together.
const RATE: u32 = 200;
const SENDERS: u32 = 8;
const CADDY: &str = "/usr/bin/caddy";
const NGINX: &str = "/usr/sbin/nginx";

/// A proxy on the containers' network, which looks the app up by its name. It is started and configured as the page of one
/// machine shows.
fn proxy(bench: &Bench, app: &str) -> SocketAddr {
    let address = free_address();
    let site = shown("```text\nweb.example.com {\n    reverse_proxy web:8080");
    let site = site.replace("web.example.com", ":8080").replace("web:8080", &format!("{app}:8080"));
    let start = shown("```text\ndocker run -d --name proxy --network shop");
    let (_, options) = start.split_once("--network shop").unwrap();
    let (options, _) = options.split_once('…').unwrap();
    let file = bench.server.file("Caddyfile");
    fs::write(&file, format!("{{\n admin off\n auto_https off\n}}\n{site}")).unwrap();
    let mounts = [
        "/usr/bin/caddy:/caddy:ro".to_owned(),
        "/lib:/lib:ro".to_owned(),
        "/lib64:/lib64:ro".to_owned(),
        format!("{}:/Caddyfile:ro", file.display()),
    ];
    let (name, network, port) = (bench.name("proxy"), bench.docker.network(), format!("{address}:8080"));
    let mut run = vec!["run", "-d", "--name", &name, "--network", &network, "-p", &port, "--no-healthcheck"];
    mounts.iter().for_each(|mount| run.extend(["-v", mount]));
    run.extend(options.split_whitespace());
    run.extend(["app:v1", "/caddy", "run", "--config", "/Caddyfile", "--adapter", "caddyfile"]);
    bench.docker.run(&run);
    until("the proxy serves", || fetch(&format!("http://{address}/version")).is_some());
    address
}

/// A proxy that runs on the machine, beside the containers, and knows two ports that versions take in turn.
struct OnMachine {
    process: Child,
    address: SocketAddr,
}

impl OnMachine {
    fn begin(mut command: Command, address: SocketAddr) -> Self {
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        until("the proxy serves", || fetch(&format!("http://{address}/version")).is_some());
        Self { process, address }
    }

    fn caddy(bench: &Bench, ports: [u16; 2]) -> Self {
        let (address, file) = (free_address(), bench.server.file("Caddyfile"));
        let site = page("```text\nweb.example.com {\n    reverse_proxy 127.0.0.1:8081", ports);
        let site = site.replace("web.example.com", &format!("http://{address}")).replace("/healthz", "/version");
        fs::write(&file, format!("{{\n admin off\n auto_https off\n}}\n{site}")).unwrap();
        let mut command = Command::new(CADDY);
        command.args(["run", "--adapter", "caddyfile", "--config"]).arg(file);
        Self::begin(command, address)
    }

    fn nginx(bench: &Bench, ports: [u16; 2]) -> Self {
        let (address, file) = (free_address(), bench.server.file("nginx.conf"));
        let directory = file.parent().unwrap().display().to_string();
        let site = page("```text\nupstream web {", ports).replace("listen 80", &format!("listen {address}"));
        let scratch = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {directory}/nginx-{kind};"));
        let own = format!(
            "daemon off; master_process off; pid {directory}/nginx.pid; error_log {directory}/nginx.log; events {{}}"
        );
        fs::write(&file, format!("{own} http {{ access_log off; {}\n{site} }}", scratch.concat())).unwrap();
        let mut command = Command::new(NGINX);
        command.arg("-c").arg(file);
        Self::begin(command, address)
    }
}

impl Drop for OnMachine {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// The block of the page of one machine that begins with this.
fn shown(beginning: &str) -> String {
    let page = include_str!("../../../../docs/one-machine.md");
    let (_, rest) = page.split_once(beginning).unwrap();
    let shown = format!("{beginning}{}", rest.split("```").next().unwrap());
    shown.trim_start_matches("```text\n").to_owned()
}

/// The configuration that the page of one machine shows, which begins with this, for these ports.
fn page(beginning: &str, [first, second]: [u16; 2]) -> String {
    shown(beginning)
        .replace("127.0.0.1:8081", &format!("127.0.0.1:{first}"))
        .replace("127.0.0.1:8082", &format!("127.0.0.1:{second}"))
}

/// Two ports beside each other that nothing listens on.
fn two_ports() -> [u16; 2] {
    let (mut first, mut second) = (free_address().port(), free_address().port());
    while second != first + 1 {
        (first, second) = (second, free_address().port());
    }
    [first, second]
}

/// Requests that are sent until this is ended.
struct Load {
    ended: Arc<AtomicBool>,
    served: Arc<AtomicU64>,
    failed: Arc<Mutex<Vec<String>>>,
    /// The time that the slowest request took, in milliseconds.
    slowest: Arc<AtomicU64>,
    senders: Vec<thread::JoinHandle<()>>,
}

impl Load {
    fn begin(address: SocketAddr) -> Self {
        let (ended, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let failed: Arc<Mutex<Vec<String>>> = Arc::default();
        let slowest: Arc<AtomicU64> = Arc::default();
        let pause = Duration::from_secs(1) / RATE * SENDERS;
        let sender = |_| {
            let (ended, served, failed, slowest) = (ended.clone(), served.clone(), failed.clone(), slowest.clone());
            thread::spawn(move || {
                let mut next = Instant::now();
                while !ended.load(Ordering::Relaxed) {
                    let sent = Instant::now();
                    let reply = Call::to(address, "GET", "/version").send();
                    let took = u64::try_from(sent.elapsed().as_millis()).unwrap();
                    slowest.fetch_max(took, Ordering::Relaxed);
                    if reply.status == 200 && reply.text().starts_with('v') {
                        served.fetch_add(1, Ordering::Relaxed);
                    } else {
                        let failure = format!("{} {} after {took} ms", reply.status, reply.text());
                        failed.lock().unwrap().push(failure);
                    }
                    next += pause;
                    thread::sleep(next.saturating_duration_since(Instant::now()));
                }
            })
        };
        let senders = (0..SENDERS).map(sender).collect();
        Self { ended, served, failed, slowest, senders }
    }

    fn end(self) -> (u64, Vec<String>) {
        self.ended.store(true, Ordering::Relaxed);
        self.senders.into_iter().for_each(|sender| sender.join().unwrap());
        println!("the slowest request took {} ms", self.slowest.load(Ordering::Relaxed));
        (self.served.load(Ordering::Relaxed), self.failed.lock().unwrap().clone())
    }
}

fn no_request_fails_behind(program: &str, proxy: fn(&Bench, [u16; 2]) -> OnMachine, test: &str) {
    if !Path::new(program).exists() {
        return skip(test, &format!("{program} is not installed"));
    }
    let Some(bench) = Bench::lent(server!(), test) else { return };
    let (name, [first, second]) = (bench.name("web"), two_ports());
    let template = json!({
        "publish": [format!("127.0.0.1:{first}-{second}:8080")], "network": bench.docker.network(), "port": 8080,
        "readiness_path": "/version"
    });
    let app = bench.register(&name, &json!({ "image": "app:v1", "template": template }));
    let shown = bench.server.manage("GET", &app.path).expect(200).json();
    assert_eq!(shown["workload"]["replace"], "start-first", "{shown}");
    let proxy = proxy(&bench, [first, second]);
    let load = Load::begin(proxy.address);
    let (good, bad) = usually_or_long((3, 1), (20, 5));
    for deploy in 0..good {
        bench.succeeds(&app, if deploy % 2 == 0 { "app:v2" } else { "app:v1" });
        if deploy < bad {
            // The restore finds both ports taken, until the failed version has ended.
            let failed = bench.fails(&app, "app:crash");
            let restored = bench.ended(&app, failed["revision"].as_u64().unwrap() + 1);
            assert_eq!(restored["status"], "succeeded", "{restored}");
        }
    }
    let (served, failed) = load.end();
    assert!(failed.is_empty(), "{} of {} requests failed: {:?}", failed.len(), served, failed.first());
    assert!(served > 1000, "{served} requests are no load");
}

#[test]
fn no_request_fails_behind_caddy_on_the_machine() {
    no_request_fails_behind(CADDY, OnMachine::caddy, &test_name!());
}

#[test]
fn no_request_fails_behind_nginx_on_the_machine() {
    no_request_fails_behind(NGINX, OnMachine::nginx, &test_name!());
}

#[test]
fn version_that_ends_soon_after_it_was_ready_takes_no_place_and_costs_no_request() {
    if !Path::new(CADDY).exists() {
        return skip(&test_name!(), "caddy is not installed");
    }
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let name = bench.name("web");
    bench.start(&name, &["--restart", "unless-stopped"], "app:v1");
    let before = bench.inspect(&name).unwrap();
    let app = bench.register(&name, &json!({ "policy": { "settle": "10s", "on_failure": "leave" } }));
    let load = Load::begin(proxy(&bench, &name));
    let failed = bench.fails(&app, "app:dies");
    assert_eq!(failed["reason"], "container-exited", "{failed}");
    let (served, lost) = load.end();
    assert!(lost.is_empty(), "{} of {served} requests failed: {:?}", lost.len(), lost.first());
    let after = bench.inspect(&name).unwrap();
    for part in ["Id", "State/StartedAt", "Name"].map(|part| format!("/{part}")) {
        assert_eq!(after.pointer(&part), before.pointer(&part), "the one that serves was touched");
    }
    assert!(served > 0 && after["State"]["Running"] == true, "{after}");
}

#[test]
fn no_request_fails_while_versions_come_and_go_behind_a_proxy() {
    if !Path::new(CADDY).exists() {
        return skip(&test_name!(), "caddy is not installed");
    }
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let name = bench.name("web");
    bench.start(&name, &["--restart", "unless-stopped"], "app:v1");
    let app = bench.register(&name, &json!({}));
    let load = Load::begin(proxy(&bench, &name));
    let (good, bad) = usually_or_long((3, 1), (20, 5));
    for deploy in 0..good {
        bench.succeeds(&app, if deploy % 2 == 0 { "app:v2" } else { "app:v1" });
        if deploy < bad {
            let failed = bench.fails(&app, "app:crash");
            bench.ended(&app, failed["revision"].as_u64().unwrap() + 1);
        }
    }
    let (served, failed) = load.end();
    assert!(failed.is_empty(), "{} of {} requests failed: {:?}", failed.len(), served, failed.first());
    assert!(served > 1000, "{served} requests are no load");
}
