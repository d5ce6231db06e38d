//! An app's webhook: its URL, its token once it is asked for, and the snippets for CI.

use askama::Template;
use http::StatusCode;
use rollhook_api::{
    App, Kind, Rotate, TrustList, Webhook, WebhookCallList,
    operations::{
        DisableWebhook, EnableWebhook, EndTrust, ListTrusts, ListWebhookCalls, RotateWebhook, ShowApp, ShowWebhook,
        WebhookQuery,
    },
    reach,
    snippets::{Job, KeylessSnippets, Snippets, git_hosts},
};
use rollhook_core::{
    app::{AppId, Source},
    text::escaped,
};
use rollhook_management::keyless::TrustId;
use zeroize::Zeroizing;

use super::confirm::Question;
use crate::{
    console::Call,
    host::Failure,
    reply::{self, Reply},
    view::{Frame, Head, Mark, When, app_path},
};

#[derive(Template)]
#[template(path = "webhook.html")]
struct WebhookPage<'a> {
    frame: &'a Frame,
    head: &'a Head,
    enabled: Option<Enabled>,
    snippets: Snippets,
    git_hosts: Option<String>,
    keyless: Option<Keyless>,
    /// The last calls; `None`: they are not for the caller.
    calls: Option<Vec<Called>>,
    repositories: Vec<String>,
    takes_images: bool,
}

/// An enabled webhook.
struct Enabled {
    url: String,
    /// The token and the signing key, where they were asked for.
    secrets: Option<Secrets>,
    has_key: bool,
    made: When,
    sealing: String,
    note: Option<String>,
    /// Why CI elsewhere does not reach the URL.
    reach: Option<&'static str>,
    is_new: bool,
    /// The end of the time of the token before.
    previous_until: Option<String>,
}

/// A call of the webhook.
struct Called {
    mark: Mark,
    when: When,
    source: String,
    by: String,
    times: Option<u64>,
    detail: Option<String>,
    /// The deploy that it made, or repeated.
    deploy: Option<String>,
    revision: String,
}

impl Called {
    fn of(call: &rollhook_api::WebhookCall, path: &str, frame: &Frame) -> Self {
        let kind = |kind: &String| match kind.as_str() {
            "message" => "signed message".to_owned(),
            "identity" => "id_token".to_owned(),
            "invalid" => "unreadable header".to_owned(),
            other => escaped(other),
        };
        let by: Vec<String> = call.credentials.iter().map(kind).collect();
        let word = call.reason.as_deref().map_or_else(String::new, |reason| format!(" {}", escaped(reason)));
        Self {
            mark: Mark::answer(call.status, format!("{}{word}", call.status)),
            when: When::new(call.at, frame.now),
            source: call.source.to_string(),
            by: if by.is_empty() { "no credentials".to_owned() } else { by.join(", ") },
            times: Some(call.times).filter(|times| *times > 1),
            detail: call.detail.as_deref().map(escaped),
            deploy: call.revision.map(|revision| format!("{path}/deploys/{revision}")),
            revision: call.revision.map(|revision| revision.to_string()).unwrap_or_default(),
        }
    }
}

/// The pipelines that the app trusts.
struct Keyless {
    url: String,
    trusts: Vec<Trusted>,
    snippets: Option<KeylessSnippets>,
}

/// A trusted pipeline.
struct Trusted {
    id: String,
    issuer: String,
    audience: String,
    claims: Vec<String>,
    /// The jobs that it lets in beside those that its claims seem to name.
    too_wide: Option<String>,
}

impl Keyless {
    /// Returns what the page shows, or `None` if the app trusts no pipeline.
    fn of(app: &App, list: TrustList) -> Option<Self> {
        let first = list.trusts.first()?;
        let trusted = |trust: &rollhook_api::Trust| Trusted {
            id: trust.id.to_string(),
            issuer: escaped(&trust.issuer),
            audience: escaped(&trust.audience),
            claims: trust.claims.iter().map(|(name, text)| escaped(&format!("{name} = {text}"))).collect(),
            too_wide: trust.too_wide.as_deref().map(escaped),
        };
        let snippets = KeylessSnippets::new(&Job::of(app), &first.audience);
        Some(Self { url: escaped(&list.url), trusts: list.trusts.iter().map(trusted).collect(), snippets })
    }
}

/// The secrets that only the answer to a reveal shows.
struct Secrets {
    token: Zeroizing<String>,
    key: Zeroizing<String>,
}

