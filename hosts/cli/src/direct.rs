//! The command as its own host: the deployer on a store and a cluster, and the engine for as long as the command runs.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use rollhook_api::{
    App, AppList, AppPatch, CreateApp, Deploy, DeployAnswer, DeployList, DeployPost, Promote, Rebuild, Registered,
    Rollback, RollbackAnswer, Standing, Webhook,
};
use rollhook_core::{
    app::{AppId, Namespace},
    decide::restore::{self, Owed},
    deploy::{self, Revision},
    ports::{AppPage, Page},
    service::{Authorized, Deployer, Operator},
};
use rollhook_wiring::{BuilderSettings, BuilderStop, DriverSpec, Settings, StoreSpec};
use tokio::{
    sync::{Mutex, oneshot},
    task::JoinHandle,
};

use crate::{
    args::Connection,
    backend::{Backend, user},
    exit::Failure,
    output::message,
};

/// Apps that one page of the list holds.
const APPS_PAGE: usize = 100;
/// How long the engine may take to put a failed rollout right after it has ended: it does so in its next step.
const RESTORE_PATIENCE: Duration = Duration::from_secs(15);
const RESTORE_POLL: Duration = Duration::from_millis(50);

/// The deployer within this process.
pub(crate) struct Direct {
    deployer: Arc<Deployer>,
    operator: Operator,
    base_url: String,
    simulated: bool,
    driver_named: bool,
    engine: Mutex<Option<Engine>>,
    builder: Mutex<Option<BuilderStop>>,
}

/// A running engine, and what stops it.
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
        let usage = |flag: &str, why: &dyn std::fmt::Display| Failure::Usage(format!("--{flag}: {why}."));
        let store = connection.store.as_deref().map(str::parse::<StoreSpec>).transpose();
        let store = store.map_err(|invalid| usage("store", &invalid))?;
        if store.as_ref().is_some_and(|store| !store.is_durable()) {
            return Err(usage(
                "store",
                &"what is in memory is gone when this command ends; use sqlite:FILE, or --server",
            ));
        }
        let driver: DriverSpec =
            connection.driver.as_deref().unwrap_or("simulated").parse().map_err(|invalid| usage("driver", &invalid))?;
        let simulated = matches!(driver, DriverSpec::Simulated(_));
        let builder = BuilderSettings {
            command: connection.build_command.clone(),
            cluster: connection.cluster.wanted().map_err(|why| usage("build-image", &why))?,
            directory: connection.build_dir.clone(),
            credentials: connection.build_credentials.clone(),
            local_sources: connection.allow_local_sources,
        };
        let settings = Settings { store, driver, key_dir: connection.key_dir.clone(), builder };
        let opened = rollhook_wiring::open(&settings)
            .await
            .map_err(|error| Failure::Unreachable(format!("{}.", error.chain())))?;
        for (what, place) in &opened.made {
            message(&format!("note: made the {what} {place}"));
        }
        let replica = format!("cli-{}-{}", rollhook_wiring::hostname(), std::process::id());
        Ok(Self {
            deployer: Arc::new(Deployer::new(opened.ports, &replica)),
            operator: Operator::trusted(&user()),
            base_url: connection.base_url.clone(),
            simulated,
            driver_named: connection.driver.is_some(),
            engine: Mutex::new(None),
            builder: Mutex::new(Some(opened.builder)),
        })
    }

    /// Drives deploys from now on.
    ///
    /// # Errors
    /// [`Failure::Usage`] where no driver was named: one that deploys nowhere would tell a store whose apps run on a real
    /// cluster that they run what they do not.
    async fn start(&self) -> Result<(), Failure> {
        if !self.driver_named {
            return Err(Failure::Usage(
                "--driver: say what rolls out: kubernetes, or simulated to try things out (or name a --server)."
                    .to_owned(),
            ));
        }
        let mut engine = self.engine.lock().await;
        if engine.is_some() {
            return Ok(());
        }
        if self.simulated {
            message("note: the driver is simulated, it deploys nowhere (see --driver)");
        }
        let (stop, stopped) = oneshot::channel::<()>();
        let deployer = Arc::clone(&self.deployer);
        let task = tokio::spawn(async move {
            deployer
                .run(async {
                    // An error means that the other end is gone, which is a stop as well.
                    let _ = stopped.await;
                })
                .await;
        });
        *engine = Some(Engine { stop, task });
        Ok(())
    }

    async fn access(&self, id: &AppId) -> Result<Authorized, Failure> {
        Ok(self.deployer.open(&self.operator, id).await?)
    }

    async fn shown(&self, id: &AppId, entry: &deploy::Deploy) -> Result<Deploy, Failure> {
        let view = self.deployer.view(&self.access(id).await?).await?;
        Ok(Deploy::of(id, entry, Standing::of(&view)))
    }
}

#[async_trait]
impl Backend for Direct {
    async fn create(&self, app: CreateApp) -> Result<Registered, Failure> {
        self.start().await?;
        let registered = self.deployer.register(&self.operator, app.parse()?, None).await?;
        let id = &registered.app.id;
        let deploy = match &registered.deploy {
            Some(deploy) => Some(self.shown(id, deploy).await?),
            None => None,
        };
        Ok(Registered { app: self.app(id).await?, deploy, adopted: registered.adopted })
    }

