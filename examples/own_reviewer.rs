//! A platform that says for each call what its people may do: `cargo run -p rollhook-examples --bin own_reviewer`.

use std::{error::Error, future, sync::Arc, time::Duration};

use rollhook::{
    Builder, Result, TokioClock,
    action::Action,
    async_trait,
    management::{
        Management, Ports,
        access::Permission,
        ports::{AccessReviewer, BearerToken, ReviewScope, ReviewedCaller},
    },
    memory::{MemoryStore, SimulatedCluster},
    request::Registration,
};

/// A token of the platform's own: a JWT for the audience `platform`, which only the platform can verify.
const TOKEN: &str = "eyJhbGciOiJFUzI1NiJ9.eyJhdWQiOiJwbGF0Zm9ybSIsImV4cCI6NDEwMjQ0NDgwMCwic3ViIjoiYWxpY2UifQ.AAAA";

struct Platform;

#[async_trait]
impl AccessReviewer for Platform {
    fn authority(&self) -> &str {
        "platform.example.com"
    }
    fn audience(&self) -> &str {
        "platform"
    }
    async fn authenticate(&self, token: &BearerToken) -> Result<Option<ReviewedCaller>> {
        Ok((token.expose() == TOKEN).then(|| ReviewedCaller { name: "alice".to_owned(), ..ReviewedCaller::default() }))
    }
    async fn allows(&self, caller: &ReviewedCaller, permission: Permission, scope: ReviewScope<'_>) -> Result<bool> {
        let is_hers = matches!(scope, ReviewScope::App(namespace, _) if namespace.as_str() == "shop-test");
        Ok(caller.name == "alice" && is_hers && permission.verb != "delete")
    }
}

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn Error>> {
    let cluster = SimulatedCluster::new(Arc::new(TokioClock::start()), Duration::from_millis(50));
    let store = Arc::new(MemoryStore::on_system_time());
    let deployer = Arc::new(Builder::new(store.clone(), Arc::new(cluster)).build());
    let ports = Ports::new(store).with(|ports| ports.reviewer = Some(Arc::new(Platform)));
    let management = Management::new(deployer, ports);
    let calls = async {
        let alice = management.authenticate(TOKEN.as_bytes(), None).await?;
        let app = Registration::new("shop".parse()?, "test".parse()?, "api".parse()?);
        let app = management.register(&alice, app.image("registry.example.com/api:v1".parse()?), None).await?;
        for action in [Action::Rollback, Action::Delete] {
            match management.allow(&alice, app.id(), action).await {
                Ok(proof) => println!("{} may do this: {action}", proof.actor()),
                Err(refusal) => println!("{}: {refusal}", refusal.kind().status()),
            }
        }
        Ok(())
    };
    tokio::select! { ended = management.run(future::pending()) => Ok(ended?), done = calls => done }
}
