//! Checks what the workloads of an app are to be made with: the first one with all settings of a configuration, and each with the
//! command that is for it.

use rollhook_core::{
    Result,
    app::{Settings, Target},
    ports::{CheckedSettings, InvalidTarget, RolloutDriver, SettingsRequest},
};
use serde_json::Value;

use crate::parts::{COMMANDS, Part, Parts};

/// The setting's name in refusals.
const FIELD: &str = "settings.commands";
/// The most characters of a name that a refusal repeats.
const NAME_SHOWN: usize = 64;

/// Returns the driver's answer about the settings of a configuration.
pub(crate) async fn check_settings(
    inner: &dyn RolloutDriver,
    parts: &Parts,
    request: &SettingsRequest,
) -> Result<CheckedSettings> {
    let commands = request.settings.get(COMMANDS);
    // Of a form that the driver below refuses, if it is no object.
    let by_name = commands.and_then(Value::as_object);
    let of = |part: &Part, settings: Settings| SettingsRequest {
        target: Target { settings: part.settings.clone(), ..request.target.clone() },
        app: request.app.clone(),
        settings,
    };
    let mut first = parts.get(0).made_with(&request.settings);
    first.extend(commands.filter(|_| by_name.is_none()).map(|other| (COMMANDS.to_owned(), other.clone())));
    let mut checked = match inner.check_settings(&of(parts.get(0), first)).await? {
        CheckedSettings::Valid(checked) => checked,
        refused @ (CheckedSettings::Invalid(_) | CheckedSettings::Unsupported(_)) => return Ok(refused),
    };
    for name in by_name.into_iter().flat_map(|commands| commands.keys()) {
        let part = match named(parts, name) {
            Ok(part) => part,
            Err(invalid) => return Ok(CheckedSettings::Invalid(invalid)),
        };
        if part.is_first {
            continue;
        }
        match inner.check_settings(&of(part, part.made_with(&request.settings))).await? {
            CheckedSettings::Valid(_) => {}
            refused @ (CheckedSettings::Invalid(_) | CheckedSettings::Unsupported(_)) => return Ok(refused),
        }
    }
    checked.extend(commands.map(|commands| (COMMANDS.to_owned(), commands.clone())));
    Ok(CheckedSettings::Valid(checked))
}

/// Returns the workload that a command is for.
///
/// # Errors
/// [`InvalidTarget::Setting`] if there is none of this name, or if it has a command of its own.
fn named<'a>(parts: &'a Parts, name: &str) -> Result<&'a Part, InvalidTarget> {
    let invalid = |rule: String| InvalidTarget::setting(FIELD, rule);
    let Some(part) = parts.iter().find(|part| part.own_name() == Some(name)) else {
        let known: Vec<&str> = parts.iter().filter_map(Part::own_name).collect();
        let name: String = name.chars().take(NAME_SHOWN).collect();
        return Err(invalid(format!(
            "must name workloads of the app, and {name:?} is none of them; there are {}.",
            known.join(", ")
        )));
    };
    if part.is_made() {
        return Ok(part);
    }
    Err(invalid(format!(
        "must name workloads that the app's deploys have made, and {} existed before: it keeps its own command.",
        part.name
    )))
}
