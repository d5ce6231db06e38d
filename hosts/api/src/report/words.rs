//! The words in which the command line and the console say the same measures.

use rollhook_management::report::READ_MAX;

use crate::{ActivityList, DeliveryMeasures, DeliveryReport, time};

/// The word for a measure that nothing is known for.
const NOTHING: &str = "-";
/// The most apps that a sentence names.
const NAMED_MAX: usize = 5;

/// Returns a share in percent, such as `12.5 %`.
pub fn share(share: Option<f64>) -> String {
    share.map_or_else(|| NOTHING.to_owned(), |share| format!("{} %", decimal(share * 100.0)))
}

/// Returns a frequency, such as `1.4 a day`; below one a day, such as `2 in 30 days`.
pub fn frequency(measures: &DeliveryMeasures, days: u32) -> String {
    if measures.deployments_per_day >= 1.0 {
        return format!("{} a day", decimal(measures.deployments_per_day));
    }
    format!("{} in {days} days", measures.deployments)
}

/// Returns a time in its two greatest units, such as `2 h 5 min`.
pub fn lasting(seconds: Option<u64>) -> String {
    let Some(seconds) = seconds else { return NOTHING.to_owned() };
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |first: u64, one: &str, second: u64, other: &str| match second {
        0 => format!("{first} {one}"),
        _ => format!("{first} {one} {second} {other}"),
    };
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => two(minutes, "min", seconds % 60, "s"),
        (0, hours, _) => two(hours, "h", minutes % 60, "min"),
        (days, ..) => two(days, "d", hours % 24, "h"),
    }
}

/// Returns the recovery time, with the failures that last.
pub fn recovery(measures: &DeliveryMeasures) -> String {
    match (measures.recovery_time_seconds, measures.unrecovered) {
        (None, 0) => NOTHING.to_owned(),
        (None, lasting) => format!("{lasting} not recovered"),
        (median, 0) => lasting(median),
        (median, others) => format!("{}, {others} not recovered", lasting(median)),
    }
}

/// Returns what the numbers of a report leave out, a sentence each.
pub fn left_out(report: &DeliveryReport) -> Vec<String> {
    let of_all = report.truncated.then(|| {
        let since = time::absolute(report.since);
        format!("Only the newest {} were read: the numbers are those since {since}.", entries())
    });
    let forgotten = report.environments.iter().filter_map(|measures| {
        let since = time::absolute(measures.kept_since?);
        let DeliveryMeasures { project, environment, .. } = measures;
        Some(format!("{project} {environment}: some deploys before {since} are no longer kept, and do not count."))
    });
    of_all.into_iter().chain(not_read(&report.unreadable)).chain(forgotten).collect()
}

/// Returns what a list leaves out, a sentence each.
pub fn left_out_of_list(list: &ActivityList) -> Vec<String> {
    let older = list.truncated.then(|| {
        format!(
            "Only the newest {} were read. Older ones are in the histories of the apps; or narrow the list.",
            entries()
        )
    });
    older.into_iter().chain(not_read(&list.unreadable)).collect()
}

/// Returns the sentence about apps that cannot be read.
fn not_read(apps: &[String]) -> Option<String> {
    let named = apps.iter().take(NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    let of = match apps.len().checked_sub(NAMED_MAX) {
        _ if apps.is_empty() => return None,
        None | Some(0) => named,
        Some(others) => format!("{named} and {others} more"),
    };
    Some(format!("Some deploys of {of} are stored, and cannot be read: they are left out. The server's log says why."))
}

/// Returns the most entries that are read, in words.
fn entries() -> String {
    format!("{},{:03} deploys", READ_MAX / 1_000, READ_MAX % 1_000)
}

/// Returns a number with at most one digit after the point.
fn decimal(number: f64) -> String {
    let text = format!("{number:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_their_two_greatest_units() {
        for (seconds, words) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (61, "1 min 1 s"),
            (3_599, "59 min 59 s"),
            (3_600, "1 h"),
            (7_505, "2 h 5 min"),
            (86_400, "1 d"),
            (90_000, "1 d 1 h"),
            (864_061, "10 d"),
        ] {
            assert_eq!(lasting(Some(seconds)), words, "{seconds}");
        }
        assert_eq!(lasting(None), "-");
    }

    #[test]
    fn shares_and_frequencies_are_rounded() {
        assert_eq!([Some(0.0), Some(0.125), Some(1.0), None].map(share), ["0 %", "12.5 %", "100 %", "-"]);
        let of = |deployments, deployments_per_day| {
            frequency(&DeliveryMeasures { deployments, deployments_per_day, ..DeliveryMeasures::default() }, 30)
        };
        assert_eq!([of(42, 1.4), of(60, 2.0), of(2, 0.0667)], ["1.4 a day", "2 a day", "2 in 30 days"]);
    }
}
