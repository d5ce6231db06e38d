//! The document that makes a deploy's container, with what has to be read for it.

use serde_json::Value;

use crate::{
    engine::{Called, Engine},
    pulls,
    rules::{container::Container, creation, given, recreation},
    settings::Rollout,
};

/// The document that makes a deploy's container of this image; `None` if neither a container nor a template says how.
pub(crate) async fn document(
    engine: &Engine,
    rollout: &Rollout,
    model: Option<&Container>,
    image: &str,
) -> Called<Option<Value>> {
    let config = async |image: &str| {
        let found = pulls::find(engine, image).await?;
        Called::Ok(found.map(|image| image["Config"].clone()))
    };
    let brought = config(image).await?.unwrap_or_default();
    let mut body = match (model, &rollout.workload.template) {
        (Some(model), _) => {
            let Some(defaults) = config(model.image_id()).await? else {
                // Without the image before, all settings look as if they were given.
                return Ok(Some(recreation::body(model, None, rollout, image, &brought)));
            };
            recreation::body(model, Some(&defaults), rollout, image, &brought)
        }
        (None, Some(template)) => creation::body(template, rollout, image),
        (None, None) => return Ok(None),
    };
    given::mark(&mut body, &brought);
    Ok(Some(body))
}
