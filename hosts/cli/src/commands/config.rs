//! The configuration of an app: setting, removing, listing and comparing variables.

mod given;

use rollhook_api::{
    ConfigAnswer, ConfigPatch, Configuration, Deploy, Variable,
    configuration::{PostedVariables, SettingDiff, VariableDiff, differences, setting_differences, setting_text},
    operations::{
        ChangeConfiguration, ConfigQuery, DeploysQuery, DiscardConfiguration, ListDeploys, ShowConfiguration,
    },
    promotion::missing_variables,
};
use rollhook_core::{
    app::{AppId, Settings},
    deploy::Revision,
    text::escaped,
};

use serde_json::Value;

use super::{Session, deploys::conclude};
use crate::{
    args::{ConfigCommand, ConfigDiff, ConfigDiscard, ConfigList, ConfigSet, ConfigUnset, Target, When},
    exit::CliError,
    output::message,
    table::{self, Cell, Column, Fit, Style},
};

pub(crate) async fn config(session: &Session<'_>, command: &ConfigCommand) -> Result<(), CliError> {
    match command {
        ConfigCommand::Set(args) => set(session, args).await,
        ConfigCommand::Unset(args) => unset(session, args).await,
        ConfigCommand::Discard(args) => discard(session, args).await,
        ConfigCommand::List(args) => list(session, args).await,
        ConfigCommand::Diff(args) => diff(session, args).await,
    }
}

async fn set(session: &Session<'_>, args: &ConfigSet) -> Result<(), CliError> {
    let variables = given::variables(&args.variables, args.file.as_deref(), args.plain)?;
    let names: Vec<String> = variables.keys().map(ToString::to_string).collect();
    let posted = variables.into_iter().map(|(name, variable)| (name.to_string(), variable));
    let patch = ConfigPatch { set: PostedVariables::new(posted), ..ConfigPatch::default() };
    change(session, &args.target, &args.when, patch, &format!("Setting {}", names.join(", "))).await
}

async fn unset(session: &Session<'_>, args: &ConfigUnset) -> Result<(), CliError> {
    let names = given::names(&args.names)?;
    let doing = format!("Removing {}", names.join(", "));
    let patch = ConfigPatch { unset: names, revoked: args.revoked, ..ConfigPatch::default() };
    change(session, &args.target, &args.when, patch, &doing).await
}

async fn discard(session: &Session<'_>, args: &ConfigDiscard) -> Result<(), CliError> {
    let id = &session.find(&args.target).await?;
    let kept = session.api.call(DiscardConfiguration, id, ()).await?;
    session.output.line(&format!("{id}: {}", escaped(&kept.message)))?;
    session.document(&kept)
}

/// Adds the commands of other containers that the app has already: the call replaces all.
pub(super) async fn keep_commands(
    session: &Session<'_>,
    target: &Target,
    settings: &mut Settings,
) -> Result<(), CliError> {
    let id = &session.find(target).await?;
    let shown = session.api.call(ShowConfiguration, id, ConfigQuery::default()).await?;
    let next = shown.staged_settings.unwrap_or(shown.settings);
    let Some(Value::Object(commands)) = settings.get_mut("commands") else { return Ok(()) };
    for (name, words) in next.get("commands").and_then(Value::as_object).into_iter().flatten() {
        commands.entry(name.clone()).or_insert_with(|| words.clone());
    }
    Ok(())
}

/// Changes what an app's containers are made with.
pub(super) async fn make_with(
    session: &Session<'_>,
    target: &Target,
    when: &When,
    settings: Settings,
) -> Result<(), CliError> {
    let names: Vec<&str> = settings.keys().map(String::as_str).collect();
    let doing = format!("Setting {}", names.join(", "));
    change(session, target, when, ConfigPatch { settings, ..ConfigPatch::default() }, &doing).await
}