/// Whether a page shows the token.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Token {
    Masked,
    Revealed,
    New,
}

fn shown(call: &Call<'_>, app: &App, webhook: Option<Webhook>, lists: Lists, token: Token) -> Reply {
    let frame = call.frame();
    let enabled = webhook.map(|webhook| {
        let (secret, key) = (Zeroizing::new(webhook.token), Zeroizing::new(webhook.signing_key));
        Enabled {
            url: escaped(&webhook.url),
            has_key: token == Token::Masked || !key.is_empty(),
            secrets: (token != Token::Masked).then_some(Secrets { token: secret, key }),
            made: When::new(webhook.created_at, frame.now),
            sealing: escaped(&webhook.sealing),
            note: webhook.note.as_deref().map(escaped),
            reach: reach::note(&webhook.url),
            is_new: token == Token::New,
            previous_until: webhook.previous_until.map(|until| When::new(until, frame.now).full().to_owned()),
        }
    });
    let page = WebhookPage {
        head: &Head::new(app, "webhook"),
        enabled,
        snippets: Snippets::new(&Job::of(app)),
        git_hosts: match &app.source {
            Source::Git(git) => Some(escaped_lines(&git_hosts::settings(git.branch.as_str()))),
            Source::Image => None,
        },
        keyless: Keyless::of(app, lists.trusts),
        calls: lists.calls.map(|list| list.calls.iter().map(|call| Called::of(call, &app_path(app), &frame)).collect()),
        repositories: app.policy.repositories.iter().map(|entry| escaped(entry)).collect(),
        takes_images: app.source == Source::Image,
        frame: &frame,
    };
    let reply = reply::html(StatusCode::OK, &page);
    if token == Token::Masked { reply } else { reply::with_secret(reply) }
}

fn escaped_lines(text: &str) -> String {
    // The first line is the terminal's heading.
    text.lines().skip(1).map(escaped).collect::<Vec<_>>().join("\n")
}

/// The lists of the page.
struct Lists {
    trusts: TrustList,
    calls: Option<WebhookCallList>,
}

impl Lists {
    async fn read(call: &Call<'_>, id: &AppId) -> Result<Self, Failure> {
        let operations = call.operations();
        let calls = match call.access.permissions.may_read_calls {
            true => Some(operations.call(ListWebhookCalls, id, ()).await?),
            false => None,
        };
        Ok(Self { trusts: operations.call(ListTrusts, id, ()).await?, calls })
    }
}

fn if_enabled(read: Result<Webhook, Failure>) -> Result<Option<Webhook>, Failure> {
    match read {
        Ok(webhook) => Ok(Some(webhook)),
        Err(failure) if failure.kind == Kind::NoWebhook => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Answers `GET …/webhook`.
pub(crate) async fn page(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    let operations = call.operations();
    let app = operations.call(ShowApp, id, ()).await?;
    let webhook = if_enabled(operations.call(ShowWebhook, id, WebhookQuery::MASKED).await)?;
    Ok(shown(call, &app, webhook, Lists::read(call, id).await?, Token::Masked))
}

/// Answers `POST …/webhook/reveal`.
pub(crate) async fn reveal(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    let operations = call.operations();
    let app = operations.call(ShowApp, id, ()).await?;
    let lists = Lists::read(call, id).await?;
    let webhook = if_enabled(operations.call(ShowWebhook, id, WebhookQuery::default()).await)?;
    Ok(shown(call, &app, webhook, lists, Token::Revealed))
}

/// The words of a question.
struct Words<'a> {
    title: &'a str,
    button: &'a str,
    /// The consequences, a sentence each.
    consequences: &'a [&'a str],
}

/// Returns the question whether this change of the webhook is wanted; the change is the last part of its path.
async fn ask(call: &Call<'_>, id: &AppId, change: &str, words: &Words<'_>) -> Result<Reply, Failure> {
    let app = call.operations().call(ShowApp, id, ()).await?;
    let path = format!("{}/webhook", app_path(&app));
    let question = Question {
        head: Some(&Head::new(&app, "webhook")),
        title: words.title.to_owned(),
        consequences: words.consequences.iter().map(ToString::to_string).collect(),
        action: format!("{path}/{change}"),
        back: path,
        button: words.button.to_owned(),
        ..Question::default()
    };
    Ok(question.reply(call))
}

