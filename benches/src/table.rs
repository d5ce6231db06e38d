//! What the benches say, as a table.

use std::time::Duration;

/// One measurement beside its baseline.
pub(crate) struct Row {
    /// What was measured.
    pub(crate) name: String,
    /// Its result.
    pub(crate) measured: String,
    /// The baseline's result.
    pub(crate) baseline: String,
    /// One as a share or a multiple of the other.
    pub(crate) ratio: String,
    /// What the ratio should be.
    pub(crate) target: String,
    /// Whether it is; none where nothing was measured.
    pub(crate) met: Option<bool>,
}

impl Row {
    /// A rate that should be at least this share of the baseline's.
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

    /// A bench that could not be run here.
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

    /// A bench for which there is no cluster.
    pub(crate) fn no_cluster(name: &str) -> Self {
        Self::absent(name, "not measured: ROLLHOOK_TEST_CLUSTER names no test bed")
    }
}

/// Prints the rows on stdout, as Markdown, so that they can be kept.
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

/// The value in the middle; the list is sorted for it.
pub(crate) fn median<T: Ord + Copy + Default>(values: &mut [T]) -> T {
    percentile(values, 50)
}

/// The value below which this share of all lies, in percent; the list is sorted for it.
pub(crate) fn percentile<T: Ord + Copy + Default>(values: &mut [T], percent: usize) -> T {
    values.sort_unstable();
    let index = (values.len() * percent / 100).min(values.len().saturating_sub(1));
    values.get(index).copied().unwrap_or_default()
}

/// Milliseconds, or seconds where it is long.
pub(crate) fn time(time: Duration) -> String {
    match time.as_secs_f64() {
        long if long >= 1.0 => format!("{long:.1} s"),
        short => format!("{:.1} ms", short * 1000.0),
    }
}
