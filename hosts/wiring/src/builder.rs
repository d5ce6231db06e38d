//! Opens the builder of git apps.

use std::sync::Arc;

use rollhook_command::CommandBuilds;
use rollhook_core::{
    ports::{BranchReader, Clock},
    service::Builder,
};
use rollhook_git::GitBranchReader;
use rollhook_memory::SimulatedBuilds;

#[cfg(feature = "kubernetes")]
use crate::cluster_builder;
use crate::{BuilderSettings, DriverUrl, Error, paths};

/// The handle that stops a builder in order.
#[derive(Default)]
pub struct BuilderStop(Option<Arc<CommandBuilds>>);

impl BuilderStop {
    /// Ends all builds of this process, which begin anew in the next one; to be called after the engine has ended.
    pub async fn stop(self) {
        if let Some(builds) = self.0 {
            builds.close().await;
        }
    }
}

/// Opens the builder.
pub(crate) async fn open(
    settings: &BuilderSettings,
    driver: &DriverUrl,
    clock: Arc<dyn Clock>,
) -> Result<(Option<Builder>, BuilderStop), Error> {
    let sources = settings.sources();
    // A file may still appear, as that of a mounted Secret does.
    for missing in settings.missing() {
        tracing::warn!(path = %missing.display(), "missing a file or directory that builds use");
    }
    if let Some(image) = settings.cluster.image()? {
        if settings.build_command.is_some() {
            return Err(Error::TwoBuilders);
        }
        let builds = cluster_builder::open(image, settings).await?;
        return Ok((Some(Builder { builds, branches: branches(settings)?, sources }), BuilderStop::default()));
    }
    let Some(program) = settings.build_command.clone() else {
        return Ok(match driver {
            DriverUrl::Simulated(delay) => {
                let builds = Arc::new(SimulatedBuilds::new(clock, *delay));
                (Some(Builder { builds: builds.clone(), branches: builds, sources }), BuilderStop::default())
            }
            DriverUrl::Kubernetes | DriverUrl::Docker => (None, BuilderStop::default()),
        });
    };
    let directory = match &settings.build_dir {
        Some(directory) => directory.clone(),
        None => paths::in_data_directory("builds", "--build-dir")?,
    };
    let given = rollhook_command::Settings {
        user: settings.build_user.clone(),
        credentials: settings.build_credentials.clone(),
        sources: sources.clone(),
        ..rollhook_command::Settings::new(program, directory)
    };
    let builds = CommandBuilds::open(given).await.map_err(|error| Error::backend("builder")(error.into()))?;
    let builds = Arc::new(builds);
    let branches = branches(settings)?;
    Ok((Some(Builder { builds: builds.clone(), branches, sources }), BuilderStop(Some(builds))))
}

/// Opens the branch reader: git on this machine, for every builder.
fn branches(settings: &BuilderSettings) -> Result<Arc<dyn BranchReader>, Error> {
    let given = rollhook_git::Settings {
        credentials: settings.build_credentials.clone(),
        sources: settings.sources(),
        ..rollhook_git::Settings::default()
    };
    Ok(Arc::new(GitBranchReader::open(given).map_err(|error| Error::backend("builder")(error.into()))?))
}

#[cfg(not(feature = "kubernetes"))]
mod cluster_builder {
    use super::{Arc, BuilderSettings, Error};

    pub(super) async fn open(
        _: &str,
        _: &BuilderSettings,
    ) -> Result<Arc<dyn rollhook_core::ports::BuildTrigger>, Error> {
        Err(Error::NotBuilt("kubernetes builder"))
    }
}
