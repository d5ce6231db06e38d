//! Tests of receivers, of which each has a bounded number.

use rollhook_api::{Local, operations::TestReceiver};

use crate::{answer, call::Call, error_reply::ErrorReply, reply::Reply};

/// Answers `POST /receivers/{receiver}/test`.
pub(crate) async fn test(call: &Call, caller: Local) -> Result<Reply, ErrorReply> {
    let receiver = call.subject()?;
    call.state.limits.test(&receiver)?;
    let tested = caller.call(TestReceiver, &receiver, ()).await?;
    call.state.limits.tested(&receiver);
    Ok(answer::of::<TestReceiver>(&tested))
}
