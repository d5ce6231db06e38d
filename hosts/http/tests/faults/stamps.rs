//! What every Deployment's stamp has been, change by change, however often the API server goes away meanwhile.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use rollhook_testing::beds::Kubectl;
use serde_json::Value;

const PATH: &str = "/apis/apps/v1/namespaces";
const STAMP: &str = "rollhook.dev/revision";
const AGAIN: Duration = Duration::from_millis(100);

/// The revisions that each Deployment has carried, in their order; none for a change that stamped none.
pub type Carried = BTreeMap<String, Vec<u64>>;

/// A watch that begins anew where it was cut off.
pub struct Stamps {
    seen: Arc<Mutex<Carried>>,
    stop: Arc<AtomicBool>,
    child: Arc<Mutex<Option<Child>>>,
    reader: Option<JoinHandle<()>>,
}

impl Stamps {
    pub fn watch(kubectl: Kubectl) -> Self {
        let mut stamps = Self { seen: Arc::default(), stop: Arc::default(), child: Arc::default(), reader: None };
        let reader =
            Reader { kubectl, seen: stamps.seen.clone(), stop: stamps.stop.clone(), child: stamps.child.clone() };
        stamps.reader = Some(thread::spawn(move || reader.run()));
        stamps
    }

    /// What a Deployment carries now.
    pub fn of(&self, deployment: &str) -> u64 {
        self.seen.lock().unwrap().get(deployment).and_then(|carried| carried.last().copied()).unwrap_or(0)
    }

    /// All that was seen.
    pub fn end(mut self) -> Carried {
        self.close();
        std::mem::take(&mut self.seen.lock().unwrap())
    }

    fn close(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(mut child) = self.child.lock().unwrap().take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

impl Drop for Stamps {
    fn drop(&mut self) {
        self.close();
    }
}

struct Reader {
    kubectl: Kubectl,
    seen: Arc<Mutex<Carried>>,
    stop: Arc<AtomicBool>,
    child: Arc<Mutex<Option<Child>>>,
}

impl Reader {
    fn run(self) {
        // From where the watch goes on; none where everything must be listed first.
        let mut version: Option<String> = None;
        while !self.stop.load(Ordering::Relaxed) {
            version = match version {
                None => self.list(),
                Some(version) => self.follow(version),
            };
            thread::sleep(AGAIN);
        }
    }

    fn list(&self) -> Option<String> {
        let namespace = &self.kubectl.namespace;
        let output = self.command(&format!("{PATH}/{namespace}/deployments")).output().unwrap();
        let list: Value = serde_json::from_slice(&output.stdout).ok()?;
        for object in list["items"].as_array()? {
            self.note(object);
        }
        Some(list["metadata"]["resourceVersion"].as_str()?.to_owned())
    }

    /// Notes each change until the watch ends, and says from where it goes on.
    fn follow(&self, mut version: String) -> Option<String> {
        let path = format!("{PATH}/{}/deployments?watch=1&resourceVersion={version}", self.kubectl.namespace);
        let mut child = self.command(&path).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        *self.child.lock().unwrap() = Some(child);
        if self.stop.load(Ordering::Relaxed) {
            self.reap();
            return None;
        }
        for line in output.lines().map_while(Result::ok) {
            let Ok(event) = serde_json::from_str::<Value>(&line) else { break };
            if event["type"] == "ERROR" {
                // Its place is too old.
                self.reap();
                return None;
            }
            self.note(&event["object"]);
            event["object"]["metadata"]["resourceVersion"].as_str()?.clone_into(&mut version);
        }
        self.reap();
        Some(version)
    }

    fn reap(&self) {
        if let Some(mut child) = self.child.lock().unwrap().take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn note(&self, object: &Value) {
        let metadata = &object["metadata"];
        let stamp = metadata["annotations"][STAMP].as_str().and_then(|stamp| stamp.rsplit('/').next()?.parse().ok());
        let name = metadata["name"].as_str().unwrap().to_owned();
        let mut seen = self.seen.lock().unwrap();
        let carried = seen.entry(name).or_default();
        if carried.last().copied() != stamp {
            carried.extend(stamp);
        }
    }

    fn command(&self, path: &str) -> Command {
        let mut command = self.kubectl.command(&["get", "--raw", path]);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        command
    }
}
