//! A backend of one's own: rollhook's stores in one JSON file, enough for a handful of apps on one machine.
//!
//! ```text
//!   store.rs   Apps · Tokens · History    the ports
//!   state.rs   what the file holds, and the rules by which it changes
//!   file.rs    read whole, changed under a lock, replaced in one step
//!   seal.rs    tokens, readable with the key alone
//!   tests.rs   the conformance suite, which says whether all of that is right
//! ```
//!
//! Every call reads the whole file, and blocks its thread for as long; a store for more would not. What it shows is how
//! little a backend is: it needs `rollhook-core` and nothing else of rollhook.
//!
//! `cargo run -p rollhook-examples --bin own_backend` deploys, forgets everything but the file, and goes on from there.

mod file;
mod seal;
mod state;
mod store;
#[cfg(test)]
mod tests;

use std::{error::Error, path::Path, sync::Arc, time::Duration};

use rollhook_core::{
    app::{AppId, Policy, Settings, Source},
    ports::Page,
    request::{DeployRequest, Registration},
    service::{Deployer, Operator, Ports},
};
use rollhook_examples::{OsEntropy, TokioClock, wall_clock};
use rollhook_memory::SimulatedCluster;
use store::JsonStore;
use tokio::sync::oneshot;

const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("store.json");
    println!("a first process registers an app, and deploys:");
    life(&file, true).await?;
    let size = std::fs::metadata(&file)?.len();
    println!("it is gone; the file has {} kB. A second one deploys:", size.div_ceil(1024));
    life(&file, false).await
}

/// One process's life on the file: what is told at its end was not in its memory when it began.
async fn life(file: &Path, first: bool) -> Result<(), Box<dyn Error>> {
    // A real one lies in a file of its own that nobody else can read.
    let key = [7; 32];
    let store = Arc::new(JsonStore::open(file, &key, Arc::new(wall_clock)));
    let clock = Arc::new(TokioClock::start());
    let ports = Ports {
        apps: store.clone(),
        tokens: store.clone(),
        history: store,
        rollouts: Arc::new(SimulatedCluster::new(clock.clone(), Duration::from_millis(50))),
        builder: None,
        clock,
        entropy: Arc::new(OsEntropy),
    };
    let deployer = Arc::new(Deployer::new(ports, "host-1"));
    let (shutdown, asked) = oneshot::channel::<()>();
    let engine = tokio::spawn({
        let deployer = Arc::clone(&deployer);
        async move { deployer.run(async { drop(asked.await) }).await }
    });
    deploy(&deployer, first).await?;
    drop(shutdown);
    engine.await?;
    Ok(())
}

async fn deploy(deployer: &Deployer, first: bool) -> Result<(), Box<dyn Error>> {
    let alice = Operator::trusted("alice");
    let app: AppId = "shop-test/api".parse()?;
    let revision = if first {
        deployer
            .register(&alice, registration()?, None)
            .await?
            .deploy
            .ok_or("an image app has a first revision")?
            .revision
    } else {
        let request = DeployRequest { image: Some("registry.example.com/api:v2".parse()?), commit: None, key: None };
        deployer.submit(&deployer.open(&alice, &app).await?, request).await?.deploy.revision
    };
    let access = deployer.open(&alice, &app).await?;
    deployer.wait(&access, revision, PATIENCE).await?;
    for deploy in deployer.history(&access, Page { before: None, succeeded: false, limit: 10 }).await? {
        let image = deploy.image.clone().map(|image| image.unpinned().to_string()).unwrap_or_default();
        println!("  {}  {image}  {}", deploy.revision, deploy.status());
    }
    Ok(())
}

fn registration() -> Result<Registration, Box<dyn Error>> {
    Ok(Registration {
        project: "shop".parse()?,
        environment: "test".parse()?,
        name: "api".parse()?,
        source: Source::Image,
        target: Settings::new(),
        image: Some("registry.example.com/api:v1".parse()?),
        policy: Policy { settle: Duration::ZERO, ..Policy::default() },
        take_over: false,
    })
}
