//! Paths, relative to the server's base URL.

use rollhook_core::{
    app::{AppId, Environment, Project},
    deploy::Revision,
};
use rollhook_management::{access::SessionId, keyless::TrustId, notifications::ReceiverName};

/// Returns the path of an app.
pub fn app(id: &AppId) -> String {
    format!("/api/v1/apps/{}/{}", id.namespace, id.name)
}

/// Returns the path of an entry of the app's history.
pub fn deploy(id: &AppId, revision: Revision) -> String {
    format!("/api/v1/apps/{}/{}/deploys/{revision}", id.namespace, id.name)
}

/// Returns the path of the app's webhook, as CI calls it.
pub fn webhook(id: &AppId) -> String {
    format!("/api/v1/webhook/{}/{}", id.namespace, id.name)
}

/// Returns the path of an environment's lock.
pub fn lock(project: &Project, environment: &Environment) -> String {
    format!("/api/v1/locks/{project}/{environment}")
}

/// The path of the receivers of notifications.
pub const RECEIVERS: &str = "/api/v1/receivers";

/// Returns the path of a receiver.
pub fn receiver(name: &ReceiverName) -> String {
    format!("{RECEIVERS}/{name}")
}

/// The path of sessions.
pub const SESSIONS: &str = "/api/v1/sessions";

/// Returns the path of a session.
pub fn session(id: &SessionId) -> String {
    format!("{SESSIONS}/{id}")
}

/// Returns the path of the webhook's last calls.
pub fn webhook_calls(id: &AppId) -> String {
    format!("{}/webhook/calls", app(id))
}

/// Returns the path of the pipelines that the app trusts.
pub fn trusts(id: &AppId) -> String {
    format!("{}/webhook/trusts", app(id))
}

/// Returns the path of one of them.
pub fn trust(id: &AppId, trust: &TrustId) -> String {
    format!("{}/{trust}", trusts(id))
}
