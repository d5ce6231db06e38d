//! The command as its own host: the deployer on a store and a cluster, and the engine for as long as the command runs.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use rollhook_api::Local;
use rollhook_core::{
    app::AppId,
    deploy::Revision,
    ledger::restore::{self, Owed},
    service::{Deployer, Operator},
};
use rollhook_wiring::{BuilderStop, DriverUrl};
use tokio::{sync::oneshot, task::JoinHandle};

use crate::{
    args::Connection,
    exit::Failure,
    output::{message, user},
};

/// How long the engine may take to put a failed rollout right after it has ended: it does so in its next step.
const RESTORE_PATIENCE: Duration = Duration::from_secs(15);
const RESTORE_POLL: Duration = Duration::from_millis(50);

/// The deployer within this process.
pub(crate) struct Direct {
    deployer: Arc<Deployer>,
    operator: Operator,
    base_url: Arc<str>,
    driver: Option<DriverUrl>,
    engine: OnceLock<Engine>,
    builder: BuilderStop,
}

/// A running engine, and the signal that stops it.
struct Engine {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Direct {
    /// Opens store and cluster.
    ///
    /// # Errors
    /// [`Failure::Usage`] where they are not named as the server names them; [`Failure::Unreachable`] where they cannot
    /// be opened.
    pub(crate) async fn open(connection: &Connection) -> Result<Self, Failure> {
        let settings = &connection.backends;
        if !settings.store.named()?.is_durable() {
            return Err(Failure::Usage(
                "--store: what is in memory is gone when this command ends; use sqlite:FILE, or --server.".to_owned(),
            ));
        }
        let opened = rollhook_wiring::open(settings).await?;
        for created in &opened.created {
            message(&format!("note: made the {} {}", created.what, created.path.display()));
        }
        let replica = format!("cli-{}-{}", rollhook_wiring::hostname(), std::process::id());
        Ok(Self {
            deployer: Arc::new(Deployer::new(opened.ports, &replica)),
            operator: Operator::trusted(&user()),
            base_url: connection.base_url.as_str().into(),
            driver: settings.driver,
            engine: OnceLock::new(),
            builder: opened.builder,
        })
    }

    /// The operations on this process's deployer.
    pub(crate) fn operations(&self) -> Local<Failure> {
        Local::new(self.deployer.clone(), self.operator.clone(), self.base_url.clone())
    }

    /// Drives deploys from now on.
    ///
    /// # Errors
    /// [`Failure::Usage`] if no driver was named: one that deploys nowhere would record, in a store whose apps run on a
    /// real cluster, that they run what they do not.
    pub(crate) fn start(&self) -> Result<(), Failure> {
        let Some(driver) = self.driver else {
            return Err(Failure::Usage(
                "--driver: say what rolls out: kubernetes, or simulated to try things out (or name a --server)."
                    .to_owned(),
            ));
        };
        self.engine.get_or_init(|| {
            if matches!(driver, DriverUrl::Simulated(_)) {
                message("note: the driver is simulated, it deploys nowhere (see --driver)");
            }
            let (stop, stopped) = oneshot::channel::<()>();
            let deployer = Arc::clone(&self.deployer);
            // An error means that the other end is gone, which is a stop as well.
            let stopped = async { drop(stopped.await) };
            Engine { stop, task: tokio::spawn(async move { deployer.run(stopped).await }) }
        });
        Ok(())
    }

    /// Returns the newest revision of an app that this process still has to see to its end: an unfinished deploy, or the
    /// restore of a failed one.
    pub(crate) async fn left_to_do(&self, id: &AppId) -> Result<Option<Revision>, Failure> {
        let access = self.deployer.open(&self.operator, id).await?;
        let mut patience = RESTORE_PATIENCE;
        loop {
            let view = self.deployer.state(&access).await?;
            if let Some(newest) = view.unfinished.last() {
                return Ok(Some(newest.revision));
            }
            match restore::owed(&view) {
                Owed::Restore(_) if !patience.is_zero() => tokio::time::sleep(RESTORE_POLL).await,
                Owed::Restore(_) | Owed::Nothing | Owed::NothingToRestore => return Ok(None),
            }
            patience = patience.saturating_sub(RESTORE_POLL);
        }
    }

    /// Stops engine and builder, and releases the engine's leases.
    pub(crate) async fn close(self) {
        if let Some(Engine { stop, task }) = self.engine.into_inner() {
            let _ = stop.send(());
            if task.await.is_err() {
                message("warning: the engine did not stop in order; another process takes over after 15 s");
            }
        }
        self.builder.stop().await;
    }
}
