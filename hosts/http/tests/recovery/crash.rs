//! The real binary killed with SIGKILL, again and again: what it accepted is in the history, once, and ends.

use std::{
    collections::BTreeMap,
    fs,
    net::SocketAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, SystemTime},
};

use rollhook_core::{
    app::AppId,
    deploy::{Deploy, Revision, Trigger},
    ledger::{AppState, check::check},
    ports::{AppRef, HistoryStore, Page},
    replica::ReplicaId,
    time::Timestamp,
};
use rollhook_sealing::KeyRing;
use rollhook_sqlite::SqliteStore;
use rollhook_testing::{App, Call, Connection, Server, free_address, image, server, until, usually_or_long};
use serde_json::json;

const APPS: usize = 10;
const CLIENTS: usize = 6;
/// How often something is looked at before it counts as never happening.
const PATIENCE: usize = 6000;
const PAUSE: Duration = Duration::from_millis(10);

/// What a client made of one post.
#[derive(Debug)]
struct Post {
    app: usize,
    /// Its commit, which no other post has.
    label: String,
    keyed: bool,
    outcome: Outcome,
}

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Accepted(u64),
    /// The answer says that nothing was recorded.
    Refused,
    /// There was no answer, or it says that it does not know.
    Unknown,
}

#[test]
fn accepted_deploys_survive_kills_exactly_once_and_end() {
    let address = free_address();
    let mut server = server!().at(address).driver("simulated:20ms").unlimited().run();
    // The whole history is compared, also in the long form.
    let policy = json!({ "settle": "0s", "keep": 10_000 });
    let register = |number| server.app_with(&format!("app{number}"), policy.clone());
    let apps: Arc<Vec<App>> = Arc::new((0..APPS).map(register).collect());
    let load = Arc::new(Load { address, apps: apps.clone(), stop: AtomicBool::new(false), accepted: 0.into() });
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let load = load.clone();
            thread::spawn(move || load.client(number))
        })
        .collect();
    for kill in 0..usually_or_long(20, 200) {
        // After some answers, never the same number of them, and at no particular moment between two.
        let enough = load.accepted.load(Ordering::Relaxed) + 15 + 7 * (kill % 5);
        until("answers come", || load.accepted.load(Ordering::Relaxed) >= enough);
        thread::sleep(Duration::from_micros(977 * (kill as u64 % 11)));
        server.restart();
    }
    load.stop.store(true, Ordering::Relaxed);
    let posts: Vec<Post> = clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
    for app in apps.iter() {
        until("every deploy ends", || all_ended(&server, app));
    }
    let histories = histories(server.kill().directory());
    for (number, (history, state)) in histories.iter().enumerate() {
        verify(number, &apps[number].name, history, state, &posts);
    }
    let unknown = posts.iter().filter(|post| post.outcome == Outcome::Unknown).count();
    println!("{} posts, {unknown} of them without an answer", posts.len());
}

/// What the clients share.
struct Load {
    address: SocketAddr,
    apps: Arc<Vec<App>>,
    stop: AtomicBool,
    accepted: AtomicUsize,
}

impl Load {
    fn client(&self, number: usize) -> Vec<Post> {
        let mut posts = Vec::new();
        let mut connection = None;
        while !self.stop.load(Ordering::Relaxed) {
            let count = posts.len();
            let label = format!("client{number}-post{count}");
            let (app, keyed) = ((number + count) % APPS, count % 2 == 0);
            let outcome = self.post(&mut connection, &self.apps[app], &label, keyed);
            posts.push(Post { app, label, keyed, outcome });
        }
        posts
    }

    /// Posts; with a key, until there is an answer that settles it.
    fn post(&self, connection: &mut Option<Connection>, app: &App, label: &str, keyed: bool) -> Outcome {
        // An image that cannot be pulled now and then, so that rollouts are stuck and given up.
        let broken = app.name == "app9" && label.ends_with('5');
        let tag = if broken { format!("missing-{label}") } else { label.to_owned() };
        let body = json!({ "image": format!("r.example.com/api:{tag}"), "commit": label });
        let call = Call::to(self.address, "POST", &app.hook).header("x-service-token", &app.token).json(&body);
        let call = if keyed { call.header("idempotency-key", label) } else { call };
        for _ in 0..PATIENCE {
            match self.try_post(connection, &call) {
                Some(Outcome::Refused) | None if keyed => thread::sleep(PAUSE),
                Some(outcome) => return outcome,
                None => return Outcome::Unknown,
            }
        }
        panic!("{label} was never answered")
    }

    fn try_post(&self, connection: &mut Option<Connection>, call: &Call) -> Option<Outcome> {
        if connection.is_none() {
            *connection = Connection::open(self.address).ok();
        }
        let Some(open) = connection else {
            // Nothing was sent.
            thread::sleep(PAUSE);
            return Some(Outcome::Refused);
        };
        let Ok(answer) = open.send(call) else {
            *connection = None;
            return None;
        };
        match answer.status {
            202 => {
                self.accepted.fetch_add(1, Ordering::Relaxed);
                Some(Outcome::Accepted(answer.json()["revision"].as_u64().unwrap()))
            }
            429 => Some(Outcome::Refused),
            503 if answer.json()["maybe_recorded"] == true => None,
            503 => Some(Outcome::Refused),
            status => panic!("{status}: {}", answer.text()),
        }
    }
}

