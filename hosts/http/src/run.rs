//! What the binary does: open the backends, serve until a signal, stop in order.

use std::{error::Error, io::Write};

use rollhook_core::{app::Namespace, ports::Sealing};
use rollhook_wiring::{DriverSpec, Made, Settings, StoreSettings, StoreSpec, admin, hostname, keys, manifests};
use tokio::{
    net::TcpListener,
    runtime::Runtime,
    signal::unix::{SignalKind, signal},
};

use crate::{
    args::{AdminToken, Args, Command, Keys, Serve, Switch},
    log,
    server::{Config, Server},
};

type Failure = Box<dyn Error + Send + Sync>;

/// Does what the arguments ask for.
///
/// # Errors
/// What kept the program from starting, or from stopping in order, as a sentence for whoever started it.
pub fn run(args: Args) -> Result<(), Failure> {
    match args.command {
        Some(Command::Keys(Keys::New { dir })) => {
            let id = keys::create(&dir).map_err(|error| error.chain())?;
            say(&format!("made key {id} in {}", dir.display()))
        }
        Some(Command::Keys(Keys::Rotate(sealed))) => runtime()?.block_on(report_keys(sealed, true)),
        Some(Command::Keys(Keys::Status(sealed))) => runtime()?.block_on(report_keys(sealed, false)),
        Some(Command::AdminToken(AdminToken::New { file })) => {
            admin::create(&file).map_err(|error| error.chain())?;
            say(&format!("made the management token in {}", file.display()))
        }
        Some(Command::Manifests(wanted)) => {
            let printed = manifests::print(manifests::Wanted {
                namespace: wanted.namespace.as_str(),
                apps: &wanted.app_namespace,
                image: wanted.image.as_deref(),
                builds: wanted.build_namespace.as_ref().map(Namespace::as_str),
                registry_ports: &wanted.build_registry_port,
            });
            say(printed.map_err(|error| error.chain())?.trim_end())
        }
        None => {
            log::init(args.serve.log_format)?;
            runtime()?.block_on(serve(args.serve))
        }
    }
}

fn runtime() -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()
}

async fn report_keys(store: StoreSettings, reseal: bool) -> Result<(), Failure> {
    let report = keys::report(&store, reseal).await.map_err(|error| error.chain())?;
    if reseal {
        say(&format!("sealed anew: {}", report.resealed))?;
    }
    for used in &report.usage {
        let absent = if used.held { "" } else { "  NOT IN THE KEY DIRECTORY" };
        say(&format!("{}  {} token{}{absent}", used.key, used.tokens, if used.tokens == 1 { "" } else { "s" }))?;
    }
    let absent = report.usage.iter().any(|used| !used.held);
    if absent {
        Err("tokens are sealed with a key that is not in the key directory: they do not open".into())
    } else {
        Ok(())
    }
}

/// Answers on stdout, where a program that started this one reads them.
fn say(line: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

async fn serve(args: Serve) -> Result<(), Failure> {
    let settings = args.backends;
    // A store that cannot be read is refused before the address is taken.
    settings.store.named().map_err(|error| error.chain())?;
    // The address is taken first: a second server started by mistake ends here, before it opens the first one's store.
    let listener =
        TcpListener::bind(args.listen).await.map_err(|error| format!("cannot listen on {}: {error}", args.listen))?;
    let address = listener.local_addr()?;
    let opened = rollhook_wiring::open(&settings).await.map_err(|error| error.chain())?;
    let replica = format!("server-{}-{address}", hostname());
    let config = Config {
        base_url: args.base_url.unwrap_or_else(|| format!("http://{address}")),
        rate_limit: args.rate_limit == Switch::On,
        trusted_proxies: args.trusted_proxy,
        min_poll: args.min_poll,
    };
    let server = Server::new(listener, config, opened.ports, &replica);
    let admin = admin::ensure(server.deployer(), &opened.store, args.admin_token_file.as_deref());
    let admin = admin.await.map_err(|error| error.chain())?;
    tell(opened.made.into_iter().chain(admin.map(|file| ("management token", file.display().to_string()))));
    warn(&settings, &opened.store, server.deployer().sealing());
    tracing::info!(%address, store = %opened.store, driver = %settings.driver.unwrap_or_default(), replica, "listening");
    say(&format!("listening on http://{address}"))?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping; a second signal stops at once");
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            std::process::exit(1);
        });
    };
    let served = server.serve(stop).await;
    opened.builder.stop().await;
    Ok(served?)
}

fn tell(made: impl Iterator<Item = Made>) {
    for (what, place) in made {
        tracing::info!(path = place, "made the {what}");
    }
}

fn warn(settings: &Settings, store: &StoreSpec, sealing: Sealing) {
    if settings.builder.build_command.is_some() && store.is_shared() {
        tracing::warn!("builds run on this machine: another replica that takes an app over begins its build anew");
    }
    match settings.driver.unwrap_or_default() {
        DriverSpec::Simulated(_) => {
            tracing::warn!("THE DRIVER IS SIMULATED: NOTHING IS DEPLOYED ANYWHERE. Use --driver kubernetes to deploy.");
            if settings.builder.build_command.is_none() && settings.builder.cluster.build_image.is_none() {
                tracing::warn!(
                    "builds are simulated, too: no source is read. Use --build-command or --build-image to build."
                );
            }
        }
        DriverSpec::Kubernetes => {}
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
