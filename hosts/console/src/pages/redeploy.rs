//! The question before what runs is deployed once more.

use rollhook_api::{
    App, DeployPost,
    operations::{DeployApp, ShowApp},
    words::short_image,
};
use rollhook_core::{app::AppId, text::escaped};

use super::confirm::Question;
use crate::{
    console::Call,
    host::Failure,
    reply::{self, Reply},
    view::{Head, app_path},
};

fn question<'a>(call: &Call<'_>, app: &App, head: &'a Head) -> Question<'a> {
    let current = app.current.as_ref();
    let image = current.and_then(|deploy| deploy.image.as_deref()).map(|image| escaped(&short_image(image)));
    let revision = current.map(|deploy| deploy.revision.to_string());
    let instances = call.frame().targets.instances;
    let named = revision.as_ref().map(|revision| format!(" revision {revision}")).unwrap_or_default();
    let hidden = [("key", Some(call.new_key())), ("if_current", revision)];
    let path = app_path(app);
    Question {
        head: Some(head),
        title: format!("Redeploy{named}?"),
        consequences: vec![
            format!(
                "{} rolls out again as a new revision: new {instances} take the place of those that run, without a gap.",
                image.as_deref().unwrap_or("What runs")
            ),
            "Nothing is built, and no release command runs.".to_owned(),
        ],
        action: format!("{path}/redeploy"),
        back: path,
        button: format!("Redeploy{named}"),
        hidden: hidden.into_iter().filter_map(|(name, value)| value.map(|value| (name, value))).collect(),
        ..Question::default()
    }
}

/// Answers `GET …/redeploy`.
pub(crate) async fn page(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    let app = call.operations().call(ShowApp, id, ()).await?;
    Ok(question(call, &app, &Head::new(&app, "deploys")).reply(call))
}

/// Answers `POST …/redeploy`.
pub(crate) async fn submit(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    let if_current = call.request.field("if_current").and_then(|text| text.parse().ok());
    let post = DeployPost { same: true, if_current, ..DeployPost::default() };
    match call.keyed("deploy")?.call(DeployApp, id, post).await {
        Ok(_) => Ok(reply::redirect(&format!("/apps/{}/{}", id.namespace, id.name))),
        Err(failure) if (400..500).contains(&failure.problem.status) => {
            // The question names what is current by now: to answer it again is to have seen that.
            let app = call.operations().call(ShowApp, id, ()).await?;
            Ok(question(call, &app, &Head::new(&app, "deploys")).refused(call, &failure))
        }
        Err(failure) => Err(failure),
    }
}
