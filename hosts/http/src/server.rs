//! Accepts connections, runs the engine beside them, and stops both in order.

use std::{
    future::pending,
    io,
    net::{IpAddr, SocketAddr},
    num::NonZeroU32,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures_util::future::{Abortable, Aborted};
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::{GracefulConnection, GracefulShutdown},
};
use rollhook_api::hints;
use rollhook_core::service::{Deployer, Ports, StartError};
use rollhook_management::{Management, access::SignInGrants};
use rollhook_wiring::{DiskLimits, SignIn};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::{JoinError, JoinHandle},
};

use crate::{
    answers::Answers,
    args::RateLimit,
    budget::Budget,
    callers::Callers,
    client_ip::{Cidr, Proxies},
    connections::{Bounds, Connection, Connections, Share},
    console,
    disks::{DiskWatch, Disks},
    instrumented::{InstrumentedBranchReader, InstrumentedHistoryStore, InstrumentedRolloutDriver},
    limits::{self, Limits},
    lines::Lines,
    metrics::Metrics,
    open_files,
    places::Places,
    readiness::Readiness,
    router::{Audience, Incoming},
    state::{Drain, State},
    stream::{Stream, WRITE_TIME},
    streams::Streams,
    telemetry,
};

/// The longest time of a call's headers, and of waiting for a kept connection's next call.
const HEADER_TIME: Duration = Duration::from_secs(10);
/// The largest size of headers; larger ones are answered 431. A connection may hold as much of what it reads ahead.
const HEADER_SIZE: usize = 16 * 1024;
/// The time in which calls and the engine may end once the server stops.
const DRAIN_TIME: Duration = Duration::from_secs(15);
/// The most calls that wait for deploys of one app.
const WAITS: usize = 100;
/// The pause after a failed accept, for example for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The settings of a server.
#[derive(Clone, Debug)]
pub struct Config {
    /// The begin of webhook URLs.
    pub base_url: String,
    /// Whether failed authentications and deploys are limited.
    pub rate_limit: RateLimit,
    /// The most deploys of an app's webhook in an hour, if limits are on.
    pub deploys_per_hour: NonZeroU32,
    /// The networks whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<Cidr>,
    /// The shortest interval at which an app's branch is read.
    pub min_poll: Duration,
    /// The most apps that have metrics of their own; 0 for none.
    pub metrics_per_app: usize,
    /// The sentence that every page of the console shows; `None` for none.
    pub notice: Option<&'static str>,
}

/// A server on a bound address, which answers while [`Server::serve`] runs.
pub struct Server {
    listener: TcpListener,
    probes: Option<TcpListener>,
    state: State,
    disks: DiskWatch,
    begin_drain: tokio::sync::watch::Sender<bool>,
}

impl Server {
    /// Returns a server of these ports on a bound address. `replica` is the argument of `Deployer::new`.
    pub fn new(
        listener: TcpListener,
        config: Config,
        (ports, management): (Ports, rollhook_management::Ports),
        replica: &str,
    ) -> Self {
        let metrics = Arc::new(Metrics::new(replica, config.metrics_per_app));
        let history = InstrumentedHistoryStore::new(ports.history.clone(), metrics.clone());
        let writable = history.writable();
        let history = Arc::new(history);
        let rollouts = Arc::new(InstrumentedRolloutDriver::new(ports.rollouts.clone(), metrics.clone()));
        let disks = Arc::new(Disks::default());
        let (begin_drain, drain) = Drain::new();
        let driver = rollouts.clone();
        let ports = ports.with(|ports| {
            ports.history = history;
            ports.rollouts = rollouts;
            ports.observers.push(metrics.clone());
            if let Some(builder) = &mut ports.builder {
                builder.branches = Arc::new(InstrumentedBranchReader::new(builder.branches.clone(), metrics.clone()));
            }
        });
        let deployer = Arc::new(Deployer::new(ports, replica).with_min_poll(config.min_poll));
        let management = Management::new(Arc::clone(&deployer), management).with_base_url(&config.base_url);
        let management = Arc::new(management);
        let watch = DiskWatch {
            limits: DiskLimits::default(),
            store: None,
            rollouts: driver,
            deployer: deployer.clone(),
            metrics: metrics.clone(),
            disks: disks.clone(),
        };
        let base_url: Arc<str> = config.base_url.into();
        let proxies = Arc::new(Proxies::new(config.trusted_proxies, metrics.ignored_forwards().clone()));
        let shown = (disks.clone(), proxies.clone());
        let state = State {
            console: console::of(management.clone(), base_url.clone(), config.notice, shown, None),
            deployer,
            management,
            base_url,
            callers: Callers::default(),
            limits: Limits::new(config.rate_limit, config.deploys_per_hour),
            lines: Lines::default(),
            proxies,
            metrics,
            writable,
            drain,
            bodies: Budget::default(),
            answers: Answers::default(),
            waits: Places::new(WAITS, usize::MAX),
            streams: Streams::new(Bounds::CALLERS.all / 2),
            readiness: Readiness::default(),
            has_probe_listener: false,
            notice: config.notice,
            disks,
        };
        Self { listener, probes: None, state, disks: watch, begin_drain }
    }

