//! The binary: opens the backends, serves until a signal, stops in order.

use std::{error::Error, io::Write, net::SocketAddr, process::ExitCode, sync::Arc, time::Duration};

use rollhook_api::hints;
use rollhook_core::{ports::Sealing, service::StartError};
use rollhook_wiring::{
    Created, DriverUrl, Installation, Rebound, Settings, SignIn, StopSignals, StoreLock, StoreSettings, StoreUrl,
    Traces, admin,
    keys::{self, StoreKeys},
    machine,
};
use tokio::{
    net::{TcpListener, TcpSocket},
    runtime::Runtime,
};

use crate::{
    args::{AdminToken, Args, Command, Keys, Serve, Store},
    core_dumps, healthcheck,
    instrumented::SERVER,
    log, open_files,
    server::{Config, Server},
};

/// The reason why the program could not start, or not stop in order.
pub type Failure = Box<dyn Error + Send + Sync>;

/// The most connections that the kernel keeps until they are accepted. Where it is full, newcomers wait for seconds.
const BACKLOG: u32 = 4096;

/// Runs the command of the arguments.
///
/// # Errors
/// A sentence that says why the program could not start, or not stop in order.
pub fn run(args: Args) -> Result<(), Failure> {
    match args.command {
        Some(Command::Keys(Keys::New { dir })) => {
            print(&format!("made key {} in {}", keys::create(&dir)?, dir.display()))
        }
        Some(Command::Keys(Keys::Rotate(store))) => runtime()?.block_on(rotate_keys(store)),
        Some(Command::Keys(Keys::Status(store))) => runtime()?.block_on(show_keys(store)),
        Some(Command::AdminToken(AdminToken::New { file })) => {
            admin::create(&file)?;
            print(&format!("made the admin token in {}", file.display()))
        }
        Some(Command::Store(Store::Rebind(settings))) => runtime()?.block_on(rebind(&settings)),
        Some(Command::AdminToken(AdminToken::Set { file, store })) => {
            runtime()?.block_on(admin::set(&store, &file))?;
            print(&format!("the admin token is the one in {} now", file.display()))
        }
        Some(Command::Secrets(installation)) => runtime()?.block_on(make_secrets(&installation)),
        Some(Command::Healthcheck(server)) => Ok(healthcheck::ask(server.probe_listen.unwrap_or(server.listen))?),
        Some(Command::Manifests(manifests)) => print(manifests.yaml()?.trim_end()),
        None => {
            log::init(args.serve.log_format)?;
            core_dumps::disable();
            runtime()?.block_on(serve(args.serve))
        }
    }
}

/// The exit code of a failure that stays until a person does something: a Job that runs the command need not repeat it.
const NEEDS_A_PERSON: u8 = 3;

/// Returns the exit code that tells a failure's kind.
pub fn exit_code(failure: &Failure) -> ExitCode {
    match failure.downcast_ref::<rollhook_wiring::Error>() {
        Some(error) if error.needs_a_person() => ExitCode::from(NEEDS_A_PERSON),
        Some(_) | None => ExitCode::FAILURE,
    }
}

fn runtime() -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()
}

async fn rotate_keys(store: StoreSettings) -> Result<(), Failure> {
    let keys = keys::open(&store).await?;
    print(&format!("sealed anew: {}", keys.reseal().await?))?;
    print_usage(&*keys).await
}

async fn show_keys(store: StoreSettings) -> Result<(), Failure> {
    print_usage(&*keys::open(&store).await?).await
}

async fn print_usage(keys: &dyn StoreKeys) -> Result<(), Failure> {
    let usage = keys.usage().await?;
    for used in &usage {
        let absent = if used.held { "" } else { "  NOT IN THE KEY DIRECTORY" };
        print(&format!("{}  {} secret{}{absent}", used.key, used.secrets, if used.secrets == 1 { "" } else { "s" }))?;
    }
    if usage.iter().all(|used| used.held) {
        return Ok(());
    }
    Err("secrets are sealed with a key that is not in the key directory: they do not open".into())
}

async fn rebind(settings: &Settings) -> Result<(), Failure> {
    let Rebound { from, to } = rollhook_wiring::rebind(settings).await?;
    print(&match from == to {
        true => format!("the store was bound to {to} already"),
        false => format!("the store is bound to {to}, and no longer to {from}"),
    })
}

async fn make_secrets(installation: &Installation) -> Result<(), Failure> {
    for secret in installation.make().await? {
        let name = secret.name;
        print(&if secret.made {
            format!("made the Secret {name}")
        } else {
            format!("the Secret {name} exists: unchanged")
        })?;
    }
    Ok(())
}

