//! The command as its own host: a deployer on a store and a driver, and its engine while the command runs.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use rollhook_api::{Local, hints};
use rollhook_core::{
    app::AppId,
    deploy::Revision,
    service::{Deployer, Scope, StartError},
};
use rollhook_management::{Management, access::Principal};
use rollhook_wiring::{BuilderStop, DriverUrl, EventsStop};
use tokio::{sync::oneshot, task::JoinHandle, time::sleep};

use crate::{
    args::Connection,
    exit::CliError,
    output::{message, user},
};

/// How often, and at which interval, the end of a cancelled release command is looked for.
const RELEASE_END_LOOKS: usize = 120;
const RELEASE_END_INTERVAL: Duration = Duration::from_millis(500);

/// The deployer within this process.
pub(crate) struct Direct {
    management: Arc<Management>,
    principal: Principal,
    base_url: Arc<str>,
    driver: Option<DriverUrl>,
    engine: OnceLock<Engine>,
    builder: BuilderStop,
    events: EventsStop,
}

/// A running engine, and the signal that stops it.
struct Engine {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), StartError>>,
}

impl Direct {
    /// Opens store, driver and builder.
    ///
    /// # Errors
    /// [`CliError::Usage`] if a flag is wrong; [`CliError::Unreachable`] if a backend cannot be opened.
    pub(crate) async fn open(connection: &Connection) -> Result<Self, CliError> {
        let settings = &connection.backends;
        if settings.store.store.is_none() {
            return Err(CliError::Usage(
                "Where are the apps? Name the server with --server URL (ROLLHOOK_SERVER), or the store that this command \
                 works on without one with --store (sqlite:FILE, postgres://… or kubernetes)."
                    .to_owned(),
            ));
        }
        if !settings.store.named()?.is_durable() {
            return Err(CliError::Usage(
                "--store: what is in memory is gone when this command ends; use sqlite:FILE, or --server.".to_owned(),
            ));
        }
        let opened = rollhook_wiring::open(settings).await?;
        for created in &opened.created {
            message(&format!("note: made the {} {}", created.what, created.path.display()));
        }
        let replica = format!("cli-{}-{}", rollhook_wiring::machine(), std::process::id());
        let deployer = Arc::new(Deployer::new(opened.ports, &replica).with_scope(Scope::OwnCalls));
        if settings.driver.is_some() {
            match deployer.bind_driver().await {
                // A read needs no driver; the engine tries again.
                Ok(()) | Err(StartError::Unanswered(_)) => {}
                Err(error) => return Err(CliError::Usage(format!("{}.", hints::of_start(&error)))),
            }
        }
        Ok(Self {
            management: Arc::new(Management::new(deployer, opened.management).with_base_url(&connection.base_url)),
            principal: Principal::trusted(&user()),
            base_url: connection.base_url.as_str().into(),
            driver: settings.driver,
            engine: OnceLock::new(),
            builder: opened.builder,
            events: opened.events,
        })
    }

    /// Returns the API on this process's deployer, for the person who runs the command.
    pub(crate) fn caller(&self) -> Local {
        Local::new(self.management.clone(), self.principal.clone(), self.base_url.clone())
    }

    /// Starts the engine, which drives deploys from now on.
    ///
    /// # Errors
    /// [`CliError::Usage`] if no driver was named: the simulated one would record successes that never happened, in a
    /// store whose apps run on a real cluster.
    pub(crate) fn start(&self) -> Result<(), CliError> {
        let Some(driver) = self.driver else {
            return Err(CliError::Usage(
                "--driver: name the rollout driver, kubernetes or docker, or simulated to try things out (or name a --server)."
                    .to_owned(),
            ));
        };
        self.engine.get_or_init(|| {
            if matches!(driver, DriverUrl::Simulated(_)) {
                message("note: the driver is simulated: it deploys nowhere (see --driver)");
            }
            let (stop, stopped) = oneshot::channel::<()>();
            let management = Arc::clone(&self.management);
            // An error means that the other end is gone, which is a stop as well.
            let stopped = async { drop(stopped.await) };
            Engine { stop, task: tokio::spawn(async move { management.run(stopped).await }) }
        });
        Ok(())
    }

    /// Waits until the release command of a cancelled deploy has ended, as this process's engine sees it, for a minute at
    /// most. Returns whether it has.
    pub(crate) async fn release_ended(&self, id: &AppId, revision: Revision) -> bool {
        let deployer = self.management.deployer();
        for _ in 0..RELEASE_END_LOOKS {
            match deployer.find_app(id).await {
                Ok(Some(app)) if app.release_runs.contains(&revision) => {}
                // An app that is gone has nothing that runs.
                Ok(_) => return true,
                Err(_) => {}
            }
            sleep(RELEASE_END_INTERVAL).await;
        }
        false
    }

    /// Stops engine and builder, and releases the engine's leases.
    pub(crate) async fn close(self) {
        if let Some(Engine { stop, task }) = self.engine.into_inner() {
            let _ = stop.send(());
            match task.await {
                Ok(Ok(())) => {}
                Ok(Err(reason)) => message(&format!("warning: {}", hints::of_start(&reason))),
                Err(_) => message("warning: the engine did not stop in order; another process takes over after 15 s"),
            }
        }
        self.builder.stop().await;
        self.events.stop().await;
    }
}
