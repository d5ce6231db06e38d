//! `rollhook app image`: the image that an app's workload has, for scripts.

use rollhook_api::Deploy;
use rollhook_core::text::escaped;
use serde::Serialize;

use super::Session;
use crate::{args::Target, exit::CliError, output::message};

/// The document for programs.
#[derive(Serialize)]
struct Document<'a> {
    image: &'a str,
    revision: u64,
}

/// Prints the image that the workload is set to, so that a tool which applies it changes nothing: as the server has read it,
/// or else that of the newest deploy which has touched the workload. Another party's is not printed.
pub(crate) async fn image(session: &Session<'_>, target: &Target) -> Result<(), CliError> {
    let app = session.app(target).await?;
    let deploy = app.on_cluster.as_ref().or(app.current.as_ref());
    let Some((deploy, image)) = deploy.and_then(|deploy| Some((deploy, deploy.image.as_deref()?))) else {
        let id = target.id()?;
        return Err(CliError::Other(format!("No deploy of {id} has reached its workload yet.")));
    };
    if !deploy.current {
        message(&note(deploy));
    }
    if let Some(drift) = &app.drift {
        message(&format!("note: {}", escaped(&drift.message)));
    }
    let image = app.workload_image.as_deref().filter(|_| app.drift.is_none()).unwrap_or(image);
    let document = Document { image, revision: deploy.revision.get() };
    session.output.data(&document, || format!("{}\n", escaped(image)))
}

fn note(deploy: &Deploy) -> String {
    format!("note: revision {} has not succeeded: it is {}", deploy.revision, deploy.status)
}
