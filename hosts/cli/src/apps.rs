//! Apps as text: the list, and one app with its policy.

use rollhook_api::{App, Degraded, Hold, Policy, Polling, RequirementOnApp, Stopped, WorkloadState, words};
use rollhook_core::{
    app::{HoldPolicy, OnFailure, Settings, Source},
    text::escaped,
    time::Timestamp,
};
use serde_json::Value;

use crate::{
    commands::lock::described,
    history::{mark, mark_with_reason, release_predicate, short_commit, short_image, tint, what},
    table::{self, Cell, Column, Fit, Style, Tint},
    when,
};

const COLUMNS: [Column; 4] = [
    Column("APP", 0, Fit::Cut),
    Column("#", 2, Fit::Drop(1)),
    Column("IMAGE", 0, Fit::Image),
    Column("WHEN", 0, Fit::Cut),
];

/// Returns the list as a table: the current image, its time, and unfinished deploys.
pub(crate) fn table(apps: &[App], now: Timestamp, style: Style) -> String {
    let rows: Vec<_> = apps.iter().map(|app| row(app, short_image, |time| when::ago(time, now))).collect();
    table::render(&COLUMNS, &rows, style)
}

/// Returns the list with all columns.
pub(crate) fn wide(apps: &[App], style: Style) -> String {
    let more = ["PROJECT", "ENVIRONMENT", "WORKLOAD", "HOLDS", "UID"].map(|heading| Column(heading, 0, Fit::Keep));
    let columns: Vec<Column> = COLUMNS.into_iter().chain(more).collect();
    let rows: Vec<_> = apps
        .iter()
        .map(|app| {
            let mut row = row(app, str::to_owned, when::absolute);
            row.extend([
                Cell::new(&app.project),
                Cell::new(&app.environment),
                Cell::optional((!app.workload.is_empty()).then(|| title(app, "/"))),
                Cell::new(app.holds.len().to_string()),
                Cell::new(&app.uid),
            ]);
            row
        })
        .collect();
    table::render(&columns, &rows, style.at_any_width())
}

fn row(app: &App, image: fn(&str) -> String, when: impl Fn(Timestamp) -> String) -> Vec<Cell> {
    let name = Cell::new(format!("{}/{}", app.namespace, app.app));
    let marks = marks(app);
    let marks = if marks.is_empty() { String::new() } else { format!("({})", marks.join("; ")) };
    let tint =
        app.ended_off_cluster().and_then(tint).or_else(|| app.beside_current().or(app.current.as_ref()).and_then(tint));
    let tint = if app.degraded.is_some() { Some(Tint::Bad) } else { tint };
    match &app.current {
        Some(current) => vec![
            name,
            Cell::new(current.revision.to_string()),
            Cell::optional(current.image.as_deref().map(image)),
            Cell::new(format!("{} {marks}", when(current.created_at)).trim_end()).tinted(tint),
        ],
        None => vec![name, Cell::new("-"), Cell::new("-"), Cell::new(format!("- {marks}").trim_end()).tinted(tint)],
    }
}

/// Returns notes on what is out of the ordinary.
fn marks(app: &App) -> Vec<String> {
    let mut marks = Vec::new();
    if app.is_restored() {
        marks.push("restored after a failure".to_owned());
    }
    if app.stopped.is_some() {
        marks.push("stopped".to_owned());
    }
    if let Some(deploy) = app.beside_current() {
        marks.push(format!("{} {}", deploy.revision, mark(deploy).unwrap_or_default()));
    }
    if let Some(deploy) = app.ended_off_cluster() {
        marks.push(format!("{} {}", deploy.revision, mark_with_reason(deploy).unwrap_or_default()));
    }
    if !app.locks.is_empty() {
        marks.push("locked".to_owned());
    }
    if let Some(drift) = &app.drift {
        marks.push(
            drift
                .image
                .as_deref()
                .map_or("changed by another".to_owned(), |image| format!("{} runs instead", short_image(image))),
        );
    }
    if let Some(degraded) = &app.degraded {
        marks.push(format!("degraded: {}", degraded.reason));
    }
    let shown = app.on_cluster.as_ref().map(|deploy| deploy.revision);
    let others = app.unfinished.iter().filter(|revision| Some(**revision) != shown).count();
    if others > 0 {
        marks.push(format!("{others} unfinished"));
    }
    marks
}

