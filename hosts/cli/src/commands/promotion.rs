//! Promotions: of one app, or of all apps of an environment.

use std::collections::{BTreeMap, BTreeSet};

use rollhook_api::{App, Promote, PromoteFrom, operations::PromoteApp, promotion::Plan};
use rollhook_core::{
    app::{AppId, AppName, Environment, Namespace, Project},
    deploy::{Revision, Status},
    text::escaped,
};
use serde::Serialize;

use super::{
    Session, config,
    deploys::{conclude, image},
};
use crate::{
    args,
    confirm::confirm,
    exit::CliError,
    history::short_image,
    output::message,
    progress::watch,
    table::{self, Cell, Column, Fit, Tint},
};

/// An environment of a project.
type EnvironmentOf<'a> = (&'a Project, &'a Environment);

/// The promotion of one app, planned or done.
#[derive(Serialize)]
struct Promoted {
    /// The app that is promoted to.
    #[serde(skip)]
    id: AppId,
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
        Some(app) => Box::pin(one(session, args, app, from, to)).await,
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
    let (id, target) = (&target.id()?, session.app(&target).await?);
    let promote = request(from);
    let source = promote.parse(id)?;
    if args.dry_run {
        let source = session.named(&source).await?;
        let mut promoted = planned(id.clone(), &source, Some(&target));
        promoted.plan.missing_variables = config::missing(session, &source_id(&source)?, id).await;
        let promoted = [promoted];
        missing(&promoted, from)?.iter().for_each(|lacks| note(lacks));
        return print(session, &promoted);
    }
    let source = source.id()?;
    let missing = lacks(id, &source, &config::missing(session, &source, id).await);
    ask(missing.as_slice(), args.yes)?;
    session.drive()?;
    let promote = Promote { without_variables: args.yes || missing.is_some(), ..promote };
    let answer = session.api.call(PromoteApp, id, promote).await?;
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
    let (sources, targets) = (Apps::read(session, from).await?, Apps::read(session, to).await?);
    if sources.readable.is_empty() && sources.unreadable.is_empty() {
        return Err(CliError::Other(format!("There are no apps in project {}, environment {}.", from.0, from.1)));
    }
    if targets.readable.is_empty() && targets.unreadable.is_empty() {
        let why = format!("There are no apps to promote to in project {}, environment {}.", to.0, to.1);
        return Err(CliError::Other(why));
    }
    let mut promoted = planned_all(&sources, &targets, &Namespace::of(to.0, to.1)?);
    for app in &mut promoted {
        if let Some(source) = sources.readable.get(&app.id.name).filter(|source| app.plan.compares_variables(source)) {
            app.plan.missing_variables = config::missing(session, &source_id(source)?, &app.id).await;
        }
    }
    let missing = missing(&promoted, from)?;
    if args.dry_run {
        missing.iter().for_each(|lacks| note(lacks));
    } else {
        ask(&missing, args.yes)?;
        session.drive()?;
        for app in promoted.iter_mut().filter(|app| matches!(app.outcome, Outcome::Planned)) {
            // The planned revision, and none that came meanwhile.
            let without_variables = args.yes || !app.plan.missing_variables.is_empty();
            let promote = Promote { if_current: app.plan.revision, without_variables, ..request(from) };
            app.outcome = match session.api.call(PromoteApp, &app.id, promote).await {
                Ok(answer) => Outcome::Accepted { revision: answer.revision, status: answer.status },
                Err(failure) => Outcome::Refused { message: failure.lines().join(" ") },
            };
        }
        if args.wait.wait || session.direct.is_some() {
            // All are under way before the first is waited for.
            wait_for_ends(session, &mut promoted).await?;
        }
    }
    print(session, &promoted)?;
    outcome(&promoted)
}

/// Waits for the end of each accepted promotion, and for the restore of one that failed.
async fn wait_for_ends(session: &Session<'_>, promoted: &mut [Promoted]) -> Result<(), CliError> {
    for app in promoted {
        let Outcome::Accepted { revision, .. } = app.outcome else { continue };
        let ended = match watch(session, &app.id, revision).await {
            Ok(ended) => session.follow_restore(&app.id, &ended).await.map(|()| ended),
            failed => failed,
        };
        app.outcome = match ended {
            Ok(ended) => Outcome::Accepted { revision: ended.revision, status: ended.status },
            Err(failure @ CliError::Interrupted(_)) => return Err(failure),
            Err(failure) => Outcome::Unknown { revision, message: failure.lines().join(" ") },
        };
    }
    Ok(())
}

/// Returns `Ok` if no promotion was refused, or ended without success.
fn outcome(promoted: &[Promoted]) -> Result<(), CliError> {
    let refused = promoted.iter().filter(|app| matches!(app.outcome, Outcome::Refused { .. })).count();
    if refused > 0 {
        return Err(CliError::Other(format!("{refused} of {} apps were not promoted.", promoted.len())));
    }
    if promoted.iter().any(|app| matches!(app.outcome, Outcome::Unknown { .. })) {
        return Err(CliError::Unreachable("The end of some promotions is not known; see app status.".to_owned()));
    }
    if promoted.iter().any(ended_badly) { Err(CliError::Unsuccessful) } else { Ok(()) }
}

fn ended_badly(app: &Promoted) -> bool {
    match app.outcome {
        Outcome::Accepted { status, .. } => status.is_terminal() && status != Status::Succeeded,
        Outcome::Planned | Outcome::Skipped { .. } | Outcome::Unknown { .. } | Outcome::Refused { .. } => false,
    }
}

fn request((project, environment): EnvironmentOf<'_>) -> Promote {
    let from = PromoteFrom { project: project.to_string(), environment: environment.to_string() };
    Promote { from, ..Promote::default() }
}