async fn change(
    session: &Session<'_>,
    target: &Target,
    when: &When,
    patch: ConfigPatch,
    doing: &str,
) -> Result<(), CliError> {
    let id = &session.find(target).await?;
    let if_current = session.app(target).await?.current.map(|current| current.revision);
    if !when.staged {
        session.drive()?;
    }
    let break_glass = when.break_glass.as_ref().map(ToString::to_string);
    let patch = ConfigPatch { staged: when.staged, if_current, break_glass, ..patch };
    match session.api.call(ChangeConfiguration, id, patch).await? {
        ConfigAnswer::Deploy(answer) => {
            session.output.line(&format!("{doing} of {id}: revision {}", answer.revision))?;
            conclude(session, id, *answer, when.wait).await
        }
        ConfigAnswer::Kept(kept) => {
            session.output.line(&format!("{doing} of {id}. {}", escaped(&kept.message)))?;
            session.document(&kept)
        }
    }
}

async fn list(session: &Session<'_>, args: &ConfigList) -> Result<(), CliError> {
    let id = &session.find(&args.target).await?;
    let shown = session.api.call(ShowConfiguration, id, ConfigQuery { revision: args.revision }).await?;
    let style = session.output.style;
    session.output.list(&shown, || listed(&shown, style, false), || listed(&shown, style.at_any_width(), true))
}

fn listed(shown: &Configuration, style: Style, is_wide: bool) -> String {
    let columns = [
        Column("NAME", 0, Fit::Keep),
        Column("VALUE", 0, Fit::Cut),
        Column("LENGTH", 0, Fit::Keep),
        Column("FINGERPRINT", 0, Fit::Keep),
    ];
    let columns = if is_wide { &columns[..] } else { &columns[..2] };
    let row = |variable: &Variable| {
        let secret = || Cell::new("(secret)");
        let mut row = vec![Cell::new(&variable.name), variable.value.as_deref().map_or_else(secret, Cell::new)];
        if is_wide {
            row.extend([Cell::new(variable.length.to_string()), Cell::new(&variable.fingerprint)]);
        }
        row
    };
    let mut text = match (shown.variables.as_slice(), shown.revision) {
        ([], Some(_)) if !shown.settings.is_empty() => String::new(),
        ([], Some(revision)) => format!("Revision {revision} runs with no variables of rollhook's.\n"),
        ([], None) => "Nothing runs yet.\n".to_owned(),
        (variables, _) => table::render(columns, &variables.iter().map(row).collect::<Vec<_>>(), style),
    };
    if !shown.settings.is_empty() {
        let columns = [Column("MADE WITH", 0, Fit::Keep), Column("VALUE", 0, Fit::Cut)];
        let row = |(name, value): (&String, &Value)| vec![Cell::new(name), Cell::new(setting_text(value))];
        text.push_str(&table::render(&columns, &shown.settings.iter().map(row).collect::<Vec<_>>(), style));
    }
    if let Some(staged) = &shown.staged {
        let waiting = differences(&shown.variables, staged);
        let staged_settings = shown.staged_settings.clone().unwrap_or_default();
        let made_with = setting_differences(&shown.settings, &staged_settings);
        let waiting = waiting.iter().map(VariableDiff::signed).chain(made_with.iter().map(SettingDiff::signed));
        let waiting: Vec<String> = waiting.collect();
        text.push_str(&format!("Waiting for the next deploy: {}\n", escaped(&waiting.join(", "))));
    }
    text
}

async fn diff(session: &Session<'_>, args: &ConfigDiff) -> Result<(), CliError> {
    let id = &session.find(&args.target).await?;
    let Differences { variables, settings } = between(session, id, args.from, args.to).await?;
    let document =
        serde_json::json!({ "from": args.from, "to": args.to, "variables": variables, "settings": settings });
    session.output.data(&document, || {
        if variables.is_empty() && settings.is_empty() {
            return format!("Revisions {} and {} have the same configuration.\n", args.from, args.to);
        }
        compared(&variables, &settings, session.output.style)
    })
}

