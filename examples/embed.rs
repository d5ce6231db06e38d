//! A platform that embeds rollhook: its own process, its own runtime, and no server.
//!
//! Registers an app, deploys it as a person and as CI, sees a bad version put right, and rolls back:
//! `cargo run -p rollhook-examples --bin embed`. Nothing real is deployed: the cluster is a simulated one.

use std::{error::Error, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderValue, header::CONTENT_TYPE};
use rollhook::{
    Builder, TokioClock,
    action::Action,
    app::{AppId, Policy},
    deploy::{Actor, Revision},
    memory::{MemoryStore, Script, SimulatedCluster},
    ports::{Page, RolloutFailureKind},
    request::{Registration, RollbackRequest},
    service::{Accepted, Deployer, Pushed},
    webhook::{Call, Request},
};

const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // A platform brings its own store and cluster; here both end with the process.
    let cluster = SimulatedCluster::new(Arc::new(TokioClock::start()), Duration::from_millis(50));
    cluster.script(":v3", Script::fails(RolloutFailureKind::Final, "ProgressDeadlineExceeded", "no new pod is ready"));
    let store = Arc::new(MemoryStore::on_system_time());
    let deployer = Arc::new(Builder::new(store, Arc::new(cluster)).replica("platform-1").build());
    // One future drives all deploys; the platform decides where it runs, and when it ends.
    let engine = tokio::spawn({
        let deployer = Arc::clone(&deployer);
        async move { deployer.run(std::future::pending()).await }
    });

    // The platform has authenticated this person itself. Pods of a real cluster settle for 10 s.
    let alice = Actor::person("alice");
    let wanted = Registration::new("shop".parse()?, "test".parse()?, "api".parse()?)
        .image("registry.example.com/api:v1".parse()?)
        .policy(Policy { settle: Duration::ZERO, ..Policy::default() });
    let registered = deployer.register(&alice, wanted, None).await?;
    let app = registered.id();
    let access = deployer.allow(alice, app, Action::ALL).await?;
    deployer.wait(&access, Revision::FIRST, PATIENCE).await?;

    let token = deployer.enable_webhook(&access).await?.token;
    for tag in ["v2", "v3"] {
        // The call of a CI job, as the platform's HTTP server hands it over.
        let body = format!(r#"{{"image": "registry.example.com/api:{tag}"}}"#);
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert("x-service-token", token.expose().parse()?);
        headers.insert("idempotency-key", format!("pipeline-of-{tag}").parse()?);
        let Some(accepted) = webhook(&deployer, app, &headers, body.as_bytes()).await? else { continue };
        let waited = deployer.wait(&access, accepted.deploy.revision, PATIENCE).await?;
        println!("CI deploys {tag}: revision {}, {}", waited.deploy.revision, waited.deploy.status());
        // The service puts the failed v3 right by itself, with a revision of its own.
        if let Some(restore) = waited.restore() {
            let ended = deployer.wait(&access, restore.revision, PATIENCE).await?.deploy;
            println!("restored: revision {} returns to {}, {}", ended.revision, ended.effective, ended.status());
        }
    }

    let back = deployer.rollback(&access, RollbackRequest::default()).await?.deploy;
    let ended = deployer.wait(&access, back.revision, PATIENCE).await?.deploy;
    println!("alice rolls back: revision {} returns to {}\n", ended.revision, ended.effective);

    let (_, deploys) = deployer.history(&access, Page { before: None, succeeded: false, limit: 20 }).await?;
    for deploy in deploys {
        let image = deploy.image.clone().map(|image| image.unpinned().to_string()).unwrap_or_default();
        println!("{}  {image}  {:<8}  {:<5}  {}", deploy.revision, deploy.trigger, deploy.actor, deploy.status());
    }
    engine.abort();
    Ok(())
}

/// Handles a call of an app's webhook, by CI or by a git host: first the caller is authenticated over the raw body, then
/// the body is read. Returns `None` if the call reports something that deploys nothing.
async fn webhook(
    deployer: &Deployer,
    app: &AppId,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Option<Accepted>, Box<dyn Error>> {
    let call = Call::new(headers, body, rollhook::wall_clock());
    let caller = deployer.authorize(app, call.credentials(), body).await?;
    let (request, key) = call.request()?;
    match request {
        Request::Deploy(posted) => Ok(Some(deployer.submit(&caller, posted.parse(key)?).await?)),
        Request::Push(delivery) => match deployer.push(&caller, &delivery, key).await? {
            Pushed::Accepted(accepted) => Ok(Some(*accepted)),
            Pushed::Ignored(_) => Ok(None),
        },
    }
}
