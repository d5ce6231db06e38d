//! The answer to a git host whose call deploys nothing.

use rollhook_core::app::AppId;
use serde::{Deserialize, Serialize};

/// What a git host is answered where nothing was to be done; a push that is deployed is answered as every deploy is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushAnswer {
    /// Project and environment, joined.
    pub namespace: String,
    /// The app.
    pub app: String,
    /// Always `false`: nothing was done, and nothing recorded.
    pub deployed: bool,
    /// Why, in a sentence.
    pub message: String,
}

impl PushAnswer {
    /// The answer that nothing was done, and why.
    pub fn nothing(id: &AppId, why: &str) -> Self {
        Self { namespace: id.namespace.to_string(), app: id.name.to_string(), deployed: false, message: why.to_owned() }
    }
}
