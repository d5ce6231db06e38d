//! Reports as CSV (RFC 4180), for spreadsheets.
//!
//! Names of people, commits and images come from outside. A spreadsheet would run a cell that begins with `=`, `+`, `-` or
//! `@`; such a one has an apostrophe before it.

use rollhook_core::text::escaped;

use crate::{ActivityDeploy, DeliveryMeasures, DeliveryReport, time};

/// The media type.
pub const MEDIA_TYPE: &str = "text/csv; charset=utf-8; header=present";

const ACTIVITY: [&str; 14] = [
    "accepted_at",
    "ended_at",
    "project",
    "environment",
    "app",
    "revision",
    "status",
    "reason",
    "trigger",
    "actor",
    "image",
    "commit",
    "committed_at",
    "revoked_at",
];

const REPORT: [&str; 16] = [
    "project",
    "environment",
    "since",
    "until",
    "deployments",
    "deployments_per_day",
    "failed",
    "change_fail_rate",
    "recovery_time_seconds",
    "unrecovered",
    "rollbacks",
    "repairs",
    "rework_rate",
    "lead_time_seconds",
    "lead_times",
    "kept_since",
];

/// Returns deploys, a line each below the names of the columns.
pub fn activity<'a>(deploys: impl IntoIterator<Item = &'a ActivityDeploy>) -> String {
    let row = |shown: &ActivityDeploy| {
        let ActivityDeploy { project, environment, deploy } = shown;
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let ended_at = deploy.status.is_terminal().then(|| time::format(deploy.updated_at));
        line([
            time::format(deploy.created_at),
            text(&ended_at),
            project.clone(),
            environment.clone(),
            deploy.app.clone(),
            deploy.revision.to_string(),
            deploy.status.to_string(),
            text(&deploy.reason),
            deploy.trigger.to_string(),
            deploy.actor.clone(),
            text(&deploy.image),
            text(&deploy.commit),
            deploy.committed_at.map(time::format).unwrap_or_default(),
            deploy.revoked.as_ref().map(|revoked| time::format(revoked.fail.at)).unwrap_or_default(),
        ])
    };
    std::iter::once(line(ACTIVITY.map(str::to_owned))).chain(deploys.into_iter().map(row)).collect()
}

/// Returns the measures of environments, a line each below the names of the columns.
pub fn report(report: &DeliveryReport) -> String {
    fn number(number: Option<impl ToString>) -> String {
        number.map(|number| number.to_string()).unwrap_or_default()
    }
    let row = |measures: &DeliveryMeasures| {
        line([
            measures.project.clone(),
            measures.environment.clone(),
            time::format(report.since),
            time::format(report.until),
            measures.deployments.to_string(),
            measures.deployments_per_day.to_string(),
            measures.failed.to_string(),
            number(measures.change_fail_rate),
            number(measures.recovery_time_seconds),
            measures.unrecovered.to_string(),
            measures.rollbacks.to_string(),
            measures.repairs.to_string(),
            number(measures.rework_rate),
            number(measures.lead_time_seconds),
            measures.lead_times.to_string(),
            number(measures.kept_since.map(time::format)),
        ])
    };
    std::iter::once(line(REPORT.map(str::to_owned))).chain(report.environments.iter().map(row)).collect()
}

fn line<const N: usize>(cells: [String; N]) -> String {
    format!("{}\r\n", cells.map(|text| cell(&text)).join(","))
}

/// Returns a text as a cell, which no spreadsheet takes for a formula.
fn cell(text: &str) -> String {
    let text = escaped(text);
    // In some languages, spreadsheets take the wide forms for the same.
    let is_formula = text.trim_start().starts_with(['=', '+', '-', '@', '＝', '＋', '－', '＠']);
    let text = if is_formula { format!("'{text}") } else { text };
    if text.contains(['"', ',', ';']) || text.trim() != text {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cell_is_a_formula_and_none_ends_its_line() {
        for (text, expected) in [
            ("", ""),
            ("ada (admin)", "ada (admin)"),
            ("=1+1", "'=1+1"),
            ("+1", "'+1"),
            ("-1", "'-1"),
            ("@sum(a1)", "'@sum(a1)"),
            (" =1", "' =1"),
            ("＝1", "'＝1"),
            ("a ", "\"a \""),
            ("=a,\"b\"", "\"'=a,\"\"b\"\"\""),
            ("a;b", "\"a;b\""),
            ("a\r\n=b", "a\\u{d}\\u{a}=b"),
            ("\t=b", "\\u{9}=b"),
            ("a-b", "a-b"),
        ] {
            assert_eq!(cell(text), expected, "{text:?}");
        }
        assert_eq!(line(["a".to_owned(), "=b".to_owned()]), "a,'=b\r\n");
    }
}
