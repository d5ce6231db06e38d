//! API tokens, the audit, and who the caller is.

use rollhook_api::{
    ApiToken, AuditEntry, AuditList, CreateToken, Whoami,
    openapi::PAGE_MAX,
    operations::{AuditQuery, CreateApiToken, ListApiTokens, ReadAudit, RevokeApiToken, ShowCaller},
};
use rollhook_core::text::escaped;

use super::Session;
use crate::{
    args::{self, Audit, RevokeToken},
    confirm::confirm,
    exit::CliError,
    output::message,
    table::{self, Cell, Column, Fit, Tint},
    when,
};

pub(crate) async fn create(session: &Session<'_>, args: &args::CreateToken) -> Result<(), CliError> {
    let request = CreateToken {
        name: args.name.to_string(),
        role: args.role.to_string(),
        project: args.project.as_ref().map(ToString::to_string),
        environment: args.environment.as_ref().map(ToString::to_string),
        expires: args.expires.clone(),
    };
    let created = session.api.call(CreateApiToken, &(), request).await?;
    let token = &created.api_token;
    if !session.output.format.is_document() {
        let realm = escaped(&token.grant.realm());
        let end = token.expires_at.map_or_else(|| "it is revoked".to_owned(), when::absolute);
        message(&format!(
            "{} is {} of {realm}, until {end}. The token, which is shown this once:",
            token.name, token.grant.role
        ));
    }
    session.output.data(&created, || format!("{}\n", escaped(&created.token)))
}

pub(crate) async fn list(session: &Session<'_>) -> Result<(), CliError> {
    let list = session.api.call(ListApiTokens, &(), ()).await?;
    session.output.data(&list, || {
        let columns = [
            Column("NAME", 0, Fit::Cut),
            Column("ROLE", 0, Fit::Keep),
            Column("ON", 0, Fit::Cut),
            Column("EXPIRES", 0, Fit::Time),
            Column("LAST USED", 0, Fit::Drop(2)),
            Column("MADE BY", 0, Fit::Drop(1)),
        ];
        let rows: Vec<_> = list.tokens.iter().map(row).collect();
        table::render(&columns, &rows, session.output.style)
    })
}

fn row(token: &ApiToken) -> Vec<Cell> {
    let now = when::now();
    vec![
        Cell::new(&token.name),
        Cell::new(token.grant.role.as_str()),
        Cell::new(token.grant.realm()),
        Cell::optional(token.expires_at.map(when::absolute)),
        Cell::optional(token.last_used_at.map(|used| when::ago(used, now))),
        Cell::new(&token.created_by),
    ]
}

pub(crate) async fn revoke(session: &Session<'_>, args: &RevokeToken) -> Result<(), CliError> {
    if !args.yes {
        confirm(&format!("Revoke {}? Whoever uses it is refused at once.", args.name))?;
    }
    session.api.call(RevokeApiToken, &args.name, ()).await?;
    session.output.line(&format!("Revoked {}: it is refused from now on.", args.name))?;
    session.document(&serde_json::json!({ "revoked": args.name }))
}

pub(crate) async fn audit(session: &Session<'_>, args: &Audit) -> Result<(), CliError> {
    let mut list = AuditList { entries: Vec::new(), next: None };
    loop {
        let after = list.next.as_deref().and_then(|next| next.parse().ok());
        let limit = (args.limit - list.entries.len()).min(PAGE_MAX);
        let page = session.api.call(ReadAudit, &(), AuditQuery::page(after, limit)).await?;
        list.entries.extend(page.entries);
        list.next = page.next;
        if list.next.is_none() || list.entries.len() >= args.limit {
            break;
        }
    }
    session.output.data(&list, || {
        let columns = [
            Column("WHEN", 0, Fit::Time),
            Column("WHO", 0, Fit::Cut),
            Column("WHAT", 0, Fit::Cut),
            Column("ON", 0, Fit::Cut),
            Column("", 0, Fit::Keep),
        ];
        let rows: Vec<_> = list.entries.iter().map(act).collect();
        table::render(&columns, &rows, session.output.style)
    })
}

fn act(entry: &AuditEntry) -> Vec<Cell> {
    let refused = if entry.allowed { Cell::new("") } else { Cell::new("refused").tinted(Some(Tint::Bad)) };
    vec![
        Cell::new(when::absolute(entry.at)),
        Cell::new(&entry.actor),
        Cell::new(&entry.action),
        Cell::new(&entry.subject),
        refused,
    ]
}

pub(crate) async fn whoami(session: &Session<'_>) -> Result<(), CliError> {
    let whoami = session.api.call(ShowCaller, &(), ()).await?;
    session.output.data(&whoami, || said(&whoami))
}

fn said(whoami: &Whoami) -> String {
    let roles = whoami.roles.iter().map(|role| format!("  {} of {}\n", role.role, escaped(&role.realm())));
    let in_cluster = if whoami.in_cluster { "  what the cluster's roles allow\n" } else { "" };
    format!("{}\n{}{in_cluster}", escaped(&whoami.actor), roles.collect::<String>())
}
