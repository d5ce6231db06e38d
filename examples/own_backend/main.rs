//! A backend of one's own: rollhook's stores in one JSON file, enough for a handful of apps on one machine.
//!
//! ```text
//!   store.rs      HistoryStore · TokenStore: the ports
//!   contents.rs   the contents of the file, and the rules by which a commit changes them
//!   file.rs       read whole, changed under a lock, replaced in one step
//!   tests.rs      the conformance suite, which says whether all of that is right
//! ```
//!
//! The core decides and a store keeps: of an app's state it needs to know the names, the lease and the queue time.
//! Every call reads the whole file and blocks its thread meanwhile; a store for many apps would not.
//!
//! `cargo run -p rollhook-examples --bin own_backend` deploys, drops everything but the file, and goes on from there.

mod contents;
mod file;
mod store;
#[cfg(test)]
mod tests;

use std::{error::Error, future, path::Path, sync::Arc, time::Duration};

use file::JsonStore;
use rollhook::{
    Builder, TokioClock,
    action::Action,
    app::Policy,
    deploy::Actor,
    image::ImageRef,
    memory::SimulatedCluster,
    ports::Page,
    request::{DeployRequest, Registration},
    sealing::KeyRing,
    service::Deployer,
    wall_clock,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    println!("A first process registers an app:");
    process(directory.path(), "registry.example.com/api:v1").await?;
    println!("It is gone. A second process knows the app from the file, and deploys:");
    process(directory.path(), "registry.example.com/api:v2").await
}

/// Runs the service on the file for one deploy, and drops it as if the process were killed.
async fn process(directory: &Path, image: &str) -> Result<(), Box<dyn Error>> {
    // A real key is read from a place that only the service can read.
    let key = KeyRing::of_key([7; 32]);
    let store = Arc::new(JsonStore::open(directory, key, Arc::new(wall_clock)));
    let cluster = Arc::new(SimulatedCluster::new(Arc::new(TokioClock::start()), Duration::from_millis(50)));
    // Both processes have this name, so that the second takes over the first one's leases at once.
    let deployer = Builder::new(store, cluster).replica("host-1").build();
    tokio::select! {
        ended = deployer.run(future::pending()) => Ok(ended?),
        deployed = deploy(&deployer, image.parse()?) => deployed,
    }
}

/// Deploys an image, waits until the deploy has ended, and prints the app's history. An app that the store does not
/// know is registered with the image.
async fn deploy(deployer: &Deployer, image: ImageRef) -> Result<(), Box<dyn Error>> {
    // The platform has authenticated this person itself.
    let alice = Actor::person("alice");
    let app = "shop-test/api".parse()?;
    if let Ok(access) = deployer.allow(alice.clone(), &app, &[Action::Deploy]).await {
        deployer.submit(&access, DeployRequest::image(image)).await?;
    } else {
        let app = Registration::new("shop".parse()?, "test".parse()?, "api".parse()?)
            .image(image)
            .policy(Policy::default().with(|policy| policy.settle = Duration::ZERO));
        deployer.register(&alice, app, None).await?;
    }
    let access = deployer.allow(alice, &app, &[Action::Read]).await?;
    let latest = deployer.state(&access).await?.latest.ok_or("the app has no revision")?;
    deployer.wait(&access, latest, Duration::from_secs(30)).await?;
    let (_, history) = deployer.history(&access, Page::newest(10)).await?;
    for deploy in history {
        let (image, status) = (deploy.image.clone().ok_or("an image app's deploy has an image")?, deploy.status());
        println!("  {}  {}  {status}", deploy.revision, image.unpinned());
    }
    Ok(())
}
