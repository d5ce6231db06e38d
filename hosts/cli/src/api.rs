//! The API that commands call: a server's, or that of a management plane in this process.

use std::time::Duration;

use rollhook_api::{Deploy, Local, Operation, operations::DeployQuery};
use rollhook_core::{app::AppId, deploy::Revision};

use crate::{exit::CliError, remote::Server};

/// The API that commands call.
pub(crate) enum Api {
    /// A server's.
    Server(Server),
    /// That of this process.
    Local(Local),
}

impl Api {
    /// Performs an operation.
    pub(crate) async fn call<O: Operation>(
        &self,
        _operation: O,
        subject: &O::Subject,
        input: O::Input,
    ) -> Result<O::Answer, CliError> {
        match self {
            Self::Server(server) => Box::pin(server.call::<O>(subject, &input)).await,
            Self::Local(local) => Ok(Box::pin(O::perform(local, subject, input)).await?),
        }
    }

    /// Returns an entry once it has changed or progressed since this reading of it, or as it is after `limit` at the latest.
    pub(crate) async fn changed(
        &self,
        subject: &(AppId, Revision),
        last: &Deploy,
        limit: Duration,
    ) -> Result<Deploy, CliError> {
        match self {
            Self::Server(server) => Box::pin(server.changed(subject, last, limit)).await,
            Self::Local(local) => Ok(Box::pin(local.changed(subject, &DeployQuery::after(last), limit)).await?),
        }
    }
}
