//! The history and its entries as text.

pub(crate) use rollhook_api::words::{mark, mark_with_reason, predicate, release_predicate, short_commit, short_image};
use rollhook_api::{App, Deploy, TakenFrom, terminal::plain, time::absolute, words};
use rollhook_core::{
    deploy::{ReleaseMark, Status, Trigger},
    text::escaped,
    time::Timestamp,
};

use crate::{
    table::{self, Cell, Column, Fit, Style, Tint},
    when,
};

/// The columns, as wide as the longest revision, commit and trigger usually are, so that two histories line up.
const COLUMNS: [Column; 5] = [
    Column("#", 2, Fit::Keep),
    Column("IMAGE", 0, Fit::Image),
    Column("COMMIT", 8, Fit::Drop(2)),
    Column("TRIGGER", 9, Fit::Drop(1)),
    Column("WHEN", 0, Fit::Cut),
];
const MORE: [&str; 5] = ["STATUS", "REASON", "ACTOR", "DIGEST", "FROM"];

/// The history as a table.
pub(crate) fn table(deploys: &[Deploy], now: Timestamp, style: Style) -> String {
    let row = |deploy: &Deploy| row(deploy, &when::ago(deploy.created_at, now), short_image, short_commit);
    let rows: Vec<_> = deploys.iter().map(row).collect();
    table::render(&COLUMNS, &rows, style)
}

/// The history with all columns, times and commits in full, and the states of several workloads.
pub(crate) fn wide(deploys: &[Deploy], style: Style) -> String {
    // Only apps with a release command have the column.
    let releases = deploys.iter().any(|deploy| deploy.release.is_some());
    // And only those whose variables are set here.
    let configurations = deploys.iter().any(|deploy| deploy.configuration.is_some());
    let further = releases.then_some("RELEASE").into_iter().chain(configurations.then_some("CONFIG"));
    let more = MORE.into_iter().chain(further).map(|heading| Column(heading, 0, Fit::Keep));
    let columns: Vec<Column> = COLUMNS.into_iter().chain(more).collect();
    let rows: Vec<_> = deploys
        .iter()
        .map(|deploy| {
            let mut row = row(deploy, &when::absolute(deploy.created_at), str::to_owned, str::to_owned);
            row.extend([
                Cell::new(deploy.status.as_str()),
                Cell::optional(deploy.reason.as_deref()),
                Cell::new(&deploy.actor),
                Cell::optional(deploy.digest.as_deref()),
                Cell::optional(deploy.from.as_ref().map(|from| origin(deploy, from))),
            ]);
            let configuration = deploy.configuration.as_deref().map(|id| configuration(deploy, id));
            row.extend(releases.then(|| Cell::optional(deploy.release.map(ReleaseMark::as_str))));
            row.extend(configurations.then(|| Cell::optional(configuration)));
            row
        })
        .collect();
    let table = table::render(&columns, &rows, style.at_any_width());
    // A row is one line; those of an app with several workloads are followed by a line for each, where it is known.
    let mut lines = table.lines();
    let mut text: String = lines.next().map(|heading| format!("{heading}\n")).unwrap_or_default();
    for (row, deploy) in lines.zip(deploys) {
        text.push_str(&format!("{row}\n"));
        let mut lines = words::workloads(deploy);
        // What was restored is a line of theirs.
        lines.extend(words::outcome(deploy, None).filter(|_| !lines.is_empty()));
        lines.iter().for_each(|line| text.push_str(&format!("    {}\n", escaped(line))));
    }
    text
}

fn row(deploy: &Deploy, when: &str, image: fn(&str) -> String, commit: fn(&str) -> String) -> Vec<Cell> {
    let when = match mark(deploy) {
        Some(mark) => format!("{when} ({mark})"),
        None => when.to_owned(),
    };
    vec![
        Cell::new(deploy.revision.to_string()),
        Cell::optional(deploy.image.as_deref().map(image)),
        Cell::optional(deploy.shown_commit().map(commit)),
        Cell::new(words::cause(deploy)),
        Cell::new(when).tinted(tint(deploy)),
    ]
}

