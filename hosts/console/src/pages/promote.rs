//! Promotion from one environment of a project to another: the plan, and what came of it, app by app.

use std::collections::BTreeMap;

use askama::Template;
use http::StatusCode;
use rollhook_api::{
    App, Deploy, Kind, Promote, PromoteFrom,
    operations::{ConfigQuery, DeployQuery, PromoteApp, ShowConfiguration, ShowDeploy},
    promotion,
};
use rollhook_core::{
    app::{AppId, Project},
    deploy::Revision,
    text::escaped,
};
use rollhook_management::ListTurn;

use super::{
    apps, errors,
    matrix::{environments, notes},
    rollback::first,
};
use crate::{
    console::{Call, status},
    host::{CallerOperations, Failure},
    reply::{self, Reply},
    request::values,
    route::Need,
    view::{Frame, Image, Mark, app_path},
};

#[derive(Template)]
#[template(path = "promote.html")]
struct PromotePage<'a> {
    frame: &'a Frame,
    plan: &'a Plan,
}

#[derive(Template)]
#[template(path = "promote_one.html")]
struct OnePage<'a> {
    frame: &'a Frame,
    plan: &'a Plan,
}

#[derive(Template)]
#[template(path = "_promote_one.html")]
struct OnePart<'a> {
    plan: &'a Plan,
}

#[derive(Template)]
#[template(path = "promoted.html")]
struct PromotedPage<'a> {
    frame: &'a Frame,
    plan: &'a Plan,
    results: Vec<Outcome>,
}

/// The plan of a promotion.
struct Plan {
    project: String,
    /// The environments that the project has, and those that the caller may promote to.
    sources: Vec<String>,
    targets: Vec<String>,
    from: String,
    to: String,
    rows: Vec<Row>,
    key: String,
    error: Option<String>,
}

/// The plan for one app.
struct Row {
    app: String,
    is_chosen: bool,
    /// The app in the environment to promote from, if it has variables that the other may lack.
    compared: Option<AppId>,
    /// The variables that the app lacks.
    missing: Option<String>,
    image: Option<Image>,
    present: Option<Image>,
    /// The source's revision that the plan shows.
    revision: Option<Revision>,
    skipped: Option<&'static str>,
    notes: Vec<Mark>,
    /// Where the app is in the environment to promote to.
    target: Option<String>,
}

/// The outcome of the promotion of one app.
struct Outcome {
    app: String,
    href: Option<String>,
    status: Option<Status>,
    refused: Option<String>,
}

/// How far a deploy is, as it is shown until it has ended.
#[derive(Template)]
#[template(path = "_status.html")]
pub(crate) struct Status {
    href: String,
    mark: Mark,
    revision: Revision,
    reason: Option<String>,
    is_unfinished: bool,
}

impl Status {
    /// Returns the status of a deploy of the app at this path.
    pub(crate) fn of(path: &str, deploy: &Deploy) -> Self {
        let has_reason = |reason: &&str| *reason != deploy.status.as_str();
        Self {
            href: format!("{path}/deploys/{}", deploy.revision),
            mark: Mark::of(deploy),
            revision: deploy.revision,
            reason: deploy.reason.as_deref().filter(has_reason).map(escaped),
            is_unfinished: !deploy.status.is_terminal(),
        }
    }
}

/// The environments of a call, and the project's apps.
struct Asked {
    project: String,
    from: String,
    to: String,
    apps: Vec<App>,
    /// The turn of a page that holds all apps.
    _turn: ListTurn,
}

