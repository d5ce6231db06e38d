//! An app's webhook: URL, token and CI snippets.

use rollhook_api::{
    App, Rotate, Webhook, WebhookCall,
    operations::{DisableWebhook, EnableWebhook, ListWebhookCalls, RotateWebhook, ShowApp, ShowWebhook, WebhookQuery},
    reach,
    snippets::{Job, Snippets, git_hosts, repository},
};
use rollhook_core::{app::Source, text::escaped};
use serde::Serialize;

use super::Session;
use crate::{
    args::{self, Target},
    exit::CliError,
    output::message,
    table::{self, Cell, Column, Fit, Tint},
    when,
};

/// The document that enabling prints for programs.
#[derive(Serialize)]
struct Enabled<'a> {
    #[serde(flatten)]
    webhook: &'a Webhook,
    snippets: &'a Snippets,
}

pub(crate) async fn enable(session: &Session<'_>, target: &Target) -> Result<(), CliError> {
    let id = session.find(target).await?;
    // Read first: once the token is made, no failure may keep it from being printed.
    let app = session.api.call(ShowApp, &id, ()).await?;
    let webhook = session.api.call(EnableWebhook, &id, ()).await?;
    let snippets = Snippets::new(&Job::of(&app));
    let document = Enabled { webhook: &webhook, snippets: &snippets };
    session.output.data(&document, || format!("{}{}", enabled(&webhook, &snippets), at_git_host(&app)))?;
    message("note: any token that the app had before is refused from now on");
    if app.policy.repositories.is_empty() && app.source == Source::Image {
        message(&format!(
            "tip: a leaked token can deploy any image; allow only yours: rollhook app set {} --project {} \
             --environment {} --repository {}",
            target.app,
            target.project,
            target.environment,
            repository(&app)
        ));
    }
    note(&webhook);
    Ok(())
}

pub(crate) async fn rotate(session: &Session<'_>, args: &args::Rotate) -> Result<(), CliError> {
    let id = session.find(&args.target).await?;
    let rotate = Rotate { overlap: Some(args.overlap.clone()) };
    let webhook = session.api.call(RotateWebhook, &id, rotate).await?;
    session.output.data(&webhook, || credentials(&webhook))?;
    if let Some(until) = webhook.previous_until {
        message(&format!("note: the token before is let in until {}; any older one is refused", when::absolute(until)));
    }
    note(&webhook);
    Ok(())
}

pub(crate) async fn status(session: &Session<'_>, args: &args::WebhookStatus) -> Result<(), CliError> {
    let id = session.find(&args.target).await?;
    if args.token {
        let token = session.api.call(ShowWebhook, &id, WebhookQuery::default()).await?.token;
        return session.output.data(&serde_json::json!({ "token": token }), || format!("{}\n", escaped(&token)));
    }
    let app = session.api.call(ShowApp, &id, ()).await?;
    let webhook = match session.api.call(ShowWebhook, &id, WebhookQuery::default()).await {
        // A webhook that is disabled is an answer to the question, and no failure.
        Err(CliError::Problem(problem)) if problem.slug() == "no-webhook" => {
            return session.output.data(&serde_json::json!({ "enabled": false }), || "disabled\n".to_owned());
        }
        read => read?,
    };
    session.output.data(&webhook, || {
        format!(
            "{}Made   {}\n{}Stored {}\n{}",
            credentials(&webhook),
            when::absolute(webhook.created_at),
            webhook.previous_until.map_or_else(String::new, |until| {
                format!("Old    the token before is let in until {}\n", when::absolute(until))
            }),
            escaped(&webhook.sealing),
            at_git_host(&app)
        )
    })?;
    note(&webhook);
    Ok(())
}

pub(crate) async fn disable(session: &Session<'_>, target: &Target) -> Result<(), CliError> {
    let id = session.find(target).await?;
    session.api.call(DisableWebhook, &id, ()).await?;
    session.output.line(&format!("Disabled the webhook of {id}; its token is refused from now on"))
}

pub(crate) async fn calls(session: &Session<'_>, target: &Target) -> Result<(), CliError> {
    if session.direct.is_some() {
        let why = "--server: the calls of a webhook are known to the server that answered them alone; name it.";
        return Err(CliError::Usage(why.to_owned()));
    }
    let id = session.find(target).await?;
    let list = session.api.call(ListWebhookCalls, &id, ()).await?;
    session.output.data(&list, || {
        let columns = [
            Column("WHEN", 0, Fit::Time),
            Column("FROM", 0, Fit::Drop(2)),
            Column("BY", 0, Fit::Drop(1)),
            Column("ANSWER", 0, Fit::Keep),
            Column("REASON", 0, Fit::Cut),
        ];
        let rows: Vec<_> = list.calls.iter().map(call).collect();
        table::render(&columns, &rows, session.output.style)
    })?;
    message(
        "note: these calls reached the process that has answered now, since its start; other replicas have their own",
    );
    Ok(())
}

fn call(call: &WebhookCall) -> Vec<Cell> {
    let times = if call.times > 1 { format!(" ({} times)", call.times) } else { String::new() };
    let answer = match call.revision {
        Some(revision) => format!("{} #{revision}", call.status),
        None => format!("{}{times}", call.status),
    };
    let tint = if call.status < 400 { Tint::Good } else { Tint::Bad };
    let reason = [&call.reason, &call.detail].into_iter().flatten().cloned().collect::<Vec<_>>().join(": ");
    let by = if call.credentials.is_empty() { "nothing".to_owned() } else { call.credentials.join(", ") };
    vec![
        Cell::new(when::absolute(call.at)),
        Cell::new(call.source.to_string()),
        Cell::new(by),
        Cell::new(answer).tinted(Some(tint)),
        Cell::new(reason),
    ]
}

fn note(webhook: &Webhook) {
    if let Some(note) = reach::note(&webhook.url) {
        message(&format!("note: {note}"));
    }
    if let Some(note) = &webhook.note {
        message(&format!("note: {}", escaped(note)));
    }
}

fn credentials(webhook: &Webhook) -> String {
    let known = format!("URL    {}\nToken  {}\n", escaped(&webhook.url), escaped(&webhook.token));
    match webhook.signing_key.as_str() {
        // An older server has no signing key.
        "" => known,
        key => format!("{known}Key    {}\n", escaped(key)),
    }
}

/// Returns the instructions for git hosts; empty for an image app.
fn at_git_host(app: &App) -> String {
    match &app.source {
        Source::Git(source) => format!("\n{}", git_hosts::settings(source.branch.as_str())),
        Source::Image => String::new(),
    }
}

fn enabled(webhook: &Webhook, snippets: &Snippets) -> String {
    format!(
        "{}
Keep them in CI as SERVICE_WEBHOOK_URL and, masked, SERVICE_WEBHOOK_TOKEN. Each of
these deploys from a job, which fails unless the deploy has succeeded within the
app's own deadlines (or DEPLOY_TIMEOUT, in seconds).

--- GitLab CI: .gitlab-ci.yml ---
{}
--- GitHub Actions: .github/workflows/deploy.yml ---
{}
--- Anything else: sh and curl 7.55 or newer ---
{}",
        credentials(webhook),
        snippets.gitlab_ci,
        snippets.github_actions,
        snippets.shell
    )
}

#[cfg(test)]
mod tests;