/// Returns the colour of an entry's mark.
pub(crate) fn tint(deploy: &Deploy) -> Option<Tint> {
    match deploy.status {
        Status::Succeeded if deploy.revoked.is_some() => Some(Tint::Bad),
        Status::Succeeded => deploy.current.then_some(Tint::Good),
        Status::Queued | Status::Building | Status::Releasing | Status::RollingOut | Status::Verifying => {
            Some(Tint::Busy)
        }
        Status::Failed => Some(Tint::Bad),
        Status::Superseded | Status::Cancelled => deploy.on_cluster.then_some(Tint::Bad),
    }
}

/// Returns the id of an entry's configuration, and whether the entry brought it.
pub(crate) fn configuration(deploy: &Deploy, id: &str) -> String {
    format!("{id}{}", if deploy.configures { " (changed)" } else { "" })
}

/// Returns the trigger of an entry, and where its version was taken from.
pub(crate) fn cause(deploy: &Deploy) -> String {
    let from = deploy.from.as_ref().map(|from| match deploy.trigger {
        Trigger::Rollback => format!(" to {}", origin(deploy, from)),
        Trigger::Promotion => format!(" of {}", origin(deploy, from)),
        Trigger::Webhook | Trigger::Manual | Trigger::Git | Trigger::Registry | Trigger::Config => {
            format!(", {}", origin(deploy, from))
        }
    });
    format!("{}{}", deploy.trigger, from.unwrap_or_default())
}

fn origin(deploy: &Deploy, from: &TakenFrom) -> String {
    match (&from.namespace, &from.app) {
        (Some(namespace), Some(app)) => format!("{namespace}/{app} {}", from.revision),
        (Some(_) | None, _) if deploy.trigger == Trigger::Rollback && deploy.configures => {
            format!("{} with its configuration", from.revision)
        }
        (Some(_) | None, _) if deploy.trigger == Trigger::Rollback => from.revision.to_string(),
        (Some(_) | None, _) if deploy.trigger == Trigger::Config => format!("image of {}", from.revision),
        (Some(_) | None, _) if deploy.is_redeploy() && !deploy.scale.is_keep() => {
            format!("{} of {}", deploy.scale, from.revision)
        }
        (Some(_) | None, _) if deploy.is_redeploy() => format!("same as {}", from.revision),
        (Some(_) | None, _) => format!("built as {}", from.revision),
    }
}

/// Returns the image or commit of an entry, shortened.
pub(crate) fn what(deploy: &Deploy) -> String {
    match (&deploy.image, &deploy.commit) {
        (Some(image), _) => escaped(&short_image(image)),
        (None, Some(commit)) => format!("commit {}", escaped(&short_commit(commit))),
        (None, None) => "nothing".to_owned(),
    }
}

/// Returns an entry's status in one line, with its reason, or with what its rollout waits for.
pub(crate) fn summary(deploy: &Deploy) -> String {
    let reason = deploy.reason.as_deref().map(|reason| format!(" ({})", escaped(reason))).unwrap_or_default();
    let waits_for = deploy.progress.as_ref().and_then(|progress| progress.message.as_deref());
    let message =
        deploy.message.as_deref().or(waits_for).map(|message| format!(": {}", escaped(message))).unwrap_or_default();
    format!("Revision {} {}{reason}{message}", deploy.revision, predicate(deploy.status))
}

