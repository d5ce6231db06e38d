//! API tokens, sessions and the audit.

use askama::Template;
use http::StatusCode;
use rollhook_api::{
    ApiToken, AuditEntry, CreateToken, CreatedToken,
    operations::{AuditQuery, CreateApiToken, ListApiTokens, ListSessions, ReadAudit, RevokeApiToken, SessionsQuery},
};
use rollhook_core::text::escaped;
use rollhook_management::access::{Role, TokenName};
use serde_json::Value;
use zeroize::Zeroizing;

use super::{confirm::Question, sessions};
use crate::{
    console::{Call, status},
    host::Failure,
    reply::{self, Reply},
    view::{Frame, When},
};

/// The number of sessions, and of the audit's entries, per page.
const PAGE: usize = 50;

#[derive(Template)]
#[template(path = "access.html")]
struct AccessPage {
    frame: Frame,
    tokens: Vec<Token>,
    sessions: Vec<sessions::Row>,
    more_sessions: Option<String>,
    acts: Vec<Act>,
    next: Option<String>,
    form: Form,
    made: Option<Made>,
    error: Option<String>,
}

/// A token's row.
struct Token {
    name: String,
    role: &'static str,
    realm: String,
    expires: Option<When>,
    used: Option<When>,
    maker: String,
}

/// An entry of the audit.
struct Act {
    when: When,
    who: String,
    what: String,
    subject: String,
    is_allowed: bool,
}

/// The values of the form for a new token.
#[derive(Default)]
struct Form {
    name: String,
    role: String,
    project: String,
    environment: String,
    expires: String,
    /// The field that the error is about.
    field: String,
}

impl Form {
    fn roles(&self) -> [&'static str; 3] {
        Role::ALL.map(Role::as_str)
    }

    fn is_wrong(&self, field: &str) -> bool {
        self.field == field
    }
}

/// A token that was just made: the only page that has its text.
struct Made {
    name: String,
    role: &'static str,
    realm: String,
    token: Zeroizing<String>,
}

impl Token {
    fn of(token: &ApiToken, frame: &Frame) -> Self {
        let end = |end| When::with_text(end, rollhook_api::time::absolute(end)[..10].to_owned());
        Self {
            name: escaped(&token.name),
            role: token.grant.role.as_str(),
            realm: escaped(&token.grant.realm()),
            expires: token.expires_at.map(end),
            used: token.last_used_at.map(|used| When::new(used, frame.now)),
            maker: escaped(&token.created_by),
        }
    }
}

impl Act {
    fn of(entry: &AuditEntry, frame: &Frame) -> Self {
        Self {
            when: When::new(entry.at, frame.now),
            who: escaped(&entry.actor),
            what: escaped(&entry.action),
            subject: escaped(&entry.subject),
            is_allowed: entry.allowed,
        }
    }
}

async fn read(call: &Call<'_>) -> Result<AccessPage, Failure> {
    let (operations, frame) = (call.operations(), call.frame());
    let after = |name| call.request.query(name).and_then(|after| after.parse().ok());
    let (tokens, audit) = (
        operations.call(ListApiTokens, &(), ()).await?,
        operations.call(ReadAudit, &(), AuditQuery::page(after("after"), PAGE)).await?,
    );
    let sessions = operations.call(ListSessions, &(), SessionsQuery::page(after("sessions"), PAGE)).await?;
    Ok(AccessPage {
        tokens: tokens.tokens.iter().map(|token| Token::of(token, &frame)).collect(),
        sessions: sessions::rows(&sessions, &frame),
        more_sessions: sessions.next,
        acts: audit.entries.iter().map(|entry| Act::of(entry, &frame)).collect(),
        next: audit.next,
        frame,
        form: Form::default(),
        made: None,
        error: None,
    })
}

/// Answers `GET /access`.
pub(crate) async fn page(call: &Call<'_>) -> Result<Reply, Failure> {
    Ok(reply::html(StatusCode::OK, &read(call).await?))
}

/// Answers `POST /access/tokens`.
pub(crate) async fn create(call: &Call<'_>) -> Result<Reply, Failure> {
    let field = |name| call.request.field(name);
    let text = |name| field(name).unwrap_or_default();
    let wanted = CreateToken {
        name: text("name"),
        role: text("role"),
        project: field("project"),
        environment: field("environment"),
        expires: field("expires"),
    };
    let page = read(call).await?;
    match call.operations().call(CreateApiToken, &(), wanted).await {
        Ok(CreatedToken { api_token, token }) => {
            let made = Made {
                name: escaped(&api_token.name),
                role: api_token.grant.role.as_str(),
                realm: escaped(&api_token.grant.realm()),
                token: Zeroizing::new(token),
            };
            // Once the token is made, no failure may keep it from being shown.
            let page = AccessPage { made: Some(made), ..read(call).await.unwrap_or(page) };
            Ok(reply::with_secret(reply::html(StatusCode::CREATED, &page)))
        }
        Err(failure) if (400..500).contains(&failure.problem.status) => {
            let about = failure.problem.members.get("field").and_then(Value::as_str).unwrap_or_default();
            let form = Form {
                name: text("name"),
                role: text("role"),
                project: text("project"),
                environment: text("environment"),
                expires: text("expires"),
                field: about.to_owned(),
            };
            let page = AccessPage { form, error: Some(escaped(&failure.problem.detail)), ..page };
            Ok(reply::html(status(&failure), &page))
        }
        Err(failure) => Err(failure),
    }
}

/// Answers `GET /access/tokens/{name}/revoke`.
pub(crate) fn confirm_revoke(call: &Call<'_>, name: &TokenName) -> Reply {
    Question {
        title: format!("Revoke {name}?"),
        consequences: vec![
            "The token is refused at once, by every server, and its sessions end.".to_owned(),
            "Whoever uses it fails with 401 until it has another token.".to_owned(),
        ],
        action: format!("/access/tokens/{name}/revoke"),
        back: "/access".to_owned(),
        button: "Revoke the token".to_owned(),
        ..Question::default()
    }
    .reply(call)
}

/// Answers `POST /access/tokens/{name}/revoke`.
pub(crate) async fn revoke(call: &Call<'_>, name: &TokenName) -> Result<Reply, Failure> {
    call.operations().call(RevokeApiToken, name, ()).await?;
    Ok(reply::redirect("/access"))
}