/// Returns a trouble in a line, with the time since which it is known.
pub(crate) fn trouble(degraded: &Degraded, now: Timestamp) -> String {
    format!("{}, since {}: {}", degraded.reason, when::ago(degraded.since, now), degraded.message)
}

/// Returns since when, by which revision and by whom an app is stopped.
pub(crate) fn stopped_since(stopped: &Stopped, now: Timestamp) -> String {
    format!("since revision {}, by {}, {}", stopped.since, stopped.by, when::ago(stopped.at, now))
}

/// Returns an app's details, a line each.
pub(crate) fn details(app: &App, now: Timestamp) -> String {
    let mut lines: Vec<(&str, String)> = vec![
        ("App", format!("{}/{}", app.namespace, app.app)),
        ("Project", app.project.clone()),
        ("Environment", app.environment.clone()),
        ("Workload", workload(app)),
    ];
    lines.extend(states(app));
    let made_with = ["Made with"].into_iter().chain(std::iter::repeat(""));
    lines.extend(made_with.zip(app.template_lines()));
    lines.extend(source(&app.source));
    let restored = if app.is_restored() { ", restored after a failure" } else { "" };
    lines.push(("Current", entry(app.current.as_ref(), now) + restored));
    lines.extend(app.current.as_ref().and_then(configuration).map(|id| ("Configuration", id)));
    let watch = app.current.iter().flat_map(words::watch);
    lines.extend(["Watch"].into_iter().chain(std::iter::repeat("")).zip(watch));
    let lower = "with a lower one, a deploy of the webhook changes nothing";
    lines.extend(app.highest_sequence.map(|highest| ("Highest sequence", format!("{highest} ({lower})"))));
    lines.extend(app.stopped.as_ref().map(|stopped| ("Stopped", stopped_since(stopped, now))));
    lines.extend(app.beside_current().map(|deploy| ("On cluster", entry(Some(deploy), now))));
    lines.extend(app.ended_off_cluster().map(|deploy| ("Newest", entry(Some(deploy), now))));
    lines.extend(app.drift.as_ref().map(|drift| ("Drift", drift.message.clone())));
    lines.extend(app.degraded.as_ref().map(|degraded| ("Degraded", trouble(degraded, now))));
    let sentences = app.references.iter().flat_map(|it| [it.changed_sentence(), it.unknown_sentence()]).flatten();
    lines.extend(["References"].into_iter().chain(std::iter::repeat("")).zip(sentences));
    if !app.unfinished.is_empty() {
        let unfinished: Vec<_> = app.unfinished.iter().map(ToString::to_string).collect();
        lines.push(("Unfinished", unfinished.join(", ")));
    }
    lines.extend(app.locks.iter().map(|lock| ("Locked", described(lock))));
    let required = |of: &RequirementOnApp| ("Required", format!("by the {}: {}", of.on, of.demands));
    lines.extend(app.requirements.iter().map(required));
    lines.extend(app.holds.iter().map(|hold| ("Held", held(hold))));
    lines.extend(app.polling.as_ref().map(|polling| ("Polling", polled(polling, now))));
    lines.extend(app.warning.clone().map(|warning| ("Warning", warning)));
    lines.extend(policy(&app.policy));
    lines.push(("Registered", when::absolute(app.created_at)));
    lines.push(("Uid", app.uid.clone()));
    listed(&lines)
}

/// Returns the policy, a line each.
pub(crate) fn policy_lines(shown: &Policy) -> String {
    listed(&policy(shown))
}