fn all_ended(server: &Server, app: &App) -> bool {
    let page = server.manage("GET", &format!("{}/deploys?limit=200", app.path)).expect(200).json();
    let mut deploys = page["deploys"].as_array().unwrap().iter();
    deploys.all(|deploy| matches!(deploy["status"].as_str(), Some("succeeded" | "failed" | "superseded")))
}

/// Every app's history, oldest first, and the view read with it, from the file itself.
fn histories(directory: &Path) -> Vec<(Vec<Deploy>, AppState)> {
    with_store(directory, async |store| {
        let mut histories = Vec::new();
        for number in 0..APPS {
            let state = registered(store, &format!("app{number}")).await;
            let mut history: Vec<Deploy> = Vec::new();
            let mut before = None;
            loop {
                let page = store.page(state.app.uid, Page::newest(500).below(before)).await.unwrap();
                let Some(last) = page.last() else { break };
                before = Some(last.revision);
                history.extend(page);
            }
            history.reverse();
            history.extend(state.unfinished.iter().map(|deploy| Deploy::clone(deploy)));
            histories.push((history, state));
        }
        histories
    })
}

fn verify(number: usize, name: &str, history: &[Deploy], state: &AppState, posts: &[Post]) {
    assert_eq!(check(history, state), []);
    assert_eq!(history.first().map(|deploy| deploy.revision), Some(Revision::FIRST));
    let open: Vec<_> = history.iter().filter(|deploy| !deploy.is_terminal()).collect();
    assert!(open.is_empty(), "{name}: {open:?}");
    let mut found: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for deploy in history.iter().filter(|deploy| deploy.trigger == Trigger::Webhook) {
        let label = deploy.commit.as_ref().unwrap().to_string();
        found.entry(label).or_default().push(deploy.revision.get());
    }
    for post in posts.iter().filter(|post| post.app == number) {
        let revisions = found.remove(&post.label).unwrap_or_default();
        let sound = match post.outcome {
            Outcome::Accepted(revision) => revisions == [revision],
            Outcome::Refused => revisions.is_empty(),
            Outcome::Unknown => revisions.len() <= 1,
        };
        assert!(sound, "{name}: {post:?} is in the history as {revisions:?}");
        assert!(!post.keyed || matches!(post.outcome, Outcome::Accepted(_)), "{post:?}");
    }
    assert!(found.is_empty(), "{name}: nobody posted {found:?}");
}

#[test]
fn a_kill_in_the_middle_of_a_rollout_ends_it_after_the_restart() {
    let server = server!().driver("simulated:3s").unlimited().run();
    let app = server.app("api");
    let entry = |server: &Server| {
        let call = server.call("GET", &format!("{}/deploys/2", app.path));
        call.header("x-service-token", &app.token)
    };
    server.post(&app, &image("next")).expect(202);
    until("it rolls out", || entry(&server).expect(200).json()["status"] == "rolling_out");
    let start = server.kill();
    the_dead_lease_binds_others_only(start.directory(), SystemTime::now().into());
    let server = start.run();
    let answer = entry(&server).header("prefer", "wait=50").expect(200).json();
    assert_eq!(answer["status"], "succeeded", "{answer}");
    assert_eq!(replicas(&server.log()).len(), 2);
}

/// Shown on a copy of what the killed server left, whose clock stands still: no time passes, so that none is waited
/// for.
fn the_dead_lease_binds_others_only(directory: &Path, now: Timestamp) {
    let copy = tempfile::tempdir().unwrap();
    for name in ["rollhook.db", "rollhook.db-wal"] {
        fs::copy(directory.join(name), copy.path().join(name)).unwrap();
    }
    let keys = KeyRing::load(&directory.join("keys")).unwrap();
    let log = fs::read_to_string(directory.join("log")).unwrap();
    let [name] = &replicas(&log)[..] else { panic!("{log}") };
    // The apps that a process of this name may drive at once.
    let free_for = async |store: &SqliteStore, name: &str| {
        let replica = ReplicaId { name: name.to_owned(), boot: 1 };
        let alive = store.heartbeat(&replica, Duration::from_secs(15)).await.unwrap().alive;
        store.work(&alive, 10).await.unwrap()
    };
    with_keys(copy.path(), keys, now, async |store| {
        let state = registered(store, "api").await;
        assert_eq!(free_for(store, "a stranger").await, []);
        assert_eq!(free_for(store, name).await, [state.app.uid]);
    });
}

/// The names under which servers said that they claim work.
fn replicas(log: &str) -> Vec<String> {
    let names = log.lines().filter_map(|line| line.split_once("replica=\"").or_else(|| line.split_once("replica=")));
    names.map(|(_, rest)| rest.split(['"', ' ']).next().unwrap().to_owned()).collect()
}

async fn registered(store: &SqliteStore, name: &str) -> AppState {
    let id = AppId { namespace: "shop-test".parse().unwrap(), name: name.parse().unwrap() };
    store.load(AppRef::Name(&id), None).await.unwrap().unwrap().state
}

fn with_store<T>(directory: &Path, read: impl AsyncFnOnce(&SqliteStore) -> T) -> T {
    with_keys(directory, KeyRing::load(&directory.join("keys")).unwrap(), Timestamp::default(), read)
}

fn with_keys<T>(directory: &Path, keys: KeyRing, now: Timestamp, read: impl AsyncFnOnce(&SqliteStore) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let file = directory.join("rollhook.db");
        let store = SqliteStore::open_with_clock(file, keys, Arc::new(move || now)).await.unwrap();
        read(&store).await
    })
}
