//! What a check has measured: a sentence, a chart, and the table behind it.

use rollhook_api::CheckOutcome;
use rollhook_core::{check::Verdict, deploy::MEASUREMENTS_MAX, text::escaped, time::Timestamp};

use crate::view::When;

/// The height of a chart, and the width of a measurement in it.
const HEIGHT: f64 = 48.0;
const WIDTH: usize = 10;
/// The least height of a bar, so that a zero is seen.
const LEAST: f64 = 1.0;

/// A check with its last measurements.
pub(crate) struct Measured {
    pub(crate) line: String,
    pub(crate) name: String,
    pub(crate) chart: Option<Chart>,
    pub(crate) rows: Vec<Row>,
    /// The values of before the deploy, newest first.
    pub(crate) before: Vec<(When, String)>,
}

/// A measurement.
pub(crate) struct Row {
    pub(crate) at: When,
    pub(crate) verdict: &'static str,
    pub(crate) value: String,
    pub(crate) samples: String,
    pub(crate) message: String,
}

/// The values as bars, oldest first, with the limit that a pass must keep.
pub(crate) struct Chart {
    pub(crate) width: usize,
    pub(crate) height: f64,
    pub(crate) bars: Vec<Bar>,
    /// The place of the limit, where it is a number.
    pub(crate) limit: Option<String>,
    /// The place of the deploy, behind the values of before it, where there are any.
    pub(crate) deploy: Option<usize>,
}

/// A value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Bar {
    /// Its class: `failed` of a measurement that failed, `before` of a value of before the deploy, and else none.
    pub(crate) class: &'static str,
    pub(crate) x: usize,
    pub(crate) y: String,
    pub(crate) width: usize,
    pub(crate) height: String,
}

impl Measured {
    /// Returns checks with the line of each.
    pub(crate) fn all(checks: &[CheckOutcome], lines: &[String], now: Timestamp) -> Vec<Self> {
        checks.iter().zip(lines).map(|(check, line)| Self::new(check, line, now)).collect()
    }

    fn new(check: &CheckOutcome, line: &str, now: Timestamp) -> Self {
        let row = |measured: &rollhook_api::Measurement| Row {
            at: When::new(measured.at, now),
            verdict: measured.verdict.as_str(),
            value: escaped(measured.value.as_deref().unwrap_or_default()),
            samples: measured.samples.map(|count| count.to_string()).unwrap_or_default(),
            message: escaped(&measured.message),
        };
        let past = |past: &rollhook_api::PastValue| {
            (When::new(past.at, now), past.value.as_deref().map_or_else(|| "no data".to_owned(), escaped))
        };
        Self {
            line: escaped(line),
            name: escaped(&check.name),
            chart: chart(check),
            rows: check.measurements.iter().rev().map(row).collect(),
            before: check.before.iter().rev().map(past).collect(),
        }
    }
}

/// Returns the chart of a check that compares numbers; `None` of others, and of values that no bar can show.
fn chart(check: &CheckOutcome) -> Option<Chart> {
    let limit = limit(check.condition.as_deref()?)?;
    let past = check.before.iter().map(|past| (past.value.as_deref(), "before"));
    let measured = check
        .measurements
        .iter()
        .map(|measured| (measured.value.as_deref(), if measured.verdict == Verdict::Fail { "failed" } else { "" }));
    let mut values = Vec::new();
    for (place, (value, class)) in past.chain(measured).enumerate() {
        // Without a value there is a gap.
        let Some(value) = value else { continue };
        values.push((place, value.parse().ok().filter(|value| is_shown(*value))?, class));
    }
    let most = values.iter().map(|(_, value, _)| *value).fold(limit.unwrap_or_default(), f64::max);
    if values.is_empty() || most <= 0.0 {
        return None;
    }
    let bar = |(place, value, class): (usize, f64, &'static str)| {
        let height = (value / most * HEIGHT).max(LEAST);
        Bar { class, x: place * WIDTH + 1, y: number(HEIGHT - height), width: WIDTH - 2, height: number(height) }
    };
    let before = check.before.len();
    Some(Chart {
        // As wide as the most that an entry keeps, so that a few are no walls.
        width: (before + MEASUREMENTS_MAX.max(check.measurements.len())) * WIDTH,
        height: HEIGHT,
        bars: values.into_iter().map(bar).collect(),
        limit: limit.map(|limit| number(HEIGHT - limit / most * HEIGHT)),
        deploy: (before > 0).then_some(before * WIDTH),
    })
}

