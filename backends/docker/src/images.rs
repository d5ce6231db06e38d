//! Removes images of old versions.

use http::Method;
use rollhook_core::{app::App, image::ImageRef};
use serde_json::Value;

use crate::{
    engine::{Called, Engine, in_path},
    releases,
    rules::{images, release},
};

/// The most images that one call removes, so that it ends in time; the next deploy goes on.
const AT_ONCE: usize = 10;

/// Removes these images of an app from the machine, unless something uses them. Runs of release commands that need not be
/// reported any more are removed with them.
pub(crate) async fn discard(engine: &Engine, app: &App, surplus: &[ImageRef]) -> Called<()> {
    let found = engine.get("/images/json").await?;
    let containers = engine.get("/containers/json?all=1").await?;
    let list = |value: Value| value.as_array().cloned().unwrap_or_default();
    let mut found = list(found);
    for image in found.iter_mut().filter(|found| images::is_any(found, surplus)) {
        // The list does not tell where an image of the containerd image store comes from.
        let path = format!("/images/{}/json", in_path(image["Id"].as_str().unwrap_or_default()));
        *image = engine.find(&path).await?.unwrap_or_default();
    }
    let (containers, now) = (list(containers), jiff::Timestamp::now());
    let is_spent = |container: &&Value| release::is_spent(container, &containers, (&app.id, app.uid), now);
    let (spent, users): (Vec<&Value>, Vec<&Value>) = containers.iter().partition(is_spent);
    let users: Vec<Value> = users.into_iter().cloned().collect();
    for run in spent {
        let images: Vec<Value> = found.iter().filter(|found| found["Id"] == run["ImageID"]).cloned().collect();
        if !images::removable(&images, &users, surplus).is_empty() {
            releases::remove(engine, run["Id"].as_str().unwrap_or_default()).await?;
        }
    }
    let removable = images::removable(&found, &users, surplus);
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
