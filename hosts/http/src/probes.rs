//! What anyone may ask for: whether the server is alive and ready, its metrics, the description of the API, and the script
//! of CI.

use std::sync::LazyLock;

use bytes::Bytes;
use http::{StatusCode, header::ACCEPT};
use rollhook_api::{Kind, openapi};

use crate::{
    call::Call,
    error_reply::ErrorReply,
    reply::{self, Reply},
};

/// The description of the API, which takes long to make, and anyone may ask for.
static DESCRIPTION: LazyLock<Bytes> = LazyLock::new(|| openapi::document().to_string().into());

/// The script by which a job of any CI system deploys; it is the one that all our CI components run.
const SCRIPT: &str = include_str!("deploy.sh");

/// Answers `GET /healthz`.
pub(crate) async fn health(call: &Call) -> Result<Reply, ErrorReply> {
    Ok(alive(call.state.deployer.is_driving()))
}

/// Returns the answer for a supervisor, which is to restart a server whose engine is stuck.
fn alive(is_driving: bool) -> Reply {
    let (status, text) = match is_driving {
        true => (StatusCode::OK, "ok\n"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "The engine has stood still for 30 s: nothing is deployed.\n"),
    };
    reply::whole(status, "text/plain; charset=utf-8", Bytes::from_static(text.as_bytes()))
}

/// Answers `GET /readyz`.
pub(crate) async fn ready(call: &Call) -> Result<Reply, ErrorReply> {
    let state = &call.state;
    if state.drain.has_begun() {
        return Err(ErrorReply::new(Kind::ShuttingDown, "The server is stopping."));
    }
    let ready = state.readiness.get(async || state.management.ready().await).await;
    ready.map_err(|refusal| ErrorReply::from(refusal).redacted())?;
    if !state.writable.now() {
        return Err(ErrorReply::new(
            Kind::StoreUnavailable,
            "The store can be read, but not written; the log says why.",
        ));
    }
    Ok(reply::whole(StatusCode::OK, "text/plain; charset=utf-8", Bytes::from_static(b"ready\n")))
}

/// Answers `GET /metrics`.
pub(crate) async fn metrics(call: &Call) -> Result<Reply, ErrorReply> {
    call.state.metrics.look(&call.state.deployer);
    let accept = call.headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let (media_type, text) = call.state.metrics.text(accept);
    Ok(reply::whole(StatusCode::OK, media_type, text.into()))
}

/// Answers `GET /api/v1/openapi.json`.
pub(crate) async fn description() -> Result<Reply, ErrorReply> {
    Ok(reply::whole(StatusCode::OK, "application/json", DESCRIPTION.clone()))
}

/// Answers `GET /api/v1/deploy.sh`.
pub(crate) async fn script() -> Result<Reply, ErrorReply> {
    let script = Bytes::from_static(SCRIPT.as_bytes());
    Ok(reply::whole(StatusCode::OK, "text/x-shellscript; charset=utf-8", script))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_is_red_while_the_engine_stands_still() {
        assert_eq!(alive(true).status(), StatusCode::OK);
        assert_eq!(alive(false).status(), StatusCode::SERVICE_UNAVAILABLE);
    }
}
