//! Whether a container is ready: by its health check, by a path that it serves, or by having run for a while.

use std::{collections::HashMap, error::Error, sync::Mutex, time::Duration};

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time::Instant};

use crate::{
    lock,
    rules::{
        container::{Container, Process},
        made_with::Laid,
    },
    settings::Rollout,
};

/// How long a container without a check must have run to count as ready: many end within their first seconds.
const UP: Duration = Duration::from_secs(5);
/// How long an old container goes on after the new one has its name: proxies may have looked the name up before.
const DRAIN: Duration = Duration::from_secs(2);
/// How long a container may take to answer.
const ANSWER: Duration = Duration::from_secs(2);
/// The number of containers that are remembered; the memory only saves waiting.
const REMEMBERED: usize = 1000;

/// The times since which containers run, by this process's own clock.
#[derive(Default)]
pub(crate) struct Readiness {
    since: Mutex<HashMap<String, Instant>>,
}

impl Readiness {
    /// Returns for how long the container has been ready, as this process saw it. If it is not: what it answered instead,
    /// where it is asked.
    pub(crate) async fn look(&self, container: &Container, rollout: &Rollout) -> Result<Duration, Option<String>> {
        let checked = self.check(container, rollout).await;
        if checked.is_err() {
            lock(&self.since).remove(&run("ready", container));
        }
        checked.map(|()| self.has_been("ready", container))
    }

    async fn check(&self, container: &Container, rollout: &Rollout) -> Result<(), Option<String>> {
        if container.process() != Process::Running || container.is_paused() {
            return Err(None);
        }
        if container.health().is_some_and(|health| health != "healthy") {
            return Err(None);
        }
        match asked(container, rollout) {
            Some(_) => answer(container, rollout).await.map_err(Some),
            // An adopted container ran before it was registered.
            None if rollout.adopted || container.health().is_some() || self.has_run(container) => Ok(()),
            None => Err(None),
        }
    }

    /// Returns whether the container, which is ready, has had its name for long enough.
    pub(crate) fn is_drained(&self, container: &Container) -> bool {
        container.name() == container.final_name() && self.has_been("named", container) >= DRAIN
    }

    fn has_run(&self, container: &Container) -> bool {
        self.has_been("running", container) >= UP
    }

    /// Returns for how long the container has been seen like this.
    fn has_been(&self, what: &str, container: &Container) -> Duration {
        let mut since = lock(&self.since);
        if since.len() >= REMEMBERED {
            since.clear();
        }
        since.entry(run(what, container)).or_insert_with(Instant::now).elapsed()
    }
}

/// Asks a container that runs for its path, if it has one.
///
/// # Errors
/// Its answer, if that does not say that it is ready.
pub(crate) async fn answer(container: &Container, rollout: &Rollout) -> Result<(), String> {
    match asked(container, rollout) {
        Some((port, path)) => ask(container, port, &path).await,
        None => Ok(()),
    }
}

/// The port and the path that answer once the container is ready, if it is asked: those that it was made with, or the app's.
fn asked(container: &Container, rollout: &Rollout) -> Option<(u16, String)> {
    let set = Laid::of(container, rollout.id.app).set;
    let registered = rollout.workload.readiness();
    let path = set.readiness_path.or_else(|| registered.map(|(_, path)| path.to_owned()));
    let port = set.readiness_port.or(rollout.workload.known_port());
    port.zip(path.filter(|path| !path.is_empty()))
}

/// A state of a container since its last start.
fn run(what: &str, container: &Container) -> String {
    format!("{what} {} {}", container.id(), container.started_at())
}

/// Asks the container for its path.
///
/// # Errors
/// Its answer, if that does not say that it is ready.
async fn ask(container: &Container, port: u16, path: &str) -> Result<(), String> {
    let Some(address) = container.address() else { return Err("it has no address to ask at".to_owned()) };
    let address = if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") };
    let answer = tokio::time::timeout(ANSWER, status(&address, path)).await;
    match answer {
        Ok(Ok(status)) if status.is_success() || status.is_redirection() => Ok(()),
        Ok(Ok(status)) => Err(format!("http://{address}{path} answers {}", status.as_u16())),
        Ok(Err(error)) => Err(format!("http://{address}{path} gives no answer: {error}")),
        Err(_) => Err(format!("http://{address}{path} gives no answer within {} s", ANSWER.as_secs())),
    }
}

async fn status(address: &str, path: &str) -> Result<StatusCode, Box<dyn Error + Send + Sync>> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::get(path).header(header::HOST, address).body(Empty::<Bytes>::new())?;
    Ok(sender.send_request(request).await?.status())
}
