//! Deploys, rollbacks and the history.

use rollhook_api::{
    App, Deploy, DeployAnswer, DeployList, DeployPost, ImageLabels, Kind, Rollback, RollbackAnswer, VerdictPost,
    duration, hints,
    operations::{
        CancelDeploy, DecideDeploy, DeployApp, DeployQuery, DeploysQuery, ListDeploys, PlanRollback, RollBack,
        RollbackQuery, ShowDeploy,
    },
    words,
};
use rollhook_core::{
    app::AppId,
    deploy::{Revision, Ruling, Status},
    text::escaped,
};

use super::{Session, config, outcome::succeeded};
use crate::{args, confirm::confirm, exit::CliError, history, output::message, progress::watch, when};

/// The number of entries per page.
const PAGE: usize = 100;

/// Follows a deploy to its end.
pub(crate) async fn wait(session: &Session<'_>, args: &args::WaitFor) -> Result<(), CliError> {
    let id = &session.find(&args.target).await?;
    let revision = match args.revision {
        Some(revision) => revision,
        None => {
            let newest = session.api.call(ListDeploys, id, DeploysQuery::page(None, PAGE)).await?.deploys.into_iter();
            // A restore is no deploy that anybody waits for.
            let mut asked_for = newest.filter(|deploy| !deploy.is_restore());
            asked_for.next().ok_or_else(|| CliError::Other(format!("{id} has no deploys yet.")))?.revision
        }
    };
    let limit = duration::parse(&args.timeout).unwrap_or(duration::MAX);
    let ended = tokio::time::timeout(limit, watch(session, id, revision)).await.map_err(|_| {
        CliError::Other(format!("Revision {revision} has not ended within {}; it goes on.", args.timeout))
    })??;
    session.print_end(&ended)?;
    session.document(&ended)?;
    succeeded(Some(&ended))
}

/// Prints one entry with its evidence.
async fn one(session: &Session<'_>, (id, app): (&AppId, &App), revision: Revision) -> Result<(), CliError> {
    let entry = session.api.call(ShowDeploy, &(id.clone(), revision), DeployQuery::default()).await?;
    // A document is the entry as it is.
    let changed = if session.output.format.is_document() { None } else { config::changed(session, id, &entry).await };
    session.output.data(&entry, || {
        let optional = |name: &str, text: Option<&str>| {
            text.map(|text| format!("{name:10}{}\n", escaped(text))).unwrap_or_default()
        };
        let release = history::release_predicate(&entry).map(|what| format!("its release command {what}"));
        let against = changed.map(|changed| format!(", {changed}")).unwrap_or_default();
        let configuration =
            entry.configuration.as_deref().map(|id| format!("{}{against}", history::configuration(&entry, id)));
        let time = |at| format!("{} ({})", when::ago(at, when::now()), when::absolute(at));
        let (made, who) = (time(entry.created_at), escaped(&entry.actor));
        let ended = entry.status.is_terminal().then(|| time(entry.updated_at));
        // What every entry of its status is, the first line says.
        let mark = words::mark(&entry).filter(|mark| mark != entry.status.as_str());
        let ending: String = history::ending(&entry, Some(app)).iter().map(|line| format!("{line}\n")).collect();
        let label = |of: fn(&ImageLabels) -> Option<&str>| entry.labels.as_deref().and_then(of);
        let url = Some(app.policy.url.as_str()).filter(|url| !url.is_empty());
        format!(
            "{ending}\n{}{}{}{}{}{}{}{}{}{}{}{:10}{} by {who}, {made}\n{}{}",
            optional("Mark", mark.as_deref().filter(|_| entry.status.is_terminal())),
            optional("Image", entry.image.as_deref()),
            optional("Digest", entry.digest.as_deref()),
            optional("Commit", history::commit(&entry).as_deref()),
            optional("Committed", entry.committed_at.map(time).as_deref()),
            optional("Version", label(|labels| labels.version.as_deref())),
            optional("Source", label(|labels| labels.source.as_deref())),
            optional("Page", label(|labels| labels.url.as_deref())),
            optional("Sequence", entry.sequence.map(|sequence| sequence.to_string()).as_deref()),
            optional("Release", release.as_deref()),
            optional("Config", configuration.as_deref()),
            "Made",
            history::cause(&entry),
            optional("Ended", ended.as_deref()),
            optional("Address", url),
        )
    })
}

pub(crate) async fn history(session: &Session<'_>, args: &args::History) -> Result<(), CliError> {
    let (app, limit) = (session.app(&args.target).await?, args.limit as usize);
    let id = args.target.id()?;
    if let Some(revision) = args.revision {
        return one(session, (&id, &app), revision).await;
    }
    let mut list = DeployList::default();
    loop {
        let missing = limit - list.deploys.len();
        let page = session.api.call(ListDeploys, &id, DeploysQuery::page(list.next, missing.min(PAGE))).await?;
        list.next = page.next;
        let came = page.deploys.len();
        list.deploys.extend(page.deploys.into_iter().take(missing));
        if list.next.is_none() || came == 0 || list.deploys.len() >= limit {
            break;
        }
    }
    let style = session.output.style;
    let table = || history::table(&list.deploys, when::now(), style);
    session.output.list(&list, table, || history::wide(&list.deploys, style))
}

