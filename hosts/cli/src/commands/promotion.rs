//! Promotions: of one app, or of all apps of an environment.

use std::collections::BTreeMap;

use rollhook_api::{App, Promote, PromoteFrom, promotion::Plan};
use rollhook_core::{
    app::{AppId, AppName, Environment, FullName, Namespace, Project},
    deploy::{Revision, Status},
    ports::AppPage,
    text::escaped,
};
use serde::Serialize;

use super::{
    Session,
    deploys::{conclude, image},
};
use crate::{
    args,
    exit::CliError,
    history::short_image,
    progress::watch,
    table::{self, Cell, Column, Tint},
};

/// The number of apps per page.
const PAGE: usize = 100;

/// An environment of a project.
type EnvironmentOf<'a> = (&'a Project, &'a Environment);

/// The promotion of one app, planned or done.
#[derive(Serialize)]
struct Promoted {
    #[serde(flatten)]
    plan: Plan,
    #[serde(flatten)]
    outcome: Outcome,
}

#[derive(Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
enum Outcome {
    /// The image is to be deployed.
    Planned,
    /// The app stays as it is, for this reason.
    Skipped { message: String },
    /// The promotion was accepted; the status is that of its end, if it was waited for.
    Accepted { revision: Revision, status: Status },
    /// The promotion was accepted, and its end is not known, for this reason.
    Unknown { revision: Revision, message: String },
    /// The promotion was refused.
    Refused { message: String },
}

pub(crate) async fn promote(session: &Session<'_>, args: &args::Promote) -> Result<(), CliError> {
    let to = (&args.project, &args.environment);
    let from = (args.from_project.as_ref().unwrap_or(&args.project), &args.from_environment);
    match &args.app {
        Some(app) => one(session, args, app, from, to).await,
        None => all(session, args, from, to).await,
    }
}

async fn one(
    session: &Session<'_>,
    args: &args::Promote,
    app: &AppName,
    from: EnvironmentOf<'_>,
    to: EnvironmentOf<'_>,
) -> Result<(), CliError> {
    let target = args::Target { app: app.clone(), project: to.0.clone(), environment: to.1.clone() };
    let id = &session.find(&target).await?;
    let promote = request(from);
    let source = promote.parse(id)?.id()?;
    if args.dry_run {
        let source = FullName { project: from.0.clone(), environment: from.1.clone(), name: app.clone() };
        let (source, target) = (Some(session.named(&source).await?), session.app(&target).await?);
        let planned = [planned(app.as_str(), source.as_ref(), Some(&target))];
        return print(session, &planned);
    }
    session.drive()?;
    let answer = session.operations.promote(id, promote).await?;
    let (image, revision) = (image(&answer), answer.revision);
    session.output.line(&format!("Promoting {image} from {source} to {id}: revision {revision}"))?;
    conclude(session, id, answer, args.wait).await
}

