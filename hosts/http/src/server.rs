//! Accepts connections, runs the engine beside them, and stops both in order.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
};
use rollhook_core::service::{Builder, Deployer, Ports};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinHandle,
};

use crate::{
    args::RateLimit,
    body,
    client_ip::{Cidr, Proxies},
    instrumented::{InstrumentedBranchReader, InstrumentedHistoryStore, InstrumentedRolloutDriver},
    limits::Limits,
    metrics::Metrics,
    state::{Drain, State},
    telemetry,
};

/// The most connections; further ones wait in the kernel.
const CONNECTIONS: usize = 10_000;
/// The longest time of a call's headers, and of waiting for a kept connection's next call.
const HEADER_TIME: Duration = Duration::from_secs(10);
/// The largest size of headers; larger ones are answered 431.
const HEADER_SIZE: usize = 64 * 1024;
/// The time in which calls and the engine may end once the server stops.
const DRAIN_TIME: Duration = Duration::from_secs(15);
/// The pause after a failed accept, for example for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The settings of a server.
#[derive(Clone, Debug)]
pub struct Config {
    /// The begin of webhook URLs.
    pub base_url: String,
    /// Whether failed authentications and deploys are limited.
    pub rate_limit: RateLimit,
    /// The networks whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<Cidr>,
    /// The shortest interval at which an app's branch is read.
    pub min_poll: Duration,
}

/// A server on a bound address, which answers while [`Server::serve`] runs.
pub struct Server {
    listener: TcpListener,
    state: Arc<State>,
    begin_drain: tokio::sync::watch::Sender<bool>,
}

impl Server {
    /// Returns a server of these ports on a bound address. `replica` is the argument of `Deployer::new`.
    pub fn new(listener: TcpListener, config: Config, ports: Ports, replica: &str) -> Self {
        let metrics = Arc::new(Metrics::default());
        let history = InstrumentedHistoryStore::new(ports.history.clone(), metrics.clone());
        let writable = history.writable();
        let history = Arc::new(history);
        let rollouts = Arc::new(InstrumentedRolloutDriver::new(ports.rollouts.clone(), metrics.clone()));
        let builder = ports.builder.map(|builder| Builder {
            branches: Arc::new(InstrumentedBranchReader::new(builder.branches, metrics.clone())),
            ..builder
        });
        let (begin_drain, drain) = Drain::new();
        let ports = Ports { history, rollouts, builder, ..ports };
        let state = State {
            deployer: Arc::new(Deployer::new(ports, replica).with_min_poll(config.min_poll)),
            base_url: config.base_url.into(),
            limits: Limits::new(config.rate_limit),
            proxies: Proxies::new(config.trusted_proxies),
            metrics,
            writable,
            drain,
            large_bodies: body::permits(),
        };
        Self { listener, state: Arc::new(state), begin_drain }
    }

    /// Returns the core's service.
    pub fn deployer(&self) -> &Arc<Deployer> {
        &self.state.deployer
    }

    /// Returns the address that the server listens on.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until `stop` resolves. Then it accepts no more connections, answers waiting calls with the present state, ends
    /// event streams, lets other calls end, releases the engine's leases, and returns, after 15 s at the latest.
    ///
    /// # Errors
    /// If the engine ended by itself, which is a defect.
    pub async fn serve(self, stop: impl Future<Output = ()>) -> io::Result<()> {
        let mut engine = spawn_engine(&self.state);
        let graceful = GracefulShutdown::new();
        let failed = tokio::select! {
            () = stop => false,
            () = accept(&self.listener, &self.state, &graceful) => false,
            _ = &mut engine => true,
        };
        drop(self.listener);
        let _ = self.begin_drain.send(true);
        let ended = tokio::time::timeout(DRAIN_TIME, async {
            let engine = async { if failed { Ok(()) } else { engine.await } };
            let ((), engine) = tokio::join!(graceful.shutdown(), engine);
            engine
        });
        match ended.await {
            Ok(Ok(())) if !failed => {
                tracing::info!("stopped");
                Ok(())
            }
            Ok(_) => Err(io::Error::other("the engine stopped by itself; the log says where")),
            Err(_) => {
                tracing::warn!("stopped with unfinished calls");
                Ok(())
            }
        }
    }
}

fn spawn_engine(state: &State) -> JoinHandle<()> {
    let (deployer, drain) = (state.deployer.clone(), state.drain.clone());
    tokio::spawn(async move { deployer.run(async move { drain.begun().await }).await })
}

async fn accept(listener: &TcpListener, state: &Arc<State>, graceful: &GracefulShutdown) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(permit) = permits.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, peer)) => connect(stream, peer, permit, state, graceful),
            Err(error) => {
                tracing::warn!(%error, "accepting a connection failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn connect(
    stream: TcpStream,
    peer: SocketAddr,
    permit: OwnedSemaphorePermit,
    state: &Arc<State>,
    graceful: &GracefulShutdown,
) {
    // Answers are small and whole; Nagle's algorithm would only delay them.
    let _ = stream.set_nodelay(true);
    let shared = state.clone();
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .max_buf_size(HEADER_SIZE)
        .serve_connection(
            TokioIo::new(stream),
            service_fn(move |call| telemetry::answer(shared.clone(), peer.ip(), call)),
        );
    let watched = graceful.watch(connection);
    let metrics = state.metrics.clone();
    metrics.connected();
    tokio::spawn(async move {
        // A client that went away, or spoke no HTTP.
        if let Err(error) = watched.await {
            tracing::debug!(%error, "serving a connection failed");
        }
        metrics.disconnected();
        drop(permit);
    });
}
