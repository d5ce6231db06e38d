//! Single deploys, each posted to a webhook and waited for.

use std::{net::SocketAddr, time::Duration};

use rollhook_api::{Deploy, DeployAnswer};
use rollhook_core::deploy::Status;
use tokio::{task::JoinSet, time::Instant};

use crate::{
    Failure,
    client::{self, Connection},
    load::CONNECTIONS,
    seed::Target,
};

/// Posts an image, and returns the revision that it was given.
pub(crate) async fn post(connection: &mut Connection, target: &Target, image: &str) -> Result<u64, Failure> {
    let path = format!("/api/v1/webhook/{}", target.app);
    let body = format!(r#"{{"image":"{image}"}}"#);
    let call = client::request("POST", &path, &[("X-Service-Token", &target.token)], &body);
    match connection.call(&call).await? {
        202 => Ok(serde_json::from_slice::<DeployAnswer>(connection.body())?.revision.get()),
        status => Err(format!("a call is answered {status}: {}", told(connection)).into()),
    }
}

/// Waits until a deploy has succeeded.
pub(crate) async fn end(connection: &mut Connection, target: &Target, revision: u64) -> Result<Deploy, Failure> {
    let path = format!("/api/v1/apps/{}/deploys/{revision}", target.app);
    let headers = [("X-Service-Token", target.token.as_str()), ("Prefer", "wait=50")];
    match connection.call(&client::request("GET", &path, &headers, "")).await? {
        200 => {
            let deploy: Deploy = serde_json::from_slice(connection.body())?;
            if deploy.status == Status::Succeeded {
                Ok(deploy)
            } else {
                Err(format!("it has not ended: {deploy:?}").into())
            }
        }
        status => Err(format!("revision {revision} is answered {status}: {}", told(connection)).into()),
    }
}

fn told(connection: &Connection) -> String {
    String::from_utf8_lossy(connection.body()).into_owned()
}

/// How one of many deploys went.
#[derive(Clone, Copy)]
pub(crate) struct Driven {
    /// When it was accepted.
    pub(crate) accepted: Instant,
    /// How long after that its end was recorded, by the store's clock.
    pub(crate) took: Duration,
}

/// Deploys each of the apps once, by many connections; as many apps as there are connections are posted at once.
pub(crate) async fn each(address: SocketAddr, targets: &[Target]) -> Result<Vec<Driven>, Failure> {
    let mut tasks = JoinSet::new();
    for first in 0..CONNECTIONS.min(targets.len()) {
        let share: Vec<Target> = targets.iter().skip(first).step_by(CONNECTIONS).cloned().collect();
        tasks.spawn(async move {
            let mut connection = Connection::open(address).await?;
            let mut driven = Vec::with_capacity(share.len());
            for target in &share {
                let revision = post(&mut connection, target, "registry.example.com/shop/api:4f2a9c1").await?;
                let accepted = Instant::now();
                let deploy = end(&mut connection, target, revision).await?;
                driven.push(Driven { accepted, took: deploy.updated_at.since(deploy.created_at) });
            }
            Ok::<_, Failure>(driven)
        });
    }
    let mut all = Vec::with_capacity(targets.len());
    while let Some(driven) = tasks.join_next().await {
        all.extend(driven??);
    }
    Ok(all)
}