fn source_id(source: &App) -> Result<AppId, CliError> {
    Ok(AppId { namespace: source.namespace.parse()?, name: source.app.parse()? })
}

/// Returns a sentence for each app that lacks variables.
fn missing(promoted: &[Promoted], (project, environment): EnvironmentOf<'_>) -> Result<Vec<String>, CliError> {
    let namespace = Namespace::of(project, environment)?;
    let source = |app: &Promoted| AppId { namespace: namespace.clone(), name: app.id.name.clone() };
    Ok(promoted.iter().filter_map(|app| lacks(&app.id, &source(app), &app.plan.missing_variables)).collect())
}

fn lacks(to: &AppId, from: &AppId, variables: &[String]) -> Option<String> {
    let names: Vec<String> = variables.iter().map(|name| escaped(name)).collect();
    let s = if names.len() == 1 { "" } else { "s" };
    (!names.is_empty()).then(|| format!("{to} has no variable{s} {}, which {from} has", names.join(", ")))
}

/// Asks before images are promoted to apps that lack variables.
fn ask(missing: &[String], is_confirmed: bool) -> Result<(), CliError> {
    if missing.is_empty() || is_confirmed {
        missing.iter().for_each(|lacks| note(lacks));
        return Ok(());
    }
    let lines = missing.join("\n");
    confirm(&format!("{lines}\nA promotion carries the image, and no configuration. Promote all the same?"))
}

fn note(lacks: &str) {
    message(&format!("note: {lacks}"));
}

/// The apps of an environment by their names.
struct Apps {
    readable: BTreeMap<AppName, App>,
    /// The apps that are stored, and cannot be read. Apps of another pair that spells the same namespace are among them.
    unreadable: BTreeSet<AppName>,
}

impl Apps {
    async fn read(session: &Session<'_>, (project, environment): EnvironmentOf<'_>) -> Result<Self, CliError> {
        let list = session.apps(Some(Namespace::of(project, environment)?)).await?;
        let theirs = |app: &App| app.project == project.as_str() && app.environment == environment.as_str();
        let named = |app: App| Ok((app.app.parse()?, app));
        let readable = list.apps.into_iter().filter(theirs).map(named).collect::<Result<_, CliError>>()?;
        let name = |id: &String| Ok(id.parse::<AppId>()?.name);
        let unreadable = list.unreadable.iter().map(name).collect::<Result<_, CliError>>()?;
        Ok(Self { readable, unreadable })
    }
}

/// Returns what is to be done with each app that is promoted from.
fn planned_all(sources: &Apps, targets: &Apps, to: &Namespace) -> Vec<Promoted> {
    let id = |name: &AppName| AppId { namespace: to.clone(), name: name.clone() };
    let readable = sources.readable.iter().map(|(name, source)| match targets.unreadable.contains(name) {
        true => unreadable(id(name), "promote to"),
        false => planned(id(name), source, targets.readable.get(name)),
    });
    let mut planned: Vec<_> = readable.collect();
    planned.extend(sources.unreadable.iter().map(|name| unreadable(id(name), "promote from")));
    planned.sort_by(|one, other| one.id.name.cmp(&other.id.name));
    planned
}

fn unreadable(id: AppId, which: &str) -> Promoted {
    let message = format!("the app to {which} is stored, and cannot be read; the server's log says why");
    Promoted { plan: Plan::of(id.name.as_str(), None, None), id, outcome: Outcome::Refused { message } }
}

fn planned(id: AppId, source: &App, target: Option<&App>) -> Promoted {
    let plan = Plan::of(id.name.as_str(), Some(source), target);
    let outcome = plan.skipped.map_or(Outcome::Planned, |why| Outcome::Skipped { message: why.to_owned() });
    Promoted { id, plan, outcome }
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
                    Status::Queued | Status::Building | Status::Releasing | Status::RollingOut | Status::Verifying => {
                        None
                    }
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
    let columns = [
        Column("APP", 0, Fit::Keep),
        Column("IMAGE", 0, Fit::Image),
        Column("IN PLACE OF", 0, Fit::Drop(1)),
        Column("", 0, Fit::Cut),
    ];
    let rows: Vec<_> = promoted.iter().map(row).collect();
    session
        .output
        .data(&serde_json::json!({ "apps": promoted }), || table::render(&columns, &rows, session.output.style))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apps::tests::app;

    fn apps(readable: &[&str], unreadable: &[&str]) -> Apps {
        let name = |name: &&str| name.parse::<AppName>().unwrap();
        Apps {
            readable: readable.iter().map(|of| (name(of), App { app: (*of).to_owned(), ..app() })).collect(),
            unreadable: unreadable.iter().map(name).collect(),
        }
    }

    #[test]
    fn apps_that_cannot_be_read_are_named_and_fail_the_promotion() {
        let (from, to) = (apps(&["api", "web"], &["worker"]), apps(&["web"], &["api"]));
        let planned = planned_all(&from, &to, &"shop-prod".parse().unwrap());
        let told: Vec<_> = planned
            .iter()
            .map(|app| match &app.outcome {
                Outcome::Refused { message } => (app.plan.app.as_str(), message.as_str()),
                Outcome::Planned | Outcome::Skipped { .. } | Outcome::Accepted { .. } | Outcome::Unknown { .. } => {
                    (app.plan.app.as_str(), "")
                }
            })
            .collect();
        assert_eq!(
            told,
            [
                ("api", "the app to promote to is stored, and cannot be read; the server's log says why"),
                ("web", ""),
                ("worker", "the app to promote from is stored, and cannot be read; the server's log says why"),
            ]
        );
        let failure = outcome(&planned).unwrap_err();
        assert_eq!(failure.lines(), ["2 of 3 apps were not promoted."]);
    }
}