    /// Answers `/healthz`, `/readyz` and `/metrics` on this address, and no longer on the server's own.
    #[must_use]
    pub fn with_probes(self, probes: TcpListener) -> Self {
        Self { probes: Some(probes), state: State { has_probe_listener: true, ..self.state }, ..self }
    }

    /// Tells by these limits when little disk space is left, also on the disk of the store's file.
    #[must_use]
    pub fn with_disk_limits(self, limits: DiskLimits, store: Option<PathBuf>) -> Self {
        Self { disks: DiskWatch { limits, store, ..self.disks }, ..self }
    }

    /// Tells in the metrics when the key that seals was written.
    #[must_use]
    pub fn with_key_written(self, at: SystemTime) -> Self {
        self.state.metrics.gauges().key_written(at);
        self
    }

    /// Lets people sign in to the console at this provider, beside API tokens.
    #[must_use]
    pub fn with_sign_in(mut self, sign_in: SignIn) -> Self {
        let (management, base_url) = (self.state.management.clone(), self.state.base_url.clone());
        let (provider, grants) = (sign_in.provider.host().to_owned(), sign_in.grants.clone());
        management.let_people_in(SignInGrants { provider, grants });
        let shown = (self.state.disks.clone(), self.state.proxies.clone());
        self.state.console = console::of(management, base_url, self.state.notice, shown, Some(sign_in));
        self
    }

    /// Returns the management plane, and the deployer below it.
    pub fn management(&self) -> &Arc<Management> {
        &self.state.management
    }

    /// Returns the address that the server listens on.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until `stop` resolves. Then it accepts no more connections, answers waiting calls with the present
    /// state, ends event streams, lets other calls end, releases the engine's leases, and returns, after 15 s at the
    /// latest.
    ///
    /// # Errors
    /// If the engine ended by itself: the store is another driver's by now, or the engine has a defect.
    pub async fn serve(self, stop: impl Future<Output = ()>) -> io::Result<()> {
        let bounds = bounds();
        let state = Arc::new(State { streams: Streams::new(bounds.all / 2), ..self.state });
        let mut engine = spawn_engine(&state);
        let disks = tokio::spawn(self.disks.run());
        let graceful = GracefulShutdown::new();
        let probes = async {
            match &self.probes {
                Some(probes) => accept(probes, Bounds::PROBES, &state, Audience::Probes, &graceful).await,
                None => pending().await,
            }
        };
        let failure = tokio::select! {
            () = stop => None,
            () = accept(&self.listener, bounds, &state, Audience::Callers, &graceful) => None,
            () = probes => None,
            ended = &mut engine => Some(stopped(ended)),
        };
        disks.abort();
        drop(self.listener);
        let _ = self.begin_drain.send(true);
        let ended = tokio::time::timeout(DRAIN_TIME, async {
            let engine = async {
                match failure {
                    Some(failure) => Err(failure),
                    None => match engine.await {
                        Ok(Ok(())) => Ok(()),
                        ended => Err(stopped(ended)),
                    },
                }
            };
            let ((), engine) = tokio::join!(graceful.shutdown(), engine);
            engine
        });
        match ended.await {
            Ok(engine) => engine.inspect(|()| tracing::info!("stopped")),
            Err(_) => {
                tracing::warn!("stopped with unfinished calls");
                Ok(())
            }
        }
    }
}

