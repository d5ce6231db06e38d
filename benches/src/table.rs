//! The results of the benches, as a table.

use std::time::Duration;

/// One measurement beside its baseline.
pub(crate) struct Row {
    /// The measured thing.
    pub(crate) name: String,
    /// The result of the measurement.
    pub(crate) measured: String,
    /// The baseline's result.
    pub(crate) baseline: String,
    /// The result as a share or a multiple of the baseline's.
    pub(crate) ratio: String,
    /// The demanded ratio.
    pub(crate) target: String,
    /// Whether the target is met; `None` if nothing was measured, or there is no target.
    pub(crate) met: Option<bool>,
}

impl Row {
    /// Returns the row of a rate that should be at least this share of the baseline's.
    pub(crate) fn share(name: &str, measured: String, baseline: String, ratio: f64, target: f64) -> Self {
        Self {
            name: name.to_owned(),
            measured,
            baseline,
            ratio: format!("{:.1} %", 100.0 * ratio),
            target: format!("≥ {:.0} %", 100.0 * target),
            met: Some(ratio >= target),
        }
    }

    /// Returns the row of a bench that could not be run here.
    pub(crate) fn absent(name: &str, why: &str) -> Self {
        let none = || "–".to_owned();
        Self {
            name: name.to_owned(),
            measured: why.to_owned(),
            baseline: none(),
            ratio: none(),
            target: none(),
            met: None,
        }
    }

    /// Returns the row of a bench for which there is no cluster.
    pub(crate) fn no_cluster(name: &str) -> Self {
        Self::absent(name, "not measured: ROLLHOOK_TEST_CLUSTER names no test bed")
    }
}

/// Prints the rows on stdout, as Markdown.
pub(crate) fn print(rows: &[Row]) {
    println!("\n| | measured | baseline | ratio | target | |\n|---|---|---|---|---|---|");
    for Row { name, measured, baseline, ratio, target, met } in rows {
        let met = match met {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "",
        };
        println!("| {name} | {measured} | {baseline} | {ratio} | {target} | {met} |");
    }
}

/// Sorts the values, and returns the middle one.
pub(crate) fn median<T: Ord + Copy + Default>(values: &mut [T]) -> T {
    percentile(values, 50)
}

/// Sorts the values, and returns the one below which this share of them lies, in percent.
pub(crate) fn percentile<T: Ord + Copy + Default>(values: &mut [T], percent: usize) -> T {
    values.sort_unstable();
    let index = (values.len() * percent / 100).min(values.len().saturating_sub(1));
    values.get(index).copied().unwrap_or_default()
}

/// Formats a time, as microseconds, milliseconds or seconds.
pub(crate) fn time(time: Duration) -> String {
    match time.as_secs_f64() {
        long if long >= 1.0 => format!("{long:.1} s"),
        short if short < 0.001 => format!("{:.0} µs", short * 1e6),
        short => format!("{:.1} ms", short * 1000.0),
    }
}
