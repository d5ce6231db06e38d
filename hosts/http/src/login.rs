//! The sign-in of a command line.

use http::StatusCode;
use rollhook_api::{LoggedIn, Login};

use crate::{
    call::Call,
    error_reply::ErrorReply,
    reply::{self, Reply},
};

/// Answers `POST /login`: by a code, and no other credential.
pub(crate) async fn redeem(call: &Call) -> Result<Reply, ErrorReply> {
    let Login { code, verifier } = call.json()?;
    let redeemed = call.state.management.redeem_code(&code, &verifier).await;
    let (token, principal) = redeemed.map_err(|refusal| ErrorReply::from(refusal).redacted())?;
    call.in_call.known(call.state.holder(&token));
    let logged_in = LoggedIn { token: token.to_string(), actor: principal.actor().to_string() };
    Ok(reply::json(StatusCode::OK, &logged_in))
}