/// Returns the failure of an engine that has ended by itself.
fn stopped(ended: Result<Result<(), StartError>, JoinError>) -> io::Error {
    match ended {
        Ok(Err(reason)) => io::Error::other(hints::of_start(&reason)),
        Ok(Ok(())) | Err(_) => io::Error::other("the engine stopped by itself; the log says where"),
    }
}

fn spawn_engine(state: &State) -> JoinHandle<Result<(), StartError>> {
    let (management, drain) = (state.management.clone(), state.drain.clone());
    if state.limits.are_on() {
        let (management, drain) = (management.clone(), drain.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = management.read_tokens() => {}
                () = drain.begun() => {}
            }
        });
    }
    tokio::spawn(async move { management.run(async move { drain.begun().await }).await })
}

/// Returns the most connections of callers, which are fewer if too few files may be open.
fn bounds() -> Bounds {
    let files = open_files::limit();
    let bounds = Bounds::within(files);
    if bounds != Bounds::CALLERS {
        let (connections, wanted) = (bounds.all, Bounds::files_wanted());
        tracing::warn!(
            files,
            connections,
            wanted,
            "few files may be open, and so few connections: raise the limit (ulimit -n)"
        );
    }
    bounds
}

async fn accept(
    listener: &TcpListener,
    bounds: Bounds,
    state: &Arc<State>,
    audience: Audience,
    graceful: &GracefulShutdown,
) {
    let (permits, connections) = (Arc::new(Semaphore::new(bounds.all)), Arc::new(Connections::new(bounds)));
    loop {
        let Ok(permit) = permits.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, peer)) => {
                let source = peer.ip().to_canonical();
                let share = if state.proxies.trusts(source) { Share::All } else { Share::One };
                let (connection, close) = connections.open(limits::network(source), share);
                let served = serve(stream, source, audience, connection, state, graceful);
                spawn(Abortable::new(served, close), permit, state);
            }
            Err(error) => {
                tracing::warn!(%error, "accepting a connection failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn serve(
    stream: TcpStream,
    source: IpAddr,
    audience: Audience,
    connection: Arc<Connection>,
    state: &Arc<State>,
    graceful: &GracefulShutdown,
) -> impl Future<Output = hyper::Result<()>> + Send + 'static {
    // Answers are small and whole; Nagle's algorithm would only delay them.
    let _ = stream.set_nodelay(true);
    let (shared, watcher) = (state.clone(), graceful.watcher());
    async move {
        // A connection has no buffers until its peer has sent something.
        tokio::select! {
            readable = tokio::time::timeout(HEADER_TIME, stream.readable()) => match readable {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return Ok(()),
            },
            () = shared.drain.begun() => return Ok(()),
        }
        watcher.watch(answer(stream, source, audience, connection, shared)).await
    }
}

fn answer(
    stream: TcpStream,
    source: IpAddr,
    audience: Audience,
    connection: Arc<Connection>,
    shared: Arc<State>,
) -> impl GracefulConnection<Error = hyper::Error, Output = hyper::Result<()>> {
    let stream = Stream::new(stream, WRITE_TIME, connection.long_answers().clone());
    let service = service_fn(move |request| {
        telemetry::answer(shared.clone(), Incoming { request, source, audience, in_call: connection.begin() })
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .max_buf_size(HEADER_SIZE)
        // A caller may close its half once it has sent everything.
        .half_close(true)
        .serve_connection(TokioIo::new(stream), service)
}

fn spawn(
    served: Abortable<impl Future<Output = hyper::Result<()>> + Send + 'static>,
    permit: OwnedSemaphorePermit,
    state: &State,
) {
    let metrics = state.metrics.clone();
    metrics.connected();
    tokio::spawn(async move {
        match served.await {
            Ok(Ok(())) => {}
            // A client that went away, or spoke no HTTP.
            Ok(Err(error)) => tracing::debug!(%error, "serving a connection failed"),
            Err(Aborted) => tracing::debug!("closed a connection to make room"),
        }
        metrics.disconnected();
        drop(permit);
    });
}
