//! A platform's own webhook: what it does with the headers and the raw body of a call, whichever HTTP server it has.
//!
//! CI calls twice, as it does when an answer is lost, and the app is deployed once:
//! `cargo run -p rollhook-examples --bin own_webhook`. The cluster is a simulated one.

use std::{error::Error, future, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderValue, header::CONTENT_TYPE};
use rollhook::{
    Builder, TokioClock,
    action::Action,
    app::AppId,
    deploy::Actor,
    memory::{MemoryStore, SimulatedCluster},
    request::Registration,
    service::{Accepted, Deployer, Pushed},
    webhook::{Call, Request},
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let cluster = SimulatedCluster::new(Arc::new(TokioClock::start()), Duration::from_millis(50));
    let deployer = Builder::new(Arc::new(MemoryStore::on_system_time()), Arc::new(cluster)).build();
    let calls = async {
        let alice = Actor::person("alice");
        let app = Registration::new("shop".parse()?, "test".parse()?, "api".parse()?);
        let app = deployer.register(&alice, app.image("registry.example.com/api:v1".parse()?), None).await?;
        let access = deployer.allow(alice, app.id(), Action::ALL).await?;
        let token = deployer.enable_webhook(&access).await?.token;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert("x-service-token", token.expose().parse()?);
        headers.insert("idempotency-key", HeaderValue::from_static("pipeline-7"));
        for _ in 0..2 {
            let body = br#"{"image": "registry.example.com/api:v2"}"#;
            let Some(accepted) = webhook(&deployer, app.id(), &headers, body).await? else { continue };
            println!("revision {}, repeated: {}", accepted.deploy.revision, accepted.replayed);
        }
        Ok(())
    };
    tokio::select! { ended = deployer.run(future::pending()) => Ok(ended?), done = calls => done }
}

/// Authenticates the caller over the raw body, and reads the body then. Returns `None` if the call deploys nothing.
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
        Request::RegistryEvent(_) => Ok(None),
    }
}
