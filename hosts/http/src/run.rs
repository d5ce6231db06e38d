//! What the binary does: open the backends, serve until a signal, stop in order.

use std::{error::Error, io::Write, path::PathBuf};

use rollhook_core::ports::Sealing;
use rollhook_wiring::{DriverSpec, Settings, admin, hostname};
use tokio::{
    net::TcpListener,
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
            let id = rollhook_wiring::new_key(&dir).map_err(|error| error.chain())?;
            say(&format!("made key {id} in {}", dir.display()))
        }
        Some(Command::AdminToken(AdminToken::New { file })) => {
            admin::create(&file).map_err(|error| error.chain())?;
            say(&format!("made the management token in {}", file.display()))
        }
        None => {
            log::init(args.serve.log_format)?;
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(serve(args.serve))
        }
    }
}

/// Answers on stdout, where a program that started this one reads them.
fn say(line: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

async fn serve(args: Serve) -> Result<(), Failure> {
    let store = args.store.as_deref().map(str::parse).transpose().map_err(|invalid| format!("--store: {invalid}"))?;
    let settings = Settings { store, driver: args.driver.clone(), key_dir: args.key_dir };
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
    };
    let server = Server::new(listener, config, opened.ports, &replica);
    let admin = admin::ensure(server.deployer(), &opened.store, args.admin_token_file.as_deref());
    let admin = admin.await.map_err(|error| error.chain())?;
    tell(opened.made.into_iter().chain(admin.map(|file| ("management token", file))));
    warn(&settings.driver, &opened.store, server.deployer().sealing());
    tracing::info!(%address, store = %opened.store, driver = %settings.driver, replica, "listening");
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
    Ok(server.serve(stop).await?)
}

fn tell(made: impl Iterator<Item = (&'static str, PathBuf)>) {
    for (what, path) in made {
        tracing::info!(path = %path.display(), "made the {what}");
    }
}

fn warn(driver: &DriverSpec, store: &rollhook_wiring::StoreSpec, sealing: Sealing) {
    match driver {
        DriverSpec::Simulated(_) => {
            tracing::warn!("THE DRIVER IS SIMULATED: NOTHING IS DEPLOYED ANYWHERE. Use --driver kubernetes to deploy.");
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
