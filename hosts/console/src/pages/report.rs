//! The delivery measures of projects and environments, with a chart of each.

use askama::Template;
use http::StatusCode;
use rollhook_api::{
    DayDeployments, DeliveryMeasures, DeliveryReport,
    operations::{ReportDelivery, ReportQuery},
    report::{Days, csv, words},
    time,
};
use rollhook_core::{request::Field, text::escaped, time::Timestamp};
use rollhook_management::report::DAY;

use super::activity::{optional, table};
use crate::{
    console::Call,
    host::Failure,
    reply::{self, Reply},
    view::Frame,
};

/// The most environments that the page shows.
const SHOWN: usize = 60;

/// The height of a chart, and the width of a day in it.
const HEIGHT: usize = 48;
const WIDTH: usize = 10;

#[derive(Template)]
#[template(path = "report.html")]
struct ReportPage<'a> {
    frame: &'a Frame,
    project: &'a str,
    environment: &'a str,
    periods: Vec<Period>,
    days: u32,
    environments: Vec<Shown>,
    left_out: Vec<String>,
    has_more: bool,
    export: String,
}

/// A period that can be chosen.
struct Period {
    days: u32,
    is_chosen: bool,
}

/// An environment with its measures.
struct Shown {
    id: usize,
    project: String,
    environment: String,
    measures: Vec<Measure>,
    chart: Chart,
    days: Vec<DayDeployments>,
}

/// A measure in words.
struct Measure {
    name: &'static str,
    value: String,
    /// The counts that the value is made of.
    basis: String,
}

/// The deployments of a period as bars.
struct Chart {
    width: usize,
    height: usize,
    bars: Vec<Bar>,
}

/// A part of a day's bar.
struct Bar {
    is_failed: bool,
    x: usize,
    y: usize,
    width: usize,
    height: usize,
}

/// Answers `GET /report`.
pub(crate) async fn page(call: &Call<'_>) -> Result<Reply, Failure> {
    let field = |name| call.request.query(name).map(|text| text.trim().to_owned()).unwrap_or_default();
    let (project, environment) = (field("project"), field("environment"));
    let days: Days = field("days").parse().unwrap_or_default();
    let query = ReportQuery {
        project: optional(Field::Project, &project)?,
        environment: optional(Field::Environment, &environment)?,
        days: Some(days),
    };
    let report = call.operations().call(ReportDelivery, &(), query).await?;
    if field("format") == "csv" {
        return Ok(table(csv::report(&report), "report.csv"));
    }
    let length = days.to_string();
    let fields = [("project", &*project), ("environment", &*environment), ("days", &*length), ("format", "csv")];
    let fields = fields.into_iter().filter(|(_, value)| !value.is_empty());
    let export = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    let period = |length: &Days| Period { days: length.get(), is_chosen: *length == days };
    let frame = call.frame();
    let shown = report.environments.iter().take(SHOWN).enumerate().map(|(id, measures)| shown(id, measures, &report));
    let page = ReportPage {
        frame: &frame,
        project: &escaped(&project),
        environment: &escaped(&environment),
        periods: Days::ALL.iter().map(period).collect(),
        days: days.get(),
        environments: shown.collect(),
        left_out: words::left_out(&report).iter().map(|sentence| escaped(sentence)).take(SHOWN).collect(),
        has_more: report.environments.len() > SHOWN,
        export: format!("/report?{export}"),
    };
    Ok(reply::html(StatusCode::OK, &page))
}

fn shown(id: usize, measures: &DeliveryMeasures, report: &DeliveryReport) -> Shown {
    let of = |count: usize, what: &str| format!("{count} of {} {what}", measures.deployments);
    let measure = |name, value, basis| Measure { name, value, basis };
    let all = measures.deployments + measures.rollbacks;
    Shown {
        id,
        project: escaped(&measures.project),
        environment: escaped(&measures.environment),
        measures: vec![
            measure(
                "Deployment frequency",
                words::frequency(measures, report.days),
                format!("{} in all", measures.deployments),
            ),
            measure(
                "Change lead time",
                words::lasting(measures.lead_time_seconds),
                match measures.lead_times {
                    0 => "no commit’s time is known".to_owned(),
                    known => format!("median of {known}"),
                },
            ),
            measure("Change fail rate", words::share(measures.change_fail_rate), of(measures.failed, "failed")),
            measure(
                "Failed deployment recovery time",
                words::lasting(measures.recovery_time_seconds),
                match measures.unrecovered {
                    0 => format!("median of {}", measures.failed),
                    lasting => format!("{lasting} not recovered"),
                },
            ),
            measure(
                "Deployment rework rate",
                words::share(measures.rework_rate),
                format!("{} of {all} repair", measures.repairs),
            ),
        ],
        chart: chart(measures, report.since, report.until),
        days: measures.daily.clone(),
    }
}

/// Returns the bars of the days of a period. The tallest one fills the chart; a part that is there at all is seen.
fn chart(measures: &DeliveryMeasures, since: Timestamp, until: Timestamp) -> Chart {
    let days = usize::try_from(until.since(since).as_millis() / DAY.as_millis()).unwrap_or_default() + 1;
    let most = measures.daily.iter().map(|day| day.deployments).max().unwrap_or_default().max(1);
    let place = |day: &DayDeployments| (0..days).find(|number| time::day(begin(since, *number)) == day.day);
    let height = |count: usize| if count == 0 { 0 } else { (count * HEIGHT).div_ceil(most).max(2) };
    let mut bars = Vec::new();
    for day in &measures.daily {
        let Some(number) = place(day) else { continue };
        let (all, failed) = (height(day.deployments), height(day.failed));
        let bar = |is_failed, y, height| Bar { is_failed, x: number * WIDTH + 1, y, width: WIDTH - 2, height };
        if all > failed {
            bars.push(bar(false, HEIGHT - all, all - failed));
        }
        if failed > 0 {
            bars.push(bar(true, HEIGHT - failed, failed));
        }
    }
    Chart { width: days * WIDTH, height: HEIGHT, bars }
}

/// Returns a moment of a day of the period.
fn begin(since: Timestamp, number: usize) -> Timestamp {
    since.after(DAY * u32::try_from(number).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(daily: &[(&str, usize, usize)]) -> Chart {
        let day = |(day, deployments, failed): &(&str, usize, usize)| DayDeployments {
            day: (*day).to_owned(),
            deployments: *deployments,
            failed: *failed,
        };
        let measures = DeliveryMeasures { daily: daily.iter().map(day).collect(), ..DeliveryMeasures::default() };
        let since: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
        chart(&measures, since, "2026-01-08T13:00:00Z".parse().unwrap())
    }

    #[test]
    fn bars_stand_at_their_days_and_failed_ones_are_their_lower_part() {
        let chart = of(&[("2026-01-02", 4, 1), ("2026-01-05", 2, 2), ("2026-01-08", 1, 0), ("2025-12-31", 9, 0)]);
        assert_eq!(chart.width, 70);
        let bars: Vec<_> = chart.bars.iter().map(|bar| (bar.is_failed, bar.x, bar.y, bar.height)).collect();
        // Of the day outside of the period there is no bar; it is the most of all.
        assert_eq!(bars, [(false, 1, 26, 16), (true, 1, 42, 6), (true, 31, 37, 11), (false, 61, 42, 6)]);
        assert!(of(&[]).bars.is_empty());
    }
}
