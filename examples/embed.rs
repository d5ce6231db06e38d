//! A platform that embeds rollhook: its own process, its own runtime, and no server.
//!
//! It registers an app, deploys, sees a bad version put right, and rolls back:
//! `cargo run -p rollhook-examples --no-default-features --bin embed`. The cluster is a simulated one.

use std::{error::Error, future, sync::Arc, time::Duration};

use rollhook::{
    Builder, TokioClock,
    action::Action,
    app::Policy,
    deploy::{Actor, Revision},
    memory::{MemoryStore, Script, SimulatedCluster},
    ports::Page,
    request::{DeployRequest, Registration, RollbackRequest},
    service::Deployer,
};

const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let cluster = SimulatedCluster::new(Arc::new(TokioClock::start()), Duration::from_millis(50));
    cluster.script(":v3", Script::missing());
    let deployer = Builder::new(Arc::new(MemoryStore::on_system_time()), Arc::new(cluster)).build();
    tokio::select! {
        // One future drives all deploys; the platform decides where it runs, and when it ends.
        ended = deployer.run(future::pending()) => Ok(ended?),
        done = story(&deployer) => done,
    }
}

async fn story(deployer: &Deployer) -> Result<(), Box<dyn Error>> {
    // The platform has authenticated this person itself. Pods of a real cluster settle for 10 s.
    let alice = Actor::person("alice");
    let app = Registration::new("shop".parse()?, "test".parse()?, "api".parse()?)
        .image("registry.example.com/api:v1".parse()?)
        .policy(Policy::default().with(|policy| policy.settle = Duration::ZERO));
    let registered = deployer.register(&alice, app, None).await?;
    let access = deployer.allow(alice, registered.id(), Action::ALL).await?;
    deployer.wait(&access, Revision::FIRST, PATIENCE).await?;
    for tag in ["v2", "v3"] {
        let request = DeployRequest::image(format!("registry.example.com/api:{tag}").parse()?);
        let deploy = deployer.submit(&access, request).await?.deploy;
        // The service puts the failed v3 right by itself, with a revision of its own.
        if let Some(restore) = deployer.wait(&access, deploy.revision, PATIENCE).await?.restore() {
            deployer.wait(&access, restore.revision, PATIENCE).await?;
        }
    }
    let back = deployer.rollback(&access, RollbackRequest::default()).await?.deploy;
    deployer.wait(&access, back.revision, PATIENCE).await?;
    for deploy in deployer.history(&access, Page::newest(20)).await?.1 {
        let image = deploy.image.clone().map(|image| image.unpinned().to_string()).unwrap_or_default();
        println!("{}  {image}  {:<8}  {:<5}  {}", deploy.revision, deploy.trigger, deploy.actor, deploy.status());
    }
    Ok(())
}