impl Asked {
    /// Reads the project's apps. Without names, the last environment that the caller may promote to is meant, and the
    /// one before it.
    async fn read(call: &Call<'_>, project: &Project, named: impl Fn(&str) -> Option<String>) -> Result<Self, Failure> {
        let turn = call.console.host.turn_of_all_apps(&call.access.principal).await;
        let mut apps = apps::all(&call.operations()).await?.apps;
        apps.retain(|app| app.project == project.as_str());
        if apps.is_empty() {
            return Err(Failure::new(Kind::NotFound, format!("There are no apps in project {project}.")));
        }
        let stages = environments(&apps);
        let to = named("to").or_else(|| targets(call, &apps).last().cloned()).unwrap_or_default();
        let place = stages.iter().position(|stage| *stage == to);
        let beside = place.and_then(|place| stages.get(if place == 0 { 1 } else { place - 1 }));
        let from = named("from").unwrap_or_else(|| beside.unwrap_or(&"").to_string());
        Ok(Self { project: project.to_string(), from, to, apps, _turn: turn })
    }

    fn named(&self, environment: &str) -> BTreeMap<&str, &App> {
        let named = self.apps.iter().filter(|app| app.environment == environment);
        named.map(|app| (app.app.as_str(), app)).collect()
    }

    /// Returns the apps of these names in the environment to promote to.
    fn ids<'a>(&self, names: impl IntoIterator<Item = &'a &'a str>) -> BTreeMap<&'a str, AppId> {
        let targets = self.named(&self.to);
        let id = |app: &&App| format!("{}/{}", app.namespace, app.app).parse().ok();
        names.into_iter().filter_map(|name| Some((*name, targets.get(name).and_then(id)?))).collect()
    }

    /// Returns whether the caller may promote to the environment, which has apps.
    fn is_permitted(&self, call: &Call<'_>) -> bool {
        let targets = self.named(&self.to);
        !targets.is_empty() && targets.values().all(|app| call.may_promote_to(app))
    }

    /// Returns why there is nothing to plan.
    fn fault(&self) -> Option<(Kind, String)> {
        if self.from.is_empty() {
            let rule = format!(
                "Project {} has no other environment that you may read; there is nothing to promote from.",
                self.project
            );
            return Some((Kind::NotFound, rule));
        }
        let missing = [&self.from, &self.to].into_iter().find(|environment| self.named(environment).is_empty());
        if self.from == self.to {
            let rule = "An environment is not promoted to itself: choose another one to promote from.";
            return Some((Kind::InvalidField, rule.to_owned()));
        }
        let missing = missing?;
        Some((Kind::NotFound, format!("There are no apps in project {}, environment {missing}.", self.project)))
    }

    /// Returns the plan for these apps, or for all.
    fn plan(&self, call: &Call<'_>, only: Option<&str>) -> Plan {
        let (sources, targets_of) = (self.named(&self.from), self.named(&self.to));
        let wanted = sources.iter().filter(|(name, _)| only.is_none_or(|only| **name == only));
        let fault = self.fault();
        // What the caller may not list is not asked for: the refusal would be in the audit, as if somebody had tried.
        let row = |name: &str, source: &App| {
            let target = targets_of.get(name).copied();
            let may_compare = [Some(source), target].into_iter().flatten().all(|app| call.may_read_configuration(app));
            row(name, source, target, may_compare)
        };
        Plan {
            project: escaped(&self.project),
            sources: environments(&self.apps).into_iter().map(escaped).collect(),
            targets: targets(call, &self.apps),
            from: escaped(&self.from),
            to: escaped(&self.to),
            rows: match fault {
                Some(_) => Vec::new(),
                None => wanted.map(|(name, source)| row(name, source)).collect(),
            },
            key: call.new_key(),
            error: fault.map(|(_, text)| escaped(&text)),
        }
    }
}

/// Returns the environments that the caller may promote to.
fn targets(call: &Call<'_>, apps: &[App]) -> Vec<String> {
    // All apps of an environment have one answer.
    let environments: BTreeMap<&str, &App> = apps.iter().map(|app| (app.environment.as_str(), app)).collect();
    let permitted = environments.into_values().filter(|app| call.may_promote_to(app));
    self::environments(permitted).into_iter().map(escaped).collect()
}

