//! Single deploys, each posted to a webhook and waited for.

use std::{net::SocketAddr, time::Duration};

use rollhook_api::{Deploy, DeployAnswer};
use rollhook_core::deploy::Status;
use tokio::{task::JoinSet, time::Instant};

use crate::{
    Failure,
    client::{self, Connection},
    load::CONNECTIONS,
    seed::SeededApp,
};

/// Posts an image, and returns the revision of the new deploy.
pub(crate) async fn post(connection: &mut Connection, app: &SeededApp, image: &str) -> Result<u64, Failure> {
    let path = format!("/api/v1/webhook/{}", app.id);
    let body = format!(r#"{{"image":"{image}"}}"#);
    let call = client::request("POST", &path, &[("X-Service-Token", &app.token)], &body);
    match connection.call(&call).await? {
        202 => Ok(serde_json::from_slice::<DeployAnswer>(connection.body())?.revision.get()),
        status => Err(format!("a call is answered {status}: {}", body_text(connection)).into()),
    }
}

/// Waits until a deploy has succeeded.
pub(crate) async fn end(connection: &mut Connection, app: &SeededApp, revision: u64) -> Result<Deploy, Failure> {
    let path = format!("/api/v1/apps/{}/deploys/{revision}", app.id);
    let headers = [("X-Service-Token", app.token.as_str()), ("Prefer", "wait=50")];
    match connection.call(&client::request("GET", &path, &headers, "")).await? {
        200 => {
            let deploy: Deploy = serde_json::from_slice(connection.body())?;
            if deploy.status == Status::Succeeded {
                Ok(deploy)
            } else {
                Err(format!("the deploy did not succeed: {deploy:?}").into())
            }
        }
        status => Err(format!("revision {revision} is answered {status}: {}", body_text(connection)).into()),
    }
}

fn body_text(connection: &Connection) -> String {
    String::from_utf8_lossy(connection.body()).into_owned()
}

/// The times of a deploy.
#[derive(Clone, Copy)]
pub(crate) struct Driven {
    /// The time of the accept.
    pub(crate) accepted: Instant,
    /// The time from the accept to the recorded end, by the store's clock.
    pub(crate) took: Duration,
}

/// Makes one deploy per item, and waits for each to succeed; as many at a time as there are connections.
pub(crate) async fn each(address: SocketAddr, apps: &[SeededApp]) -> Result<Vec<Driven>, Failure> {
    let mut tasks = JoinSet::new();
    for first in 0..CONNECTIONS.min(apps.len()) {
        let share: Vec<SeededApp> = apps.iter().skip(first).step_by(CONNECTIONS).cloned().collect();
        tasks.spawn(async move {
            let mut connection = Connection::open(address).await?;
            let mut driven = Vec::with_capacity(share.len());
            for app in &share {
                let revision = post(&mut connection, app, "registry.example.com/shop/api:4f2a9c1").await?;
                let accepted = Instant::now();
                let deploy = end(&mut connection, app, revision).await?;
                driven.push(Driven { accepted, took: deploy.updated_at.since(deploy.created_at) });
            }
            Ok::<_, Failure>(driven)
        });
    }
    let mut all = Vec::with_capacity(apps.len());
    while let Some(driven) = tasks.join_next().await {
        all.extend(driven??);
    }
    Ok(all)
}
