//! Removes images of old versions.

use http::Method;
use rollhook_core::image::ImageRef;
use serde_json::Value;

use crate::{
    engine::{Called, Engine, in_path},
    rules::images,
};

/// The most images that one call removes, so that it ends in time; the next deploy goes on.
const AT_ONCE: usize = 10;

/// Removes these images from the machine, unless something uses them.
pub(crate) async fn discard(engine: &Engine, surplus: &[ImageRef]) -> Called<()> {
    let found = engine.get("/images/json").await?;
    let containers = engine.get("/containers/json?all=1").await?;
    let list = |value: Value| value.as_array().cloned().unwrap_or_default();
    let mut found = list(found);
    for image in found.iter_mut().filter(|found| images::is_any(found, surplus)) {
        // The list does not tell where an image of the containerd image store comes from.
        let path = format!("/images/{}/json", in_path(image["Id"].as_str().unwrap_or_default()));
        *image = engine.find(&path).await?.unwrap_or_default();
    }
    let removable = images::removable(&found, &list(containers), surplus);
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
