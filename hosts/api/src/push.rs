//! The answer to a git host whose call deploys nothing.

use rollhook_core::app::AppId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The answer to a git host's call that deploys nothing; a push that is deployed is answered as every deploy is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PushAnswer {
    /// Project and environment, joined by a hyphen.
    pub namespace: String,
    /// The app's name.
    pub app: String,
    /// Always `false`: nothing was done, and nothing recorded.
    #[schemars(extend("const" = false))]
    pub deployed: bool,
    /// The reason, in a sentence.
    pub message: String,
}

impl PushAnswer {
    /// Returns the answer that nothing was done, and why.
    pub fn nothing(id: &AppId, why: &str) -> Self {
        Self { namespace: id.namespace.to_string(), app: id.name.to_string(), deployed: false, message: why.to_owned() }
    }
}
