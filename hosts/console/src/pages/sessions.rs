//! Sessions of the console and of command lines, and their end.

use rollhook_api::{
    Session, SessionList,
    operations::{ActorQuery, EndSession, EndSessions},
};
use rollhook_core::text::escaped;
use rollhook_management::access::SessionId;

use super::confirm::Question;
use crate::{
    console::Call,
    host::Failure,
    reply::{self, Reply},
    view::{Frame, When},
};

/// The place of the sessions on the page of access.
const LIST: &str = "/access#sessions";

/// A session's row.
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) who: String,
    /// The path at which every session of its holder is ended.
    pub(crate) end_all: String,
    pub(crate) place: &'static str,
    pub(crate) began: When,
    pub(crate) used: Option<When>,
    pub(crate) ends: When,
    pub(crate) is_current: bool,
}

impl Row {
    fn of(session: &Session, frame: &Frame) -> Self {
        Self {
            id: session.id.to_string(),
            who: escaped(&session.actor),
            end_all: end_all_path(&session.actor),
            place: session.place(),
            began: When::new(session.began_at, frame.now),
            used: session.last_used_at.map(|used| When::new(used, frame.now)),
            ends: When::with_text(session.ends_at, rollhook_api::time::absolute(session.ends_at)),
            is_current: session.current,
        }
    }
}

/// Returns the rows of a part.
pub(crate) fn rows(list: &SessionList, frame: &Frame) -> Vec<Row> {
    list.sessions.iter().map(|session| Row::of(session, frame)).collect()
}

fn end_all_path(actor: &str) -> String {
    let actor: String = form_urlencoded::byte_serialize(actor.as_bytes()).collect();
    format!("/access/sessions/end?actor={actor}")
}

/// Answers `GET /access/sessions/{session}/end`.
pub(crate) fn confirm_end(call: &Call<'_>, id: &SessionId) -> Reply {
    Question {
        title: format!("End the session {id}?"),
        consequences: vec![
            "It is refused at once, by every server, with the command lines that it let in.".to_owned(),
            "Its holder may sign in again: revoke the token, or take the person out of the group, to prevent that."
                .to_owned(),
        ],
        action: format!("/access/sessions/{id}/end"),
        back: LIST.to_owned(),
        button: "End the session".to_owned(),
        ..Question::default()
    }
    .reply(call)
}

/// Answers `POST /access/sessions/{session}/end`.
pub(crate) async fn end(call: &Call<'_>, id: &SessionId) -> Result<Reply, Failure> {
    call.operations().call(EndSession, id, ()).await?;
    Ok(reply::redirect(LIST))
}

/// Answers `GET /access/sessions/end`.
pub(crate) fn confirm_end_all(call: &Call<'_>) -> Reply {
    let actor = call.request.query("actor").unwrap_or_default();
    Question {
        title: format!("End every session of {}?", escaped(&actor)),
        consequences: vec![
            "Browsers and command lines that are signed in so are refused at once, by every server.".to_owned(),
            "Its holder may sign in again: revoke the token, or take the person out of the group, to prevent that."
                .to_owned(),
        ],
        action: end_all_path(&actor),
        back: LIST.to_owned(),
        button: "End all of them".to_owned(),
        ..Question::default()
    }
    .reply(call)
}

/// Answers `POST /access/sessions/end`.
pub(crate) async fn end_all(call: &Call<'_>) -> Result<Reply, Failure> {
    let actor = call.request.query("actor").unwrap_or_default();
    call.operations().call(EndSessions, &(), ActorQuery { actor }).await?;
    Ok(reply::redirect(LIST))
}
