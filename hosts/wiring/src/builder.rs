//! Opens the builder of git apps.

use std::{path::PathBuf, sync::Arc};

use rollhook_command::{CommandBuilds, DiskLimits, Tool};
use rollhook_core::{
    ports::{BranchReader, Clock},
    service::BuildPorts,
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
    disk: DiskLimits,
    driver: &DriverUrl,
    clock: Arc<dyn Clock>,
) -> Result<(Option<BuildPorts>, BuilderStop), Error> {
    refuse_user(settings)?;
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
        let ports = BuildPorts::new(builds, branches(settings)?).with(|ports| ports.sources = sources);
        return Ok((Some(ports), BuilderStop::default()));
    }
    let Some(path) = settings.build_command.clone() else {
        return match driver {
            DriverUrl::Simulated(delay) => {
                settings.refuse_limits()?;
                let builds = Arc::new(SimulatedBuilds::new(clock, *delay));
                let ports = BuildPorts::new(builds.clone(), builds).with(|ports| ports.sources = sources);
                Ok((Some(ports), BuilderStop::default()))
            }
            DriverUrl::Kubernetes => {
                settings.refuse_limits()?;
                Ok((None, BuilderStop::default()))
            }
            DriverUrl::Docker => docker_builder::open(settings, disk).await,
        };
    };
    settings.refuse_limits()?;
    let tool = Tool::Program { path, user: settings.build_user.clone() };
    on_this_machine(
        rollhook_command::Settings { disk, ..rollhook_command::Settings::new(tool, directory(settings)?) },
        settings,
    )
    .await
}

/// Returns an error if there is a user to run a build command as, and no build command.
fn refuse_user(settings: &BuilderSettings) -> Result<(), Error> {
    if settings.build_user.is_none() || settings.build_command.is_some() {
        return Ok(());
    }
    let why =
        "--build-user is the user that the build command runs as, and there is none: name it with --build-command";
    Err(Error::Usage(why.to_owned()))
}

/// The builds' directory by default where they are another user's: that user cannot enter the data directory, and as a
/// rule not the home of root either.
const OF_ANOTHER_USER: &str = "/var/lib/rollhook-builds";

fn directory(settings: &BuilderSettings) -> Result<PathBuf, Error> {
    match (&settings.build_dir, &settings.build_user) {
        (Some(directory), _) => Ok(directory.clone()),
        (None, Some(_)) => Ok(OF_ANOTHER_USER.into()),
        (None, None) => paths::in_data_directory("builds", "--build-dir"),
    }
}

/// Opens a builder whose checkouts are made by this process.
async fn on_this_machine(
    with: rollhook_command::Settings,
    settings: &BuilderSettings,
) -> Result<(Option<BuildPorts>, BuilderStop), Error> {
    let sources = settings.sources();
    let with = rollhook_command::Settings {
        credentials: settings.build_credentials.clone(),
        sources: sources.clone(),
        ..with
    };
    let builds = CommandBuilds::open(with).await.map_err(|error| Error::backend("builder")(error.into()))?;
    let builds = Arc::new(builds);
    let ports = BuildPorts::new(builds.clone(), branches(settings)?).with(|ports| ports.sources = sources);
    Ok((Some(ports), BuilderStop(Some(builds))))
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

/// Docker builds git apps where nothing else does.
#[cfg(feature = "docker")]
mod docker_builder {
    use std::num::NonZeroU16;

    use rollhook_core::source::AllowedSources;
    use rollhook_docker::{BuildLimits, EngineBuilder};

    use super::{Arc, BuildPorts, BuilderSettings, BuilderStop, DiskLimits, Error, Tool, directory, on_this_machine};

    /// The builds at once.
    const SLOTS: NonZeroU16 = NonZeroU16::new(2).unwrap();

    /// Whether a setting asks for builds: without any, a server that deploys images only needs nothing for them.
    fn are_asked_for(settings: &BuilderSettings) -> bool {
        let limits = settings.build_slots.is_some() || settings.build_cpu.is_some() || settings.build_memory.is_some();
        let sources = settings.build_credentials.is_some() || settings.sources() != AllowedSources::default();
        settings.build_dir.is_some() || limits || sources
    }

    pub(super) async fn open(
        settings: &BuilderSettings,
        disk: DiskLimits,
    ) -> Result<(Option<BuildPorts>, BuilderStop), Error> {
        let fail = |error: rollhook_core::Error| Error::backend("builder")(error.into());
        let limits = BuildLimits::parse(settings.build_memory.as_deref(), settings.build_cpu.as_deref());
        let slots = settings.build_slots.unwrap_or(SLOTS);
        let engine = EngineBuilder::connect(limits.map_err(fail)?.at_once(slots)).map_err(fail)?;
        let tool = Tool::Engine(Arc::new(engine.with_disk_limits(disk)));
        let opened = match directory(settings) {
            Ok(directory) => {
                let with = rollhook_command::Settings::new(tool, directory);
                let with = rollhook_command::Settings { at_once: slots.get().into(), disk, ..with };
                on_this_machine(with, settings).await
            }
            Err(error) => Err(error),
        };
        match opened {
            Err(error) if !are_asked_for(settings) => {
                let error = rollhook_core::error::chain(&error);
                tracing::warn!(error, "git apps are not built by this process; name a directory with --build-dir");
                Ok((None, BuilderStop::default()))
            }
            opened => opened,
        }
    }
}

#[cfg(not(feature = "docker"))]
mod docker_builder {
    use super::{BuildPorts, BuilderSettings, BuilderStop, DiskLimits, Error};

    pub(super) async fn open(_: &BuilderSettings, _: DiskLimits) -> Result<(Option<BuildPorts>, BuilderStop), Error> {
        Err(Error::NotBuilt("docker builder"))
    }
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

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt, path::Path};

    use super::*;

    #[test]
    fn builds_of_another_user_are_where_that_user_can_enter() {
        let own = BuilderSettings { build_dir: Some("/srv/builds".into()), ..BuilderSettings::default() };
        let other = BuilderSettings { build_user: Some("build".to_owned()), ..BuilderSettings::default() };
        assert_eq!(directory(&own).unwrap(), Path::new("/srv/builds"));
        assert_eq!(
            directory(&BuilderSettings { build_user: other.build_user.clone(), ..own }).unwrap(),
            Path::new("/srv/builds")
        );
        let directory = directory(&other).unwrap();
        for above in directory.ancestors().skip(1).filter(|above| above.exists()) {
            let mode = fs::metadata(above).unwrap().permissions().mode();
            assert!(mode & 0o001 != 0, "{}: {mode:o}", above.display());
        }
    }
}
