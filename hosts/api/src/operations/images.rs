//! Images at their registries.

use rollhook_core::{app::AppId, request::Field};
use rollhook_management::Refusal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Following, Image, Local, Operation, app::optional, endpoint::Endpoint, openapi::schemas};

/// The query of a look at an image.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ImageQuery {
    /// The image, `[HOST[:PORT]/]PATH[:TAG][@DIGEST]`; by default that of the app's newest deploy which has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", extend("pattern" = schemas::image()))]
    pub reference: Option<String>,
}

/// Shows what the registry has of an image now.
pub struct LookUpImage;

impl Operation for LookUpImage {
    type Subject = AppId;
    type Input = ImageQuery;
    type Answer = Image;

    const ENDPOINT: Endpoint = Endpoint::get(
        "/api/v1/apps/{namespace}/{app}/image",
        "What the registry has of an image, for whoever may deploy it; nothing follows from it",
    );

    async fn perform(caller: &Local, id: &AppId, query: ImageQuery) -> Result<Image, Refusal> {
        let image = optional(Field::Image, query.reference.as_deref())?;
        let found = caller.management.look_up_image(&caller.principal, id, image.as_ref()).await?;
        Ok(Image::of(found))
    }
}

/// Shows what following finds in an app's repository now.
pub struct ExplainFollowing;

impl Operation for ExplainFollowing {
    type Subject = AppId;
    type Input = ();
    type Answer = Following;

    const ENDPOINT: Endpoint = Endpoint::get(
        "/api/v1/apps/{namespace}/{app}/follow",
        "The tags of the repository that an app follows, why each is the newest or not, and what comes of it; for whoever may deploy it",
    );

    async fn perform(caller: &Local, id: &AppId, (): ()) -> Result<Following, Refusal> {
        Ok(Following::of(caller.management.explain_following(&caller.principal, id).await?))
    }
}
