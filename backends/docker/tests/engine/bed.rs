//! The lent engine, and what tests do on it with Docker's own client.

use std::{
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
};

use rollhook_testing::beds::Docker;
use serde_json::Value;

/// The part of the engine that one test uses: names that begin alike.
pub(crate) struct Bed {
    pub(crate) docker: Docker,
    prefix: String,
}

impl Bed {
    /// The lent engine, or the reason why there is none.
    pub(crate) fn lent() -> Result<Self, &'static str> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let prefix = format!("t{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Ok(Self { docker: Docker::lent()?, prefix })
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.docker.socket()
    }

    /// A name that no other test uses, which may be an image's tag as well.
    pub(crate) fn name(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }

    /// Returns a container as inspecting it tells; `None` if there is none.
    pub(crate) fn inspect(&self, container: &str) -> Option<Value> {
        let found: Value = serde_json::from_str(&self.docker.try_run(&["container", "inspect", container])?).unwrap();
        Some(found[0].clone())
    }

    /// The ids of the containers whose names begin like this.
    pub(crate) fn containers(&self, name: &str, filters: &[&str]) -> Vec<String> {
        let named = format!("name=^/{name}(\\..*)?$");
        let mut arguments = vec!["ps", "-q", "--no-trunc", "--filter", &named];
        arguments.extend(filters);
        self.docker.run(&arguments).lines().map(str::to_owned).collect()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        // Release commands run in containers that are named after their app.
        let named = format!("name=^/(rollhook.release.[a-z0-9-]*.)?{}-", self.prefix);
        let left = self.docker.run(&["ps", "-aq", "--filter", &named]);
        let mut remove: Vec<&str> = vec!["rm", "-f"];
        remove.extend(left.lines());
        if remove.len() > 2 {
            drop(self.docker.try_run(&remove));
        }
        let networks = self.docker.run(&["network", "ls", "-q", "--filter", &format!("name={}-", self.prefix)]);
        for network in networks.lines() {
            drop(self.docker.try_run(&["network", "rm", network]));
        }
        let tags = self.docker.run(&["image", "ls", "--format", "{{.Repository}}:{{.Tag}}", "app"]);
        for tag in tags.lines().filter(|tag| tag.starts_with(&format!("app:{}-", self.prefix))) {
            drop(self.docker.try_run(&["rmi", tag]));
        }
        let volumes = self.docker.run(&["volume", "ls", "-q", "--filter", &format!("name={}", self.prefix)]);
        let mut remove: Vec<&str> = vec!["volume", "rm"];
        remove.extend(volumes.lines());
        if remove.len() > 2 {
            drop(self.docker.try_run(&remove));
        }
    }
}