/// Returns what the app's checks say of an entry, a line each.
pub(crate) fn checks(deploy: &Deploy) -> Vec<String> {
    let mut lines = Vec::new();
    if !deploy.checks.is_empty() {
        lines.push("  checks:".to_owned());
        lines.extend(words::checks(deploy).iter().map(|line| format!("    {}", escaped(line))));
    }
    // The remark of a success may say it already.
    let is_said = |gap: &&str| deploy.message.as_deref().is_some_and(|message| message.contains(*gap));
    let gap = deploy.not_verified.as_deref().filter(|gap| !is_said(gap));
    lines.extend(gap.map(|gap| format!("  not verified: {}", escaped(gap))));
    lines.extend(words::decision(deploy).map(|line| format!("  {}", escaped(&line))));
    lines
}

/// Returns why the registry did not name the digest of an entry's image before its rollout.
fn not_resolved(deploy: &Deploy) -> Option<String> {
    deploy.not_resolved.as_deref().map(|why| format!("  not resolved: {}", escaped(why)))
}

/// Returns who signed the image of an entry, a line each.
fn signed_by(deploy: &Deploy) -> impl Iterator<Item = String> + '_ {
    deploy.signed_by.iter().map(|line| format!("  signed: {}", escaped(line)))
}

/// Returns the commit of an entry, with what the image's own label says of it.
pub(crate) fn commit(deploy: &Deploy) -> Option<String> {
    let remark = words::commit_remark(deploy).map(|remark| format!(" ({remark})")).unwrap_or_default();
    deploy.shown_commit().map(|commit| format!("{commit}{remark}"))
}

/// Returns what is said of the watch over a version, a line each, with what the checks have measured within it.
fn watch(deploy: &Deploy) -> Vec<String> {
    let mut lines: Vec<String> = words::watch(deploy).iter().map(|line| format!("  {}", escaped(line))).collect();
    lines.extend(words::watch_checks(deploy).iter().map(|line| format!("    {}", escaped(line))));
    lines
}

/// Returns what the step of an unfinished deploy has come to, a line each.
fn under_way(deploy: &Deploy) -> Vec<String> {
    let Some(progress) = &deploy.progress else { return Vec::new() };
    let by = progress.deadline.map(|by| format!("; fails at {} unless it is over", absolute(by)));
    let mut lines = vec![format!("  since {}{}", absolute(progress.since), by.unwrap_or_default())];
    if !progress.workloads.is_empty() {
        lines.push("  workloads:".to_owned());
        let line = |workload| format!("    {}", escaped(&words::workload_state(workload)));
        lines.extend(progress.workloads.iter().map(line));
    }
    lines
}

/// Returns the reason and the evidence of an entry that did not succeed, in lines; with its app, also what was left as it is.
pub(crate) fn ending(deploy: &Deploy, app: Option<&App>) -> Vec<String> {
    let mut lines = vec![summary(deploy)];
    lines.extend(words::outcome(deploy, app).map(|outcome| format!("  {}", escaped(&outcome))));
    lines.extend(under_way(deploy));
    lines.extend(not_resolved(deploy));
    lines.extend(signed_by(deploy));
    lines.extend(checks(deploy));
    lines.extend(watch(deploy));
    let Some(evidence) = &deploy.evidence else { return lines };
    let log = match &deploy.image {
        Some(_) if deploy.failed_at_release() => "log of the release command",
        Some(_) => "log",
        None => "log of the build",
    };
    let named = [("pod", &evidence.pod), ("container", &evidence.container), ("state", &evidence.state)];
    lines.extend(
        named.iter().filter_map(|(name, value)| value.as_ref().map(|value| format!("  {name}: {}", escaped(value)))),
    );
    for (name, given) in [("events", &evidence.events), (log, &evidence.log)] {
        if !given.is_empty() {
            lines.push(format!("  {name}:"));
            lines.extend(given.iter().map(|line| format!("    {}", plain(line))));
        }
    }
    if !evidence.workloads.is_empty() {
        lines.push("  workloads:".to_owned());
        let line = |workload| format!("    {}", escaped(&words::workload_evidence(workload)));
        lines.extend(evidence.workloads.iter().map(line));
    }
    lines
}

#[cfg(test)]
pub(crate) mod tests;
