//! A server's management API: each operation is one call.

mod server;

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use rollhook_api::{
    Deploy, Operation,
    operations::{DeployQuery, ShowDeploy},
};
use rollhook_core::{app::AppId, deploy::Revision};

pub(crate) use self::server::{Server, random_hex};
use crate::exit::CliError;

/// The shortest time of a wait in which nothing has changed: a server that cannot let a call wait answers it at once.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest wait of one call, well within the time limit of a call.
const WAIT_MAX: Duration = Duration::from_secs(20);

impl Server {
    /// Performs an operation on the server.
    pub(crate) async fn call<O: Operation>(
        &self,
        subject: &O::Subject,
        input: &O::Input,
    ) -> Result<O::Answer, CliError> {
        let (path, body) = written::<O>(subject, input)?;
        let answer = self.answered::<O>(&path, body).await?;
        O::read(&answer).map_err(|error| self.unreadable(&error))
    }

    async fn answered<O: Operation>(&self, path: &str, body: Option<Bytes>) -> Result<Bytes, CliError> {
        let method = method_of::<O>()?;
        if O::ENDPOINT.is_once {
            return self.once(&method, path, body).await;
        }
        match self.counted(method, path, body).await {
            // An earlier attempt has removed it, and its answer was lost.
            Err((CliError::Problem(problem), 2..)) if O::ENDPOINT.status == 204 && problem.status == 404 => {
                Ok(Bytes::new())
            }
            other => other.map_err(|(failure, _)| failure),
        }
    }

    /// Returns an entry once it has changed or progressed since this reading of it, or as it is after `limit` at the latest.
    pub(crate) async fn changed(
        &self,
        subject: &(AppId, Revision),
        last: &Deploy,
        limit: Duration,
    ) -> Result<Deploy, CliError> {
        let pause = tokio::time::sleep(PAUSE.min(limit));
        let (path, _) = written::<ShowDeploy>(subject, &DeployQuery::after(last))?;
        let entry: Deploy = self.read(&self.waiting(&path, limit.min(WAIT_MAX)).await?)?;
        if entry.step <= last.step && !entry.status.is_terminal() {
            pause.await;
        }
        Ok(entry)
    }
}

fn method_of<O: Operation>() -> Result<Method, CliError> {
    O::ENDPOINT.method.parse().map_err(|error| CliError::Other(format!("The method of a call: {error}.")))
}

/// Returns the path of a call with its query, and its body.
fn written<O: Operation>(subject: &O::Subject, input: &O::Input) -> Result<(String, Option<Bytes>), CliError> {
    let unwritable = |error| CliError::Other(format!("The request cannot be written as JSON: {error}."));
    let mut path = O::ENDPOINT.path_of(subject);
    if !O::ENDPOINT.has_query() {
        let body = serde_json::to_vec(input).map_err(unwritable)?;
        return Ok((path, (body != b"null").then(|| body.into())));
    }
    let input = serde_json::to_value(input).map_err(unwritable)?;
    let members = input.as_object().into_iter().flatten();
    let members = members.filter_map(|(name, value)| Some((name, value.as_str()?)));
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(members).finish();
    if !query.is_empty() {
        path = format!("{path}?{query}");
    }
    Ok((path, None))
}
