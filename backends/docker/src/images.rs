//! Removes images of old versions.

use std::collections::{BTreeMap, HashSet};

use http::Method;
use rollhook_core::{app::App, image::ImageRef};

use crate::{
    engine::{Called, Engine, in_path},
    pulls, releases,
    rules::{
        images::{self, StoredImage},
        listed::ListedContainer,
        release,
    },
};

/// The most images that one call removes, so that it ends in time; the next deploy goes on.
const AT_ONCE: usize = 10;

/// Removes these images of an app from the machine, unless something uses them. Runs of release commands that need not be
/// reported any more are removed with them.
pub(crate) async fn discard(engine: &Engine, app: &App, surplus: &[ImageRef]) -> Called<()> {
    let mut found: Vec<StoredImage> = engine.typed("/images/json").await?;
    let containers: Vec<ListedContainer> = engine.typed("/containers/json?all=1").await?;
    for image in found.iter_mut().filter(|found| images::is_any(found, surplus)) {
        // The list does not tell where an image of the containerd image store comes from.
        *image = pulls::find(engine, &image.id).await?.unwrap_or_default();
    }
    let (runs, now) = (releases::list(engine).await?, jiff::Timestamp::now());
    let is_spent = |run: &&ListedContainer| release::is_spent(run, &runs, (&app.id, app.uid), now);
    let spent: BTreeMap<&str, &str> = runs.iter().filter(is_spent).map(|run| (&*run.id, &*run.image_id)).collect();
    let users = containers.iter().filter(|container| !spent.contains_key(&*container.id));
    let used: HashSet<&str> = users.map(|container| &*container.image_id).collect();
    for (run, image) in &spent {
        let images = found.iter().filter(|found| found.id == *image);
        if !images::removable(images, &used, surplus).is_empty() {
            releases::remove(engine, run).await?;
        }
    }
    let removable = images::removable(&found, &used, surplus);
    for name in removable.into_iter().take(AT_ONCE) {
        match engine.bytes(Method::DELETE, &format!("/images/{}", in_path(&name)), None).await {
            Ok(_) => tracing::info!(image = %name, "removed an image of an old version"),
            // A container was made of it meanwhile, or another image is based on it.
            Err(failure) if failure.is_conflict() || failure.is_not_found() => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(())
}
