//! Locks of apps and environments.

use rollhook_api::{
    Lock, LockRequest, LockedEnvironment,
    operations::{ListLocks, LockApp, LockEnvironment, UnlockApp, UnlockEnvironment},
};
use rollhook_core::text::escaped;

use super::{Session, apps};
use crate::{
    args::{self, EnvironmentName, NewLock, Target},
    exit::CliError,
    table::{self, Cell, Column, Fit},
    when,
};

fn request(lock: &NewLock) -> LockRequest {
    LockRequest { reason: lock.reason.to_string(), expires: lock.expires.clone() }
}

/// Returns the end of a lock, in words.
fn end(lock: &Lock) -> String {
    lock.until.map_or_else(|| "it is unlocked".to_owned(), when::absolute)
}

/// Returns a lock, in words.
pub(crate) fn described(lock: &Lock) -> String {
    let on = if lock.on == "environment" { " (all apps of the environment)" } else { "" };
    format!("by {} until {}: {}{on}", lock.by, end(lock), lock.reason)
}

pub(crate) async fn lock(session: &Session<'_>, args: &args::Lock) -> Result<(), CliError> {
    let id = session.find(&args.target).await?;
    let app = session.api.call(LockApp, &id, request(&args.lock)).await?;
    let until = app.locks.iter().find(|lock| lock.on == "app").map(end).unwrap_or_default();
    session.output.data(&app, || {
        format!(
            "Locked {id} until {until}: new deploys are refused, except rollbacks; those that are under way go on\n"
        )
    })
}

pub(crate) async fn unlock(session: &Session<'_>, target: &Target) -> Result<(), CliError> {
    let id = session.find(target).await?;
    let app = session.api.call(UnlockApp, &id, ()).await?;
    session.output.data(&app, || match app.locks.first() {
        Some(lock) => format!("Unlocked {id}, but its environment is locked {}\n", escaped(&described(lock))),
        None => format!("Unlocked {id}\n"),
    })
}

pub(crate) async fn lock_environment(session: &Session<'_>, args: &args::LockEnvironment) -> Result<(), CliError> {
    let EnvironmentName { project, environment } = &args.name;
    let locked =
        session.api.call(LockEnvironment, &(project.clone(), environment.clone()), request(&args.lock)).await?;
    apps::notes(&locked.notes);
    session.output.data(&locked, || {
        let until = end(&locked.lock);
        format!("Locked all apps of project {project}, environment {environment}, until {until}\n")
    })
}

pub(crate) async fn unlock_environment(session: &Session<'_>, name: &EnvironmentName) -> Result<(), CliError> {
    let EnvironmentName { project, environment } = name;
    session.api.call(UnlockEnvironment, &(project.clone(), environment.clone()), ()).await?;
    session.output.line(&format!("Unlocked project {project}, environment {environment}"))?;
    session.document(&serde_json::json!({ "project": project, "environment": environment, "locked": false }))
}

pub(crate) async fn locked_environments(session: &Session<'_>) -> Result<(), CliError> {
    let list = session.api.call(ListLocks, &(), ()).await?;
    let row = |locked: &LockedEnvironment| {
        vec![
            Cell::new(&locked.project),
            Cell::new(&locked.environment),
            Cell::new(&locked.lock.by),
            Cell::optional(locked.lock.until.map(when::absolute)),
            Cell::new(&locked.lock.reason),
        ]
    };
    session.output.data(&list, || {
        let columns = [
            Column("PROJECT", 0, Fit::Cut),
            Column("ENVIRONMENT", 0, Fit::Cut),
            Column("BY", 0, Fit::Drop(1)),
            Column("UNTIL", 0, Fit::Time),
            Column("REASON", 0, Fit::Cut),
        ];
        let rows: Vec<_> = list.locks.iter().map(row).collect();
        table::render(&columns, &rows, session.output.style)
    })
}