/// Returns the workload, and what its deploys wait for.
pub(crate) fn workload_lines(app: &App) -> String {
    listed(&[("Workload", workload(app))])
}

/// Returns the source, a line each.
pub(crate) fn source_lines(shown: &Source) -> String {
    listed(&source(shown))
}

/// Returns the names and values of a git app's source.
fn source(source: &Source) -> Vec<(&'static str, String)> {
    let Source::Git(git) = source else { return Vec::new() };
    let mut lines = vec![
        ("Source", git.url.to_string()),
        ("Branch", git.branch.to_string()),
        ("Dockerfile", format!("{} in {}", git.dockerfile, git.context)),
        ("Image repository", git.image_repository.to_string()),
    ];
    lines.extend(git.credentials.as_ref().map(|name| ("Credentials", name.to_string())));
    lines
}

fn listed(lines: &[(&str, String)]) -> String {
    lines.iter().map(|(name, value)| format!("{name:17} {}\n", escaped(value))).collect()
}

/// Returns kind and name of each workload, or all settings if the server's rollout driver has others.
pub(crate) fn title(app: &App, between: &str) -> String {
    let also = app.workload.get("also").and_then(Value::as_array);
    let also = also.into_iter().flatten().filter_map(Value::as_object).map(|further| first(further, between));
    [first(&app.workload, between)].into_iter().chain(also).collect::<Vec<_>>().join(", ")
}

/// Returns kind and name of the first workload.
pub(crate) fn first(workload: &Settings, between: &str) -> String {
    let text = |name: &str| workload.get(name).and_then(Value::as_str);
    match (text("kind"), text("name")) {
        (Some(kind), Some(name)) => format!("{kind}{between}{name}"),
        (_, _) => Value::Object(workload.clone()).to_string(),
    }
}

fn workload(app: &App) -> String {
    let containers = app.workload.get("containers").and_then(Value::as_array);
    let containers: Vec<&str> = containers.into_iter().flatten().filter_map(Value::as_str).collect();
    let plural = if containers.len() == 1 { "" } else { "s" };
    let listed =
        if containers.is_empty() { String::new() } else { format!(", container{plural} {}", containers.join(", ")) };
    let replaced = match app.workload.get("replace").and_then(Value::as_str) {
        Some("stop-first") => ", the old container stops before the new one starts",
        Some(_) => ", the new container starts beside the old one",
        None => "",
    };
    let readiness = app.workload.get("readiness_path").and_then(Value::as_str);
    let port = app.workload.get("readiness_port").map(|port| format!(" on port {port}")).unwrap_or_default();
    let asked = readiness.map(|path| format!(", ready once {path} answers{port}")).unwrap_or_default();
    let also = app.workload.get("also").and_then(Value::as_array);
    let also = also.into_iter().flatten().filter_map(Value::as_object).map(|further| {
        let with = if further.get("together") == Some(&Value::Bool(true)) { ", together with" } else { ", then" };
        let words = further.get("command").and_then(Value::as_array).into_iter().flatten();
        let words: Vec<String> = words.filter_map(Value::as_str).map(str::to_owned).collect();
        let command = if words.is_empty() { String::new() } else { format!(" ({})", words::command_line(&words)) };
        format!("{with} {}{command}", first(further, "/"))
    });
    first(&app.workload, "/") + &listed + replaced + &asked + &also.collect::<String>()
}

/// Returns how each of several workloads is.
fn states(app: &App) -> Vec<(&'static str, String)> {
    let state = |state: &WorkloadState| {
        let at = state.revision.map(|revision| format!(" at {revision}")).unwrap_or_default();
        ("", format!("{}{at}: {}", state.name, state.message))
    };
    app.workloads.iter().map(state).collect()
}