pub(crate) async fn deploy(session: &Session<'_>, args: &args::Deploy) -> Result<(), CliError> {
    let id = &session.find(&args.target).await?;
    // What the answer shows as deployed once more is what was current when the person asked.
    let current = if args.same { session.app(&args.target).await?.current } else { None };
    let (image_ref, commit) = (args.image().map(ToString::to_string), args.commit.as_ref().map(ToString::to_string));
    let break_glass = args.break_glass.as_ref().map(ToString::to_string);
    let if_current = current.map(|current| current.revision);
    let post = DeployPost {
        image: image_ref,
        commit,
        committed_at: None,
        sequence: None,
        same: args.same,
        if_current,
        break_glass,
    };
    session.drive()?;
    let answer = session.api.call(DeployApp, id, post).await?;
    let again = if_current.map(|current| format!(", same as {current}")).unwrap_or_default();
    session.output.line(&format!("Deploying {} to {id}: revision {}{again}", image(&answer), answer.revision))?;
    conclude(session, id, answer, args.wait).await
}

pub(super) async fn conclude(
    session: &Session<'_>,
    id: &AppId,
    mut answer: DeployAnswer,
    wait: args::Wait,
) -> Result<(), CliError> {
    for field in &answer.ignored {
        message(&format!("note: the {} was ignored", escaped(field)));
    }
    if let Some(stopped) = &answer.stopped {
        message(&format!("note: {}", escaped(&stopped.stays())));
    }
    let ended = session.wait_for_end(id, answer.revision, wait).await?;
    finish(&mut answer, ended.as_ref());
    session.document(&answer)?;
    succeeded(ended.as_ref())
}

pub(crate) async fn rollback(session: &Session<'_>, args: &args::Rollback) -> Result<(), CliError> {
    let (id, current) = (&args.target.id()?, session.app(&args.target).await?.current);
    let mut image = None;
    let planned = match args.revision {
        Some(_) => args.revision,
        // A rollback does not wait for what is only printed.
        None => {
            let query = RollbackQuery { with_config: Some(args.with_config), revision: None };
            let planned = session.api.call(PlanRollback, id, query).await.ok();
            image = planned.as_ref().and_then(|to| to.image.as_deref()).map(history::short_image);
            planned.map(|to| to.revision)
        }
    };
    if args.revision.is_none()
        && let Some(planned) = planned
    {
        print_way_back(session, id, current.as_ref(), planned, args.with_config).await;
    }
    let mut without_release = args.yes;
    if let Some(revision) = args.revision {
        let target = entry(session, id, revision).await?;
        config::print_way_back(session, id, (current.as_ref(), &target), args.with_config).await;
        image = target.image.as_deref().map(history::short_image);
        let cautions = cautions(&target);
        if !cautions.is_empty() && !args.yes {
            confirm(&format!("{}\nRoll back to it ({}) all the same?", cautions.join("\n"), history::what(&target)))?;
            without_release = words::not_released(&target).is_some();
        }
    }
    let if_current = current.as_ref().map(|current| current.revision);
    let with_config = args.with_config;
    let (past_releases, with_revoked) = (args.yes, args.yes);
    let revision = args.revision;
    let mut asked = Rollback { revision, if_current, past_releases, without_release, with_config, with_revoked };
    session.drive()?;
    let mut answer = loop {
        match session.api.call(RollBack, id, asked.clone()).await {
            // Each is asked for once: what is confirmed is refused no more.
            Err(refused) if refused.is(Kind::NotReleased) && !asked.without_release => {
                confirm_all_the_same(&refused, image.as_deref())?;
                asked.without_release = true;
            }
            Err(refused) if refused.is(Kind::ReleaseBetween) && !asked.past_releases => {
                confirm_all_the_same(&refused, image.as_deref())?;
                asked.past_releases = true;
            }
            Err(refused) if refused.is(Kind::ConfigurationRevoked) && !asked.with_revoked => {
                confirm_all_the_same(&refused, image.as_deref())?;
                asked.with_revoked = true;
            }
            answer => break answer?,
        }
    };
    // What runs has changed meanwhile, and with it the last good version.
    if planned != Some(answer.to.revision) && args.revision.is_none() {
        print_way_back(session, id, current.as_ref(), answer.to.revision, with_config).await;
    }
    print_rollback(session, id, &answer)?;
    let ended = session.wait_for_end(id, answer.deploy.revision, args.wait).await?;
    finish(&mut answer.deploy, ended.as_ref());
    session.document(&answer)?;
    succeeded(ended.as_ref())
}

