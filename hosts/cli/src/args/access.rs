//! `rollhook token …`, `rollhook session …`, `rollhook audit` and `rollhook whoami`.

use clap::{ArgGroup, Args, Subcommand};
use rollhook_core::app::{Environment, Project};
use rollhook_management::access::{Role, SessionId, TokenName};

use super::value::expires;

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make an API token, and print it this once
    Create(CreateToken),
    /// List the API tokens
    #[command(visible_alias = "ls")]
    List,
    /// Revoke an API token: it is refused from then on
    #[command(visible_alias = "rm")]
    Revoke(RevokeToken),
}

#[derive(Debug, Args)]
pub(crate) struct CreateToken {
    /// The token's name, which the history and the audit show
    #[arg(value_name = "NAME")]
    pub(crate) name: TokenName,
    /// The role of the token's holder: viewer, deployer or admin
    #[arg(long)]
    pub(crate) role: Role,
    /// The project that the role is on [default: everything]
    #[arg(short, long)]
    pub(crate) project: Option<Project>,
    /// The environment of the project that the role is on [default: all of them]
    #[arg(short, long, requires = "project")]
    pub(crate) environment: Option<Environment>,
    /// The time for which the token is valid, such as 90d [default: until it is revoked]
    #[arg(long, value_name = "TIME", value_parser = expires)]
    pub(crate) expires: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RevokeToken {
    /// The token's name
    #[arg(value_name = "NAME")]
    pub(crate) name: TokenName,
    /// Do not ask for confirmation
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// List the sessions of the console and of command lines: everybody's for an admin of everything, and else your own
    #[command(visible_alias = "ls")]
    List(ListSessions),
    /// End a session and what it lent, or every session of a token or person
    End(EndSession),
}

#[derive(Debug, Args)]
pub(crate) struct ListSessions {
    /// At most this many sessions
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(crate) limit: usize,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("ended").required(true))]
pub(crate) struct EndSession {
    /// The session's id, as the list shows it
    #[arg(value_name = "ID", group = "ended")]
    pub(crate) id: Option<SessionId>,
    /// End every session of this token or person, whom the list names so
    #[arg(long, value_name = "NAME", group = "ended")]
    pub(crate) actor: Option<String>,
    /// Do not ask for confirmation
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Audit {
    /// At most this many entries
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(crate) limit: usize,
}