fn entry(deploy: Option<&rollhook_api::Deploy>, now: Timestamp) -> String {
    let Some(deploy) = deploy else { return "none".to_owned() };
    let mark = match mark_with_reason(deploy) {
        Some(mark) if !deploy.current => format!(" ({mark})"),
        Some(_) | None => String::new(),
    };
    let release = release_predicate(deploy).map(|what| format!("; its release command {what}"));
    let release = release.unwrap_or_default();
    format!("revision {}, {}, {}{mark}{release}", deploy.revision, what(deploy), when::ago(deploy.created_at, now))
}

/// Returns the configuration of what runs, if it was set here.
fn configuration(deploy: &rollhook_api::Deploy) -> Option<String> {
    let by = if deploy.configures { format!(", by revision {}", deploy.revision) } else { String::new() };
    deploy.configuration.as_ref().map(|id| format!("{id}{by}; its variables: rollhook app config list {}", deploy.app))
}

fn held(hold: &Hold) -> String {
    let image = hold.image.as_ref().map(|image| short_image(&image.to_string()));
    let what = image.or_else(|| hold.commit.as_ref().map(ToString::to_string)).unwrap_or_else(|| "nothing".to_owned());
    format!("{what}, since rollback {}", hold.by)
}

/// Returns the last poll of the app's source.
fn polled(polling: &Polling, now: Timestamp) -> String {
    let ago = |time| when::ago(time, now);
    match (&polling.error, &polling.head) {
        (Some(why), _) => {
            format!("cannot be read since {} (last tried {}): {why}", ago(polling.since), ago(polling.at))
        }
        (None, Some(head)) => {
            let held = polling.held_by.map(|by| format!(", held since rollback {by}")).unwrap_or_default();
            // The head is a commit, or an image with its digest.
            let head = if head.contains('@') { short_image(head) } else { short_commit(head) };
            format!("last read {}: {head}{held}", ago(polling.at))
        }
        (None, None) => format!("last read {}", ago(polling.at)),
    }
}

/// Returns the policy's values by the names of their flags.
fn policy(policy: &Policy) -> Vec<(&'static str, String)> {
    let on_failure = match policy.on_failure {
        OnFailure::Restore => "restore",
        OnFailure::Leave => "leave",
    };
    let hold = match policy.hold {
        HoldPolicy::Automatic => "automatic",
        HoldPolicy::All => "all",
    };
    let release_command = match policy.release_command.as_slice() {
        [] => "none".to_owned(),
        command => words::command_line(command),
    };
    let repositories = if policy.repositories.is_empty() { "any".to_owned() } else { policy.repositories.join(", ") };
    vec![
        ("on-failure", on_failure.to_owned()),
        ("hold", hold.to_owned()),
        ("settle", policy.settle.clone()),
        ("patience", policy.patience.clone()),
        ("ready-within", policy.ready_within.clone()),
        ("rollout-deadline", policy.rollout_deadline.clone()),
        ("build-deadline", policy.build_deadline.clone()),
        ("release-command", release_command),
        ("release-deadline", policy.release_deadline.clone()),
        (
            "release-group",
            if policy.release_group.is_empty() { "none".to_owned() } else { policy.release_group.clone() },
        ),
        ("verify-for", policy.verify_for.clone()),
        ("watch", policy.watch_for.clone()),
        ("release-on-config", if policy.release_on_config { "on" } else { "off" }.to_owned()),
        ("url", if policy.url.is_empty() { "none".to_owned() } else { policy.url.clone() }),
        ("resolve", policy.resolve.as_str().to_owned()),
        ("commit", policy.commit.as_str().to_owned()),
        ("repository", repositories),
        ("keep", policy.keep.to_string()),
        ("follow", policy.follow.clone()),
        ("follow-settle", policy.follow_settle.clone()),
        ("require-signature", policy.demands.signers().unwrap_or_else(none)),
        ("require-attestation", policy.demands.attestation().unwrap_or_else(none)),
        ("poll", policy.poll.clone()),
    ]
}

fn none() -> String {
    "none".to_owned()
}

#[cfg(test)]
pub(crate) mod tests;
