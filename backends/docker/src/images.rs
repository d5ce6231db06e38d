//! Removes images of old versions.

use http::Method;
use rollhook_core::image::ImageRef;

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
    let list = |value: serde_json::Value| value.as_array().cloned().unwrap_or_default();
    let removable = images::removable(&list(found), &list(containers), surplus);
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
