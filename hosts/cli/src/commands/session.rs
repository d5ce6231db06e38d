//! Sessions of the console and of command lines.

use rollhook_api::{
    Session as Row, SessionList,
    openapi::PAGE_MAX,
    operations::{self, ActorQuery, EndSessions, SessionsQuery},
};
use rollhook_core::text::escaped;

use super::Session;
use crate::{
    args::{EndSession, ListSessions},
    confirm::confirm,
    exit::CliError,
    table::{self, Cell, Column, Fit},
    when,
};

pub(crate) async fn list(session: &Session<'_>, args: &ListSessions) -> Result<(), CliError> {
    let mut list = SessionList { sessions: Vec::new(), next: None };
    loop {
        let after = list.next.as_deref().and_then(|next| next.parse().ok());
        let limit = args.limit.saturating_sub(list.sessions.len()).clamp(1, PAGE_MAX);
        let page = session.api.call(operations::ListSessions, &(), SessionsQuery::page(after, limit)).await?;
        list.sessions.extend(page.sessions);
        list.next = page.next;
        if list.next.is_none() || list.sessions.len() >= args.limit {
            break;
        }
    }
    session.output.data(&list, || {
        let columns = [
            Column("ID", 0, Fit::Keep),
            Column("WHO", 0, Fit::Cut),
            Column("WHERE", 0, Fit::Keep),
            Column("BEGAN", 0, Fit::Time),
            Column("LAST USED", 0, Fit::Drop(1)),
            Column("ENDS", 0, Fit::Time),
            Column("", 0, Fit::Drop(2)),
        ];
        let rows: Vec<_> = list.sessions.iter().map(row).collect();
        table::render(&columns, &rows, session.output.style)
    })
}

fn row(session: &Row) -> Vec<Cell> {
    let now = when::now();
    vec![
        Cell::new(session.id.as_str()),
        Cell::new(&session.actor),
        Cell::new(session.place()),
        Cell::new(when::absolute(session.began_at)),
        Cell::optional(session.last_used_at.map(|used| when::ago(used, now))),
        Cell::new(when::absolute(session.ends_at)),
        Cell::new(if session.current { "this session" } else { "" }),
    ]
}

pub(crate) async fn end(session: &Session<'_>, args: &EndSession) -> Result<(), CliError> {
    if let Some(id) = &args.id {
        if !args.yes {
            confirm(&format!("End the session {id}, and the command lines that it let in?"))?;
        }
        session.api.call(operations::EndSession, id, ()).await?;
        session.output.line(&format!("Ended the session {id}: it is refused from now on."))?;
        return session.document(&serde_json::json!({ "ended": 1 }));
    }
    let actor = args.actor.as_deref().unwrap_or_default();
    if !args.yes {
        confirm(&format!("End every session of {}?", escaped(actor)))?;
    }
    let ended = session.api.call(EndSessions, &(), ActorQuery { actor: actor.to_owned() }).await?;
    let said = match ended.ended {
        0 => format!("{} has no session.", escaped(actor)),
        1 => format!("Ended the session of {}.", escaped(actor)),
        many => format!("Ended {many} sessions of {}.", escaped(actor)),
    };
    session.output.line(&said)?;
    session.document(&ended)
}