fn row(name: &str, source: &App, target: Option<&App>, may_compare: bool) -> Row {
    let plan = promotion::Plan::of(name, Some(source), target);
    let compared = (may_compare && plan.compares_variables(source))
        .then(|| format!("{}/{}", source.namespace, source.app).parse());
    Row {
        app: escaped(name),
        is_chosen: true,
        compared: compared.and_then(Result::ok),
        missing: None,
        image: plan.image.as_deref().map(Image::new),
        present: plan.present.as_deref().map(Image::new),
        revision: plan.revision,
        skipped: plan.skipped,
        notes: target.map(notes).unwrap_or_default(),
        target: target.map(app_path),
    }
}

impl Plan {
    /// The number of apps that are to be promoted.
    fn promoted(&self) -> usize {
        self.rows.iter().filter(|row| row.skipped.is_none()).count()
    }

    /// Whether an app that is to be promoted lacks variables.
    fn lacks_variables(&self) -> bool {
        self.rows.iter().any(|row| row.is_chosen && row.missing.is_some())
    }

    /// Returns the plan with the variables that the apps lack, as far as the caller may list those of both environments. Call it
    /// without the turn of a page that holds all apps.
    async fn compared(mut self, call: &Call<'_>) -> Self {
        let operations = &call.operations();
        let of = |id: AppId| async move { operations.call(ShowConfiguration, &id, ConfigQuery::default()).await };
        for row in &mut self.rows {
            let target = row.target.as_ref().and_then(|path| path.strip_prefix("/apps/")?.parse().ok());
            let Some((from, to)) = row.compared.take().zip(target) else { continue };
            let (Ok(from), Ok(to)) = (of(from).await, of(to).await) else { continue };
            let names: Vec<String> =
                promotion::missing_variables(&from, &to).iter().map(|name| escaped(name)).collect();
            row.missing = (!names.is_empty()).then(|| first(&names));
        }
        self
    }

    fn reply(&self, call: &Call<'_>, status: StatusCode, one: bool) -> Reply {
        match (one, call.request.is_partial()) {
            (true, true) => reply::html(status, &OnePart { plan: self }),
            (true, false) => reply::html(status, &OnePage { frame: &call.frame(), plan: self }),
            (false, _) => reply::html(status, &PromotePage { frame: &call.frame(), plan: self }),
        }
    }
}

/// Answers `GET /projects/{project}/promote?from=…&to=…`, for one app with `app=…`.
pub(crate) async fn page(call: &Call<'_>, project: &Project) -> Result<Reply, Failure> {
    let asked = Asked::read(call, project, |name| call.request.query(name)).await?;
    if !asked.is_permitted(call) && asked.fault().is_none_or(|(kind, _)| kind == Kind::InvalidField) {
        let shown = errors::Shown::forbidden(call.access.permissions, Need::Deploy);
        return Ok(shown.reply(&call.frame(), call.request.is_partial()));
    }
    let only = call.request.query("app");
    let plan = asked.plan(call, only.as_deref());
    if let Some((kind, text)) = asked.fault() {
        return Ok(plan.reply(call, status(&Failure::new(kind, text)), false));
    }
    if let Some(only) = only.filter(|_| plan.rows.is_empty()) {
        let detail = format!("There is no app {only} in project {project}, environment {}.", asked.from);
        return Err(Failure::new(Kind::AppNotFound, detail));
    }
    let one = call.request.query("app").is_some();
    // Others need not wait until the variables are compared.
    drop(asked);
    Ok(plan.compared(call).await.reply(call, StatusCode::OK, one))
}

