//! CI jobs that post through every server, and try another one where they are cut off.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use rollhook_testing::{App, Call as Request, Connection, until};
use serde_json::json;

pub const APPS: usize = 10;
/// The deploys that each app keeps, the most that a policy allows. The clients' pace bounds an app's posts to 16 per
/// second, so this is enough for ten minutes.
pub const KEPT: usize = 10_000;
const CLIENTS: usize = 16;
/// Between two posts of a client.
const PACE: Duration = Duration::from_millis(100);
/// How often a call is repeated before it counts as never answered.
const PATIENCE: usize = 1000;
/// Before it is repeated.
const PAUSE: Duration = Duration::from_millis(100);
/// After this long a job hangs up.
const HANG_UP: Duration = Duration::from_secs(5);

/// What a client made of one post.
#[derive(Debug)]
pub struct Post {
    pub app: usize,
    /// Its commit, which no other post has.
    pub label: String,
    pub keyed: bool,
    pub outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Accepted(u64),
    /// The answer says that nothing was recorded.
    Refused,
    /// There was no answer, or it says that it does not know.
    Unknown,
}

/// What the clients share.
struct Shared {
    servers: Vec<SocketAddr>,
    apps: Arc<Vec<App>>,
    stop: AtomicBool,
    accepted: AtomicUsize,
    repeated: AtomicUsize,
}

/// Clients that post until they are told to stop.
pub struct Load {
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<Vec<Post>>>,
}

impl Load {
    pub fn start(servers: Vec<SocketAddr>, apps: Arc<Vec<App>>) -> Self {
        // On Kubernetes a replica learns from its watch what another has just registered.
        for (server, app) in servers.iter().flat_map(|server| apps.iter().map(move |app| (*server, app))) {
            let first = || Request::to(server, "GET", &format!("{}/deploys/1", app.path));
            let knows = || first().header("x-service-token", &app.token).send().status == 200;
            until("each replica knows the app", knows);
        }
        let (stop, accepted, repeated) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
        let shared = Arc::new(Shared { servers, apps, stop, accepted, repeated });
        let client = |number| {
            let shared = shared.clone();
            thread::spawn(move || shared.client(number))
        };
        let clients = (0..CLIENTS).map(client).collect();
        Self { shared, clients }
    }

    /// How many posts were accepted so far.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::Relaxed)
    }

    /// Waits until so many more posts were accepted: for each of them, as a busy machine is slow.
    pub fn goes_on(&self, posts: usize) {
        let before = self.accepted();
        for more in 1..=posts {
            until("posts are accepted", || self.accepted() >= before + more);
        }
    }

    /// Has the clients end what they are at, and says what came of it all.
    pub fn end(self) -> Vec<Post> {
        self.shared.stop.store(true, Ordering::Relaxed);
        let posts: Vec<Post> = self.clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
        let unknown = posts.iter().filter(|post| post.outcome == Outcome::Unknown).count();
        let repeated = self.shared.repeated.load(Ordering::Relaxed);
        println!("{} posts, {unknown} without an answer, {repeated} calls repeated", posts.len());
        posts
    }
}

impl Shared {
    fn client(&self, number: usize) -> Vec<Post> {
        let mut posts = Vec::new();
        let mut connections: Vec<Option<Connection>> = self.servers.iter().map(|_| None).collect();
        while !self.stop.load(Ordering::Relaxed) {
            let count = posts.len();
            let label = format!("client{number}-post{count}");
            let (app, keyed) = ((number + count) % APPS, count % 4 != 3);
            let call = Call { shared: self, app: &self.apps[app], label: &label, keyed, waits: count % 3 == 0 };
            let outcome = call.settle(&mut connections, count);
            posts.push(Post { app, label, keyed, outcome });
            thread::sleep(PACE);
        }
        posts
    }
}

/// One post.
struct Call<'a> {
    shared: &'a Shared,
    app: &'a App,
    label: &'a str,
    keyed: bool,
    waits: bool,
}

impl Call<'_> {
    /// Posts; with a key, until there is an answer that settles it, to one server after the other.
    fn settle(&self, connections: &mut [Option<Connection>], first: usize) -> Outcome {
        for attempt in 0..PATIENCE {
            let server = (first + attempt) % connections.len();
            let outcome = self.send(server, &mut connections[server]);
            if let Outcome::Accepted(revision) = outcome {
                self.shared.accepted.fetch_add(1, Ordering::Relaxed);
                let other = (server + 1) % connections.len();
                self.check_at(other, &mut connections[other], revision);
            } else if self.keyed {
                self.shared.repeated.fetch_add(1, Ordering::Relaxed);
                thread::sleep(PAUSE);
                continue;
            }
            return outcome;
        }
        panic!("{} was never answered", self.label)
    }

    /// What one server accepted under a key, another one knows, if it answers at all.
    fn check_at(&self, server: usize, connection: &mut Option<Connection>, revision: u64) {
        if self.keyed
            && self.label.ends_with('1')
            && let Outcome::Accepted(known) = self.send(server, connection)
        {
            assert_eq!(known, revision, "{} {}", self.app.name, self.label);
        }
    }

    fn send(&self, server: usize, connection: &mut Option<Connection>) -> Outcome {
        if connection.is_none() {
            *connection = Connection::open_for(self.shared.servers[server], HANG_UP).ok();
        }
        // Nothing was sent.
        let Some(open) = connection else { return Outcome::Refused };
        // An image that cannot be pulled now and then, so that rollouts are stuck and given up.
        let broken = self.app.name == "app9" && self.label.ends_with('5');
        let tag = if broken { format!("missing-{}", self.label) } else { self.label.to_owned() };
        let body = json!({ "image": format!("r.example.com/api:{tag}"), "commit": self.label });
        let call = Request::to(self.shared.servers[server], "POST", &self.app.hook).json(&body);
        let call = call.header("x-service-token", &self.app.token);
        let call = if self.keyed { call.header("idempotency-key", self.label) } else { call };
        let call = if self.waits { call.header("prefer", "wait=3") } else { call };
        let Ok(answer) = open.send(&call) else {
            *connection = None;
            return Outcome::Unknown;
        };
        match answer.status {
            200 | 202 | 424 => Outcome::Accepted(answer.json()["revision"].as_u64().unwrap()),
            503 if answer.json()["maybe_recorded"] == true => Outcome::Unknown,
            429 | 503 => Outcome::Refused,
            status => panic!("{status}: {}", answer.text()),
        }
    }
}
