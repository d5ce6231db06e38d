//! Sessions of the console and of command lines.

use rollhook_management::{Refusal, access::SessionId};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

use crate::{
    AuditPlace, EndedSessions, Local, Operation, SessionList,
    endpoint::Endpoint,
    openapi::PAGE_MAX,
    query::{self, PageSize},
    sessions::ACTOR_MAX,
};

/// The number of sessions of a page, unless the query has another.
const PAGE: usize = 50;

/// The query of a list of sessions.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SessionsQuery {
    /// At most this many.
    #[serde(with = "query::page_size", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "usize", range(min = 1, max = PAGE_MAX))]
    pub limit: Option<PageSize>,
    /// Only sessions after this one: `next` of the part before.
    #[serde(with = "query", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", extend("pattern" = AuditPlace::PATTERN))]
    pub after: Option<AuditPlace>,
}

impl SessionsQuery {
    /// Returns the query of at most so many sessions after a place.
    pub fn page(after: Option<AuditPlace>, limit: usize) -> Self {
        Self { limit: Some(PageSize::new(limit)), after }
    }
}

/// The query of the end of all sessions of a token or person.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ActorQuery {
    /// The token or person, as the history names it.
    #[serde(deserialize_with = "actor")]
    #[schemars(extend("minLength" = 1, "maxLength" = ACTOR_MAX))]
    pub actor: String,
}

fn actor<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let actor = String::deserialize(deserializer)?;
    match actor.chars().count() {
        1..=ACTOR_MAX => Ok(actor),
        _ => Err(D::Error::custom(format!("must name a token or a person, in at most {ACTOR_MAX} characters"))),
    }
}

/// Lists the sessions that the caller may end, newest first.
pub struct ListSessions;

impl Operation for ListSessions {
    type Subject = ();
    type Input = SessionsQuery;
    type Answer = SessionList;

    const ENDPOINT: Endpoint = Endpoint::get("/api/v1/sessions", "The sessions that the caller may end, newest first");

    async fn perform(caller: &Local, _: &(), query: SessionsQuery) -> Result<SessionList, Refusal> {
        let limit = query.limit.map_or(PAGE, PageSize::get);
        let after = query.after.map(|after| after.0);
        let (sessions, next) = caller.management.sessions(&caller.principal, after, limit).await?;
        Ok(SessionList::of(&sessions, next.as_ref()))
    }
}

/// Ends a session, and what it lent.
pub struct EndSession;

impl Operation for EndSession {
    type Subject = SessionId;
    type Input = ();
    type Answer = ();

    const ENDPOINT: Endpoint = Endpoint::delete("/api/v1/sessions/{session}", "End a session, and what it lent");

    async fn perform(caller: &Local, id: &SessionId, (): ()) -> Result<(), Refusal> {
        caller.management.end_session_of_id(&caller.principal, id).await
    }
}

/// Ends every session of a token or person.
pub struct EndSessions;

impl Operation for EndSessions {
    type Subject = ();
    type Input = ActorQuery;
    type Answer = EndedSessions;

    const ENDPOINT: Endpoint =
        Endpoint::new("DELETE", "/api/v1/sessions", 200, "End every session of a token or person");

    async fn perform(caller: &Local, _: &(), query: ActorQuery) -> Result<EndedSessions, Refusal> {
        Ok(EndedSessions { ended: caller.management.end_sessions_of(&caller.principal, &query.actor).await? })
    }
}