/// Prints a line on stdout, where a program that started this one reads it.
fn print(line: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// How long a cluster that keeps the store is waited for at the start; probes of the manifests bear it.
const START: Duration = Duration::from_secs(120);

async fn serve(args: Serve) -> Result<(), Failure> {
    open_files::raise_limit();
    let (settings, sign_in) = (Settings { patience: START, ..args.backends }, args.sign_in);
    // An invalid store is refused before the address is bound.
    let store = settings.store.named()?;
    // The address is bound first: a second server that was started by mistake ends here, before it opens the store.
    let listener = bind(args.listen)?;
    let probes = args.probe_listen.map(bind).transpose()?;
    let address = listener.local_addr()?;
    let _lock = StoreLock::take(&store)?;
    let mut opened = rollhook_wiring::open(&settings).await?;
    if let Some(audience) = args.kubernetes_identity {
        opened.management.reviewer = Some(audience.reviewer().await?);
        tracing::info!(%audience, "callers may prove themselves by tokens of the cluster");
    }
    let replica = format!("{SERVER}{}-{address}", machine());
    let endpoint = args.otlp_endpoint.filter(|endpoint| !endpoint.is_empty());
    let base_url = args.base_url.unwrap_or_else(|| format!("http://{address}"));
    let traces = endpoint.map(|endpoint| Traces::new(&endpoint, &replica, &base_url)).transpose()?;
    if let Some(traces) = &traces {
        opened.ports.observers.push(Arc::new(traces.clone()));
    }
    let config = Config {
        base_url,
        rate_limit: args.rate_limit,
        deploys_per_hour: args.deploys_per_hour,
        trusted_proxies: args.trusted_proxy,
        min_poll: args.min_poll,
        metrics_per_app: args.metrics_per_app,
        notice: notice(&settings),
    };
    let sign_in =
        sign_in.map(|file| SignIn::read(&file, &config.base_url, settings.allow_local_issuers)).transpose()?;
    let server = Server::new(listener, config, (opened.ports, opened.management), &replica);
    let server = match sign_in {
        Some(sign_in) => server.with_sign_in(sign_in),
        None => server,
    };
    let server = match probes {
        Some(probes) => server.with_probes(probes),
        None => server,
    };
    let server = server.with_disk_limits(settings.low_disk.unwrap_or_default(), opened.store.file());
    let server = match opened.key_written {
        Some(at) => server.with_key_written(at),
        None => server,
    };
    match server.management().deployer().bind_driver().await {
        // While the cluster is away, calls are accepted all the same.
        Err(StartError::Unanswered(error)) if error.is_unavailable() => {
            tracing::warn!(error = %error.chain(), "reaching the driver failed: deploys are accepted, and driven later");
        }
        bound => bound.map_err(|error| hints::of_start(&error))?,
    }
    if opened.store.is_shared() {
        server.management().deployer().refuse_twin().await?;
    }
    let admin = admin::ensure(server.management(), &opened.store, args.admin_token_file.as_deref()).await?;
    for Created { what, path } in opened.created.into_iter().chain(admin) {
        tracing::info!(path = %path.display(), "made the {what}");
    }
    warn(&settings, &opened.store, server.management().deployer().sealing());
    tracing::info!(%address, store = %opened.store, driver = %settings.driver.unwrap_or_default(), replica, "listening");
    print(&format!("listening on http://{address}"))?;
    let mut signals = StopSignals::catch()?;
    let stop = async move {
        signals.next().await;
        tracing::info!("stopping; a second signal stops at once");
        tokio::spawn(async move {
            signals.next().await;
            std::process::exit(1);
        });
    };
    let served = server.serve(stop).await;
    opened.builder.stop().await;
    opened.events.stop().await;
    if let Some(traces) = traces {
        traces.stop().await;
    }
    Ok(served?)
}

fn bind(address: SocketAddr) -> Result<TcpListener, String> {
    let bound = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    bound().map_err(|error: std::io::Error| format!("cannot listen on {address}: {error}"))
}

/// Returns the sentence that the console shows on every page.
fn notice(settings: &Settings) -> Option<&'static str> {
    match settings.driver.unwrap_or_default() {
        DriverUrl::Simulated(_) => Some("This server simulates: nothing is deployed anywhere."),
        DriverUrl::Kubernetes | DriverUrl::Docker => None,
    }
}

fn warn(settings: &Settings, store: &StoreUrl, sealing: Sealing) {
    if settings.builder.build_command.is_some() && store.is_shared() {
        tracing::warn!("builds run on this machine: a replica that takes over an app begins its build anew");
    }
    match settings.driver.unwrap_or_default() {
        DriverUrl::Simulated(_) => {
            tracing::warn!(
                "THE DRIVER IS SIMULATED: NOTHING IS DEPLOYED ANYWHERE. Use --driver kubernetes or docker to deploy."
            );
            if settings.builder.build_command.is_none() && settings.builder.cluster.build_image.is_none() {
                tracing::warn!(
                    "builds are simulated as well: no source is read. Use --build-command or --build-image to build."
                );
            }
        }
        DriverUrl::Kubernetes | DriverUrl::Docker => {}
    }
    if !store.is_durable() {
        tracing::warn!("the store is in memory: apps, tokens and history are gone when this process ends");
    }
    if sealing == Sealing::Cluster {
        tracing::warn!(
            "tokens are kept as the cluster keeps Secrets; they are sealed only if it encrypts them at rest"
        );
    }
}
