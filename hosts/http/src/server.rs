//! Accepts connections, runs the engine beside them, and stops both in order.

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};

use http::Request;
use hyper::{body::Incoming, server::conn::http1};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use rollhook_core::service::{Builder, Deployer, Ports};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinHandle,
};
use tower::{Service, ServiceBuilder};

use crate::{
    body,
    host::{Drain, Host},
    limits::Limits,
    measured::{CountedHeads, CountedOrders, Measured},
    metrics::Metrics,
    observe::{self, Observe},
    reply::Reply,
    router,
    source::{Cidr, Proxies},
};

/// Beyond this many connections, new ones wait in the kernel.
const CONNECTIONS: usize = 10_000;
/// For a call's headers, and for a kept connection's next call.
const HEADER_TIME: Duration = Duration::from_secs(10);
/// Headers beyond this size are answered 431.
const HEADER_SIZE: usize = 64 * 1024;
/// How long calls under way, and the engine, may take to end once the server stops.
const DRAIN_TIME: Duration = Duration::from_secs(15);
/// After a failed accept, such as for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How a server answers.
#[derive(Clone, Debug)]
pub struct Config {
    /// What webhook URLs begin with.
    pub base_url: String,
    /// Whether failed authentications and deploys are limited.
    pub rate_limit: bool,
    /// Whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<Cidr>,
    /// How often an app's branch may be looked at for changes, at most.
    pub min_poll: Duration,
}

/// A server that has its address and answers once it is told to [`Server::serve`].
pub struct Server {
    listener: TcpListener,
    host: Arc<Host>,
    begin_drain: tokio::sync::watch::Sender<bool>,
}

impl Server {
    /// A server of these ports on a bound address. `replica` is as `Deployer::new` wants it.
    pub fn new(listener: TcpListener, config: Config, ports: Ports, replica: &str) -> Self {
        let metrics = Arc::new(Metrics::default());
        let history = Measured::new(ports.history.clone(), metrics.clone());
        let writable = history.writable();
        let history = Arc::new(history);
        let rollouts = Arc::new(CountedOrders::new(ports.rollouts.clone(), metrics.clone()));
        let builder = ports.builder.map(|builder| Builder {
            branches: Arc::new(CountedHeads::new(builder.branches, metrics.clone())),
            ..builder
        });
        let (begin_drain, drain) = Drain::new();
        let ports = Ports { history, rollouts, builder, ..ports };
        let host = Host {
            deployer: Arc::new(Deployer::new(ports, replica).with_min_poll(config.min_poll)),
            base_url: config.base_url.into(),
            limits: Limits::new(config.rate_limit),
            proxies: Proxies::new(config.trusted_proxies),
            metrics,
            writable,
            drain,
            large_bodies: body::room(),
        };
        Self { listener, host: Arc::new(host), begin_drain }
    }

    /// The core that it hosts.
    pub fn deployer(&self) -> &Arc<Deployer> {
        &self.host.deployer
    }

    /// Where it listens.
    ///
    /// # Errors
    /// As the operating system has it.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until `stop` resolves. Then it accepts no more connections, answers waits with what is known, ends event
    /// streams, lets other calls end, gives up the engine's claims, and returns; after 15 s in any case.
    ///
    /// # Errors
    /// Where the engine ended by itself, which only a defect makes it do.
    pub async fn serve(self, stop: impl Future<Output = ()>) -> io::Result<()> {
        let mut engine = spawn_engine(&self.host);
        let graceful = GracefulShutdown::new();
        let failed = tokio::select! {
            () = stop => false,
            () = accept(&self.listener, &self.host, &graceful) => false,
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
                tracing::warn!("stopped before every call had ended");
                Ok(())
            }
        }
    }
}

fn spawn_engine(host: &Host) -> JoinHandle<()> {
    let (deployer, drain) = (host.deployer.clone(), host.drain.clone());
    tokio::spawn(async move { deployer.run(async move { drain.begun().await }).await })
}

async fn accept(listener: &TcpListener, host: &Arc<Host>, graceful: &GracefulShutdown) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(permit) = permits.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, peer)) => connect(stream, peer, permit, host, graceful),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn connect(
    stream: TcpStream,
    peer: SocketAddr,
    permit: OwnedSemaphorePermit,
    host: &Arc<Host>,
    graceful: &GracefulShutdown,
) {
    // Answers are small and whole; waiting for more to send only delays them.
    let _ = stream.set_nodelay(true);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .max_buf_size(HEADER_SIZE)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service(host, peer)));
    let watched = graceful.watch(connection);
    let metrics = host.metrics.clone();
    metrics.connected();
    tokio::spawn(async move {
        // A client that went away, or spoke no HTTP.
        if let Err(error) = watched.await {
            tracing::debug!(%error, "a connection ended");
        }
        metrics.disconnected();
        drop(permit);
    });
}

/// The layers around the router, for one connection.
fn service(
    host: &Arc<Host>,
    peer: SocketAddr,
) -> impl Service<Request<Incoming>, Response = Reply, Error = Infallible, Future: Send> + Clone + use<> {
    let shared = host.clone();
    ServiceBuilder::new()
        .layer_fn(move |inner| Observe::new(inner, shared.clone()))
        .map_future(observe::catch_panic)
        .service_fn({
            let host = host.clone();
            move |request| router::dispatch(host.clone(), peer.ip(), request)
        })
}
