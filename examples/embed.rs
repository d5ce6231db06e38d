//! A platform that embeds rollhook: its own process, its own runtime, and no server.
//!
//! Registers an app, opens its webhook, deploys as CI does, sees a bad version put right, and rolls back:
//! `cargo run -p rollhook-examples --bin embed`. Nothing real is deployed: the cluster is a simulated one.

use std::{error::Error, sync::Arc, time::Duration};

use rollhook_core::{
    app::{Policy, Source},
    deploy::{Revision, State},
    ports::{Page, RolloutFailureKind},
    request::{DeployRequest, Registration, RollbackRequest},
    service::{Authorized, Deployer, Operator, Outcome, Ports},
    token::Credentials,
};
use rollhook_examples::{OsEntropy, TokioClock};
use rollhook_memory::{MemoryStore, Script, SimulatedCluster};
use serde_json::json;
use tokio::sync::oneshot;

const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // A platform brings its own stores, its own cluster, its own time; here all of them end with the process.
    let store = Arc::new(MemoryStore::on_system_time());
    let clock = Arc::new(TokioClock::start());
    let cluster = Arc::new(SimulatedCluster::new(clock.clone(), Duration::from_millis(50)));
    cluster
        .script(":v3", Script::fails(RolloutFailureKind::Final, "ProgressDeadlineExceeded", "no new pod became ready"));
    let ports = Ports {
        apps: store.clone(),
        tokens: store.clone(),
        history: store,
        rollouts: cluster,
        builder: None,
        clock,
        entropy: Arc::new(OsEntropy),
    };
    let deployer = Arc::new(Deployer::new(ports, "platform-1"));

    // One future drives all deploys; the platform decides where it runs, and when it ends.
    let (shutdown, asked) = oneshot::channel::<()>();
    let engine = tokio::spawn({
        let deployer = Arc::clone(&deployer);
        async move { deployer.run(async { drop(asked.await) }).await }
    });
    story(&deployer).await?;
    drop(shutdown);
    engine.await?;
    Ok(())
}

async fn story(deployer: &Deployer) -> Result<(), Box<dyn Error>> {
    // The platform has authenticated this person itself.
    let alice = Operator::trusted("alice");
    let app = deployer.register(&alice, registration()?, None).await?.app.id;
    let access = deployer.open(&alice, &app).await?;
    deployer.wait(&access, Revision::FIRST, PATIENCE).await?;
    let secret = deployer.enable_webhook(&alice, &app).await?;
    println!("{app} is registered; its webhook's token is {} characters long\n", secret.token.expose().len());

    for tag in ["v2", "v3"] {
        // What an HTTP handler does: raw body and presented token first, then whatever the body says.
        let body = format!(r#"{{"image": "registry.example.com/api:{tag}"}}"#);
        let presented = Credentials::token(secret.token.expose().as_bytes());
        let ci = deployer.authorize(&app, &presented, body.as_bytes()).await?;
        let image = Some(format!("registry.example.com/api:{tag}").parse()?);
        let request = DeployRequest { image, commit: Some(format!("{tag}abc").parse()?), key: None };
        let accepted = deployer.submit(&ci, request).await?.deploy;
        let ended = deployer.wait(&ci, accepted.revision, PATIENCE).await?.deploy;
        println!("CI deploys {tag}: revision {}, {}", ended.revision, ended.status());
        if let State::Failed { reason, message, .. } = &ended.state {
            println!("  {reason}: {message}");
            println!("  revision {} has put that right", put_right(deployer, &ci).await?);
        }
    }

    let back = deployer.rollback(&alice, &app, RollbackRequest::default()).await?.deploy;
    let ended = deployer.wait(&access, back.revision, PATIENCE).await?.deploy;
    println!("alice rolls back: revision {} returns to {}, {}\n", ended.revision, ended.effective, ended.status());
    print_history(deployer, &access).await?;
    Ok(())
}

/// Waits until the service has restored, by itself and as a revision of its own, what ran before a failed deploy.
async fn put_right(deployer: &Deployer, access: &Authorized) -> Outcome<Revision> {
    loop {
        let view = deployer.view(access).await?;
        match view.current {
            Some(current) if view.on_cluster.as_ref() == Some(&current) => return Ok(current.revision),
            Some(_) | None => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

fn registration() -> Result<Registration, Box<dyn Error>> {
    Ok(Registration {
        project: "shop".parse()?,
        environment: "test".parse()?,
        name: "api".parse()?,
        source: Source::Image,
        // Settings that the rollout driver reads; it fills in the rest.
        target: serde_json::from_value(json!({ "template": { "replicas": 2 } }))?,
        image: Some("registry.example.com/api:v1".parse()?),
        // Pods of a real cluster should stay ready for a while before that counts as success.
        policy: Policy { settle: Duration::ZERO, ..Policy::default() },
        take_over: false,
    })
}

async fn print_history(deployer: &Deployer, access: &Authorized) -> Outcome<()> {
    let current = deployer.view(access).await?.current.map(|deploy| deploy.revision);
    println!("{:<3} {:<29} {:<8} {:<9} {:<6} STATUS", "#", "IMAGE", "COMMIT", "TRIGGER", "ACTOR");
    for deploy in deployer.history(access, Page { before: None, succeeded: false, limit: 20 }).await? {
        let image = deploy.image.clone().map(|image| image.unpinned().to_string()).unwrap_or_default();
        let commit = deploy.commit.as_ref().map_or("", |commit| commit.as_str());
        let mark = if Some(deploy.revision) == current { " (current)" } else { "" };
        let (revision, trigger, actor) = (deploy.revision.get(), deploy.trigger.as_str(), deploy.actor.as_str());
        println!("{revision:<3} {image:<29} {commit:<8} {trigger:<9} {actor:<6} {}{mark}", deploy.status());
    }
    Ok(())
}
