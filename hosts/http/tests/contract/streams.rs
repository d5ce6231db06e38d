//! The open streams of known callers, and what they leave to others, against the real binary.

use std::{io::Read, net::TcpStream};

use rollhook_testing::{App, Call, Server, image, server};
use serde_json::{Value, json};

/// A server with an app whose second deploy never ends.
struct Bench {
    server: Server,
    app: App,
}

impl Bench {
    fn new(server: Server) -> Self {
        let app = server.app_with("api", json!({ "settle": "0s", "rollout_deadline": "10m" }));
        server.post(&app, &image("hang")).expect(202);
        Self { server, app }
    }

    /// Makes a viewer's token.
    fn token(&self, name: &str, realm: &Value) -> String {
        let mut wanted = realm.clone();
        wanted["name"] = json!(name);
        wanted["role"] = json!("viewer");
        let made = self.server.manage("POST", "/api/v1/tokens").json(&wanted).expect(201).json();
        made["token"].as_str().unwrap().to_owned()
    }

    /// The events of the deploy, for a token.
    fn events(&self, token: &str) -> Call {
        let path = format!("{}/deploys/2/events", self.app.path);
        self.server.call("GET", &path).header("authorization", &format!("Bearer {token}"))
    }
}

/// Opens a stream, and waits until it is answered.
fn open(call: &Call) -> TcpStream {
    let mut stream = call.open();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    stream
}

#[test]
fn one_token_has_a_bounded_number_of_streams_with_its_sessions_and_others_have_theirs() {
    let bench = Bench::new(server!().run());
    let token = bench.token("viewer", &json!({}));
    let held: Vec<_> = (0..50).map(|_| open(&bench.events(&token))).collect();
    assert_eq!(bench.events(&token).expect(429).problem(), "rate-limited");

    let form = bench.server.call("POST", "/sign-in").header("content-type", "application/x-www-form-urlencoded");
    let form = form.header("sec-fetch-site", "same-origin").body(format!("token={token}").as_bytes());
    let cookie = form.expect(303).header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let live = bench.server.call("GET", "/apps/shop-test/api/live").header("cookie", &cookie);
    live.expect(429);

    drop(open(&bench.events(&bench.server.admin)));
    let bearer = format!("Bearer {token}");
    bench.server.call("GET", &bench.app.path).header("authorization", &bearer).expect(200);
    drop(held);
}

#[test]
fn tokens_of_one_environment_or_project_leave_streams_to_others() {
    // 444 connections, and so 222 streams: 55 of an environment, 111 of a project.
    let bench = Bench::new(server!().through(["sh", "-c", "ulimit -n 700 && exec \"$@\"", "sh"]).run());
    let test = json!({ "project": "shop", "environment": "test" });
    let [one, other] = ["one", "other"].map(|name| bench.token(name, &test));
    let mut held: Vec<_> = (0..50).map(|_| open(&bench.events(&one))).collect();
    held.extend((0..5).map(|_| open(&bench.events(&other))));
    assert_eq!(bench.events(&other).expect(429).problem(), "rate-limited");
    let [wide, wider] = ["wide", "wider"].map(|name| bench.token(name, &json!({ "project": "shop" })));
    held.extend((0..50).map(|_| open(&bench.events(&wide))));
    held.extend((0..6).map(|_| open(&bench.events(&wider))));
    bench.events(&wider).expect(429);
    drop(open(&bench.events(&bench.token("elsewhere", &json!({})))));
    drop(held);
}
