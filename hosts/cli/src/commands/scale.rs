//! Stops and starts.

use rollhook_api::{
    DeployAnswer, Operation, ScalePost,
    operations::{StartApp, StopApp},
};
use rollhook_core::app::AppId;

use super::{Session, deploys::conclude};
use crate::{args, exit::CliError};

pub(crate) async fn stop(session: &Session<'_>, args: &args::Scale) -> Result<(), CliError> {
    scale(session, args, StopApp, "Stopping").await
}

pub(crate) async fn start(session: &Session<'_>, args: &args::Scale) -> Result<(), CliError> {
    scale(session, args, StartApp, "Starting").await
}

async fn scale<O>(session: &Session<'_>, args: &args::Scale, operation: O, doing: &str) -> Result<(), CliError>
where
    O: Operation<Subject = AppId, Input = ScalePost, Answer = DeployAnswer>,
{
    let id = &session.find(&args.target).await?;
    let if_current = session.app(&args.target).await?.current.map(|current| current.revision);
    let break_glass = args.break_glass.as_ref().map(ToString::to_string);
    session.drive()?;
    let answer = session.api.call(operation, id, ScalePost { if_current, break_glass }).await?;
    session.output.line(&format!("{doing} {id}: revision {}", answer.revision))?;
    conclude(session, id, answer, args.wait).await
}