async fn all(
    session: &Session<'_>,
    args: &args::Promote,
    from: EnvironmentOf<'_>,
    to: EnvironmentOf<'_>,
) -> Result<(), CliError> {
    if from == to {
        return Err(CliError::Usage(
            "--from-environment: name another environment than the one to promote to.".to_owned(),
        ));
    }
    let (sources, targets) = (apps(session, from).await?, apps(session, to).await?);
    if sources.is_empty() {
        return Err(CliError::Other(format!("There are no apps in project {}, environment {}.", from.0, from.1)));
    }
    let mut promoted: Vec<_> =
        sources.iter().map(|(name, source)| planned(name, Some(source), targets.get(name))).collect();
    if !args.dry_run {
        session.drive()?;
        for app in promoted.iter_mut().filter(|app| matches!(app.outcome, Outcome::Planned)) {
            let id = AppId { namespace: Namespace::of(to.0, to.1)?, name: app.plan.app.parse()? };
            app.outcome = match session.operations.promote(&id, request(from)).await {
                Ok(answer) => Outcome::Accepted { revision: answer.revision, status: answer.status },
                Err(failure) => Outcome::Refused { message: failure.lines().join(" ") },
            };
        }
        // All are under way before the first is waited for.
        for app in &mut promoted {
            let Outcome::Accepted { revision, status } = &mut app.outcome else { continue };
            if args.wait.wait || session.direct.is_some() {
                let id = AppId { namespace: Namespace::of(to.0, to.1)?, name: app.plan.app.parse()? };
                let ended = match watch(session, &id, *revision).await {
                    Ok(ended) => session.finish_restores(&id).await.map(|()| ended),
                    failed => failed,
                };
                match ended {
                    Ok(ended) => (*revision, *status) = (ended.revision, ended.status),
                    Err(failure @ CliError::Interrupted(_)) => return Err(failure),
                    Err(failure) => {
                        app.outcome = Outcome::Unknown { revision: *revision, message: failure.lines().join(" ") }
                    }
                }
            }
        }
    }
    print(session, &promoted)?;
    let refused = promoted.iter().filter(|app| matches!(app.outcome, Outcome::Refused { .. })).count();
    if refused > 0 {
        return Err(CliError::Other(format!("{refused} of {} apps were not promoted.", promoted.len())));
    }
    let ended_badly = |app: &Promoted| matches!(app.outcome, Outcome::Accepted { status, .. } if status.is_terminal() && status != Status::Succeeded);
    if promoted.iter().any(|app| matches!(app.outcome, Outcome::Unknown { .. })) {
        return Err(CliError::Unreachable("The end of some promotions is not known; see app status.".to_owned()));
    }
    if promoted.iter().any(ended_badly) { Err(CliError::Unsuccessful) } else { Ok(()) }
}

fn request((project, environment): EnvironmentOf<'_>) -> Promote {
    Promote { from: PromoteFrom { project: project.to_string(), environment: environment.to_string() } }
}

/// Returns the apps of an environment by their names.
async fn apps(
    session: &Session<'_>,
    (project, environment): EnvironmentOf<'_>,
) -> Result<BTreeMap<String, App>, CliError> {
    let namespace = Some(Namespace::of(project, environment)?);
    let (mut apps, mut after) = (BTreeMap::new(), None);
    loop {
        let page = AppPage { namespace: namespace.clone(), after, limit: PAGE };
        let page = session.operations.apps(page).await?;
        // Another pair may spell the same namespace.
        let theirs = |app: &App| app.project == project.as_str() && app.environment == environment.as_str();
        apps.extend(page.apps.into_iter().filter(theirs).map(|app| (app.app.clone(), app)));
        match page.next {
            Some(next) => after = Some(next.parse()?),
            None => return Ok(apps),
        }
    }
}

fn planned(name: &str, source: Option<&App>, target: Option<&App>) -> Promoted {
    let plan = Plan::of(name, source, target);
    let outcome = plan.skipped.map_or(Outcome::Planned, |why| Outcome::Skipped { message: why.to_owned() });
    Promoted { plan, outcome }
}

fn print(session: &Session<'_>, promoted: &[Promoted]) -> Result<(), CliError> {
    let row = |app: &Promoted| {
        let shown = |image: &Option<String>| Cell::optional(image.as_deref().map(short_image));
        let (told, tint) = match &app.outcome {
            Outcome::Planned => ("would be promoted".to_owned(), None),
            Outcome::Skipped { message } => (message.clone(), None),
            Outcome::Accepted { revision, status } => {
                let tint = match status {
                    Status::Succeeded => Some(Tint::Good),
                    Status::Queued | Status::Building | Status::RollingOut => None,
                    Status::Failed | Status::Superseded | Status::Cancelled => Some(Tint::Bad),
                };
                (format!("revision {revision}, {status}"), tint)
            }
            Outcome::Unknown { revision, message } => {
                (format!("revision {revision}, its end is not known: {}", escaped(message)), Some(Tint::Bad))
            }
            Outcome::Refused { message } => (escaped(message), Some(Tint::Bad)),
        };
        vec![Cell::new(&app.plan.app), shown(&app.plan.image), shown(&app.plan.present), Cell::new(told).tinted(tint)]
    };
    let columns = ["APP", "IMAGE", "IN PLACE OF", ""].map(|heading| Column(heading, 0));
    let rows: Vec<_> = promoted.iter().map(row).collect();
    session
        .output
        .data(&serde_json::json!({ "apps": promoted }), || table::render(&columns, &rows, session.output.colour))
}
