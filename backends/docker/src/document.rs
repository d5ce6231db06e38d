//! The document that makes a deploy's container, with what has to be read for it.

use serde_json::Value;

use crate::{
    engine::{Called, Engine},
    pulls,
    rules::{container::Container, creation, given, recreation},
    settings::Rollout,
};

/// The document that makes a deploy's container.
pub(crate) enum Document {
    Body(Value),
    /// Nothing says how the container is to be made, for this reason.
    Unknown(String),
    /// The image of the deploy is gone, after it was pulled.
    WithoutImage,
}

/// Returns the document that makes a deploy's container of this image.
pub(crate) async fn document(
    engine: &Engine,
    rollout: &Rollout,
    model: Option<&Container>,
    image: &str,
) -> Called<Document> {
    let Some(brought) = pulls::configuration(engine, image).await? else { return Ok(Document::WithoutImage) };
    let mut body = match (model, &rollout.workload.template) {
        (Some(model), _) => {
            // All that the image before brought along would look as if it had been given.
            let Some(defaults) = pulls::configuration(engine, model.image_id()).await? else {
                return Ok(Document::Unknown(model.without_image()));
            };
            // Another party may have made the container since the deploy was applied.
            if let Some(conflict) = recreation::conflict(model, &defaults, rollout) {
                return Ok(Document::Unknown(conflict));
            }
            recreation::body(model, &defaults, rollout, image, &brought)
        }
        (None, Some(template)) => creation::silent(creation::body(template, rollout, image), &brought),
        (None, None) => {
            return Ok(Document::Unknown("neither a container nor a setting says how it is made".to_owned()));
        }
    };
    given::mark(&mut body, &brought);
    Ok(Document::Body(body))
}