/// Answers `GET …/webhook/enable`.
pub(crate) async fn confirm_enable(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    let words = Words {
        title: "Make a new token?",
        button: "Make a new token",
        consequences: &[
            "The token that CI uses now is refused at once, everywhere.",
            "Pipelines fail with 401 until SERVICE_WEBHOOK_TOKEN is the new token.",
            "The URL stays as it is.",
        ],
    };
    let present = if_enabled(call.operations().call(ShowWebhook, id, WebhookQuery::MASKED).await)?;
    ask(call, id, &format!("enable?replaces={}", mark_of(present.as_ref())), &words).await
}

/// Returns the mark of the present token, which the form that replaces it carries: a form that is sent twice, or a page
/// that is loaded again, must not replace the token that it has made.
fn mark_of(webhook: Option<&Webhook>) -> String {
    webhook.map_or_else(|| "none".to_owned(), |webhook| webhook.created_at.as_millis().to_string())
}

/// Answers `POST …/webhook/enable?replaces=MARK`.
pub(crate) async fn enable(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    let operations = call.operations();
    if let Some(replaced) = call.request.query("replaces")
        && replaced != mark_of(if_enabled(operations.call(ShowWebhook, id, WebhookQuery::MASKED).await)?.as_ref())
    {
        return reveal(call, id).await;
    }
    // Read first: once the token is made, no failure may keep it from being shown.
    let (app, lists) = (operations.call(ShowApp, id, ()).await?, Lists::read(call, id).await?);
    let webhook = operations.call(EnableWebhook, id, ()).await?;
    Ok(shown(call, &app, Some(webhook), lists, Token::New))
}

/// Answers `GET …/webhook/rotate`.
pub(crate) async fn confirm_rotate(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    let words = Words {
        title: "Rotate the token?",
        button: "Rotate the token",
        consequences: &[
            "The new token counts at once, and the token that CI uses now is let in for one more hour.",
            "Pipelines fail with 401 after that, until SERVICE_WEBHOOK_TOKEN is the new token.",
            "For that hour, the token cannot be rotated again.",
        ],
    };
    ask(call, id, "rotate", &words).await
}

/// Answers `POST …/webhook/rotate`.
pub(crate) async fn rotate(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    let operations = call.operations();
    let (app, lists) = (operations.call(ShowApp, id, ()).await?, Lists::read(call, id).await?);
    let webhook = operations.call(RotateWebhook, id, Rotate::default()).await?;
    Ok(shown(call, &app, Some(webhook), lists, Token::New))
}

/// Answers `GET …/webhook/disable`.
pub(crate) async fn confirm_disable(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    let words = Words {
        title: "Disable the webhook?",
        button: "Disable the webhook",
        consequences: &[
            "The token is gone, and refused at once: every pipeline and git host that calls this webhook fails with 401.",
            "No pipeline is trusted any more.",
            "Deploys that were accepted go on. People still deploy and roll back.",
            "Enabling it again makes another token.",
        ],
    };
    ask(call, id, "disable", &words).await
}

/// Answers `POST …/webhook/disable`.
pub(crate) async fn disable(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    call.operations().call(DisableWebhook, id, ()).await?;
    Ok(reply::redirect(&format!("/apps/{}/{}/webhook", id.namespace, id.name)))
}

/// Returns the trust that the query names.
fn trust_of(call: &Call<'_>) -> Result<TrustId, Failure> {
    let id = call.request.query("trust").and_then(|text| text.parse().ok());
    id.ok_or_else(|| Failure::new(Kind::TrustNotFound, "The app has no trust of this id."))
}

/// Answers `GET …/webhook/remove-trust?trust=ID`.
pub(crate) async fn confirm_remove_trust(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    let trust = trust_of(call)?;
    let words = Words {
        title: "End the trust in this pipeline?",
        button: "End the trust",
        consequences: &[
            "Its id_tokens are refused at once, everywhere: its next deploy fails with 401.",
            "Deploys that were accepted go on.",
        ],
    };
    ask(call, id, &format!("remove-trust?trust={trust}"), &words).await
}

/// Answers `POST …/webhook/remove-trust?trust=ID`.
pub(crate) async fn remove_trust(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    call.operations().call(EndTrust, &(id.clone(), trust_of(call)?), ()).await?;
    Ok(reply::redirect(&format!("/apps/{}/{}/webhook", id.namespace, id.name)))
}