/// Answers `POST /projects/{project}/promote`: promotes the chosen apps, each by itself.
pub(crate) async fn submit(call: &Call<'_>, project: &Project) -> Result<Reply, Failure> {
    let asked = Asked::read(call, project, |name| call.request.field(name)).await?;
    if let Some((kind, text)) = asked.fault() {
        let plan = asked.plan(call, None);
        return Ok(plan.reply(call, status(&Failure::new(kind, text)), false));
    }
    let chosen = values(&call.request.body, "app");
    if chosen.is_empty() {
        let error = Some("Choose at least one app. Nothing was promoted.".to_owned());
        let plan = Plan { error, ..asked.plan(call, None) };
        drop(asked);
        let plan = plan.compared(call).await;
        return Ok(plan.reply(call, StatusCode::UNPROCESSABLE_ENTITY, false));
    }
    // A repeated field is no second choice.
    let choices: BTreeMap<&str, &str> =
        chosen.iter().map(|choice| choice.split_once('@').unwrap_or((choice, ""))).collect();
    let operations = call.keyed("promote")?;
    let targets = asked.ids(choices.keys());
    let only = choices.keys().next().copied().filter(|_| choices.len() == 1);
    let plan = asked.plan(call, None);
    let without_variables = call.request.field("without_variables").is_some();
    let question = (!without_variables).then(|| asked.plan(call, only));
    let from = PromoteFrom { project: asked.project.clone(), environment: asked.from.clone() };
    // Promotions of many apps take a while: the apps and their turn are given back before.
    drop(asked);
    if let Some(mut question) = question {
        question.rows.iter_mut().for_each(|row| row.is_chosen = choices.contains_key(row.app.as_str()));
        let question = question.compared(call).await;
        if question.lacks_variables() {
            let error = "Say that the apps run without the variables that they lack. Nothing was promoted.";
            let question = Plan { error: Some(error.to_owned()), ..question };
            return Ok(question.reply(call, StatusCode::CONFLICT, only.is_some()));
        }
    }
    let mut results = Vec::new();
    let (mut done, mut failed) = (None, None);
    for (&name, &revision) in &choices {
        let target = targets.get(name);
        let result = promote(&operations, (&from, without_variables), target, revision).await;
        match (&result, target) {
            (Ok(_), Some(target)) => done = Some(format!("/apps/{target}")),
            (Err(failure), _) => failed = failed.or_else(|| Some(status(failure))),
            (Ok(_), None) => {}
        }
        results.push(outcome(name, target, result));
    }
    if let ([_], Some(path)) = (results.as_slice(), &done) {
        return Ok(reply::redirect(path));
    }
    let code = failed.filter(|_| done.is_none()).unwrap_or(StatusCode::OK);
    Ok(reply::html(code, &PromotedPage { frame: &call.frame(), plan: &plan, results }))
}

/// Promotes one app, unless what it is promoted from is no longer what the plan has shown.
async fn promote(
    operations: &CallerOperations,
    (from, without_variables): (&PromoteFrom, bool),
    target: Option<&AppId>,
    revision: &str,
) -> Result<Deploy, Failure> {
    let Some(id) = target else {
        return Err(Failure::new(Kind::AppNotFound, "The app is not in both environments."));
    };
    let Ok(seen) = revision.parse() else {
        return Err(Failure::new(Kind::CurrentChanged, "The plan has shown no revision. Look at it again."));
    };
    let promote = Promote { from: from.clone(), if_current: Some(seen), without_variables };
    let answer = operations.call(PromoteApp, id, promote).await?;
    operations.call(ShowDeploy, &(id.clone(), answer.revision), DeployQuery::default()).await
}

fn outcome(name: &str, target: Option<&AppId>, result: Result<Deploy, Failure>) -> Outcome {
    let href = target.map(|target| format!("/apps/{target}"));
    let (status, refused) = match (result, &href) {
        (Ok(deploy), Some(path)) => (Some(Status::of(path, &deploy)), None),
        (Ok(_), None) => (None, None),
        (Err(failure), _) => (None, Some(escaped(&failure.problem.detail))),
    };
    Outcome { app: escaped(name), href, status, refused }
}