    async fn apps(&self, namespace: Option<&Namespace>, after: Option<&str>) -> Result<AppList, Failure> {
        let after = after.map(str::parse).transpose()?;
        let page = AppPage { namespace: namespace.cloned(), after, limit: APPS_PAGE };
        let found = self.deployer.apps(&self.operator, page).await?;
        let next = (found.len() == APPS_PAGE).then(|| found.last().map(|app| app.id.to_string())).flatten();
        let mut apps = Vec::with_capacity(found.len());
        for app in &found {
            match self.app(&app.id).await {
                // It was removed since the list was read.
                Err(Failure::Problem(problem)) if problem.status == 404 => {}
                shown => apps.push(shown?),
            }
        }
        Ok(AppList { apps, next })
    }

    async fn app(&self, id: &AppId) -> Result<App, Failure> {
        let access = self.access(id).await?;
        let view = self.deployer.view(&access).await?;
        let warning = self.deployer.warning(&access, &view.app).await?;
        Ok(App { warning, ..App::of(&view) })
    }

    async fn change(&self, id: &AppId, patch: AppPatch) -> Result<App, Failure> {
        self.deployer.change(&self.operator, id, patch.policy.parse()?, patch.source.parse()?).await?;
        self.app(id).await
    }

    async fn delete(&self, id: &AppId) -> Result<(), Failure> {
        Ok(self.deployer.delete(&self.operator, id).await?)
    }

    async fn enable(&self, id: &AppId) -> Result<Webhook, Failure> {
        let secret = self.deployer.enable_webhook(&self.operator, id).await?;
        Ok(Webhook::of(&self.base_url, id, &secret, self.deployer.sealing()))
    }

    async fn webhook(&self, id: &AppId) -> Result<Webhook, Failure> {
        let secret = self.deployer.webhook(&self.operator, id).await?;
        Ok(Webhook::of(&self.base_url, id, &secret, self.deployer.sealing()))
    }

    async fn disable(&self, id: &AppId) -> Result<(), Failure> {
        Ok(self.deployer.disable_webhook(&self.operator, id).await?)
    }

    async fn history(&self, id: &AppId, before: Option<Revision>, limit: usize) -> Result<DeployList, Failure> {
        let access = self.access(id).await?;
        let standing = Standing::of(&self.deployer.view(&access).await?);
        let entries = self.deployer.history(&access, Page { before, succeeded: false, limit }).await?;
        let oldest = entries.last().map(|entry| entry.revision);
        let next = oldest.filter(|oldest| entries.len() == limit && *oldest > Revision::FIRST);
        let deploys = entries.iter().map(|entry| Deploy::of(id, entry, standing).without_evidence()).collect();
        Ok(DeployList { deploys, next })
    }

    async fn entry(&self, id: &AppId, revision: Revision) -> Result<Deploy, Failure> {
        let entry = self.deployer.entry(&self.access(id).await?, revision).await?;
        self.shown(id, &entry).await
    }

    async fn changed(&self, id: &AppId, revision: Revision, seen: u32, limit: Duration) -> Result<Deploy, Failure> {
        let entry = self.deployer.changed(&self.access(id).await?, revision, seen, limit).await?;
        self.shown(id, &entry).await
    }

    async fn deploy(&self, id: &AppId, post: DeployPost) -> Result<DeployAnswer, Failure> {
        self.start().await?;
        let accepted = self.deployer.submit(&self.access(id).await?, post.parse(None)?).await?;
        Ok(DeployAnswer::accepted(id, &accepted))
    }

    async fn rebuild(&self, id: &AppId, rebuild: Rebuild) -> Result<DeployAnswer, Failure> {
        self.start().await?;
        let accepted = self.deployer.rebuild(&self.operator, id, rebuild.parse()?, None).await?;
        Ok(DeployAnswer::accepted(id, &accepted))
    }

    async fn build_log(&self, id: &AppId, revision: Revision, from: u64) -> Result<Vec<u8>, Failure> {
        Ok(self.deployer.build_log(&self.access(id).await?, revision, from, false).await?.bytes)
    }

    async fn cancel(&self, id: &AppId, revision: Revision) -> Result<Deploy, Failure> {
        self.start().await?;
        let entry = self.deployer.cancel(&self.operator, id, revision).await?;
        self.shown(id, &entry).await
    }

    async fn rollback(&self, id: &AppId, rollback: Rollback) -> Result<RollbackAnswer, Failure> {
        self.start().await?;
        let accepted = self.deployer.rollback(&self.operator, id, rollback.parse(None)).await?;
        Ok(RollbackAnswer::of(id, &accepted))
    }

    async fn promote(&self, id: &AppId, promote: Promote) -> Result<DeployAnswer, Failure> {
        self.start().await?;
        let accepted = self.deployer.promote(&self.operator, id, &promote.parse(id)?, None).await?;
        Ok(DeployAnswer::accepted(id, &accepted))
    }

    async fn release_hold(&self, id: &AppId) -> Result<App, Failure> {
        self.deployer.release_hold(&self.operator, id).await?;
        self.app(id).await
    }

    fn drives(&self) -> bool {
        true
    }

    async fn left_to_do(&self, id: &AppId) -> Result<Option<Revision>, Failure> {
        let access = self.access(id).await?;
        let mut patience = RESTORE_PATIENCE;
        loop {
            let view = self.deployer.view(&access).await?;
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

    async fn close(&self) {
        if let Some(Engine { stop, task }) = self.engine.lock().await.take() {
            let _ = stop.send(());
            if task.await.is_err() {
                message("warning: the engine did not stop in order; another process takes over after 15 s");
            }
        }
        if let Some(builder) = self.builder.lock().await.take() {
            builder.stop().await;
        }
    }
}