/// Returns the number of a condition that compares with one; `None` within if it compares with the value of before the deploy. `None`
/// if it compares no numbers, or with one that no line can show.
fn limit(condition: &str) -> Option<Option<f64>> {
    let (operator, bound) = condition.split_once(' ')?;
    ["<", "<=", ">", ">=", "==", "!="].contains(&operator).then_some(())?;
    // What follows a comma is the number of samples that are needed.
    let bound = bound.split_once(", ").map_or(bound, |(bound, _)| bound);
    match bound.split_once(" × ") {
        Some(_) => Some(None),
        None => bound.parse().ok().filter(|limit| is_shown(*limit)).map(Some),
    }
}

fn is_shown(value: f64) -> bool {
    value.is_finite() && value >= 0.0
}

fn number(place: f64) -> String {
    format!("{place:.1}")
}

#[cfg(test)]
mod tests {
    use rollhook_api::{Measurement, PastValue};
    use rollhook_core::check::CheckMode;

    use super::*;

    fn check(condition: &str, values: &[(&str, Verdict)]) -> CheckOutcome {
        let measured = |(value, verdict): &(&str, Verdict)| Measurement {
            at: Timestamp::from_millis(0),
            verdict: *verdict,
            value: Some((*value).to_owned()).filter(|value| !value.is_empty()),
            samples: None,
            message: String::new(),
        };
        CheckOutcome {
            name: "errors".to_owned(),
            mode: CheckMode::Enforce,
            verdict: None,
            condition: Some(condition.to_owned()),
            value: None,
            message: None,
            measurements: values.iter().map(measured).collect(),
            before: Vec::new(),
        }
    }

    #[test]
    fn values_are_bars_beside_their_limit() {
        use Verdict::{Fail, None as Nothing, Pass};
        let chart = chart(&check("< 0.5", &[("0", Pass), ("", Nothing), ("1", Fail), ("0.25", Pass)])).unwrap();
        assert_eq!((chart.width, chart.limit.as_deref(), chart.deploy), (200, Some("24.0"), None));
        assert_eq!(bars(&chart), [("", 1, "47.0", "1.0"), ("failed", 21, "0.0", "48.0"), ("", 31, "36.0", "12.0")]);
    }

    fn bars(chart: &Chart) -> Vec<(&str, usize, &str, &str)> {
        chart.bars.iter().map(|bar| (bar.class, bar.x, &*bar.y, &*bar.height)).collect()
    }

    fn past(value: &str) -> PastValue {
        PastValue { at: Timestamp::from_millis(0), value: Some(value.to_owned()).filter(|value| !value.is_empty()) }
    }

    #[test]
    fn values_of_before_the_deploy_stand_before_it() {
        let outcome = check("< 0.5, of 100 samples or more", &[("1", Verdict::Fail)]);
        let outcome = CheckOutcome { before: vec![past("0.5"), past(""), past("0.25")], ..outcome };
        let chart = super::chart(&outcome).unwrap();
        assert_eq!((chart.width, chart.limit.as_deref(), chart.deploy), (230, Some("24.0"), Some(30)));
        let expected = [("before", 1, "24.0", "24.0"), ("before", 21, "36.0", "12.0"), ("failed", 31, "0.0", "48.0")];
        assert_eq!(bars(&chart), expected);
        let rows: Vec<_> = Measured::new(&outcome, "", Timestamp::from_millis(0)).before;
        assert_eq!(rows.iter().map(|(_, value)| &**value).collect::<Vec<_>>(), ["0.25", "no data", "0.5"]);
    }

    #[test]
    fn chart_of_a_comparison_with_before_has_no_limit() {
        let outcome = check("<= 1.5 × the value before the deploy", &[("0.4", Verdict::Pass)]);
        let chart = super::chart(&CheckOutcome { before: vec![past("0.2")], ..outcome }).unwrap();
        assert_eq!((chart.limit.is_none(), chart.deploy), (true, Some(10)));
        assert_eq!(bars(&chart), [("before", 1, "24.0", "24.0"), ("", 11, "0.0", "48.0")]);
    }

    #[test]
    fn what_is_no_comparison_of_numbers_has_no_chart() {
        let pass = Verdict::Pass;
        for (condition, values) in [
            ("status 200", &[("200", pass)][..]),
            ("exit code 0", &[("0", pass)]),
            ("< 0.5", &[]),
            ("< 0.5", &[("", Verdict::None)]),
            ("< 0.5", &[("text", pass)]),
            ("< 0.5", &[("-1", pass)]),
            ("< 0.5", &[("1e999", pass)]),
            ("> -1", &[("1", pass)]),
            ("== 0", &[("0", pass)]),
        ] {
            assert!(chart(&check(condition, values)).is_none(), "{condition}: {values:?}");
        }
        let huge = chart(&check("< 1e300", &[("1e308", pass), ("1e-300", pass)])).unwrap();
        assert_eq!(huge.bars[1].height, "1.0");
    }
}