async fn print_way_back(session: &Session<'_>, id: &AppId, current: Option<&Deploy>, to: Revision, with_config: bool) {
    if let Ok(target) = entry(session, id, to).await {
        config::print_way_back(session, id, (current, &target), with_config).await;
    }
}

/// Returns the reasons to think twice before a return to an entry, a line each; none if it succeeded and was not revoked.
fn cautions(target: &Deploy) -> Vec<String> {
    let never_succeeded = (target.status != Status::Succeeded).then(|| history::summary(target));
    let revision = target.revision;
    let clauses = words::not_released(target).map(ToOwned::to_owned).into_iter();
    let clauses = clauses.chain(words::revocation(target.revoked.as_ref()).map(|clause| escaped(&clause)));
    never_succeeded.into_iter().chain(clauses.map(|clause| format!("Revision {revision}: {clause}."))).collect()
}

fn confirm_all_the_same(refused: &CliError, image: Option<&str>) -> Result<(), CliError> {
    let why = refused.lines().into_iter().next().unwrap_or_default();
    let to = image.map(|image| format!(" to {}", escaped(image))).unwrap_or_default();
    confirm(&format!("{}\nRoll back{to} all the same?", hints::without_confirmation(&why)))
}

async fn entry(session: &Session<'_>, id: &AppId, revision: Revision) -> Result<Deploy, CliError> {
    session.api.call(ShowDeploy, &(id.clone(), revision), DeployQuery::default()).await
}

fn print_rollback(session: &Session<'_>, id: &AppId, answer: &RollbackAnswer) -> Result<(), CliError> {
    let image = escaped(&answer.to.image.as_deref().map_or_else(|| "no image".to_owned(), history::short_image));
    let (to, new) = (answer.to.revision, answer.deploy.revision);
    session.output.line(&format!("Rolling back {id} to revision {to} ({image}): new revision {new}"))?;
    let superseded: Vec<_> = answer.deploy.superseded.iter().map(ToString::to_string).collect();
    if !superseded.is_empty() {
        session.output.line(&format!("Superseded: {}", superseded.join(", ")))?;
    }
    message(&format!("note: {}", escaped(&answer.note)));
    Ok(())
}

pub(crate) async fn cancel(session: &Session<'_>, args: &args::Cancel) -> Result<(), CliError> {
    let (id, revision) = (&session.find(&args.target).await?, args.revision);
    session.drive()?;
    let entry = session.api.call(CancelDeploy, &(id.clone(), revision), ()).await?;
    session.output.line(&format!("Cancelled revision {revision} of {id}"))?;
    if let Some(direct) = session.direct {
        if entry.release.is_some() && !direct.release_ended(id, revision).await {
            message("note: the release command was told to end, and may still run: see app build-logs --release");
        }
        session.follow_restore(id, &entry).await?;
    }
    session.document(&entry)
}

pub(crate) async fn decide(session: &Session<'_>, args: &args::Verdict) -> Result<(), CliError> {
    let (id, revision) = (&session.find(&args.target).await?, args.revision);
    session.drive()?;
    let post = VerdictPost::new(args.ruling);
    let mut entry = session.api.call(DecideDeploy, &(id.clone(), revision), post).await?;
    let without = entry.decision.as_ref().map(|decision| decision.reason.as_str()).unwrap_or_default();
    let done = match args.ruling {
        Ruling::Pass => "Accepted",
        Ruling::Fail => "Rejected",
    };
    session.output.line(&format!("{done} revision {revision} of {id}, without a verdict of {}", escaped(without)))?;
    let ended = session.wait_for_end(id, revision, args.wait).await?;
    entry = ended.clone().unwrap_or(entry);
    session.document(&entry)?;
    // A person who rejects a deploy wants it to fail.
    if args.ruling == Ruling::Fail { Ok(()) } else { succeeded(ended.as_ref()) }
}

pub(super) fn image(answer: &DeployAnswer) -> String {
    let image = answer.image.as_deref().map(history::short_image);
    escaped(image.as_deref().or(answer.commit.as_deref()).unwrap_or("nothing"))
}

/// Updates the answer once the deploy has ended.
fn finish(answer: &mut DeployAnswer, ended: Option<&Deploy>) {
    let Some(ended) = ended else { return };
    answer.status = ended.status;
    answer.reason.clone_from(&ended.reason);
    answer.message.clone_from(&ended.message);
    if ended.revision == answer.revision {
        answer.not_resolved.clone_from(&ended.not_resolved);
    }
    // If another deploy superseded this one, the answer tells that one's end, under its own number.
    answer.superseded_by = if ended.revision == answer.revision { ended.superseded_by } else { Some(ended.revision) };
}
