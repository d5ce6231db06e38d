//! Activity, and the delivery measures of projects and environments.

use rollhook_api::{
    ActivityDeploy, ActivityList, DeliveryMeasures, DeliveryReport,
    openapi::PAGE_MAX,
    operations::{ActivityQuery, ListActivity, ReportDelivery, ReportQuery},
    query::PageSize,
    report::{csv, words},
};
use rollhook_core::text::escaped;

use super::Session;
use crate::{
    args::{self, Format},
    exit::CliError,
    history,
    output::{message, print},
    table::{self, Cell, Column, Fit},
    when,
};

pub(crate) async fn activity(session: &Session<'_>, args: &args::Activity) -> Result<(), CliError> {
    let limit = args.limit as usize;
    let mut list = ActivityList::default();
    loop {
        let missing = limit - list.deploys.len();
        let query = ActivityQuery {
            project: args.project.clone(),
            environment: args.environment.clone(),
            actor: args.actor.clone(),
            status: args.status,
            after: list.next.as_deref().map(str::parse).transpose().map_err(|invalid| {
                CliError::Other(format!("The server's place of the next part cannot be read: it {invalid}."))
            })?,
            limit: Some(PageSize::new(missing.min(PAGE_MAX))),
        };
        let page = session.api.call(ListActivity, &(), query).await?;
        let came = page.deploys.len();
        list.deploys.extend(page.deploys.into_iter().take(missing));
        list.next = page.next;
        list.truncated = page.truncated;
        list.unreadable.extend(page.unreadable);
        if list.next.is_none() || came == 0 || list.deploys.len() >= limit {
            break;
        }
    }
    list.unreadable.sort_unstable();
    list.unreadable.dedup();
    for note in words::left_out_of_list(&list) {
        message(&format!("note: {note}"));
    }
    if session.output.format == Format::Csv {
        return print(&csv::activity(&list.deploys));
    }
    session.output.data(&list, || activity_table(session, &list))
}

fn activity_table(session: &Session<'_>, list: &ActivityList) -> String {
    let is_wide = session.output.format == Format::Wide;
    let now = when::now();
    let row = |shown: &ActivityDeploy| {
        let ActivityDeploy { project, environment, deploy } = shown;
        let at = if is_wide { when::absolute(deploy.created_at) } else { when::ago(deploy.created_at, now) };
        let image = deploy.image.as_deref().or(deploy.commit.as_deref());
        let image = image.map(|image| if is_wide { image.to_owned() } else { history::short_image(image) });
        let mark = history::mark_with_reason(deploy).unwrap_or_else(|| deploy.status.to_string());
        vec![
            Cell::new(at),
            Cell::new(project),
            Cell::new(environment),
            Cell::new(&deploy.app),
            Cell::new(deploy.revision.to_string()),
            Cell::optional(image),
            Cell::new(rollhook_api::words::cause(deploy)),
            Cell::new(&deploy.actor),
            Cell::new(mark).tinted(history::tint(deploy)),
        ]
    };
    let columns = [
        Column("WHEN", 0, Fit::Time),
        Column("PROJECT", 0, Fit::Cut),
        Column("ENVIRONMENT", 0, Fit::Cut),
        Column("APP", 0, Fit::Cut),
        Column("#", 0, Fit::Keep),
        Column("IMAGE", 0, Fit::Image),
        Column("TRIGGER", 0, Fit::Drop(1)),
        Column("BY", 0, Fit::Cut),
        Column("STATUS", 0, Fit::Cut),
    ];
    let rows: Vec<_> = list.deploys.iter().map(row).collect();
    table::render(&columns, &rows, session.output.style)
}

pub(crate) async fn report(session: &Session<'_>, args: &args::Report) -> Result<(), CliError> {
    let query =
        ReportQuery { project: args.project.clone(), environment: args.environment.clone(), days: Some(args.days) };
    let report = session.api.call(ReportDelivery, &(), query).await?;
    for note in words::left_out(&report) {
        message(&format!("note: {}", escaped(&note)));
    }
    if session.output.format == Format::Csv {
        return print(&csv::report(&report));
    }
    session.output.data(&report, || report_table(session, &report))
}

fn report_table(session: &Session<'_>, report: &DeliveryReport) -> String {
    let row = |measures: &DeliveryMeasures| {
        vec![
            Cell::new(&measures.project),
            Cell::new(&measures.environment),
            Cell::new(words::frequency(measures, report.days)),
            Cell::new(words::lasting(measures.lead_time_seconds)),
            Cell::new(words::share(measures.change_fail_rate)),
            Cell::new(words::recovery(measures)),
            Cell::new(words::share(measures.rework_rate)),
        ]
    };
    let columns = [
        Column("PROJECT", 0, Fit::Cut),
        Column("ENVIRONMENT", 0, Fit::Cut),
        Column("DEPLOYMENTS", 0, Fit::Keep),
        Column("LEAD TIME", 0, Fit::Keep),
        Column("FAIL RATE", 0, Fit::Keep),
        Column("RECOVERY TIME", 0, Fit::Keep),
        Column("REWORK RATE", 0, Fit::Drop(1)),
    ];
    let rows: Vec<_> = report.environments.iter().map(row).collect();
    table::render(&columns, &rows, session.output.style)
}
