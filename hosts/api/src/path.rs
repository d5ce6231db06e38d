//! Where things are, relative to the server's base URL.

use rollhook_core::{app::AppId, deploy::Revision};

/// The app.
pub fn app(id: &AppId) -> String {
    format!("/api/v1/apps/{}/{}", id.namespace, id.name)
}

/// One entry of the app's history.
pub fn deploy(id: &AppId, revision: Revision) -> String {
    format!("/api/v1/apps/{}/{}/deploys/{revision}", id.namespace, id.name)
}

/// The app's webhook, as CI calls it.
pub fn webhook(id: &AppId) -> String {
    format!("/api/v1/webhook/{}/{}", id.namespace, id.name)
}
