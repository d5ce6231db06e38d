//! The space of the disk that the engine keeps images on.

use std::{fs, io, path::Path, time::Duration};

use rollhook_command::{DiskLimits, disk_space};
use rollhook_core::{Error, Result, disk::DiskSpace};
use serde::de::IgnoredAny;

use crate::{
    engine::{Called, Engine, in_path},
    rules::disk::{self, Directories, OwnContainer},
};

/// The time that a reading may take where a deploy or build waits for it.
const WITHIN: Duration = Duration::from_secs(2);

/// Returns the space of the disk that the engine keeps images on.
///
/// # Errors
/// `Denied` if this process may not see it, or sees no such directory.
pub(crate) async fn space(engine: &Engine) -> Result<DiskSpace> {
    let info = engine.get("/info").await?;
    let nameless = || Error::Corrupt { what: "the engine names no directory of its own".to_owned(), cause: None };
    let directories = disk::directories(&info).ok_or_else(nameless)?;
    let found = match disk_space(&directories.images).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => match own_container(engine).await.ok().flatten() {
            Some(container) => disk_space(place(&directories, &container)).await,
            None => Err(error),
        },
        found => found,
    };
    found.map_err(|error| Error::Denied {
        what: format!("this process cannot see the disk of {}", directories.images.display()),
        cause: Some(error.into()),
    })
}

/// Returns why nothing more is to be put on the disk with the engine's images; `None` if it has room, or cannot be seen.
pub(crate) async fn refusal(engine: &Engine, limits: DiskLimits) -> Option<String> {
    if limits.are_off() {
        return None;
    }
    // A precaution: a slow engine must not keep deploys waiting for it.
    let space = tokio::time::timeout(WITHIN, space(engine)).await.ok()?.ok()?;
    disk::refusal(space, limits)
}

/// Returns the container of this process, if it is one of this engine.
pub(crate) async fn own_container(engine: &Engine) -> Called<Option<OwnContainer>> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let Some(container) = disk::own_container(&mounts) else { return Ok(None) };
    let found = engine.find_typed::<IgnoredAny>(&format!("/containers/{}/json", in_path(&container.id))).await?;
    Ok(found.map(|_| container))
}

/// Returns what lies on the disk with images, as a container sees it: with containerd's image store its root, whose
/// changes are kept beside the images.
fn place<'a>(directories: &Directories, container: &'a OwnContainer) -> &'a Path {
    if directories.images == directories.root { &container.file } else { Path::new("/") }
}