fn compared(diffs: &[VariableDiff], settings: &[SettingDiff], style: Style) -> String {
    let cell = |variable: &Option<Variable>| {
        Cell::optional(variable.as_ref().map(|variable| match &variable.value {
            Some(value) => value.clone(),
            None => format!("(secret {}, {} bytes)", variable.fingerprint, variable.length),
        }))
    };
    let row = |diff: &VariableDiff| vec![Cell::new(diff.signed()), cell(&diff.from), cell(&diff.to)];
    let columns = [Column("NAME", 0, Fit::Keep), Column("FROM", 0, Fit::Cut), Column("TO", 0, Fit::Cut)];
    let made_with = |value: &Option<Value>| Cell::optional(value.as_ref().map(setting_text));
    let settings =
        settings.iter().map(|diff| vec![Cell::new(diff.signed()), made_with(&diff.from), made_with(&diff.to)]);
    table::render(&columns, &diffs.iter().map(row).chain(settings).collect::<Vec<_>>(), style)
}

/// The differences between the configurations of two revisions.
struct Differences {
    variables: Vec<VariableDiff>,
    settings: Vec<SettingDiff>,
}

impl Differences {
    fn signed(&self) -> String {
        let settings = self.settings.iter().map(SettingDiff::signed);
        self.variables.iter().map(VariableDiff::signed).chain(settings).collect::<Vec<_>>().join(", ")
    }
}

async fn between(session: &Session<'_>, id: &AppId, from: Revision, to: Revision) -> Result<Differences, CliError> {
    let of = |revision| session.api.call(ShowConfiguration, id, ConfigQuery { revision: Some(revision) });
    let (from, to) = (of(from).await?, of(to).await?);
    let variables = differences(&from.variables, &to.variables);
    Ok(Differences { variables, settings: setting_differences(&from.settings, &to.settings) })
}

/// Returns in which variables an entry differs from the one before it; `None` if in none, or if that cannot be read.
pub(super) async fn changed(session: &Session<'_>, id: &AppId, entry: &Deploy) -> Option<String> {
    entry.configuration.as_ref()?;
    let page = session.api.call(ListDeploys, id, DeploysQuery::page(Some(entry.revision), 1)).await.ok()?;
    let before = page.deploys.first().filter(|before| before.configuration != entry.configuration)?;
    let names = between(session, id, before.revision, entry.revision).await.ok()?.signed();
    Some(format!("against {}: {names}", before.revision))
}

/// Prints in which variables the version that a rollback returns to differs from the current one, and which of them it takes.
pub(super) async fn print_way_back(
    session: &Session<'_>,
    id: &AppId,
    (current, target): (Option<&Deploy>, &Deploy),
    with_config: bool,
) {
    let Some(current) = current.filter(|current| current.configuration != target.configuration) else { return };
    let way = if with_config {
        "the configuration comes back as well"
    } else {
        "the image alone comes back, and the configuration stays; --with-config brings both back"
    };
    // What cannot be read is left out: the rollback does not wait for it.
    let names = match between(session, id, current.revision, target.revision).await {
        Ok(diffs) => diffs.signed(),
        Err(failure) => failure.lines().into_iter().next().unwrap_or_default(),
    };
    let (from, to) = (current.revision, target.revision);
    message(&format!("note: from revision {from} to {to} the configuration differs ({}): {way}", escaped(&names)));
}

/// Returns the names of variables that the app which is promoted from has, and the target lacks.
pub(super) async fn missing(session: &Session<'_>, from: &AppId, to: &AppId) -> Vec<String> {
    // Who may not read a configuration is told nothing of it, and not asked.
    let of = |id| session.api.call(ShowConfiguration, id, ConfigQuery::default());
    let Ok(source) = of(from).await else { return Vec::new() };
    if source.variables.is_empty() {
        return Vec::new();
    }
    of(to).await.map(|target| missing_variables(&source, &target)).unwrap_or_default()
}
