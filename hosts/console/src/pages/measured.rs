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
    /// The place of the limit.
    pub(crate) limit: String,
}

/// A measured value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Bar {
    pub(crate) is_failed: bool,
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
        Self {
            line: escaped(line),
            name: escaped(&check.name),
            chart: chart(check),
            rows: check.measurements.iter().rev().map(row).collect(),
        }
    }
}

/// Returns the chart of a check that compares numbers; `None` of others, and of values that no bar can show.
fn chart(check: &CheckOutcome) -> Option<Chart> {
    let (operator, limit) = check.condition.as_deref()?.split_once(' ')?;
    let limit = limit.parse().ok().filter(|limit| is_shown(*limit))?;
    ["<", "<=", ">", ">=", "==", "!="].contains(&operator).then_some(())?;
    let mut values = Vec::new();
    for (place, measured) in check.measurements.iter().enumerate() {
        // Without a value there is a gap.
        let Some(value) = measured.value.as_deref() else { continue };
        values.push((place, value.parse().ok().filter(|value| is_shown(*value))?, measured.verdict == Verdict::Fail));
    }
    let most = values.iter().map(|(_, value, _)| *value).fold(limit, f64::max);
    if values.is_empty() || most <= 0.0 {
        return None;
    }
    let bar = |(place, value, is_failed): (usize, f64, bool)| {
        let height = (value / most * HEIGHT).max(LEAST);
        Bar { is_failed, x: place * WIDTH + 1, y: number(HEIGHT - height), width: WIDTH - 2, height: number(height) }
    };
    Some(Chart {
        // As wide as the most that an entry keeps, so that a few are no walls.
        width: MEASUREMENTS_MAX.max(check.measurements.len()) * WIDTH,
        height: HEIGHT,
        bars: values.into_iter().map(bar).collect(),
        limit: number(HEIGHT - limit / most * HEIGHT),
    })
}

fn is_shown(value: f64) -> bool {
    value.is_finite() && value >= 0.0
}

fn number(place: f64) -> String {
    format!("{place:.1}")
}

#[cfg(test)]
mod tests {
    use rollhook_api::Measurement;
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
        }
    }

    #[test]
    fn values_are_bars_beside_their_limit() {
        use Verdict::{Fail, None as Nothing, Pass};
        let chart = chart(&check("< 0.5", &[("0", Pass), ("", Nothing), ("1", Fail), ("0.25", Pass)])).unwrap();
        assert_eq!((chart.width, &*chart.limit), (200, "24.0"));
        let bars: Vec<_> = chart.bars.iter().map(|bar| (bar.is_failed, bar.x, &*bar.y, &*bar.height)).collect();
        assert_eq!(bars, [(false, 1, "47.0", "1.0"), (true, 21, "0.0", "48.0"), (false, 31, "36.0", "12.0")]);
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
