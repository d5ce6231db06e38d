//! The questions before an app is stopped, and before it is started again.

use rollhook_api::{
    App, DeployAnswer, Operation, ScalePost,
    operations::{ShowApp, StartApp, StopApp},
    words::short_image,
};
use rollhook_core::{app::AppId, deploy::Scale, text::escaped};

use super::confirm::Question;
use crate::{
    console::Call,
    host::Failure,
    reply::{self, Reply},
    view::{Head, app_path},
};

fn question<'a>(call: &Call<'_>, app: &App, head: &'a Head, scale: Scale) -> Question<'a> {
    let current = app.current.as_ref();
    let revision = current.map(|deploy| deploy.revision.to_string());
    let instances = call.frame().targets.instances;
    let hidden = [("key", Some(call.new_key())), ("if_current", revision)];
    let (name, path) = (escaped(&app.app), app_path(app));
    let (verb, button, consequences) = match scale {
        Scale::Keep | Scale::Stop => (
            "stop",
            "Stop",
            vec![
                format!("All {instances} end: the app serves nothing until it is started again."),
                "Deploys, also those of CI, go on to change its image, and start nothing.".to_owned(),
                "How many there were is kept, and comes back with the start.".to_owned(),
            ],
        ),
        Scale::Start => {
            let image = current.and_then(|deploy| deploy.image.as_deref()).map(|image| escaped(&short_image(image)));
            let image = image.unwrap_or_else(|| "The current version".to_owned());
            let starts = format!("{image} runs again, with as many {instances} as before the stop.");
            ("start", "Start", vec![starts, "Nothing is built, and no release command runs.".to_owned()])
        }
    };
    Question {
        head: Some(head),
        title: format!("{button} {name}?"),
        consequences,
        action: format!("{path}/{verb}"),
        back: path,
        button: format!("{button} {name}"),
        hidden: hidden.into_iter().filter_map(|(name, value)| value.map(|value| (name, value))).collect(),
        ..Question::default()
    }
}

/// Answers `GET …/stop` and `GET …/start`.
pub(crate) async fn page(call: &Call<'_>, id: &AppId, scale: Scale) -> Result<Reply, Failure> {
    let app = call.operations().call(ShowApp, id, ()).await?;
    Ok(question(call, &app, &Head::new(&app, "deploys"), scale).reply(call))
}

/// Answers `POST …/stop`.
pub(crate) async fn stop(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    submit(call, id, StopApp, ("stop", Scale::Stop)).await
}

/// Answers `POST …/start`.
pub(crate) async fn start(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    submit(call, id, StartApp, ("start", Scale::Start)).await
}

async fn submit<O>(
    call: &Call<'_>,
    id: &AppId,
    operation: O,
    (key, scale): (&'static str, Scale),
) -> Result<Reply, Failure>
where
    O: Operation<Subject = AppId, Input = ScalePost, Answer = DeployAnswer>,
{
    let if_current = call.request.field("if_current").and_then(|text| text.parse().ok());
    match call.keyed(key)?.call(operation, id, ScalePost { if_current, ..ScalePost::default() }).await {
        Ok(_) => Ok(reply::redirect(&format!("/apps/{}/{}", id.namespace, id.name))),
        Err(failure) if (400..500).contains(&failure.problem.status) => {
            // The question names what is current by now: to answer it again is to have seen that.
            let app = call.operations().call(ShowApp, id, ()).await?;
            Ok(question(call, &app, &Head::new(&app, "deploys"), scale).refused(call, &failure))
        }
        Err(failure) => Err(failure),
    }
}
